/* SPDX-License-Identifier: Apache-2.0 */
/* gradient-sum.c - see gradient-sum.h.
 *
 * The sums lie in flat order (ZeRO 0 and 1) or, reduced bucket by bucket, as this rank's shard (ZeRO 2). */

#include "trainer/state/gradient-sum.h"

#include "trainer/comm/combine.h"
#include "trainer/state/device-staging.h"

#include <string.h>

size_t gradient_sum_bucket_bytes = 4 << 20;

struct GradientSum {
    TrainState *state;
    DeviceComm *dc;
    StatePlan *plan;
    Reduction reduction;
    int64_t n_grains;
    CommType type;
    const int32_t *exponents; /* NULL: this pass finds only maxima */
    bool fresh;               /* nothing has been added in this pass */

    /* Device memory. */
    void *sums; /* all sums, flat (ZeRO 0, 1), or the shard (ZeRO 2) */
    /* the words 0 and 1: a sink points to the word with the value of its `fresh`, so no word is ever changed */
    uint32_t *fresh_words;
    float *gradients; /* ZeRO 2: a grain's gradients, flat */
    void *bucket;     /* ZeRO 2: the counted gradients of one bucket */

    /* Host memory, ZeRO 2. */
    void *shard_sums; /* the same memory as `sums` on a CPU */
    void *partial;    /* this rank's part of a bucket */
};

static CommType type_of(Reduction reduction)
{
    switch (reduction) {
    case REDUCTION_EXACT64:
        return COMM_I64;
    case REDUCTION_FLOAT:
        return COMM_F32;
    case REDUCTION_EXACT:
        break;
    }
    return COMM_I32;
}

static size_t element_bytes(const GradientSum *sum) { return comm_type_bytes(sum->type); }
static bool bucketed(const TrainState *state) { return state->zero_stage == 2; }

static int64_t shard_elements(const TrainState *state)
{
    return shard_slots(&state->layout, train_state_shards(state)) * state->layout.chunk_elements;
}

/* Returns the number of elements of a bucket, which has whole rows. A row has one chunk of each rank. */
static int64_t bucket_elements(const TrainState *state, CommType type)
{
    int64_t row = state->layout.chunk_elements * state->world_size;
    int64_t rows = MAX((int64_t)gradient_sum_bucket_bytes / (row * (int64_t)comm_type_bytes(type)),
                       INT64_C(1));
    return MIN(rows * row, ROUND_UP(state->layout.n_elements, row));
}

static int make_plan(GradientSum *sum, Error *err)
{
    const TrainState *state = sum->state;
    const int shards = train_state_shards(state);
    const StatePlanShape cut = {.chunk_elements = state->layout.chunk_elements,
                                .n_ranks = state->world_size,
                                .rank = state->rank,
                                .n_shards = shards,
                                .shard = state->rank % shards};
    return parameter_list_plan(state->parameters, state->device, cut, &sum->plan, err);
}

static int allocate_words(GradientSum *sum, Error *err)
{
    static const uint32_t words[] = {0, 1};
    _cleanup_(device_staging_freep) DeviceStaging *staging = NULL;
    int r = device_allocate(sum->state->device, sizeof(words), (void **)&sum->fresh_words, err);
    if (r == 0)
        r = device_staging_new(sum->state->device, &staging, err);
    return r < 0 ? r
                 : device_staging_upload(staging, sum->fresh_words, words, sizeof(words),
                                         "preparing the sums of gradients", err);
}

