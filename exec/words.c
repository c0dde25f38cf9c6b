/* SPDX-License-Identifier: Apache-2.0 */
/* words.c - see words.h. */
#include "exec/words.h"

#include "base/cleanup.h"
#include "base/text/printable.h"

#include <ctype.h>
#include <signal.h>
#include <string.h>

typedef enum KeyType {
    KEY_YES, /* only the value 1 */
    KEY_COUNT,
    KEY_NUMBER,
    KEY_STAGE,
    KEY_SIGNAL,
    KEY_TEXT,
    KEY_RESULT,   /* name=number; may be there several times */
    KEY_ARTIFACT, /* name=URI */
} KeyType;

static const struct Key {
    const char *name;
    KeyType type;
    unsigned key;
    size_t offset, size; /* of the member of ExecReport; 0 for a KEY_YES, which has no member */
    int64_t max;
} keys[] = {
#define MEMBER(m) offsetof(ExecReport, m), sizeof(((ExecReport *)NULL)->m)
    {"READY", KEY_YES, EXEC_KEY_READY, 0, 0, 0},
    {"STEP", KEY_COUNT, EXEC_KEY_STEP, MEMBER(step), INT64_C(1) << 40},
    {"LOSS", KEY_NUMBER, EXEC_KEY_LOSS, MEMBER(loss), 0},
    {"GRAD_NORM", KEY_NUMBER, EXEC_KEY_GRAD_NORM, MEMBER(grad_norm), 0},
    {"LR", KEY_NUMBER, EXEC_KEY_LR, MEMBER(lr), 0},
    {"SAMPLES", KEY_COUNT, EXEC_KEY_SAMPLES, MEMBER(samples), INT64_C(1) << 53},
    {"STAGE", KEY_STAGE, EXEC_KEY_STAGE, MEMBER(stage), 0},
    {"CHECKPOINT", KEY_TEXT, EXEC_KEY_CHECKPOINT, MEMBER(checkpoint), 0},
    {"STATUS", KEY_TEXT, EXEC_KEY_STATUS, MEMBER(status), 0},
    {"WATCHDOG", KEY_YES, EXEC_KEY_WATCHDOG, 0, 0, 0},
    {"EXTEND", KEY_COUNT, EXEC_KEY_EXTEND, MEMBER(extend_sec), 86400},
    {"FINISHED", KEY_YES, EXEC_KEY_FINISHED, 0, 0, 0},
    {"POLLS", KEY_YES, EXEC_KEY_POLLS, 0, 0, 0},
    {"STACKS", KEY_SIGNAL, EXEC_KEY_STACKS, MEMBER(stacks_signal), 0},
    {"RESULT", KEY_RESULT, EXEC_KEY_RESULT, MEMBER(results), 0},
    {"ARTIFACT", KEY_ARTIFACT, EXEC_KEY_ARTIFACT, MEMBER(results), 0},
};

static const struct {
    const char *name;
    TrainStage stage;
} stages[] = {{"data", STAGE_LOADING},
              {"compute", STAGE_COMPUTING},
              {"collective", STAGE_REDUCING},
              {"save", STAGE_SAVING}};

static int take_count(const struct Key *key, const char *value, void *ret, Error *err)
{
    char *end;
    errno = 0;
    const long long n = strtoll(value, &end, 10);
    if (!isdigit((unsigned char)*value) || *end || errno != 0 || n > key->max)
        return error_set(err, -EINVAL, "%s=%.40s: expected a number, 0 to %lld", key->name, value,
                         (long long)key->max);
    if (key->size == sizeof(int))
        *(int *)ret = (int)n;
    else
        *(int64_t *)ret = n;
    return 0;
}

static int take_number(const struct Key *key, const char *value, void *ret, Error *err)
{
    char *end;
    const double n = strtod(value, &end);
    if (end == value || *end)
        return error_set(err, -EINVAL, "%s=%.40s: expected a number", key->name, value);
    *(double *)ret = n; /* NaN and infinity are what a loss can be */
    return 0;
}

static int take_stage(const struct Key *key, const char *value, void *ret, Error *err)
{
    for (size_t i = 0; i < ELEMENTSOF(stages); i++)
        if (strcmp(value, stages[i].name) == 0) {
            *(TrainStage *)ret = stages[i].stage;
            return 0;
        }
    return error_set(err, -EINVAL, "%s=%.40s: expected data, compute, collective or save",
                     key->name, value);
}

static int take_signal(const struct Key *key, const char *value, void *ret, Error *err)
{
    for (int number = 1; number < SIGRTMIN; number++) {
        const char *name = sigabbrev_np(number);
        if (name && strncmp(value, "SIG", 3) == 0 && strcmp(value + 3, name) == 0) {
            *(int *)ret = number;
            return 0;
        }
    }
    return error_set(err, -EINVAL, "%s=%.40s: expected a signal's name, such as SIGUSR1", key->name,
                     value);
}

