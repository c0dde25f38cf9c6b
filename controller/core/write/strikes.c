/* SPDX-License-Identifier: Apache-2.0 */
/* strikes.c - deaths of a job's trainers on a machine: whether the machine or the job is to blame.
 *
 * A trainer that died once starts again on its node. Strikes are kept by machine and submission, as causes of the job
 * in cordons/<node>. If max_strikes strikes are of one submission, the machine is refused for that job; if they are
 * of several submissions, the machine is quarantined, since no single program explains them. If a job dies in the same
 * way on a second machine up to the limit, the job is to blame: its strikes and refusals are lifted, and further
 * deaths in that way strike no machine.
 *
 * Entry points: strike_judge(), strike(), strikes_lift(). */
#include "controller/core/write/strikes.h"

#include "controller/core/facts/machines.h"
#include "controller/core/state/text-buffer.h"
#include "controller/core/write/cordons.h"

enum { STRIKES_MAX = 1000000 };

/* A bug in a program ends it with a code of its own, on every machine: five such ends in ten minutes would quarantine
 * healthy machines. */
bool strike_is_due(const CoreJob *job, const Failure *f)
{
    return !job->facts.is_program || f->cause == CAUSE_HANG || f->code < 0;
}

/* Writes "signal 9", "exit 3" or "hang"; writes nothing if the machine may well have ended the trainer. */
static void write_way(const CoreJob *job, const Failure *f, char ret[RECORD_WAY_MAX + 1])
{
    Text t = text_begin(ret, RECORD_WAY_MAX + 1);
    if (cause_rule(f->cause)->blame != BLAME_STRIKE || !strike_is_due(job, f))
        return;
    if (f->cause == CAUSE_HANG) {
        text_add(&t, "hang");
        return;
    }
    text_add(&t, f->code < 0 ? "signal " : "exit ");
    text_add_int(&t, f->code < 0 ? -f->code : f->code);
}

static bool is_of_job(const CordonCause *cause, const CoreJob *job)
{
    return cause->owner == CORDON_JOB && text_equal(cause->job, job->name) &&
           text_equal(cause->submission, job->facts.submission);
}

/* Returns the job's own cause against the node's machine; NULL: there is none. */
static const CordonCause *find_own(const Cluster *c, const CoreNode *node, const CoreJob *job)
{
    const CordonRecord *record = &node_cordons(c, node)->record;
    int at = node->cordon_stamp.mod
                 ? cordon_find(record, CORDON_JOB, job->name, node->record.machine_id)
                 : -1;
    return at >= 0 ? &record->causes[at] : NULL;
}

static bool counts(const Cluster *c, const CordonCause *cause)
{
    return cause->strikes > 0 && c->real_usec < cause->since_usec + c->config.strike_window_usec;
}

/* Returns the job's cause with one more strike. */
static CordonCause add_strike(const Cluster *c, const CoreNode *node, const CoreJob *job,
                              const Failure *f)
{
    char way[RECORD_WAY_MAX + 1];
    const CordonCause *own = find_own(c, node, job);
    CordonCause cause = cordon_begin_cause(c, node, job);
    write_way(job, f, way);
    if (!own || !is_of_job(own, job) || !counts(c, own)) {
        cause.strikes = 0;
        cause.since_usec = c->real_usec;
        text_copy(cause.way, sizeof(cause.way), way);
    }
    if (!text_equal(cause.way, way))
        cause.way[0] = '\0';
    cause.strikes = MIN(cause.strikes, STRIKES_MAX - 1) + 1;
    Text t = text_begin(cause.reason, sizeof(cause.reason));
    text_add(&t, cause_name(f->cause));
    text_add(&t, ": ");
    text_add(&t, f->evidence);
    return cause;
}

/* Adds the strikes of an earlier submission under the job's name to the machine's cause, so that they still count.
 * Returns true if there are any. */
static bool keep_former(const Cluster *c, const CoreNode *node, const CoreJob *job,
                        CordonCause *machine)
{
    const CordonCause *own = find_own(c, node, job);
    if (!own || is_of_job(own, job) || !counts(c, own))
        return false;
    if (!counts(c, machine)) {
        machine->strikes = 0;
        machine->since_usec = own->since_usec;
    }
    if (machine->mode == CORDON_NONE)
        text_copy(machine->reason, sizeof(machine->reason), own->reason);
    machine->strikes = MIN(machine->strikes, STRIKES_MAX / 2) + MIN(own->strikes, STRIKES_MAX / 2);
    return true;
}

typedef struct Tally {
    int64_t own, others; /* 64 bits, because records may hold any value */
} Tally;

/* Counts the machine's strikes, including the new strike: the strikes of the job's submission, and all others. */
static Tally tally(const Cluster *c, const CoreNode *node, const CoreJob *job,
                   const CordonCause *with)
{
    Tally t = {.own = with->strikes};
    const CordonRecord *record = &node_cordons(c, node)->record;
    for (size_t i = 0; node->cordon_stamp.mod && i < record->n_causes; i++) {
        const CordonCause *cause = &record->causes[i];
        if (cause->owner != CORDON_OPERATOR && counts(c, cause) && !is_of_job(cause, job) &&
            text_equal(cause->machine_id, node->record.machine_id))
            t.others += cause->strikes;
    }
    node_strikes_elsewhere(c, node, job, &t.own, &t.others);
    return t;
}

