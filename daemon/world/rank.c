/* SPDX-License-Identifier: Apache-2.0 */
/* rank.c - see rank.h. */
#include "daemon/world/rank.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/message-id.h"
#include "base/probe.h"
#include "daemon/world/local-world.h"
#include "daemon/world/trainer-environment.h"
#include "daemon/world/trainer-messages.h"
#include "daemon/world/workload.h"
#include "protocol/channel.h"

#include <signal.h>
#include <string.h>

/* ---- messages to the trainer ---- */

void rank_send(Rank *rank, ChannelMessage *message)
{
    Error err = ERROR_INIT;
    assert(message->generation == rank->generation);
    if (rank->process.exited || rank->killing)
        return;
    int r = channel_send(rank->process.channel, message, &err);
    if (r < 0 && r != -EPIPE) /* after -EPIPE the end of the rank follows */
        rank_kill(rank, "it does not take what it is told (%s): %s",
                  channel_type_name(message->type), err.text);
}

void rank_send_alive(Rank *rank, uint64_t alive_usec)
{
    const EtcdLease *lease = rank->workload->needs.lease;
    const bool is_program = rank->local && rank->local->is_program;
    ChannelMessage alive = {.type = CHANNEL_ALIVE,
                            .generation = rank->generation,
                            .alive_usec = alive_usec,
                            .lease_usec = is_program ? etcd_lease_deadline_usec(lease) : 0};
    if (!rank->process.exited)
        (void)channel_send(rank->process.channel, &alive,
                           NULL); /* a trainer that does not read misses the message */
}

/* ---- the end of a rank ---- */

static bool is_ours(void *userdata, pid_t pid)
{
    const Workload *w = userdata;
    const RankNeeds *needs = w->needs.ranks;
    bool ours = needs->is_other_child(needs->userdata, pid);
    const Rank *rank;
    SLOTS_FOREACH (&w->slots, rank)
        ours |= rank->process.pid == pid;
    return ours;
}

static bool is_clear(const Rank *rank)
{
    Workload *w = rank->workload;
    return process_is_gone(&rank->process, w->needs.config->run_dir, is_ours, w);
}

static void on_rank_timer(void *userdata)
{
    Rank *rank = userdata;
    if (!rank->killing && !rank->process.exited) {
        char why[sizeof(rank->why)];
        (void)snprintf(why, sizeof(why), "%s",
                       rank->hangs ? rank->why : "it said that it would exit, and did not");
        rank_kill(rank, "%s", why);
        return;
    }
    assert(rank->killing || rank->process.exited);
    rank->clear = is_clear(rank);
    if (!rank->clear)
        workload_slot_lost(rank->workload, rank);
    else
        workload_collect(rank->workload);
}

static void expect_clear(Rank *rank)
{
    assert(rank->killing || rank->process.exited);
    timer_start(rank->workload->needs.timers, &rank->timer, RANK_KILL_CONFIRM_MSEC * USEC_PER_MSEC,
                on_rank_timer, rank);
}

void rank_kill(Rank *rank, const char *why, ...)
{
    assert(rank->workload->slots.of[rank->slot] == rank);
    if (rank->killing || rank->process.exited)
        return;
    va_list ap;
    va_start(ap, why);
    (void)vsnprintf(rank->why, sizeof(rank->why), why, ap);
    va_end(ap);

    log_info("killed: %s JOB=%s GENERATION=%lld RANK=%d", rank->why, rank->job,
             (long long)rank->generation, rank->rank);
    PROBE(kill, rank->job, rank->generation, rank->rank, rank->process.pid, rank->why);
    rank->killing = true;
    process_kill(&rank->process);
    expect_clear(rank);
}

void rank_end_hung(Rank *rank, const char *why, ...)
{
    ChannelMessage m = {.type = CHANNEL_HUNG, .generation = rank->generation};
    assert(!rank->hangs && !rank->killing && !rank->process.exited);
    va_list ap;
    va_start(ap, why);
    (void)vsnprintf(m.text, sizeof(m.text), why, ap);
    va_end(ap);
    rank->hangs = true;
    process_log_standstill(&rank->process);
    if (!rank->local->is_program || !rank->said_hello) {
        rank_kill(rank, "%s", m.text);
        return;
    }
    (void)snprintf(rank->why, sizeof(rank->why), "%s", m.text);
    timer_start(rank->workload->needs.timers, &rank->timer, RANK_EXPLAIN_MSEC * USEC_PER_MSEC,
                on_rank_timer, rank);
    rank_send(rank, &m);
}

void rank_expect_exit(Rank *rank)
{
    if (!timer_runs(&rank->timer))
        timer_start(rank->workload->needs.timers, &rank->timer,
                    RANK_LAST_WORDS_MSEC * USEC_PER_MSEC, on_rank_timer, rank);
}

static void note_exit(Rank *rank, const siginfo_t *info)
{
    assert(rank->process.exited && rank->workload->slots.of[rank->slot] == rank);
    trainer_messages_receive(rank);
    rank_log_drain(rank->log);
    process_deafen(&rank->process);

    ExitVerdict verdict =
        exit_judge(info->si_code, info->si_status, &rank->words, rank_log_last_line(rank->log),
                   rank->killing ? rank->why : NULL);
    uint64_t still_usec = clock_boottime_usec() - rank->watchdog.changed_usec;
    if (verdict.code == -SIGKILL && !rank->killing && !rank->words.error &&
        rank->watchdog.stage != STAGE_RUNNING &&
        still_usec > workload_alive_usec(rank->workload) * 3 / 4) {
        verdict.hung = true; /* the dead-man timer fired before hang_check() found the hang */
        (void)snprintf(verdict.text, sizeof(verdict.text),
                       "stood still for %.1f s; its dead-man timer ended it",
                       (double)still_usec / 1e6);
    }
    log_event(LOG_LEVEL_INFO, MESSAGE_RANK_ENDED, "exited %d: %s JOB=%s GENERATION=%lld RANK=%d",
              verdict.code, verdict.text, rank->job, (long long)rank->generation, rank->rank);
    if (rank->local)
        local_world_note_exit(rank->local, rank, &verdict);
}