static int allocate_buckets(GradientSum *sum, Error *err)
{
    TrainState *state = sum->state;
    const size_t bytes = element_bytes(sum), shard = (size_t)shard_elements(state) * bytes;
    const size_t bucket = (size_t)bucket_elements(state, sum->type) * bytes;
    int r = device_allocate(state->device, (size_t)state->layout.n_elements * sizeof(float),
                            (void **)&sum->gradients, err);
    if (r >= 0)
        r = device_allocate(state->device, bucket, &sum->bucket, err);
    if (r >= 0 && device_kind(state->device) == DEVICE_CPU)
        sum->shard_sums = sum->sums;
    else if (r >= 0)
        r = device_host_allocate(state->device, shard, &sum->shard_sums,
                                 err); /* the whole shard is sent to the device */
    if (r < 0)
        return r;
    sum->partial = malloc(bucket / (size_t)state->world_size);
    return sum->partial ? 0 : error_set(err, -ENOMEM, "out of memory");
}

static int allocate(GradientSum *sum, Error *err)
{
    TrainState *state = sum->state;
    const int64_t n = bucketed(state) ? shard_elements(state) : state->layout.n_elements;
    int r = make_plan(sum, err);
    if (r >= 0)
        r = allocate_words(sum, err);
    if (r >= 0)
        r = device_allocate(state->device, (size_t)n * element_bytes(sum), &sum->sums, err);
    return r < 0 || !bucketed(state) ? r : allocate_buckets(sum, err);
}

int gradient_sum_new(TrainState *state, DeviceComm *dc, Reduction reduction, int64_t n_grains,
                     GradientSum **ret, Error *err)
{
    _cleanup_(gradient_sum_freep) GradientSum *sum = calloc(1, sizeof(*sum));
    if (!sum)
        return error_set(err, -ENOMEM, "sum of gradients: out of memory");
    *sum = (GradientSum){.state = state,
                         .dc = dc,
                         .reduction = reduction,
                         .n_grains = n_grains,
                         .type = type_of(reduction)};
    if (reduction == REDUCTION_FLOAT && device_type(state->device) != DATA_F32)
        return error_set(err, -ENOTSUP, "train.reduction: \"float\" needs precision fp32");
    int r = allocate(sum, err);
    if (r < 0)
        return error_prefix(err, r, "sum of %lld gradients, ZeRO %d",
                            (long long)state->layout.n_elements, state->zero_stage);
    *ret = TAKE_PTR(sum);
    return 0;
}

GradientSum *gradient_sum_free(GradientSum *sum)
{
    if (!sum)
        return NULL;
    Device *device = sum->state->device;
    if (sum->shard_sums != sum->sums)
        device_host_release(device, sum->shard_sums);
    free(sum->partial);
    sum->plan = state_plan_free(sum->plan);
    device_release(device, sum->sums);
    device_release(device, sum->fresh_words);
    device_release(device, sum->gradients);
    device_release(device, sum->bucket);
    free(sum);
    return NULL;
}

static void *element(const GradientSum *sum, void *sums, int64_t i)
{
    return (char *)sums + (size_t)i * element_bytes(sum);
}

/* ---- adding a grain ---- */

void gradient_sum_begin(GradientSum *sum, const int32_t *exponents)
{
    sum->exponents = exponents;
    sum->fresh = true;
    if (exponents && bucketed(sum->state))
        memset(sum->shard_sums, 0, (size_t)shard_elements(sum->state) * element_bytes(sum));
}

/* Makes a sink into `to`, whose first element is the state's element `first`. */
static GradientSink summing_sink(const GradientSum *sum, uint32_t *maxima, void *to, int64_t first,
                                 bool fresh)
{
    return (GradientSink){.kind = sum->reduction == REDUCTION_FLOAT ? SINK_ADD : SINK_COUNT,
                          .bits = sum->reduction == REDUCTION_EXACT64 ? 64 : 32,
                          .to = to,
                          .first = first,
                          .exponents = sum->exponents,
                          .maxima = maxima,
                          .fresh = &sum->fresh_words[fresh ? 1 : 0]};
}

void gradient_sum_sink(GradientSum *sum, uint32_t *maxima, GradientSink *ret)
{
    if (!sum->exponents)
        *ret = (GradientSink){.kind = SINK_MAXIMA, .maxima = maxima};
    else if (bucketed(sum->state))
        *ret = (GradientSink){.kind = SINK_PLAIN, .to = sum->gradients};
    else
        *ret = summing_sink(sum, maxima, sum->sums, 0, sum->fresh);
}

