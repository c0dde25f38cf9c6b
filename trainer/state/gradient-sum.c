/* SPDX-License-Identifier: Apache-2.0 */
/* gradient-sum.c - see gradient-sum.h.
 *
 * A grain's gradient is cut into segments: a tensor's part within a chunk, at most SEGMENT long, so
 * that it is still in the cache when after its maximum its integers are added. The sums lie in flat
 * order (ZeRO 0 and 1) or, reduced bucket by bucket, as this rank's shard (ZeRO 2). */

#include "trainer/state/gradient-sum.h"

#include "trainer/comm/combine.h"

#include <string.h>

enum {
    SEGMENT = 1 << 15,
    BUCKET_BYTES = 4 << 20, /* reduced at once, or one chunk a rank if that is more */
};

struct GradientSum {
    TrainState *state;
    DeviceComm *dc;
    Reduction reduction;
    int64_t n_grains;
    CommType type;
    const int *exponents; /* NULL: this pass finds maxima alone */
    bool fresh;           /* nothing was added yet in this pass */

    /* Device memory. */
    void *sums;       /* whole, flat (ZeRO 0, 1) or shard */
    void *bucket;     /* ZeRO 2 */
    float *gradients; /* one chunk's, made when it is asked for; NULL when the sums are floats */

    /* Host memory, ZeRO 2. */
    void *shard_sums; /* `sums` on a CPU */
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

/* Whole rows of one chunk of each rank. */
static int64_t bucket_elements(const TrainState *state, CommType type)
{
    int64_t row = state->layout.chunk_elements * state->world_size;
    int64_t rows = MAX(BUCKET_BYTES / (row * (int64_t)comm_type_bytes(type)), INT64_C(1));
    return MIN(rows * row, ROUND_UP(state->layout.n_elements, row));
}

static int allocate(GradientSum *sum, Error *err)
{
    TrainState *state = sum->state;
    size_t bytes = element_bytes(sum), shard = (size_t)shard_elements(state);
    size_t summed = bucketed(state) ? shard : (size_t)state->layout.n_elements;
    size_t bucket = bucketed(state) ? (size_t)bucket_elements(state, sum->type) : 0;
    int r = device_allocate(state->device, summed * bytes, &sum->sums, err);
    if (r >= 0 && sum->reduction != REDUCTION_FLOAT)
        r = device_allocate(state->device, (size_t)state->layout.chunk_elements * sizeof(float),
                            (void **)&sum->gradients, err);
    if (r < 0 || !bucketed(state))
        return r;

    r = device_allocate(state->device, bucket * bytes, &sum->bucket, err);
    if (r < 0)
        return r;
    sum->partial = malloc(bucket / (size_t)state->world_size * bytes);
    sum->shard_sums = device_kind(state->device) == DEVICE_CPU ? sum->sums : malloc(shard * bytes);
    return sum->partial && sum->shard_sums ? 0 : error_set(err, -ENOMEM, "out of memory");
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
        free(sum->shard_sums);
    free(sum->partial);
    device_release(device, sum->sums);
    device_release(device, sum->bucket);
    device_release(device, sum->gradients);
    free(sum);
    return NULL;
}

/* ---- segments ---- */

typedef struct SumSegment {
    int64_t tensor, begin, length;
} SumSegment;

/* Before the first segment of [begin, ...). */
static SumSegment segments_from(const GradientSum *sum, int64_t begin)
{
    const ParameterList *list = sum->state->parameters;
    size_t low = 0, high = list->n_items; /* the last tensor that starts at or before begin */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (list->items[middle].offset <= begin)
            low = middle;
        else
            high = middle;
    }
    return (SumSegment){.tensor = (int64_t)low, .begin = begin};
}

/* Chunks are powers of two of at least 2^12, so cuts at multiples of SEGMENT or of the chunk are
 * cuts at multiples of the smaller one. */
static bool segment_next(const GradientSum *sum, int64_t end, SumSegment *segment)
{
    const Parameter *items = sum->state->parameters->items;
    int64_t cut = MIN(sum->state->layout.chunk_elements, (int64_t)SEGMENT);
    segment->begin += segment->length;
    if (segment->begin >= end)
        return false;
    while (segment->begin >= items[segment->tensor].offset + items[segment->tensor].n_elements)
        segment->tensor++;
    int64_t tensor_end = items[segment->tensor].offset + items[segment->tensor].n_elements;
    int64_t cut_end = (segment->begin / cut + 1) * cut;
    segment->length = MIN(MIN(tensor_end, cut_end), end) - segment->begin;
    assert(segment->length > 0 && segment->begin >= items[segment->tensor].offset);
    return true;
}

static void *element(const GradientSum *sum, void *sums, int64_t i)
{
    return (char *)sums + (size_t)i * element_bytes(sum);
}

/* ---- adding a grain ---- */