static void log_start(const Rank *rank)
{
    log_event(LOG_LEVEL_INFO, MESSAGE_RANK_STARTED,
              "started as process %d in slot %d JOB=%s GENERATION=%lld RANK=%d",
              (int)rank->process.pid, rank->slot, rank->job, (long long)rank->generation,
              rank->rank);
}

/* A program with a host has no pid until its host has started it. */
static void look_for_start(Rank *rank)
{
    LocalRank *local_rank = rank->local ? local_world_rank_of(rank->local, rank) : NULL;
    if (!local_rank || local_rank->report.pid == rank->process.pid)
        return;
    local_rank->report.pid = rank->process.pid;
    log_start(rank);
    if (!rank->local->over)
        local_world_report(rank->local);
}

void rank_look(Rank *rank)
{
    siginfo_t info;
    const bool has_ended = process_reap(&rank->process, &info);
    look_for_start(rank);
    if (has_ended) {
        note_exit(rank, &info);
        if (!rank->killing)
            expect_clear(rank);
    }
    rank->clear |= is_clear(rank);
}

static void on_moved(void *userdata)
{
    Rank *rank = userdata;
    rank_look(rank);
    workload_collect(rank->workload);
}

static void on_message(void *userdata) { trainer_messages_receive(userdata); }

/* ---- the start of a rank ---- */

static int spawn(Rank *rank, Error *err)
{
    const DaemonConfig *config = rank->workload->needs.config;
    const RankNeeds *needs = rank->workload->needs.ranks;
    int output = -EBADF;
    int r = rank_log_new(needs->process.event, config->log_dir, rank->job, rank->generation,
                         rank->rank, config->log_bytes, &output, &rank->log, err);
    if (r < 0)
        return r;
    const bool is_program = rank->local->is_program;
    _cleanup_(trainer_environment_freep) char **environment =
        is_program ? runner_environment_new(needs->environment, config, rank->slot)
                   : trainer_environment_new(needs->environment, config, rank->slot);
    char *argv[] = {(char *)(is_program ? config->runner : config->trainer), (char[]){"run"}, NULL};
    const ProcessProgram program = {.argv = argv,
                                    .program =
                                        MAX(is_program ? *needs->runner : *needs->trainer, 0),
                                    .environment = environment,
                                    .output = output,
                                    .host = is_program && *config->exec_user ? config->exec_socket
                                                                             : NULL,
                                    .host_user = config->exec_uid};
    return process_start(&needs->process, rank->slot, &program, &rank->process, err);
}

int rank_start(LocalWorld *local, LocalRank *local_rank, Error *err)
{
    Workload *w = local->job->workload;
    assert(!local->over && local->job->local == local);
    assert(!local_rank->pending && local_rank->report.state == RANK_STARTING);
    assert(local_rank->slot == local_rank->report.slot);
    if (local->is_program && !w->needs.config->allow_exec)
        return error_set(err, -EPERM, "allow_exec is not set on this node");
    Rank *rank = memory_new(Rank);
    *rank = (Rank){.workload = w,
                   .local = local,
                   .generation = local->generation,
                   .slot = local_rank->slot,
                   .rank = local_rank->report.rank};
    (void)snprintf(rank->job, sizeof(rank->job), "%s", local->job->name);

    int r = spawn(rank, err);
    if (r < 0) {
        (void)rank_free(rank); /* always returns NULL */
        return r;
    }
    slots_put(&w->slots, rank);
    local_rank->report.pid = rank->process.pid; /* 0: the host will report it */
    local_rank->report.started_usec = local_rank->report.at_usec = clock_realtime_usec();
    watchdog_start(&rank->watchdog, job_first_steps_usec(local->job, local->world_size),
                   clock_boottime_usec());
    rank->watchdog.by_reports = local->is_program;
    const ProcessEvents events = {.userdata = rank, .heard = on_message, .moved = on_moved};
    r = process_watch(&rank->process, &events);
    if (r < 0) { /* without events the rank's end would not be noticed */
        rank_kill(rank, "cannot watch it");
        return error_errno(err, r, "cannot watch rank %d", rank->rank);
    }
    rank_send_alive(rank, workload_alive_usec(w));
    w->events.rank_started(w->events.userdata, rank);
    if (rank->process.pid > 0)
        log_start(rank);
    return 0;
}

void rank_await_exit(const Rank *rank)
{
    process_await_exit(&rank->process, RANK_KILL_CONFIRM_MSEC);
}

Rank *rank_free(Rank *rank)
{
    if (!rank)
        return NULL;
    assert(rank->workload->slots.of[rank->slot] != rank);
    timer_stop(&rank->timer);
    process_close(&rank->process);
    rank->log = rank_log_free(rank->log);
    free(rank);
    return NULL;
}

void rank_retire(Rank *rank)
{
    process_retire(&rank->process);
    (void)rank_free(rank); /* always returns NULL */
}
