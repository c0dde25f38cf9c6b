/* SPDX-License-Identifier: Apache-2.0 */
/* emulate.h - runs the CUDA kernels of this folder on a CPU: the same sources, compiled by a host compiler.
 *
 * Each thread of a block is a fiber with a stack of its own. A fiber runs until it ends or meets a barrier or a
 * shuffle; which one runs next is drawn from a seed, so that a kernel whose result depends on the order of its
 * threads shows another result with another seed. With an even seed all threads go to their next barrier or shuffle
 * before any goes on; with an odd one a warp goes on until it waits for another warp. Blocks run one after another, in
 * an order drawn from the seed, too; those of a cluster run together, their threads in one order, and drift apart
 * between barriers.
 *
 * A use that a GPU leaves undefined ends the process with a text here: threads of a block or of a cluster at different
 * barriers, a shuffle or another operation of a warp that not all its lanes reach, shared memory beyond what was asked
 * for, a read of the shared memory of a block that ends, or may end before the read since no barrier of the cluster is
 * between.
 *
 * The blocks of a cluster have dynamic shared memory of their own (shared()). A variable that a kernel declares
 * __shared__ is one for all blocks: a kernel of clusters declares none.
 *
 * Ownership: none.
 * Units:     bytes, threads.
 * Errors:    a misuse ends the process.
 * Threads:   one launch at a time.
 */
#pragma once

#include "base/macro.h"

#include <functional>

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

namespace emulate
{
extern uint3 thread_index, block_index;
extern dim3 block_dim, grid_dim;

enum { WARP = 32, BLOCK_MAX = 1024, SHARED_MAX = 227 << 10, CLUSTER_MAX = 16 };

/* The order of threads and blocks in the launches from now on; 0: as they are numbered. */
void set_seed(uint64_t seed);
void launch(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()> &kernel);
/* Clusters of `cluster` blocks that lie side by side in x. */
void launch_clusters(unsigned cluster, dim3 grid, dim3 block, size_t shared_bytes,
                     const std::function<void()> &kernel);
void sync_block();
void sync_cluster();
void sync_warp();
/* This thread's place in its warp: x runs first, then y. */
unsigned lane();
/* The bits that the lane `from` of the warp gave. */
uint64_t shuffle(uint64_t bits, unsigned from);
/* An operation of whole warps: `together` gets what each lane has given, when all 32 are there, and writes into it. */
typedef void (*Together)(void *const lanes[WARP]);
void warp_together(void *mine, Together together);
/* The shared memory that the launch asked for: this block's. */
void *shared();
/* The place in shared memory that block `rank` of the cluster has where this block has `mine`; to be read. */
const void *shared_of(const void *mine, size_t n_bytes, unsigned rank);
unsigned cluster_rank();
unsigned cluster_size();
/* rcp.approx.ftz may give: 1 / d or a neighbour of it, drawn anew each time; 0 instead of a denormal. */
float approximate_reciprocal(float d);
} // namespace emulate

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __shared__ static
#define threadIdx (emulate::thread_index)
#define blockIdx (emulate::block_index)
#define blockDim (emulate::block_dim)
#define gridDim (emulate::grid_dim)
#define __syncthreads() emulate::sync_block()
#define __syncwarp() emulate::sync_warp()

template <typename T> T __shfl_xor_sync(unsigned, T value, int mask)
{
    static_assert(sizeof(T) <= sizeof(uint64_t), "a lane gives 8 bytes at most");
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(value));
    bits = emulate::shuffle(bits, emulate::lane() ^ (unsigned)mask);
    __builtin_memcpy(&value, &bits, sizeof(value));
    return value;
}

template <typename T> T atomicAdd(T *at, T value)
{
    static_assert((T)0.5 == (T)0, "only integers: sums of floats depend on their order");
    T before = *at;
    *at = (T)(before + value);
    return before;
}

template <typename T> T atomicMax(T *at, T value)
{
    static_assert((T)0.5 == (T)0, "only integers");
    T before = *at;
    *at = before > value ? before : value;
    return before;
}
