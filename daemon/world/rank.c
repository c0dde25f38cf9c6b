/* SPDX-License-Identifier: Apache-2.0 */
/* rank.c - see rank.h. */
#include "daemon/world/rank.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/message-id.h"
#include "base/probe.h"
#include "daemon/process/cgroup.h"
#include "daemon/process/orphans.h"
#include "daemon/process/spawn.h"
#include "daemon/world/local-world.h"
#include "daemon/world/trainer-messages.h"
#include "daemon/world/workload.h"
#include "protocol/channel.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { ENVIRONMENT_MAX = 512 };

/* ---- what the process is given ---- */

static char *paths_variable(const char *name, json_t *prefixes)
{
    _cleanup_free_ char *text = json_dumps(prefixes, JSON_COMPACT);
    assert(text); /* the configuration's own JSON */
    return memory_format("%s=%s", name, text);
}

/* Ours but for what is about sdtraind itself; then what the trainer must have; then what the
 * configuration adds. */
static char **make_environment(const DaemonConfig *config, int slot)
{
    static const char *const dropped[] = {"SDTRAIN_", "NOTIFY_SOCKET=",  "WATCHDOG_",
                                          "LISTEN_",  "JOURNAL_STREAM=", "INVOCATION_ID=",
                                          "MAINPID=", "OMP_DYNAMIC=",    "CREDENTIALS_DIRECTORY="};
    static const char *const kept[] = {"SDTRAIN_LOG=", "SDTRAIN_S3_"};
    char **list = memory_zeroed(ENVIRONMENT_MAX + CONFIG_ENVIRONMENT_MAX + 10, sizeof(*list));
    size_t n = 0;
    for (char **one = environ; *one && n < ENVIRONMENT_MAX; one++) {
        bool drop = false;
        for (size_t i = 0; i < ELEMENTSOF(dropped); i++)
            drop = drop || strncmp(*one, dropped[i], strlen(dropped[i])) == 0;
        for (size_t i = 0; i < ELEMENTSOF(kept); i++)
            drop = drop && strncmp(*one, kept[i], strlen(kept[i])) != 0;
        if (!drop)
            list[n++] = memory_text(*one);
    }
    char mark[600], slot_text[32];
    orphans_mark(mark, sizeof(mark), config->run_dir, slot);
    (void)snprintf(slot_text, sizeof(slot_text), "SDTRAIN_SLOT=%d", slot);
    list[n++] = memory_text(mark);
    list[n++] = memory_text(slot_text);
    list[n++] = memory_text("SDTRAIN_CHANNEL=3");
    list[n++] = memory_text("OMP_DYNAMIC=false");
    if (config->paths_read)
        list[n++] = paths_variable(PATHS_READ_VARIABLE, config->paths_read);
    if (config->paths_write)
        list[n++] = paths_variable(PATHS_WRITE_VARIABLE, config->paths_write);
    size_t i;
    json_t *extra;
    json_array_foreach (config->trainer_environment, i, extra)
        list[n++] = memory_text(json_string_value(extra));
    return list;
}

static void free_environment(char ***list)
{
    for (char **one = *list; one && *one; one++)
        free(*one);
    free(*list);
}

/* ---- alive ---- */

void rank_send(Rank *rank, ChannelMessage *message)
{
    Error err = ERROR_INIT;
    assert(message->generation == rank->generation);
    if (rank->exited || rank->killing)
        return;
    int r = channel_send(rank->channel, message, &err);
    if (r < 0 && r != -EPIPE) /* its end is about to be seen */
        rank_kill(rank, "it does not take what it is told (%s): %s",
                  channel_type_name(message->type), err.text);
}

void rank_send_alive(Rank *rank, uint64_t alive_usec)
{
    ChannelMessage alive = {.type = CHANNEL_ALIVE,
                            .generation = rank->generation,
                            .alive_usec = alive_usec};
    if (!rank->exited)
        (void)channel_send(rank->channel, &alive, NULL); /* one that does not read misses it */
}

