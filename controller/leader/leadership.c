/* SPDX-License-Identifier: Apache-2.0 */
/* leadership.c - when this candidate decides, and how it stops deciding.
 *
 * The election determines which controller is first in the line (elected). The first one need not decide at once
 * (term): succession.h describes when it must still wait. */
#include "base/clock.h"
#include "base/log.h"
#include "base/message-id.h"
#include "controller/leader/leader-internal.h"

#include <string.h>
#include <time.h>

enum { LEAVE_SEC = 2, PROOF_LEASES = 3 /* a leader that lives this long counts as sound */ };

static void notify_view(Leader *l) { l->events.view_changed(l->events.userdata); }

/* ---- this candidate's record ---- */

char *leader_text(const Leader *l, LeaderState state)
{
    LeaderRecord record = l->settings.introduction;
    (void)snprintf(record.lacks, sizeof(record.lacks), "%s", l->rights.lacks);
    succession_introduce(&l->succession, &record);
    record.state = state;
    return leader_record_encode(&record, NULL);
}

void introduce(Leader *l)
{
    if (!l->election)
        return; /* the election has not begun: it will write the record when it begins */
    _cleanup_free_ char *text = leader_text(l, LEADER_UP);
    etcd_election_change(l->election, text);
}

void on_rights_changed(void *userdata) { introduce(userdata); }

/* ---- deciding ---- */

static uint64_t proof_usec(const Leader *l)
{
    return PROOF_LEASES * (uint64_t)l->settings.lease_sec * USEC_PER_SEC;
}

static void forget_deaths(Leader *l)
{
    if (l->term && succession_is_settled(&l->succession, proof_usec(l), clock_boottime_usec()))
        on_rights_changed(l); /* writes the record anew, without the deaths */
}

