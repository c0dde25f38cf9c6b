/* SPDX-License-Identifier: Apache-2.0 */
/* loop.c - see loop.h. */
#include "trainer/loop.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/probe.h"
#include "nn/finite.h"
#include "trainer/saver.h"
#include "trainer/session/device-exit.h"
#include "trainer/session/start-times.h"
#include "trainer/state/device-patience.h"

#include <math.h>
#include <string.h>

enum {
    DATA_TIMEOUT_SEC = 1800, /* several times the time for which a store retries */
    WAIT_SLICE_MSEC = 500,   /* period of the reports of a rank that waits for data */
    PUBLISH_TRIES = 3,       /* tries to write the whole history's metrics */
    PUBLISH_PAUSE_SEC = 2,
};
#define METRICS_KEY "metrics.jsonl"

typedef struct Loop {
    Session *session;
    Saver *saver;
    double step_sec; /* smoothed duration of a step */
    uint64_t step_began_usec;
    uint64_t data_usec;   /* time that this step has waited for data */
    uint64_t saving_usec; /* time since the first step that was spent waiting for saves */
    ChannelMessage said;  /* rank 0: the report of the newest step */
} Loop;

/* Writes the names of a grain's samples, for an error's text. */
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

/* Returns -ETIMEDOUT while some of this rank's data of the step are missing. */
static int look_for_data(const Session *s, int64_t step, uint64_t timeout_usec, Error *err)
{
    LoaderGrain last;
    return loader_get(s->loader, step, s->first_grain + s->n_grains - 1, timeout_usec, &last, err);
}

/* Returns when every rank has the data of the step. A rank in a collective cannot distinguish a peer that waits for its
 * store from a peer that hangs. So all ranks repeat a short collective, and each time every rank reports to its daemon
 * that it is alive. A rank that is stopped meanwhile is the first rank without a report. */
static int wait_for_data(Loop *l, int64_t step, Error *err)
{
    Session *s = l->session;
    const uint64_t began_usec = clock_boottime_usec();
    uint64_t waited_usec = 0;
    for (int waits_rank = s->rank;;) {
        daemon_link_wait(s->link, step, STAGE_LOADING, waited_usec, waits_rank);
        Error why = ERROR_INIT;
        int r = look_for_data(s, step, WAIT_SLICE_MSEC * USEC_PER_MSEC, &why);
        waited_usec = clock_boottime_usec() - began_usec;
        if (r == -ETIMEDOUT && waited_usec > DATA_TIMEOUT_SEC * USEC_PER_SEC)
            r = error_set(&why, -EHOSTUNREACH, "the data of step %lld did not come in %d s",
                          (long long)step + 1, DATA_TIMEOUT_SEC);
        if (r < 0 && r != -ETIMEDOUT) {
            *err = why;
            return error_set_exit(err, r, exit_code_of_store(r));
        }
        /* the maximum over all ranks comes from the lowest rank that lacks data; 0: no rank lacks data */
        uint32_t missing = r < 0 ? (uint32_t)(s->world_size - s->rank) : 0;
        daemon_link_wait(s->link, step, STAGE_REDUCING, waited_usec, waits_rank);
        r = comm_all_reduce(s->train, COMM_U32, COMM_MAX, &missing, 1, err);
        if (r == 0 && missing > (uint32_t)s->world_size)
            r = error_set(err, -EPROTO, "a rank that is none of %d waits for data", s->world_size);
        if (r < 0)
            return error_set_exit(err, r, EXIT_PEER_LOST);
        if (missing == 0)
            break;
        waits_rank = s->world_size - (int)missing;
        r = daemon_link_check(s->link, err);
        if (r < 0)
            return r;
    }
    l->data_usec += clock_boottime_usec() - began_usec;
    return 0;
}

/* Sets the exit code of a failed call of update.h: that of the device's error, or EXIT_PEER_LOST. */
static int judge_update(const Loop *l, int r, Error *err)
{
    return error_set_exit(err, r,
                          update_device_failed(l->session->update) ? device_exit_code(r)
                                                                   : EXIT_PEER_LOST);
}

