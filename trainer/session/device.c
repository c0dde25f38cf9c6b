/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - see device.h. */
#include "trainer/session/device.h"

#include "base/json/json-diff.h"
#include "base/log.h"
#include "base/number/hash.h"
#include "trainer/session/device-exit.h"
#include "trainer/session/plan-set.h"
#include "trainer/session/resume.h"
#include "trainer/session/start-times.h"

#include <string.h>

enum {
    START_SHARE = 4,   /* timing algorithms may take 1 / START_SHARE of the time for a start */
    COMPILE_SEC = 300, /* time for rank 0's work besides timing */
};

static DeviceOptions options_of(const Job *job, const char *gpu)
{
    return (DeviceOptions){
        .kind = job->train.device == JOB_DEVICE_CUDA ? DEVICE_CUDA : DEVICE_CPU,
        .threads = job->train.threads,
        .type = job->train.precision == PRECISION_BF16 ? DATA_BF16 : DATA_F32,
        .pci_address = gpu,
    };
}

static int open_device(Session *s, const char *gpu, Error *err)
{
    const DeviceOptions options = options_of(s->job, gpu);
    const bool cuda = options.kind == DEVICE_CUDA;
    int r = cuda && gpu && !*gpu
                ? error_set(err, -ENODEV, "this rank's slot has no GPU that sdtraind knows of")
                : device_open(&options, &s->device, err);
    if (r < 0)
        (void)error_prefix(err, r, "train.device \"%s\"",
                           cuda ? "cuda" : "cpu"); /* r is returned below */
    return error_set_exit(err, r, device_exit_code(r));
}

/* ---- the job's plans, with which it begins ---- */

static int read_named(const Session *s, char **ret, Error *err)
{
    int r = store_get_uri(s->job->train.plans_uri, DEVICE_PLANS_MAX, ret, NULL, err);
    if (r < 0)
        /* r is returned below */
        (void)error_prefix(err, r, "train.plans %s", s->job->train.plans_uri);
    return error_set_exit(err, r, exit_code_of_store(exit_errno_of_named(r)));
}

/* If the named set needs an algorithm that is missing here, it is missing on every node, so the job is not retried. */
static int use_plans(Session *s, const char *text, const char *name, Error *err)
{
    int r = device_use_plans(s->device, text, err);
    if (r < 0)
        (void)error_prefix(err, r, "train.plans %s", name); /* r is returned below */
    return error_set_exit(err, r, r == -ENOENT ? EXIT_NEVER_RETRY : device_exit_code(r));
}

/* gpu_of() returns the GPU of the rank's slot; NULL: a run without a cluster. take_submissions() limits the time for
 * timing algorithms to a part of the start, which the daemon bounds. */
static const char *gpu_of(const SessionAssignment *a) { return a->alone ? NULL : a->assign->gpu; }

static int take_submissions(const Session *s, const SessionAssignment *a, const NetworkShape *shape,
                            char **ret, Error *err)
{
    const DeviceOptions device = options_of(s->job, gpu_of(a));
    const int startup_sec = (int)MIN(a->assign->startup_usec / USEC_PER_SEC, (uint64_t)INT32_MAX);
    PlanSetNeeds needs = {.store = s->store,
                          .submission = a->assign->submission,
                          .rank = s->rank,
                          .device = &device,
                          .config = &s->config,
                          .shape = shape,
                          .tune_sec = s->job->train.plan_sec,
                          .wait_sec = s->job->train.plan_sec + COMPILE_SEC,
                          .link = s->link};
    if (startup_sec > 0) {
        needs.tune_sec = MAX(1, MIN(needs.tune_sec, startup_sec / START_SHARE));
        needs.wait_sec = MIN(needs.wait_sec, startup_sec);
    }
    return plan_set_take(&needs, ret, err);
}

static int use_job_plans(Session *s, const SessionAssignment *a, const NetworkShape *shape,
                         Error *err)
{
    _cleanup_free_ char *text = NULL;
    const bool is_named = s->job->train.plans == JOB_PLANS_SET;
    int r = 0;
    if (is_named)
        r = read_named(s, &text, err);
    else if (s->job->train.plans == JOB_PLANS_AUTO)
        r = take_submissions(s, a, shape, &text, err);
    if (r < 0 || !text)
        return r;
    return use_plans(s, text, is_named ? s->job->train.plans_uri : "\"auto\"", err);
}

/* ---- the checkpoint's plans ---- */

/* Restores the checkpoint's plans. *ret is NULL if the checkpoint's device had none. */
static int restore_plans(Session *s, char **ret, Error *err)
{
    int r;
    while ((r = checkpoint_restore_plans(s->resume_store, session_resumes_own(s) ? s->local : NULL,
                                         s->resume, ret, err)) < 0) {
        (void)error_set_exit(err, r, exit_code_of_store(r));
        r = session_pass_over(s, r, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Logs the keys in which two sets differ, if any. */
static void report_plans(const char *before, const char *now)
{
    char differences[300];
    if (before && json_diff_texts(before, now, differences, sizeof(differences)) > 0)
        log_warning("in the plans %s", differences);
}

/* If the job adopts a checkpoint, makes the device use the set that the job names in place of the checkpoint's set. */
static int change_plans(Session *s, const char *before, Error *err)
{
    char was[HASH_TEXT_BYTES], is[HASH_TEXT_BYTES];
    _cleanup_free_ char *text = NULL, *now = NULL;
    int r = read_named(s, &text, err);
    if (r < 0)
        return r;
    r = use_plans(s, text, s->job->train.plans_uri, err);
    if (r < 0)
        return r;
    /* `now` has the form that a manifest holds: a file may have the same set in another form */
    r = device_plans(s->device, &now);
    if (r < 0)
        return error_errno(err, r, "cannot tell the device's plans");
    (void)hash_format(hash_bytes(now, strlen(now)), is);
    (void)snprintf(was, sizeof(was), "none");
    if (before)
        (void)hash_format(hash_bytes(before, strlen(before)), was);
    s->changes_plans = strcmp(was, is) != 0;
    if (!s->changes_plans)
        return 0;
    log_warning("the history changes at step %lld: it goes on by the plans %s of %s, no more by "
                "the checkpoint's, %s STEP=%lld",
                (long long)manifest_step(s->resume), is, s->job->train.plans_uri, was,
                (long long)manifest_step(s->resume));
    report_plans(before, now);
    plan_changes_add(s->plan_changes, manifest_step(s->resume), was, is);
    return 0;
}

static int use_checkpoint_plans(Session *s, Error *err)
{
    _cleanup_free_ char *text = NULL;
    int r = restore_plans(s, &text, err);
    if (r < 0)
        return r;
    (void)snprintf(s->plan_changes, sizeof(s->plan_changes), "%s",
                   manifest_plan_changes(s->resume));
    if (s->adopts && s->job->train.plans == JOB_PLANS_SET)
        return change_plans(s, text, err);
    r = text ? device_use_plans(s->device, text, err) : 0;
    if (r == 0)
        return 0;
    r = error_prefix(err, r, "the plans of the checkpoint of step %lld",
                     (long long)manifest_step(s->resume));
    return error_set_exit(err, r,
                          r == -EINVAL || r == -ENOENT ? EXIT_NUMERICS : device_exit_code(r));
}

int session_open_device(Session *s, const SessionAssignment *a, const NetworkShape *shape,
                        Error *err)
{
    int r = open_device(s, gpu_of(a), err);
    start_part("device");
    if (r < 0)
        return r;
    return s->resume ? use_checkpoint_plans(s, err) : use_job_plans(s, a, shape, err);
}
