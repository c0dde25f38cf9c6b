/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c - see probe.h. */
#include "health/probe.h"

#include "base/json/json-build.h"
#include "base/json/json.h"

#include <stdio.h>
#include <string.h>

static const Probe *const all[] = {&probe_gpu,   &probe_rdma, &probe_disk,
                                   &probe_clock, &probe_host, &probe_spot};
_Static_assert(ELEMENTSOF(all) < PROBES_MAX, "one place is the kernel log's");

const Probe *const *probe_list(size_t *ret_n)
{
    *ret_n = ELEMENTSOF(all);
    return all;
}

const Probe *probe_find(const char *name)
{
    for (size_t i = 0; i < ELEMENTSOF(all); i++)
        if (strcmp(all[i]->name, name) == 0)
            return all[i];
    return NULL;
}

static HealthLevel level_of(const ProbeFinding *f) { return fault_rule(f->fault)->level; }

void probe_find_fault(ProbeResult *result, FaultCode fault, int slot, const char *format, ...)
{
    size_t at = result->n_findings;
    /* In a full list the new finding replaces the mildest finding, if that finding is milder. */
    if (at == PROBE_FINDINGS_MAX) {
        at = 0;
        for (size_t i = 1; i < PROBE_FINDINGS_MAX; i++)
            if (level_of(&result->findings[i]) < level_of(&result->findings[at]))
                at = i;
        if (level_of(&result->findings[at]) >= fault_rule(fault)->level)
            return;
    } else {
        result->n_findings++;
    }
    ProbeFinding *finding = &result->findings[at];
    finding->fault = fault;
    finding->slot = slot;
    va_list ap;
    va_start(ap, format);
    (void)vsnprintf(finding->text, sizeof(finding->text), format, ap); /* a long text is cut */
    va_end(ap);
}

void probe_result_clear(ProbeResult *result)
{
    json_decref(result->state);
    result->state = NULL;
}

void probe_context_clear(ProbeContext *context)
{
    json_decref(context->state);
    context->state = NULL;
}

bool probe_recall(const json_t *state, const char *key, double *ret)
{
    const json_t *value = json_object_get(state, key);
    if (!json_is_number(value))
        return false;
    *ret = json_number_value(value);
    return true;
}

/* ---- results ---- */

int probe_result_format(const ProbeResult *result, char **ret)
{
    _cleanup_json_ json_t *root = json_pack("{s[],ss}", "findings", "note", result->note);
    json_t *list = json_object_get(root, "findings");
    for (size_t i = 0; i < result->n_findings; i++) {
        const ProbeFinding *f = &result->findings[i];
        json_t *one = json_pack("{sssiss}", "fault", fault_rule(f->fault)->name, "slot", f->slot,
                                "text", f->text);
        if (!one || json_array_append_new(list, one) < 0)
            return -EINVAL; /* a text that is not UTF-8 */
    }
    if (result->state && json_object_set(root, "state", result->state) < 0)
        return -EINVAL;
    *ret = json_dumps(root, JSON_COMPACT);
    return *ret ? 0 : -EINVAL;
}

static const char *const *fault_names(void)
{
    static const char *names[FAULTS];
    for (int i = 0; i < FAULTS; i++)
        names[i] = fault_rule((FaultCode)i)->name;
    return names;
}

int probe_result_parse(const char *text, size_t n_bytes, ProbeResult *ret, Error *err)
{
    _cleanup_json_ json_t *root = NULL;
    ProbeResult result = {0};
    int r = json_parse("probe", text, n_bytes, &root, err);
    if (r < 0)
        return -EBADMSG;

    json_t *list = NULL, *state = NULL;
    JsonReader reader = json_open("probe", root, JSON_ANY_KEYS, err);
    (void)json_get_text(&reader, "note", JSON_OPTIONAL, result.note, sizeof(result.note));
    (void)json_get_any(&reader, "state", JSON_OPTIONAL, &state);
    (void)json_get_array(&reader, "findings", JSON_REQUIRED, PROBE_FINDINGS_MAX, &list);
    for (size_t i = 0; i < json_array_size(list); i++) {
        ProbeFinding *f = &result.findings[result.n_findings++];
        JsonReader one = json_get_element(&reader, "findings", list, i);
        int fault = 0;
        int64_t slot = -1;
        (void)json_get_choice(&one, "fault", JSON_REQUIRED, fault_names(), FAULTS, &fault);
        (void)json_get_int(&one, "slot", JSON_REQUIRED, -1, PROBE_SLOTS_MAX - 1, &slot);
        (void)json_get_text(&one, "text", JSON_REQUIRED, f->text, sizeof(f->text));
        f->fault = (FaultCode)fault;
        f->slot = (int)slot;
        (void)json_close(&one); /* passes an error of `one` on to the parent */
    }
    if (json_close(&reader) < 0)
        return -EBADMSG;
    *ret = result;
    ret->state = json_is_object(state) ? json_incref(state) : NULL;
    return 0;
}