void gradient_sum_begin(GradientSum *sum, const int *exponents)
{
    sum->exponents = exponents;
    sum->fresh = true;
    if (exponents && bucketed(sum->state))
        memset(sum->shard_sums, 0, (size_t)shard_elements(sum->state) * element_bytes(sum));
}

static void quantise_segment(GradientSum *sum, const SumSegment *segment, const float *g,
                             void *sums)
{
    Device *device = sum->state->device;
    int exponent = sum->exponents[segment->tensor];
    switch (sum->reduction) {
    case REDUCTION_FLOAT:
        accumulate(device, segment->length, g, sums);
        break;
    case REDUCTION_EXACT64:
        quantise_add64(device, segment->length, g, exponent, sums);
        break;
    case REDUCTION_EXACT:
        quantise_add(device, segment->length, g, exponent, sums);
        break;
    }
}

static void find_maxima(GradientSum *sum, const float *gradients, uint32_t *maxima)
{
    SumSegment s = segments_from(sum, 0);
    while (segment_next(sum, sum->state->layout.n_elements, &s))
        absolute_max(sum->state->device, s.length, gradients + s.begin, &maxima[s.tensor]);
}

/* Adds [begin, end) to sums, which begin with element `begin`, and which are cleared before. */
static void add_range(GradientSum *sum, const float *gradients, uint32_t *maxima, int64_t begin,
                      int64_t end, bool clear, void *sums)
{
    Device *device = sum->state->device;
    SumSegment s = segments_from(sum, begin);
    while (segment_next(sum, end, &s)) {
        void *to = element(sum, sums, s.begin - begin);
        if (clear)
            device_clear(device, to, (size_t)s.length * element_bytes(sum));
        if (!gradients)
            continue;
        absolute_max(device, s.length, gradients + s.begin, &maxima[s.tensor]);
        quantise_segment(sum, &s, gradients + s.begin, to);
    }
}

/* [begin, end) of all ranks' gradients into this rank's shard. begin is at a row, so that chunks
 * belong to the ranks that the comm deals them to. */
static int add_bucket(GradientSum *sum, const float *gradients, uint32_t *maxima, int64_t begin,
                      int64_t end, Error *err)
{
    const ChunkLayout *layout = &sum->state->layout;
    int world = sum->state->world_size;
    assert(begin % (layout->chunk_elements * world) == 0 && end > begin);
    add_range(sum, gradients, maxima, begin, end, true, sum->bucket);
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

int gradient_sum_add(GradientSum *sum, const float *gradients, uint32_t *maxima, Error *err)
{
    int64_t n = sum->state->layout.n_elements;
    if (!sum->exponents) {
        if (gradients)
            find_maxima(sum, gradients, maxima);
        return 0;
    }
    if (!bucketed(sum->state)) { /* the first grain finds what is left of the last step */
        add_range(sum, gradients, maxima, 0, n, sum->fresh, sum->sums);
        sum->fresh = false;
        return 0;
    }
    int64_t step = bucket_elements(sum->state, sum->type);
    for (int64_t begin = 0; begin < n; begin += step) {
        int r = add_bucket(sum, gradients, maxima, begin, MIN(begin + step, n), err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- the reduced gradient ---- */

static void *chunk_sums(const GradientSum *sum, int64_t chunk)
{
    const ChunkLayout *layout = &sum->state->layout;
    int64_t at = bucketed(sum->state) ? chunk / sum->state->world_size * layout->chunk_elements
                                      : chunk_begin(layout, chunk);
    return element(sum, sum->sums, at);
}

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
        device_upload(state->device, sum->sums, sum->shard_sums,
                      (size_t)shard_elements(state) * element_bytes(sum));
    return r;
}

/* Twice a step, for the norm and for the update: less traffic than a second copy of all of them. */
float *gradient_sum_chunk(const GradientSum *sum, int64_t chunk)
{
    assert(sum->exponents && train_state_keeps(sum->state, chunk));
    if (sum->reduction == REDUCTION_FLOAT)
        return chunk_sums(sum, chunk);
    Device *device = sum->state->device;
    const ChunkLayout *layout = &sum->state->layout;
    int64_t begin = chunk_begin(layout, chunk), end = begin + chunk_length(layout, chunk);
    double mean = 1.0 / (double)sum->n_grains;
    SumSegment s = segments_from(sum, begin);
    while (segment_next(sum, end, &s)) {
        void *sums = element(sum, chunk_sums(sum, chunk), s.begin - begin);
        float *g = sum->gradients + (s.begin - begin);
        if (sum->reduction == REDUCTION_EXACT64)
            dequantise64(device, s.length, sums, sum->exponents[s.tensor], mean, g);
        else
            dequantise(device, s.length, sums, sum->exponents[s.tensor], mean, g);
    }
    return sum->gradients;
}
