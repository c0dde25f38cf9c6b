/* SPDX-License-Identifier: Apache-2.0 */
/* trainer-messages.c - see trainer-messages.h. */
#include "daemon/world/trainer-messages.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/world/job.h"
#include "daemon/world/rank.h"
#include "daemon/world/workload.h"

#include <string.h>

enum { MESSAGES_A_CALL = 256 };

static void set_state(Rank *rank, LocalRank *local_rank, RankState state)
{
    if (local_rank->report.state == state)
        return;
    local_rank->report.state = state;
    local_rank->report.at_usec = clock_realtime_usec();
    log_info("%s JOB=%s GENERATION=%lld RANK=%d", state == RANK_READY ? "ready" : "running",
             rank->job, (long long)rank->generation, rank->rank);
    local_world_report(rank->local);
}

static void on_ready(Rank *rank, LocalRank *local_rank, const ChannelMessage *m)
{
    rank->is_ready = true;
    watchdog_note_stage(&rank->watchdog, m->step, STAGE_READY, clock_boottime_usec());
    local_rank->report.stage = STAGE_READY;
    local_rank->report.step = m->step;
    local_rank->report.ready_usec = clock_realtime_usec();
    set_state(rank, local_rank, RANK_READY);
    job_advance(rank->local->job);
}

static void note_first_steps(const Rank *rank)
{
    LocalWorld *local = rank->local;
    uint64_t took_usec = watchdog_first_usec(&rank->watchdog);
    if (took_usec == 0)
        return;
    local->job->first_steps_usec = took_usec;
    local->job->first_steps_size = local->world_size;
}

static void on_stage(Rank *rank, LocalRank *local_rank, const ChannelMessage *m)
{
    RankReport *report = &local_rank->report;
    const TrainStage stage = m->unnamed ? STAGE_RUNNING : m->stage;
    watchdog_note_stage(&rank->watchdog, m->step, stage, clock_boottime_usec());
    watchdog_note_wait(&rank->watchdog, m->waited_usec, clock_boottime_usec());
    if (report->rank == 0 && m->waited_usec >= PROGRESS_WAIT_SEC * USEC_PER_SEC)
        progress_note_wait(&rank->local->progress, m);
    note_first_steps(rank);
    if (m->stage > STAGE_JOINING && report->joined_usec == 0) {
        report->joined_usec = clock_realtime_usec();
        rank->joined_step = m->step;
    }
    report->step = m->step;
    report->stage = (int)m->stage;
    report->unnamed = m->unnamed;
    /* A trainer runs once its first step of this world is done. */
    const bool runs = rank->local->is_program || m->step > rank->joined_step;
    if (report->state == RANK_READY && report->joined_usec != 0 && runs)
        set_state(rank, local_rank, RANK_RUNNING);
}

static void on_step(Rank *rank, LocalRank *local_rank, const ChannelMessage *m)
{
    LocalWorld *local = rank->local;
    watchdog_note_step(&rank->watchdog, m->step, clock_boottime_usec());
    progress_note(&local->progress, m);
    const WorkloadEvents *events = &local->job->workload->events;
    events->rank_stepped(events->userdata, rank, m);
    local_rank->report.step = m->step;
    if (local->first_step_usec != 0)
        return;
    local->first_step = m->step;
    local->first_step_usec = clock_realtime_usec();
    if (local_rank->report.joined_usec == 0)
        local_rank->report.joined_usec = local->first_step_usec;
    set_state(rank, local_rank, RANK_RUNNING);
    local_world_report(local);
}

static void on_saved(Rank *rank, const ChannelMessage *m)
{
    const WorkloadEvents *events = &rank->local->job->workload->events;
    events->rank_saved(events->userdata, rank, m);
    if (commit_begin(&rank->local->commit, m) < 0)
        log_error("saved step %lld while a commit is under way: not committed JOB=%s RANK=%d",
                  (long long)m->step, rank->job, rank->rank);
}

static void on_found(Rank *rank, const ChannelMessage *m)
{
    if (commit_found(&rank->local->commit, m) < 0)
        log_error("a checkpoint of step %lld was found while a commit is under way: not committed "
                  "JOB=%s RANK=%d",
                  (long long)m->step, rank->job, rank->rank);
}

static void on_error(Rank *rank, LocalRank *local_rank, const ChannelMessage *m)
{
    rank->words.error = true;
    rank->words.exit_code = m->exit_code;
    local_rank->report.unmet = CLAMP(m->unmet, 0, RECORD_RANKS_MAX);
    local_rank->report.hung = m->hung;
    local_rank->report.stuck = m->stuck;
    exit_copy_text(rank->words.text, m->text, rank->local->resume.uri);
    local_rank->report.step = m->step;
    local_rank->report.stage = (int)m->stage;
    local_rank->report.unnamed = m->unnamed;
    rank_expect_exit(rank);
}

static void on_done(Rank *rank, LocalRank *local_rank, const ChannelMessage *m)
{
    rank->words.done = true;
    (void)snprintf(rank->words.text, sizeof(rank->words.text), "%.255s", m->end);
    local_rank->report.step = m->step;
    watchdog_note_stage(&rank->watchdog, m->step, STAGE_LEAVING, clock_boottime_usec());
}

void trainer_messages_take(Rank *rank, const ChannelMessage *m)
{
    LocalWorld *local = rank->local;
    if (!local || local->over)
        return; /* messages for a world that is over are dropped */
    LocalRank *local_rank = local_world_rank_of(local, rank);
    assert(local_rank && !local_rank->pending && local_rank->report.pid == rank->process.pid);

    switch (m->type) {
    case CHANNEL_HELLO:
        rank->said_hello = true;
        job_advance(local->job);
        break;
    case CHANNEL_RENDEZVOUS:
        (void)snprintf(local->address, sizeof(local->address), "%s", m->address);
        record_writer_send(&local->rendezvous);
        break;
    case CHANNEL_READY:
        on_ready(rank, local_rank, m);
        break;
    case CHANNEL_STAGE:
        on_stage(rank, local_rank, m);
        break;
    case CHANNEL_STEP:
        on_step(rank, local_rank, m);
        break;
    case CHANNEL_SAVED:
        on_saved(rank, m);
        break;
    case CHANNEL_FOUND:
        on_found(rank, m);
        break;
    case CHANNEL_RESULTS:
        if (local_rank->report.rank == 0)
            evaluation_write(&local->evaluation, m);
        break;
    case CHANNEL_ERROR:
        on_error(rank, local_rank, m);
        break;
    case CHANNEL_DONE:
        on_done(rank, local_rank, m);
        break;
    default:
        log_warning("a trainer may not say %s JOB=%s RANK=%d", channel_type_name(m->type),
                    rank->job, rank->rank);
    }
}

void trainer_messages_receive(Rank *rank)
{
    ChannelMessage m = {0}; /* stays zeroed when receiving fails */
    for (int i = 0; i < MESSAGES_A_CALL; i++) {
        Error err = ERROR_INIT;
        int r = channel_receive(rank->process.channel, &m, &err);
        if (r == -EAGAIN)
            return;
        if (r == -EBADMSG || r == -EMSGSIZE) {
            log_warning("%s JOB=%s RANK=%d", err.text, rank->job, rank->rank);
            continue;
        }
        if (r < 0) { /* the channel is closed; the pidfd will show the end */
            process_deafen(&rank->process);
            if (!rank->process.exited)
                rank_expect_exit(rank);
            return;
        }
        trainer_messages_take(rank, &m);
        channel_message_clear(&m);
    }
}