static int take_text(const struct Key *key, const char *value, void *ret, Error *err)
{
    if (!*value || strlen(value) >= key->size)
        return error_set(err, -EINVAL, "%s=%.40s...: expected 1 to %zu bytes", key->name, value,
                         key->size - 1);
    memcpy(ret, value, strlen(value) + 1);
    printable_repair(ret);
    printable_make(ret);
    return 0;
}

static int add_number(EvalResults *ret, const char *name, const char *value)
{
    char *end;
    const double number = strtod(value, &end);
    return end == value || *end ? -EINVAL : eval_results_add_number(ret, name, number);
}

static int add_artifact(EvalResults *ret, const char *name, const char *value)
{
    char uri[EVAL_URI_MAX + 1];
    if (snprintf(uri, sizeof(uri), "%s", value) >= (int)sizeof(uri))
        return -EINVAL;
    printable_repair(uri);
    printable_make(uri);
    return eval_results_add_artifact(ret, name, uri);
}

static int take_result(const struct Key *key, const char *value, EvalResults *ret, Error *err)
{
    char name[EVAL_NAME_MAX + 2]; /* a longer name is refused, cut to that length, too */
    const char *rest = strchr(value, '=');
    const bool is_number = key->type == KEY_RESULT;
    if (!rest)
        return error_set(err, -EINVAL, "%s=%.40s: expected %s", key->name, value,
                         is_number ? "name=number" : "name=URI");
    (void)snprintf(name, sizeof(name), "%.*s", (int)MIN(rest - value, (ptrdiff_t)sizeof(name)),
                   value);
    int r = is_number ? add_number(ret, name, rest + 1) : add_artifact(ret, name, rest + 1);
    if (r == -ENOSPC)
        return error_set(err, -EINVAL, "%s=%.40s: there may be %d names", key->name, value,
                         is_number ? EVAL_NUMBERS_MAX : EVAL_ARTIFACTS_MAX);
    if (r < 0)
        return error_set(err, -EINVAL, "%s=%.40s: expected %s", key->name, value,
                         is_number ? "name=number" : "name=URI");
    return 0;
}

static int take_value(const struct Key *key, const char *value, ExecReport *report, Error *err)
{
    void *ret = (char *)report + key->offset;
    switch (key->type) {
    case KEY_YES:
        return strcmp(value, "1") == 0
                   ? 0
                   : error_set(err, -EINVAL, "%s=%.40s: expected 1", key->name, value);
    case KEY_COUNT:
        return take_count(key, value, ret, err);
    case KEY_NUMBER:
        return take_number(key, value, ret, err);
    case KEY_STAGE:
        return take_stage(key, value, ret, err);
    case KEY_SIGNAL:
        return take_signal(key, value, ret, err);
    case KEY_RESULT:
    case KEY_ARTIFACT:
        return take_result(key, value, ret, err);
    default:
        return take_text(key, value, ret, err);
    }
}

static int take_line(char *line, ExecReport *report, Error *err)
{
    char *value = strchr(line, '=');
    if (!value)
        return error_set(err, -EINVAL, "\"%.40s\" is not a line KEY=VALUE", line);
    *value++ = '\0';
    for (size_t i = 0; i < ELEMENTSOF(keys); i++) {
        if (strcmp(line, keys[i].name) != 0)
            continue;
        int r = take_value(&keys[i], value, report, err);
        if (r == 0)
            report->has |= keys[i].key;
        return r;
    }
    return error_set(err, -EINVAL, "%.40s is not a key that this version knows", line);
}

int exec_report_parse(const char *packet, size_t n, ExecReport *ret, Error *err)
{
    int r = 0;
    *ret = (ExecReport){0};
    if (n > EXEC_PACKET_MAX)
        return error_set(err, -EINVAL, "a packet of %zu bytes is longer than %d", n,
                         EXEC_PACKET_MAX);
    if (memchr(packet, '\0', n))
        return error_set(err, -EINVAL, "a packet contains a NUL");
    for (size_t at = 0; at < n;) {
        char line[EXEC_PACKET_MAX + 1];
        const char *end = memchr(packet + at, '\n', n - at);
        const size_t length = end ? (size_t)(end - packet) - at : n - at;
        memcpy(line, packet + at, length);
        line[length] = '\0';
        at += length + 1;
        Error ignored = ERROR_INIT;
        if (length > 0) {
            int q = take_line(line, ret, r == 0 ? err : &ignored);
            r = r == 0 ? q : r;
        }
    }
    return r;
}