static int load_grain(Loop *l, int64_t step, int64_t grain, LoaderGrain *ret, Error *err)
{
    Session *s = l->session;
    assert(grain >= s->first_grain && grain < s->first_grain + s->n_grains);
    daemon_link_stage(s->link, step, STAGE_LOADING);
    const uint64_t asked_usec = clock_boottime_usec();
    int r = loader_get(s->loader, step, grain, DATA_TIMEOUT_SEC * USEC_PER_SEC, ret, err);
    l->data_usec += clock_boottime_usec() - asked_usec;
    return error_set_exit(err, r, exit_code_of_store(r));
}

/* Puts a grain on the device, and returns when the grain before it is computed: while the host stages a grain, the
 * device computes another grain. */
static int compute_grain(Loop *l, int64_t step, int64_t grain, Error *err)
{
    Session *s = l->session;
    LoaderGrain data;
    GradientSink sink;
    int r = load_grain(l, step, grain, &data, err);
    if (r < 0)
        return r;
    daemon_link_stage(s->link, step, STAGE_COMPUTING);
    update_sink(s->update, grain, &sink);
    r = fault("loop.compute");
    if (r < 0)
        (void)error_errno(err, r, "step %lld, grain %lld: compute failed", (long long)step + 1,
                          (long long)grain); /* r is returned below */
    else
        r = grain_work_submit(s->work, &data, &sink, update_loss(s->update), DEVICE_TIMEOUT_USEC,
                              err);
    if (r == 0)
        r = grain_work_await(s->work, 1, DEVICE_TIMEOUT_USEC, err);
    return error_set_exit(err, r, device_exit_code(r));
}

/* With ZeRO 2 ranks exchange each grain, so a rank must have computed its grain before it waits for other ranks. */
static int add_grain(Loop *l, int64_t step, int64_t grain, bool has_grain, Error *err)
{
    Session *s = l->session;
    if (s->job->train.zero_stage == 2) {
        int r = grain_work_await(s->work, 0, DEVICE_TIMEOUT_USEC, err);
        if (r < 0)
            return error_set_exit(err, r, device_exit_code(r));
        daemon_link_stage(s->link, step, STAGE_REDUCING);
    }
    return judge_update(l, update_add_grain(s->update, grain, has_grain, err), err);
}

/* Computes all of this rank's grains. If another rank's share is larger, this rank takes part without a grain. */
static int compute_grains(Loop *l, int64_t step, Error *err)
{
    Session *s = l->session;
    int r = 0;
    for (int64_t k = 0; k < s->share && r == 0; k++) {
        const int64_t grain = s->first_grain + k;
        if (k < s->n_grains)
            r = compute_grain(l, step, grain, err);
        if (r == 0)
            r = add_grain(l, step, k < s->n_grains ? grain : -1, k < s->n_grains, err);
    }
    return r < 0 ? r : judge_update(l, update_collect(s->update, err), err);
}

/* Computes the grain again, if it is this rank's, and describes the result. Peers end at the same time, so no
 * collective is used. The stage is STAGE_LEAVING, since the daemon gives a rank that leaves more time than a rank that
 * computes. */
static void explain_non_finite(Loop *l, int64_t step, int64_t grain, char *text, size_t size)
{
    Session *s = l->session;
    LoaderGrain data;
    Error why = ERROR_INIT;
    *text = '\0';
    if (grain < s->first_grain || grain >= s->first_grain + s->n_grains)
        return;
    s->ended_in = STAGE_LEAVING; /* shows the leader which rank has searched */
    daemon_link_stage(s->link, step, STAGE_LEAVING);
    const bool late = fault("loop.late") < 0;
    const uint64_t most_usec = late ? 0 : EXIT_NON_FINITE_SEC * USEC_PER_SEC;
    const uint64_t until_usec = clock_monotonic_usec() + most_usec;
    int r = loader_get(s->loader, step, grain, most_usec, &data, &why);
    if (r == 0)
        r = grain_work_explain(s->work, &data, s->state->weights, until_usec, text, size, &why);
    if (r < 0)
        (void)snprintf(text, size, "nobody knows what is first: %s", why.text);
}

