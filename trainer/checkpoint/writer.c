/* SPDX-License-Identifier: Apache-2.0 */
/* writer.c - the writer's functions for the training thread: begin, poll, settle.
 *
 * `task` hands the writer's fields to its thread and back, under one mutex and one condition; the thread runs
 * checkpoint_save() or checkpoint_retire() and never uses the TrainState.
 *
 * Fault points: checkpoint.settle.
 */
#include "trainer/checkpoint/writer.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "manifest/manifest-internal.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>

enum { MEASURE_SEC = 10 }; /* pause between two measurements of the store's free space */

const ObjectTable *writer_table(const CheckpointWriter *w)
{
    return &w->tables[w->snapshot.ema_active];
}

/* ---- the thread ---- */

static void writer_lock(CheckpointWriter *w)
{
    int r = pthread_mutex_lock(&w->lock);
    assert(r == 0);
}

static void writer_unlock(CheckpointWriter *w)
{
    int r = pthread_mutex_unlock(&w->lock);
    assert(r == 0);
}

/* Called with the lock held. Sets the task, and wakes the thread that waits for a change. */
static void writer_set_task(CheckpointWriter *w, WriterTask task)
{
    w->task = task;
    int r = pthread_cond_broadcast(&w->changed);
    assert(r == 0);
}

/* Called with the lock held. Signals that checkpoint_poll() has something new. */
static void writer_notify(CheckpointWriter *w)
{
    ssize_t n = write(w->event_fd, &(uint64_t){1}, sizeof(uint64_t));
    assert(n == sizeof(uint64_t)); /* an eventfd blocks only at 2^64 - 1 */
}

static void run_save(CheckpointWriter *w)
{
    CheckpointResult result = {.step = w->snapshot.scalars.step};
    checkpoint_save(w, &result);
    if (w->rank == 0 && room_is_short(result.error.code))
        room_make(w, &result.error);
    result.write_usec = clock_boottime_usec() - w->begun_usec;
    result.blocked_usec = result.write_usec;
    result.phase = result.error.code < 0 ? CHECKPOINT_FAILED : CHECKPOINT_WRITTEN;

    writer_lock(w);
    if (!w->options.blocking)
        result.blocked_usec = w->result.blocked_usec;
    w->result = result;
    w->measured_usec = 0; /* the measurement is out of date */
    writer_set_task(w, TASK_NONE);
    writer_notify(w);
    writer_unlock(w);
}

/* A lost segment does not stop the job: it is logged, as an operator may still have a copy. */
static void look_at_metrics(CheckpointWriter *w)
{
    Error err = ERROR_INIT;
    MetricsGap gap;
    if (metrics_look(w->options.store, w->latest, &gap, &err) < 0) {
        log_warning("nobody knows whether all metrics are there: %s", err.text);
        return;
    }
    /* `missed` keeps some steps for the next save: these are not lost. */
    gap.n_steps -= MIN(metrics_missed_steps(w->missed, w->latest), gap.n_steps);
    writer_lock(w);
    const bool is_new = gap.n_steps > w->gap.n_steps;
    w->gap = gap;
    writer_unlock(w);
    if (is_new)
        log_warning("metrics of %lld steps between %lld and %lld are lost", (long long)gap.n_steps,
                    (long long)gap.first, (long long)gap.last);
}

int writer_retire(CheckpointWriter *w, Error *err)
{
    size_t removed = 0;
    w->claimed = false;
    if (!w->owner || !w->latest)
        return 0;
    const Retention retention = {.keep_last = w->options.keep_last,
                                 .keep_every = w->options.keep_every,
                                 .held = w->held,
                                 .n_held = w->n_held};
    int r = checkpoint_retire(w->options.store, w->owner, w->latest, &retention, w->kept, &removed,
                              err);
    if (r < 0)
        log_warning("old checkpoints stay for now: %s", err->text);
    else if (removed > 0)
        log_info("removed %zu objects of old checkpoints", removed);
    return r;
}

static void run_retire(CheckpointWriter *w)
{
    /* this task follows a claim, or the commit of a save that had claimed the folder */
    assert(w->rank == 0 && w->owner && w->latest);
    Error err = ERROR_INIT;
    if (!w->claimed) /* this task follows a commit, not a claim */
        look_at_metrics(w);
    int r = writer_retire(w, &err);

    writer_lock(w);
    /* the error is reported now, not only when the next save fails */
    if (r == -CHECKPOINT_NOT_OWNER) {
        w->result = (CheckpointResult){.phase = CHECKPOINT_FAILED,
                                       .step = w->latest->name.step,
                                       .error = err};
        writer_notify(w);
    }
    writer_set_task(w, TASK_NONE);
    writer_unlock(w);
}

