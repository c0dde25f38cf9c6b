/* probes.c - see probes.h. */
#include "daemon/health/probes.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "daemon/health/health-record.h"
#include "daemon/manager.h"
#include "daemon/process/spawn.h"
#include "daemon/requests.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

enum {
    ANSWER_MAX = PROBE_STATE_MAX + 16384, /* less than a pipe holds: the child never waits */
    KILL_WAIT_SEC = 2,
    HANG_AGAIN_SEC = 5, /* the second look at a probe that hung */
};

static const char context_variable[] = "SDTRAIN_PROBE", kernel_name[] = "kernel-log";

static void end_round(Manager *m);

/* ---- the child's side ---- */

static void fill_context(const DaemonConfig *c, ProbeContext *ret)
{
    *ret = (ProbeContext){.disk_min_bytes = c->disk_min_bytes,
                          .gpus = c->gpus,
                          .rdma_devices = c->rdma_devices,
                          .n_slots = c->slots,
                          .proc = "/proc"};
    _Static_assert(sizeof(ret->run_dir) == sizeof(c->run_dir), "paths are as long in both");
    memcpy(ret->run_dir, c->run_dir, sizeof(ret->run_dir));
    memcpy(ret->log_dir, c->log_dir, sizeof(ret->log_dir));
    memcpy(ret->nvml, c->nvml, sizeof(ret->nvml));
    memcpy(ret->sysfs, c->sysfs, sizeof(ret->sysfs));
}

bool probes_is_child(void) { return getenv(context_variable) != NULL; }

int probes_run_one(const DaemonConfig *config, const char *name, Error *err)
{
    const char *given = getenv(context_variable);
    const Probe *probe = probe_find(name);
    ProbeContext context;
    ProbeResult result = {0};
    if (!probe)
        return error_set(err, -ENOENT, "there is no probe %s", name);
    if (!given)
        fill_context(config, &context);
    int r = given ? probe_context_parse(given, strlen(given), &context, err) : 0;
    if (r < 0)
        return r;

    _cleanup_free_ char *text = NULL;
    r = probe->run(&context, &result, err);
    if (r == 0) {
        r = probe_result_format(&result, &text);
        if (r < 0)
            (void)error_errno(err, r, "cannot print what the probe found"); /* returned below */
    }
    probe_result_clear(&result);
    probe_context_clear(&context);
    if (r == 0)
        (void)puts(text); /* nobody to tell when standard output is closed */
    return r;
}

/* ---- what they remember ---- */

static void state_path(const Manager *m, const char *name, char ret[PATH_MAX])
{
    (void)snprintf(ret, PATH_MAX, "%s/%s.json", m->config.state_dir, name);
}

static json_t *load_state(const Manager *m, const char *name)
{
    char path[PATH_MAX];
    json_t *state = NULL;
    Error err = ERROR_INIT;
    state_path(m, name, path);
    int r = json_read_file(path, PROBE_STATE_MAX, &state, &err);
    if (r < 0 && r != -ENOENT)
        log_warning("probe %s begins anew: %s", name, err.text);
    return state;
}

static void keep_state(Manager *m, const char *name, ProbeChild *child, json_t *state)
{
    char path[PATH_MAX];
    Error err = ERROR_INIT;
    json_decref(child->state);
    child->state = json_incref(state);
    _cleanup_free_ char *text = state ? json_dumps(state, JSON_COMPACT) : NULL;
    state_path(m, name, path);
    if (text && strlen(text) < PROBE_STATE_MAX && file_write(path, text, strlen(text), 0, &err) < 0)
        log_warning("what probe %s remembers is not kept: %s", name, err.text);
}

/* Which slot is which GPU: as the probe has seen since the boot, else as they lie on the bus. */
static void learn_gpus(Manager *m)
{
    char bus[PROBE_SLOTS_MAX][PCI_ADDRESS_MAX];
    size_t n;
    const Probe *const *list = probe_list(&n);
    for (size_t i = 0; i < n; i++) {
        const json_t *state = m->probes.children[i].state;
        const char *boot_id = json_string_value(json_object_get(state, "boot_id"));
        if (list[i] == &probe_gpu && boot_id && strcmp(boot_id, m->node.boot_id) == 0)
            gpus_parse(json_object_get(state, "gpus"), &m->probes.gpus);
    }
    if (m->probes.gpus.n > 0)
        return;
    n = gpus_list_pci(m->config.sysfs, bus);
    for (size_t i = 0; i < n; i++)
        (void)gpus_place(&m->probes.gpus, bus[i]); /* there is room for as many as were listed */
}