int on_status_timer(sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Leader *l = userdata;
    notify_view(l);
    rights_tick(&l->rights);
    forget_deaths(l);
    int r = sd_event_source_set_time_relative(source, STATUS_SEC * USEC_PER_SEC);
    return r < 0 ? r : sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static void begin_to_lead(Leader *l)
{
    assert(l->elected && !l->term && l->loaded);
    l->term = l->elected;
    l->is_still = false;
    succession_led(&l->succession, clock_boottime_usec());
    notify_view(l);
    log_event(LOG_LEVEL_INFO, MESSAGE_LEADING, "leading TERM=%lld", (long long)l->term);
    l->events.leads(l->events.userdata);
    step_kind(l, (Event){.kind = EVENT_LEADING, .term = l->term});
}

static void log_death(const LeaderDeath *death, char *ret, size_t size)
{
    char at[32];
    const time_t sec = (time_t)(death->at_usec / USEC_PER_SEC);
    struct tm utc;
    (void)strftime(at, sizeof(at), "%Y-%m-%dT%H:%M:%SZ",
                   gmtime_r(&sec, &utc)); /* the buffer is large enough */
    (void)snprintf(ret, size, "%.64s at %s (%s%.160s)", death->name, at,
                   death->journal[0] ? "journal " : "no journal", death->journal);
}

static int on_still_timer(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    (void)try_to_lead(userdata); /* the result does not matter */
    return 0;
}

static void stand_still(Leader *l)
{
    const Succession *s = &l->succession;
    char text[2][300] = {"", ""};
    if (l->is_still)
        return;
    l->is_still = true;
    for (size_t i = 0; i < s->n_last; i++)
        log_death(&s->last[i], text[i], sizeof(text[i]));
    log_event(
        LOG_LEVEL_ERROR, MESSAGE_STANDSTILL,
        "deciding nothing: %d leaders in a row died on the same records, the last ones %s%s%s; "
        "trying again in %llu s, or when the records change, or at SIGHUP TERM=%lld",
        s->deaths, text[0], text[1][0] ? ", then " : "", text[1],
        (unsigned long long)((succession_still_until(s) - clock_boottime_usec()) / USEC_PER_SEC),
        (long long)l->elected);
    on_rights_changed(l); /* the record then shows the standstill */
    notify_view(l);
    l->still_timer = sd_event_source_disable_unref(l->still_timer);
    int r = sd_event_add_time(l->needs.event, &l->still_timer, CLOCK_BOOTTIME,
                              succession_still_until(s), 1000, on_still_timer, l);
    if (r < 0)
        end_without_timer(l, r);
}

bool try_to_lead(Leader *l)
{
    if (!l->elected || l->term || !l->loaded || l->leave_timer)
        return false;
    switch (succession_query(&l->succession, l->leader_key, proof_usec(l), clock_boottime_usec(),
                             clock_realtime_usec())) {
    case SUCCESSION_WAIT:
        break;
    case SUCCESSION_INTRODUCE:
        on_rights_changed(l); /* when the watch shows the record, this function runs again */
        break;
    case SUCCESSION_STAND_STILL:
        stand_still(l);
        break;
    case SUCCESSION_LEAD:
        begin_to_lead(l);
        return true;
    }
    return false;
}

/* ---- lease and election ---- */

static void stand_back(Leader *l)
{
    l->elected = l->term = 0;
    l->is_still = false;
    l->still_timer = sd_event_source_disable_unref(l->still_timer);
    succession_left(&l->succession);
    notify_view(l);
}

void on_election(bool leading, const char *key, int64_t term, void *userdata)
{
    Leader *l = userdata;
    if (leading) {
        assert(term > 0 && !l->term);
        l->elected = term;
        (void)snprintf(l->leader_key, sizeof(l->leader_key), "%s", key);
        (void)try_to_lead(l); /* if this is too early, on_cluster_watch() tries again */
        return;
    }
    const int64_t old = l->term;
    if (old)
        log_event(LOG_LEVEL_WARNING, MESSAGE_DEPOSED, "leadership lost TERM=%lld", (long long)old);
    stand_back(l);
    if (old)
        step_kind(l, (Event){.kind = EVENT_DEPOSED});
}

void be_deposed(Leader *l)
{
    assert(l->term);
    log_event(LOG_LEVEL_WARNING, MESSAGE_DEPOSED, "deposed, as the store says TERM=%lld",
              (long long)l->term);
    stand_back(l);
    step_kind(l, (Event){.kind = EVENT_DEPOSED});
}

void on_leader_lease(EtcdLeaseState state, int64_t lease, void *userdata)
{
    Leader *l = userdata;
    const bool had_lease = l->has_lease;
    l->has_lease = state != ETCD_LEASE_LOST;
    if (l->has_lease != had_lease)
        notify_view(l);
    if (l->election)
        etcd_election_lease_changed(l->election, state, lease);
}

/* ---- leaving ---- */

static void on_revoked(_unused_ int r, _unused_ const Error *err,
                       _unused_ const EtcdTxnResult *result, void *userdata)
{
    Leader *l = userdata;
    l->leave_call = NULL; /* the call frees itself */
    notify_end(l, 0);
}

static int on_leave_timer(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Leader *l = userdata;
    if (!l->is_over)
        log_warning("etcd does not answer; leadership ends with its lease");
    notify_end(l, 0);
    return 0;
}

static void give_up_lease(Leader *l)
{
    if (etcd_lease_revoke(l->lease, on_revoked, l, &l->leave_call) < 0)
        notify_end(l, 0); /* there is no lease to revoke */
}

/* Gives up the lease, whether or not the record was written: at worst the next leader counts a death. */
static void on_leave_written(_unused_ int r, _unused_ const Error *err,
                             _unused_ const EtcdTxnResult *result, void *userdata)
{
    Leader *l = userdata;
    l->leave_call = NULL; /* the call frees itself */
    give_up_lease(l);
}

/* Writes that this controller leaves, so that the next leader does not count a death. */
static int write_leave(Leader *l)
{
    _cleanup_free_ char *text = leader_text(l, LEADER_LEFT);
    const EtcdCompare same = {.key = l->leader_key,
                              .target = ETCD_CREATE_REVISION,
                              .equals = l->elected};
    const EtcdOp put = {.kind = ETCD_PUT,
                        .key = l->leader_key,
                        .value = text,
                        .lease = etcd_lease_id(l->lease)};
    return etcd_txn(l->needs.etcd, &same, 1, &put, 1, on_leave_written, l, &l->leave_call);
}

void leader_leave(Leader *l)
{
    if (l->leave_timer)
        return;
    int r = sd_event_add_time_relative(l->needs.event, &l->leave_timer, CLOCK_BOOTTIME,
                                       LEAVE_SEC * USEC_PER_SEC, 0, on_leave_timer, l);
    if (r < 0)
        notify_end(l, 0); /* the lease ends by itself */
    else if (!l->elected || write_leave(l) < 0)
        give_up_lease(l);
}