/* ---- contexts ---- */

int probe_context_format(const ProbeContext *c, char **ret)
{
    JsonBuild b = json_build();
    json_add_text(&b, "run_dir", c->run_dir);
    json_add_text(&b, "log_dir", c->log_dir);
    json_add_text(&b, "nvml", c->nvml);
    json_add_text(&b, "sysfs", c->sysfs);
    json_add_text(&b, "proc", c->proc);
    json_add_text(&b, "boot_id", c->boot_id);
    json_add_int(&b, "disk_min_bytes", c->disk_min_bytes);
    json_add_int(&b, "gpus", c->gpus);
    json_add_int(&b, "rdma_devices", c->rdma_devices);
    json_add_int(&b, "slots", c->n_slots);
    json_add_int(&b, "busy_slots", (int64_t)c->busy_slots);
    json_add_int(&b, "probe_sec", c->probe_sec);
    json_add_text(&b, "spot_endpoint", c->spot_endpoint);
    _cleanup_json_ json_t *root = json_build_end(&b);
    if (!root || (c->state && json_object_set(root, "state", c->state) < 0))
        return -EINVAL;
    *ret = json_dumps(root, JSON_COMPACT);
    return *ret ? 0 : -EINVAL;
}

int probe_context_parse(const char *text, size_t n_bytes, ProbeContext *ret, Error *err)
{
    _cleanup_json_ json_t *root = NULL;
    if (json_parse("context", text, n_bytes, &root, err) < 0)
        return -EBADMSG;
    ProbeContext c = {0};
    int64_t busy = 0;
    json_t *state = NULL;
    JsonReader r = json_open("context", root, JSON_ANY_KEYS, err);
    (void)json_get_text(&r, "run_dir", JSON_REQUIRED, c.run_dir, sizeof(c.run_dir));
    (void)json_get_text(&r, "log_dir", JSON_REQUIRED, c.log_dir, sizeof(c.log_dir));
    (void)json_get_text(&r, "nvml", JSON_REQUIRED, c.nvml, sizeof(c.nvml));
    (void)json_get_text(&r, "sysfs", JSON_REQUIRED, c.sysfs, sizeof(c.sysfs));
    (void)json_get_text(&r, "proc", JSON_REQUIRED, c.proc, sizeof(c.proc));
    (void)json_get_text(&r, "boot_id", JSON_REQUIRED, c.boot_id, sizeof(c.boot_id));
    (void)json_get_int(&r, "disk_min_bytes", JSON_REQUIRED, 0, INT64_MAX, &c.disk_min_bytes);
    (void)json_get_int(&r, "gpus", JSON_REQUIRED, 0, PROBE_SLOTS_MAX, &c.gpus);
    (void)json_get_int(&r, "rdma_devices", JSON_REQUIRED, 0, 1024, &c.rdma_devices);
    (void)json_get_int(&r, "slots", JSON_REQUIRED, 0, PROBE_SLOTS_MAX, &c.n_slots);
    (void)json_get_int(&r, "busy_slots", JSON_REQUIRED, INT64_MIN, INT64_MAX, &busy);
    (void)json_get_int(&r, "probe_sec", JSON_REQUIRED, 1, 600, &c.probe_sec);
    (void)json_get_text(&r, "spot_endpoint", JSON_REQUIRED, c.spot_endpoint,
                        sizeof(c.spot_endpoint));
    (void)json_get_any(&r, "state", JSON_OPTIONAL, &state);
    if (json_close(&r) < 0)
        return -EBADMSG;
    c.busy_slots = (uint64_t)busy;
    c.state = json_is_object(state) ? json_incref(state) : NULL;
    *ret = c;
    return 0;
}
