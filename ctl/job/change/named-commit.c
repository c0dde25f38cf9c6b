/* SPDX-License-Identifier: Apache-2.0 */
/* named-commit.c - see named-commit.h. */
#include "ctl/job/change/named-commit.h"

#include "base/json/json.h"
#include "protocol/manifest-limits.h"
#include "store/store.h"

#include <string.h>

static int name_manifest(const Job *spec, const char *manifest, char *ret, size_t size, Error *err)
{
    static const char object[] = "manifest.json";
    const bool is_relative = *manifest != '/' && !strstr(manifest, "://");
    const size_t n = strlen(manifest), end = sizeof(object) - 1;
    const bool whole = n >= end && strcmp(manifest + n - end, object) == 0;
    const int used =
        snprintf(ret, size, "%s%s%s%s%s", is_relative ? spec->checkpoint.uri : "",
                 is_relative ? "/" : "", manifest, whole ? "" : "/", whole ? "" : object);
    return used < (int)size ? 0 : error_set(err, -EINVAL, "%.60s... is too long", manifest);
}

static int read_manifest(const char *uri, CheckpointCommit *ret, Error *err)
{
    char folder[RECORD_URI_MAX + 1];
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_free_ char *text = NULL;
    _cleanup_json_ json_t *json = NULL;
    const char *digest = "";
    size_t n_bytes;
    (void)snprintf(folder, sizeof(folder), "%s", uri);
    char *slash = strrchr(folder, '/');
    *slash = '\0';
    int r = store_open(*folder ? folder : "/", &store, err);
    if (r == 0)
        r = store_get(store, slash + 1, MANIFEST_BYTES_MAX, &text, &n_bytes, err);
    if (r == 0)
        r = json_parse(uri, text, n_bytes, &json, err);
    if (r < 0)
        return r;
    JsonReader j = json_open(uri, json, JSON_ANY_KEYS, err);
    json_get_int(&j, "step", JSON_REQUIRED, 0, INT64_MAX, &ret->step);
    json_get_int(&j, "generation", JSON_REQUIRED, 0, INT64_MAX, &ret->generation);
    if (json_get_string(&j, "digest", JSON_REQUIRED, &digest) &&
        hash_parse(digest, &ret->digest) < 0)
        json_refuse(&j, "digest", "%.40s is not a hash", digest);
    ret->hash = hash_bytes(text, n_bytes);
    (void)snprintf(ret->uri, sizeof(ret->uri), "%s/%s", store_uri(store), slash + 1);
    return json_close(&j);
}

int named_commit_of_manifest(const Job *spec, const char *manifest, CheckpointCommit *ret,
                             Error *err)
{
    char uri[RECORD_URI_MAX + 1];
    int r = name_manifest(spec, manifest, uri, sizeof(uri), err);
    return r < 0 ? r : read_manifest(uri, ret, err);
}

int named_commit_of_program(const Job *spec, const char *uri, int64_t step, CheckpointCommit *ret,
                            Error *err)
{
    if (!job_exec_may_register(spec, uri))
        return error_set(err, -EINVAL, "%.100s: outside of the job's checkpoint.uri (%s)", uri,
                         spec->checkpoint.uri ? spec->checkpoint.uri : "there is none");
    if (snprintf(ret->uri, sizeof(ret->uri), "%s", uri) >= (int)sizeof(ret->uri))
        return error_set(err, -EINVAL, "%.60s... is too long", uri);
    ret->step = step;
    ret->hash = hash_bytes(uri, strlen(uri));
    return 0;
}
