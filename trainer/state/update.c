/* SPDX-License-Identifier: Apache-2.0 */
/* update.c - see update.h.
 *
 * All decisions depend only on numbers that are the same on all ranks: the maxima over all grains and the reports of
 * all grains. */

#include "trainer/state/update.h"

#include "trainer/state/device-patience.h"
#include "trainer/state/exponent.h"
#include "trainer/state/gradient-sum.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { BAD_NONE = -1, BAD_LOSS = -2 }; /* other values: the index of a tensor */

/* A rank's report to the other ranks about one of its grains. */
typedef struct GrainReport {
    double loss;
    int64_t bad;
} GrainReport;

struct Update {
    TrainState *state;
    const Job *job;
    DeviceComm dc;
    GradientSum *sum;
    int64_t n_tensors;
    /* first, n_own: this rank's grains; share: the most grains of any rank */
    int64_t first, n_own, share;
    SumWidth width;
    uint32_t infinite; /* a maximum of at least this value counts as not finite */

    /* Device memory. */
    int32_t *sum_exponents; /* [tensors]: exponents of this pass */
    uint32_t *maxima;       /* [share][tensors] */
    double *losses;         /* [share] */
    double *chunk_sums;     /* for each slot: sum of the squares of its gradients */

    /* Host memory that the device writes. */
    uint32_t *grain_maxima; /* [share][tensors] */
    double *grain_losses;   /* [share] */
    double *squares;        /* for each slot: sum of the squares of its gradients */

    /* Host memory. */
    /* [tensors]: the content of sum_exponents, unused in a measuring pass. The device reads this memory until the
     * maxima of the pass are on the host. */
    int32_t *exponents;
    uint32_t *global_maxima;  /* [tensors]: maxima over all grains of all ranks */
    uint32_t *first_maxima;   /* global maxima of the pass that was redone */
    GrainReport *reports;     /* [world][share] */
    GrainReport *own_reports; /* [share] */
    uint64_t *gathered;       /* [world][1 + slots]: for each rank, flags, then sums of squares */

    bool measuring; /* no step before has left maxima, so this pass finds only the maxima */
    bool redone, collected, decided;
    bool device_failed; /* an error came from the device */
    int64_t n_added;    /* number of grains added in this pass, missing grains included */
};

void grain_share(int64_t n_grains, int rank, int world_size, int64_t *ret_first, int64_t *ret_n,
                 int64_t *ret_share)
{
    assert(rank >= 0 && rank < world_size && n_grains >= world_size);
    *ret_first = rank * n_grains / world_size;
    *ret_n = (rank + 1) * n_grains / world_size - *ret_first;
    *ret_share = DIV_ROUND_UP(n_grains, world_size);
}

/* ---- creation ---- */

static int allocate(Update *update, Error *err)
{
    TrainState *state = update->state;
    size_t world = (size_t)state->world_size, share = (size_t)update->share;
    size_t tensors = (size_t)update->n_tensors;
    size_t slots = (size_t)shard_slots(&state->layout, state->world_size);
    update->global_maxima = calloc(tensors, sizeof(*update->global_maxima));
    update->first_maxima = calloc(tensors, sizeof(*update->first_maxima));
    update->reports = calloc(world * share, sizeof(*update->reports));
    update->own_reports = calloc(share, sizeof(*update->own_reports));
    update->gathered = calloc(world * (1 + slots), sizeof(*update->gathered));
    if (!update->global_maxima || !update->first_maxima || !update->reports ||
        !update->own_reports || !update->gathered)
        return error_set(err, -ENOMEM, "out of memory");

    const struct {
        void **at;
        size_t n_bytes;
        bool host;
    } buffers[] = {
        {(void **)&update->sum_exponents, tensors * sizeof(int32_t), false},
        {(void **)&update->maxima, share * tensors * sizeof(uint32_t), false},
        {(void **)&update->losses, share * sizeof(double), false},
        {(void **)&update->chunk_sums, slots * sizeof(double), false},
        {(void **)&update->exponents, tensors * sizeof(int32_t), true},
        {(void **)&update->grain_maxima, share * tensors * sizeof(uint32_t), true},
        {(void **)&update->grain_losses, share * sizeof(double), true},
        {(void **)&update->squares, slots * sizeof(double), true},
    };
    int r = 0;
    for (size_t i = 0; i < ELEMENTSOF(buffers) && r == 0; i++)
        r = buffers[i].host
                ? device_host_allocate(state->device, buffers[i].n_bytes, buffers[i].at, err)
                : device_allocate(state->device, buffers[i].n_bytes, buffers[i].at, err);
    return r;
}

