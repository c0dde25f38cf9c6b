/* SPDX-License-Identifier: Apache-2.0 */
/* fingerprint.cu - the fingerprint of memory: a sum of integers, which the threads may add in any order. */
#include "kernels/cuda/kernels/kernel.cuh"
#include "kernels/cuda/kernels/operations.h"
#include "kernels/fingerprint.h"

/* n: whole packs of N words. The first block also adds the words behind these packs, and the bytes behind the last
 * word. */
template <int N>
__global__ void fingerprint_kernel(int64_t n, size_t n_bytes, const char *data, uint64_t *sum)
{
    const int64_t words = (int64_t)(n_bytes / 4);
    uint64_t mine = 0;
    for_packs(
        n, [=](int64_t i) { return load_words<N * 4>(data + i * N * 4); },
        [&](int64_t i, const Words<N * 4> &pack) {
            for (int k = 0; k < N; k++)
                mine += mixed_word((uint64_t)(i * N + k), pack.at[k]);
        });
    if (blockIdx.x == 0 && n * N + threadIdx.x < words)
        mine += mixed_word((uint64_t)(n * N + threadIdx.x),
                           load_words<4>(data + (n * N + threadIdx.x) * 4).at[0]);
    if (blockIdx.x == 0 && threadIdx.x == 0 && n_bytes % 4 != 0)
        mine += mixed_word((uint64_t)words, partial_word(data + words * 4, n_bytes % 4));
    for (int mask = 16; mask > 0; mask /= 2)
        mine += __shfl_xor_sync(0xffffffffu, (unsigned long long)mine, mask);
    if (threadIdx.x % 32 == 0)
        atomicAdd((unsigned long long *)sum, (unsigned long long)mine);
}

void cuda_fingerprint(Device *device, size_t n_bytes, const void *data, uint64_t *sum)
{
    const int64_t words = (int64_t)(n_bytes / 4);
    assert((uintptr_t)data % 4 == 0);
    if ((uintptr_t)data % ACCESS_BYTES == 0)
        LAUNCH(device, blocks_for_packs(words / 4), THREADS, 0, fingerprint_kernel<4>, words / 4,
               n_bytes, (const char *)data, sum);
    else
        LAUNCH(device, blocks_for_packs(words), THREADS, 0, fingerprint_kernel<1>, words, n_bytes,
               (const char *)data, sum);
}
