/* SPDX-License-Identifier: Apache-2.0 */
/* state.cu - gradients into their sink, and the whole-range operations of the training state.
 *
 * Integer sums and maxima do not depend on an order, so atomics are exact. Everything here has the bits that a CPU
 * gives: for the same gradients, a GPU's sums, norm and weights are a CPU's. */
#include "kernels/count.h"
#include "kernels/cuda/kernel.cuh"
#include "kernels/cuda/operations.h"

#include <math.h>
#include <stdlib.h>

enum { SEGMENTS = 64 }; /* partial sums of a chunk's squares */

/* ---- sinks ---- */

/* One element; returns its magnitude for the maximum. */
__device__ static inline uint32_t sink_element(const GradientSink &sink, float g, int64_t element,
                                               int exponent, bool fresh)
{
    const int64_t at = element - sink.first;
    switch (sink.kind) {
    case SINK_PLAIN:
        ((float *)sink.to)[at] = g;
        break;
    case SINK_ADD: {
        float *to = (float *)sink.to + at;
        *to = (fresh ? 0.0f : *to) + g;
        break;
    }
    case SINK_COUNT:
        if (sink.bits == 64) {
            uint64_t *to = (uint64_t *)sink.to + at;
            *to = (fresh ? 0 : *to) + (uint64_t)count_one64(g, power_of_two(exponent));
        } else {
            uint32_t *to = (uint32_t *)sink.to + at;
            *to = (fresh ? 0 : *to) + (uint32_t)count_one(g, (float)power_of_two(exponent));
        }
        break;
    case SINK_MAXIMA:
        break;
    }
    return magnitude_bits(g);
}

/* Raises *to to the largest of the block's threads. */
__device__ static inline void raise_maximum(uint32_t most, uint32_t *to)
{
    for (int mask = 16; mask > 0; mask /= 2) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, most, mask);
        most = MAX(most, other);
    }
    if (threadIdx.x % 32 == 0 && most > 0)
        atomicMax(to, most);
}

/* blockIdx.y: the tensor of the place. */
template <typename G>
__global__ void gradient_take_kernel(GradientForm form, const G *gradient, GradientPlace place,
                                     GradientSink sink)
{
    const int64_t each = place.n / place.n_tensors, first = each * blockIdx.y;
    const int tensor = place.tensor + (int)blockIdx.y;
    const int exponent = sink.kind == SINK_COUNT ? sink.exponents[tensor] : 0;
    const bool fresh = sink.fresh && *sink.fresh != 0;
    uint32_t most = 0;
    FOR_ELEMENTS(i, each)
    {
        int64_t from = first + i;
        if (form.order == GRADIENT_CHANNELS_LAST) {
            const int64_t row = (int64_t)form.in * form.taps, rest = from % row;
            from = from - rest + rest % form.taps * form.in + rest / form.taps;
        }
        const uint32_t bits =
            sink_element(sink, widen(gradient[from]), place.offset + first + i, exponent, fresh);
        most = MAX(most, bits);
    }
    if (sink.kind != SINK_PLAIN)
        raise_maximum(most, sink.maxima + tensor);
}

void cuda_gradient_take(Device *device, const GradientForm *form, const void *gradient,
                        const GradientPlace *place, const GradientSink *sink)
{
    assert(place->n == (int64_t)form->out * form->in * form->taps);
    assert(place->n_tensors > 0 && form->out % place->n_tensors == 0);
    const dim3 grid(blocks_for(place->n / place->n_tensors), (unsigned)place->n_tensors);
    if (form->type == DATA_BF16)
        LAUNCH(device, grid, THREADS, 0, gradient_take_kernel<Bf16>, *form, (const Bf16 *)gradient,
               *place, *sink);
    else
        LAUNCH(device, grid, THREADS, 0, gradient_take_kernel<float>, *form,
               (const float *)gradient, *place, *sink);
}

/* ---- the plan ---- */

/* What the kernels want of a StatePlanShape. */
struct Layout {
    const int64_t *offsets; /* of tensors, and the end; device memory */
    int n_tensors;
    int64_t n_elements, chunk_elements;
    int n_ranks, rank, n_shards, shard;
};

struct StatePlan {
    Device *device;
    Layout layout;
    double *parts; /* [chunks of this rank][SEGMENTS], device memory */
};

/* Of n chunks, how many c have c mod cycle == first. */
static int64_t every(int64_t n, int cycle, int first)
{
    return n > first ? (n - first + cycle - 1) / cycle : 0;
}

static int64_t n_chunks(const Layout &layout)
{
    return DIV_ROUND_UP(layout.n_elements, layout.chunk_elements);
}

