/* SPDX-License-Identifier: Apache-2.0 */
/* host.c - see host.h. */
#include "daemon/process/host.h"

#include "base/cleanup.h"
#include "base/log.h"
#include "daemon/process/process.h"

#include <poll.h>
#include <string.h>
#include <sys/prctl.h>

enum {
    REQUEST_MSEC = 10000,
    LOOK_MSEC = 100,
    END_SEC = 10, /* after the connection's end: what still lives is left to systemd */
};

typedef struct Host {
    int connection;
    sd_event *event;
    sd_event_source *connection_source, *look_source;
    CgroupBase cgroups;
    RankSessions sessions;
    ProcessNeeds needs;
    Process process;
    char run_dir[400]; /* of the program's mark */
    uint64_t end_usec; /* CLOCK_MONOTONIC; 0: the connection stands */
} Host;

/* The host has started only the program. */
static bool is_program(void *userdata, pid_t pid)
{
    const Host *h = userdata;
    return !h->process.exited && pid == h->process.pid;
}

static void notify(Host *h, HostMessage message)
{
    (void)host_send(h->connection, &message); /* an error is the connection's end, which follows */
}

static void look(Host *h)
{
    siginfo_t info;
    uint64_t now_usec = 0;
    (void)sd_event_now(h->event, CLOCK_MONOTONIC, &now_usec); /* cannot fail in a handler */
    if (process_reap(&h->process, &info))
        notify(h,
               (HostMessage){.type = HOST_ENDED, .code = info.si_code, .status = info.si_status});
    orphans_reap_adopted(is_program, h); /* processes that the program has left behind */
    if (process_is_gone(&h->process, h->run_dir, is_program, h)) {
        notify(h, (HostMessage){.type = HOST_CLEAR});
        (void)sd_event_exit(h->event, 0);
    } else if (h->end_usec != 0 && now_usec >= h->end_usec) {
        log_error("a process of the program survives SIGKILL");
        (void)sd_event_exit(h->event, 1);
    } else if (h->process.exited || h->end_usec != 0) {
        process_kill(&h->process);
    }
}

static void on_moved(void *userdata) { look(userdata); }

static int on_look(sd_event_source *source, uint64_t usec, void *userdata)
{
    Host *h = userdata;
    look(h);
    (void)sd_event_source_set_time(source, usec + LOOK_MSEC * USEC_PER_MSEC);
    return sd_event_source_set_enabled(source, SD_EVENT_ON);
}

static int on_connection(_unused_ sd_event_source *source, _unused_ int fd,
                         _unused_ uint32_t revents, void *userdata)
{
    Host *h = userdata;
    HostMessage m;
    uid_t user;
    int r;
    while ((r = host_receive(h->connection, &m, &user)) == 0)
        if (m.type == HOST_KILL)
            process_kill(&h->process);
    if (r == -EAGAIN)
        return 0;
    assert(h->connection_source && h->end_usec == 0);
    uint64_t now_usec = 0;
    (void)sd_event_now(h->event, CLOCK_MONOTONIC, &now_usec);
    h->end_usec = now_usec + END_SEC * USEC_PER_SEC;
    h->connection_source = sd_event_source_disable_unref(h->connection_source);
    look(h);
    return 0;
}

/* Reads run_dir and slot from the program's mark, which identifies its processes where there is no cgroup. Returns the
 * slot. */
static int find_mark(Host *h, char *const *environment)
{
    static const char name[] = ORPHANS_VARIABLE "=";
    for (; *environment; environment++)
        if (strncmp(*environment, name, strlen(name)) == 0)
            (void)snprintf(h->run_dir, sizeof(h->run_dir), "%s", *environment + strlen(name));
    char *at = strrchr(h->run_dir, ':');
    const int slot = at ? atoi(at + 1) : 0;
    if (at)
        *at = '\0';
    return slot >= 0 && slot < RECORD_SLOTS_MAX ? slot : 0;
}

static int serve(Host *h, Error *err)
{
    const ProcessEvents events = {.userdata = h, .moved = on_moved};
    int r = process_watch(&h->process, &events);
    if (r >= 0)
        r = sd_event_add_io(h->event, &h->connection_source, h->connection, EPOLLIN, on_connection,
                            h);
    if (r >= 0)
        r = sd_event_add_time_relative(h->event, &h->look_source, CLOCK_MONOTONIC,
                                       LOOK_MSEC * USEC_PER_MSEC, 0, on_look, h);
    if (r >= 0)
        r = sd_event_set_watchdog(h->event, true); /* does nothing where no unit asks for it */
    if (r < 0)
        return error_errno(err, r, "cannot prepare the loop");
    HostMessage started = {.type = HOST_STARTED, .pid = h->process.pid};
    if (cgroup_find_own(started.cgroup, sizeof(started.cgroup)) < 0)
        *started.cgroup = '\0';
    notify(h, started);
    return sd_event_loop(h->event);
}

static int start(Host *h, HostRequest *request, char *const *argv, const char *state, Error *err)
{
    assert(request->channel >= 0 && request->output >= 0);
    const size_t n_name = state ? strcspn(state, "=") + 1 : 0;
    for (char **one = request->environment; state && *one; one++)
        if (strncmp(*one, state, n_name) == 0)
            *one = (char *)state;
    Error no_cgroups = ERROR_INIT;
    char name[32];
    (void)snprintf(name, sizeof(name), "host-%d", (int)getpid());
    if (cgroup_open(&h->cgroups, name, &no_cgroups) < 0)
        log_warning("%s; the program is bounded by its session alone", no_cgroups.text);
    int r = sd_event_default(&h->event);
    if (r < 0)
        return error_errno(err, r, "cannot make a loop");
    h->needs = (ProcessNeeds){.event = h->event, .cgroups = &h->cgroups, .sessions = &h->sessions};
    const ProcessProgram program = {.argv = argv,
                                    .program = MAX(request->program, 0),
                                    .environment = request->environment,
                                    .output = request->output,
                                    .channel = request->channel};
    request->output = request->channel = -EBADF; /* process_start() closes them */
    return process_start(&h->needs, find_mark(h, request->environment), &program, &h->process, err);
}

int host_run(int connection, char *const *argv, const char *state)
{
    Error err = ERROR_INIT;
    HostRequest request = {0};
    static Host host; /* large */
    Host *h = &host;
    h->connection = connection;
    if (prctl(PR_SET_DUMPABLE, 0) < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) {
        log_error("prctl: %s", strerror(errno));
        return 1;
    }
    struct pollfd ready = {.fd = connection, .events = POLLIN};
    (void)poll(&ready, 1, REQUEST_MSEC);
    int r = host_receive_request(connection, &request);
    if (r < 0)
        r = error_errno(&err, r, "no request");
    if (r == 0)
        r = start(h, &request, argv, state, &err);
    if (r == 0)
        r = serve(h, &err);
    if (*err.text)
        log_error("%s", err.text);
    host_request_clear(&request);
    process_close(&h->process);
    if (*h->cgroups.path)
        (void)cgroup_destroy(&h->cgroups, &err); /* systemd removes what is left of the unit's */
    h->connection_source = sd_event_source_disable_unref(h->connection_source);
    h->look_source = sd_event_source_disable_unref(h->look_source);
    h->event = sd_event_unref(h->event);
    (void)fd_close(h->connection);
    return r == 0 ? 0 : 1;
}