/* Adds [begin, end) of all ranks' gradients to this rank's shard. begin is the beginning of a row, so that the comm
 * deals each chunk to the rank that owns it. */
static int add_bucket(GradientSum *sum, bool has_grain, uint32_t *maxima, int64_t begin,
                      int64_t end, Error *err)
{
    const ChunkLayout *layout = &sum->state->layout;
    int world = sum->state->world_size;
    assert(begin % (layout->chunk_elements * world) == 0 && end > begin);
    const GradientSink sink = summing_sink(sum, maxima, sum->bucket, begin, true);
    if (has_grain)
        state_count(sum->plan, sum->gradients + begin, begin, end, &sink);
    else
        device_clear(sum->state->device, sum->bucket, (size_t)(end - begin) * element_bytes(sum));
    const DeviceCommCall call =
        device_reduce_scatter_dealt(sum->type, sum->bucket, (size_t)(end - begin),
                                    (size_t)layout->chunk_elements, sum->partial);
    int r = device_comm_run(sum->dc, &call, err);
    if (r < 0)
        return r;
    int64_t first = begin / layout->chunk_elements + sum->state->rank;
    for (int64_t chunk = first; chunk < layout->n_chunks; chunk += world) {
        if (chunk_begin(layout, chunk) >= end)
            break;
        combine(sum->type, COMM_SUM,
                element(sum, sum->shard_sums, chunk / world * layout->chunk_elements),
                element(sum, sum->partial, (chunk - first) / world * layout->chunk_elements),
                (size_t)chunk_length(layout, chunk));
    }
    return 0;
}

int gradient_sum_add(GradientSum *sum, bool has_grain, uint32_t *maxima, Error *err)
{
    const int64_t n = sum->state->layout.n_elements;
    if (!sum->exponents || !bucketed(sum->state)) { /* the sink has added the grain */
        assert(has_grain || !sum->fresh);
        sum->fresh = false;
        return 0;
    }
    const int64_t step = bucket_elements(sum->state, sum->type);
    for (int64_t begin = 0; begin < n; begin += step) {
        int r = add_bucket(sum, has_grain, maxima, begin, MIN(begin + step, n), err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- the reduced gradient ---- */

void gradient_sum_begin_reduce(GradientSum *sum)
{
    TrainState *state = sum->state;
    const size_t n = (size_t)state->layout.n_elements;
    assert(sum->exponents);
    if (bucketed(state)) /* each bucket was reduced when it was full */
        return;
    const DeviceCommCall call =
        state->zero_stage == 0
            ? device_all_reduce(sum->type, sum->sums, n)
            : device_reduce_scatter_dealt(sum->type, sum->sums, n,
                                          (size_t)state->layout.chunk_elements, NULL);
    device_comm_begin(sum->dc, &call);
}

int gradient_sum_finish_reduce(GradientSum *sum, Error *err)
{
    TrainState *state = sum->state;
    int r = device_comm_finish(sum->dc, err);
    if (r == 0 && sum->exponents && bucketed(state) && sum->shard_sums != sum->sums)
        /* the lane computes the squares after this copy */
        device_send(state->device, LANE_COMPUTE, sum->sums, sum->shard_sums,
                    (size_t)shard_elements(state) * element_bytes(sum));
    return r;
}

GradientSums gradient_sum_reduced(const GradientSum *sum)
{
    assert(sum->exponents);
    return (GradientSums){.data = sum->sums,
                          .type = sum->type == COMM_I64   ? SUM_I64
                                  : sum->type == COMM_F32 ? SUM_F32
                                                          : SUM_I32,
                          .is_shard = bucketed(sum->state),
                          .exponents = sum->exponents,
                          .scale = 1.0 / (double)sum->n_grains};
}

StatePlan *gradient_sum_plan(GradientSum *sum) { return sum->plan; }