static bool is_reached(const Cluster *c, const Tally *t)
{
    return c->config.max_strikes > 0 && t->own + t->others >= c->config.max_strikes;
}

/* True when, within quarantine_usec, another machine was refused for the job because of deaths in that way. */
static bool is_refused_elsewhere(const Cluster *c, const CoreNode *node, const CoreJob *job,
                                 const char *way)
{
    for (int at = 0; at < c->n_cordoned; at++) {
        const CordonRecord *record = &c->cordons[c->cordoned[at]].record;
        for (size_t i = 0; i < record->n_causes; i++) {
            const CordonCause *cause = &record->causes[i];
            if (is_of_job(cause, job) && strikes_refuse(cause) && text_equal(cause->way, way) &&
                c->real_usec < cause->since_usec + c->config.quarantine_usec &&
                (c->cordoned[at] != node - c->nodes) &&
                !text_equal(cause->machine_id, node->record.machine_id))
                return true;
        }
    }
    return false;
}

void strike_judge(const Cluster *c, const CoreJob *job, const Failure *f, StrikeJudgement *ret)
{
    *ret = (StrikeJudgement){0};
    if (f->node < 0)
        return;
    const CoreNode *node = &c->nodes[f->node];
    write_way(job, f, ret->way);
    if (!ret->way[0])
        return;
    ret->is_jobs = text_equal(job->phase.dies_by, ret->way) &&
                   c->real_usec < job->phase.dies_usec + c->config.quarantine_usec;
    if (ret->is_jobs)
        return;
    const CordonCause cause = add_strike(c, node, job, f);
    const Tally t = tally(c, node, job, &cause);
    ret->is_new = t.others == 0 && is_reached(c, &t) && text_equal(cause.way, ret->way) &&
                  is_refused_elsewhere(c, node, job, ret->way);
    ret->is_jobs = ret->is_new;
}

void strikes_lift(const Cluster *c, const CoreJob *job, const char *way, Decision *d)
{
    for (int at = 0; at < c->n_cordoned; at++) {
        const CoreNode *node = &c->nodes[c->cordoned[at]];
        const CordonRecord *record = &c->cordons[c->cordoned[at]].record;
        for (size_t i = 0; i < record->n_causes; i++) {
            const CordonCause *cause = &record->causes[i];
            if (is_of_job(cause, job) && text_equal(cause->way, way) &&
                (cause->mode == CORDON_NONE || strikes_refuse(cause)))
                /* Without room in the decision, the cause ends when its time is over. */
                cordon_end_cause(c, node, cause, d);
        }
    }
}

void strikes_forget(const Cluster *c, const CoreNode *node, const char *machine_id, Decision *d)
{
    const CordonRecord *record = &node_cordons(c, node)->record;
    for (size_t i = 0; node->cordon_stamp.mod && i < record->n_causes; i++)
        if (record->causes[i].owner == CORDON_JOB && record->causes[i].mode == CORDON_NONE &&
            text_equal(record->causes[i].machine_id, machine_id))
            cordon_end_cause(c, node, &record->causes[i], d);
}

void strike(const Cluster *c, Scratch *s, const CoreJob *job, const Failure *f, Decision *d)
{
    const CoreNode *node = &c->nodes[f->node];
    assert(f->node >= 0 && node->used);
    if (!strike_is_due(job, f))
        return;
    CordonCause machine = cordon_begin_cause(c, node, NULL);
    CordonCause cause = add_strike(c, node, job, f);
    if (machine.mode == CORDON_QUARANTINE || cause.mode == CORDON_QUARANTINE)
        return;
    const Tally t = tally(c, node, job, &cause);
    const bool reached = is_reached(c, &t), refuses = reached && t.others == 0;
    const bool kept = keep_former(c, node, job, &machine), quarantines = reached && !refuses;
    s->left_out[f->node] |= reached;
    if (refuses) {
        cause.mode = CORDON_QUARANTINE;
        cause.since_usec = c->real_usec;
        cause.until_usec = c->real_usec + c->config.quarantine_usec;
    }
    if (quarantines) {
        machine.mode = CORDON_QUARANTINE;
        machine.since_usec = c->real_usec;
        machine.until_usec = c->real_usec + c->config.quarantine_usec;
        text_copy(machine.reason, sizeof(machine.reason), cause.reason);
    }
    /* The cause that is put last is the one that is reported. If there is no room for it, the next failure puts it. */
    if (kept && !quarantines)
        (void)cordon_put_cause(c, node, &machine, d);
    (void)cordon_put_cause(c, node, &cause, d);
    if (quarantines)
        (void)cordon_put_cause(c, node, &machine, d);
}
