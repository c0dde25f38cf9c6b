/* SPDX-License-Identifier: Apache-2.0 */
/* probes.c - see probes.h. */
#include "daemon/health/probes.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "daemon/health/health-record.h"
#include "daemon/process/spawn.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

enum {
    ANSWER_MAX = PROBE_STATE_MAX + 16384, /* less than a pipe holds, so the child never blocks */
    KILL_WAIT_SEC = 2,
    HANG_AGAIN_SEC = 5, /* seconds until a probe that hung runs again */
    NOTICE_SEC = 5,     /* seconds between two checks for a cloud's notice, as AWS advises */
};

static const char context_variable[] = "SDTRAIN_PROBE", kernel_name[] = "kernel-log";

static void end_round(Probes *p);

/* ---- the child's side ---- */

static void fill_context(const DaemonConfig *c, ProbeContext *ret)
{
    *ret = (ProbeContext){.disk_min_bytes = c->disk_min_bytes,
                          .gpus = c->gpus,
                          .rdma_devices = c->rdma_devices,
                          .n_slots = c->slots,
                          .probe_sec = c->probe_sec,
                          .proc = "/proc"};
    _Static_assert(sizeof(ret->run_dir) == sizeof(c->run_dir), "paths are as long in both");
    memcpy(ret->run_dir, c->run_dir, sizeof(ret->run_dir));
    memcpy(ret->log_dir, c->log_dir, sizeof(ret->log_dir));
    memcpy(ret->nvml, c->nvml, sizeof(ret->nvml));
    memcpy(ret->sysfs, c->sysfs, sizeof(ret->sysfs));
    memcpy(ret->spot_endpoint, c->spot_endpoint, sizeof(ret->spot_endpoint));
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
        (void)puts(text); /* a closed standard output cannot be reported */
    return r;
}

/* ---- the state of the probes ---- */

static void state_path(const Probes *p, const char *name, char ret[PATH_MAX])
{
    (void)snprintf(ret, PATH_MAX, "%s/%s.json", p->needs.config->state_dir, name);
}

static json_t *load_state(const Probes *p, const char *name)
{
    char path[PATH_MAX];
    json_t *state = NULL;
    Error err = ERROR_INIT;
    state_path(p, name, path);
    int r = json_read_file(path, PROBE_STATE_MAX, &state, &err);
    if (r < 0 && r != -ENOENT)
        log_warning("probe %s begins anew: %s", name, err.text);
    return state;
}

static void keep_state(Probes *p, const char *name, ProbeChild *child, json_t *state)
{
    char path[PATH_MAX];
    Error err = ERROR_INIT;
    json_decref(child->state);
    child->state = json_incref(state);
    _cleanup_free_ char *text = state ? json_dumps(state, JSON_COMPACT) : NULL;
    state_path(p, name, path);
    if (text && strlen(text) < PROBE_STATE_MAX && file_write(path, text, strlen(text), 0, &err) < 0)
        log_warning("what probe %s remembers is not kept: %s", name, err.text);
}

/* Maps slots to GPUs: by the GPU probe's state of this boot, else by the order of the GPUs on the PCI bus. */
static void observe_gpus(Probes *p)
{
    char bus[PROBE_SLOTS_MAX][PCI_ADDRESS_MAX];
    size_t n;
    const Probe *const *list = probe_list(&n);
    for (size_t i = 0; i < n; i++) {
        const json_t *state = p->children[i].state;
        const char *boot_id = json_string_value(json_object_get(state, "boot_id"));
        if (list[i] == &probe_gpu && boot_id && strcmp(boot_id, p->needs.boot_id) == 0)
            gpus_parse(json_object_get(state, "gpus"), &p->gpus);
    }
    p->gpus_answer = p->gpus_answer || p->gpus.n > 0;
    if (p->gpus.n > 0)
        return;
    n = gpus_list_pci(p->needs.config->sysfs, bus);
    for (size_t i = 0; i < n; i++)
        (void)gpus_place(&p->gpus, bus[i]); /* cannot fail: there is room for all listed GPUs */
}

