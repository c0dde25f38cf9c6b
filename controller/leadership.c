/* leadership.c - when this controller decides, and how it ceases to. */
#include "base/log.h"
#include "base/message-id.h"
#include "controller/manager-internal.h"

#include <systemd/sd-daemon.h>

enum { LEAVE_SEC = 2 };

void say_status(Controller *m)
{
    status_say(&m->status, m->cluster, m->config->cluster, m->term, m->has_lease);
}

int on_status_timer(sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Controller *m = userdata;
    say_status(m);
    rights_tick(&m->rights);
    int r = sd_event_source_set_time_relative(source, STATUS_SEC * USEC_PER_SEC);
    return r < 0 ? r : sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

void begin_to_lead(Controller *m)
{
    log_event(LOG_LEVEL_INFO, MESSAGE_LEADING, "leading TERM=%lld", (long long)m->term);
    controller_metrics_note_leading(m->metrics);
    step_kind(m, (Event){.kind = EVENT_LEADING, .term = m->term});
}

void on_election(bool leading, const char *key, int64_t term, void *userdata)
{
    Controller *m = userdata;
    if (m->term && !leading)
        log_event(LOG_LEVEL_WARNING, MESSAGE_DEPOSED, "leadership lost TERM=%lld",
                  (long long)m->term);
    m->term = leading ? term : 0;
    if (leading)
        (void)snprintf(m->leader_key, sizeof(m->leader_key), "%s", key);
    say_status(m);
    if (!m->loaded)
        return; /* the watch is not there yet */
    if (leading)
        begin_to_lead(m);
    else
        step_kind(m, (Event){.kind = EVENT_DEPOSED});
}

void on_leader_lease(EtcdLeaseState state, int64_t lease, void *userdata)
{
    Controller *m = userdata;
    m->has_lease = state != ETCD_LEASE_LOST;
    if (m->election)
        etcd_election_lease_changed(m->election, state, lease);
}

void be_deposed(Controller *m)
{
    log_event(LOG_LEVEL_WARNING, MESSAGE_DEPOSED, "deposed, as the store says TERM=%lld",
              (long long)m->term);
    m->term = 0;
    say_status(m);
    step_kind(m, (Event){.kind = EVENT_DEPOSED});
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

void manager_leave(Controller *m)
{
    (void)sd_notify(0, "STOPPING=1"); /* nobody listens outside systemd */
    if (m->leave_timer)
        return;
    int r = sd_event_add_time_relative(m->event, &m->leave_timer, CLOCK_BOOTTIME,
                                       LEAVE_SEC * USEC_PER_SEC, 0, on_leave_timer, m);
    if (r < 0 || etcd_lease_revoke(m->lease, on_revoked, m) < 0)
        (void)sd_event_exit(m->event, 0); /* no lease, nothing to give up */
}