/* Measures the store's space in the writer's thread, since a file system that hangs must not stop training. */
static void run_measure(CheckpointWriter *w)
{
    const CheckpointRoom room = room_measure(w);
    writer_lock(w);
    w->room = room;
    writer_set_task(w, TASK_NONE);
    writer_unlock(w);
}

static void *writer_run(void *argument)
{
    CheckpointWriter *w = argument;
    for (;;) {
        writer_lock(w);
        while (w->task == TASK_NONE) {
            /* TASK_QUIT ends this wait at the latest */
            int r = pthread_cond_wait(&w->changed, &w->lock);
            assert(r == 0);
        }
        WriterTask task = w->task;
        writer_unlock(w);

        switch (task) {
        case TASK_SAVE:
            run_save(w);
            break;
        case TASK_RETIRE:
            run_retire(w);
            break;
        case TASK_MEASURE:
            run_measure(w);
            break;
        case TASK_QUIT:
            return NULL;
        case TASK_NONE:
            break;
        }
    }
}

/* Starts the thread with all signals blocked, since the main thread handles them. */
static int writer_start(CheckpointWriter *w)
{
    sigset_t all, before;
    (void)sigfillset(&all); /* cannot fail */
    int r = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (r != 0)
        return -r;
    r = pthread_create(&w->thread, NULL, writer_run, w);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL); /* cannot fail: the mask was valid before */
    if (r != 0)
        return -r;
    w->thread_runs = true;
    return 0;
}

/* Called with the lock held. The task itself bounds this wait, by the timeouts of the comm and the store. */
static void writer_wait_idle(CheckpointWriter *w)
{
    while (w->task != TASK_NONE) {
        int r = pthread_cond_wait(&w->changed, &w->lock);
        assert(r == 0);
    }
}

/* Called with the lock held. Clears the result, after it was reported or when the next save begins. */
static void writer_forget_result(CheckpointWriter *w)
{
    w->result = (CheckpointResult){.phase = CHECKPOINT_IDLE};
    uint64_t n;
    ssize_t got = read(w->event_fd, &n, sizeof(n));
    /* if there is nothing new, there is nothing to read */
    assert(got == sizeof(n) || errno == EAGAIN);
}

/* ---- new, free ---- */

/* Finds the largest number of objects that any rank writes, which determines the size of every rank's report. */
static int reports_reserve(CheckpointWriter *w)
{
    const ObjectTable *table = &w->tables[1];
    _cleanup_free_ size_t *owned = calloc((size_t)w->size, sizeof(*owned));
    if (!owned)
        return -ENOMEM;
    size_t most = 0;
    for (size_t i = 0; i < table->n_records; i++) {
        size_t *n = &owned[object_owner(table, &table->records[i], w->size)];
        /* Counts one object more each time a rank becomes the largest, as version 0.2.0 does: the ranks of a world may
         * be of two versions, and must agree on the length of a report. */
        if (most <= ++*n)
            most = ++*n;
    }
    w->objects_max = most;
    w->report_bytes = sizeof(WriterReport) + most * sizeof(ObjectReport);
    w->reports = calloc((size_t)w->size, w->report_bytes);
    w->texts = calloc(most + 1, sizeof(*w->texts));
    w->texts_max = most;
    return w->reports && w->texts ? 0 : -ENOMEM;
}

static int writer_allocate(CheckpointWriter *w, const CheckpointOptions *options)
{
    uint64_t file_bytes = options->weight_file_bytes ?: WEIGHT_FILE_BYTES;
    w->options.unet_config = strdup(options->unet_config);
    if (!w->options.unet_config)
        return -ENOMEM;
    w->missed = metrics_missed_new();
    int r = metrics_kept_new(&w->kept);
    for (int ema = 0; r == 0 && ema <= 1; ema++) {
        r = object_table_new(options->parameters, &w->layout, file_bytes, ema, &w->tables[ema]);
        if (r == 0 && options->plans)
            object_table_add_plans(&w->tables[ema]);
    }
    if (r == 0)
        r = snapshot_new(w);
    if (r == 0)
        r = reports_reserve(w);
    return r;
}

