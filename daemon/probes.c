/* probes.c - see probes.h. */
#include "daemon/probes.h"

#include "base/cleanup.h"
#include "base/log.h"
#include "daemon/manager.h"
#include "daemon/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

enum { ANSWER_MAX = 8192 };

static void next(Manager *m);

int probes_run_one(const Config *config, const char *name, Error *err)
{
    const Probe *probe = probe_find(name);
    if (!probe)
        return error_set(err, -ENOENT, "there is no probe %s", name);

    ProbeContext context = {.paths = {config->run_dir, config->log_dir},
                            .n_paths = 2,
                            .disk_min_bytes = config->disk_min_bytes};
    ProbeResult result = {0};
    int r = probe->run(&context, &result, err);
    if (r < 0)
        return r;
    _cleanup_free_ char *text = NULL;
    r = probe_result_format(&result, &text);
    if (r < 0)
        return error_errno(err, r, "cannot print what the probe found");
    (void)puts(text); /* nobody to tell when standard output is closed */
    return 0;
}

/* ---- answers ---- */

static void judge(Manager *m)
{
    Probes *p = &m->probes;
    Node *node = &m->node;
    size_t n, worst = 0;
    (void)probe_list(&n);
    HealthLevel level = verdict_judge(p->answers, n, &worst);
    static const NodeVerdict verdict_of[HEALTH_LEVELS] = {NODE_HEALTHY, NODE_SUSPECT, NODE_DRAIN,
                                                          NODE_ISOLATE};
    const char *evidence = level == HEALTH_OK ? "" : p->evidence[worst];
    if (node->verdict != verdict_of[level])
        log_warning("health is %s %s NODE=%s", health_level_name(level), evidence, m->config.node);
    node->verdict = verdict_of[level];
    (void)snprintf(node->evidence, sizeof(node->evidence), "%s", evidence);
    manager_touch_node(m);
}

static void note_answer(Manager *m, const char *name, int status, const char *text, size_t n_text)
{
    Probes *p = &m->probes;
    ProbeAnswer *answer = &p->answers[p->current];
    char *evidence = p->evidence[p->current];
    const size_t size = sizeof(p->evidence[0]);
    ProbeResult result;
    Error err = ERROR_INIT;

    if (p->killed) {
        answer->hangs++;
        (void)snprintf(evidence, size, "probe %s hung", name);
        return;
    }
    answer->hangs = 0;
    if (status != 0 || probe_result_parse(text, n_text, &result, &err) < 0) {
        answer->failures++;
        (void)snprintf(evidence, size, "probe %s: %.*s", name, (int)MIN(n_text, (size_t)180), text);
        evidence[strcspn(evidence, "\n")] = '\0';
        return;
    }
    *answer = (ProbeAnswer){0};
    for (size_t i = 0; i < result.n_findings; i++) {
        const ProbeFinding *f = &result.findings[i];
        if (f->level < answer->level || (i > 0 && f->level == answer->level))
            continue;
        answer->level = f->level;
        (void)snprintf(evidence, size, "%s: %s", name, f->text);
    }
}

static int on_end(_unused_ sd_event_source *source, _unused_ int fd, _unused_ uint32_t revents,
                  void *userdata)
{
    Manager *m = userdata;
    Probes *p = &m->probes;
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0)
        return 0;

    char text[ANSWER_MAX];
    ssize_t n = read(p->output, text, sizeof(text) - 1); /* the writer is gone: all there is */
    text[MAX(n, 0)] = '\0';
    size_t n_probes;
    const Probe *const *list = probe_list(&n_probes);
    note_answer(m, list[p->current]->name,
                info.si_code == CLD_EXITED ? info.si_status : -info.si_status, text,
                (size_t)MAX(n, 0));
    const ProbeAnswer *answer = &p->answers[p->current];
    daemon_metrics_note_probe_end(m, list[p->current]->name, answer->level,
                                  p->killed          ? "hung"
                                  : answer->failures ? "failed"
                                                     : "answered");
    p->pid = 0;
    probes_clear(p);
    judge(m);

    p->current++;
    next(m);
    return 0;
}

static int on_timeout(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Manager *m = userdata;
    Probes *p = &m->probes;
    (void)kill(p->pid, SIGKILL); /* its end comes as on_end; if it never does, no other is run */
    if (p->killed)
        return 0;
    p->killed = true;
    size_t n_probes;
    log_warning("probe %s hangs NODE=%s", probe_list(&n_probes)[p->current]->name, m->config.node);
    return 0;
}

/* ---- rounds ---- */

static int on_round(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Manager *m = userdata;
    m->probes.current = 0;
    next(m);
    return 0;
}

static int start(Manager *m, const Probe *probe, Error *err)
{
    Probes *p = &m->probes;
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return error_errno(err, -errno, "cannot make a pipe");
    p->output = fds[0];
    _cleanup_fd_ int write_end = fds[1];

    char room[32];
    (void)snprintf(room, sizeof(room), "%lld", (long long)m->config.disk_min_bytes);
    char *argv[] = {(char[]){"/proc/self/exe"},
                    (char[]){"--probe"},
                    (char *)probe->name,
                    (char[]){"--run-dir"},
                    m->config.run_dir,
                    (char[]){"--log-dir"},
                    m->config.log_dir,
                    (char[]){"--address"},
                    m->config.address,
                    (char[]){"--etcd"},
                    m->config.etcd,
                    (char[]){"--trainer"},
                    m->config.trainer,
                    (char[]){"--node"},
                    m->config.node,
                    (char[]){"--machine-id"},
                    m->config.machine_id,
                    (char[]){"--disk-min-bytes"},
                    room,
                    NULL};
    SpawnRequest request = {.argv = argv,
                            .environment = environ,
                            .output = write_end,
                            .channel = -EBADF,
                            .cgroup = -EBADF};
    int r = spawn_process(&request, &p->pid, &p->pidfd, err);
    if (r < 0)
        return r;
    p->killed = false;
    daemon_metrics_note_probe_start(m, probe->name);
    r = sd_event_add_io(m->event, &p->exit_source, p->pidfd, EPOLLIN, on_end, m);
    if (r < 0)
        return error_errno(err, r, "cannot watch a probe");
    manager_add_timer(m, probe->timeout_usec, on_timeout, m, &p->timer);
    return 0;
}

static void next(Manager *m)
{
    Probes *p = &m->probes;
    size_t n;
    const Probe *const *list = probe_list(&n);
    if (p->current >= n || m->leaving) {
        manager_add_timer(m, (uint64_t)m->config.health_sec * USEC_PER_SEC, on_round, m, &p->timer);
        return;
    }
    Error err = ERROR_INIT;
    if (start(m, list[p->current], &err) < 0) {
        log_warning("probe %s: %s", list[p->current]->name, err.text);
        probes_clear(p);
        p->current = n;
        next(m);
    }
}

void probes_start(Manager *m)
{
    m->probes = (Probes){.pidfd = -EBADF, .output = -EBADF};
    next(m);
}

void probes_clear(Probes *probes)
{
    if (probes->pid > 0)
        (void)kill(probes->pid, SIGKILL); /* a child of ours that nobody will ask again */
    probes->timer = sd_event_source_disable_unref(probes->timer);
    probes->exit_source = sd_event_source_disable_unref(probes->exit_source);
    probes->pidfd = fd_close(probes->pidfd);
    probes->output = fd_close(probes->output);
}
