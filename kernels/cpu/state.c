/* SPDX-License-Identifier: Apache-2.0 */
/* state.c - operations over whole ranges of the training state.
 *
 * Each loop processes a chunk in pieces that stay in the cache. The gradient of a piece is computed from the sums where
 * it is used, once for the squares and once for the update, and is never stored in memory. */
#include "kernels/cpu/ranges.h"

#include <stdlib.h>

enum {
    PIECE = 2048,  /* elements of one piece; a multiple of LANES */
    SEGMENTS = 64, /* partial sums of the squares of a chunk, whatever its length */
};

struct StatePlan {
    Device *device;
    StatePlanShape shape; /* shape.tensors points to this plan's own copy */
    int64_t n_chunks;
    double *parts; /* [chunks of this rank][SEGMENTS]: partial sums of squares */
};

DEFINE_CLEANUP(StatePlan, cpu_state_plan_free)

/* Returns how many of the n chunks have chunk % cycle == first. */
static int64_t every(int64_t n, int cycle, int first)
{
    return n > first ? (n - first + cycle - 1) / cycle : 0;
}

static void check_shape(const StatePlanShape *shape)
{
    int64_t end = 0;
    for (int i = 0; i < shape->n_tensors; i++) {
        assert(shape->tensors[i].offset == end && shape->tensors[i].n > 0);
        end += shape->tensors[i].n;
    }
    assert(end == shape->n_elements && shape->chunk_elements > 0);
    assert(shape->rank >= 0 && shape->rank < shape->n_ranks);
    assert(shape->shard >= 0 && shape->shard < shape->n_shards);
}

int cpu_state_plan_new(Device *device, const StatePlanShape *shape, StatePlan **ret, Error *err)
{
    check_shape(shape);
    _cleanup_(cpu_state_plan_freep) StatePlan *plan = calloc(1, sizeof(*plan));
    TensorSpan *tensors = calloc((size_t)shape->n_tensors, sizeof(*tensors));
    if (!plan || !tensors) {
        free(tensors);
        return error_set(err, -ENOMEM, "no memory for the state's plan");
    }
    memcpy(tensors, shape->tensors, (size_t)shape->n_tensors * sizeof(*tensors));
    plan->device = device;
    plan->shape = *shape;
    plan->shape.tensors = tensors;
    plan->n_chunks = DIV_ROUND_UP(shape->n_elements, shape->chunk_elements);
    const int64_t own = every(plan->n_chunks, shape->n_ranks, shape->rank);
    plan->parts = calloc((size_t)MAX(own, INT64_C(1)) * SEGMENTS, sizeof(*plan->parts));
    if (!plan->parts)
        return error_set(err, -ENOMEM, "no memory for the sums of %lld chunks", (long long)own);
    *ret = TAKE_PTR(plan);
    return 0;
}

StatePlan *cpu_state_plan_free(StatePlan *plan)
{
    if (!plan)
        return NULL;
    free((void *)plan->shape.tensors);
    free(plan->parts);
    free(plan);
    return NULL;
}