/* Checks that the writer's checkpoints will be readable. */
static int check_limits(const CheckpointOptions *options, Error *err)
{
    const ParameterList *p = options->parameters;
    const ChunkLayout layout = chunk_layout(p->n_elements);
    if (p->n_items > MANIFEST_TENSORS_MAX || layout.n_chunks > MANIFEST_CHUNKS_MAX)
        return error_set(err, -E2BIG,
                         "a model of %zu tensors and %lld parameters: a checkpoint has at most %d "
                         "tensors and %d chunks of %lld parameters",
                         p->n_items, (long long)p->n_elements, MANIFEST_TENSORS_MAX,
                         MANIFEST_CHUNKS_MAX, (long long)layout.chunk_elements);
    const size_t n_plans = options->plans ? strlen(options->plans) : 1;
    if (n_plans < 1 || n_plans > MANIFEST_PLANS_BYTES_MAX)
        return error_set(err, -E2BIG,
                         "the device's plans have %zu bytes: a checkpoint holds 1 to %d", n_plans,
                         MANIFEST_PLANS_BYTES_MAX);
    return 0;
}

int checkpoint_writer_new(const CheckpointOptions *options, CheckpointWriter **ret, Error *err)
{
    if (strlen(store_uri(options->store)) + CHECKPOINT_FOLDER_MAX + 16 >= CHECKPOINT_URI_MAX)
        return error_set(err, -ENAMETOOLONG, "checkpoint store %s: too long a URI",
                         store_uri(options->store));
    int r = check_limits(options, err);
    if (r < 0)
        return r;

    CheckpointWriter *allocated = calloc(1, sizeof(*allocated));
    if (!allocated)
        return error_set(err, -ENOMEM, "checkpoint writer: out of memory");
    (void)pthread_mutex_init(&allocated->lock, NULL);   /* default attributes cannot fail */
    (void)pthread_cond_init(&allocated->changed, NULL); /* default attributes cannot fail */
    allocated->event_fd = -EBADF;
    _cleanup_(checkpoint_writer_freep) CheckpointWriter *w = allocated;

    w->options = *options;
    w->options.unet_config = NULL;
    w->rank = comm_rank(options->reports);
    w->size = comm_size(options->reports);
    w->layout = chunk_layout(options->parameters->n_elements);
    r = writer_allocate(w, options);
    if (r < 0)
        return error_errno(err, r, "checkpoint writer");
    w->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->event_fd < 0)
        return error_errno(err, -errno, "checkpoint writer: no eventfd");
    r = writer_start(w);
    if (r < 0)
        return error_errno(err, r, "checkpoint writer: no thread");
    *ret = TAKE_PTR(w);
    return 0;
}

static void writer_stop(CheckpointWriter *w)
{
    writer_lock(w);
    if (w->task == TASK_SAVE)
        comm_abort(w->options.reports);
    writer_wait_idle(w);
    writer_set_task(w, TASK_QUIT);
    writer_unlock(w);
    int r = pthread_join(w->thread, NULL);
    assert(r == 0);
}

CheckpointWriter *checkpoint_writer_free(CheckpointWriter *w)
{
    if (!w)
        return NULL;
    if (w->thread_runs)
        writer_stop(w);
    (void)pthread_cond_destroy(&w->changed); /* no thread waits */
    (void)pthread_mutex_destroy(&w->lock);   /* no thread holds the lock */
    (void)fd_close(w->event_fd);

    snapshot_clear(w);
    free(w->reports);
    free(w->texts);
    object_table_clear(&w->tables[0]);
    object_table_clear(&w->tables[1]);
    free((char *)(uintptr_t)w->options.unet_config);
    (void)checkpoint_owner_free(w->owner);
    (void)manifest_free(w->written);
    (void)manifest_free(w->latest);
    (void)metrics_kept_free(w->kept);
    (void)metrics_missed_free(w->missed);
    free(w);
    return NULL;
}

/* ---- begin ---- */

