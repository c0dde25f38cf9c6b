/* update.c - see update.h.
 *
 * A grain's gradient is cut into segments: a tensor's part within a chunk, at most SEGMENT long, so
 * that it is still in the cache when after its maximum its integers are added. The sums lie in flat
 * order (ZeRO 0 and 1) or, reduced bucket by bucket after each grain, as this rank's shard (ZeRO
 * 2). What is decided is decided from numbers that all ranks have alike. Collectives work on host
 * memory, which on a CPU is device memory. */

#include "trainer/state/update.h"

#include "base/clock.h"
#include "trainer/comm/combine.h"
#include "trainer/state/exponent.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    SEGMENT = 1 << 15,
    BUCKET_BYTES = 4 << 20, /* ZeRO 2: reduced at once, or one chunk a rank if that is more */
};

enum { BAD_NONE = -1, BAD_LOSS = -2 }; /* else the index of a tensor */

/* What each rank tells the others about one of its grains. */
typedef struct GrainReport {
    double loss;
    int64_t bad;
} GrainReport;

struct Update {
    TrainState *state;
    Comm *comm;
    const Job *job;
    int64_t n_tensors;
    int64_t first, n_own, share; /* grains */

    Reduction reduction;
    SumWidth width;
    size_t sum_bytes; /* of an element of sums */
    CommType sum_type;
    uint32_t infinite; /* a maximum from here on is no number */
    int *exponents;    /* of tensors, in this pass */

    /* Device memory. */
    void *sums;         /* whole, flat (ZeRO 0, 1) or shard */
    void *bucket;       /* ZeRO 2 */
    float *gradients;   /* like m and v; NULL when the sums are floats */
    uint32_t *maxima;   /* [share][tensors] */
    double *chunk_sums; /* of squares, by slot */

    /* Host memory. */
    void *staging;            /* NULL on a CPU */
    void *shard_sums;         /* ZeRO 2 */
    void *partial;            /* ZeRO 2: this rank's part of a bucket */
    uint32_t *grain_maxima;   /* [share][tensors] */
    uint32_t *global_maxima;  /* [tensors] */
    uint32_t *first_maxima;   /* of the pass that was redone */
    GrainReport *reports;     /* [world][share] */
    GrainReport *own_reports; /* [share] */
    uint64_t *gathered;       /* [world][1 + slots]: word, then sums of squares */

