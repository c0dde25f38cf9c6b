/* SPDX-License-Identifier: Apache-2.0 */
/* transactions.c - decisions under way.
 *
 * A decision is one guarded transaction. If it was refused, or its outcome is unknown, all records are read and fed
 * again before the core learns the outcome. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/probe.h"
#include "cluster/keys.h"
#include "controller/journal/decision-log.h"
#include "controller/leader/execute.h"
#include "controller/leader/leader-internal.h"

#include <string.h>

enum { RETRY_MSEC_MIN = 20, RETRY_DOUBLINGS_MAX = 6 };

Pending *pending_free(Pending *p)
{
    Pending **at = &p->leader->pending;
    while (*at != p) {
        assert(*at); /* p is in the list as long as it exists */
        at = &(*at)->next;
    }
    *at = p->next;
    p->call = etcd_call_free(p->call);
    p->retry = sd_event_source_disable_unref(p->retry);
    free(p);
    return NULL;
}

static void log_line(const LogLine *line, _unused_ void *userdata)
{
    log_text(line->level, line->message_id, line->format, line->text);
}

static void finish(Pending *p, Outcome outcome, int64_t revision)
{
    Leader *l = p->leader;
    Event event = {.kind = EVENT_OUTCOME,
                   .id = p->decision.id,
                   .outcome = outcome,
                   .revision = revision};
    if (outcome == OUTCOME_DONE) {
        l->refusals = 0;
        decision_log_lines(&p->decision, log_line, NULL);
    }
    (void)pending_free(p);
    step_kind(l, event);
}

static void read_again(Pending *p);

static int on_again(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Pending *p = userdata;
    p->retry = sd_event_source_disable_unref(p->retry);
    read_again(p);
    return 0;
}

/* The pause grows with the number of refusals, so that a lasting fault causes no busy loop. */
static void read_again_later(Pending *p)
{
    Leader *l = p->leader;
    unsigned doublings = MIN(l->refusals, (unsigned)RETRY_DOUBLINGS_MAX);
    l->refusals++;
    int r = sd_event_add_time_relative(l->needs.event, &p->retry, CLOCK_BOOTTIME,
                                       (RETRY_MSEC_MIN << doublings) * USEC_PER_MSEC, 1000,
                                       on_again, p);
    if (r < 0)
        end_without_timer(l, r);
}

/* True when the election key still has the create revision that guarded the decision. Also true if the list is older
 * than the term: such a list proves nothing. */
static bool still_leads(const Leader *l, const EtcdRange *range)
{
    if (range->revision < l->term)
        return true;
    for (size_t i = 0; i < range->n_kvs; i++)
        if (strcmp(range->kvs[i].key, l->leader_key) == 0)
            return range->kvs[i].create_revision == l->term;
    return false;
}

static void on_keys(int r, const Error *err, const EtcdRange *range, void *userdata)
{
    Pending *p = userdata;
    Leader *l = p->leader;
    p->call = NULL; /* the call frees itself */
    if (r < 0) {
        log_warning("cannot read the cluster again: %s", err->text);
        read_again_later(p);
        return;
    }
    if (range->revision > l->read_revision)
        feed_all(l, range);
    if (l->term && !still_leads(l, range))
        be_deposed(l);
    finish(p, p->outcome, 0);
}

static void read_again(Pending *p)
{
    Leader *l = p->leader;
    char prefix[KEY_MAX];
    int r = etcd_get(l->needs.etcd, key_prefix(l->settings.cluster, -1, prefix), true, on_keys, p,
                     &p->call);
    if (r < 0)
        read_again_later(p);
}

static void on_transaction(int r, const Error *err, const EtcdTxnResult *result, void *userdata)
{
    Pending *p = userdata;
    Leader *l = p->leader;
    Error lost = ERROR_INIT;
    p->call = NULL; /* the call frees itself */
    int struck = r == 0 && result->succeeded ? execute_fault(&p->decision, "after") : 0;
    if (struck < 0) {
        r = error_errno(&lost, struck, "the answer was lost");
        err = &lost;
    }
    assert(!p->retry); /* nothing is read again before the answer */
    p->outcome = r < 0 ? OUTCOME_UNKNOWN : result->succeeded ? OUTCOME_DONE : OUTCOME_REFUSED;
    l->events.answered(l->events.userdata, &p->decision, p->outcome, p->begun_usec,
                       r < 0 ? 0 : result->revision);
    PROBE(decision, p->decision.id, p->decision.job, p->decision.world.generation, p->outcome,
          clock_boottime_usec() - p->begun_usec);
    if (p->outcome == OUTCOME_DONE) {
        finish(p, OUTCOME_DONE, result->revision);
        return;
    }
    if (r == -EACCES)
        rights_denied(&l->rights);
    if (r < 0)
        log_warning("outcome unknown, reading again: %s JOB=%s", err->text, p->decision.job);
    else
        log_debug("refused by a guard, reading again JOB=%s", p->decision.job);
    read_again_later(p);
}

void begin_decision(Leader *l, const Decision *decision)
{
    Error err = ERROR_INIT;
    /* The core leads exactly when this candidate does. */
    assert(l->term && decision->term == l->term);
    for (const Pending *other = l->pending; other; other = other->next)
        assert(other->decision.id != decision->id);
    Pending *p = memory_new(Pending);
    p->leader = l;
    p->begun_usec = clock_boottime_usec();
    p->decision = *decision;
    p->decision.world.runs = NULL;
    p->next = l->pending;
    l->pending = p;
    Target target = {.etcd = l->needs.etcd,
                     .feed = l->feed,
                     .cluster = l->settings.cluster,
                     .leader_key = l->leader_key,
                     .rights = &l->rights,
                     .draw = l->needs.draw};
    int r = execute_fault(decision, "before");
    if (r < 0)
        r = error_errno(&err, r, "cannot begin a transaction");
    else
        r = execute(&target, decision, on_transaction, p, &p->call, &err);
    if (r < 0) {
        log_error("%s JOB=%s", err.text, decision->job);
        p->outcome = OUTCOME_UNKNOWN;
        read_again_later(p);
    }
}