/* Sets the error of a step that is not finite. The names of the samples come last in the error's text: a record that is
 * too small for the whole text loses only these names. */
static int refuse_non_finite(Loop *l, int64_t step, const UpdateResult *result, Error *err)
{
    char first[TAPE_FINITE_TEXT_MAX], samples[320];
    const int64_t grain = MAX(result->bad_grain, 0);
    explain_non_finite(l, step, grain, first, sizeof(first));
    name_samples(l->session, step, grain, samples, sizeof(samples));
    int r = error_set(err, -EDOM,
                      "step %lld: the loss or gradient of grain %lld is not finite%s%s "
                      "(%s; samples %s)",
                      (long long)step + 1, (long long)result->bad_grain,
                      *first ? "; computed again, " : "", first,
                      *result->bad_tensor ? result->bad_tensor : "loss", samples);
    return error_set_exit(err, r, EXIT_NON_FINITE);
}

/* Computes the step, and computes it a second time if the exponents did not fit. */
static int compute_step(Loop *l, int64_t step, UpdateResult *ret, Error *err)
{
    update_begin(l->session->update);
    for (int try = 0;; try++) {
        UpdateVerdict verdict;
        int r = compute_grains(l, step, err);
        if (r < 0)
            return r;
        daemon_link_stage(l->session->link, step, STAGE_REDUCING);
        r = judge_update(l, update_decide(l->session->update, &verdict, ret, err), err);
        if (r < 0)
            return r;
        if (verdict == UPDATE_NON_FINITE)
            return refuse_non_finite(l, step, ret, err);
        if (verdict == UPDATE_ACCEPT)
            return 0;
        assert(try == 0); /* the second exponents come from the maxima of the same gradients */
    }
}

static int send_step(Loop *l, const MetricsGap *gap, Error *err)
{
    l->said.metrics_lost = gap->n_steps;
    l->said.metrics_lost_first = gap->first;
    l->said.metrics_lost_last = gap->last;
    return daemon_link_report(l->session->link, &l->said, err);
}

static int report_step(Loop *l, int64_t step, const UpdateResult *result, Error *err)
{
    Session *s = l->session;
    const uint64_t now = clock_boottime_usec();
    const uint64_t took_usec = now - l->step_began_usec;
    const double sec = (double)took_usec * 1e-6;
    const double data_sec = (double)l->data_usec * 1e-6;
    PROBE(step, step, s->rank, took_usec, l->data_usec, result->redone);
    l->step_began_usec = now;
    l->data_usec = 0;
    l->step_sec = l->step_sec > 0 ? 0.8 * l->step_sec + 0.2 * sec : sec;
    assert(s->state->scalars.step == step); /* the report is about this step */
    if (s->rank != 0)
        return 0;

    const int64_t seen = s->state->scalars.position;
    const SaverTrouble *trouble = saver_trouble(l->saver);
    CheckpointRoom room;
    saver_room(l->saver, &room);
    int r = saver_record(l->saver, step, result, seen, took_usec, err);
    if (r < 0)
        return r;
    l->said = (ChannelMessage){.type = CHANNEL_STEP,
                               .generation = s->generation,
                               .step = step,
                               .loss = result->loss,
                               .grad_norm = result->gradient_norm,
                               .lr = result->lr,
                               .samples_per_sec =
                                   (double)s->job->train.global_batch / MAX(l->step_sec, 1e-9),
                               .samples_seen = seen,
                               .steps = s->job->train.steps,
                               .step_sec = sec,
                               .data_sec = data_sec,
                               .saving_sec = (double)l->saving_usec * 1e-6,
                               .failed_saves = trouble->n_failed,
                               .unsaved_since_usec = trouble->since_usec,
                               .save_next_bytes = (int64_t)room.next_bytes,
                               .save_free_bytes = (int64_t)room.free_bytes,
                               .diverging_since = divergence_since(saver_divergence(l->saver))};
    (void)snprintf(l->said.save_error, sizeof(l->said.save_error), "%s", trouble->error.text);
    divergence_write(saver_divergence(l->saver), result->loss, result->gradient_norm,
                     l->said.diverging, sizeof(l->said.diverging));
    if (!daemon_link_is_daemon(s->link))
        log_info("step %lld/%lld loss %.6f, %.1f samples/s", (long long)step,
                 (long long)l->said.steps, result->loss, l->said.samples_per_sec);
    MetricsGap gap;
    saver_gap(l->saver, &gap);
    return send_step(l, &gap, err);
}

