/* SPDX-License-Identifier: Apache-2.0 */
/* recover.c - `sdctl job recover`: requests that the leader resumes a job whose record of checkpoints is lost or is
 * refused by the leader. The job resumes from the manifest that is named, or else from the newest of the job's own
 * manifests in its checkpoint folder. */
#include "base/json/json.h"
#include "cluster/request.h"
#include "ctl/arguments.h"
#include "ctl/job/verbs.h"
#include "ctl/model.h"
#include "protocol/job.h"
#include "protocol/manifest-limits.h"
#include "store/store.h"

#include <string.h>

enum { WAIT_SEC = 30 };

typedef struct RecoverOptions {
    int step;           /* -1: not given */
    double timeout_sec; /* < 0: not given */
} RecoverOptions;

#define OPTIONS_STRUCT RecoverOptions
static const CtlOption options[] = {
    {"step", 0, "N", "the step of a program's checkpoint, which only the program can read",
     TAKES_NUMBER(step, 0, INT32_MAX, "a number of steps")},
    OPTION_TIMEOUT,
};
const CtlOptions job_recover_options = CTL_OPTIONS(options, .step = -1, .timeout_sec = -1);

/* Makes the manifest's URI. A name without '/' at its begin and without "://", such as "step-...", is in the job's
 * checkpoint folder; everything else is an absolute path or a URI. */
static int name_manifest(const ModelJob *job, const char *manifest, char *ret, size_t size,
                         Error *err)
{
    static const char object[] = "manifest.json";
    _cleanup_(job_freep) Job *spec = NULL;
    const char *folder = "";
    int r = 0;
    if (*manifest != '/' && !strstr(manifest, "://")) {
        r = job_parse(job->name, job->spec.spec, strlen(job->spec.spec), &spec, err);
        folder = r == 0 ? spec->checkpoint.uri : "";
    }
    if (r < 0)
        return r;
    size_t n = strlen(manifest), end = sizeof(object) - 1;
    bool whole = n > end && strcmp(manifest + n - end, object) == 0;
    int used = snprintf(ret, size, "%s%s%s%s%s", folder, *folder ? "/" : "", manifest,
                        whole ? "" : "/", whole ? "" : object);
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

/* Nobody but the program can read its checkpoints, so a person says of which step one is. */
static int name_checkpoint(const Job *spec, const char *uri, int step, CheckpointCommit *ret,
                           Error *err)
{
    if (step < 0)
        return error_set(err, -EINVAL,
                         "job %s is a program: --step N says of which step the checkpoint is",
                         spec->name);
    if (!job_exec_may_register(spec, uri))
        return error_set(err, -EINVAL, "%.100s: outside of the job's checkpoint.uri (%s)", uri,
                         spec->checkpoint.uri ? spec->checkpoint.uri : "there is none");
    if (snprintf(ret->uri, sizeof(ret->uri), "%s", uri) >= (int)sizeof(ret->uri))
        return error_set(err, -EINVAL, "%.60s... is too long", uri);
    ret->step = step;
    ret->hash = hash_bytes(uri, strlen(uri));
    return 0;
}

static int name_commit(const ModelJob *job, const Arguments *a, CheckpointCommit *ret, Error *err)
{
    const RecoverOptions *o = arguments_own(a);
    char uri[RECORD_URI_MAX + 1];
    _cleanup_(job_freep) Job *spec = NULL;
    if (!a->second)
        return 0;
    int r = job_parse_any(job->name, job->spec.spec, strlen(job->spec.spec), &spec, err);
    if (r < 0)
        return r;
    if (job_is_program(spec))
        return name_checkpoint(spec, a->second, o->step, ret, err);
    if (o->step >= 0)
        return error_set(err, -EINVAL, "--step: the manifest says of which step it is");
    r = name_manifest(job, a->second, uri, sizeof(uri), err);
    return r < 0 ? r : read_manifest(uri, ret, err);
}

static int begin(CtlClient *client, const Arguments *a, RequestRecord *request, Error *err)
{
    ModelJob *job;
    _cleanup_(model_freep) Model *now = NULL;
    int r = model_read(client, &now, err);
    if (r == 0)
        r = model_find_job(now, a->operand, &job, err);
    if (r == 0 && !job->has_spec)
        r = error_set(err, -ENOENT, "job %s has no spec: sdctl job start -f FILE gives it back",
                      a->operand);
    if (r == 0)
        r = name_commit(job, a, &request->commit, err);
    if (r < 0)
        return r;
    memcpy(request->submission, job->spec.submission, sizeof(request->submission));
    return client_request(client, "recover", a->operand, request, err);
}

int job_recover(const Arguments *a)
{
    const RecoverOptions *o = arguments_own(a);
    Error err = ERROR_INIT;
    CtlClient client = {0};
    RequestRecord request = {0};
    const double timeout_sec = o->timeout_sec < 0 ? WAIT_SEC : o->timeout_sec;
    int r = client_open(&a->client, &client, &err);
    if (r == 0)
        r = begin(&client, a, &request, &err);
    if (r == 0)
        r = client_await(&client, &request, timeout_sec, &err);
    client_close(&client);
    if (r == -ETIMEDOUT)
        (void)error_set(&err, r, "job %s: no leader has answered within %g s", a->operand,
                        timeout_sec);
    else if (r == 0 && request_outcome(&request) == REQUEST_REFUSED)
        r = error_set(&err, -EBUSY, "job %s: %s", a->operand, request.answer);
    if (r < 0)
        return ctl_fail(&err, r);
    printf("job %s %s\n", a->operand, request.answer);
    return CTL_DONE;
}
