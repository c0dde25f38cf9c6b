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
#include <type_traits>

enum { SEGMENTS = 64 }; /* partial sums of a chunk's squares */

/* ---- sinks ---- */

/* to += counts, or = counts; wraps. */
template <int N>
__device__ static inline void add_counts(uint32_t *to, const uint32_t *counts, bool fresh)
{
    if constexpr (N == 1) {
        *to = (fresh ? 0 : *to) + counts[0];
    } else {
        Words<16> sum = fresh ? Words<16>{} : load_words<16>(to);
        for (int i = 0; i < 4; i++)
            sum.at[i] += counts[i];
        store_words(to, sum);
    }
}

template <int N>
__device__ static inline void add_counts(uint64_t *to, const uint64_t *counts, bool fresh)
{
    if constexpr (N == 1) {
        *to = (fresh ? 0 : *to) + counts[0];
    } else {
        for (int i = 0; i < N; i += 2) {
            Words<16> words = fresh ? Words<16>{} : load_words<16>(to + i);
            for (int j = 0; j < 4; j += 2) {
                const uint64_t before = (uint64_t)words.at[j + 1] << 32 | words.at[j];
                const uint64_t sum = before + counts[i + j / 2];
                words.at[j] = (uint32_t)sum;
                words.at[j + 1] = (uint32_t)(sum >> 32);
            }
            store_words(to + i, words);
        }
    }
}

/* The gradients of elements [element, element + N); returns the largest magnitude. */
template <int N>
__device__ static inline uint32_t sink_pack(const GradientSink &sink, const Pack<N> &g,
                                            int64_t element, int exponent, bool fresh)
{
    const int64_t at = element - sink.first;
    uint32_t most = 0;
    for (int k = 0; k < N; k++)
        most = MAX(most, magnitude_bits(g.at[k]));
    if (sink.kind == SINK_PLAIN) {
        store((float *)sink.to + at, g);
    } else if (sink.kind == SINK_ADD) {
        float *to = (float *)sink.to + at;
        Pack<N> sum = fresh ? Pack<N>{} : load<N>(to);
        for (int k = 0; k < N; k++)
            sum.at[k] += g.at[k];
        store(to, sum);
    } else if (sink.kind == SINK_COUNT && sink.bits == 64) {
        uint64_t counts[N];
        for (int k = 0; k < N; k++)
            counts[k] = (uint64_t)count_one64(g.at[k], power_of_two(exponent));
        add_counts<N>((uint64_t *)sink.to + at, counts, fresh);
    } else if (sink.kind == SINK_COUNT) {
        uint32_t counts[N];
        for (int k = 0; k < N; k++)
            counts[k] = (uint32_t)count_one(g.at[k], (float)power_of_two(exponent));
        add_counts<N>((uint32_t *)sink.to + at, counts, fresh);
    }
    return most;
}

enum { SINK_ELEMENTS = 4 }; /* of a pack: 16 bytes of fp32 */