int update_new(TrainState *state, Comm *comm, Comm *bulk, const Job *job, Update **ret, Error *err)
{
    assert(comm_rank(comm) == state->rank && comm_size(comm) == state->world_size);
    _cleanup_(update_freep) Update *update = calloc(1, sizeof(*update));
    if (!update)
        return error_set(err, -ENOMEM, "update: out of memory");
    update->state = state;
    update->job = job;
    update->n_tensors = (int64_t)state->parameters->n_items;
    update->width = job->train.reduction == REDUCTION_EXACT64 ? SUM_64 : SUM_32;
    update->infinite = exponent_infinite(job->train.n_grains);
    grain_share(job->train.n_grains, state->rank, state->world_size, &update->first, &update->n_own,
                &update->share);
    int r = device_comm_open(state->device, comm, bulk, &update->dc, err);
    if (r >= 0)
        r = gradient_sum_new(state, &update->dc, job->train.reduction, job->train.n_grains,
                             &update->sum, err);
    if (r >= 0)
        r = allocate(update, err);
    if (r < 0)
        return error_prefix(err, r, "update");
    *ret = TAKE_PTR(update);
    return 0;
}

Update *update_free(Update *update)
{
    if (!update)
        return NULL;
    Device *device = update->state->device;
    device_comm_close(&update->dc); /* then no thread uses the sums that are freed below */
    const bool idle = device_is_idle(device);
    if (idle)
        update->sum = gradient_sum_free(update->sum);
    void *memory[] = {update->sum_exponents, update->maxima, update->losses, update->chunk_sums};
    void *host[] = {update->exponents, update->grain_maxima, update->grain_losses, update->squares};
    for (size_t i = 0; idle && i < ELEMENTSOF(memory); i++) {
        device_release(device, memory[i]);
        device_host_release(device, host[i]);
    }
    free(update->global_maxima);
    free(update->first_maxima);
    free(update->reports);
    free(update->own_reports);
    free(update->gathered);
    free(update);
    return NULL;
}

/* ---- a pass over the grains ---- */

static void pass_begin(Update *update)
{
    Device *device = update->state->device;
    update->n_added = 0;
    update->collected = update->decided = false;
    device_clear(device, update->maxima,
                 (size_t)(update->share * update->n_tensors) * sizeof(*update->maxima));
    if (!update->measuring)
        device_send(device, LANE_COMPUTE, update->sum_exponents, update->exponents,
                    (size_t)update->n_tensors * sizeof(*update->exponents));
    gradient_sum_begin(update->sum, update->measuring ? NULL : update->sum_exponents);
}

static uint32_t *next_maxima(const Update *update)
{
    return update->maxima + update->n_added * update->n_tensors;
}

void update_sink(Update *update, int64_t grain, GradientSink *ret)
{
    assert(update->n_added < update->n_own && grain == update->first + update->n_added);
    gradient_sum_sink(update->sum, next_maxima(update), ret);
}

double *update_loss(Update *update)
{
    assert(update->n_added < update->n_own);
    return update->losses + update->n_added;
}

int update_add_grain(Update *update, int64_t grain, bool has_grain, Error *err)
{
    assert(update->n_added < update->share);
    assert(has_grain ? grain == update->first + update->n_added : update->n_added >= update->n_own);
    int r = gradient_sum_add(update->sum, has_grain, next_maxima(update), err);
    update->n_added++;
    return r < 0 ? error_prefix(err, r, "reducing grain %" PRId64, grain) : 0;
}

/* Waits for LANE_COMPUTE. Only during this wait can the device become idle: if no further work was put on the lane.
 * Copies of a save may continue. */
static int wait_for_compute(Update *update, Error *err)
{
    Device *device = update->state->device;
    int r = device_await(device, device_fence(device, LANE_COMPUTE), DEVICE_TIMEOUT_USEC, err);
    update->device_failed = update->device_failed || r < 0;
    return r;
}

int update_collect(Update *update, Error *err)
{
    assert(update->n_added == update->share && !update->collected);
    Device *device = update->state->device;
    device_fetch(device, LANE_COMPUTE, update->grain_maxima, update->maxima,
                 (size_t)(update->share * update->n_tensors) * sizeof(*update->maxima));
    device_fetch(device, LANE_COMPUTE, update->grain_losses, update->losses,
                 (size_t)update->share * sizeof(*update->losses));
    if (!update->measuring) /* if the pass is redone, the reduction was in vain, which is rare */
        gradient_sum_begin_reduce(update->sum);
    int r = wait_for_compute(update, err);
    update->collected = r == 0;
    return r < 0 ? error_prefix(err, r, "computing step %" PRId64, update->state->scalars.step + 1)
                 : 0;
}

