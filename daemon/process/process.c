/* SPDX-License-Identifier: Apache-2.0 */
/* process.c - see process.h. */
#include "daemon/process/process.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/log.h"
#include "daemon/process/spawn.h"
#include "daemon/process/standstill.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* ---- start ---- */

static int spawn(Process *p, const ProcessProgram *program, int output, int other_end, Error *err)
{
    bool inside = false;
    const SpawnRequest request = {.argv = program->argv,
                                  .program = program->program,
                                  .environment = program->environment,
                                  .output = output,
                                  .channel = other_end,
                                  .cgroup = p->cgroup,
                                  .ret_inside = &inside};
    int r = spawn_process(&request, &p->pid, &p->pidfd, err);
    if (r == 0) /* the program leads a session, whose id is its pid */
        p->needs->sessions->of[p->slot] = p->pid;
    if (!inside) { /* the process is outside the cgroup: its mark finds orphans */
        p->cgroup = fd_close(p->cgroup);
        p->cgroup_events = fd_close(p->cgroup_events);
    }
    return r;
}

static int make_channel(Process *p, int *ret_other_end, Error *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_errno(err, -errno, "cannot make a channel");
    p->channel = pair[0];
    *ret_other_end = pair[1];
    if (fcntl(p->channel, F_SETFL, O_NONBLOCK) < 0)
        return error_errno(err, -errno, "cannot prepare a channel");
    return 0;
}

/* systemd starts the host when it accepts the connection, some time after this. */
static int start_hosted(Process *p, const ProcessProgram *program, int output, int other_end,
                        Error *err)
{
    int r = host_connect(program->host, &p->host, err);
    if (r < 0)
        return r;
    r = host_send_request(p->host, program->environment, other_end, output, program->program);
    if (r < 0)
        return error_errno(err, r, "%s: cannot send a request", program->host);
    p->host_user = program->host_user;
    p->host_output = fcntl(output, F_DUPFD_CLOEXEC, 0); /* it is only for a message */
    return 0;
}

int process_start(const ProcessNeeds *needs, int slot, const ProcessProgram *program, Process *ret,
                  Error *err)
{
    _cleanup_fd_ int output = program->output;
    _cleanup_fd_ int other_end = program->channel > 0 ? program->channel : -EBADF;
    assert(slot >= 0 && (size_t)slot < ELEMENTSOF(needs->sessions->of));
    *ret = (Process){.needs = needs,
                     .slot = slot,
                     .pidfd = -EBADF,
                     .channel = -EBADF,
                     .cgroup = -EBADF,
                     .cgroup_events = -EBADF,
                     .host = -EBADF,
                     .host_output = -EBADF};
    int r = other_end >= 0 ? 0 : make_channel(ret, &other_end, err);
    if (r < 0)
        return r;
    if (program->host)
        return start_hosted(ret, program, output, other_end, err);
    if (*needs->cgroups->path) {
        r = cgroup_make_slot(needs->cgroups, slot, &ret->cgroup, &ret->cgroup_events, err);
        if (r < 0)
            return r;
    }
    return spawn(ret, program, output, other_end, err);
}

/* ---- events ---- */

static int on_channel(_unused_ sd_event_source *source, _unused_ int fd, _unused_ uint32_t revents,
                      void *userdata)
{
    const Process *p = userdata;
    p->events.heard(p->events.userdata);
    return 0;
}

static int on_exit_event(_unused_ sd_event_source *source, _unused_ int fd,
                         _unused_ uint32_t revents, void *userdata)
{
    const Process *p = userdata;
    p->events.moved(p->events.userdata);
    return 0;
}

static int on_cgroup_event(_unused_ sd_event_source *source, int fd, _unused_ uint32_t revents,
                           void *userdata)
{
    const Process *p = userdata;
    if (cgroup_is_populated(fd) == 0) /* the read also clears the event */
        p->events.moved(p->events.userdata);
    return 0;
}