    bool measuring; /* there is no history: this pass finds the maxima alone */
    bool redone, decided;
    int64_t n_added; /* in this pass, missing ones counted */
    uint64_t comm_usec;
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

static bool sharded(const Update *update) { return update->state->zero_stage > 0; }
static bool bucketed(const Update *update) { return update->state->zero_stage == 2; }

/* The chunks whose optimizer state this rank keeps are those of ranks keep_rank mod keep_world. */
static int keep_world(const Update *update)
{
    return sharded(update) ? update->state->world_size : 1;
}
static int keep_rank(const Update *update) { return sharded(update) ? update->state->rank : 0; }

static int64_t shard_elements(const Update *update)
{
    return shard_slots(&update->state->layout, keep_world(update)) *
           update->state->layout.chunk_elements;
}

static int64_t bucket_elements(const Update *update)
{
    const ChunkLayout *layout = &update->state->layout;
    int64_t row = layout->chunk_elements * update->state->world_size;
    int64_t rows = MAX(BUCKET_BYTES / (row * (int64_t)update->sum_bytes), INT64_C(1));
    return MIN(rows * row, ROUND_UP(layout->n_elements, row));
}

static int allocate_device(Update *update, Error *err)
{
    Device *device = update->state->device;
    size_t kept = (size_t)shard_elements(update);
    size_t summed = bucketed(update) ? kept : (size_t)update->state->layout.n_elements;
    size_t slots = (size_t)shard_slots(&update->state->layout, update->state->world_size);
    struct {
        void **ret;
        size_t n_bytes;
    } wanted[] = {
        {&update->sums, summed * update->sum_bytes},
        {&update->bucket,
         bucketed(update) ? (size_t)bucket_elements(update) * update->sum_bytes : 0},
        {(void **)&update->gradients,
         update->reduction == REDUCTION_FLOAT ? 0 : kept * sizeof(float)},
        {(void **)&update->maxima,
         (size_t)(update->share * update->n_tensors) * sizeof(*update->maxima)},
        {(void **)&update->chunk_sums, slots * sizeof(*update->chunk_sums)},
    };
    for (size_t i = 0; i < ELEMENTSOF(wanted); i++) {
        int r = wanted[i].n_bytes == 0
                    ? 0
                    : device_allocate(device, wanted[i].n_bytes, wanted[i].ret, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int allocate_host(Update *update, Error *err)
{
    const ChunkLayout *layout = &update->state->layout;
    size_t world = (size_t)update->state->world_size, share = (size_t)update->share;
    size_t tensors = (size_t)update->n_tensors;
    size_t slots = (size_t)shard_slots(layout, update->state->world_size);
    update->exponents = calloc(tensors, sizeof(*update->exponents));
    update->grain_maxima = calloc(share * tensors, sizeof(*update->grain_maxima));
    update->global_maxima = calloc(tensors, sizeof(*update->global_maxima));
    update->first_maxima = calloc(tensors, sizeof(*update->first_maxima));
    update->reports = calloc(world * share, sizeof(*update->reports));
    update->own_reports = calloc(share, sizeof(*update->own_reports));
    update->gathered = calloc(world * (1 + slots), sizeof(*update->gathered));
    bool good = update->exponents && update->grain_maxima && update->global_maxima &&
                update->first_maxima && update->reports && update->own_reports && update->gathered;
    if (good && bucketed(update)) {
        update->partial = malloc((size_t)bucket_elements(update) / world * update->sum_bytes);
        good = update->partial;
    }
    if (good && device_kind(update->state->device) != DEVICE_CPU) {
        size_t whole = (size_t)layout->n_elements * update->sum_bytes;
        size_t bucket = bucketed(update) ? (size_t)bucket_elements(update) * update->sum_bytes : 0;
        update->staging = malloc(MAX(whole, bucket));
        update->shard_sums =
            bucketed(update) ? malloc((size_t)shard_elements(update) * update->sum_bytes) : NULL;
        good = update->staging && (update->shard_sums || !bucketed(update));
    } else if (good && bucketed(update)) {
        update->shard_sums = update->sums;
    }
    return good ? 0 : error_set(err, -ENOMEM, "out of memory");
}

int update_new(TrainState *state, Comm *comm, const Job *job, Update **ret, Error *err)
{
    assert(comm_rank(comm) == state->rank && comm_size(comm) == state->world_size);
    _cleanup_(update_freep) Update *update = calloc(1, sizeof(*update));
    if (!update)
        return error_set(err, -ENOMEM, "update: out of memory");
    update->state = state;
    update->comm = comm;
    update->job = job;
    update->n_tensors = (int64_t)state->parameters->n_items;
    update->reduction = job->train.reduction;
    update->width = update->reduction == REDUCTION_EXACT64 ? SUM_64 : SUM_32;
    update->sum_bytes = (size_t)update->width / 8;
    update->sum_type = update->reduction == REDUCTION_FLOAT ? COMM_F32
                       : update->width == SUM_64            ? COMM_I64
                                                            : COMM_I32;
    update->infinite = exponent_infinite(job->train.n_grains);
    grain_share(job->train.n_grains, state->rank, state->world_size, &update->first, &update->n_own,
                &update->share);
    if (update->reduction == REDUCTION_FLOAT && device_type(state->device) != DATA_F32)
        return error_set(err, -ENOTSUP, "train.reduction: \"float\" needs precision fp32");
    int r = allocate_device(update, err);
    if (r >= 0)
        r = allocate_host(update, err);
    if (r < 0)
        return error_prefix(err, r, "update of %" PRId64 " elements, ZeRO %d",
                            state->layout.n_elements, state->zero_stage);
    *ret = TAKE_PTR(update);
    return 0;
}

Update *update_free(Update *update)
{
    if (!update)
        return NULL;
    Device *device = update->state->device;
    if (update->shard_sums != update->sums)
        free(update->shard_sums);
    device_release(device, update->sums);
    device_release(device, update->bucket);
    device_release(device, update->gradients);
    device_release(device, update->maxima);
    device_release(device, update->chunk_sums);
    free(update->staging);
    free(update->partial);
    free(update->exponents);
    free(update->grain_maxima);
    free(update->global_maxima);
    free(update->first_maxima);
    free(update->reports);
    free(update->own_reports);
    free(update->gathered);
    free(update);
    return NULL;
}

/* ---- collectives on device memory ---- */

/* Host memory with what device memory holds; on a CPU they are one. */
static int stage_in(Update *update, void *device_memory, size_t n_bytes, void **ret, Error *err)
{
    *ret = device_memory;
    if (!update->staging)
        return 0;
    *ret = update->staging;
    device_download(update->state->device, update->staging, device_memory, n_bytes);
    return device_synchronise(update->state->device, err);
}

static void stage_out(Update *update, void *device_memory, const void *host, size_t n_bytes)
{
    if (host != device_memory)
        device_upload(update->state->device, device_memory, host, n_bytes);
}

/* `r` of a collective that began at `begin_usec`. */
static int timed(Update *update, uint64_t begin_usec, int r)
{
    update->comm_usec += clock_boottime_usec() - begin_usec;
    return r;
}

/* ---- segments ---- */

typedef struct Segment {
    int64_t tensor, begin, length;
} Segment;

/* Before the first segment of [begin, ...). */
static Segment segments_from(const Update *update, int64_t begin)
{
    const ParameterList *list = update->state->parameters;
    size_t low = 0, high = list->n_items; /* the last tensor that starts at or before begin */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (list->items[middle].offset <= begin)
            low = middle;
        else
            high = middle;
    }
    return (Segment){.tensor = (int64_t)low, .begin = begin};
}

/* Chunks are powers of two of at least 2^12, so cuts at multiples of SEGMENT or of the chunk are
 * cuts at multiples of the smaller one. */
static bool segment_next(const Update *update, int64_t end, Segment *segment)
{
    const Parameter *items = update->state->parameters->items;
    int64_t cut = MIN(update->state->layout.chunk_elements, (int64_t)SEGMENT);
    segment->begin += segment->length;
    if (segment->begin >= end)
        return false;
    while (segment->begin >= items[segment->tensor].offset + items[segment->tensor].n_elements)
        segment->tensor++;
    int64_t tensor_end = items[segment->tensor].offset + items[segment->tensor].n_elements;
    int64_t cut_end = (segment->begin / cut + 1) * cut;
    segment->length = MIN(MIN(tensor_end, cut_end), end) - segment->begin;
    return true;
}

static void *sum_at(const Update *update, void *sums, int64_t i)
{
    return (char *)sums + (size_t)i * update->sum_bytes;
}

static void add_segment(Update *update, const Segment *segment, const float *gradients, void *sums)
{
    Device *device = update->state->device;
    const float *g = gradients + segment->begin;
    int exponent = update->exponents[segment->tensor];
    if (update->reduction == REDUCTION_FLOAT)
        accumulate(device, segment->length, g, sums);
    else if (update->width == SUM_64)
        quantise_add64(device, segment->length, g, exponent, sums);
    else
        quantise_add(device, segment->length, g, exponent, sums);
}

/* ---- one grain ---- */

static void find_maxima(Update *update, const float *gradients, uint32_t *maxima)
{
    Segment s = segments_from(update, 0);
    while (segment_next(update, update->state->layout.n_elements, &s))
        absolute_max(update->state->device, s.length, gradients + s.begin, &maxima[s.tensor]);
}

/* ZeRO 0 and 1. The first grain of a pass finds what is left of the last step and clears it. */
static void add_whole(Update *update, const float *gradients, uint32_t *maxima)
{
    Device *device = update->state->device;
    Segment s = segments_from(update, 0);
    while (segment_next(update, update->state->layout.n_elements, &s)) {
        void *sums = sum_at(update, update->sums, s.begin);
        if (update->n_added == 0)
            device_clear(device, sums, (size_t)s.length * update->sum_bytes);
        if (!gradients)
            continue;
        absolute_max(device, s.length, gradients + s.begin, &maxima[s.tensor]);
        add_segment(update, &s, gradients, sums);
    }
}

/* ZeRO 2: [begin, end) of all ranks' gradients into this rank's shard. begin is a multiple of the
 * chunks of one of each rank, so that chunks belong to the ranks that the comm deals them to. */
static int add_bucket(Update *update, const float *gradients, uint32_t *maxima, int64_t begin,
                      int64_t end, Error *err)
{
    Device *device = update->state->device;
    const ChunkLayout *layout = &update->state->layout;
    Segment s = segments_from(update, begin);
    while (segment_next(update, end, &s)) {
        void *sums = sum_at(update, update->bucket, s.begin - begin);
        device_clear(device, sums, (size_t)s.length * update->sum_bytes);
        if (!gradients)
            continue;
        absolute_max(device, s.length, gradients + s.begin, &maxima[s.tensor]);
        add_segment(update, &s, gradients, sums);
    }

    void *host;
    int r = stage_in(update, update->bucket, (size_t)(end - begin) * update->sum_bytes, &host, err);
    if (r < 0)
        return r;
    uint64_t t = clock_boottime_usec();
    r = timed(update, t,
              comm_reduce_scatter_dealt(update->comm, update->sum_type, host, (size_t)(end - begin),
                                        (size_t)layout->chunk_elements, update->partial, err));
    if (r < 0)
        return r;

    int world = update->state->world_size;
    int64_t first = begin / layout->chunk_elements + update->state->rank;
    for (int64_t chunk = first; chunk < layout->n_chunks; chunk += world) {
        if (chunk_begin(layout, chunk) >= end)
            break;
        int64_t slot = chunk / world;
        combine(update->sum_type, COMM_SUM,
                sum_at(update, update->shard_sums, slot * layout->chunk_elements),
                sum_at(update, update->partial, (chunk - first) / world * layout->chunk_elements),
                (size_t)chunk_length(layout, chunk));
    }
    return 0;
}

int update_add_grain(Update *update, int64_t grain, const float *gradients, double loss, Error *err)
{
    assert(update->n_added < update->share);
    assert(!gradients || grain == update->first + update->n_added);
    assert(gradients || update->n_added >= update->n_own);

    uint32_t *maxima = update->maxima + update->n_added * update->n_tensors;
    update->own_reports[update->n_added] = (GrainReport){.loss = loss, .bad = BAD_NONE};
    int r = 0;
    if (update->measuring) {
        if (gradients)
            find_maxima(update, gradients, maxima);
    } else if (!bucketed(update)) {
        add_whole(update, gradients, maxima);
    } else {
        int64_t n = update->state->layout.n_elements, step = bucket_elements(update);
        for (int64_t begin = 0; begin < n && r >= 0; begin += step)
            r = add_bucket(update, gradients, maxima, begin, MIN(begin + step, n), err);
    }
    update->n_added++;
    return r < 0 ? error_prefix(err, r, "reducing grain %" PRId64, grain) : 0;
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

static void pass_begin(Update *update)
{
    update->n_added = 0;
    update->decided = false;
    device_clear(update->state->device, update->maxima,
                 (size_t)(update->share * update->n_tensors) * sizeof(*update->maxima));
    if (bucketed(update))
        memset(update->shard_sums, 0, (size_t)shard_elements(update) * update->sum_bytes);
}

/* The EMA becomes the master once start_step steps are done. */
static void ema_start_if_due(Update *update)
{
    TrainState *state = update->state;
    if (!state->ema || state->ema_active || state->scalars.step < update->job->train.ema.start_step)
        return;
    for (int64_t chunk = keep_rank(update); chunk < state->layout.n_chunks;
         chunk += keep_world(update))
        device_copy(state->device, train_state_chunk(state, state->ema, chunk),
                    state->weights + chunk_begin(&state->layout, chunk),
                    (size_t)chunk_length(&state->layout, chunk) * sizeof(float));
    state->ema_active = true;
}

void update_begin(Update *update)
{
    const TrainScalars *scalars = &update->state->scalars;
    ema_start_if_due(update);
    update->comm_usec = 0;
    update->redone = false;
    update->measuring = scalars->n_maxima == 0 && update->reduction != REDUCTION_FLOAT;
    for (int64_t tensor = 0; tensor < update->n_tensors; tensor++)
        update->exponents[tensor] = exponent_choose(window_maximum(scalars, tensor),
                                                    update->job->train.n_grains, update->width);
    pass_begin(update);
}

/* This rank's maxima over its grains, and which of them are no numbers. */
static void report_grains(Update *update)
{
    memset(update->global_maxima, 0, (size_t)update->n_tensors * sizeof(*update->global_maxima));
    for (int64_t i = 0; i < update->n_own; i++) {
        const uint32_t *maxima = update->grain_maxima + i * update->n_tensors;
        GrainReport *report = &update->own_reports[i];
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
    size_t n = (size_t)(update->share * update->n_tensors);
    device_download(update->state->device, update->grain_maxima, update->maxima,
                    n * sizeof(*update->maxima));
    int r = device_synchronise(update->state->device, err);
    if (r < 0)
        return r;
    report_grains(update);
    uint64_t t = clock_boottime_usec();
    r = comm_all_reduce(update->comm, COMM_U32, COMM_MAX, update->global_maxima,
                        (size_t)update->n_tensors, err);
    if (r >= 0)
        r = comm_all_gather(update->comm, update->own_reports, update->reports,
                            (size_t)update->share * sizeof(GrainReport), err);
    return timed(update, t, r);
}

/* The mean loss in grain order, and the first grain that is no number. */
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
    assert(update->n_added == update->share && !update->decided);
    int r = exchange_reports(update, err);
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
        assert(!any_overflow(update)); /* exponent_infinite() saw to it */
    } else if (update->reduction != REDUCTION_FLOAT &&
               (update->measuring || any_overflow(update))) {
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

static int reduce_sums(Update *update, Error *err)
{
    const ChunkLayout *layout = &update->state->layout;
    if (bucketed(update)) {
        stage_out(update, update->sums, update->shard_sums,
                  (size_t)shard_elements(update) * update->sum_bytes);
        return 0;
    }
    size_t n = (size_t)layout->n_elements;
    void *host;
    int r = stage_in(update, update->sums, n * update->sum_bytes, &host, err);
    if (r < 0)
        return r;
    uint64_t t = clock_boottime_usec();
    if (sharded(update))
        r = comm_reduce_scatter_dealt(update->comm, update->sum_type, host, n,
                                      (size_t)layout->chunk_elements, NULL, err);
    else
        r = comm_all_reduce(update->comm, update->sum_type, COMM_SUM, host, n, err);
    timed(update, t, r);
    if (r >= 0)
        stage_out(update, update->sums, host, n * update->sum_bytes);
    return r;
}

static void *chunk_sum(const Update *update, int64_t chunk)
{
    const ChunkLayout *layout = &update->state->layout;
    int64_t at = bucketed(update) ? chunk / keep_world(update) * layout->chunk_elements
                                  : chunk_begin(layout, chunk);
    return sum_at(update, update->sums, at);
}

/* The gradient of a chunk that this rank keeps. With float sums: G times it. */
static float *chunk_gradient(const Update *update, int64_t chunk)
{
    if (update->reduction == REDUCTION_FLOAT)
        return chunk_sum(update, chunk);
    return update->gradients + chunk / keep_world(update) * update->state->layout.chunk_elements;
}

static void dequantise_chunk(Update *update, int64_t chunk)
{
    if (update->reduction == REDUCTION_FLOAT)
        return;
    Device *device = update->state->device;
    const ChunkLayout *layout = &update->state->layout;
    int64_t begin = chunk_begin(layout, chunk), end = begin + chunk_length(layout, chunk);
    double scale = 1.0 / (double)update->job->train.n_grains;
    Segment s = segments_from(update, begin);
    while (segment_next(update, end, &s)) {
        void *sums = sum_at(update, chunk_sum(update, chunk), s.begin - begin);
        float *g = chunk_gradient(update, chunk) + (s.begin - begin);
        int exponent = update->exponents[s.tensor];
        if (update->width == SUM_64)
            dequantise64(device, s.length, sums, exponent, scale, g);
        else
            dequantise(device, s.length, sums, exponent, scale, g);
    }
}

/* Squares of the owned chunks, gathered, added in chunk order; rank 0's word comes along. */
static int gather_norm(Update *update, uint32_t word, uint32_t *ret_word, double *ret_norm,
                       Error *err)
{
    TrainState *state = update->state;
    int world = state->world_size;
    size_t slots = (size_t)shard_slots(&state->layout, world);
    for (int64_t chunk = keep_rank(update); chunk < state->layout.n_chunks;
         chunk += keep_world(update)) {
        dequantise_chunk(update, chunk);
        if (chunk_owner(chunk, world) == state->rank)
            sum_of_squares(state->device, chunk_length(&state->layout, chunk),
                           chunk_gradient(update, chunk), &update->chunk_sums[chunk / world]);
    }
    uint64_t *own = update->gathered + (size_t)state->rank * (1 + slots);
    own[0] = word;
    device_download(state->device, own + 1, update->chunk_sums, slots * sizeof(double));
    int r = device_synchronise(state->device, err);
    if (r < 0)
        return r;
    uint64_t t = clock_boottime_usec();
    r = timed(update, t,
              comm_all_gather(update->comm, own, update->gathered, (1 + slots) * sizeof(*own),
                              err));
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
    *ret_word = (uint32_t)update->gathered[0];
    *ret_norm = sqrt(sum);
    return 0;
}

/* By squaring: multiplications alone, so the bits are no libm's. */
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
        .beta1 = (float)o->beta1,
        .beta2 = (float)o->beta2,
        .eps = (float)o->eps,
        .weight_decay = (float)o->weight_decay,
        .gradient_scale = (float)(clip * mean),
        .correction1 = (float)(1 - power(o->beta1, t)),
        .correction2 = (float)(1 - power(o->beta2, t)),
    };
}

static int gather_weights(Update *update, Error *err)
{
    TrainState *state = update->state;
    size_t n_bytes = (size_t)state->layout.n_elements * sizeof(float);
    void *host;
    int r = stage_in(update, state->weights, n_bytes, &host, err);
    if (r < 0)
        return r;
    uint64_t t = clock_boottime_usec();
    r = timed(update, t,
              comm_all_gather_dealt(update->comm, host, n_bytes,
                                    (size_t)state->layout.chunk_elements * sizeof(float), err));
    if (r >= 0)
        stage_out(update, state->weights, host, n_bytes);
    return r;
}

int update_apply(Update *update, uint32_t word, uint32_t *ret_word, UpdateResult *result,
                 Error *err)
{
    assert(update->decided);
    TrainState *state = update->state;
    const Job *job = update->job;
    int64_t step = state->scalars.step + 1;
    double norm = 0;
    int r = reduce_sums(update, err);
    if (r >= 0)
        r = gather_norm(update, word, ret_word, &norm, err);
    if (r < 0)
        return error_prefix(err, r, "reducing the gradients of step %" PRId64, step);

    double mean = update->reduction == REDUCTION_FLOAT ? 1.0 / (double)job->train.n_grains : 1.0;
    int64_t warmup = job->train.optimizer.warmup_steps;
    result->gradient_norm = norm * mean;
    result->lr = job->train.optimizer.lr * (step < warmup ? (double)step / (double)warmup : 1.0);
    AdamW adamw = adamw_of_step(update, result->lr, result->gradient_norm, mean);
    for (int64_t chunk = keep_rank(update); chunk < state->layout.n_chunks;
         chunk += keep_world(update)) {
        int64_t n = chunk_length(&state->layout, chunk);
        float *weights = state->weights + chunk_begin(&state->layout, chunk);
        adamw_update(state->device, &adamw, n, chunk_gradient(update, chunk), weights,
                     train_state_chunk(state, state->m, chunk),
                     train_state_chunk(state, state->v, chunk));
        if (state->ema_active)
            ema_update(state->device, (float)job->train.ema.decay, n, weights,
                       train_state_chunk(state, state->ema, chunk));
    }
    state->scalars.step = step;
    state->scalars.position = step * job->train.global_batch;
    state->scalars.adam_t++;
    window_push(&state->scalars, update->n_tensors, update->global_maxima);
    ema_start_if_due(update);
    update->decided = false;
    r = sharded(update) ? gather_weights(update, err) : 0;
    return r < 0 ? error_prefix(err, r, "gathering the weights of step %" PRId64, step) : 0;
}

uint64_t update_comm_usec(const Update *update) { return update->comm_usec; }
