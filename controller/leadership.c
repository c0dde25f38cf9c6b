/* SPDX-License-Identifier: Apache-2.0 */
/* leadership.c - when this controller decides, and how it ceases to.
 *
 * The election says who is first in the line (elected). Whether the first one decides (term) is another question:
 * succession.h says when it must not yet. */
#include "base/clock.h"
#include "base/log.h"
#include "base/message-id.h"
#include "controller/manager-internal.h"

#include <string.h>
#include <systemd/sd-daemon.h>
#include <time.h>

enum { LEAVE_SEC = 2, PROOF_LEASES = 3 /* that a leader has to live to have shown that it can */ };

void say_status(Controller *m)
{
    status_say(&m->status, m->cluster, m->config->cluster, m->term, m->is_still, m->has_lease);
}

/* ---- what this controller says of itself ---- */

char *leader_text(const Controller *m, LeaderState state)
{
    LeaderRecord record = config_leader(m->config, m->rights.lacks);
    succession_introduce(&m->succession, &record);
    record.state = state;
    return leader_record_encode(&record, NULL);
}

void introduce(Controller *m)
{
    if (!m->election)
        return; /* it begins with what is known by then */
    _cleanup_free_ char *text = leader_text(m, LEADER_UP);
    etcd_election_change(m->election, text);
}

void on_rights_changed(void *userdata) { introduce(userdata); }

/* ---- deciding ---- */

static uint64_t proof_usec(const Controller *m)
{
    return PROOF_LEASES * (uint64_t)m->config->lease_sec * USEC_PER_SEC;
}

static void forget_deaths(Controller *m)
{
    if (m->term && succession_is_settled(&m->succession, proof_usec(m), clock_boottime_usec()))
        on_rights_changed(m); /* the same record */
}

int on_status_timer(sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Controller *m = userdata;
    say_status(m);
    rights_tick(&m->rights);
    forget_deaths(m);
    int r = sd_event_source_set_time_relative(source, STATUS_SEC * USEC_PER_SEC);
    return r < 0 ? r : sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static void begin_to_lead(Controller *m)
{
    assert(m->elected && !m->term && m->loaded);
    m->term = m->elected;
    m->is_still = false;
    succession_led(&m->succession, clock_boottime_usec());
    say_status(m);
    log_event(LOG_LEVEL_INFO, MESSAGE_LEADING, "leading TERM=%lld", (long long)m->term);
    controller_metrics_note_leading(m->metrics);
    step_kind(m, (Event){.kind = EVENT_LEADING, .term = m->term});
}

static void say_death(const LeaderDeath *death, char *ret, size_t size)
{
    char at[32];
    const time_t sec = (time_t)(death->at_usec / USEC_PER_SEC);
    struct tm utc;
    (void)strftime(at, sizeof(at), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&sec, &utc)); /* it fits */
    (void)snprintf(ret, size, "%.64s at %s (%s%.160s)", death->name, at,
                   death->journal[0] ? "journal " : "no journal", death->journal);
}

static int on_still_timer(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    (void)try_to_lead(userdata); /* or not: either is good */
    return 0;
}

static void stand_still(Controller *m)
{
    const Succession *s = &m->succession;
    char text[2][300] = {"", ""};
    if (m->is_still)
        return;
    m->is_still = true;
    for (size_t i = 0; i < s->n_last; i++)
        say_death(&s->last[i], text[i], sizeof(text[i]));
    log_event(
        LOG_LEVEL_ERROR, MESSAGE_STANDSTILL,
        "deciding nothing: %d leaders in a row died on the same records, the last ones %s%s%s; "
        "trying again in %llu s, or when the records change, or at SIGHUP TERM=%lld",
        s->deaths, text[0], text[1][0] ? ", then " : "", text[1],
        (unsigned long long)((succession_still_until(s) - clock_boottime_usec()) / USEC_PER_SEC),
        (long long)m->elected);
    on_rights_changed(m); /* the same record says that it stands still */
    say_status(m);
    m->still_timer = sd_event_source_disable_unref(m->still_timer);
    int r = sd_event_add_time(m->event, &m->still_timer, CLOCK_BOOTTIME, succession_still_until(s),
                              1000, on_still_timer, m);
    if (r < 0)
        leave_without_timer(m, r);
}

