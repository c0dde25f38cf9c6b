/* SPDX-License-Identifier: Apache-2.0 */
/* sink.cuh - how kernels move packs of gradients into a sink, and find the largest magnitude of each tensor.
 *
 * Integer sums and maxima do not depend on an order, so atomics give exact results.
 *
 * Ownership: none.
 * Units:     elements.
 * Errors:    none.
 * Threads:   as kernels.h.
 */
#pragma once

#include "kernels/cuda/kernels/kernel.cuh"
#include "kernels/gradient-integer.h"

#include <type_traits>

/* A pack of the sink's old values, in WORDS words for each element: 0 where nothing is added, otherwise 1 or 2. */
template <int N, int WORDS> struct Before {
    uint32_t at[WORDS > 0 ? N *WORDS : 1];
};

static int words_of(const GradientSink *sink)
{
    return sink->kind == SINK_COUNT ? sink->bits / 32 : sink->kind == SINK_ADD ? 1 : 0;
}

/* Runs a statement with WORDS defined as the number of 32-bit words of an element of the sink (words_of()). */
#define WITH_WORDS(sink, ...)                                                                      \
    do {                                                                                           \
        if (words_of(sink) == 0) {                                                                 \
            constexpr int WORDS = 0;                                                               \
            __VA_ARGS__;                                                                           \
        } else if (words_of(sink) == 1) {                                                          \
            constexpr int WORDS = 1;                                                               \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            constexpr int WORDS = 2;                                                               \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

/* Loads the sink's old values. Returns zeros where the sums are FRESH, whatever the memory contains. */
template <int N, int WORDS, bool FRESH>
__device__ static inline Before<N, WORDS> load_before(const GradientSink &sink, int64_t element)
{
    Before<N, WORDS> before = {};
    if constexpr (WORDS > 0 && !FRESH) {
        const uint32_t *from = (const uint32_t *)sink.to + (element - sink.first) * WORDS;
        if constexpr (N == 1) {
            for (int i = 0; i < WORDS; i++)
                before.at[i] = from[i];
        } else {
            for (int i = 0; i < N * WORDS; i += 4) {
                const Words<16> words = load_words<16>(from + i);
                for (int j = 0; j < 4; j++)
                    before.at[i + j] = words.at[j];
            }
        }
    }
    return before;
}

template <int N, int WORDS>
__device__ static inline void store_after(const GradientSink &sink, int64_t element,
                                          const Before<N, WORDS> &after)
{
    uint32_t *to = (uint32_t *)sink.to + (element - sink.first) * WORDS;
    if constexpr (N == 1) {
        for (int i = 0; i < WORDS; i++)
            to[i] = after.at[i];
    } else {
        for (int i = 0; i < N * WORDS; i += 4)
            store_words(to + i, Words<16>{{after.at[i], after.at[i + 1], after.at[i + 2],
                                           after.at[i + 3]}});
    }
}

/* Adds the gradients of elements [element, element + N) to the old values in `sum` and stores the result. The caller
 * has loaded the old values earlier, so that no load waits for a store. Returns the largest magnitude. factor:
 * 2^exponent. Integers wrap around. */
template <int N, int WORDS>
__device__ static inline uint32_t sink_pack(const GradientSink &sink, const Pack<N> &g,
                                            int64_t element, double factor, Before<N, WORDS> sum)
{
    uint32_t most = 0;
    for (int k = 0; k < N; k++)
        most = MAX(most, magnitude_bits(g.at[k]));
    if constexpr (WORDS == 0) {
        if (sink.kind == SINK_PLAIN)
            store((float *)sink.to + element - sink.first, g);
    } else if constexpr (WORDS == 1) {
        for (int k = 0; k < N; k++)
            sum.at[k] = sink.kind == SINK_ADD
                            ? float_bits(float_from_bits(sum.at[k]) + g.at[k])
                            : sum.at[k] + (uint32_t)count_one(g.at[k], (float)factor);
        store_after(sink, element, sum);
    } else {
        for (int k = 0; k < N; k++) {
            const uint64_t before = (uint64_t)sum.at[2 * k + 1] << 32 | sum.at[2 * k];
            const uint64_t after = before + (uint64_t)count_one64(g.at[k], factor);
            sum.at[2 * k] = (uint32_t)after;
            sum.at[2 * k + 1] = (uint32_t)(after >> 32);
        }
        store_after(sink, element, sum);
    }
    return most;
}

enum { SINK_ELEMENTS = 4 }; /* elements of a pack: 16 bytes of fp32 */

/* Reports whether packs of the sink that begin at `element` are aligned. */
static bool sink_in_packs(const GradientSink *sink, int64_t element)
{
    const int64_t each = sink->kind == SINK_COUNT ? sink->bits / 8 : (int64_t)sizeof(float);
    const int64_t at = (element - sink->first) * each;
    return sink->kind == SINK_MAXIMA || ((uintptr_t)sink->to + (uintptr_t)at) % ACCESS_BYTES == 0;
}

__device__ static inline double sink_factor(const GradientSink &sink, int tensor)
{
    return sink.kind == SINK_COUNT ? power_of_two(sink.exponents[tensor]) : 1;
}

__device__ static inline bool sink_fresh(const GradientSink &sink)
{
    return sink.fresh && *sink.fresh != 0;
}

/* Calls use() with a constant that says whether the sums are fresh: a conditional load would be a branch. */
template <typename Use> __device__ static inline void with_fresh(const GradientSink &sink, Use use)
{
    if (sink_fresh(sink))
        use(std::true_type());
    else
        use(std::false_type());
}

/* Returns the value at *at, which may be a moment old. An old value does no harm, because a maximum only grows. */
__device__ static inline uint32_t look(const uint32_t *at)
{
#ifdef __CUDACC__
    return __ldcg(at);
#else
    return *at;
#endif
}

/* Raises *to to the largest value of the block's threads, which must all call this function. L2 performs about one
 * atomic per nanosecond at one address, so each block makes one atomic, and only if its value is larger than *to. */
__device__ static inline void raise_maximum(uint32_t most, uint32_t *to)
{
    __shared__ uint32_t of_warp[32];
    for (int mask = 16; mask > 0; mask /= 2) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, most, mask);
        most = MAX(most, other);
    }
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = most;
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    for (unsigned i = 1; i < blockDim.x / 32; i++)
        most = MAX(most, of_warp[i]);
    if (most > look(to))
        atomicMax(to, most);
}