static int check_metrics(const CheckpointWriter *w, int64_t step, const char *metrics,
                         int64_t first, int64_t last, Error *err)
{
    int64_t n_lines = 0;
    for (const char *p = metrics; *p; p++)
        n_lines += *p == '\n';
    const MetricsSegment *before = w->latest && w->latest->n_segments > 0
                                       ? &w->latest->segments[w->latest->n_segments - 1]
                                       : NULL;
    const int64_t end = last >= first ? last : before ? before->last : first - 1;
    if (n_lines != last - first + 1 || (n_lines > 0 && metrics[strlen(metrics) - 1] != '\n'))
        return error_set(err, -EINVAL, "metrics of steps %lld to %lld have %lld lines",
                         (long long)first, (long long)last, (long long)n_lines);
    if (end != step || (before && last >= first && first != before->last + 1))
        return error_set(err, -EINVAL,
                         "metrics of steps %lld to %lld do not lead from step %lld to step %lld",
                         (long long)first, (long long)last, before ? (long long)before->last : -1LL,
                         (long long)step);
    return 0;
}

static int take_snapshot(CheckpointWriter *w, const TrainState *state, const char *metrics,
                         int64_t metrics_first, int64_t metrics_last, Error *err)
{
    Snapshot *p = &w->snapshot;
    free(p->metrics);
    p->metrics = NULL;
    if (w->rank == 0) {
        int r = check_metrics(w, state->scalars.step, metrics, metrics_first, metrics_last, err);
        if (r < 0)
            return r;
        p->metrics = strdup(metrics);
        if (!p->metrics)
            return error_set(err, -ENOMEM, "checkpoint: out of memory for the metrics");
        p->metrics_first = metrics_first;
        p->metrics_last = metrics_last;
        p->divergence = w->divergence;
        p->step_times = w->step_times;
    }
    snapshot_take(w, state);
    return 0;
}

int checkpoint_prepare(CheckpointWriter *w, const TrainState *state, Error *err)
{
    writer_lock(w);
    writer_wait_idle(w);
    writer_unlock(w);
    return snapshot_allocate(w, state, err);
}

void checkpoint_note_steps(CheckpointWriter *w, const Divergence *divergence,
                           const StepTimes *times)
{
    w->divergence = *divergence; /* only the training thread uses this field: a save copies it */
    w->step_times = *times;
}

int checkpoint_begin(CheckpointWriter *w, const TrainState *state, const char *metrics,
                     int64_t metrics_first, int64_t metrics_last, Error *err)
{
    assert(state->rank == w->rank && state->world_size == w->size);
    assert(state->layout.n_elements == w->layout.n_elements);
    assert(w->rank != 0 || metrics);

    uint64_t begun = clock_boottime_usec();
    writer_lock(w);
    if (w->rank == 0 && w->task == TASK_SAVE) {
        writer_unlock(w);
        return error_set(err, -EBUSY, "the checkpoint before is being written");
    }
    writer_wait_idle(w);
    writer_unlock(w);
    if (w->written)
        return error_set(err, -EBUSY, "the checkpoint before is not settled");

    /* While there is no task, only this thread uses the snapshot. */
    int r = take_snapshot(w, state, metrics, metrics_first, metrics_last, err);
    if (r < 0)
        return r;

    writer_lock(w);
    writer_forget_result(w);
    w->begun_usec = begun;
    w->result = (CheckpointResult){.phase = CHECKPOINT_WRITING,
                                   .step = state->scalars.step,
                                   .blocked_usec = clock_boottime_usec() - begun};
    writer_set_task(w, TASK_SAVE);
    writer_unlock(w);
    return 0;
}

/* ---- poll, settle ---- */

bool checkpoint_busy(CheckpointWriter *w)
{
    writer_lock(w);
    bool busy = (w->task != TASK_NONE && w->task != TASK_MEASURE) || w->written;
    writer_unlock(w);
    return busy;
}

void checkpoint_poll(CheckpointWriter *w, CheckpointResult *ret)
{
    writer_lock(w);
    *ret = w->result;
    if (w->result.phase != CHECKPOINT_WRITING)
        writer_forget_result(w);
    writer_unlock(w);
}

int checkpoint_wait(CheckpointWriter *w, uint64_t timeout_usec, CheckpointResult *ret)
{
    uint64_t now = clock_boottime_usec();
    const uint64_t deadline =
        timeout_usec < USEC_INFINITY - now ? now + timeout_usec : USEC_INFINITY;
    for (;;) {
        checkpoint_poll(w, ret);
        if (ret->phase != CHECKPOINT_WRITING)
            return 0;
        now = clock_boottime_usec();
        if (now >= deadline)
            return -ETIMEDOUT;
        struct pollfd p = {.fd = w->event_fd, .events = POLLIN};
        uint64_t left_msec = DIV_ROUND_UP(deadline - now, USEC_PER_MSEC);
        if (poll(&p, 1, (int)MIN(left_msec, UINT64_C(1000))) < 0 && errno != EINTR)
            return -errno;
    }
}

