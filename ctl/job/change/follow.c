/* SPDX-License-Identifier: Apache-2.0 */
/* follow.c - see follow.h. */
#include "ctl/job/change/follow.h"

#include "base/clock.h"
#include "cluster/keys.h"
#include "cluster/request.h"
#include "ctl/context/context.h"
#include "etcd/etcd-wait.h"
#include "protocol/job.h"

#include <string.h>
#include <unistd.h>

enum { PAUSE_SEC = 2, ANSWER_SEC = 30 };

typedef struct Follow {
    CtlClient *here, *there;
    const char *evaluation;
    const FollowedJob *followed;
    char submission[SUBMISSION_BYTES]; /* of the followed job, as first read */
    bool is_silent;                    /* an etcd that does not answer was mentioned */
    int64_t refused_step; /* step of the last refusal; 0: none since the last success */
} Follow;

/* The records of one look at both clusters. */
typedef struct Look {
    SpecRecord spec, followed_spec;
    PhaseRecord phase, followed_phase;
    CheckpointsRecord commits;
    Job *evaluation;
} Look;

static void look_clear(Look *l)
{
    spec_record_clear(&l->spec);
    spec_record_clear(&l->followed_spec);
    phase_record_clear(&l->phase);
    phase_record_clear(&l->followed_phase);
    checkpoints_record_clear(&l->commits);
    l->evaluation = job_free(l->evaluation);
}

int follow_parse(const char *text, FollowedJob *ret, Error *err)
{
    const char *slash = strchr(text, '/');
    if (!slash || slash == text || !slash[1] || strlen(slash + 1) >= sizeof(ret->job) ||
        (size_t)(slash - text) >= sizeof(ret->context) || !name_is_valid(slash + 1))
        return error_set(err, -EINVAL, "--follow %.100s: give CONTEXT/JOB", text);
    *ret = (FollowedJob){0};
    memcpy(ret->context, text, (size_t)(slash - text));
    memcpy(ret->job, slash + 1, strlen(slash + 1));
    return 0;
}

/* ---- a look at both clusters ---- */

/* Reads a record of a job. Returns 0 if there is none, 1 if there is one. */
#define READ(client, kind, job, prefix, ret, err)                                                  \
    ({                                                                                             \
        char _key[KEY_MAX];                                                                        \
        _cleanup_(etcd_answer_freep) EtcdAnswer *_answer = NULL;                                   \
        int _r =                                                                                   \
            client_get(client, key_of((client)->cluster, kind, job, _key), false, &_answer, err);  \
        if (_r == 0 && _answer->n_kvs > 0)                                                         \
            _r = prefix##_decode(_key, _answer->kvs[0].value, _answer->kvs[0].n_value, ret, err);  \
        _r<0 ? _r : _answer->n_kvs> 0;                                                             \
    })

static int look_here(Follow *f, Look *l, Error *err)
{
    int r = READ(f->here, KEY_SPECS, f->evaluation, spec_record, &l->spec, err);
    if (r == 0)
        return error_set(err, -ENOENT, "job %s is not in this cluster", f->evaluation);
    if (r > 0)
        r = job_parse_any(f->evaluation, l->spec.spec, strlen(l->spec.spec), &l->evaluation, err);
    if (r < 0)
        return r;
    if (l->evaluation->kind != JOB_EVAL)
        return error_set(err, -EINVAL, "job %s: kind: \"%s\": it evaluates no checkpoints",
                         f->evaluation, job_kind_name(l->evaluation->kind));
    r = READ(f->here, KEY_PHASES, f->evaluation, phase_record, &l->phase, err);
    return MIN(r, 0);
}

static int look_there(Follow *f, Look *l, Error *err)
{
    const char *job = f->followed->job;
    int r = READ(f->there, KEY_SPECS, job, spec_record, &l->followed_spec, err);
    if (r == 0)
        return error_set(err, -ENOENT, "context %s has no job %s", f->followed->context, job);
    if (r > 0)
        r = READ(f->there, KEY_PHASES, job, phase_record, &l->followed_phase, err);
    if (r >= 0)
        r = READ(f->there, KEY_CHECKPOINTS, job, checkpoints_record, &l->commits, err);
    if (r < 0)
        return r;
    if (!*f->submission)
        memcpy(f->submission, l->followed_spec.submission, sizeof(f->submission));
    if (strcmp(f->submission, l->followed_spec.submission) != 0)
        return error_set(err, -ESTALE,
                         "job %s of context %s was submitted again: its steps are other ones", job,
                         f->followed->context);
    return 0;
}

/* ---- what is due ---- */

/* Returns the last step of the followed job that was named. A step beyond the job's newest is of another job. */
static int64_t last_named(const Look *l)
{
    const EvalProgress *eval = &l->phase.eval;
    int64_t newest = 0, last = 0;
    for (size_t i = 0; i < l->commits.n_commits; i++)
        newest = MAX(newest, l->commits.commits[i].step);
    for (size_t i = 0; i < eval->n_asked; i++)
        if (eval->asked[i].step <= newest)
            last = MAX(last, eval->asked[i].step);
    for (size_t i = 0; i < eval->n_results; i++)
        if (eval->results[i].step <= newest)
            last = MAX(last, eval->results[i].step);
    return last;
}