/* ---- the verdict ---- */

static void judge(Manager *m)
{
    static const NodeVerdict verdict_of[HEALTH_LEVELS] = {NODE_HEALTHY, NODE_SUSPECT, NODE_DRAIN,
                                                          NODE_ISOLATE};
    Probes *p = &m->probes;
    OwnNode *node = &m->node;
    Verdict verdict = verdict_judge(p->answers, p->n_answers, (int)m->config.slots);
    const ProbeAnswer *worst = verdict.worst >= 0 ? &p->answers[verdict.worst] : NULL;
    char evidence[sizeof(node->evidence)] = "";
    if (worst)
        (void)snprintf(evidence, sizeof(evidence), "%s: %.200s", worst->name, worst->text);
    bool first = p->verdict_since_usec == 0;
    if (first || verdict.level != p->verdict.level || verdict.bad_slots != p->verdict.bad_slots) {
        p->verdict_since_usec = clock_realtime_usec();
        if (verdict.level != HEALTH_OK)
            log_warning("health is %s, %s NODE=%s BAD_SLOTS=%llx", health_level_name(verdict.level),
                        evidence, m->config.node, (unsigned long long)verdict.bad_slots);
        else if (!first)
            log_info("health is ok again NODE=%s", m->config.node);
    }
    p->verdict = verdict;
    (void)snprintf(p->cure, sizeof(p->cure), "%s", worst ? fault_cure_text(worst->cure) : "");
    node->verdict = verdict_of[verdict.level];
    node->bad_slots = verdict.bad_slots;
    (void)snprintf(node->evidence, sizeof(node->evidence), "%s", evidence);
    manager_touch_node(m);
    health_record_update(m, false);
}

/* Level or text became something else now. */
static void date_answer(ProbeAnswer *answer, const ProbeAnswer *before)
{
    if (answer->since_usec == 0 || answer->level != before->level ||
        answer->bad_slots != before->bad_slots)
        answer->since_usec = clock_realtime_usec();
}

static void take_result(Manager *m, ProbeAnswer *answer, const ProbeResult *result)
{
    verdict_weigh(result->findings, result->n_findings, (int)m->config.slots, answer);
    if (result->n_findings == 0)
        (void)snprintf(answer->text, sizeof(answer->text), "%s", result->note);
    size_t used = strlen(answer->text);
    if (result->n_findings > 1)
        (void)snprintf(answer->text + used, sizeof(answer->text) - used, " (and %zu more)",
                       result->n_findings - 1);
}

void probes_note_kernel(Manager *m, const ProbeResult *result)
{
    ProbeAnswer *answer = &m->probes.answers[m->probes.n_answers - 1], before = *answer;
    daemon_metrics_note_probe_start(m, kernel_name);
    take_result(m, answer, result);
    answer->at_usec = clock_boottime_usec();
    date_answer(answer, &before);
    daemon_metrics_note_probe_end(m, kernel_name, answer->level, "answered");
    if (m->probes.is_ready)
        judge(m);
}

/* ---- answers ---- */

/* The result is a line of its own; libraries may have printed before. */
static int parse_answer(const char *text, ProbeResult *ret, Error *err)
{
    const char *line = text;
    for (const char *p = text; (p = strstr(p, "\n{"));)
        line = ++p;
    return probe_result_parse(line, strcspn(line, "\n"), ret, err);
}

static void note_failure(ProbeAnswer *answer, const char *why)
{
    verdict_note_failure(answer);
    (void)snprintf(answer->text, sizeof(answer->text), "it can't find out: %.200s", why);
    answer->text[strcspn(answer->text, "\n")] = '\0';
}