void checkpoint_gap(CheckpointWriter *w, MetricsGap *ret)
{
    writer_lock(w);
    *ret = w->gap;
    writer_unlock(w);
}

void checkpoint_room(CheckpointWriter *w, CheckpointRoom *ret)
{
    assert(w->rank == 0);
    const uint64_t now_usec = clock_boottime_usec();
    writer_lock(w);
    *ret = w->room;
    /* A written checkpoint must be committed first: the retention after the commit frees space. */
    if (w->task == TASK_NONE && !w->written &&
        (!w->measured_usec || now_usec - w->measured_usec >= MEASURE_SEC * USEC_PER_SEC)) {
        w->measured_usec = now_usec;
        writer_set_task(w, TASK_MEASURE);
    }
    writer_unlock(w);
}

void checkpoint_hold(CheckpointWriter *w, const int64_t *steps, size_t n)
{
    assert(w->rank == 0 && n <= CHECKPOINT_HELD_MAX);
    writer_lock(w);
    writer_wait_idle(w);
    memcpy(w->held, steps, sizeof(*steps) * n);
    w->n_held = n;
    writer_unlock(w);
}

void checkpoint_settle(CheckpointWriter *w, bool committed)
{
    assert(w->rank == 0);
    writer_lock(w);
    writer_wait_idle(w);
    assert(w->written);
    if (committed) {
        assert(!w->latest || w->written->name.step >= w->latest->name.step);
        (void)manifest_free(w->latest);
        w->latest = TAKE_PTR(w->written);
        (void)fault("checkpoint.settle"); /* a commit can no longer fail */
        writer_set_task(w, TASK_RETIRE);
    } else {
        w->written = manifest_free(w->written);
    }
    writer_unlock(w);
}

int writer_own(CheckpointWriter *w, Error *err)
{
    if (w->owner)
        return checkpoint_owner_look(w->owner, err);
    int r = checkpoint_owner_claim(w->options.store, &w->options.facts, &w->options.claim,
                                   w->latest, &w->owner, err);
    w->claimed = r == 0;
    return r;
}

int checkpoint_claim(CheckpointWriter *w, CheckpointOwner **ret, Error *err)
{
    assert(w->rank == 0);
    writer_lock(w);
    writer_wait_idle(w);
    writer_unlock(w);
    int r = writer_own(w, err);
    if (r < 0)
        return r;
    /* The previous generation may have died before it removed old checkpoints. They are removed now, since a full
     * store accepts no save, and usually only a commit starts the removal. */
    if (w->claimed && w->latest) {
        writer_lock(w);
        writer_set_task(w, TASK_RETIRE);
        writer_unlock(w);
    }
    if (ret)
        *ret = w->owner;
    return 0;
}

int checkpoint_put_missed(CheckpointWriter *w, int64_t *ret_missed, Error *err)
{
    assert(w->rank == 0);
    writer_lock(w);
    writer_wait_idle(w);
    writer_unlock(w);
    *ret_missed = metrics_missed_steps(w->missed, w->latest);
    int r = *ret_missed > 0 ? writer_own(w, err) : 0;
    if (r == 0)
        r = metrics_missed_put(w->missed, w->options.store, w->latest, err);
    *ret_missed = metrics_missed_steps(w->missed, w->latest);
    return r;
}

int checkpoint_close(CheckpointWriter *w, Error *err)
{
    assert(w->rank == 0);
    writer_lock(w);
    writer_wait_idle(w);
    writer_unlock(w);
    return w->owner ? checkpoint_owner_close(w->owner, err) : 0;
}

int checkpoint_adopt_history(CheckpointWriter *w, const Manifest *manifest, Error *err)
{
    assert(w->rank == 0 && w->task == TASK_NONE && !w->written);

    /* The manifest is copied through its text. */
    _cleanup_free_ char *text = NULL;
    Manifest *copy = NULL;
    if (manifest_format(manifest, &text) < 0)
        return error_set(err, -ENOMEM, "history: out of memory");
    int r = manifest_parse("manifest", text, strlen(text), &copy, err);
    if (r < 0)
        return r;
    copy->hash = manifest->hash;
    (void)manifest_free(w->latest);
    w->latest = copy;
    return 0;
}