static int on_channel(_unused_ sd_event_source *source, _unused_ int fd, _unused_ uint32_t revents,
                      void *userdata)
{
    trainer_messages_receive(userdata);
    return 0;
}

/* ---- death ---- */

static bool is_ours(void *userdata, pid_t pid)
{
    const Workload *w = userdata;
    const RankNeeds *needs = w->needs.ranks;
    bool ours = needs->is_other_child(needs->userdata, pid);
    for (size_t i = 0; i < ELEMENTSOF(w->slots.of); i++)
        ours |= w->slots.of[i] && w->slots.of[i]->pid == pid;
    return ours;
}

static bool is_clear(const Rank *rank)
{
    Workload *w = rank->workload;
    if (!rank->exited || fault("kill-confirm") < 0)
        return false;
    if (kill(-rank->pid, 0) == 0 || errno != ESRCH)
        return false;
    if (rank->cgroup_events >= 0)
        return cgroup_is_populated(rank->cgroup_events) == 0;
    return orphans_kill_adopted(w->needs.config->run_dir, rank->slot, is_ours, w) == 0;
}

static void send_kill(Rank *rank)
{
    if (fault("kill-send") < 0)
        return;
    if (rank->cgroup_events >= 0) {
        int r = cgroup_kill_slot(rank->workload->needs.ranks->cgroups, rank->slot);
        if (r < 0)
            log_warning("slot %d: cannot kill its cgroup: %s", rank->slot, strerror(-r));
    }
    if (!rank->exited)                   /* afterwards the number may be another's */
        (void)kill(-rank->pid, SIGKILL); /* ESRCH: gone already */
}

static void on_rank_timer(void *userdata)
{
    Rank *rank = userdata;
    if (!rank->killing && !rank->exited) {
        rank_kill(rank, "it said that it would exit, and did not");
        return;
    }
    assert(rank->killing || rank->exited);
    if (!is_clear(rank)) {
        workload_slot_lost(rank->workload, rank);
    } else {
        workload_slot_clear(rank->workload, rank);
    }
}

static void expect_clear(Rank *rank)
{
    assert(rank->killing || rank->exited);
    timer_stop(&rank->timer);
    timer_start(rank->workload->needs.timers, &rank->timer, RANK_KILL_CONFIRM_MSEC * USEC_PER_MSEC,
                on_rank_timer, rank);
}

void rank_kill(Rank *rank, const char *why, ...)
{
    assert(rank->workload->slots.of[rank->slot] == rank);
    if (rank->killing || rank->exited)
        return;
    va_list ap;
    va_start(ap, why);
    (void)vsnprintf(rank->why, sizeof(rank->why), why, ap);
    va_end(ap);

    log_info("killed: %s JOB=%s GENERATION=%lld RANK=%d", rank->why, rank->job,
             (long long)rank->generation, rank->rank);
    PROBE(kill, rank->job, rank->generation, rank->rank, rank->pid, rank->why);
    rank->killing = true;
    send_kill(rank);
    expect_clear(rank);
}

void rank_expect_exit(Rank *rank)
{
    if (!timer_runs(&rank->timer))
        timer_start(rank->workload->needs.timers, &rank->timer,
                    RANK_LAST_WORDS_MSEC * USEC_PER_MSEC, on_rank_timer, rank);
}

