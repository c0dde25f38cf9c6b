/* SPDX-License-Identifier: Apache-2.0 */
/* set.c - `sdctl job resize|stop|delete`: changes the record desired/<job>; the leader acts on the change. */
#include "base/clock.h"
#include "ctl/arguments.h"
#include "ctl/job/change/wait.h"
#include "ctl/job/verbs.h"
#include "ctl/job/watch/watch.h"
#include "ctl/model.h"
#include "ctl/requester.h"
#include "protocol/job.h"

#include <string.h>
#include <unistd.h>

enum { TRIES = 5 };

typedef struct SetOptions {
    int world; /* -1: not given */
    bool wait;
    double timeout_sec; /* < 0: not given */
} SetOptions;

#define OPTIONS_STRUCT SetOptions
static const CtlOption resize_options[] = {
    {"world", 0, "N", "number of ranks",
     TAKES_NUMBER(world, 1, INT32_MAX, "a number of ranks, 1 or more"), .is_needed = true},
    OPTION_WAIT,
    OPTION_TIMEOUT,
};
static const CtlOption stop_options[] = {
    OPTION_WAIT,
    OPTION_TIMEOUT,
};
const CtlOptions job_resize_options = CTL_OPTIONS(resize_options, .world = -1, .timeout_sec = -1);
const CtlOptions job_stop_options = CTL_OPTIONS(stop_options, .world = -1, .timeout_sec = -1);

/* The values that a change of desired/<job> uses. */
typedef struct DesiredWish {
    int world;    /* number of ranks; only for a resize */
    int priority; /* only for a start; OPTION_NO_PRIORITY: unchanged */
} DesiredWish;

/* Changes *desired as the verb requires, or refuses with an error text. */
typedef int (*DesiredChange)(const ModelJob *job, const DesiredWish *wish, DesiredRecord *desired,
                             Error *err);

static int put_desired(CtlClient *client, const ModelJob *job, const DesiredRecord *desired,
                       bool *ret_done, Error *err)
{
    char key[KEY_MAX];
    _cleanup_free_ char *text = desired_record_encode(desired, job->desired_text);
    (void)key_of(client->cluster, KEY_DESIRED, job->name, key);
    const EtcdCompare unchanged = {.key = key,
                                   .target = ETCD_MOD_REVISION,
                                   .equals = job->desired_revision};
    /* The leader removes all other records of a deleted job, but has no right to the programs. */
    char program[KEY_MAX];
    const EtcdOp ops[] = {
        {.kind = ETCD_PUT, .key = key, .value = text},
        {.kind = ETCD_DELETE, .key = key_of(client->cluster, KEY_PROGRAMS, job->name, program)},
    };
    const bool forgets = desired->state == DESIRED_DELETED && model_is_program(job);
    int r = client_txn(client, &unchanged, 1, ops, forgets ? 2 : 1, ret_done, err);
    if (!forgets || r != -EACCES)
        return r;
    (void)fprintf(stderr, "sdctl: note: programs/%s stays: %s\n", job->name, err->text);
    *err = ERROR_INIT;
    return client_txn(client, &unchanged, 1, ops, 1, ret_done, err);
}

/* Refuses a change if the present records cannot be read, because a later version wrote them or they are damaged. */
static int refuse_unreadable(const ModelJob *job, Error *err)
{
    if (job->bad_desired || job->bad_phase)
        return error_set(err, -EPROTO,
                         "%s/%s cannot be read here, so nothing is changed: a later version wrote "
                         "it (use its sdctl), or it is damaged (the leader puts it back)",
                         job->bad_desired ? "desired" : "phases", job->name);
    if (!job->has_desired && !model_has_lost_spec(job))
        return error_set(err, -ENOENT, "job %s is being removed", job->name);
    return 0;
}

/* Reads the record, changes it and writes it with a guard on the revision that was read. Tries again if another writer
 * was faster. */
static int change_desired(CtlClient *client, const char *name, DesiredChange change,
                          const DesiredWish *wish, Error *err)
{
    bool done = false;
    for (int try = 0; try < TRIES && !done; try++) {
        _cleanup_(model_freep) Model *model = NULL;
        ModelJob *job;
        int r = model_read(client, &model, err);
        if (r == 0)
            r = model_find_any_job(model, name, &job, err);
        if (r == 0)
            r = refuse_unreadable(job, err);
        if (r < 0)
            return r;
        DesiredRecord desired =
            job->has_desired ? job->desired : (DesiredRecord){.min = 1, .max = 1};
        r = change(job, wish, &desired, err);
        (void)requester_text(desired.by);
        desired.asked_usec = clock_realtime_usec();
        if (r == 0)
            r = put_desired(client, job, &desired, &done, err);
        if (r < 0)
            return r;
    }
    return done
               ? 0
               : error_set(err, -EAGAIN, "job %s was changed by others each time; try again", name);
}

/* Makes the change and returns an exit code; the caller prints the success. */
static int set(const Arguments *a, DesiredChange change, const DesiredWish *wish)
{
    Error err = ERROR_INIT;
    CtlClient client = {0};
    int r = client_open(&a->client, &client, &err);
    if (r == 0)
        r = change_desired(&client, a->operand, change, wish, &err);
    client_close(&client);
    return r < 0 ? ctl_fail(&err, r) : CTL_DONE;
}

static int refuse_lost(const ModelJob *job, Error *err)
{
    char why[MODEL_REASON_BYTES];
    return model_has_lost_spec(job)
               ? error_set(err, -EINVAL, "job %s: %s", job->name, model_reason(job, why))
               : 0;
}