/* ---- the verdict ---- */

static uint32_t window_maximum(const TrainScalars *scalars, int64_t tensor)
{
    uint32_t maximum = 0;
    for (int64_t i = 0; i < scalars->n_maxima; i++) {
        int64_t slot = (scalars->n_accepted - 1 - i) % MAXIMA_WINDOW;
        maximum = MAX(maximum, scalars->maxima[tensor * MAXIMA_WINDOW + slot]);
    }
    return maximum;
}

static void window_push(TrainScalars *scalars, int64_t n_tensors, const uint32_t *maxima)
{
    int64_t slot = scalars->n_accepted % MAXIMA_WINDOW;
    for (int64_t tensor = 0; tensor < n_tensors; tensor++)
        scalars->maxima[tensor * MAXIMA_WINDOW + slot] = maxima[tensor];
    scalars->n_accepted++;
    scalars->n_maxima = MIN(scalars->n_maxima + 1, (int64_t)MAXIMA_WINDOW);
}

/* Sets the EMA to the master weights once start_step steps are done. */
static void ema_start_if_due(Update *update)
{
    TrainState *state = update->state;
    if (!state->ema || state->ema_active || state->scalars.step < update->job->train.ema.start_step)
        return;
    train_state_before_write(state);
    for (int64_t chunk = 0; chunk < state->layout.n_chunks; chunk++) {
        if (train_state_keeps(state, chunk))
            device_copy(state->device, train_state_chunk(state, state->ema, chunk),
                        state->weights + chunk_begin(&state->layout, chunk),
                        (size_t)chunk_length(&state->layout, chunk) * sizeof(float));
    }
    state->ema_active = true;
}

void update_begin(Update *update)
{
    const TrainScalars *scalars = &update->state->scalars;
    assert(scalars->n_maxima >= 0 &&
           scalars->n_maxima <= MIN(scalars->n_accepted, (int64_t)MAXIMA_WINDOW));
    ema_start_if_due(update);
    /* Ends the reduction of a step that was refused. An error of a comm is permanent, so a later call returns it. */
    (void)device_comm_drop(&update->dc, NULL);
    update->dc.usec = 0;
    update->redone = false;
    update->measuring = scalars->n_maxima == 0 && update->job->train.reduction != REDUCTION_FLOAT;
    for (int64_t tensor = 0; tensor < update->n_tensors; tensor++)
        update->exponents[tensor] = exponent_choose(window_maximum(scalars, tensor),
                                                    update->job->train.n_grains, update->width);
    pass_begin(update);
}

/* Finds this rank's maxima over its grains, and which of its grains are not finite. */
static void report_grains(Update *update)
{
    memset(update->global_maxima, 0, (size_t)update->n_tensors * sizeof(*update->global_maxima));
    for (int64_t i = 0; i < update->n_own; i++) {
        const uint32_t *maxima = update->grain_maxima + i * update->n_tensors;
        GrainReport *report = &update->own_reports[i];
        report->loss = update->grain_losses[i];
        report->bad = isfinite(report->loss) ? BAD_NONE : BAD_LOSS;
        for (int64_t tensor = update->n_tensors - 1; tensor >= 0; tensor--) {
            update->global_maxima[tensor] = MAX(update->global_maxima[tensor], maxima[tensor]);
            if (maxima[tensor] >= update->infinite)
                report->bad = tensor;
        }
    }
}

static int exchange_reports(Update *update, Error *err)
{
    report_grains(update);
    uint64_t t = clock_boottime_usec();
    int r = comm_all_reduce(update->dc.comm, COMM_U32, COMM_MAX, update->global_maxima,
                            (size_t)update->n_tensors, err);
    if (r >= 0)
        r = comm_all_gather(update->dc.comm, update->own_reports, update->reports,
                            (size_t)update->share * sizeof(GrainReport), err);
    return device_comm_timed(&update->dc, t, r);
}

/* Checks that every reported tensor exists: otherwise this rank would read past the end of its list of tensors. Also
 * checks that some grain is reported as bad if a maximum counts as infinite: otherwise an assertion in exponent.c would
 * end this process. */
