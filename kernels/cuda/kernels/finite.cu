/* SPDX-License-Identifier: Apache-2.0 */
/* finite.cu - counts the elements that are infinite or NaN: a sum of integers, which the threads may add in any
 * order. */
#include "kernels/cuda/kernels/kernel.cuh"
#include "kernels/cuda/kernels/operations.h"

/* An element is not finite where all bits of its exponent are set. */
template <typename T> struct Exponent;
template <> struct Exponent<float> {
    enum : uint32_t { MASK = 0x7f800000 };
};
template <> struct Exponent<uint16_t> {
    enum : uint32_t { MASK = 0x7f80 }; /* the mask of a bf16 */
};

template <typename T> __device__ static inline unsigned bad_in(uint32_t word)
{
    constexpr uint32_t mask = Exponent<T>::MASK;
    unsigned bad = (word & mask) == mask;
    if constexpr (sizeof(T) == 2)
        bad += (word >> 16 & mask) == mask;
    return bad;
}

/* packs: the number of whole packs of N words. The first block also counts the elements behind these packs, which are
 * fewer than the elements of a pack. */
template <typename T, int N>
__global__ void count_non_finite_kernel(int64_t packs, int64_t n, const T *data, uint64_t *count)
{
    constexpr int each = N * 4 / (int)sizeof(T);
    unsigned mine = 0;
    for_packs(
        packs, [=](int64_t i) { return load_words<N * 4>(data + i * each); },
        [&](int64_t, const Words<N * 4> &pack) {
            for (int k = 0; k < N; k++)
                mine += bad_in<T>(pack.at[k]);
        });
    const int64_t behind = packs * each + threadIdx.x;
    if (blockIdx.x == 0 && behind < n) {
        uint32_t word = 0;
        memcpy(&word, data + behind, sizeof(T));
        mine += bad_in<T>(word);
    }
    mine = warp_sum(mine);
    if (threadIdx.x % 32 == 0)
        atomicAdd((unsigned long long *)count, (unsigned long long)mine);
}

template <typename T>
static void count_type(Device *device, int64_t n, const T *data, uint64_t *count)
{
    const int64_t words = n * (int64_t)sizeof(T) / 4;
    if ((uintptr_t)data % ACCESS_BYTES == 0)
        LAUNCH(device, blocks_for_packs(words / 4), THREADS, 0, (count_non_finite_kernel<T, 4>),
               words / 4, n, data, count);
    else
        LAUNCH(device, blocks_for_packs(words), THREADS, 0, (count_non_finite_kernel<T, 1>), words,
               n, data, count);
}

void cuda_count_non_finite(Device *device, DataType type, int64_t n, const void *data,
                           uint64_t *count)
{
    assert((uintptr_t)data % 4 == 0 && type != DATA_F16); /* CUDA devices never have f16 */
    if (type == DATA_F32)
        count_type(device, n, (const float *)data, count);
    else
        count_type(device, n, (const uint16_t *)data, count);
}