static void note_end(Manager *m, size_t i, const siginfo_t *info, const char *text)
{
    size_t n;
    const char *name = probe_list(&n)[i]->name;
    ProbeChild *child = &m->probes.children[i];
    ProbeAnswer *answer = &m->probes.answers[i], before = *answer;
    ProbeResult result;
    Error err = ERROR_INIT;
    answer->at_usec = clock_boottime_usec();
    answer->took_usec = answer->at_usec - child->began_usec;
    if (info->si_code != CLD_EXITED || info->si_status != 0) {
        note_failure(answer, *text ? text : "it died");
    } else if (parse_answer(text, &result, &err) < 0) {
        note_failure(answer, err.text);
    } else {
        take_result(m, answer, &result);
        keep_state(m, name, child, result.state);
        probe_result_clear(&result);
    }
    date_answer(answer, &before);
    daemon_metrics_note_probe_end(m, name, answer->level, answer->failures ? "failed" : "answered");
}

static uint64_t timeout_of(const Manager *m, const Probe *probe)
{
    return MIN(probe->timeout_usec, (uint64_t)m->config.probe_sec * USEC_PER_SEC);
}

static void note_hang(Manager *m, size_t i)
{
    size_t n;
    const Probe *probe = probe_list(&n)[i];
    ProbeAnswer *answer = &m->probes.answers[i], before = *answer;
    verdict_note_hang(answer);
    (void)snprintf(answer->text, sizeof(answer->text),
                   "the probe hung: no answer in %llu s, %u in a row",
                   (unsigned long long)(timeout_of(m, probe) / USEC_PER_SEC), answer->hangs);
    answer->at_usec = clock_boottime_usec();
    answer->took_usec = answer->at_usec - m->probes.children[i].began_usec;
    date_answer(answer, &before);
    log_warning("probe %s hangs NODE=%s", probe->name, m->config.node);
    daemon_metrics_note_probe_end(m, probe->name, answer->level, "hung");
}

static void finish(Manager *m, ProbeChild *child)
{
    if (!child->is_waited)
        return;
    child->is_waited = false;
    if (--m->probes.n_waited == 0)
        end_round(m);
}

static void clear_child(ProbeChild *child)
{
    timer_stop(&child->timer);
    child->exit_source = sd_event_source_disable_unref(child->exit_source);
    child->pidfd = fd_close(child->pidfd);
    child->output = fd_close(child->output);
    child->pid = 0;
}

static int on_probe_end(_unused_ sd_event_source *source, _unused_ int fd,
                        _unused_ uint32_t revents, void *userdata)
{
    ProbeChild *child = userdata;
    Manager *m = child->manager;
    size_t i = (size_t)(child - m->probes.children), used = 0;
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0)
        return 0;

    _cleanup_free_ char *text = malloc(ANSWER_MAX);
    for (ssize_t n = 1; text && n > 0 && used < ANSWER_MAX - 1; used += (size_t)MAX(n, 0))
        n = read(child->output, text + used, ANSWER_MAX - 1 - used); /* it does not block */
    if (text)
        text[used] = '\0';
    bool killed = child->killed;
    clear_child(child);
    if (!killed)
        note_end(m, i, &info, text ? text : "out of memory");
    finish(m, child);
    return 0;
}

static void on_kill_late(void *userdata)
{
    ProbeChild *child = userdata;
    finish(child->manager, child); /* the process keeps its place until it ends */
}

static void on_probe_timeout(void *userdata)
{
    ProbeChild *child = userdata;
    Manager *m = child->manager;
    (void)kill(child->pid, SIGKILL); /* our own child, not yet reaped */
    child->killed = true;
    note_hang(m, (size_t)(child - m->probes.children));
    timer_start(&m->timers, &child->timer, KILL_WAIT_SEC * USEC_PER_SEC, on_kill_late, child);
}

/* ---- rounds ---- */

static uint64_t slots_in_use(const Manager *m)
{
    uint64_t busy = 0;
    for (size_t i = 0; i < ELEMENTSOF(m->workload.slots.of); i++)
        busy |= m->workload.slots.of[i] ? UINT64_C(1) << i : 0;
    return busy;
}