/* ---- the verdict ---- */

static void judge(Probes *p)
{
    static const NodeVerdict verdict_of[HEALTH_LEVELS] = {NODE_HEALTHY, NODE_SUSPECT, NODE_DRAIN,
                                                          NODE_ISOLATE};
    Verdict verdict = verdict_judge(p->answers, p->n_answers, (int)p->needs.config->slots);
    const ProbeAnswer *worst = verdict.worst >= 0 ? &p->answers[verdict.worst] : NULL;
    char evidence[sizeof(p->evidence)] = "";
    if (worst)
        (void)snprintf(evidence, sizeof(evidence), "%s: %.200s", worst->name, worst->text);
    bool first = p->verdict_since_usec == 0;
    if (first || verdict.level != p->verdict.level || verdict.bad_slots != p->verdict.bad_slots) {
        p->verdict_since_usec = clock_realtime_usec();
        if (verdict.level != HEALTH_OK)
            log_warning("health is %s, %s NODE=%s BAD_SLOTS=%llx", health_level_name(verdict.level),
                        evidence, p->needs.config->node, (unsigned long long)verdict.bad_slots);
        else if (!first)
            log_info("health is ok again NODE=%s", p->needs.config->node);
    }
    p->verdict = verdict;
    (void)snprintf(p->cure, sizeof(p->cure), "%s", worst ? fault_cure_text(worst->cure) : "");
    p->node_verdict = verdict_of[verdict.level];
    memcpy(p->evidence, evidence, sizeof(p->evidence));
    p->needs.judged(p->needs.userdata, p->node_verdict, verdict.bad_slots, evidence);
    health_record_update(p, false);
}

/* Sets since_usec if the answer's level or bad slots differ from those of `before`, or if since_usec was never set. */
static void date_answer(ProbeAnswer *answer, const ProbeAnswer *before)
{
    if (answer->since_usec == 0 || answer->level != before->level ||
        answer->bad_slots != before->bad_slots)
        answer->since_usec = clock_realtime_usec();
}

static void take_result(Probes *p, ProbeAnswer *answer, const ProbeResult *result)
{
    verdict_weigh(result->findings, result->n_findings, (int)p->needs.config->slots, answer);
    if (result->n_findings == 0)
        (void)snprintf(answer->text, sizeof(answer->text), "%s", result->note);
    size_t used = strlen(answer->text);
    if (result->n_findings > 1)
        (void)snprintf(answer->text + used, sizeof(answer->text) - used, " (and %zu more)",
                       result->n_findings - 1);
}

void probes_note_kernel(Probes *p, const ProbeResult *result)
{
    assert(p->n_answers > 0);
    ProbeAnswer *answer = &p->answers[p->n_answers - 1], before = *answer;
    p->needs.began(p->needs.userdata, kernel_name);
    take_result(p, answer, result);
    answer->at_usec = clock_boottime_usec();
    date_answer(answer, &before);
    p->needs.ended(p->needs.userdata, kernel_name, answer->level, "answered");
    if (p->is_ready)
        judge(p);
}

/* ---- answers ---- */

/* Parses the result in the child's output. The result is a line of its own; libraries may have printed lines before
 * it. */
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

static void note_end(Probes *p, size_t i, const siginfo_t *info, const char *text)
{
    size_t n;
    const char *name = probe_list(&n)[i]->name;
    ProbeChild *child = &p->children[i];
    ProbeAnswer *answer = &p->answers[i], before = *answer;
    ProbeResult result;
    Error err = ERROR_INIT;
    answer->at_usec = clock_boottime_usec();
    answer->took_usec = answer->at_usec - child->began_usec;
    if (info->si_code != CLD_EXITED || info->si_status != 0) {
        note_failure(answer, *text ? text : "it died");
    } else if (parse_answer(text, &result, &err) < 0) {
        note_failure(answer, err.text);
    } else {
        take_result(p, answer, &result);
        keep_state(p, name, child, result.state);
        probe_result_clear(&result);
    }
    date_answer(answer, &before);
    p->needs.ended(p->needs.userdata, name, answer->level,
                   answer->failures ? "failed" : "answered");
}

