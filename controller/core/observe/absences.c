/* SPDX-License-Identifier: Apache-2.0 */
/* absences.c - see absences.h. */
#include "controller/core/observe/absences.h"

#include "controller/core/facts/jobs.h"
#include "controller/core/state/text-buffer.h"

void node_note_absence(Cluster *c, CoreNode *node)
{
    assert(node->used);
    Text t = text_begin(node->ran, sizeof(node->ran));
    for (int j = 0; j < c->limits.jobs; j++) {
        const CoreJob *job = &c->jobs[j];
        bool active = job->used && phase_is_active(job->phase.phase) && !job_is_paused(job);
        for (int i = 0; active && i < job->n_runs; i++) {
            int n = slots_count(job_runs(c, job)[i].slots);
            if (&c->nodes[job_runs(c, job)[i].node] != node)
                continue;
            text_add(&t, node->ran[0] ? ", " : "");
            text_add_int(&t, n);
            text_add(&t, n == 1 ? " rank of job " : " ranks of job ");
            text_add(&t, job->name);
        }
    }
    node->missed = node->record.state != NODE_LEFT && (node->admitted || node->ran[0]);
}
