/* SPDX-License-Identifier: Apache-2.0 */
/* keys.c - see keys.h. */
#include "cluster/keys.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const kind_name[KEY_KINDS] = {
    [KEY_LEADER] = "leader",
    [KEY_NODES] = "nodes",
    [KEY_CORDONS] = "cordons",
    [KEY_SPECS] = "specs",
    [KEY_DESIRED] = "desired",
    [KEY_WORLDS] = "worlds",
    [KEY_PHASES] = "phases",
    [KEY_RANKS] = "ranks",
    [KEY_RENDEZVOUS] = "rendezvous",
    [KEY_CHECKPOINTS] = "checkpoints",
    [KEY_PROGRESS] = "progress",
    [KEY_INCIDENTS] = "incidents",
    [KEY_ALERTS] = "alerts",
    [KEY_REQUESTS] = "requests",
    [KEY_HEALTH] = "health",
    [KEY_SECRETS] = "secrets",
    [KEY_ASKS] = "asks",
    [KEY_LINES] = "lines",
    [KEY_PROGRAMS] = "programs",
    [KEY_EVALS] = "evals",
};

static const char *format(char ret[KEY_MAX], const char *pattern, ...) _printf_(2, 3);
static const char *format(char ret[KEY_MAX], const char *pattern, ...)
{
    va_list ap;
    va_start(ap, pattern);
    int n = vsnprintf(ret, KEY_MAX, pattern, ap);
    va_end(ap);
    assert(n > 0 &&
           n < KEY_MAX); /* callers check names with name_is_valid() when they receive them */
    return ret;
}

const char *key_kind_name(KeyKind kind)
{
    assert(kind < KEY_KINDS);
    return kind_name[kind];
}

const char *key_prefix(const char *cluster, int kind, char ret[KEY_MAX])
{
    assert(kind < KEY_KINDS);
    if (kind < 0)
        return format(ret, "/sdtrain/%s/", cluster);
    if (kind == KEY_SECRETS)
        return format(ret, "/sdtrain-secrets/%s/", cluster);
    if (kind == KEY_ASKS || kind == KEY_LINES)
        return format(ret, "/sdtrain-logs/%s/%s/", cluster, kind_name[kind]);
    return format(ret, "/sdtrain/%s/%s/", cluster, kind_name[kind]);
}

const char *key_of(const char *cluster, KeyKind kind, const char *name, char ret[KEY_MAX])
{
    assert(kind < KEY_KINDS);
    if (kind == KEY_SECRETS)
        return format(ret, "/sdtrain-secrets/%s/%s", cluster, name);
    if (kind == KEY_ASKS || kind == KEY_LINES)
        return format(ret, "/sdtrain-logs/%s/%s/%s", cluster, kind_name[kind], name);
    return format(ret, "/sdtrain/%s/%s/%s", cluster, kind_name[kind], name);
}

const char *key_ranks(const char *cluster, const char *job, int64_t generation, const char *node,
                      char ret[KEY_MAX])
{
    return format(ret, "/sdtrain/%s/ranks/%s/%lld/%s", cluster, job, (long long)generation, node);
}

const char *key_rendezvous(const char *cluster, const char *job, int64_t generation,
                           char ret[KEY_MAX])
{
    return format(ret, "/sdtrain/%s/rendezvous/%s/%lld", cluster, job, (long long)generation);
}

const char *key_eval(const char *cluster, const char *job, int64_t step, char ret[KEY_MAX])
{
    return format(ret, "/sdtrain/%s/evals/%s/%lld", cluster, job, (long long)step);
}

const char *key_evals(const char *cluster, const char *job, char ret[KEY_MAX])
{
    return format(ret, "/sdtrain/%s/evals/%s/", cluster, job);
}