bool try_to_lead(Controller *m)
{
    if (!m->elected || m->term || !m->loaded || m->leave_timer)
        return false;
    switch (succession_ask(&m->succession, m->leader_key, proof_usec(m), clock_boottime_usec(),
                           clock_realtime_usec())) {
    case SUCCESSION_WAIT:
        break;
    case SUCCESSION_TELL:
        on_rights_changed(m); /* the watch shows the record, and this is asked again */
        break;
    case SUCCESSION_STAND_STILL:
        stand_still(m);
        break;
    case SUCCESSION_LEAD:
        begin_to_lead(m);
        return true;
    }
    return false;
}

/* ---- lease and election ---- */

static void stand_back(Controller *m)
{
    m->elected = m->term = 0;
    m->is_still = false;
    m->still_timer = sd_event_source_disable_unref(m->still_timer);
    succession_left(&m->succession);
    say_status(m);
}

void on_election(bool leading, const char *key, int64_t term, void *userdata)
{
    Controller *m = userdata;
    if (leading) {
        assert(term > 0 && !m->term);
        m->elected = term;
        (void)snprintf(m->leader_key, sizeof(m->leader_key), "%s", key);
        (void)try_to_lead(m); /* else later: the watch is not there yet, or has not come so far */
        return;
    }
    const int64_t old = m->term;
    if (old)
        log_event(LOG_LEVEL_WARNING, MESSAGE_DEPOSED, "leadership lost TERM=%lld", (long long)old);
    stand_back(m);
    if (old)
        step_kind(m, (Event){.kind = EVENT_DEPOSED});
}

void be_deposed(Controller *m)
{
    assert(m->term);
    log_event(LOG_LEVEL_WARNING, MESSAGE_DEPOSED, "deposed, as the store says TERM=%lld",
              (long long)m->term);
    stand_back(m);
    step_kind(m, (Event){.kind = EVENT_DEPOSED});
}

void on_leader_lease(EtcdLeaseState state, int64_t lease, void *userdata)
{
    Controller *m = userdata;
    m->has_lease = state != ETCD_LEASE_LOST;
    if (m->election)
        etcd_election_lease_changed(m->election, state, lease);
}

/* ---- leaving ---- */

static void on_revoked(_unused_ int r, _unused_ const Error *err,
                       _unused_ const EtcdTxnResult *result, void *userdata)
{
    Controller *m = userdata;
    (void)sd_event_exit(m->event, 0); /* fails only when it is exiting already */
}

static int on_leave_timer(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Controller *m = userdata;
    log_warning("etcd does not answer; leadership ends with its lease");
    return sd_event_exit(m->event, 0);
}

static void give_up_lease(Controller *m)
{
    if (etcd_lease_revoke(m->lease, on_revoked, m) < 0)
        (void)sd_event_exit(m->event, 0); /* no lease, nothing to give up */
}

/* Whether it was written or not: the next leader counts a death, at worst. */
static void on_leave_told(_unused_ int r, _unused_ const Error *err,
                          _unused_ const EtcdTxnResult *result, void *userdata)
{
    give_up_lease(userdata);
}

/* The next leader shall not take it for a death. */
static int tell_leave(Controller *m)
{
    _cleanup_free_ char *text = leader_text(m, LEADER_LEFT);
    EtcdCall *call;
    const EtcdCompare same = {.key = m->leader_key,
                              .target = ETCD_CREATE_REVISION,
                              .equals = m->elected};
    const EtcdOp put = {.kind = ETCD_PUT,
                        .key = m->leader_key,
                        .value = text,
                        .lease = etcd_lease_id(m->lease)};
    return etcd_txn(m->etcd, &same, 1, &put, 1, on_leave_told, m, &call);
}

void manager_leave(Controller *m)
{
    (void)sd_notify(0, "STOPPING=1"); /* nobody listens outside systemd */
    if (m->leave_timer)
        return;
    int r = sd_event_add_time_relative(m->event, &m->leave_timer, CLOCK_BOOTTIME,
                                       LEAVE_SEC * USEC_PER_SEC, 0, on_leave_timer, m);
    if (r < 0)
        (void)sd_event_exit(m->event, 0); /* its lease ends by itself */
    else if (!m->elected || tell_leave(m) < 0)
        give_up_lease(m);
}
