/* SPDX-License-Identifier: Apache-2.0 */
/* paths.c - see paths.h. */
#include "protocol/paths.h"

#include "base/json/json.h"

#include <limits.h>
#include <string.h>
#include <sys/stat.h>

typedef struct Allowed {
    json_t *read, *write; /* allowed prefixes; NULL: everything is allowed */
    const Job *job;       /* the job to check; NULL: only one URI is checked */
    Error *err;
} Allowed;

static const char *file_path(const char *uri)
{
    return strncmp(uri, "file://", 7) == 0 ? uri + 7 : *uri == '/' ? uri : NULL;
}

static bool goes_up(const char *path)
{
    for (const char *at = path; (at = strstr(at, "..")); at += 2)
        if ((at == path || at[-1] == '/') && (at[2] == '/' || at[2] == '\0'))
            return true;
    return false;
}

/* Resolves symbolic links in the existing part of the path. The rest must not contain "..". */
static bool resolve(const char *path, char ret[PATH_MAX])
{
    char head[PATH_MAX];
    struct stat st;
    if (*path != '/' || snprintf(head, sizeof(head), "%s", path) >= (int)sizeof(head))
        return false;
    while (!realpath(*head ? head : "/", ret)) {
        if (errno != ENOENT || lstat(head, &st) == 0) /* lstat() finds a link without a target */
            return false;
        char *slash = strrchr(head, '/');
        *slash = '\0';
    }
    const char *rest = path + strlen(head);
    size_t used = strcmp(ret, "/") == 0 ? 0 : strlen(ret);
    return !goes_up(rest) &&
           snprintf(ret + used, PATH_MAX - used, "%s", rest) < (int)(PATH_MAX - used);
}

static bool covers(const char *prefix, const char *name)
{
    size_t n = strlen(prefix);
    while (n > 0 && prefix[n - 1] == '/')
        n--;
    return strncmp(prefix, name, n) == 0 && (name[n] == '\0' || name[n] == '/');
}

static bool is_under(const char *prefix, const char *uri)
{
    char folder[PATH_MAX], path[PATH_MAX];
    const char *a = file_path(prefix), *b = file_path(uri);
    if (a && b)
        return resolve(a, folder) && resolve(b, path) && covers(folder, path);
    return !a && !b && covers(prefix, uri);
}

static bool is_under_one(json_t *prefixes, const char *uri)
{
    size_t i;
    json_t *prefix;
    json_array_foreach (prefixes, i, prefix)
        if (is_under(json_string_value(prefix), uri))
            return true;
    return false;
}

static int refuse(const Allowed *a, const char *key, const char *uri, const char *setting)
{
    int r =
        error_set(a->err, -EPERM, "%.200s is not under %s of this node's sdtraind", uri, setting);
    return a->job ? error_prefix(a->err, r, "job %s: %s", a->job->name, key) : r;
}

static int check_read(const Allowed *a, const char *key, const char *uri)
{
    if (!uri || !*uri || !a->read || is_under_one(a->read, uri) ||
        (a->write && is_under_one(a->write, uri)))
        return 0;
    return refuse(a, key, uri, "paths_read");
}

static int check_write(const Allowed *a, const char *key, const char *uri)
{
    if (!uri || !*uri || !a->write || is_under_one(a->write, uri))
        return 0;
    return refuse(a, key, uri, "paths_write");
}

static int parse(const char *variable, const char *text, json_t **ret, Error *err)
{
    size_t i;
    json_t *one;
    *ret = NULL;
    if (!text)
        return 0;
    _cleanup_json_ json_t *array = json_loads(text, 0, NULL);
    if (!json_is_array(array))
        return error_set(err, -EINVAL, "%s: not a JSON array", variable);
    json_array_foreach (array, i, one)
        if (!json_is_string(one))
            return error_set(err, -EINVAL, "%s: element %zu is not text", variable, i);
    *ret = TAKE_PTR(array);
    return 0;
}

static int check(const Allowed *a, const char *resume_uri)
{
    const Job *job = a->job;
    char key[48];
    int r = check_read(a, "model.config", job->model.config_uri);
    if (r == 0)
        r = check_read(a, "model.init", job->model.init_uri);
    for (size_t i = 0; r == 0 && i < job->data.n_streams; i++) {
        (void)snprintf(key, sizeof(key), "data.streams[%zu].uri", i);
        r = check_read(a, key, job->data.streams[i].uri);
    }
    if (r == 0)
        r = check_read(a, "data.empty_text", job->data.empty_text_uri);
    if (r == 0)
        r = check_read(a, "train.plans", job->train.plans_uri);
    if (r == 0)
        r = check_read(a, "the manifest to resume", resume_uri);
    if (r == 0)
        r = check_write(a, "data.cache_dir", job->data.cache_dir);
    if (r == 0)
        r = check_write(a, "checkpoint.uri", job->checkpoint.uri);
    return r < 0 ? r : check_write(a, "checkpoint.local_dir", job->checkpoint.local_dir);
}

static int parse_both(const char *may_read, const char *may_write, Allowed *ret, Error *err)
{
    int r = parse(PATHS_READ_VARIABLE, may_read, &ret->read, err);
    return r < 0 ? r : parse(PATHS_WRITE_VARIABLE, may_write, &ret->write, err);
}

int paths_check_job(const Job *job, const char *resume_uri, const char *may_read,
                    const char *may_write, Error *err)
{
    Allowed a = {.job = job, .err = err};
    int r = parse_both(may_read, may_write, &a, err);
    r = r < 0 ? r : check(&a, resume_uri);
    json_decref(a.read);
    json_decref(a.write);
    return r;
}

int paths_check_uri(const char *uri, bool write, const char *may_read, const char *may_write,
                    Error *err)
{
    Allowed a = {.err = err};
    int r = parse_both(may_read, may_write, &a, err);
    if (r == 0)
        r = write ? check_write(&a, "", uri) : check_read(&a, "", uri);
    json_decref(a.read);
    json_decref(a.write);
    return r;
}
