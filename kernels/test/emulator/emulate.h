/* SPDX-License-Identifier: Apache-2.0 */
/* emulate.h - runs the CUDA kernels of this project on a CPU: the same sources, compiled by a host compiler.
 *
 * Each thread of a block is a fiber with its own stack. A fiber runs until it ends or reaches a barrier or a shuffle.
 * The next fiber is drawn from a seed, so that a kernel whose result depends on the order of its threads gives another
 * result with another seed. With an odd seed, or with 0, a warp runs until it waits for another warp. With any other
 * seed all threads run to their next barrier or shuffle before any thread passes it. Blocks run one after another, in
 * an order that is also drawn from the seed. The blocks of a cluster run together, their threads in one common order,
 * and may run ahead of each other between barriers.
 *
 * If a kernel does something that is undefined on a GPU, the emulator ends the process with a message: threads of a
 * block or of a cluster wait at different barriers; not all lanes of a warp reach a shuffle or another operation of the
 * warp; shared memory is used beyond the requested size; or a thread reads the shared memory of a block that has ended,
 * or that may end before the read because no barrier of the cluster follows.
 *
 * Each block of a cluster has its own dynamic shared memory (shared()). A variable that a kernel declares __shared__ is
 * shared by all blocks, so a kernel of clusters must not declare one.
 *
 * Ownership: none. Units: bytes, threads.
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

/* Sets the seed for the order of threads and blocks in later launches; 0: the order of their numbers. */
void set_seed(uint64_t seed);
void launch(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()> &kernel);
/* Runs clusters of `cluster` blocks that are neighbours in x. */
void launch_clusters(unsigned cluster, dim3 grid, dim3 block, size_t shared_bytes,
                     const std::function<void()> &kernel);
void sync_block();
void sync_cluster();
void sync_warp();
/* Returns this thread's place in its warp. Threads are numbered along x first, then along y. */
unsigned lane();
/* Returns the bits that lane `from` of the warp gave. */
uint64_t shuffle(uint64_t bits, unsigned from);
/* Runs an operation of a whole warp: when all 32 lanes have called warp_together(), `together` gets the pointers that
 * they gave, and writes its results there. */
typedef void (*Together)(void *const lanes[WARP]);
void warp_together(void *mine, Together together);
/* Returns this block's part of the shared memory that the launch requested. */
void *shared();
/* Returns the address in block `rank`'s shared memory that corresponds to the address `mine` in this block's. The
 * caller must not write there. */
const void *shared_of(const void *mine, size_t n_bytes, unsigned rank);
unsigned cluster_rank();
unsigned cluster_size();
/* Returns what rcp.approx.ftz may give: 1 / d or a neighbouring float, drawn at each call; 0 instead of a
 * denormal. */
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
