/* SPDX-License-Identifier: Apache-2.0 */
/* growth-incident.c - the incident of growth that cannot happen: there are enough nodes, but the world has not saved
 * and left within leave_deadline_sec, each time that it was asked to leave. The job trains on with fewer ranks than
 * it could have.
 *
 * Entry points: decide_growth_incident(), decide_growth_incident_over(). Guarantees: at most one such incident of a
 * job is open. The incident is resolved with the job's next world, or when no larger world is wanted any more. */
#include "controller/core/decide/growth-incident.h"

#include "controller/core/facts/incidents.h"
#include "controller/core/facts/reports.h"
#include "controller/core/facts/sizes.h"
#include "controller/core/state/causes.h"
#include "controller/core/state/text-buffer.h"
#include "controller/core/write/incident.h"

enum { GROWTHS_IN_VAIN_TOLD = 2 }; /* number of failed growths in a row that opens an incident */

static bool is_stuck(const CoreJob *job)
{
    return job->phase.growths_in_vain >= GROWTHS_IN_VAIN_TOLD &&
           job->desired.state == DESIRED_RUNNING && job->world.size < plan_wanted(job);
}

static void open_incident(const Cluster *c, const CoreJob *job, Decision *d)
{
    IncidentRecord *record =
        incident_begin(c, job, CAUSE_GROWTH_STUCK, job->world.generation, job->phase_stamp.mod, d);
    Text t = text_begin(record->evidence, sizeof(record->evidence));
    text_add_int(&t, job->world.size);
    text_add(&t, job->world.size == 1 ? " rank, " : " ranks, ");
    text_add_int(&t, plan_wanted(job));
    text_add(&t, " wanted: in ");
    text_add_int(&t, job->phase.growths_in_vain);
    text_add(&t, " growths it had not saved and left ");
    text_add_int(&t, (int64_t)(c->config.leave_deadline_usec / USEC_PER_SEC));
    text_add(&t, " s after being asked");
    record->step = job_reached_step(c, job);
    record->at_usec = c->real_usec;
}

bool decide_growth_incident(const Cluster *c, const CoreJob *job, Decision *d)
{
    if (!is_stuck(job))
        return decide_growth_incident_over(c, job, d);
    if (job->phase.phase != PHASE_RUNNING || /* another try to grow is under way */
        incident_find_cause(c, job, CAUSE_GROWTH_STUCK) || !incident_has_place(c))
        return false;
    open_incident(c, job, d);
    return true;
}

bool decide_growth_incident_over(const Cluster *c, const CoreJob *job, Decision *d)
{
    const Incident *open = incident_find_cause(c, job, CAUSE_GROWTH_STUCK);
    if (open)
        incident_resolve(c, job, open, d);
    return open != NULL;
}