int process_watch(Process *p, const ProcessEvents *events)
{
    sd_event *event = p->needs->event;
    assert((p->pidfd >= 0 || p->host >= 0) && !p->exit_source && !p->channel_source);
    p->events = *events;
    int r = sd_event_add_io(event, &p->exit_source, p->host >= 0 ? p->host : p->pidfd, EPOLLIN,
                            on_exit_event, p);
    if (r >= 0)
        r = sd_event_source_set_priority(p->exit_source, SD_EVENT_PRIORITY_IMPORTANT);
    if (r >= 0 && p->channel >= 0)
        r = sd_event_add_io(event, &p->channel_source, p->channel, EPOLLIN, on_channel, p);
    if (r >= 0 && p->cgroup_events >= 0)
        r = sd_event_add_io(event, &p->cgroup_source, p->cgroup_events, EPOLLPRI, on_cgroup_event,
                            p);
    return r;
}

void process_deafen(Process *p)
{
    p->channel_source = sd_event_source_disable_unref(p->channel_source);
}

/* ---- a host's messages ---- */

/* The host's unit is empty only after the host itself has gone. */
static void watch_unit(Process *p, const char *path)
{
    p->cgroup_events = cgroup_open_events(path);
    if (p->cgroup_events >= 0 &&
        sd_event_add_io(p->needs->event, &p->cgroup_source, p->cgroup_events, EPOLLPRI,
                        on_cgroup_event, p) < 0)
        log_warning("slot %d: cannot watch %s", p->slot, path);
}

static void take_host_message(Process *p, const HostMessage *m)
{
    if (m->type == HOST_STARTED && p->pid == 0 && m->pid > 1) {
        p->pid = m->pid;
        p->host_output = fd_close(p->host_output);
        if (*m->cgroup)
            watch_unit(p, m->cgroup);
    } else if (m->type == HOST_ENDED && p->pid > 0 && !p->has_ended) {
        p->has_ended = true;
        p->ending = (siginfo_t){.si_code = m->code};
        p->ending.si_pid = p->pid;
        p->ending.si_status = m->status;
    } else if (m->type == HOST_CLEAR && p->has_ended) {
        p->host_is_clear = true;
    }
}

/* Without its end a program that was running has been killed with its host's unit. */
static void note_host_end(Process *p)
{
    assert(p->host >= 0 && !p->host_ended);
    p->host_ended = true;
    p->exit_source = sd_event_source_disable_unref(p->exit_source);
    if (p->has_ended)
        return;
    if (p->pid == 0 && p->host_output >= 0)
        (void)dprintf(p->host_output,
                      "its host has ended before it started the program: journalctl -u "
                      "'sdtrain-exec@*' shows why\n");
    p->has_ended = true;
    p->ending = (siginfo_t){.si_code = p->pid == 0 ? CLD_EXITED : CLD_KILLED};
    p->ending.si_status = p->pid == 0 ? SPAWN_EXEC_FAILED : SIGKILL;
}

static void receive_from_host(Process *p)
{
    HostMessage m;
    uid_t user;
    int r;
    while (!p->host_ended && (r = host_receive(p->host, &m, &user)) != -EAGAIN) {
        if (r == 0 && user != p->host_user) {
            log_error("slot %d: its host runs as user %lld instead of %lld", p->slot,
                      (long long)user, (long long)p->host_user);
            r = -EPERM;
        }
        if (r == 0)
            take_host_message(p, &m);
        else
            note_host_end(p);
        if (r < 0 && r != -EPIPE) /* its other messages cannot be believed, either */
            (void)shutdown(p->host, SHUT_RDWR);
    }
}

static void kill_hosted(const Process *p)
{
    const HostMessage kill = {.type = HOST_KILL};
    if (!p->host_ended && host_send(p->host, &kill) < 0)
        (void)shutdown(p->host, SHUT_RDWR); /* the end of the connection is a kill, too */
}

static bool reap_hosted(Process *p, siginfo_t *ret)
{
    receive_from_host(p);
    if (p->exited || !p->has_ended)
        return false;
    assert(p->pid > 0 || p->host_ended); /* a host that has started nothing says no end */
    *ret = p->ending;
    p->exited = true;
    return true;
}

