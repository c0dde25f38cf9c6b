/* loop.c - see loop.h. */
#include "trainer/loop.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "trainer/saver.h"

#include <string.h>

enum { DATA_TIMEOUT_SEC = 1800 };
#define METRICS_KEY "metrics.jsonl"

typedef struct Loop {
    Session *session;
    Saver *saver;
    double step_sec; /* smoothed */
    uint64_t step_began_usec;
    uint64_t data_usec; /* of this step, waiting for data */
    ExitCode *exit;
} Loop;

/* The samples of a grain, for an error's text. */
static void name_samples(const Session *s, int64_t step, int64_t grain, char *text, size_t size)
{
    const Order *order = dataset_order(s->dataset);
    int64_t first = step * s->job->train.global_batch + grain * s->job->train.grain;
    size_t used = 0;
    text[0] = '\0';
    for (int64_t i = 0; i < s->job->train.grain && used + 48 < size; i++) {
        char name[96];
        (void)dataset_sample_name(s->dataset, order_at(order, first + i), name, sizeof(name));
        int n = snprintf(text + used, size - used, "%s%s", i ? " " : "", name);
        used = MIN(used + (size_t)MAX(n, 0), size - 1);
    }
}

static int compute_grain(Loop *l, int64_t step, int64_t grain, Error *err)
{
    Session *s = l->session;
    LoaderGrain data;
    host_stage(s->host, step, STAGE_LOADING);
    *l->exit = EXIT_DATA_CORRUPT;
    const uint64_t asked_usec = clock_boottime_usec();
    int r = loader_get(s->loader, step, grain, DATA_TIMEOUT_SEC * USEC_PER_SEC, &data, err);
    l->data_usec += clock_boottime_usec() - asked_usec;
    if (r < 0) {
        if (r != -EBADMSG && r != -ENOENT)
            *l->exit = EXIT_STORE_UNREACHABLE;
        return r;
    }

    double loss;
    host_stage(s->host, step, STAGE_COMPUTING);
    *l->exit = EXIT_DEVICE_FAULT;
    r = fault("loop.compute");
    if (r < 0)
        return error_errno(err, r, "step %lld, grain %lld: compute failed", (long long)step + 1,
                           (long long)grain);
    r = grain_work_compute(s->work, &data, s->gradients, &loss, err);
    if (r < 0)
        return r;
    if (fault("loop.nan") < 0) /* a poisoned gradient, as a bad sample or a flipped bit makes it */
        memset(s->gradients, 0xff, sizeof(float));

    host_stage(s->host, step, STAGE_REDUCING);
    *l->exit = EXIT_PEER_LOST;
    return update_add_grain(s->update, grain, s->gradients, loss, err);
}

/* All of this rank's grains; those that only larger shares have are passed as nothing. */
static int compute_grains(Loop *l, int64_t step, Error *err)
{
    Session *s = l->session;
    for (int64_t k = 0; k < s->share; k++) {
        int r;
        if (k < s->n_grains) {
            r = compute_grain(l, step, s->first_grain + k, err);
        } else {
            *l->exit = EXIT_PEER_LOST;
            r = update_add_grain(s->update, -1, NULL, 0, err);
        }
        if (r < 0)
            return r;
    }
    return 0;
}

static int refuse_non_finite(Loop *l, int64_t step, const UpdateResult *result, Error *err)
{
    char samples[320];
    name_samples(l->session, step, MAX(result->bad_grain, 0), samples, sizeof(samples));
    *l->exit = EXIT_NON_FINITE;
    return error_set(err, -EDOM,
                     "step %lld: the loss or gradient of grain %lld is not finite (%s; samples %s)",
                     (long long)step + 1, (long long)result->bad_grain,
                     *result->bad_tensor ? result->bad_tensor : "loss", samples);
}

/* Computes until the exponents fit: twice at most. */
static int compute_step(Loop *l, int64_t step, UpdateResult *ret, Error *err)
{
    update_begin(l->session->update);
    for (int try = 0;; try++) {
        UpdateVerdict verdict;
        int r = compute_grains(l, step, err);
        if (r < 0)
            return r;
        host_stage(l->session->host, step, STAGE_REDUCING);
        *l->exit = EXIT_PEER_LOST;
        r = update_decide(l->session->update, &verdict, ret, err);
        if (r < 0)
            return r;
        if (verdict == UPDATE_NON_FINITE)
            return refuse_non_finite(l, step, ret, err);
        if (verdict == UPDATE_ACCEPT)
            return 0;
        assert(try == 0); /* the second exponents come from the very maxima that they are for */
    }
}

