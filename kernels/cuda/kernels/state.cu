/* SPDX-License-Identifier: Apache-2.0 */
/* state.cu - operations over whole ranges of the training state. All results have the bits that a CPU computes: for the
 * same gradients, a GPU's sums, norm and weights are equal to a CPU's. */
#include "kernels/cuda/kernels/operations.h"
#include "kernels/cuda/kernels/sink.cuh"

#include <math.h>
#include <stdlib.h>

enum { SEGMENTS = 64 }; /* partial sums of a chunk's squares */

/* ---- the plan ---- */

/* The parts of a StatePlanShape that the kernels use. */
struct Layout {
    const int64_t *offsets; /* where each tensor begins, and where the last ends; device memory */
    int n_tensors;
    int64_t n_elements, chunk_elements;
    int n_ranks, rank, n_shards, shard;
};

struct StatePlan {
    Device *device;
    Layout layout;
    double *parts; /* [chunks of this rank][SEGMENTS]; device memory */
};

/* Returns how many of the n chunks have chunk % cycle == first. */
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

/* Returns the index of the tensor that contains element i. */
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

/* A block processes TILE elements, which usually belong to one tensor. */
enum { TILE = THREADS * 16 };

/* Calls use(element, number) for all of [first, last): with number N for each whole pack, then with number 1 for each
 * element behind the packs. */
template <int N, typename Use>
__device__ static inline void for_tile(int64_t first, int64_t last, Use use)
{
    const int64_t whole = first + (last - first) / N * N;
    for (int64_t i = first + threadIdx.x * N; i < whole; i += THREADS * N)
        use(i, std::integral_constant<int, N>());
    for (int64_t i = whole + threadIdx.x; i < last; i += THREADS)
        use(i, std::integral_constant<int, 1>());
}

template <int N, int WORDS>
__global__ void state_count_kernel(Layout layout, const float *gradient, int64_t begin, int64_t end,
                                   GradientSink sink)
{
    const int64_t first = begin + (int64_t)blockIdx.x * TILE, last = MIN(first + TILE, end);
    const int tensor = tensor_at(layout, first);
    with_fresh(sink, [&](auto fresh) {
        constexpr bool FRESH = decltype(fresh)::value;
        if (last > layout.offsets[tensor + 1]) {
            for (int64_t i = first + threadIdx.x; i < last; i += THREADS) {
                const int mine = tensor_at(layout, i);
                const Pack<1> pack = load<1>(gradient + i - begin);
                const uint32_t bits = sink_pack(sink, pack, i, sink_factor(sink, mine),
                                                load_before<1, WORDS, FRESH>(sink, i));
                if (sink.kind != SINK_PLAIN && bits > look(sink.maxima + mine))
                    atomicMax(sink.maxima + mine, bits);
            }
            return;
        }
        const double factor = sink_factor(sink, tensor);
        uint32_t most = 0;
        for_tile<N>(first, last, [&](int64_t i, auto number) {
            constexpr int M = decltype(number)::value;
            const auto pack = load<M>(gradient + i - begin);
            const auto before = load_before<M, WORDS, FRESH>(sink, i);
            const uint32_t bits = sink_pack(sink, pack, i, factor, before);
            most = MAX(most, bits);
        });
        if (sink.kind != SINK_PLAIN)
            raise_maximum(most, sink.maxima + tensor);
    });
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
        WITH_WORDS(sink,
                   LAUNCH(device, blocks, THREADS, 0, (state_count_kernel<SINK_ELEMENTS, WORDS>),
                          plan->layout, gradient, begin, end, *sink));
    else
        WITH_WORDS(sink, LAUNCH(device, blocks, THREADS, 0, (state_count_kernel<1, WORDS>),
                                plan->layout, gradient, begin, end, *sink));
}

/* ---- the reduced gradient ---- */

/* A chunk: its elements of the state, and the index of its first sum. */
struct Chunk {
    int64_t first, n, sums;
};

__device__ static inline Chunk chunk_of(const Layout &layout, bool is_shard, int64_t number)
{
    const int64_t first = number * layout.chunk_elements;
    return Chunk{first, MIN(layout.chunk_elements, layout.n_elements - first),
                 is_shard ? number / layout.n_shards * layout.chunk_elements : first};
}

/* The sums of N elements in their memory format, one or two words each. */
template <int N, SumType TYPE> struct RawSums {
    uint32_t at[TYPE == SUM_I64 ? 2 * N : N];
};

template <int N, SumType TYPE>
__device__ static inline RawSums<N, TYPE> load_sums(const GradientSums &sums, int64_t at)
{
    enum { WORDS = TYPE == SUM_I64 ? 2 : 1 };
    const uint32_t *from = (const uint32_t *)sums.data + at * WORDS;
    RawSums<N, TYPE> raw;
    if constexpr (N == 1) {
        for (int k = 0; k < WORDS; k++)
            raw.at[k] = from[k];
    } else {
        for (int k = 0; k < N * WORDS; k += 4) {
            const Words<16> words = load_words<16>(from + k);
            for (int j = 0; j < 4; j++)
                raw.at[k + j] = words.at[j];
        }
    }
    return raw;
}