/* The environment with one variable more: the child's context. */
static int make_environment(const Manager *m, json_t *state, char **ret_variable, char ***ret)
{
    ProbeContext context;
    _cleanup_free_ char *text = NULL, *variable = NULL;
    size_t n = 0;
    fill_context(&m->config, &context);
    memcpy(context.boot_id, m->node.boot_id, sizeof(m->node.boot_id));
    context.busy_slots = slots_in_use(m);
    context.state = state;
    if (probe_context_format(&context, &text) < 0 ||
        asprintf(&variable, "%s=%s", context_variable, text) < 0)
        return -ENOMEM;
    while (environ[n])
        n++;
    char **all = calloc(n + 2, sizeof(*all));
    if (!all)
        return -ENOMEM;
    memcpy(all, environ, n * sizeof(*all));
    all[n] = variable;
    *ret_variable = TAKE_PTR(variable);
    *ret = all;
    return 0;
}

static int start(Manager *m, size_t i, const Probe *probe, Error *err)
{
    ProbeChild *child = &m->probes.children[i];
    _cleanup_free_ char *variable = NULL;
    _cleanup_free_ char **environment = NULL;
    int fds[2];
    if (make_environment(m, child->state, &variable, &environment) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    if (pipe2(fds, O_CLOEXEC) < 0)
        return error_errno(err, -errno, "cannot make a pipe");
    child->output = fds[0];
    _cleanup_fd_ int write_end = fds[1];
    if (fcntl(child->output, F_SETFL, O_NONBLOCK) < 0)
        return error_errno(err, -errno, "cannot make a pipe");

    char *argv[] = {(char[]){"/proc/self/exe"}, (char[]){"--probe"}, (char *)probe->name, NULL};
    SpawnRequest request = {.argv = argv,
                            .environment = environment,
                            .output = write_end,
                            .channel = -EBADF,
                            .cgroup = -EBADF};
    int r = spawn_process(&request, &child->pid, &child->pidfd, err);
    if (r < 0)
        return r;
    child->killed = false;
    child->is_waited = true;
    child->began_usec = clock_boottime_usec();
    m->probes.n_waited++;
    daemon_metrics_note_probe_start(m, probe->name);
    r = sd_event_add_io(m->event, &child->exit_source, child->pidfd, EPOLLIN, on_probe_end, child);
    if (r < 0)
        return error_errno(err, r, "cannot watch a probe");
    timer_start(&m->timers, &child->timer, timeout_of(m, probe), on_probe_timeout, child);
    return 0;
}

static void begin_round(Manager *m)
{
    Probes *p = &m->probes;
    size_t n;
    const Probe *const *list = probe_list(&n);
    timer_stop(&p->timer);
    for (size_t i = 0; i < p->n_asks; i++)
        p->asks[i].is_served = true;
    p->n_waited++; /* the round is not over before all were begun */
    for (size_t i = 0; i < n; i++) {
        Error err = ERROR_INIT;
        if (p->children[i].pid > 0) { /* since an earlier round: SIGKILL does not end it */
            note_hang(m, i);
        } else if (start(m, i, list[i], &err) < 0) {
            ProbeAnswer before = p->answers[i];
            if (p->children[i].pid > 0)
                (void)kill(p->children[i].pid, SIGKILL); /* nobody watches it; SIGCHLD reaps it */
            p->n_waited -= p->children[i].is_waited;
            p->children[i].is_waited = false;
            clear_child(&p->children[i]);
            note_failure(&p->answers[i], err.text);
            date_answer(&p->answers[i], &before);
            log_warning("probe %s: %s", list[i]->name, err.text);
        }
    }
    if (--p->n_waited == 0)
        end_round(m);
}

static void on_round(void *userdata)
{
    Manager *m = userdata;
    if (!m->leaving && m->probes.n_waited == 0)
        begin_round(m);
}

static void answer_asks(Manager *m)
{
    static const char *const names[HEALTH_LEVELS] = {"healthy", "suspect", "drain", "isolate"};
    Probes *p = &m->probes;
    char answer[RECORD_TEXT_MAX + 1];
    size_t kept = 0;
    (void)snprintf(answer, sizeof(answer), "%s%s%.230s", names[p->verdict.level],
                   p->verdict.worst >= 0 ? ": " : "", m->node.evidence);
    for (size_t i = 0; i < p->n_asks; i++) {
        ProbeAsk *ask = &p->asks[i];
        if (!ask->is_served) {
            p->asks[kept++] = *ask;
            continue;
        }
        EtcdKeyValue kv = {.key = ask->key,
                           .value = ask->text,
                           .n_value = strlen(ask->text),
                           .mod_revision = ask->revision};
        requests_answer(m, &kv, answer);
        free(ask->text);
    }
    p->n_asks = kept;
}

static void end_round(Manager *m)
{
    Probes *p = &m->probes;
    bool hangs = false;
    learn_gpus(m);
    p->is_ready = true;
    kernel_watch_note_round(m); /* judges too */
    health_record_update(m, p->n_asks > 0);
    answer_asks(m);
    for (size_t i = 0; i < p->n_answers; i++)
        hangs |= p->answers[i].hangs == 1;
    uint64_t wait_sec = hangs ? MIN((uint64_t)m->config.health_sec, (uint64_t)HANG_AGAIN_SEC)
                              : (uint64_t)m->config.health_sec;
    timer_start(&m->timers, &p->timer, p->n_asks > 0 ? 0 : wait_sec * USEC_PER_SEC, on_round, m);
}

void probes_ask(Manager *m, const EtcdKeyValue *kv, bool clear)
{
    Probes *p = &m->probes;
    for (size_t i = 0; i < p->n_asks; i++)
        if (strcmp(p->asks[i].key, kv->key) == 0)
            return;
    char *text = strndup(kv->value, kv->n_value);
    if (p->n_asks == PROBE_ASKS_MAX || !text || strlen(kv->key) >= KEY_MAX) {
        log_warning("%s: too many ask for a check NODE=%s", kv->key, m->config.node);
        free(text);
        return; /* it is asked again, or the asker gives up */
    }
    ProbeAsk *ask = &p->asks[p->n_asks++];
    *ask = (ProbeAsk){.revision = kv->mod_revision, .text = text};
    memcpy(ask->key, kv->key, strlen(kv->key) + 1);
    if (clear) {
        log_warning("what only a reset would cure is forgotten, as somebody asked NODE=%s",
                    m->config.node);
        kernel_watch_forget(m);
    }
    if (p->is_ready && p->n_waited == 0)
        begin_round(m); /* else the one under way is followed by another */
}

/* ---- the whole ---- */

void probes_start(Manager *m)
{
    Probes *p = &m->probes;
    size_t n;
    const Probe *const *list = probe_list(&n);
    Error err = ERROR_INIT;
    if (folder_make(m->config.state_dir, &err) < 0)
        log_warning("what probes remember is not kept: %s", err.text);
    for (size_t i = 0; i < n; i++) {
        p->answers[i].name = list[i]->name;
        p->children[i] = (ProbeChild){.manager = m,
                                      .pidfd = -EBADF,
                                      .output = -EBADF,
                                      .state = load_state(m, list[i]->name)};
    }
    p->answers[n].name = kernel_name;
    p->n_answers = n + 1;
    learn_gpus(m);
    kernel_watch_start(m);
    begin_round(m);
}

bool probes_own(const Probes *probes, pid_t pid)
{
    for (size_t i = 0; i + 1 < probes->n_answers; i++)
        if (probes->children[i].pid == pid)
            return true;
    return false;
}

void probes_clear(Probes *probes)
{
    timer_stop(&probes->timer);
    probes->post = etcd_call_free(probes->post);
    for (size_t i = 0; i + 1 < probes->n_answers; i++) {
        ProbeChild *child = &probes->children[i];
        if (child->pid > 0)
            (void)kill(child->pid, SIGKILL); /* a child of ours that nobody will ask again */
        clear_child(child);
        json_decref(child->state);
        child->state = NULL;
    }
    for (size_t i = 0; i < probes->n_asks; i++)
        free(probes->asks[i].text);
    probes->n_asks = probes->n_answers = 0;
}