static int plan_upload(StatePlan *plan, const StatePlanShape *shape, Error *err)
{
    const size_t n = (size_t)shape->n_tensors + 1;
    int64_t *offsets = (int64_t *)calloc(n, sizeof(*offsets));
    if (!offsets)
        return error_set(err, -ENOMEM, "no memory for the state's plan");
    for (int i = 0; i < shape->n_tensors; i++)
        offsets[i] = shape->tensors[i].offset;
    offsets[n - 1] = shape->n_elements;
    void *memory = NULL;
    int r = device_allocate(plan->device, n * sizeof(*offsets), &memory, err);
    if (r == 0)
        device_upload(plan->device, memory, offsets, n * sizeof(*offsets));
    plan->layout.offsets = (const int64_t *)memory;
    free(offsets);
    return r;
}

int cuda_state_plan_new(Device *device, const StatePlanShape *shape, StatePlan **ret, Error *err)
{
    StatePlan *plan = (StatePlan *)calloc(1, sizeof(*plan));
    if (!plan)
        return error_set(err, -ENOMEM, "no memory for the state's plan");
    plan->device = device;
    plan->layout =
        Layout{NULL,           shape->n_tensors, shape->n_elements, shape->chunk_elements,
               shape->n_ranks, shape->rank,      shape->n_shards,   shape->shard};
    const int64_t own = every(n_chunks(plan->layout), shape->n_ranks, shape->rank);
    void *parts = NULL;
    int r = plan_upload(plan, shape, err);
    if (r == 0)
        r = device_allocate(device, (size_t)MAX(own, (int64_t)1) * SEGMENTS * sizeof(double),
                            &parts, err);
    plan->parts = (double *)parts;
    if (r < 0) {
        (void)cuda_state_plan_free(plan);
        return r;
    }
    *ret = plan;
    return 0;
}

StatePlan *cuda_state_plan_free(StatePlan *plan)
{
    if (!plan)
        return NULL;
    device_release(plan->device, (void *)plan->layout.offsets);
    device_release(plan->device, plan->parts);
    free(plan);
    return NULL;
}