static int refuse_ended(const ModelJob *job, Error *err)
{
    if (model_has_lost_spec(job))
        return refuse_lost(job, err);
    return model_has_ended(job) ? error_set(err, -EINVAL, "job %s has ended: it is %s", job->name,
                                            job_phase_name(job->phase.phase))
                                : 0;
}

static int resize(const ModelJob *job, const DesiredWish *wish, DesiredRecord *desired, Error *err)
{
    _cleanup_(job_freep) Job *spec = NULL;
    int r = refuse_ended(job, err);
    if (r == 0)
        r = job_parse_any(job->name, job->spec.spec, strlen(job->spec.spec), &spec, err);
    if (r < 0)
        return r;
    if (job_is_program(spec) && wish->world % spec->world.per_node != 0)
        return error_set(err, -EINVAL,
                         "--world %d: each node of job %s gives %d ranks (world.per_node), so the "
                         "number must be a multiple of that",
                         wish->world, job->name, spec->world.per_node);
    if (spec->kind == JOB_TRAIN && wish->world > spec->train.n_grains)
        return error_set(err, -EINVAL,
                         "--world %d: a step of job %s has %lld grains, so it runs on %lld ranks "
                         "at most",
                         wish->world, job->name, (long long)spec->train.n_grains,
                         (long long)spec->train.n_grains);
    desired->target = wish->world;
    desired->min = MIN(desired->min, wish->world);
    desired->max = MAX(desired->max, wish->world);
    return 0;
}

/* Stops the job. For a job that has failed, this confirms that a person has seen the failure, and resolves its
 * incident. */
static int stop(const ModelJob *job, _unused_ const DesiredWish *wish, DesiredRecord *desired,
                Error *err)
{
    desired->state = DESIRED_STOPPED;
    return model_phase(job) == PHASE_FAILED && job->has_spec ? 0 : refuse_ended(job, err);
}

static int forget(const ModelJob *job, _unused_ const DesiredWish *wish, DesiredRecord *desired,
                  Error *err)
{
    desired->state = DESIRED_DELETED;
    if (model_has_lost_spec(job)) /* without its spec the job cannot be stopped first */
        return job->has_foreign_spec ? refuse_lost(job, err) : 0;
    if (model_has_ended(job) || model_phase(job) == PHASE_PENDING)
        return 0;
    return error_set(err, -EBUSY, "job %s is %s; stop it before: sdctl job stop %s", job->name,
                     job_phase_name(model_phase(job)), job->name);
}

/* Starts an ended job again. The job keeps its history: the next world resumes at the newest commit. */
static int start_again(const ModelJob *job, const DesiredWish *wish, DesiredRecord *desired,
                       Error *err)
{
    JobPhase phase = model_phase(job);
    int r = refuse_lost(job, err);
    if (r < 0)
        return r;
    if (phase != PHASE_STOPPED && phase != PHASE_FAILED)
        return error_set(err, -EINVAL, "job %s is %s: there is nothing to start", job->name,
                         job_phase_name(phase));
    desired->state = DESIRED_RUNNING;
    if (wish->priority != OPTION_NO_PRIORITY)
        desired->priority = wish->priority;
    return 0;
}

/* Prints a hint when the word is not a job's name but a file of that name exists. */
static void hint_at_file(const char *word)
{
    char file[RECORD_TEXT_MAX];
    (void)snprintf(file, sizeof(file), "%.200s.json", word);
    if (access(word, R_OK) == 0)
        fprintf(stderr, "sdctl: did you mean the file? sdctl job start ./%s\n", word);
    else if (access(file, R_OK) == 0)
        fprintf(stderr, "sdctl: did you mean the file? sdctl job start %s\n", file);
}

int job_start_again(const Arguments *a, int priority, bool watch)
{
    const DesiredWish wish = {.priority = priority};
    int code = set(a, start_again, &wish);
    if (code == CTL_NOT_FOUND)
        hint_at_file(a->operand);
    if (code == CTL_DONE)
        printf("job %s goes on from its newest checkpoint once there are slots for it\n",
               a->operand);
    return code == CTL_DONE && watch ? job_watch(&a->client, a->operand) : code;
}

int job_resize(const Arguments *a)
{
    const SetOptions *o = arguments_own(a);
    if (o->timeout_sec >= 0 && !o->wait)
        return arguments_refuse(a->verb, "--timeout bounds --wait, which is not given");
    const DesiredWish wish = {.world = o->world};
    int code = set(a, resize, &wish);
    if (code == CTL_DONE)
        printf("job %s will finish its step, save, and go on with %d rank%s once there are slots "
               "for them\n",
               a->operand, o->world, o->world == 1 ? "" : "s");
    return code == CTL_DONE && o->wait ? job_wait_size(a, o->world, o->timeout_sec) : code;
}

int job_stop(const Arguments *a)
{
    const SetOptions *o = arguments_own(a);
    if (o->timeout_sec >= 0 && !o->wait)
        return arguments_refuse(a->verb, "--timeout bounds --wait, which is not given");
    int code = set(a, stop, NULL);
    if (code == CTL_DONE)
        printf(
            "job %s will finish its step, save and stop; if it has failed, its incident is over\n",
            a->operand);
    return code == CTL_DONE && o->wait ? job_wait_stopped(a, o->timeout_sec) : code;
}

int job_delete(const Arguments *a)
{
    int code = set(a, forget, NULL);
    if (code == CTL_DONE)
        printf("job %s will be forgotten; its checkpoints stay where they are\n", a->operand);
    return code;
}
