/* SPDX-License-Identifier: Apache-2.0 */
/* status.c - see status.h. */
#include "controller/status.h"

#include "controller/core/step/survey.h"

#include <stdio.h>
#include <string.h>
#include <systemd/sd-daemon.h>

static void describe_leading(const Cluster *cluster, const char *name, int64_t term,
                             char ret[STATUS_BYTES])
{
    int n_up = 0, n_nodes = 0, n_jobs = 0, n_running = 0;
    NodeSurvey node;
    JobSurvey job;
    for (; cluster_survey_node(cluster, n_nodes, &node); n_nodes++)
        n_up += node.up;
    for (; cluster_survey_job(cluster, n_jobs, &job); n_jobs++)
        n_running += job.phase == PHASE_RUNNING;
    (void)snprintf(ret, STATUS_BYTES,
                   "leading cluster %s, term %lld: %d of %d nodes up, %d job%s, %d running%s", name,
                   (long long)term, n_up, n_nodes, n_jobs, n_jobs == 1 ? "" : "s", n_running,
                   cluster_hold_until(cluster) ? "; many nodes vanished at once, waiting" : "");
}

void status_write(ControllerStatus *status, const Cluster *cluster, const char *name, int64_t term,
                  bool is_still, bool has_lease)
{
    char text[STATUS_BYTES];
    if (term)
        describe_leading(cluster, name, term, text);
    else if (is_still)
        (void)
            snprintf(text, sizeof(text),
                     "elected in cluster %s, deciding nothing: leaders before it died on the same "
                     "records",
                     name);
    else
        (void)snprintf(text, sizeof(text), "following in cluster %s%s", name,
                       has_lease ? "" : ", without a lease: etcd does not answer");
    if (strcmp(text, status->said) == 0)
        return;
    memcpy(status->said, text, sizeof(text));
    (void)sd_notifyf(0, "STATUS=%s", text); /* outside systemd nothing receives the line */
}