/* Returns the gradients that the sums represent. factor(k) is the value of a count of 1 in the sum of element k. */
template <int N, SumType TYPE, typename Factor>
__device__ static inline Pack<N> mean_gradients(const RawSums<N, TYPE> &raw, double scale,
                                                Factor factor)
{
    Pack<N> mean;
    for (int k = 0; k < N; k++) {
        if constexpr (TYPE == SUM_F32)
            mean.at[k] = float_from_bits(raw.at[k]);
        else if constexpr (TYPE == SUM_I32)
            mean.at[k] = (float)((double)(int32_t)raw.at[k] * factor(k) * scale);
        else
            mean.at[k] =
                (float)((double)(int64_t)((uint64_t)raw.at[2 * k + 1] << 32 | raw.at[2 * k]) *
                        factor(k) * scale);
    }
    return mean;
}

/* 2^-exponent of the tensor that contains a thread's element. A thread's elements come in increasing order. */
struct Factors {
    const int32_t *exponents;
    const int64_t *offsets;
    int tensor;
    int64_t end; /* the end of the tensor */
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

/* Runs a statement with TYPE defined as the type of the sums, and N as the number of sums in a pack. */
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

/* A block processes a chunk, LANES / 4 threads process one of its SEGMENTS, and a thread has four of the lanes that a
 * CPU has: chains and tree are those of the CPU, and so are the bits. A thread loads LOADS times 16 bytes before it
 * uses the first 16. Behind the last pack the thread loads its first pack again, because a conditional load would wait
 * for the load before it. */
enum { THREADS_OF_SEGMENT = LANES / 4, LOADS = 8 };

/* Adds the squares of the packs from `i` to `end`, which are LANES elements apart. */
template <SumType TYPE, typename Factor>
__device__ static inline void add_squares(const GradientSums &sums, int64_t base, int64_t i,
                                          int64_t end, Factor factor, double sum[4])
{
    enum { AHEAD = TYPE == SUM_I64 ? LOADS / 2 : LOADS };
    for (; i < end; i += AHEAD * LANES) {
        RawSums<4, TYPE> raw[AHEAD];
        UNROLL for (int k = 0; k < AHEAD; k++)
        {
            const int64_t at = i + k * LANES;
            raw[k] = load_sums<4, TYPE>(sums, base + (at < end ? at : i));
        }
        UNROLL for (int k = 0; k < AHEAD; k++)
        {
            const int64_t at = i + k * LANES;
            if (TYPE != SUM_F32 && at >= end) /* behind the end there is no factor */
                break;
            const Pack<4> g =
                mean_gradients<4, TYPE>(raw[k], sums.scale, [&](int j) { return factor(at + j); });
            for (int j = 0; j < 4; j++)
                sum[j] += at < end ? (double)g.at[j] * (double)g.at[j] : 0.0;
        }
    }
}

template <int N, SumType TYPE>
__global__ void __launch_bounds__(THREADS, 3)
    state_squares_kernel(Layout layout, GradientSums sums, double *parts)
{
    const Chunk chunk =
        chunk_of(layout, sums.is_shard, layout.rank + (int64_t)blockIdx.x * layout.n_ranks);
    const int64_t each = ROUND_UP(DIV_ROUND_UP(chunk.n, (int64_t)SEGMENTS), (int64_t)LANES);
    const int segment = (int)threadIdx.x / THREADS_OF_SEGMENT;
    const int lane = (int)threadIdx.x % THREADS_OF_SEGMENT * 4;
    const int64_t first = MIN(segment * each, chunk.n), end = MIN(first + each, chunk.n);
    double sum[4] = {};
    const int64_t begin = first + lane;
    if (begin < end) {
        Factors f = factors_from<TYPE>(layout, sums, chunk.first + begin);
        const auto factor = [&](int64_t i) {
            return TYPE == SUM_F32 ? 1.0 : factor_of(&f, chunk.first + i);
        };
        /* All packs except the last one are whole. */
        const int64_t packs = N > 1 ? (end - begin + LANES - 4) / LANES : 0;
        const int64_t whole = begin + packs * LANES;
        add_squares<TYPE>(sums, chunk.sums, begin, whole, factor, sum);
        for (int64_t i = whole; i < end; i += LANES)
            for (int k = 0; k < 4 && i + k < end; k++) {
                const RawSums<1, TYPE> raw = load_sums<1, TYPE>(sums, chunk.sums + i + k);
                const Pack<1> g =
                    mean_gradients<1, TYPE>(raw, sums.scale, [&](int) { return factor(i + k); });
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

/* AdamW's coefficients for the kernel, computed once, as on a CPU. */
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

/* Updates N elements. The pointers point to the first element, and `sum` is the index of its sum. */
template <int N, SumType TYPE, typename Factor>
__device__ static inline void update(const Rates &r, const GradientSums &sums, int64_t sum,
                                     Factor factor, float *weights, float *m, float *v, float *ema)
{
    const Pack<N> gradients =
        mean_gradients<N, TYPE>(load_sums<N, TYPE>(sums, sum), sums.scale, factor);
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

/* tiles: the number of tiles of TILE elements in a chunk. */
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