/* Runs one step; `step` is the number of steps done before it. *flags: in, the flags that all ranks agreed on in the
 * step before; out, the flags of this step. */
static int run_step(Loop *l, int64_t step, uint32_t *flags, Error *err)
{
    Session *s = l->session;
    UpdateResult result;
    const uint64_t waited_usec = train_state_waited_usec(s->state);
    int r = daemon_link_check(s->link, err);
    if (r == 0 && (*flags & STEP_WAIT_DATA))
        r = wait_for_data(l, step, err);
    if (r < 0)
        return r;
    r = compute_step(l, step, &result, err);
    if (r < 0)
        return r;

    daemon_link_stage(s->link, step, STAGE_UPDATING);
    loader_release(s->loader, step);
    uint32_t mine = s->rank == 0 ? saver_step_flags(l->saver, step + 1) : 0;
    bool is_last = step + 1 == s->job->train.steps;
    if (!is_last && look_for_data(s, step + 1, 0, NULL) < 0)
        /* the data are late, or cannot be read: this error is reported when all ranks wait for data */
        mine |= STEP_WAIT_DATA;
    r = judge_update(l, update_apply(s->update, mine, flags, &result, err), err);
    if (r < 0)
        return r;
    /* the update waited for the copies of a save */
    l->saving_usec += train_state_waited_usec(s->state) - waited_usec;
    network_set_weights(s->network, s->state->weights);
    return report_step(l, step + 1, &result, err);
}

static int save(Loop *l, int64_t step, uint32_t flags, Error *err)
{
    assert(step == l->session->state->scalars.step);
    int r = saver_save(l->saver, step, flags, err);
    return error_set_exit(err, r,
                          r == -ENOTRECOVERABLE ? EXIT_NEVER_RETRY : EXIT_STORE_UNREACHABLE);
}

/* Saves between two steps, and counts the time that training waits for this. */
static int save_step(Loop *l, int64_t step, uint32_t flags, Error *err)
{
    const uint64_t began_usec = clock_boottime_usec();
    int r = save(l, step, flags, err);
    l->saving_usec += clock_boottime_usec() - began_usec;
    return r;
}

/* Saves before the first step. The time of this save is part of the start. */
static int first_save(Loop *l, Error *err)
{
    Session *s = l->session;
    if (s->resume)
        return 0;
    return save(l, 0, STEP_SAVE | STEP_MUST, err);
}

static int run_steps(Loop *l, LoopResult *ret, Error *err)
{
    Session *s = l->session;
    int r = first_save(l, err);
    if (r < 0)
        return r;
    start_part("first save");
    network_set_weights(s->network, s->state->weights);
    l->step_began_usec = clock_boottime_usec();

    bool leave = false;
    uint32_t flags = STEP_WAIT_DATA; /* nothing is known about the first step's data */
    while (s->state->scalars.step < s->job->train.steps && !leave) {
        r = run_step(l, s->state->scalars.step, &flags, err);
        if (r < 0)
            return r;
        start_part("step");
        start_report(); /* only the first call logs */
        if (flags & STEP_SAVE)
            r = save_step(l, s->state->scalars.step, flags, err);
        if (r == 0)
            r = saver_pump(l->saver, err);
        if (r < 0)
            return error_set_exit(err, r, EXIT_STORE_UNREACHABLE);
        leave = (flags & STEP_LEAVE) != 0;
    }
    *ret = (LoopResult){.finished = s->state->scalars.step >= s->job->train.steps,
                        .step = s->state->scalars.step,
                        .digest = saver_digest(l->saver)};
    return 0;
}

