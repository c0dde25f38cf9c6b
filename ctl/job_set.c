/* job_set.c - `sdctl job resize|stop|delete`: changes what is desired; the leader does the rest. */
#include "ctl/arguments.h"
#include "ctl/model.h"
#include "trainer/api/job.h"

#include <string.h>

typedef int (*DesiredChange)(const ModelJob *job, const Arguments *a, DesiredRecord *desired,
                             Error *err);

/* Reads, changes, writes under the guard of what was read; once more when somebody was faster. */
static int change_desired(Client *client, const Arguments *a, DesiredChange change, Error *err)
{
    const char *name = a->operands[0];
    for (int try = 0; try < 5; try++) {
        _cleanup_(model_freep) Model *model = NULL;
        int r = model_read(client, &model, err);
        if (r < 0)
            return r;
        const ModelJob *job = model_job(model, name);
        if (!job || !job->has_desired)
            return error_set(err, -ENOENT, "no job %s", name);
        DesiredRecord desired = job->desired;
        r = change(job, a, &desired, err);
        if (r < 0)
            return r;

        char key[KEY_MAX];
        _cleanup_free_ char *text = NULL;
        _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
        if (desired_record_encode(&desired, NULL, &text) < 0)
            return error_set(err, -ENOMEM, "out of memory");
        (void)key_of(client->cluster, KEY_DESIRED, name, key);
        const EtcdCompare unchanged = {.key = key,
                                       .target = ETCD_MOD_REVISION,
                                       .equals = job->desired_revision};
        const EtcdOp put = {.kind = ETCD_PUT, .key = key, .value = text};
        r = etcd_txn_wait(client->etcd, &unchanged, 1, &put, 1, &answer, err);
        if (r < 0)
            return r;
        if (answer->succeeded)
            return 0;
    }
    return error_set(err, -EAGAIN, "job %s was changed by others each time; try again", name);
}

/* done: what is said on success, after "job NAME ". */
static int set(int argc, char **argv, unsigned options, DesiredChange change, const char *done)
{
    Arguments a;
    int code = arguments_parse(argc, argv, "job", options, 1, &a);
    if (code >= 0)
        return code;
    if ((options & TAKES_WORLD) && a.world < 0) {
        fprintf(stderr, "sdctl: job %s: --world N is needed\n", argv[0]);
        return CTL_USAGE;
    }
    Error err = ERROR_INIT;
    Client client = {0};
    int r = client_open(&a.client, &client, &err);
    if (r == 0)
        r = change_desired(&client, &a, change, &err);
    client_close(&client);
    if (r < 0)
        return ctl_fail(&err, r);
    printf("job %s %s\n", a.operands[0], done);
    return CTL_DONE;
}

static bool has_ended(const ModelJob *job)
{
    return job->has_phase &&
           (job->phase.phase == PHASE_SUCCEEDED || job->phase.phase == PHASE_FAILED ||
            job->phase.phase == PHASE_STOPPED);
}

static int resize(const ModelJob *job, const Arguments *a, DesiredRecord *desired, Error *err)
{
    _cleanup_(job_freep) Job *spec = NULL;
    if (has_ended(job))
        return error_set(err, -EINVAL, "job %s has ended: %s", job->name,
                         job_phase_name(job->phase.phase));
    int r = job_parse(job->name, job->spec.spec, strlen(job->spec.spec), &spec, err);
    if (r < 0)
        return r;
    if (a->world > spec->train.n_grains)
        return error_set(err, -EINVAL, "--world %d is more than the %lld grains of a step",
                         a->world, (long long)spec->train.n_grains);
    desired->target = a->world;
    desired->min = MIN(desired->min, a->world);
    desired->max = MAX(desired->max, a->world);
    return 0;
}

static int stop(const ModelJob *job, const Arguments *a, DesiredRecord *desired, Error *err)
{
    (void)a;
    if (has_ended(job))
        return error_set(err, -EINVAL, "job %s has ended: %s", job->name,
                         job_phase_name(job->phase.phase));
    desired->state = DESIRED_STOPPED;
    return 0;
}

static int delete (const ModelJob *job, const Arguments *a, DesiredRecord *desired, Error *err)
{
    (void)a;
    if (!has_ended(job) && job->has_phase && job->phase.phase != PHASE_PENDING)
        return error_set(err, -EBUSY, "job %s is %s; sdctl job stop %s first", job->name,
                         job_phase_name(job->phase.phase), job->name);
    desired->state = DESIRED_DELETED;
    return 0;
}

int job_resize(int argc, char **argv)
{
    return set(argc, argv, TAKES_WORLD, resize,
               "job %s will finish its step, save, and go on with %d ranks once there are slots "
               "for them\n");
}

int job_stop(int argc, char **argv)
{
    return set(argc, argv, 0, stop, "will finish its step, save and stop");
}

int job_delete(int argc, char **argv)
{
    return set(argc, argv, 0, delete, "will be forgotten; its checkpoints stay where they are");
}