static void note_exit(Rank *rank, const siginfo_t *info)
{
    assert(rank->exited && rank->workload->slots.of[rank->slot] == rank);
    trainer_messages_receive(rank);
    rank_log_drain(rank->log);
    rank->channel_source = sd_event_source_disable_unref(rank->channel_source);
    rank->exit_source = sd_event_source_disable_unref(rank->exit_source);

    ExitVerdict verdict =
        exit_judge(info->si_code, info->si_status, &rank->words, rank_log_last_line(rank->log),
                   rank->killing ? rank->why : NULL);
    uint64_t still_usec = clock_boottime_usec() - rank->watchdog.changed_usec;
    if (verdict.code == -SIGKILL && !rank->killing &&
        still_usec > workload_alive_usec(rank->workload) * 3 / 4) {
        verdict.hung = true; /* SIGSTOP looks like this when hang_floor_sec is above the lease */
        (void)snprintf(verdict.text, sizeof(verdict.text),
                       "stood still for %.1f s; its dead-man timer ended it",
                       (double)still_usec / 1e6);
    }
    log_event(LOG_LEVEL_INFO, MESSAGE_RANK_ENDED, "exited %d: %s JOB=%s GENERATION=%lld RANK=%d",
              verdict.code, verdict.text, rank->job, (long long)rank->generation, rank->rank);
    if (rank->local)
        local_world_note_exit(rank->local, rank, &verdict);
}

void rank_look(Rank *rank)
{
    if (!rank->exited) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)rank->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
            info.si_pid == 0)
            return;
        send_kill(rank); /* what it started; its number is still its own until it is reaped */
        (void)waitid(P_PID, (id_t)rank->pid, &info, WEXITED | WNOHANG); /* as just seen */
        rank->exited = true;
        note_exit(rank, &info);
        if (!rank->killing)
            expect_clear(rank);
    }
    if (is_clear(rank))
        workload_slot_clear(rank->workload, rank);
}

static int on_exit_event(_unused_ sd_event_source *source, _unused_ int fd,
                         _unused_ uint32_t revents, void *userdata)
{
    rank_look(userdata);
    return 0;
}

static int on_cgroup_event(_unused_ sd_event_source *source, int fd, _unused_ uint32_t revents,
                           void *userdata)
{
    if (cgroup_is_populated(fd) == 0) /* read in any case: it stays readable until then */
        rank_look(userdata);
    return 0;
}

/* ---- birth ---- */

static int watch(Rank *rank)
{
    sd_event *event = rank->workload->needs.ranks->event;
    int r = sd_event_add_io(event, &rank->exit_source, rank->pidfd, EPOLLIN, on_exit_event, rank);
    if (r >= 0)
        r = sd_event_source_set_priority(rank->exit_source, SD_EVENT_PRIORITY_IMPORTANT);
    if (r >= 0)
        r = sd_event_add_io(event, &rank->channel_source, rank->channel, EPOLLIN, on_channel, rank);
    if (r >= 0 && rank->cgroup_events >= 0)
        r = sd_event_add_io(event, &rank->cgroup_source, rank->cgroup_events, EPOLLPRI,
                            on_cgroup_event, rank);
    return r;
}

static int spawn(Rank *rank, Error *err)
{
    const DaemonConfig *config = rank->workload->needs.config;
    const RankNeeds *needs = rank->workload->needs.ranks;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_errno(err, -errno, "cannot make a channel");
    rank->channel = pair[0];
    _cleanup_fd_ int other_end = pair[1];
    if (fcntl(rank->channel, F_SETFL, O_NONBLOCK) < 0)
        return error_errno(err, -errno, "cannot prepare a channel");

    _cleanup_fd_ int output = -EBADF;
    int r = rank_log_new(needs->event, config->log_dir, rank->job, rank->generation, rank->rank,
                         config->log_bytes, &output, &rank->log, err);
    if (r < 0)
        return r;
    if (*needs->cgroups->path) {
        r = cgroup_make_slot(needs->cgroups, rank->slot, &rank->cgroup, &rank->cgroup_events, err);
        if (r < 0)
            return r;
    }

    _cleanup_(free_environment) char **environment = make_environment(config, rank->slot);
    char *argv[] = {(char *)config->trainer, (char[]){"run"}, NULL};
    bool inside = false;
    SpawnRequest request = {.argv = argv,
                            .program = MAX(*needs->trainer, 0),
                            .environment = environment,
                            .output = output,
                            .channel = other_end,
                            .cgroup = rank->cgroup,
                            .ret_inside = &inside};
    r = spawn_process(&request, &rank->pid, &rank->pidfd, err);
    if (r == 0) /* it leads a session */
        needs->sessions->of[rank->slot] = rank->pid;
    if (!inside) { /* an empty cgroup says nothing of it: its mark must do */
        rank->cgroup = fd_close(rank->cgroup);
        rank->cgroup_events = fd_close(rank->cgroup_events);
    }
    return r;
}