static int check_reports(const Update *update, Error *err)
{
    const int world = update->state->world_size;
    bool any_bad = false;
    for (int rank = 0; rank < world; rank++) {
        int64_t first, n, share;
        grain_share(update->job->train.n_grains, rank, world, &first, &n, &share);
        for (int64_t i = 0; i < n; i++) {
            const int64_t bad = update->reports[rank * share + i].bad;
            if (bad != BAD_NONE && bad != BAD_LOSS && (bad < 0 || bad >= update->n_tensors))
                return error_set(err, -EPROTO,
                                 "rank %d says that tensor %" PRId64 " of %" PRId64
                                 " is not a number",
                                 rank, bad, update->n_tensors);
            any_bad = any_bad || bad != BAD_NONE;
        }
    }
    for (int64_t tensor = 0; tensor < update->n_tensors && !any_bad; tensor++)
        if (update->global_maxima[tensor] >= update->infinite)
            return error_set(err, -EPROTO,
                             "a rank's gradient of tensor %" PRId64 " is infinite, and no grain's",
                             tensor);
    return 0;
}

/* Computes the mean loss in grain order, and finds the first grain that is not finite. */
static void read_reports(Update *update, UpdateResult *result)
{
    const ParameterList *list = update->state->parameters;
    double loss = 0;
    for (int rank = 0; rank < update->state->world_size; rank++) {
        int64_t first, n, share;
        grain_share(update->job->train.n_grains, rank, update->state->world_size, &first, &n,
                    &share);
        for (int64_t i = 0; i < n; i++) {
            const GrainReport *report = &update->reports[rank * share + i];
            loss += report->loss;
            if (report->bad == BAD_NONE || result->bad_grain >= 0)
                continue;
            result->bad_grain = first + i;
            (void)snprintf(result->bad_tensor, sizeof(result->bad_tensor), "%s",
                           report->bad == BAD_LOSS ? "loss" : list->items[report->bad].name);
        }
    }
    result->loss = loss / (double)update->job->train.n_grains;
}

static bool any_overflow(const Update *update)
{
    for (int64_t tensor = 0; tensor < update->n_tensors; tensor++) {
        if (exponent_overflows(update->exponents[tensor], update->global_maxima[tensor],
                               update->job->train.n_grains, update->width))
            return true;
    }
    return false;
}

int update_decide(Update *update, UpdateVerdict *ret, UpdateResult *ret_result, Error *err)
{
    assert(update->collected && !update->decided);
    assert(!update->redone || !update->measuring);
    int r = exchange_reports(update, err);
    if (r == 0)
        r = check_reports(update, err);
    if (r < 0)
        return error_prefix(err, r, "deciding on step %" PRId64, update->state->scalars.step + 1);

    UpdateResult result = {.bad_grain = -1, .redone = update->redone};
    read_reports(update, &result);
    size_t maxima_bytes = (size_t)update->n_tensors * sizeof(*update->global_maxima);
    UpdateVerdict verdict = UPDATE_ACCEPT;
    if (result.bad_grain >= 0) {
        verdict = UPDATE_NON_FINITE;
    } else if (update->redone) {
        if (memcmp(update->first_maxima, update->global_maxima, maxima_bytes) != 0)
            return error_set(err, -EBADMSG,
                             "step %" PRId64 ": the same grains gave other gradients when they "
                             "were computed again",
                             update->state->scalars.step + 1);
        assert(!any_overflow(update)); /* exponent_infinite() ensures this */
    } else if (update->job->train.reduction != REDUCTION_FLOAT &&
               (update->measuring || any_overflow(update))) {
        r = device_comm_drop(&update->dc, err);
        if (r < 0)
            return error_prefix(err, r, "reducing the gradients of step %" PRId64,
                                update->state->scalars.step + 1);
        verdict = UPDATE_REDO;
        update->redone = true;
        update->measuring = false;
        memcpy(update->first_maxima, update->global_maxima, maxima_bytes);
        for (int64_t tensor = 0; tensor < update->n_tensors; tensor++)
            update->exponents[tensor] = exponent_choose(update->global_maxima[tensor],
                                                        update->job->train.n_grains, update->width);
        pass_begin(update);
    }
    update->decided = verdict == UPDATE_ACCEPT;
    *ret = verdict;
    *ret_result = result;
    return 0;
}

/* ---- the step ---- */

/* Gathers the squares of the owned chunks, and adds them in chunk order. The same collective carries the ranks'
 * flags. */
