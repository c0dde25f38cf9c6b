/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.c - see doctor.h. */
#include "daemon/health/doctor.h"

#include "base/json/json.h"
#include "base/log.h"
#include "daemon/process/spawn.h"
#include "daemon/world/exit.h"
#include "daemon/world/trainer-environment.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <systemd/sd-event.h>

enum { ARGUMENTS_MAX = 12 + 4 * RECORD_URIS_MAX + 2 * RECORD_PEERS_MAX };

static void report_error(Doctor *d, const char *text)
{
    char words[RECORD_TEXT_MAX + 1];
    (void)snprintf(words, sizeof(words), "%s", text);
    exit_repair_text(words);
    _cleanup_json_ json_t *root = json_pack("{s:s}", "error", words);
    _cleanup_free_ char *report = root ? json_dumps(root, JSON_COMPACT) : NULL;
    log_warning("sdtrainer doctor: %s NODE=%s", words, d->needs.config->node);
    d->needs.told(d->needs.userdata, d->request.id, report ? report : "{}");
}

/* Reports the last line of the child's output; libraries may have printed lines before it. */
static void report_result(Doctor *d, char *text)
{
    size_t n = strlen(text);
    while (n > 0 && text[n - 1] == '\n')
        text[--n] = '\0';
    const char *newline = strrchr(text, '\n'), *line = newline ? newline + 1 : text;
    if (*line != '{' || strlen(line) > RECORD_REPORT_MAX)
        report_error(d, *line ? line : "it said nothing");
    else
        d->needs.told(d->needs.userdata, d->request.id, line);
}

static void clear_child(Doctor *d)
{
    timer_stop(&d->timer);
    d->exit_source = sd_event_source_disable_unref(d->exit_source);
    d->pidfd = fd_close(d->pidfd);
    d->output = fd_close(d->output);
    d->pid = 0;
    d->killed = false;
}

static void begin(Doctor *d);

static int on_doctor_end(_unused_ sd_event_source *source, _unused_ int fd,
                         _unused_ uint32_t revents, void *userdata)
{
    Doctor *d = userdata;
    char text[2 * RECORD_REPORT_MAX + 1];
    size_t used = 0;
    siginfo_t info = {0};
    assert(d->pid > 1);
    if (waitid(P_PID, (id_t)d->pid, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0)
        return 0;
    for (ssize_t n = 1; n > 0 && used < sizeof(text) - 1; used += (size_t)MAX(n, 0))
        n = read(d->output, text + used, sizeof(text) - 1 - used); /* output is O_NONBLOCK */
    text[used] = '\0';
    const bool killed = d->killed;
    clear_child(d);
    if (!killed)
        report_result(d, text);
    if (*d->next.id) {
        d->request = d->next;
        *d->next.id = '\0';
        begin(d);
    }
    return 0;
}

static void on_doctor_late(void *userdata)
{
    Doctor *d = userdata;
    assert(d->pid > 1 && !d->killed);
    (void)kill(d->pid, SIGKILL); /* the pid is valid: the child is not yet reaped */
    d->killed = true;
    report_error(d, "it did not end in time");
}

/* Adds what the child needs to ask sdtrain-exec as whom programs run. */
static size_t add_programs(const DaemonConfig *config, char **ret)
{
    size_t n = 0;
    if (!config->allow_exec)
        return 0;
    ret[n++] = (char *)"--runner";
    ret[n++] = (char *)config->runner;
    ret[n++] = (char *)"--exec-secrets";
    ret[n++] = (char *)config->exec_secrets;
    if (*config->exec_user) {
        ret[n++] = (char *)"--exec-user";
        ret[n++] = (char *)config->exec_user;
        ret[n++] = (char *)"--exec-socket";
        ret[n++] = (char *)config->exec_socket;
    }
    return n;
}

/* Fills ret with the child's arguments, which point into the request and the settings. */
static void make_arguments(const Doctor *d, char *ret[ARGUMENTS_MAX + 1])
{
    size_t n = 0;
    ret[n++] = (char *)d->needs.config->trainer;
    ret[n++] = (char *)"doctor";
    for (size_t i = 0; i < d->request.n_uris; i++) {
        const RequestUri *u = &d->request.uris[i];
        ret[n++] = (char *)(u->write ? "--write" : "--read");
        ret[n++] = (char *)u->uri;
        if (*u->marker) {
            ret[n++] = (char *)"--marker";
            ret[n++] = (char *)u->marker;
        }
    }
    for (size_t i = 0; i < d->request.n_peers; i++) {
        ret[n++] = (char *)"--peer";
        ret[n++] = (char *)d->request.peers[i].address;
    }
    if (*d->needs.cgroups) {
        ret[n++] = (char *)"--cgroup";
        ret[n++] = (char *)d->needs.cgroups;
    }
    n += add_programs(d->needs.config, ret + n);
    assert(n <= ARGUMENTS_MAX);
    ret[n] = NULL;
}

static int spawn(Doctor *d, Error *err)
{
    char *argv[ARGUMENTS_MAX + 1];
    int fds[2];
    make_arguments(d, argv);
    if (pipe2(fds, O_CLOEXEC) < 0)
        return error_errno(err, -errno, "cannot make a pipe");
    d->output = fds[0];
    _cleanup_fd_ int write_end = fds[1];
    if (fcntl(d->output, F_SETFL, O_NONBLOCK) < 0)
        return error_errno(err, -errno, "cannot make a pipe");
    _cleanup_(trainer_environment_freep) char **environment =
        trainer_environment_new(d->needs.environment, d->needs.config, -1);
    const SpawnRequest request = {.argv = argv,
                                  .program = MAX(*d->needs.trainer, 0),
                                  .environment = environment,
                                  .output = write_end,
                                  .channel = -EBADF,
                                  .cgroup = -EBADF};
    return spawn_process(&request, &d->pid, &d->pidfd, err);
}

static void begin(Doctor *d)
{
    Error err = ERROR_INIT;
    assert(d->pid == 0 && *d->request.id);
    int r = spawn(d, &err);
    if (r == 0) {
        r = sd_event_add_io(d->needs.timers->event, &d->exit_source, d->pidfd, EPOLLIN,
                            on_doctor_end, d);
        if (r < 0) {
            (void)error_errno(&err, r, "cannot watch it"); /* err is reported below */
            (void)kill(d->pid, SIGKILL);                   /* the SIGCHLD handler reaps the child */
        }
    }
    if (r < 0) {
        clear_child(d);
        report_error(d, err.text);
        return;
    }
    timer_start(d->needs.timers, &d->timer,
                d->needs.timeout_usec ? d->needs.timeout_usec : DOCTOR_SEC * USEC_PER_SEC,
                on_doctor_late, d);
}

void doctor_request(Doctor *d, const RequestRecord *request)
{
    if (strcmp(request->id, d->request.id) == 0)
        return; /* the watch has listed the same request again */
    if (d->pid > 0) {
        d->next = *request;
        return;
    }
    d->request = *request;
    begin(d);
}

bool doctor_owns(const Doctor *d, pid_t pid) { return d->pid > 0 && d->pid == pid; }

void doctor_init(Doctor *d, const DoctorNeeds *needs)
{
    *d = (Doctor){.needs = *needs, .pidfd = -EBADF, .output = -EBADF};
}

void doctor_clear(Doctor *d)
{
    if (d->pid > 0)
        (void)kill(d->pid, SIGKILL); /* the child's report is no longer needed */
    clear_child(d);
}
