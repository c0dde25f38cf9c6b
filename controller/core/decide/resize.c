/* SPDX-License-Identifier: Apache-2.0 */
/* resize.c - changes of a running world's size: by a user's request and by growth, and the reason for a wait.
 *
 * Entry points: decide_resize(), decide_wait(). A request takes effect at once or never; growth adds the ranks for
 * which there was no free slot. If a job does not have the requested size, its phase names what it waits for. */
#include "controller/core/decide/resize.h"

#include "controller/core/facts/incidents.h"
#include "controller/core/facts/sizes.h"
#include "controller/core/judge/plan.h"
#include "controller/core/judge/queue.h"
#include "controller/core/state/causes.h"
#include "controller/core/state/text-buffer.h"
#include "controller/core/write/phase.h"
#include "controller/core/write/world.h"

static void write_sizes(Text *t, const char *verb, int from, int to)
{
    text_add(t, verb);
    text_add(t, " from ");
    text_add_int(t, from);
    text_add(t, " to ");
    text_add_int(t, to);
}

/* The time that a node must stay before a world grows onto it: one TTL, or the interval between two growths if
 * that is shorter. A growth that came too early costs no more than that interval. */
static uint64_t stay_usec(const Cluster *c, const CoreJob *job)
{
    return MIN(job->facts.grow_interval_usec, c->config.ttl_usec);
}

/* A node that has just appeared may vanish again, and more nodes may appear. So growth waits until every node of the
 * larger plan, which was just made, has stayed for stay_usec(). Returns a node that has not stayed for so long;
 * NULL: there is none. */
static const CoreNode *find_newcomer(const Cluster *c, Scratch *s, const CoreJob *job)
{
    const CoreNode *newcomer = NULL;
    for (int i = 0; i < c->limits.nodes; i++)
        if (s->free_slots[i] && !cluster_due(c, s, c->nodes[i].changed_usec + stay_usec(c, job)) &&
            !newcomer)
            newcomer = &c->nodes[i];
    return newcomer;
}

/* The interval is over by the record's time, or by this machine's clock since this leader learnt of the last growth,
 * whichever is earlier: a clock that is set back must not delay growth. */
static bool interval_is_over(const Cluster *c, Scratch *s, const CoreJob *job)
{
    uint64_t interval = job->facts.grow_interval_usec;
    if (job->phase.growths_in_vain > 0) /* the world was asked to leave, and could not */
        interval = MAX(interval, c->config.leave_deadline_usec)
                   << MIN(job->phase.growths_in_vain, GROWTHS_IN_VAIN_MAX);
    uint64_t next = job->phase.grown_usec + interval;
    uint64_t rest = job->phase.grown_usec && next > c->real_usec ? next - c->real_usec : 0;
    return !rest || cluster_due(c, s, MIN(c->now_usec + rest, job->grown_usec + interval));
}

/* Notes that the user's newest request was examined and changes nothing now: growth adds the ranks that lack a slot.
 * If the request stayed open, it would take effect at any later change of the plan. */
static bool decide_noted(const Cluster *c, const CoreJob *job, Decision *d)
{
    decide_same_phase(c, job, d);
    d->phase.tried_revision = job->desired_stamp.mod;
    d->desired_revision = job->desired_stamp.mod;
    return true;
}

/* Notes that desired/<job> was put back unchanged, because the next leader must not take the record for a new
 * request. */
bool decide_old_request(const Cluster *c, const CoreJob *job, Decision *d)
{
    return job->word <= job->phase.tried_revision &&
           job->desired_stamp.mod > job->phase.tried_revision && decide_noted(c, job, d);
}

/* Plans the job's next world. Returns true if the plan has another size, in the wanted direction. Nodes that were
 * cordoned meanwhile must not shrink a world that should keep its size or grow, and must not make a world smaller
 * than was requested. */
static bool plan_other_size(const Cluster *c, Scratch *s, const CoreJob *job, Plan *ret)
{
    int wanted = plan_wanted(job), present = job->world.size;
    plan_world(c, s, job, ret);
    return (wanted < present && ret->size == wanted) || ret->size > present;
}

static bool size_was_requested(const CoreJob *job)
{
    return job->desired.state == DESIRED_RUNNING && job->word > job->phase.tried_revision;
}

/* Writes "resizes from 3 to 2, asked by anna@laptop". */
static const char *write_requested(const CoreJob *job, const Plan *plan,
                                   char ret[RECORD_TEXT_MAX + 1])
{
    char reason[RECORD_TEXT_MAX + 1];
    Text t = text_begin(reason, sizeof(reason));
    write_sizes(&t, "resizes", job->world.size, plan->size);
    return decide_requested(reason, job->desired.by, ret);
}