static bool has_ended_well(const Look *l)
{
    return l->followed_phase.phase == PHASE_SUCCEEDED &&
           strcmp(l->followed_phase.submission, l->followed_spec.submission) == 0;
}

/* Returns the next checkpoint to be named: the first of each every_steps steps, and the last of a job that has
 * succeeded. With every_steps 0, the newest is, once none waits. NULL: none. */
static const CheckpointCommit *find_due(const Look *l)
{
    const int64_t every = l->evaluation->of.every_steps, last = last_named(l);
    const CheckpointCommit *newest = NULL;
    for (size_t i = 0; i < l->commits.n_commits; i++) {
        const CheckpointCommit *commit = &l->commits.commits[i];
        if (commit->struck_out || commit->step <= last)
            continue;
        newest = commit;
        if (every > 0 && commit->step / every > last / every)
            return commit;
    }
    const bool is_free = l->phase.eval.n_asked == 0;
    return has_ended_well(l) || (every == 0 && is_free) ? newest : NULL;
}

/* ---- the requests ---- */

/* Removes the request, also if no leader has answered: controllers keep requests for an hour, and a bounded number of
 * them, and the next turn asks again. */
static void forget_request(Follow *f, const RequestRecord *request)
{
    char key[KEY_MAX];
    Error ignored = ERROR_INIT; /* the leader removes it later */
    bool done;
    const EtcdOp op = {.kind = ETCD_DELETE,
                       .key = key_of(f->here->cluster, KEY_REQUESTS, request->id, key)};
    (void)client_txn(f->here, NULL, 0, &op, 1, &done, &ignored);
}

/* Has the checkpoint evaluated. Returns 0 also if it is refused, which is mentioned once. */
static int name_commit(Follow *f, const Look *l, const CheckpointCommit *commit, Error *err)
{
    RequestRecord request = {.commit = *commit};
    if (!job_exec_may_register(l->evaluation, commit->uri))
        return error_set(err, -EINVAL, "%s: outside of checkpoint.uri of job %s (%s)", commit->uri,
                         f->evaluation, l->evaluation->checkpoint.uri);
    memcpy(request.submission, l->spec.submission, sizeof(request.submission));
    int r = client_request(f->here, "evaluate", f->evaluation, &request, err);
    if (r < 0)
        return r;
    r = client_await(f->here, &request, ANSWER_SEC, err);
    forget_request(f, &request);
    if (r < 0)
        return r;
    const bool is_refused = request_outcome(&request) != REQUEST_DONE;
    if (!is_refused || f->refused_step != commit->step)
        printf("step %lld of %s/%s: %s\n", (long long)commit->step, f->followed->context,
               f->followed->job, request.answer);
    (void)fflush(stdout);
    f->refused_step = is_refused ? commit->step : 0;
    return 0;
}

/* Returns 1 when there is nothing more to follow, 0 otherwise. */
static int take_turn(Follow *f, Error *err)
{
    _cleanup_(look_clear) Look l = {0};
    int r = look_here(f, &l, err);
    if (r == 0)
        r = look_there(f, &l, err);
    if (r < 0)
        return r;
    const CheckpointCommit *due = find_due(&l);
    if (!due)
        return has_ended_well(&l);
    /* if as many wait as may, this one has its turn later */
    return l.phase.eval.n_asked < RECORD_ASKED_MAX ? name_commit(f, &l, due, err) : 0;
}

/* True for an error that may pass: etcd does not answer, or has no leader. */
static bool may_pass(int r)
{
    return r == -ECONNREFUSED || r == -ETIMEDOUT || r == -EAGAIN || r == -EHOSTUNREACH ||
           r == -ECONNRESET || r == -EPIPE;
}

static int follow_on(Follow *f, Error *err)
{
    for (bool is_first = true;; is_first = false) {
        *err = ERROR_INIT;
        const int r = take_turn(f, err);
        if (r > 0)
            return 0;
        if (r < 0 && (is_first || !may_pass(r)))
            return r;
        if (r < 0 && !f->is_silent)
            fprintf(stderr, "sdctl: %s; waiting\n", err->text);
        f->is_silent = r < 0;
        (void)sleep(PAUSE_SEC);
    }
}

int follow(CtlClient *here, const char *evaluation, const FollowedJob *followed, Error *err)
{
    const ClientOptions options = {.context = followed->context};
    CtlClient there = {0};
    Follow f = {.here = here, .there = &there, .evaluation = evaluation, .followed = followed};
    int r = context_apply(&options, err);
    if (r == 0)
        r = client_open(&options, &there, err);
    if (r == 0)
        r = follow_on(&f, err);
    client_close(&there);
    return r;
}