/* Returns the index of the tensor that contains element i. */
static int tensor_at(const StatePlan *plan, int64_t i)
{
    int low = 0, high = plan->shape.n_tensors;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (plan->shape.tensors[middle].offset <= i)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int64_t tensor_end(const StatePlan *plan, int tensor)
{
    return plan->shape.tensors[tensor].offset + plan->shape.tensors[tensor].n;
}

static int64_t chunk_start(const StatePlan *plan, int64_t chunk)
{
    return chunk * plan->shape.chunk_elements;
}

static int64_t chunk_size(const StatePlan *plan, int64_t chunk)
{
    return MIN(plan->shape.chunk_elements, plan->shape.n_elements - chunk_start(plan, chunk));
}

void cpu_state_count(StatePlan *plan, const float *gradient, int64_t begin, int64_t end,
                     const GradientSink *sink)
{
    assert(begin >= 0 && end <= plan->shape.n_elements);
    for (int64_t i = begin, n; i < end; i += n) {
        const int tensor = tensor_at(plan, i);
        n = MIN(tensor_end(plan, tensor), end) - i;
        sink_range(plan->device, gradient + (i - begin), n, i, tensor, sink);
    }
}

/* Returns the gradient of elements [begin, begin + n) of the state, which all lie in one chunk. If the sums are fp32,
 * they are the gradient; otherwise the function computes the gradient from the sums and stores it in `buffer`. */
static const float *piece_gradient(const StatePlan *plan, const GradientSums *sums, int64_t begin,
                                   int64_t n, float buffer[PIECE])
{
    const int64_t chunk = begin / plan->shape.chunk_elements;
    const int64_t in_shard = chunk / plan->shape.n_shards * plan->shape.chunk_elements +
                             (begin - chunk_start(plan, chunk));
    const int64_t at = sums->is_shard ? in_shard : begin;
    assert(n <= PIECE && (!sums->is_shard || chunk % plan->shape.n_shards == plan->shape.shard));
    if (sums->type == SUM_F32)
        return (const float *)sums->data + at;
    int tensor = tensor_at(plan, begin);
    for (int64_t i = 0, length; i < n; i += length, tensor++) {
        const int exponent = sums->exponents[tensor];
        length = MIN(tensor_end(plan, tensor) - begin, n) - i;
        if (sums->type == SUM_I64)
            range_mean64(length, (const int64_t *)sums->data + at + i, exponent, sums->scale,
                         buffer + i);
        else
            range_mean(length, (const int32_t *)sums->data + at + i, exponent, sums->scale,
                       buffer + i);
    }
    return buffer;
}

/* Returns the sum of the squared gradients in segment s of the chunk. */
static double segment_squares(const StatePlan *plan, const GradientSums *sums, int64_t chunk, int s)
{
    const int64_t length = chunk_size(plan, chunk), begin = chunk_start(plan, chunk);
    const int64_t each = ROUND_UP(DIV_ROUND_UP(length, (int64_t)SEGMENTS), (int64_t)LANES);
    const int64_t first = MIN(s * each, length), end = MIN(first + each, length);
    double lane[LANES] = {0};
    float buffer[PIECE];

    for (int64_t i = first; i < end; i += PIECE) {
        const int64_t n = MIN((int64_t)PIECE, end - i);
        squares_add(n, piece_gradient(plan, sums, begin + i, n, buffer), lane);
    }
    return lanes_sum_double(lane);
}

void cpu_state_squares(StatePlan *plan, const GradientSums *sums, double *squares)
{
    const StatePlanShape *shape = &plan->shape;
    const int64_t own = every(plan->n_chunks, shape->n_ranks, shape->rank);
    const int team = device_team(plan->device, own * shape->chunk_elements);

#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t i = 0; i < own * SEGMENTS; i++)
        plan->parts[i] = segment_squares(plan, sums, shape->rank + i / SEGMENTS * shape->n_ranks,
                                         (int)(i % SEGMENTS));
    for (int64_t slot = 0; slot < own; slot++) {
        double total = 0;
        for (int s = 0; s < SEGMENTS; s++)
            total += plan->parts[slot * SEGMENTS + s];
        squares[slot] = total;
    }
}

void cpu_state_update(StatePlan *plan, const AdamW *adamw, double ema_decay,
                      const GradientSums *sums, float *weights, float *m, float *v, float *ema)
{
    const StatePlanShape *shape = &plan->shape;
    const int64_t kept = every(plan->n_chunks, shape->n_shards, shape->shard);
    const int64_t pieces = DIV_ROUND_UP(shape->chunk_elements, (int64_t)PIECE);
    const int team = device_team(plan->device, kept * shape->chunk_elements * 4);

#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t i = 0; i < kept * pieces; i++) {
        const int64_t slot = i / pieces, first = i % pieces * PIECE;
        const int64_t chunk = shape->shard + slot * shape->n_shards;
        const int64_t n = MIN((int64_t)PIECE, chunk_size(plan, chunk) - first);
        if (n <= 0)
            continue;
        const int64_t begin = chunk_start(plan, chunk) + first;
        const int64_t at = slot * shape->chunk_elements + first;
        float buffer[PIECE];
        range_adamw(adamw, n, piece_gradient(plan, sums, begin, n, buffer), weights + begin, m + at,
                    v + at);
        if (ema)
            range_ema(ema_decay, n, weights + begin, ema + at);
    }
}