bool decide_resize_unsaved(const Cluster *c, Scratch *s, const CoreJob *job, Decision *d)
{
    char asked[RECORD_TEXT_MAX + 1];
    Plan plan;
    return size_was_requested(job) && plan_other_size(c, s, job, &plan) &&
           decide_world(c, s, job, job->phase.phase, write_requested(job, &plan, asked), d);
}

bool decide_resize(const Cluster *c, Scratch *s, const CoreJob *job, Decision *d)
{
    char reason[RECORD_TEXT_MAX + 1];
    Text t = text_begin(reason, sizeof(reason));
    bool asked = size_was_requested(job);
    int wanted = plan_wanted(job), present = job->world.size;
    if (!asked && (present >= wanted || job->facts.is_eval))
        return false; /* an evaluation would begin again in order to grow */

    Plan plan; /* a request for fewer ranks that cannot be met now stays open */
    if (!plan_other_size(c, s, job, &plan))
        return asked && wanted >= present && decide_noted(c, job, d);
    if (asked)
        return request_leave(c, job, PHASE_RESIZING, write_requested(job, &plan, reason), d);
    if (!interval_is_over(c, s, job) || find_newcomer(c, s, job) ||
        queue_find_ahead_soon(c, s, job) ||               /* the job ahead would get the slots */
        plan_somebody_starts(c, s, job) ||                /* the starting job makes its own plan */
        incident_find_cause(c, job, CAUSE_STORE_TROUBLE)) /* the world could not save and leave */
        return false;
    assert(plan.size > present && plan.size <= wanted);
    write_sizes(&t, "grows", present, plan.size);
    (void)request_leave(c, job, PHASE_RESIZING, reason, d);
    d->phase.grown_usec = c->real_usec;
    return true;
}

/* ---- waiting for the requested size ---- */

static const char wanted_word[] = " wanted: ";

/* Writes what delays growth although the slots of the plan that was just made are free. */
static void write_hold(const Cluster *c, Scratch *s, const CoreJob *job, Text *t)
{
    const CoreJob *ahead = queue_find_ahead(c, s, job);
    const CoreNode *newcomer = find_newcomer(c, s, job);
    if (!ahead)
        ahead = queue_find_ahead_soon(c, s, job);
    if (ahead) {
        text_add(t, "waits for job ");
        text_add(t, ahead->name);
        text_add(t, ", which comes first and needs ");
        plan_write_slots(ahead, plan_needed(ahead), t);
    } else if (incident_find_cause(c, job, CAUSE_STORE_TROUBLE)) {
        text_add(t, "waits until its store takes checkpoints again");
    } else if (!interval_is_over(c, s, job)) {
        text_add(t, "waits for recovery.grow_interval_s");
    } else if (newcomer) {
        text_add(t, "waits until ");
        text_add(t, newcomer->record.name);
        text_add(t, " has stayed for ");
        text_add_int(t, (int64_t)(stay_usec(c, job) / USEC_PER_SEC));
        text_add(t, " s");
    } else {
        text_add(t, "waits for a job that starts");
    }
}

/* Writes "2 ranks, 4 wanted: needs 1 slot; n3 is cordoned: its fan". */
static void write_wait(const Cluster *c, Scratch *s, const CoreJob *job, Text *t)
{
    int wanted = plan_wanted(job), present = job->world.size;
    Plan plan;
    plan_world(c, s, job, &plan);
    int missing = wanted - plan.available;
    text_add_int(t, present);
    text_add(t, present == 1 ? " rank, " : " ranks, ");
    text_add_int(t, wanted);
    text_add(t, wanted_word);
    if (missing <= 0) {
        write_hold(c, s, job, t);
        return;
    }
    text_add(t, "needs ");
    plan_write_slots(job, missing, t);
    plan_write_refusals(c, s, job, t);
}

/* Writes what a running job waits for if it does not have the requested size; at most once a second, because each
 * node reads the phase. A reason that explains why the world went on instead of leaving is kept. */
bool decide_wait(const Cluster *c, Scratch *s, const CoreJob *job, Decision *d)
{
    static const char goes_on[] = "goes on: ";
    char why[RECORD_TEXT_MAX + 1];
    Text t = text_begin(why, sizeof(why));
    bool waits = job->desired.state == DESIRED_RUNNING && job->desired.target > 0 &&
                 job->world.size != plan_wanted(job);
    bool told = text_contains(job->phase.reason, wanted_word, sizeof(wanted_word) - 1);
    if (waits && !told && text_contains(job->phase.reason, goes_on, sizeof(goes_on) - 1))
        return false;
    assert(job->phase.phase == PHASE_RUNNING && !d->put_phase);
    if (waits)
        write_wait(c, s, job, &t);
    if ((!waits && !told) || text_equal(job->phase.reason, why) ||
        !cluster_due(c, s, job->phase_usec + USEC_PER_SEC))
        return false;
    decide_same_phase(c, job, d);
    text_copy(d->phase.reason, sizeof(d->phase.reason), why);
    return true;
}
