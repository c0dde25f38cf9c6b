/* trainer-messages.c - see trainer-messages.h. */
#include "daemon/world/trainer-messages.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/manager.h"
#include "daemon/world/job.h"
#include "daemon/world/rank.h"

#include <string.h>

enum { MESSAGES_A_CALL = 256 };

static void set_state(Rank *rank, Seat *seat, RankState state)
{
    if (seat->report.state == state)
        return;
    seat->report.state = state;
    seat->report.at_usec = clock_realtime_usec();
    log_info("%s JOB=%s GENERATION=%lld RANK=%d", state == RANK_READY ? "ready" : "running",
             rank->job, (long long)rank->generation, rank->rank);
    team_report(rank->team);
}

static void on_ready(Rank *rank, Seat *seat, const ChannelMessage *m)
{
    rank->is_ready = true;
    watchdog_note_stage(&rank->watchdog, m->step, STAGE_READY, clock_boottime_usec());
    seat->report.stage = STAGE_READY;
    seat->report.step = m->step;
    seat->report.ready_usec = clock_realtime_usec();
    set_state(rank, seat, RANK_READY);
    job_advance(rank->team->job);
}

static void note_first_steps(const Rank *rank)
{
    Team *team = rank->team;
    uint64_t took_usec = watchdog_first_usec(&rank->watchdog);
    if (took_usec == 0)
        return;
    team->job->first_steps_usec = took_usec;
    team->job->first_steps_size = team->world_size;
}

static void on_stage(Rank *rank, Seat *seat, const ChannelMessage *m)
{
    RankReport *report = &seat->report;
    watchdog_note_stage(&rank->watchdog, m->step, m->stage, clock_boottime_usec());
    watchdog_note_wait(&rank->watchdog, m->waited_usec, clock_boottime_usec());
    if (report->rank == 0 && m->waited_usec >= PROGRESS_WAIT_SEC * USEC_PER_SEC)
        progress_note_wait(&rank->team->progress, m);
    note_first_steps(rank);
    if (m->stage > STAGE_JOINING && report->joined_usec == 0) {
        report->joined_usec = clock_realtime_usec();
        rank->joined_step = m->step;
    }
    report->step = m->step;
    report->stage = (int)m->stage;
    if (report->state == RANK_READY && report->joined_usec != 0 && m->step > rank->joined_step)
        set_state(rank, seat, RANK_RUNNING); /* its first step of this world is done */
}

static void on_step(Rank *rank, Seat *seat, const ChannelMessage *m)
{
    Team *team = rank->team;
    watchdog_note_step(&rank->watchdog, m->step, clock_boottime_usec());
    progress_note(&team->progress, m);
    daemon_metrics_note_step(rank, m);
    seat->report.step = m->step;
    if (team->first_step_usec != 0)
        return;
    team->first_step = m->step;
    team->first_step_usec = clock_realtime_usec();
    if (seat->report.joined_usec == 0)
        seat->report.joined_usec = team->first_step_usec;
    set_state(rank, seat, RANK_RUNNING);
    team_report(team);
}

static void on_saved(Rank *rank, const ChannelMessage *m)
{
    daemon_metrics_note_saved(rank, m);
    if (commit_begin(&rank->team->commit, m) < 0)
        log_error("saved step %lld while a commit is under way: not committed JOB=%s RANK=%d",
                  (long long)m->step, rank->job, rank->rank);
}

static void on_found(Rank *rank, const ChannelMessage *m)
{
    if (commit_found(&rank->team->commit, m) < 0)
        log_error("a checkpoint of step %lld was found while a commit is under way: not committed "
                  "JOB=%s RANK=%d",
                  (long long)m->step, rank->job, rank->rank);
}

static void on_error(Rank *rank, Seat *seat, const ChannelMessage *m)
{
    rank->words.error = true;
    rank->words.exit_code = m->exit_code;
    seat->report.unmet = CLAMP(m->unmet, 0, RECORD_RANKS_MAX);
    (void)snprintf(rank->words.text, sizeof(rank->words.text), "%.255s", m->text);
    seat->report.step = m->step;
    seat->report.stage = (int)m->stage;
    rank_expect_exit(rank);
}

static void on_done(Rank *rank, Seat *seat, const ChannelMessage *m)
{
    rank->words.done = true;
    (void)snprintf(rank->words.text, sizeof(rank->words.text), "%.255s", m->text);
    seat->report.step = m->step;
    watchdog_note_stage(&rank->watchdog, m->step, STAGE_LEAVING, clock_boottime_usec());
}

static void dispatch(Rank *rank, const ChannelMessage *m)
{
    Team *team = rank->team;
    if (!team || team->over)
        return; /* nobody asks any more */
    Seat *seat = team_seat_of(team, rank);
    assert(seat);

    switch (m->type) {
    case CHANNEL_HELLO:
        rank->said_hello = true;
        job_advance(team->job);
        break;
    case CHANNEL_RENDEZVOUS:
        (void)snprintf(team->address, sizeof(team->address), "%s", m->address);
        post_send(&team->rendezvous);
        break;
    case CHANNEL_READY:
        on_ready(rank, seat, m);
        break;
    case CHANNEL_STAGE:
        on_stage(rank, seat, m);
        break;
    case CHANNEL_STEP:
        on_step(rank, seat, m);
        break;
    case CHANNEL_SAVED:
        on_saved(rank, m);
        break;
    case CHANNEL_FOUND:
        on_found(rank, m);
        break;
    case CHANNEL_ERROR:
        on_error(rank, seat, m);
        break;
    case CHANNEL_DONE:
        on_done(rank, seat, m);
        break;
    default:
        log_warning("a trainer may not say %s JOB=%s RANK=%d", channel_type_name(m->type),
                    rank->job, rank->rank);
    }
}

void relay_receive(Rank *rank)
{
    for (int i = 0; i < MESSAGES_A_CALL; i++) {
        _cleanup_(channel_message_clear) ChannelMessage m = {0};
        Error err = ERROR_INIT;
        int r = channel_receive(rank->channel, &m, &err);
        if (r == -EAGAIN)
            return;
        if (r == -EBADMSG || r == -EMSGSIZE) {
            log_warning("%s JOB=%s RANK=%d", err.text, rank->job, rank->rank);
            continue;
        }
        if (r < 0) { /* closed: the process ends, which its pidfd will say */
            rank->channel_source = sd_event_source_disable_unref(rank->channel_source);
            if (!rank->exited)
                rank_expect_exit(rank);
            return;
        }
        dispatch(rank, &m);
    }
}