const char *key_log(const char *cluster, KeyKind kind, const char *node, const char *id,
                    char ret[KEY_MAX])
{
    assert(kind == KEY_ASKS || kind == KEY_LINES);
    return format(ret, "/sdtrain-logs/%s/%s/%s/%s", cluster, kind_name[kind], node, id);
}

/* Returns the text after "<part>/", or NULL when text is NULL or does not begin with "<part>/". */
static const char *skip_part(const char *text, const char *part)
{
    const size_t n = strlen(part);
    return text && strncmp(text, part, n) == 0 && text[n] == '/' ? text + n + 1 : NULL;
}

int key_parse(const char *cluster, const char *key, KeyKind *ret_kind, const char **ret_rest)
{
    const char *records = skip_part(skip_part(key, "/sdtrain"), cluster),
               *secrets = skip_part(skip_part(key, "/sdtrain-secrets"), cluster),
               *logs = skip_part(skip_part(key, "/sdtrain-logs"), cluster);
    for (int kind = 0; kind < KEY_KINDS; kind++) {
        const char *folder = kind == KEY_ASKS || kind == KEY_LINES ? logs : records;
        const char *rest = kind == KEY_SECRETS ? secrets : skip_part(folder, kind_name[kind]);
        if (rest && *rest) {
            *ret_kind = (KeyKind)kind;
            *ret_rest = rest;
            return 0;
        }
    }
    return -EINVAL;
}

/* Splits "<name>/<rest>": copies the name if it is valid and returns the rest, else NULL. */
static const char *take_name(const char *text, char *ret, size_t size)
{
    const char *slash = strchr(text, '/');
    if (!slash || (size_t)(slash - text) >= size)
        return NULL;
    memcpy(ret, text, (size_t)(slash - text));
    ret[slash - text] = '\0';
    return name_is_valid(ret) ? slash + 1 : NULL;
}

/* Parses a generation: decimal digits without sign or leading zero. Returns the text after the digits, or NULL. */
static const char *take_generation(const char *text, int64_t *ret)
{
    int64_t value = 0;
    const char *p = text;
    for (; isdigit((unsigned char)*p); p++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *p - '0', &value))
            return NULL;
    if (p == text || *text == '0')
        return NULL;
    *ret = value;
    return p;
}

int key_parse_ranks(const char *rest, char *ret_job, size_t job_size, int64_t *ret_generation,
                    char *ret_node, size_t node_size)
{
    const char *p = take_name(rest, ret_job, job_size);
    p = p ? take_generation(p, ret_generation) : NULL;
    if (!p || *p != '/' || !name_is_valid(p + 1) || strlen(p + 1) >= node_size)
        return -EINVAL;
    memcpy(ret_node, p + 1, strlen(p + 1) + 1);
    return 0;
}

int key_parse_rendezvous(const char *rest, char *ret_job, size_t job_size, int64_t *ret_generation)
{
    const char *p = take_name(rest, ret_job, job_size);
    p = p ? take_generation(p, ret_generation) : NULL;
    return p && !*p ? 0 : -EINVAL;
}

int key_parse_eval(const char *rest, char *ret_job, size_t job_size, int64_t *ret_step)
{
    return key_parse_rendezvous(rest, ret_job, job_size,
                                ret_step); /* a step is numbered like a generation */
}

int key_parse_log(const char *rest, char *ret_node, size_t node_size, char *ret_id, size_t id_size)
{
    const char *id = take_name(rest, ret_node, node_size);
    if (!id || !name_is_valid(id) || strlen(id) >= id_size)
        return -EINVAL;
    memcpy(ret_id, id, strlen(id) + 1);
    return 0;
}

static bool is_alphanumeric(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

bool name_is_valid(const char *name)
{
    size_t n = strnlen(name, 64);
    if (n == 0 || n > 63 || !is_alphanumeric(name[0]) || !is_alphanumeric(name[n - 1]))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!is_alphanumeric(name[i]) && name[i] != '.' && name[i] != '-')
            return false;
    return true;
}