static uint64_t timeout_of(const Probes *p, const Probe *probe)
{
    return MIN(probe->timeout_usec, (uint64_t)p->needs.config->probe_sec * USEC_PER_SEC);
}

static void note_hang(Probes *p, size_t i)
{
    size_t n;
    const Probe *probe = probe_list(&n)[i];
    ProbeAnswer *answer = &p->answers[i], before = *answer;
    verdict_note_hang(answer);
    (void)snprintf(answer->text, sizeof(answer->text),
                   "the probe hung: no answer in %llu s, %u in a row",
                   (unsigned long long)(timeout_of(p, probe) / USEC_PER_SEC), answer->hangs);
    answer->at_usec = clock_boottime_usec();
    answer->took_usec = answer->at_usec - p->children[i].began_usec;
    date_answer(answer, &before);
    log_warning("probe %s hangs NODE=%s", probe->name, p->needs.config->node);
    p->needs.ended(p->needs.userdata, probe->name, answer->level, "hung");
}

static void finish(Probes *p, ProbeChild *child)
{
    if (!child->is_waited)
        return;
    child->is_waited = false;
    assert(p->n_waited > 0);
    if (--p->n_waited == 0)
        end_round(p);
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
    Probes *p = child->probes;
    size_t i = (size_t)(child - p->children), used = 0;
    siginfo_t info = {0};
    assert(child->pid > 1);
    if (waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0)
        return 0;

    _cleanup_free_ char *text = memory_zeroed(ANSWER_MAX, 1);
    for (ssize_t n = 1; n > 0 && used < ANSWER_MAX - 1; used += (size_t)MAX(n, 0))
        n = read(child->output, text + used, ANSWER_MAX - 1 - used); /* output is O_NONBLOCK */
    bool killed = child->killed;
    clear_child(child);
    if (!killed)
        note_end(p, i, &info, text);
    finish(p, child);
    return 0;
}

static void on_kill_late(void *userdata)
{
    ProbeChild *child = userdata;
    finish(child->probes, child); /* child->pid stays set until the process ends */
}

static void on_probe_timeout(void *userdata)
{
    ProbeChild *child = userdata;
    Probes *p = child->probes;
    assert(child->pid > 1 && !child->killed);
    (void)kill(child->pid, SIGKILL); /* the pid is valid: the child is not yet reaped */
    child->killed = true;
    note_hang(p, (size_t)(child - p->children));
    timer_start(p->needs.timers, &child->timer, KILL_WAIT_SEC * USEC_PER_SEC, on_kill_late, child);
}

/* ---- rounds ---- */

/* Makes an environment with one more variable, which holds the child's context. */
static int make_environment(const Probes *p, json_t *state, char **ret_variable, char ***ret)
{
    ProbeContext context;
    _cleanup_free_ char *text = NULL;
    size_t n = 0;
    fill_context(p->needs.config, &context);
    (void)snprintf(context.boot_id, sizeof(context.boot_id), "%s", p->needs.boot_id);
    context.busy_slots = slots_busy(p->needs.slots);
    context.state = state;
    int r = probe_context_format(&context, &text);
    if (r < 0)
        return r;
    while (environ[n])
        n++;
    char **all = memory_zeroed(n + 2, sizeof(*all));
    memcpy(all, environ, n * sizeof(*all));
    all[n] = *ret_variable = memory_format("%s=%s", context_variable, text);
    *ret = all;
    return 0;
}