/* Writes the whole history's metrics into one object, beside the checkpoints. Every step is done and saved, so metrics
 * that cannot be read or written now are only logged. If the store does not answer, the next world tries again. */
static int publish(Loop *l, Store *store, const Manifest *manifest, Error *err)
{
    MetricsGap gap = {0};
    Error why = ERROR_INIT;
    int r = -EAGAIN;
    for (int try = 0; r < 0 && r != -EHOSTUNREACH && try < PUBLISH_TRIES; try++) {
        if (try > 0 && fault("saver.patience") == 0)
            (void)sleep(PUBLISH_PAUSE_SEC); /* a signal may shorten the pause */
        why = ERROR_INIT;
        r = checkpoint_publish_metrics(store, manifest, METRICS_KEY, &gap, &why);
    }
    if (r == -EHOSTUNREACH) {
        *err = why;
        return r;
    }
    if (r < 0)
        log_warning("%s/%s is not written, the metrics stay in their segments: %s",
                    store_uri(store), METRICS_KEY, why.text);
    if (gap.n_steps == 0)
        return 0;
    log_warning("%s/%s lacks %lld steps between %lld and %lld: their metrics are lost",
                store_uri(store), METRICS_KEY, (long long)gap.n_steps, (long long)gap.first,
                (long long)gap.last);
    return l->said.metrics_lost == gap.n_steps ? 0 : send_step(l, &gap, err);
}

/* The job was done when this world began: the world before may have died just before it published the metrics.
 * (Checkpoints that it had not retired are removed with the claim.) */
static int publish_again(Loop *l, Error *err)
{
    Session *s = l->session;
    if (!session_resumes_own(s))
        return 0; /* a history in another folder is not changed */
    l->said = (ChannelMessage){.type = CHANNEL_STEP,
                               .generation = s->generation,
                               .step = s->state->scalars.step,
                               .steps = s->job->train.steps,
                               .samples_seen = s->state->scalars.position,
                               .loss = NAN,
                               .diverging_since = divergence_since(saver_divergence(l->saver))};
    int r = checkpoint_claim(s->writer, NULL, err);
    return r < 0 ? r : publish(l, s->store, s->resume, err);
}

static int publish_metrics(Loop *l, Error *err)
{
    Session *s = l->session;
    if (s->rank != 0)
        return 0;
    if (!*saver_uri(l->saver))
        return publish_again(l, err);

    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(manifest_freep) Manifest *manifest = NULL;
    int r = manifest_read_uri(saver_uri(l->saver), NULL, &store, &manifest, err);
    return r < 0 ? r : publish(l, store, manifest, err);
}

/* Sets the exit code of the few errors that mean the same wherever they occur. */
static void judge(int r, Error *err)
{
    if (r == -ESTALE || r == -EPIPE)
        err->exit = EXIT_RETRY;
    if (r == -ECONNRESET)
        err->exit = EXIT_PEER_LOST;
    if (r == -CHECKPOINT_NOT_OWNER)
        err->exit = EXIT_NOT_OWNER;
}

int loop_run(Session *session, LoopResult *ret, Error *err)
{
    _cleanup_(saver_freep) Saver *saver = NULL;
    int r = saver_new(session, &saver, err);
    if (r < 0)
        return r;
    Loop loop = {.session = session, .saver = saver};
    r = run_steps(&loop, ret, err);
    /* only rank 0 gets the request to leave */
    assert(r < 0 || ret->finished || daemon_link_wishes(session->link, false) & WISH_LEAVE ||
           session->rank != 0);
    if (session->rank == 0 && (r == 0 || !checkpoint_busy(session->writer)))
        saver_end(saver);
    if (r == 0 && ret->finished)
        r = error_set_exit(err, publish_metrics(&loop, err), EXIT_STORE_UNREACHABLE);
    if (r == 0 && ret->finished && session->local)
        checkpoint_local_clear(session->local);
    judge(r, err);
    if (r < 0 && err->exit != EXIT_NON_FINITE) /* all ranks report EXIT_NON_FINITE */
        /* if the device is not the cause, the error stays unchanged */
        (void)device_exit_blames(session->device, &r, err);
    return r;
}