/* The tensor that element i lies in. */
__device__ static inline int tensor_at(const Layout &layout, int64_t i)
{
    int low = 0, high = layout.n_tensors;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (layout.offsets[middle] <= i)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* blockIdx.x takes THREADS * 16 elements, most often of one tensor: one atomic a warp. */
enum { COUNT_ELEMENTS = THREADS * 16 };

__global__ void state_count_kernel(Layout layout, const float *gradient, int64_t begin, int64_t end,
                                   GradientSink sink)
{
    const int64_t first = begin + (int64_t)blockIdx.x * COUNT_ELEMENTS;
    const int64_t last = MIN(first + COUNT_ELEMENTS, end);
    const bool fresh = sink.fresh && *sink.fresh != 0;
    const int tensor = tensor_at(layout, first);
    const bool alone = last <= layout.offsets[tensor + 1];
    uint32_t most = 0;
    for (int64_t i = first + threadIdx.x; i < last; i += THREADS) {
        const int mine = alone ? tensor : tensor_at(layout, i);
        const int exponent = sink.kind == SINK_COUNT ? sink.exponents[mine] : 0;
        const uint32_t bits = sink_element(sink, gradient[i - begin], i, exponent, fresh);
        if (alone)
            most = MAX(most, bits);
        else if (sink.kind != SINK_PLAIN)
            atomicMax(sink.maxima + mine, bits);
    }
    if (alone && sink.kind != SINK_PLAIN)
        raise_maximum(most, sink.maxima + tensor);
}

void cuda_state_count(StatePlan *plan, const float *gradient, int64_t begin, int64_t end,
                      const GradientSink *sink)
{
    assert(begin >= 0 && end <= plan->layout.n_elements);
    if (begin >= end)
        return;
    Device *device = plan->device;
    LAUNCH(device, (unsigned)DIV_ROUND_UP(end - begin, (int64_t)COUNT_ELEMENTS), THREADS, 0,
           state_count_kernel, plan->layout, gradient, begin, end, *sink);
}

/* ---- the reduced gradient ---- */

/* Of element i of the state, which lies in a chunk of this rank's shard. */
__device__ static inline float mean_gradient(const Layout &layout, const GradientSums &sums,
                                             int64_t i)
{
    const int64_t chunk = i / layout.chunk_elements;
    const int64_t in_shard =
        chunk / layout.n_shards * layout.chunk_elements + i % layout.chunk_elements;
    const int64_t at = sums.is_shard ? in_shard : i;
    if (sums.type == SUM_F32)
        return ((const float *)sums.data)[at];
    const double factor = power_of_two(-sums.exponents[tensor_at(layout, i)]);
    const double sum = sums.type == SUM_I64 ? (double)((const int64_t *)sums.data)[at]
                                            : (double)((const int32_t *)sums.data)[at];
    return (float)(sum * factor * sums.scale);
}

/* grid: x group of SEGMENTS_EACH segments, y slot. A segment has LANES threads, whose chains and tree are those of
 * a CPU's LANES lanes: the squares have the same bits on both. */
enum { SEGMENTS_EACH = THREADS / LANES };

__global__ void state_squares_kernel(Layout layout, GradientSums sums, double *parts)
{
    const int64_t begin =
        (layout.rank + (int64_t)blockIdx.y * layout.n_ranks) * layout.chunk_elements;
    const int64_t length = MIN(layout.chunk_elements, layout.n_elements - begin);
    const int64_t each = ROUND_UP(DIV_ROUND_UP(length, (int64_t)SEGMENTS), (int64_t)LANES);
    const int segment = (int)blockIdx.x * SEGMENTS_EACH + (int)threadIdx.x / LANES;
    const int64_t first = MIN(segment * each, length), end = MIN(first + each, length);
    double sum = 0;
    for (int64_t i = first + threadIdx.x % LANES; i < end; i += LANES) {
        const double g = (double)mean_gradient(layout, sums, begin + i);
        sum += g * g;
    }
    for (int mask = LANES / 2; mask > 0; mask /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    if (threadIdx.x % LANES == 0)
        parts[(int64_t)blockIdx.y * SEGMENTS + segment] = sum;
}

__global__ void state_squares_sum_kernel(int64_t n, const double *parts, double *squares)
{
    FOR_ELEMENTS(slot, n)
    {
        double sum = 0;
        for (int i = 0; i < SEGMENTS; i++)
            sum += parts[slot * SEGMENTS + i];
        squares[slot] = sum;
    }
}

void cuda_state_squares(StatePlan *plan, const GradientSums *sums, double *squares)
{
    Device *device = plan->device;
    const Layout layout = plan->layout;
    const int64_t own = every(n_chunks(layout), layout.n_ranks, layout.rank);
    if (own == 0)
        return;
    const dim3 grid(SEGMENTS / SEGMENTS_EACH, (unsigned)own);
    LAUNCH(device, grid, THREADS, 0, state_squares_kernel, layout, *sums, plan->parts);
    LAUNCH(device, blocks_for(own), THREADS, 0, state_squares_sum_kernel, own,
           (const double *)plan->parts, squares);
}

/* AdamW with what its kernel wants of it computed once, as on a CPU. */
struct Rates {
    float beta1, beta2, rest1, rest2, decay, rate, scale, correction2, eps, keep, rest;
};

static Rates rates_of(const AdamW *a, double ema_decay)
{
    return Rates{(float)a->beta1,         (float)a->beta2,         (float)(1.0 - a->beta1),
                 (float)(1.0 - a->beta2), a->lr * a->weight_decay, a->lr / a->correction1,
                 a->gradient_scale,       a->correction2,          a->eps,
                 (float)ema_decay,        (float)(1.0 - ema_decay)};
}

__global__ void state_update_kernel(Layout layout, Rates r, GradientSums sums, int64_t n,
                                    float *weights, float *m, float *v, float *ema)
{
    FOR_ELEMENTS(at, n)
    {
        const int64_t chunk = layout.shard + at / layout.chunk_elements * layout.n_shards;
        const int64_t i = chunk * layout.chunk_elements + at % layout.chunk_elements;
        if (i >= layout.n_elements)
            continue;
        const float gradient = mean_gradient(layout, sums, i) * r.scale;
        const float weight = weights[i] - r.decay * weights[i];
        const float mean = r.beta1 * m[at] + r.rest1 * gradient;
        const float square = r.beta2 * v[at] + r.rest2 * (gradient * gradient);
        const float updated = weight - r.rate * (mean / (sqrtf(square / r.correction2) + r.eps));
        m[at] = mean;
        v[at] = square;
        weights[i] = updated;
        if (ema)
            ema[at] = r.keep * ema[at] + r.rest * updated;
    }
}

void cuda_state_update(StatePlan *plan, const AdamW *adamw, double ema_decay,
                       const GradientSums *sums, float *weights, float *m, float *v, float *ema)
{
    Device *device = plan->device;
    const Layout layout = plan->layout;
    const int64_t kept = every(n_chunks(layout), layout.n_shards, layout.shard);
    const int64_t n = kept * layout.chunk_elements;
    if (n == 0)
        return;
    LAUNCH(device, blocks_for(n), THREADS, 0, state_update_kernel, layout,
           rates_of(adamw, ema_decay), *sums, n, weights, m, v, ema);
}