static int start(Probes *p, size_t i, const Probe *probe, Error *err)
{
    ProbeChild *child = &p->children[i];
    _cleanup_free_ char *variable = NULL;
    _cleanup_free_ char **environment = NULL;
    int fds[2];
    assert(child->pid == 0 && !child->is_waited);
    if (make_environment(p, child->state, &variable, &environment) < 0)
        return error_set(err, -EINVAL, "a path of the settings is not UTF-8");
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
    p->n_waited++;
    p->needs.began(p->needs.userdata, probe->name);
    r = sd_event_add_io(p->needs.event, &child->exit_source, child->pidfd, EPOLLIN, on_probe_end,
                        child);
    if (r < 0)
        return error_errno(err, r, "cannot watch a probe");
    timer_start(p->needs.timers, &child->timer, timeout_of(p, probe), on_probe_timeout, child);
    return 0;
}

static bool looks_for_notices(const Probes *p) { return *p->needs.config->spot_endpoint; }

/* full: the round runs all probes; else it runs only the probe for a cloud's notice. */
static void begin_round(Probes *p, bool full)
{
    size_t n;
    const Probe *const *list = probe_list(&n);
    assert(p->n_waited == 0);
    timer_stop(&p->timer);
    p->is_full = full;
    for (size_t i = 0; i < p->n_asks && full; i++)
        p->asks[i].is_served = true;
    p->n_waited++; /* keeps the round open until all its probes have been started */
    for (size_t i = 0; i < n; i++) {
        Error err = ERROR_INIT;
        if (!full && list[i] != &probe_spot)
            continue;
        if (p->children[i].pid > 0) { /* a child of an earlier round that SIGKILL did not end */
            note_hang(p, i);
        } else if (start(p, i, list[i], &err) < 0) {
            ProbeAnswer before = p->answers[i];
            if (p->children[i].pid > 0)
                (void)kill(p->children[i].pid, SIGKILL); /* the SIGCHLD handler reaps the child */
            p->n_waited -= p->children[i].is_waited;
            p->children[i].is_waited = false;
            clear_child(&p->children[i]);
            note_failure(&p->answers[i], err.text);
            date_answer(&p->answers[i], &before);
            log_warning("probe %s: %s", list[i]->name, err.text);
        }
    }
    if (--p->n_waited == 0)
        end_round(p);
}

static void on_round(void *userdata)
{
    Probes *p = userdata;
    if (!p->leaving && p->n_waited == 0)
        begin_round(p, p->n_asks > 0 || !looks_for_notices(p) ||
                           clock_boottime_usec() >= p->full_usec);
}

static void answer_requests(Probes *p)
{
    char answer[RECORD_TEXT_MAX + 1];
    size_t kept = 0;
    (void)snprintf(answer, sizeof(answer), "%s%s%.230s", node_verdict_names[p->verdict.level],
                   p->verdict.worst >= 0 ? ": " : "", p->evidence);
    for (size_t i = 0; i < p->n_asks; i++) {
        ProbeRequest *ask = &p->asks[i];
        if (!ask->is_served) {
            p->asks[kept++] = *ask;
            continue;
        }
        EtcdKeyValue kv = {.key = ask->key,
                           .value = ask->text,
                           .n_value = strlen(ask->text),
                           .mod_revision = ask->revision};
        p->needs.answer(p->needs.userdata, &kv, answer);
        free(ask->text);
    }
    p->n_asks = kept;
}

/* Sets the time of the next round of all probes, and starts the timer for that round or for an earlier check for
 * notices. */
static void plan_round(Probes *p)
{
    uint64_t now = clock_boottime_usec(), next = now + NOTICE_SEC * USEC_PER_SEC;
    bool hangs = false;
    for (size_t i = 0; i < p->n_answers; i++)
        hangs |= p->answers[i].hangs == 1;
    if (p->is_full)
        p->full_usec = now + (uint64_t)p->needs.config->health_sec * USEC_PER_SEC;
    if (p->is_outdated)
        p->full_usec = now;
    p->is_outdated = false;
    if (hangs)
        p->full_usec = MIN(p->full_usec, now + HANG_AGAIN_SEC * USEC_PER_SEC);
    if (p->n_asks > 0)
        next = now;
    else if (!looks_for_notices(p) || p->full_usec < next)
        next = MAX(p->full_usec, now);
    timer_start(p->needs.timers, &p->timer, next - now, on_round, p);
}

