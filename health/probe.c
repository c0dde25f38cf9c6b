/* probe.c - see probe.h. */
#include "health/probe.h"

#include "base/json.h"

#include <stdio.h>
#include <string.h>

static const Probe *const all[] = {&probe_disk_space, &probe_clock};
_Static_assert(ELEMENTSOF(all) <= PROBES_MAX, "too many probes");

static const char *const level_name[HEALTH_LEVELS] = {"ok", "suspect", "drain", "isolate"};

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

const char *health_level_name(HealthLevel level)
{
    assert(level < HEALTH_LEVELS);
    return level_name[level];
}

void probe_find_fault(ProbeResult *result, HealthLevel level, int slot, const char *format, ...)
{
    size_t at = result->n_findings;
    if (at == PROBE_FINDINGS_MAX) { /* in place of the mildest, if that is milder */
        at = 0;
        for (size_t i = 1; i < PROBE_FINDINGS_MAX; i++)
            if (result->findings[i].level < result->findings[at].level)
                at = i;
        if (result->findings[at].level >= level)
            return;
    } else {
        result->n_findings++;
    }
    ProbeFinding *finding = &result->findings[at];
    finding->level = level;
    finding->slot = slot;
    va_list ap;
    va_start(ap, format);
    (void)vsnprintf(finding->text, sizeof(finding->text), format, ap); /* may be cut */
    va_end(ap);
}

int probe_result_format(const ProbeResult *result, char **ret)
{
    _cleanup_json_ json_t *root = json_pack("{s[]}", "findings");
    json_t *list = json_object_get(root, "findings");
    for (size_t i = 0; i < result->n_findings; i++) {
        const ProbeFinding *f = &result->findings[i];
        json_t *one =
            json_pack("{sssiss}", "level", level_name[f->level], "slot", f->slot, "text", f->text);
        if (!one || json_array_append_new(list, one) < 0)
            return -ENOMEM; /* or a text that is not UTF-8 */
    }
    *ret = json_dumps(root, JSON_COMPACT);
    return *ret ? 0 : -ENOMEM;
}

int probe_result_parse(const char *text, size_t n_bytes, ProbeResult *ret, Error *err)
{
    _cleanup_json_ json_t *root = NULL;
    ProbeResult result = {0};
    int r = json_parse("probe", text, n_bytes, &root, err);
    if (r < 0)
        return -EBADMSG;

    json_t *list = NULL;
    JsonReader reader = json_open("probe", root, JSON_ANY_KEYS, err);
    (void)json_get_array(&reader, "findings", JSON_REQUIRED, PROBE_FINDINGS_MAX, &list);
    for (size_t i = 0; i < json_array_size(list); i++) {
        ProbeFinding *f = &result.findings[result.n_findings++];
        JsonReader one = json_get_element(&reader, "findings", list, i);
        int level = 0;
        int64_t slot = -1;
        (void)json_get_choice(&one, "level", JSON_REQUIRED, level_name, HEALTH_LEVELS, &level);
        (void)json_get_int(&one, "slot", JSON_REQUIRED, -1, 4096, &slot);
        (void)json_get_text(&one, "text", JSON_REQUIRED, f->text, sizeof(f->text));
        f->level = (HealthLevel)level;
        f->slot = (int)slot;
        (void)json_close(&one); /* its error is the reader's */
    }
    if (json_close(&reader) < 0)
        return -EBADMSG;
    *ret = result;
    return 0;
}