int rank_start(LocalWorld *local, LocalRank *local_rank, Error *err)
{
    Workload *w = local->job->workload;
    assert(!local->over && local->job->local == local);
    assert(!local_rank->pending && local_rank->report.state == RANK_STARTING);
    assert(local_rank->slot == local_rank->report.slot);
    Rank *rank = memory_new(Rank);
    *rank = (Rank){.workload = w,
                   .local = local,
                   .generation = local->generation,
                   .slot = local_rank->slot,
                   .rank = local_rank->report.rank,
                   .pidfd = -EBADF,
                   .channel = -EBADF,
                   .cgroup = -EBADF,
                   .cgroup_events = -EBADF};
    (void)snprintf(rank->job, sizeof(rank->job), "%s", local->job->name);

    int r = spawn(rank, err);
    if (r < 0) {
        (void)rank_free(rank); /* NULL always */
        return r;
    }
    slots_put(&w->slots, rank);
    local_rank->report.pid = rank->pid;
    local_rank->report.started_usec = local_rank->report.at_usec = clock_realtime_usec();
    watchdog_start(&rank->watchdog, job_first_steps_usec(local->job, local->world_size),
                   clock_boottime_usec());
    r = watch(rank);
    if (r < 0) { /* without its events it would be lost to us */
        rank_kill(rank, "cannot watch it: %s", strerror(-r));
        return error_errno(err, r, "cannot watch rank %d", rank->rank);
    }
    rank_send_alive(rank, workload_alive_usec(w));
    w->events.rank_started(w->events.userdata, rank);
    log_event(LOG_LEVEL_INFO, MESSAGE_RANK_STARTED,
              "started as process %d in slot %d JOB=%s GENERATION=%lld RANK=%d", (int)rank->pid,
              rank->slot, rank->job, (long long)rank->generation, rank->rank);
    return 0;
}

void rank_await_exit(const Rank *rank)
{
    struct pollfd p = {.fd = rank->pidfd, .events = POLLIN};
    (void)poll(&p, 1, RANK_KILL_CONFIRM_MSEC); /* bounded: the caller goes on in any case */
}

Rank *rank_free(Rank *rank)
{
    if (!rank)
        return NULL;
    assert(rank->workload->slots.of[rank->slot] != rank);
    rank->exit_source = sd_event_source_disable_unref(rank->exit_source);
    rank->channel_source = sd_event_source_disable_unref(rank->channel_source);
    rank->cgroup_source = sd_event_source_disable_unref(rank->cgroup_source);
    timer_stop(&rank->timer);
    rank->pidfd = fd_close(rank->pidfd);
    rank->channel = fd_close(rank->channel);
    rank->cgroup = fd_close(rank->cgroup);
    rank->cgroup_events = fd_close(rank->cgroup_events);
    rank->log = rank_log_free(rank->log);
    free(rank);
    return NULL;
}

void rank_retire(Rank *rank)
{
    const RankNeeds *needs = rank->workload->needs.ranks;
    int slot = rank->slot;
    needs->sessions->of[slot] = 0;
    (void)rank_free(rank); /* NULL always */
    if (!*needs->cgroups->path)
        return;
    int r = cgroup_remove_slot(needs->cgroups, slot);
    if (r < 0 && r != -ENOENT)
        log_warning("slot %d: cannot remove its cgroup: %s", slot, strerror(-r));
}
