/* job_start.c - `sdctl job start`: checks the job as far as it can be checked from here, then
 * writes spec and desired. */
#include "base/clock.h"
#include "base/file.h"
#include "ctl/arguments.h"
#include "ctl/model.h"
#include "store/store.h"
#include "trainer/api/job.h"
#include "trainer/api/unet_config.h"

#include <string.h>

enum { MANIFESTS_LISTED_MAX = 100000 };

/* Does the checkpoint URI hold a manifest already? */
static int find_manifest(const char *uri, bool *ret, Error *err)
{
    _cleanup_(store_freep) Store *store = NULL;
    StoreList list = {0};
    int r = store_open(uri, &store, err);
    if (r == 0)
        r = store_list(store, "step-", MANIFESTS_LISTED_MAX, &list, err);
    *ret = r == -E2BIG;
    for (size_t i = 0; r == 0 && i < list.n_objects; i++) {
        const char *slash = strrchr(list.objects[i].key, '/');
        *ret = *ret || (slash && strcmp(slash, "/manifest.json") == 0);
    }
    store_list_clear(&list);
    return r == -E2BIG ? 0 : r;
}

static int check_data(const char *source, const Job *job, Error *err)
{
    for (size_t i = 0; i < job->data.n_streams; i++) {
        _cleanup_(store_freep) Store *store = NULL;
        uint64_t n;
        int r = store_open(job->data.streams[i].uri, &store, err);
        if (r == 0)
            r = store_head(store, "index.json", &n, err);
        if (r < 0)
            return error_prefix(err, -EINVAL, "%s: data.streams[%zu].uri", source, i);
    }
    UnetConfig config;
    int r = unet_config_read(job->model.config_uri, &config, err);
    return r < 0 ? error_prefix(err, -EINVAL, "%s: model.config", source) : 0;
}

static int check_checkpoint_uri(const char *source, const Job *job, const char *resume, Error *err)
{
    bool used;
    int r = find_manifest(job->checkpoint.uri, &used, err);
    if (r < 0)
        return error_prefix(err, r, "%s: checkpoint.uri", source);
    if (used && !resume)
        return error_set(err, -EEXIST,
                         "%s: checkpoint.uri: %s holds checkpoints already; another URI, or "
                         "--resume MANIFEST to go on "
                         "from one of them",
                         source, job->checkpoint.uri);
    return 0;
}

/* Spec and desired in one transaction, unless the name is taken. */
static int submit(Client *client, const Job *job, const char *text, const char *resume, Error *err)
{
    char spec_key[KEY_MAX], desired_key[KEY_MAX], world_key[KEY_MAX];
    SpecRecord spec = {.spec = (char *)text, .submitted_usec = clock_realtime_usec()};
    DesiredRecord desired = {.state = DESIRED_RUNNING,
                             .min = job->world.min,
                             .max = job->world.max};
    _cleanup_free_ char *spec_text = NULL;
    _cleanup_free_ char *desired_text = NULL;
    if (resume && snprintf(spec.resume_uri, sizeof(spec.resume_uri), "%s", resume) >=
                      (int)sizeof(spec.resume_uri))
        return error_set(err, -EINVAL, "--resume: %.40s... is too long", resume);
    if (spec_record_encode(&spec, NULL, &spec_text) < 0 ||
        desired_record_encode(&desired, NULL, &desired_text) < 0)
        return error_set(err, -ENOMEM, "out of memory");

    (void)key_of(client->cluster, KEY_SPECS, job->name, spec_key);
    (void)key_of(client->cluster, KEY_DESIRED, job->name, desired_key);
    (void)key_of(client->cluster, KEY_WORLDS, job->name, world_key);
    const EtcdCompare free_name[] = {
        {.key = spec_key, .target = ETCD_CREATE_REVISION, .equals = 0},
        {.key = desired_key, .target = ETCD_CREATE_REVISION, .equals = 0},
        {.key = world_key, .target = ETCD_CREATE_REVISION, .equals = 0}};
    const EtcdOp puts[] = {{.kind = ETCD_PUT, .key = spec_key, .value = spec_text},
                           {.kind = ETCD_PUT, .key = desired_key, .value = desired_text}};
    _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
    int r = etcd_txn_wait(client->etcd, free_name, ELEMENTSOF(free_name), puts, ELEMENTSOF(puts),
                          &answer, err);
    if (r < 0)
        return error_prefix(err, r == -ETIMEDOUT ? -ECONNREFUSED : r, "etcd at %s",
                            client->endpoints);
    if (!answer->succeeded)
        return error_set(
            err, -EEXIST,
            "a job named %s is there already; sdctl job delete %s removes one that has ended",
            job->name, job->name);
    return 0;
}

int job_start(int argc, char **argv)
{
    Arguments a;
    int code = arguments_parse(argc, argv, "job", TAKES_FILE | TAKES_WATCH | TAKES_RESUME, 0, &a);
    if (code >= 0)
        return code;
    if (!a.file) {
        fprintf(stderr, "sdctl: job start: -f FILE is needed\n");
        return CTL_USAGE;
    }

    Error err = ERROR_INIT;
    _cleanup_free_ char *text = NULL;
    _cleanup_(job_freep) Job *job = NULL;
    Client client = {0};
    int r = file_read(a.file, JOB_TEXT_MAX, &text, NULL, &err);
    if (r < 0)
        return ctl_fail(&err, r);
    r = job_parse(a.file, text, strlen(text), &job, &err);
    if (r == 0)
        r = check_data(a.file, job, &err);
    if (r == 0)
        r = check_checkpoint_uri(a.file, job, a.resume, &err);
    if (r == 0)
        r = client_open(&a.client, &client, &err);
    if (r == 0)
        r = submit(&client, job, text, a.resume, &err);
    client_close(&client);
    if (r < 0)
        return ctl_fail(&err, r);

    printf("job %s is submitted: %lld steps of %lld samples, %d to %d ranks\n", job->name,
           (long long)job->train.steps, (long long)job->train.global_batch, job->world.min,
           job->world.max);
    if (a.watch)
        return job_watch(&a.client, job->name);
    return CTL_DONE;
}