static bool hosted_is_gone(const Process *p)
{
    assert(p->exited && p->has_ended);
    if (p->host_is_clear)
        return true;
    return p->host_ended && (p->cgroup_events < 0 || cgroup_is_populated(p->cgroup_events) == 0);
}

/* ---- kill and reap ---- */

void process_log_standstill(const Process *p)
{
    if (p->pid > 0 && !p->exited)
        standstill_log(p->pid);
}

void process_kill(const Process *p)
{
    assert(p->pid > 1 || p->host >= 0); /* kill() takes -1 for all processes, 0 for our own group */
    if (fault("kill-send") < 0)
        return;
    if (p->host >= 0) {
        kill_hosted(p);
        return;
    }
    if (p->cgroup_events >= 0) {
        int r = cgroup_kill_slot(p->needs->cgroups, p->slot);
        if (r < 0)
            log_warning("slot %d: cannot kill its cgroup: %s", p->slot, strerror(-r));
    }
    if (p->exited) /* the pid may belong to another process by now */
        return;
    if (kill(-p->pid, SIGKILL) < 0)
        (void)kill(p->pid, SIGKILL); /* just after its start the program leads no group yet */
}

bool process_reap(Process *p, siginfo_t *ret)
{
    *ret = (siginfo_t){0};
    if (p->host >= 0)
        return reap_hosted(p, ret);
    assert(p->pid > 1);
    if (p->exited || waitid(P_PID, (id_t)p->pid, ret, WEXITED | WNOHANG | WNOWAIT) < 0 ||
        ret->si_pid == 0)
        return false;
    process_kill(p); /* kills what the program started; the pid is valid until waitid() */
    (void)waitid(P_PID, (id_t)p->pid, ret, WEXITED | WNOHANG); /* cannot fail: the end was seen */
    p->exited = true;
    p->exit_source = sd_event_source_disable_unref(p->exit_source);
    return true;
}

bool process_is_gone(const Process *p, const char *run_dir,
                     bool (*is_ours)(void *userdata, pid_t pid), void *userdata)
{
    if (!p->exited || fault("kill-confirm") < 0)
        return false;
    if (p->host >= 0)
        return hosted_is_gone(p);
    assert(p->pid > 1);
    if (kill(-p->pid, 0) == 0 || errno != ESRCH)
        return false;
    if (p->cgroup_events >= 0)
        return cgroup_is_populated(p->cgroup_events) == 0;
    return orphans_kill_adopted(run_dir, p->slot, is_ours, userdata) == 0;
}

void process_await_exit(const Process *p, int timeout_msec)
{
    struct pollfd fd = {.fd = p->host >= 0 ? p->host : p->pidfd, .events = POLLIN};
    (void)poll(&fd, 1, timeout_msec); /* the caller goes on in any case */
}

/* ---- closing ---- */

void process_close(Process *p)
{
    if (!p->needs)
        return;
    p->exit_source = sd_event_source_disable_unref(p->exit_source);
    p->channel_source = sd_event_source_disable_unref(p->channel_source);
    p->cgroup_source = sd_event_source_disable_unref(p->cgroup_source);
    p->pidfd = fd_close(p->pidfd);
    p->channel = fd_close(p->channel);
    p->cgroup = fd_close(p->cgroup);
    p->cgroup_events = fd_close(p->cgroup_events);
    p->host = fd_close(p->host);
    p->host_output = fd_close(p->host_output);
}

void process_retire(Process *p)
{
    const ProcessNeeds *needs = p->needs;
    const bool is_hosted = p->host >= 0;
    assert(p->exited && (is_hosted || !p->exit_source));
    needs->sessions->of[p->slot] = 0;
    process_close(p);
    if (is_hosted || !*needs->cgroups->path)
        return;
    int r = cgroup_remove_slot(needs->cgroups, p->slot);
    if (r < 0 && r != -ENOENT)
        log_warning("slot %d: cannot remove its cgroup: %s", p->slot, strerror(-r));
}