static int gather_norm(Update *update, uint32_t word, uint32_t *ret_word, double *ret_norm,
                       Error *err)
{
    TrainState *state = update->state;
    int world = state->world_size;
    size_t slots = (size_t)shard_slots(&state->layout, world);
    const GradientSums sums = gradient_sum_reduced(update->sum);
    state_squares(gradient_sum_plan(update->sum), &sums, update->chunk_sums);
    uint64_t *own = update->gathered + (size_t)state->rank * (1 + slots);
    own[0] = word;
    device_fetch(state->device, LANE_COMPUTE, update->squares, update->chunk_sums,
                 slots * sizeof(double));
    int r = wait_for_compute(update, err);
    if (r < 0)
        return r;
    memcpy(own + 1, update->squares, slots * sizeof(double));
    uint64_t t = clock_boottime_usec();
    r = comm_all_gather(update->dc.comm, own, update->gathered, (1 + slots) * sizeof(*own), err);
    r = device_comm_timed(&update->dc, t, r);
    if (r < 0)
        return r;
    double sum = 0;
    for (int64_t chunk = 0; chunk < state->layout.n_chunks; chunk++) {
        double square;
        memcpy(&square,
               &update->gathered[(size_t)chunk_owner(chunk, world) * (1 + slots) + 1 +
                                 (size_t)(chunk / world)],
               sizeof(square));
        sum += square;
    }
    *ret_word = 0;
    for (size_t rank = 0; rank < (size_t)world; rank++)
        *ret_word |= (uint32_t)update->gathered[rank * (1 + slots)];
    *ret_norm = sqrt(sum);
    return 0;
}

/* Computes the power by squaring, only with multiplications, so that the bits do not depend on libm. */
static double power(double base, int64_t n)
{
    double result = 1;
    for (; n > 0; n >>= 1, base *= base) {
        if (n & 1)
            result *= base;
    }
    return result;
}

static AdamW adamw_of_step(const Update *update, double lr, double norm, double mean)
{
    const typeof(update->job->train.optimizer) *o = &update->job->train.optimizer;
    int64_t t = update->state->scalars.adam_t + 1;
    double clip = o->clip_norm > 0 ? MIN(1.0, o->clip_norm / (norm + 1e-6)) : 1.0;
    return (AdamW){
        .lr = (float)lr,
        .beta1 = o->beta1,
        .beta2 = o->beta2,
        .eps = (float)o->eps,
        .weight_decay = (float)o->weight_decay,
        .gradient_scale = (float)(clip * mean),
        .correction1 = (float)(1 - power(o->beta1, t)),
        .correction2 = (float)(1 - power(o->beta2, t)),
    };
}

static int gather_weights(Update *update, Error *err)
{
    const ChunkLayout *layout = &update->state->layout;
    const DeviceCommCall call =
        device_all_gather_dealt(update->state->weights, (size_t)layout->n_elements * sizeof(float),
                                (size_t)layout->chunk_elements * sizeof(float));
    return device_comm_run(&update->dc, &call, err);
}

int update_apply(Update *update, uint32_t word, uint32_t *ret_word, UpdateResult *result,
                 Error *err)
{
    assert(update->decided && !update->measuring);
    TrainState *state = update->state;
    const Job *job = update->job;
    int64_t step = state->scalars.step + 1;
    double norm = 0;
    int r = gradient_sum_finish_reduce(update->sum, err);
    if (r >= 0)
        r = gather_norm(update, word, ret_word, &norm, err);
    if (r < 0)
        return error_prefix(err, r, "reducing the gradients of step %" PRId64, step);

    double mean =
        update->job->train.reduction == REDUCTION_FLOAT ? 1.0 / (double)job->train.n_grains : 1.0;
    int64_t warmup = job->train.optimizer.warmup_steps;
    result->gradient_norm = norm * mean;
    result->lr = job->train.optimizer.lr * (step < warmup ? (double)step / (double)warmup : 1.0);
    AdamW adamw = adamw_of_step(update, result->lr, result->gradient_norm, mean);
    const GradientSums sums = gradient_sum_reduced(update->sum);
    train_state_before_write(state);
    state_update(gradient_sum_plan(update->sum), &adamw, (float)job->train.ema.decay, &sums,
                 state->weights, state->m, state->v, state->ema_active ? state->ema : NULL);
    state->scalars.step = step;
    state->scalars.position = step * job->train.global_batch;
    state->scalars.adam_t++;
    window_push(&state->scalars, update->n_tensors, update->global_maxima);
    ema_start_if_due(update);
    update->decided = false;
    if (state->zero_stage > 0)
        r = gather_weights(update, err);
    return r < 0 ? error_prefix(err, r, "gathering the weights of step %" PRId64, step) : 0;
}

bool update_device_failed(const Update *update)
{
    return update->device_failed || update->dc.device_failed;
}

uint64_t update_comm_usec(const Update *update) { return update->dc.usec; }