void probes_reload(Probes *p)
{
    if (p->n_answers == 0 || p->leaving)
        return; /* no round has begun yet, or no more rounds follow */
    kernel_watch_weigh(p);
    p->is_outdated = true;
    if (p->n_waited == 0)
        plan_round(p);
}

static void end_round(Probes *p)
{
    observe_gpus(p);
    p->is_ready = true;
    if (p->is_full)
        kernel_watch_note_round(p); /* kernel_watch_note_round() also judges */
    else
        judge(p);
    health_record_update(p, p->is_full && p->n_asks > 0);
    if (p->is_full)
        answer_requests(p);
    plan_round(p);
}

void probes_request(Probes *p, const EtcdKeyValue *kv, bool clear)
{
    for (size_t i = 0; i < p->n_asks; i++)
        if (strcmp(p->asks[i].key, kv->key) == 0)
            return;
    char *text = memory_bytes(kv->value, kv->n_value);
    if (p->n_asks == PROBE_ASKS_MAX || strlen(kv->key) >= KEY_MAX) {
        log_warning("%s: too many ask for a check NODE=%s", kv->key, p->needs.config->node);
        free(text);
        return; /* the request is offered again later, or its sender gives up */
    }
    ProbeRequest *ask = &p->asks[p->n_asks++];
    *ask = (ProbeRequest){.revision = kv->mod_revision, .text = text};
    memcpy(ask->key, kv->key, strlen(kv->key) + 1);
    if (clear) {
        log_warning("what only a reset would cure is forgotten, as somebody asked NODE=%s",
                    p->needs.config->node);
        kernel_watch_forget(p);
    }
    if (p->is_ready && p->n_waited == 0)
        begin_round(p, true); /* else another round follows the round under way */
}

void probes_note_report(Probes *p, const char *request, const char *report)
{
    (void)snprintf(p->report, sizeof(p->report), "%s", report);
    (void)snprintf(p->report_id, sizeof(p->report_id), "%s", request);
    health_record_update(p, true);
}

/* ---- start and end ---- */

void probes_init(Probes *p, const ProbesNeeds *needs)
{
    *p = (Probes){.needs = *needs, .kernel = {.fd = -EBADF}};
}

void probes_leave(Probes *p)
{
    p->leaving = true;
    health_record_update(p, true); /* the record stays: this node does not count as lost */
}

void probes_start(Probes *p)
{
    size_t n;
    const Probe *const *list = probe_list(&n);
    Error err = ERROR_INIT;
    if (folder_make(p->needs.config->state_dir, &err) < 0)
        log_warning("what probes remember is not kept: %s", err.text);
    for (size_t i = 0; i < n; i++) {
        p->answers[i].name = list[i]->name;
        p->children[i] = (ProbeChild){.probes = p,
                                      .pidfd = -EBADF,
                                      .output = -EBADF,
                                      .state = load_state(p, list[i]->name)};
    }
    p->answers[n].name = kernel_name;
    p->n_answers = n + 1;
    observe_gpus(p);
    kernel_watch_start(p);
    begin_round(p, true);
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
    kernel_watch_clear(&probes->kernel);
    timer_stop(&probes->timer);
    probes->post = etcd_call_free(probes->post);
    for (size_t i = 0; i + 1 < probes->n_answers; i++) {
        ProbeChild *child = &probes->children[i];
        if (child->pid > 0)
            (void)kill(child->pid, SIGKILL); /* the child's answer is no longer needed */
        clear_child(child);
        json_decref(child->state);
        child->state = NULL;
    }
    for (size_t i = 0; i < probes->n_asks; i++)
        free(probes->asks[i].text);
    probes->n_asks = probes->n_answers = 0;
}