/* Whether packs of the sink that begin at `element` lie on their boundaries. */
static bool sink_in_packs(const GradientSink *sink, int64_t element)
{
    const int64_t each = sink->kind == SINK_COUNT ? sink->bits / 8 : (int64_t)sizeof(float);
    const int64_t at = (element - sink->first) * each;
    return sink->kind == SINK_MAXIMA || ((uintptr_t)sink->to + (uintptr_t)at) % ACCESS_BYTES == 0;
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

/* blockIdx.y: the tensor of the place. n: packs of one. */
template <int N, typename G>
__global__ void gradient_take_kernel(int64_t n, const G *gradient, GradientPlace place,
                                     GradientSink sink)
{
    const int64_t first = n * N * blockIdx.y;
    const int tensor = place.tensor + (int)blockIdx.y;
    const int exponent = sink.kind == SINK_COUNT ? sink.exponents[tensor] : 0;
    const bool fresh = sink.fresh && *sink.fresh != 0;
    uint32_t most = 0;
    for_packs(
        n, [=](int64_t i) { return load<N>(gradient + first + i * N); },
        [&](int64_t i, const Pack<N> &pack) {
            const int64_t element = place.offset + first + i * N;
            const uint32_t bits = sink_pack<N>(sink, pack, element, exponent, fresh);
            most = MAX(most, bits);
        });
    if (sink.kind != SINK_PLAIN)
        raise_maximum(most, sink.maxima + tensor);
}

/* The same where the gradient is [out][taps][in]. A tile is TILE_CHANNELS of `in` for one of `out`, with all taps: it is
 * read along `in`, turned in shared memory, and taken along [in][taps]. tiles: of a row [taps][in]. */
enum { TILE_CHANNELS = 128, TAPS_MAX = 9 };

template <int N, typename G>
__global__ void __launch_bounds__(THREADS, 4)
    gradient_turn_kernel(int64_t rows, Divisor tiles, int channels, int taps, const G *gradient,
                         GradientPlace place, GradientSink sink)
{
    alignas(16) __shared__ Pack<N> turned[TILE_CHANNELS * TAPS_MAX / N]; /* [channel][tap] */
    const int tensor = place.tensor + (int)blockIdx.y;
    const int exponent = sink.kind == SINK_COUNT ? sink.exponents[tensor] : 0;
    const bool fresh = sink.fresh && *sink.fresh != 0;
    const int64_t row_elements = (int64_t)channels * taps;
    uint32_t most = 0;
    for (int64_t tile = blockIdx.x; tile < rows * tiles.by; tile += gridDim.x) {
        const Quotient at = divide(tile, tiles);
        const int first = (int)at.rest * TILE_CHANNELS;
        const int width = MIN((int)TILE_CHANNELS, channels - first); /* channels of this tile */
        const int64_t row = (blockIdx.y * rows + at.whole) * row_elements;
        enum { ACROSS = TILE_CHANNELS / N }; /* threads that read a tap */
        const int channel = (int)threadIdx.x % ACROSS * N;
        for (int tap = (int)threadIdx.x / ACROSS; tap < taps; tap += THREADS / ACROSS) {
            if (channel >= width)
                break;
            const Pack<N> in = load<N>(gradient + row + (int64_t)tap * channels + first + channel);
            for (int k = 0; k < N; k++)
                ((float *)turned)[(channel + k) * taps + tap] = in.at[k];
        }
        __syncthreads();
        for (int i = (int)threadIdx.x; i < width * taps / N; i += THREADS) {
            const int64_t element = place.offset + row + (int64_t)first * taps + i * N;
            const uint32_t bits = sink_pack<N>(sink, turned[i], element, exponent, fresh);
            most = MAX(most, bits);
        }
        __syncthreads();
    }
    if (sink.kind != SINK_PLAIN)
        raise_maximum(most, sink.maxima + tensor);
}

template <int N, typename G>
static void take(Device *device, const GradientForm *form, const G *gradient,
                 const GradientPlace *place, const GradientSink *sink)
{
    const unsigned tensors = (unsigned)place->n_tensors;
    if (form->order == GRADIENT_AS_STATE || form->taps == 1) {
        const int64_t n = place->n / place->n_tensors / N;
        LAUNCH(device, dim3(blocks_for_packs(n), tensors), THREADS, 0, (gradient_take_kernel<N, G>),
               n, gradient, *place, *sink);
        return;
    }
    const int64_t rows = form->out / place->n_tensors;
    const int64_t tiles = DIV_ROUND_UP(form->in, (int)TILE_CHANNELS);
    const dim3 grid((unsigned)MIN(rows * tiles, (int64_t)GRID_MAX), tensors);
    LAUNCH(device, grid, THREADS, 0, (gradient_turn_kernel<N, G>), rows, divisor(tiles), form->in,
           form->taps, gradient, *place, *sink);
}

template <typename G>
static void take_in_packs(Device *device, const GradientForm *form, const G *gradient,
                          const GradientPlace *place, const GradientSink *sink)
{
    const int64_t each = place->n / place->n_tensors;
    if (form->in % SINK_ELEMENTS == 0 && each % SINK_ELEMENTS == 0 &&
        (uintptr_t)gradient % (SINK_ELEMENTS * sizeof(G)) == 0 &&
        sink_in_packs(sink, place->offset))
        take<SINK_ELEMENTS>(device, form, gradient, place, sink);
    else
        take<1>(device, form, gradient, place, sink);
}

void cuda_gradient_take(Device *device, const GradientForm *form, const void *gradient,
                        const GradientPlace *place, const GradientSink *sink)
{
    assert(place->n == (int64_t)form->out * form->in * form->taps);
    assert(place->n_tensors > 0 && form->out % place->n_tensors == 0);
    assert(form->taps <= TAPS_MAX);
    if (form->type == DATA_BF16)
        take_in_packs(device, form, (const Bf16 *)gradient, place, sink);
    else
        take_in_packs(device, form, (const float *)gradient, place, sink);
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

/* A block takes TILE elements, most often of one tensor. */
enum { TILE = THREADS * 16 };

/* Gives use(element, number) all of [first, last): packs of N, and one by one what is left behind them. */
template <int N, typename Use>
__device__ static inline void for_tile(int64_t first, int64_t last, Use use)
{
    const int64_t whole = first + (last - first) / N * N;
    for (int64_t i = first + threadIdx.x * N; i < whole; i += THREADS * N)
        use(i, std::integral_constant<int, N>());
    for (int64_t i = whole + threadIdx.x; i < last; i += THREADS)
        use(i, std::integral_constant<int, 1>());
}

template <int N>
__global__ void state_count_kernel(Layout layout, const float *gradient, int64_t begin, int64_t end,
                                   GradientSink sink)
{
    const int64_t first = begin + (int64_t)blockIdx.x * TILE, last = MIN(first + TILE, end);
    const bool fresh = sink.fresh && *sink.fresh != 0;
    const int tensor = tensor_at(layout, first);
    if (last > layout.offsets[tensor + 1]) {
        for (int64_t i = first + threadIdx.x; i < last; i += THREADS) {
            const int mine = tensor_at(layout, i);
            const int exponent = sink.kind == SINK_COUNT ? sink.exponents[mine] : 0;
            const Pack<1> pack = load<1>(gradient + i - begin);
            const uint32_t bits = sink_pack<1>(sink, pack, i, exponent, fresh);
            if (sink.kind != SINK_PLAIN)
                atomicMax(sink.maxima + mine, bits);
        }
        return;
    }
    const int exponent = sink.kind == SINK_COUNT ? sink.exponents[tensor] : 0;
    uint32_t most = 0;
    for_tile<N>(first, last, [&](int64_t i, auto number) {
        const auto pack = load<decltype(number)::value>(gradient + i - begin);
        const uint32_t bits = sink_pack(sink, pack, i, exponent, fresh);
        most = MAX(most, bits);
    });
    if (sink.kind != SINK_PLAIN)
        raise_maximum(most, sink.maxima + tensor);
}

void cuda_state_count(StatePlan *plan, const float *gradient, int64_t begin, int64_t end,
                      const GradientSink *sink)
{
    assert(begin >= 0 && end <= plan->layout.n_elements);
    if (begin >= end)
        return;
    Device *device = plan->device;
    const unsigned blocks = (unsigned)DIV_ROUND_UP(end - begin, (int64_t)TILE);
    if ((uintptr_t)gradient % ACCESS_BYTES == 0 && sink_in_packs(sink, begin))
        LAUNCH(device, blocks, THREADS, 0, state_count_kernel<SINK_ELEMENTS>, plan->layout,
               gradient, begin, end, *sink);
    else
        LAUNCH(device, blocks, THREADS, 0, state_count_kernel<1>, plan->layout, gradient, begin,
               end, *sink);
}

/* ---- the reduced gradient ---- */

/* A chunk: its elements of the state, and where its sums begin. */
struct Chunk {
    int64_t first, n, sums;
};

__device__ static inline Chunk chunk_of(const Layout &layout, bool is_shard, int64_t number)
{
    const int64_t first = number * layout.chunk_elements;
    return Chunk{first, MIN(layout.chunk_elements, layout.n_elements - first),
                 is_shard ? number / layout.n_shards * layout.chunk_elements : first};
}

/* The gradients whose sums begin at `at`; factor(k): what one of element k's sums counts for. */
template <int N, SumType TYPE, typename Factor>
__device__ static inline Pack<N> mean_gradients(const GradientSums &sums, int64_t at, Factor factor)
{
    if constexpr (TYPE == SUM_F32) {
        return load<N>((const float *)sums.data + at);
    } else {
        int64_t sum[N];
        if constexpr (N == 1) {
            sum[0] = TYPE == SUM_I64 ? ((const int64_t *)sums.data)[at]
                                     : ((const int32_t *)sums.data)[at];
        } else if constexpr (TYPE == SUM_I32) {
            const Words<16> words = load_words<16>((const int32_t *)sums.data + at);
            for (int k = 0; k < N; k++)
                sum[k] = (int32_t)words.at[k];
        } else {
            for (int k = 0; k < N; k += 2) {
                const Words<16> words = load_words<16>((const int64_t *)sums.data + at + k);
                sum[k] = (int64_t)((uint64_t)words.at[1] << 32 | words.at[0]);
                sum[k + 1] = (int64_t)((uint64_t)words.at[3] << 32 | words.at[2]);
            }
        }
        Pack<N> mean;
        for (int k = 0; k < N; k++) {
            const double value = TYPE == SUM_I64 ? (double)sum[k] : (double)(int32_t)sum[k];
            mean.at[k] = (float)(value * factor(k) * sums.scale);
        }
        return mean;
    }
}

/* 2^-exponent of the tensor that a thread's elements lie in, which come in their order. */
struct Factors {
    const int32_t *exponents;
    const int64_t *offsets;
    int tensor;
    int64_t end; /* of the tensor */
    double factor;
};

template <SumType TYPE>
__device__ static inline Factors factors_from(const Layout &layout, const GradientSums &sums,
                                              int64_t element)
{
    if (TYPE == SUM_F32)
        return Factors{NULL, NULL, 0, INT64_MAX, 1};
    const int tensor = tensor_at(layout, element);
    return Factors{sums.exponents, layout.offsets, tensor, layout.offsets[tensor + 1],
                   power_of_two(-sums.exponents[tensor])};
}

__device__ static inline double factor_of(Factors *f, int64_t element)
{
    while (element >= f->end) {
        f->tensor++;
        f->end = f->offsets[f->tensor + 1];
        f->factor = power_of_two(-f->exponents[f->tensor]);
    }
    return f->factor;
}

/* Runs a statement with TYPE as the type of the sums, and N as the elements of a pack of them. */
#define WITH_SUMS(sums, layout, pointers, ...)                                                     \
    do {                                                                                           \
        if ((layout).chunk_elements % 4 == 0 && in_packs<float> pointers) {                        \
            constexpr int N = 4;                                                                   \
            WITH_SUM_TYPE(sums, __VA_ARGS__);                                                      \
        } else {                                                                                   \
            constexpr int N = 1;                                                                   \
            WITH_SUM_TYPE(sums, __VA_ARGS__);                                                      \
        }                                                                                          \
    } while (0)
#define WITH_SUM_TYPE(sums, ...)                                                                   \
    if ((sums)->type == SUM_F32) {                                                                 \
        constexpr SumType TYPE = SUM_F32;                                                          \
        __VA_ARGS__;                                                                               \
    } else if ((sums)->type == SUM_I32) {                                                          \
        constexpr SumType TYPE = SUM_I32;                                                          \
        __VA_ARGS__;                                                                               \
    } else {                                                                                       \
        constexpr SumType TYPE = SUM_I64;                                                          \
        __VA_ARGS__;                                                                               \
    }

/* A block takes a chunk, LANES / 4 threads one of its SEGMENTS, a thread four of the lanes that a CPU has: chains and
 * tree are the CPU's, and so are the bits. */
enum { THREADS_OF_SEGMENT = LANES / 4 };

template <int N, SumType TYPE>
__global__ void __launch_bounds__(THREADS, 4)
    state_squares_kernel(Layout layout, GradientSums sums, double *parts)
{
    const Chunk chunk =
        chunk_of(layout, sums.is_shard, layout.rank + (int64_t)blockIdx.x * layout.n_ranks);
    const int64_t each = ROUND_UP(DIV_ROUND_UP(chunk.n, (int64_t)SEGMENTS), (int64_t)LANES);
    const int segment = (int)threadIdx.x / THREADS_OF_SEGMENT;
    const int lane = (int)threadIdx.x % THREADS_OF_SEGMENT * 4;
    const int64_t first = MIN(segment * each, chunk.n), end = MIN(first + each, chunk.n);
    double sum[4] = {};
    int64_t i = first + lane;
    if (i < end) {
        Factors f = factors_from<TYPE>(layout, sums, chunk.first + i);
#ifdef __CUDACC__
#pragma unroll 4
#endif
        for (; N > 1 && i + 4 <= end; i += LANES) {
            const auto g = mean_gradients<4, TYPE>(sums, chunk.sums + i, [&](int k) {
                return TYPE == SUM_F32 ? 1.0 : factor_of(&f, chunk.first + i + k);
            });
            for (int k = 0; k < 4; k++)
                sum[k] += (double)g.at[k] * (double)g.at[k];
        }
        for (; i < end; i += LANES)
            for (int k = 0; k < 4 && i + k < end; k++) {
                const auto g = mean_gradients<1, TYPE>(sums, chunk.sums + i + k, [&](int) {
                    return TYPE == SUM_F32 ? 1.0 : factor_of(&f, chunk.first + i + k);
                });
                sum[k] += (double)g.at[0] * (double)g.at[0];
            }
    }
    for (int mask = THREADS_OF_SEGMENT / 2; mask > 0; mask /= 2)
        for (int k = 0; k < 4; k++)
            sum[k] += __shfl_xor_sync(0xffffffffu, sum[k], mask);
    if (lane == 0)
        parts[(int64_t)blockIdx.x * SEGMENTS + segment] = (sum[0] + sum[2]) + (sum[1] + sum[3]);
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
    static_assert(SEGMENTS * THREADS_OF_SEGMENT == THREADS, "a block takes a chunk");
    WITH_SUMS(sums, layout, (0, sums->data),
              LAUNCH(device, (unsigned)own, THREADS, 0, (state_squares_kernel<N, TYPE>), layout,
                     *sums, plan->parts));
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

/* Element by element: the state at i, the shard at `at`, the sums at `sum`. */
template <int N, SumType TYPE, typename Factor>
__device__ static inline void update(const Rates &r, const GradientSums &sums, int64_t sum,
                                     Factor factor, float *weights, float *m, float *v, float *ema)
{
    const Pack<N> gradients = mean_gradients<N, TYPE>(sums, sum, factor);
    Pack<N> weight = load<N>(weights), mean = load<N>(m), square = load<N>(v);
    Pack<N> average = ema ? load<N>(ema) : Pack<N>{};
    for (int k = 0; k < N; k++) {
        const float gradient = gradients.at[k] * r.scale;
        const float decayed = weight.at[k] - r.decay * weight.at[k];
        mean.at[k] = r.beta1 * mean.at[k] + r.rest1 * gradient;
        square.at[k] = r.beta2 * square.at[k] + r.rest2 * (gradient * gradient);
        weight.at[k] =
            decayed - r.rate * (mean.at[k] / (sqrtf(square.at[k] / r.correction2) + r.eps));
        average.at[k] = r.keep * average.at[k] + r.rest * weight.at[k];
    }
    store(m, mean);
    store(v, square);
    store(weights, weight);
    if (ema)
        store(ema, average);
}

/* tiles: of TILE elements, in a chunk. */
template <int N, SumType TYPE>
__global__ void __launch_bounds__(THREADS, 3)
    state_update_kernel(Layout layout, Rates r, GradientSums sums, unsigned tiles, float *weights,
                        float *m, float *v, float *ema)
{
    const int64_t slot = blockIdx.x / tiles;
    const Chunk chunk = chunk_of(layout, sums.is_shard, layout.shard + slot * layout.n_shards);
    const int64_t first = (int64_t)(blockIdx.x % tiles) * TILE, last = MIN(first + TILE, chunk.n);
    if (first >= last)
        return;
    const int64_t kept = slot * layout.chunk_elements;
    const Factors tensor = factors_from<TYPE>(layout, sums, chunk.first + first);
    const bool alone = chunk.first + last <= tensor.end;
    for_tile<N>(first, last, [&](int64_t i, auto number) {
        Factors mine = tensor;
        const int64_t at = kept + i;
        update<decltype(number)::value, TYPE>(
            r, sums, chunk.sums + i,
            [&](int k) { return alone ? tensor.factor : factor_of(&mine, chunk.first + i + k); },
            weights + chunk.first + i, m + at, v + at, ema ? ema + at : NULL);
    });
}

void cuda_state_update(StatePlan *plan, const AdamW *adamw, double ema_decay,
                       const GradientSums *sums, float *weights, float *m, float *v, float *ema)
{
    Device *device = plan->device;
    const Layout layout = plan->layout;
    const int64_t kept = every(n_chunks(layout), layout.n_shards, layout.shard);
    const int64_t tiles = DIV_ROUND_UP(layout.chunk_elements, (int64_t)TILE);
    if (kept == 0)
        return;
    WITH_SUMS(sums, layout, (0, sums->data, weights, m, v, ema),
              LAUNCH(device, (unsigned)(kept * tiles), THREADS, 0, (state_update_kernel<N, TYPE>),
                     layout, rates_of(adamw, ema_decay), *sums, (unsigned)tiles, weights, m, v,
                     ema));
}