static int report_step(Loop *l, int64_t step, const UpdateResult *result, Error *err)
{
    Session *s = l->session;
    const uint64_t now = clock_boottime_usec();
    const double sec = (double)(now - l->step_began_usec) * 1e-6;
    const double data_sec = (double)l->data_usec * 1e-6;
    l->step_began_usec = now;
    l->data_usec = 0;
    l->step_sec = l->step_sec > 0 ? 0.8 * l->step_sec + 0.2 * sec : sec;
    if (s->rank != 0)
        return 0;

    const int64_t seen = s->state->scalars.position;
    const SaverTrouble *trouble = saver_trouble(l->saver);
    int r = saver_record(l->saver, step, result, seen, err);
    if (r < 0)
        return r;
    ChannelMessage m = {.type = CHANNEL_STEP,
                        .generation = s->generation,
                        .step = step,
                        .loss = result->loss,
                        .samples_per_sec =
                            (double)s->job->train.global_batch / MAX(l->step_sec, 1e-9),
                        .samples_seen = seen,
                        .steps = s->job->train.steps,
                        .step_sec = sec,
                        .data_sec = data_sec,
                        .failed_saves = trouble->n_failed,
                        .unsaved_since_usec = trouble->since_usec};
    (void)snprintf(m.save_error, sizeof(m.save_error), "%s", trouble->error.text);
    if (!host_is_daemon(s->host))
        log_info("step %lld/%lld loss %.6f, %.1f samples/s", (long long)step, (long long)m.steps,
                 result->loss, m.samples_per_sec);
    return host_say(s->host, &m, err);
}

/* One step: `step` is how many were done before it. */
static int run_step(Loop *l, int64_t step, uint32_t *ret_word, Error *err)
{
    Session *s = l->session;
    UpdateResult result;
    *l->exit = EXIT_RETRY;
    int r = host_check(s->host, err);
    if (r < 0)
        return r;
    r = compute_step(l, step, &result, err);
    if (r < 0)
        return r;

    host_stage(s->host, step, STAGE_UPDATING);
    *l->exit = EXIT_PEER_LOST;
    uint32_t word = s->rank == 0 ? saver_word(l->saver, step + 1) : 0;
    r = update_apply(s->update, word, ret_word, &result, err);
    if (r < 0)
        return r;
    network_set_weights(s->network, s->state->weights);
    loader_release(s->loader, step);
    *l->exit = EXIT_RETRY;
    return report_step(l, step + 1, &result, err);
}

static int first_save(Loop *l, Error *err)
{
    Session *s = l->session;
    if (s->resume)
        return 0;
    *l->exit = EXIT_STORE_UNREACHABLE;
    return saver_save(l->saver, 0, WORD_SAVE | WORD_MUST, err);
}

static int run(Loop *l, LoopResult *ret, Error *err)
{
    Session *s = l->session;
    int r = first_save(l, err);
    if (r < 0)
        return r;
    network_set_weights(s->network, s->state->weights);
    l->step_began_usec = clock_boottime_usec();

    bool leave = false;
    while (s->state->scalars.step < s->job->train.steps && !leave) {
        uint32_t word = WORD_NONE;
        r = run_step(l, s->state->scalars.step, &word, err);
        if (r < 0)
            return r;
        *l->exit = EXIT_STORE_UNREACHABLE;
        if (word & WORD_SAVE)
            r = saver_save(l->saver, s->state->scalars.step, word, err);
        if (r == 0)
            r = saver_pump(l->saver, err);
        if (r < 0)
            return r;
        leave = (word & WORD_LEAVE) != 0;
    }
    *ret = (LoopResult){.finished = s->state->scalars.step >= s->job->train.steps,
                        .step = s->state->scalars.step,
                        .digest = saver_digest(l->saver)};
    return 0;
}

/* The job was done when this world began: the one before may have died just before it had published
 * and retired. */
static int publish_again(Session *s, Error *err)
{
    if (!session_resumes_own(s))
        return 0; /* a history that lies elsewhere is not ours to write to */
    int r = checkpoint_publish_metrics(s->store, s->resume, METRICS_KEY, err);
    if (r < 0)
        return r;
    return checkpoint_retire(s->store, s->resume, s->job->checkpoint.keep_last,
                             s->job->checkpoint.keep_every, NULL, err);
}

/* The whole history in one object, beside the checkpoints. */
static int publish_metrics(Loop *l, Error *err)
{
    Session *s = l->session;
    if (s->rank != 0)
        return 0;
    *l->exit = EXIT_STORE_UNREACHABLE;
    if (!*saver_uri(l->saver))
        return publish_again(s, err);

    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(manifest_freep) Manifest *manifest = NULL;
    int r = manifest_read_uri(saver_uri(l->saver), NULL, &store, &manifest, err);
    if (r < 0)
        return r;
    return checkpoint_publish_metrics(store, manifest, METRICS_KEY, err);
}

int loop_run(Session *session, LoopResult *ret, ExitCode *ret_exit, Error *err)
{
    _cleanup_(saver_freep) Saver *saver = NULL;
    *ret_exit = EXIT_RETRY;
    int r = saver_new(session, &saver, err);
    if (r < 0)
        return r;
    Loop loop = {.session = session, .saver = saver, .exit = ret_exit};
    r = run(&loop, ret, err);
    if (r == 0 && ret->finished)
        r = publish_metrics(&loop, err);
    if (r == 0 && ret->finished && session->local)
        checkpoint_local_clear(session->local);
    if (r == -ESTALE || r == -EPIPE)
        *ret_exit = EXIT_RETRY;
    if (r == -ECONNRESET)
        *ret_exit = EXIT_PEER_LOST;
    return r;
}
