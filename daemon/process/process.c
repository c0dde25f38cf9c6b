/* SPDX-License-Identifier: Apache-2.0 */
/* process.c - see process.h. */
#include "daemon/process/process.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/log.h"
#include "daemon/process/spawn.h"

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
    if (r == 0) /* the program leads a session */
        p->needs->sessions->of[p->slot] = p->pid;
    if (!inside) { /* the cgroup lacks the process: orphans are found by its mark */
        p->cgroup = fd_close(p->cgroup);
        p->cgroup_events = fd_close(p->cgroup_events);
    }
    return r;
}

int process_start(const ProcessNeeds *needs, int slot, const ProcessProgram *program, Process *ret,
                  Error *err)
{
    _cleanup_fd_ int output = program->output;
    int pair[2];
    assert(slot >= 0 && (size_t)slot < ELEMENTSOF(needs->sessions->of));
    *ret = (Process){.needs = needs,
                     .slot = slot,
                     .pidfd = -EBADF,
                     .channel = -EBADF,
                     .cgroup = -EBADF,
                     .cgroup_events = -EBADF};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_errno(err, -errno, "cannot make a channel");
    ret->channel = pair[0];
    _cleanup_fd_ int other_end = pair[1];
    if (fcntl(ret->channel, F_SETFL, O_NONBLOCK) < 0)
        return error_errno(err, -errno, "cannot prepare a channel");
    if (*needs->cgroups->path) {
        int r = cgroup_make_slot(needs->cgroups, slot, &ret->cgroup, &ret->cgroup_events, err);
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
    assert(p->pidfd >= 0 && p->channel >= 0 && !p->exit_source && !p->channel_source);
    p->events = *events;
    int r = sd_event_add_io(event, &p->exit_source, p->pidfd, EPOLLIN, on_exit_event, p);
    if (r >= 0)
        r = sd_event_source_set_priority(p->exit_source, SD_EVENT_PRIORITY_IMPORTANT);
    if (r >= 0)
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

/* ---- kill and reap ---- */

void process_kill(const Process *p)
{
    assert(p->pid > 1); /* kill() takes -1 for all processes, 0 for our own group */
    if (fault("kill-send") < 0)
        return;
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
    assert(p->pid > 1);
    if (p->exited || waitid(P_PID, (id_t)p->pid, ret, WEXITED | WNOHANG | WNOWAIT) < 0 ||
        ret->si_pid == 0)
        return false;
    process_kill(p); /* kills what the program started; its pid is valid until waitid() */
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
    assert(p->pid > 1);
    if (kill(-p->pid, 0) == 0 || errno != ESRCH)
        return false;
    if (p->cgroup_events >= 0)
        return cgroup_is_populated(p->cgroup_events) == 0;
    return orphans_kill_adopted(run_dir, p->slot, is_ours, userdata) == 0;
}

void process_await_exit(const Process *p, int timeout_msec)
{
    struct pollfd fd = {.fd = p->pidfd, .events = POLLIN};
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
}

void process_retire(Process *p)
{
    const ProcessNeeds *needs = p->needs;
    assert(p->exited && !p->exit_source);
    needs->sessions->of[p->slot] = 0;
    process_close(p);
    if (!*needs->cgroups->path)
        return;
    int r = cgroup_remove_slot(needs->cgroups, p->slot);
    if (r < 0 && r != -ENOENT)
        log_warning("slot %d: cannot remove its cgroup: %s", p->slot, strerror(-r));
}
