/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.cuh - shared by the kernels of this folder: element types, sums by a fixed tree, launches.
 *
 * The same sources are compiled by nvcc, for a GPU, and by a host compiler, for the emulator (emulate.h). Both compute
 * the same bits: every operation of fp32 and fp64 is IEEE's, contraction is off, elementary functions are those of
 * vectormath.h and exactmath.c, and no result depends on the order in which threads run.
 *
 * Ownership: none.
 * Units:     elements.
 * Errors:    a launch that fails is the device's sticky error.
 * Threads:   as kernels.h.
 */
#pragma once

#include "kernels/backend.h"
#include "kernels/cpu/vectormath.h"
#include "kernels/cuda/module/compute.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#else
#include "kernels/test/emulator/emulate.h"
#endif

/* UNROLL stands before a loop of few rounds whose arrays must be in registers, NOT_UNROLLED before a loop with too few
 * rounds for unrolling to be worth it. */
#ifdef __CUDACC__
#define UNROLL _Pragma("unroll")
#define NOT_UNROLLED _Pragma("unroll 1")
#else
#define UNROLL
#define NOT_UNROLLED
#endif

/* ---- element types ---- */

struct Bf16 {
    uint16_t bits;
};

_device_ static inline float widen(float x) { return x; }

_device_ static inline float widen(Bf16 x) { return float_from_bits((uint32_t)x.bits << 16); }

/* Rounds half to even. Every NaN becomes the NaN that a GPU's conversion gives. */
template <typename T> _device_ static inline T narrow(float x);

template <> _device_ inline float narrow<float>(float x) { return x; }

template <> _device_ inline Bf16 narrow<Bf16>(float x)
{
    const uint32_t bits = float_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return Bf16{0x7fff};
    return Bf16{(uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

/* Returns x rounded to T, as memory contains it. */
template <typename T> _device_ static inline float rounded(float x) { return widen(narrow<T>(x)); }

/* Narrows two values to one word, the first in the lower half. This is one instruction of a GPU. */
_device_ static inline uint32_t narrow_pair(float low, float high)
{
#ifdef __CUDA_ARCH__
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return (uint32_t)narrow<Bf16>(high).bits << 16 | narrow<Bf16>(low).bits;
#endif
}

/* ---- packs: neighbouring elements, which one access moves ---- */

/* N elements in fp32. N is 1, or such that the elements in memory are 8, 16 or 32 bytes. */
template <int N> struct Pack {
    float at[N];
};

template <int BYTES> struct alignas(BYTES) Words {
    uint32_t at[BYTES / 4];
};

enum { ACCESS_BYTES = 16 }; /* the most bytes that a thread moves at once */

/* Returns how many elements take ACCESS_BYTES. */
template <typename T> _device_ constexpr int pack_elements() { return ACCESS_BYTES / sizeof(T); }

/* Reports whether rows of `width` elements that begin at these pointers consist of aligned packs. */
template <typename T, typename... Pointers>
static inline bool in_packs(int64_t width, Pointers... pointers)
{
    return width % pack_elements<T>() == 0 && (((uintptr_t)pointers % ACCESS_BYTES == 0) && ...);
}

/* load_words() and store_words() make one access to global memory. Without assembly the compiler splits some stores
 * into four. */
template <int BYTES> __device__ static inline Words<BYTES> load_words(const void *from)
{
#ifndef __CUDACC__
    assert((uintptr_t)from % BYTES == 0); /* a GPU traps otherwise */
#endif
    return *(const Words<BYTES> *)from;
}

__device__ static inline void store_words(void *to, const Words<16> &words)
{
#ifdef __CUDACC__
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
                 "r"(words.at[0]), "r"(words.at[1]), "r"(words.at[2]), "r"(words.at[3])
                 : "memory");
#else
    assert((uintptr_t)to % 16 == 0);
    *(Words<16> *)to = words;
#endif
}

__device__ static inline void store_words(void *to, const Words<8> &words)
{
#ifdef __CUDACC__
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(to)),
                 "r"(words.at[0]), "r"(words.at[1])
                 : "memory");
#else
    assert((uintptr_t)to % 8 == 0);
    *(Words<8> *)to = words;
#endif
}

/* Returns the elements of type T in the words. */
template <typename T, int BYTES>
__device__ static inline Pack<BYTES / sizeof(T)> unpack(const Words<BYTES> &words)
{
    Pack<BYTES / sizeof(T)> pack;
    for (int i = 0; i < BYTES / 4; i++) {
        if constexpr (sizeof(T) == sizeof(float)) {
            pack.at[i] = float_from_bits(words.at[i]);
        } else {
            pack.at[2 * i] = float_from_bits(words.at[i] << 16);
            pack.at[2 * i + 1] = float_from_bits(words.at[i] & 0xffff0000u);
        }
    }
    return pack;
}

template <int N> __device__ static inline Pack<N> load(const float *from)
{
    Pack<N> pack;
    if constexpr (N == 1) {
        pack.at[0] = *from;
    } else {
        for (int i = 0; i < N; i += 4) {
            const Words<16> words = load_words<16>(from + i);
            for (int j = 0; j < 4; j++)
                pack.at[i + j] = float_from_bits(words.at[j]);
        }
    }
    return pack;
}

template <int N> __device__ static inline Pack<N> load(const Bf16 *from)
{
    Pack<N> pack;
    if constexpr (N == 1) {
        pack.at[0] = widen(*from);
    } else {
        const Words<2 *N> words = load_words<2 * N>(from);
        for (int i = 0; i < N; i += 2) {
            pack.at[i] = float_from_bits(words.at[i / 2] << 16);
            pack.at[i + 1] = float_from_bits(words.at[i / 2] & 0xffff0000u);
        }
    }
    return pack;
}

/* Returns a pack in its memory format. If rows are not WHOLE packs, loads only the first `there` of its elements, one
 * by one, and sets the others to 0; `there` may be more than the elements of a pack. */
template <bool WHOLE, typename T>
__device__ static inline Words<ACCESS_BYTES> load_raw(const T *from, int there)
{
    if constexpr (WHOLE) {
        (void)there;
        return load_words<ACCESS_BYTES>(from);
    } else {
        Words<ACCESS_BYTES> words = {};
        for (int i = 0; i < pack_elements<T>() && i < there; i++) {
            if constexpr (sizeof(T) == sizeof(float))
                words.at[i] = float_bits(from[i]);
            else
                words.at[i / 2] |= (uint32_t)from[i].bits << i % 2 * 16;
        }
        return words;
    }
}

/* Returns the elements of a pack in fp32. If rows are not WHOLE packs, treats `there` as load_raw() does. */
template <bool WHOLE, typename T>
__device__ static inline Pack<pack_elements<T>()> load_some(const T *from, int there)
{
    if constexpr (WHOLE) {
        (void)there;
        return load<pack_elements<T>()>(from);
    } else {
        Pack<pack_elements<T>()> pack;
        for (int i = 0; i < pack_elements<T>(); i++)
            pack.at[i] = i < there ? widen(from[i]) : 0.0f;
        return pack;
    }
}

template <int N> __device__ static inline void store(float *to, const Pack<N> &pack)
{
    if constexpr (N == 1) {
        *to = pack.at[0];
    } else {
        for (int i = 0; i < N; i += 4) {
            Words<16> words;
            for (int j = 0; j < 4; j++)
                words.at[j] = float_bits(pack.at[i + j]);
            store_words(to + i, words);
        }
    }
}

template <int N> __device__ static inline void store(Bf16 *to, const Pack<N> &pack)
{
    if constexpr (N == 1) {
        *to = narrow<Bf16>(pack.at[0]);
    } else {
        Words<2 * N> words;
        for (int i = 0; i < N; i += 2)
            words.at[i / 2] = narrow_pair(pack.at[i], pack.at[i + 1]);
        store_words(to, words);
    }
}

template <bool WHOLE, int N, typename T>
__device__ static inline void store_some(T *to, const Pack<N> &pack, int there)
{
    if constexpr (WHOLE) {
        (void)there;
        store(to, pack);
    } else {
        for (int i = 0; i < N && i < there; i++)
            to[i] = narrow<T>(pack.at[i]);
    }
}

/* ---- division by a number that is constant during a launch ---- */

/* A number by which any n is divided. The 64-bit division takes about 70 instructions of the machine. The upper half of
 * the product of n and `factor` is the same quotient while n * by < 2^64. */
struct Divisor {
    int64_t by;
    uint64_t factor; /* 2^64 / by, rounded up; 0: by is 1 */
};

static inline Divisor divisor(int64_t by)
{
    assert(by > 0);
    return Divisor{by, by == 1 ? 0 : UINT64_MAX / (uint64_t)by + 1};
}

struct Quotient {
    int64_t whole, rest;
};

_device_ static inline Quotient divide(int64_t n, Divisor d)
{
#ifdef __CUDA_ARCH__
    const uint64_t upper = __umul64hi((uint64_t)n, d.factor);
#else
    const uint64_t upper = (uint64_t)((unsigned __int128)(uint64_t)n * d.factor >> 64);
#endif
    const int64_t whole = d.factor == 0 ? n : (int64_t)upper;
    return Quotient{whole, n - whole * d.by};
}

/* ---- sums over a block ---- */

enum { THREADS = 256, WARPS = THREADS / 32 };

template <typename T> __device__ static inline T warp_sum(T x)
{
    for (int mask = 16; mask > 0; mask /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, mask);
    return x;
}

/* Returns the sum over THREADS threads to all of them. The sum is computed within each warp first, then over the warps
 * in order. part: shared memory of WARPS elements; another use of this memory must follow a barrier. */
template <typename T> __device__ static inline T block_sum(T x, T *part)
{
    x = warp_sum(x);
    __syncthreads(); /* a thread may still read part for the previous sum */
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = x;
    __syncthreads();
    T sum = part[0];
    for (int i = 1; i < WARPS; i++)
        sum += part[i];
    return sum;
}

/* ---- launches ---- */

static inline void launched(const Device *device, const char *kernel)
{
    const CudaWork work = {kernel, 0, 0};
    cuda_launched(device, &work);
}

/* A statement that runs kernel(...) on the device's LANE_COMPUTE. */
#ifdef __CUDACC__
#define LAUNCH(device, grid, block, shared_bytes, kernel, ...)                                     \
    do {                                                                                           \
        kernel<<<grid, block, shared_bytes, cuda_compute_stream(device)>>>(__VA_ARGS__);           \
        launched(device, #kernel);                                                                 \
    } while (0)
#else
#define LAUNCH(device, grid, block, shared_bytes, kernel, ...)                                     \
    do {                                                                                           \
        emulate::launch(grid, block, shared_bytes, [=] { kernel(__VA_ARGS__); });                  \
        launched(device, #kernel);                                                                 \
    } while (0)
#endif

/* ---- clusters: blocks, side by side in x, that run together and read each other's shared memory ---- */

/* Declares `name` as the shared memory that the launch requested. */
#ifdef __CUDACC__
#define SHARED_ARRAY(type, name)                                                                   \
    extern __shared__ uint4 name##_words[];                                                        \
    type *name = (type *)name##_words
#else
#define SHARED_ARRAY(type, name) type *name = (type *)emulate::shared()
#endif

__device__ static inline unsigned cluster_rank(void)
{
#ifdef __CUDACC__
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
#else
    return emulate::cluster_rank();
#endif
}

__device__ static inline unsigned cluster_size(void)
{
#ifdef __CUDACC__
    unsigned size;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    return size;
#else
    return emulate::cluster_size();
#endif
}

/* The two halves of cluster_sync(). A thread can do other work between them. */
__device__ static inline void cluster_arrive(void)
{
#ifdef __CUDACC__
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}

__device__ static inline void cluster_wait(void)
{
#ifdef __CUDACC__
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    emulate::sync_cluster();
#endif
}

/* Waits for all threads of the cluster. After this, each thread sees everything that the other threads wrote to shared
 * memory before. No block may end before the last read of its shared memory, so a barrier must follow the last read. */
__device__ static inline void cluster_sync(void)
{
    cluster_arrive();
    cluster_wait();
}

/* Returns the value in block `rank`'s shared memory at the place where this block has *mine. */
__device__ static inline float cluster_read(const float *mine, unsigned rank)
{
#ifdef __CUDACC__
    float value;
    unsigned place;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(place)
                 : "r"((unsigned)__cvta_generic_to_shared(mine)), "r"(rank));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(place) : "memory");
    return value;
#else
    return *(const float *)emulate::shared_of(mine, sizeof(*mine), rank);
#endif
}

__device__ static inline double cluster_read(const double *mine, unsigned rank)
{
#ifdef __CUDACC__
    double value;
    unsigned place;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(place)
                 : "r"((unsigned)__cvta_generic_to_shared(mine)), "r"(rank));
    asm volatile("ld.shared::cluster.f64 %0, [%1];" : "=d"(value) : "r"(place) : "memory");
    return value;
#else
    return *(const double *)emulate::shared_of(mine, sizeof(*mine), rank);
#endif
}

#ifdef __CUDACC__
template <typename... Parameters, typename... Arguments>
static void launch_clusters(cudaStream_t stream, unsigned cluster, dim3 grid, dim3 block,
                            size_t shared_bytes, void (*kernel)(Parameters...),
                            Arguments... arguments)
{
    enum { PLAIN_BYTES = 48 << 10 }; /* a kernel gets more shared memory only by an attribute */
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = cluster;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    if (shared_bytes > PLAIN_BYTES) /* if this call fails, the launch fails, too */
        (void)cudaFuncSetAttribute((const void *)kernel,
                                   cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
    (void)cudaLaunchKernelEx(&config, kernel, (Parameters)arguments...); /* an error is sticky */
}
#define LAUNCH_CLUSTERS(device, cluster, grid, block, shared_bytes, kernel, ...)                   \
    do {                                                                                           \
        launch_clusters(cuda_compute_stream(device), cluster, grid, block, shared_bytes, kernel,   \
                        __VA_ARGS__);                                                              \
        launched(device, #kernel);                                                                 \
    } while (0)
#else
#define LAUNCH_CLUSTERS(device, cluster, grid, block, shared_bytes, kernel, ...)                   \
    do {                                                                                           \
        emulate::launch_clusters(cluster, grid, block, shared_bytes,                               \
                                 [=] { kernel(__VA_ARGS__); });                                    \
        launched(device, #kernel);                                                                 \
    } while (0)
#endif

/* Runs a statement with T defined as the device's type of activations. */
#define WITH_TYPE(device, ...)                                                                     \
    do {                                                                                           \
        if ((device)->type == DATA_BF16) {                                                         \
            typedef Bf16 T;                                                                        \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            typedef float T;                                                                       \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

/* Returns the number of blocks of THREADS threads for n elements, at most GRID_MAX. With GRID_MAX blocks a thread may
 * process several elements. The emulator has a small GRID_MAX, because its threads are expensive. */
#ifdef __CUDACC__
enum { GRID_MAX = 1 << 16 };
#else
enum { GRID_MAX = 8 };
#endif

static inline unsigned blocks_for(int64_t n)
{
    return (unsigned)CLAMP(DIV_ROUND_UP(n, (int64_t)THREADS), (int64_t)1, (int64_t)GRID_MAX);
}

/* Loops over the elements i of 0..n-1 that this thread processes; the stride is the number of threads of the whole
 * grid. */
#define FOR_ELEMENTS(i, n)                                                                         \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                      \
         i += (int64_t)gridDim.x * blockDim.x)

/* Packs that a thread loads before it uses the first one: memory has a long latency, so many loads must be in
 * flight. */
enum { DEPTH = 2 };

/* Calls use(i, load(i)) once for each i of 0..n-1. A thread loads DEPTH packs before it uses the first one. */
template <typename Load, typename Use>
__device__ static inline void for_packs(int64_t n, Load load, Use use)
{
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += DEPTH * stride) {
        decltype(load(i)) loaded[DEPTH];
        UNROLL for (int k = 0; k < DEPTH; k++) if (i + k * stride < n) loaded[k] =
            load(i + k * stride);
        UNROLL for (int k = 0; k < DEPTH; k++) if (i + k * stride < n)
            use(i + k * stride, loaded[k]);
    }
}

/* Returns the number of blocks of THREADS threads for for_packs() over n packs. */
static inline unsigned blocks_for_packs(int64_t n) { return blocks_for(DIV_ROUND_UP(n, DEPTH)); }

/* Runs a statement with T defined as the device's type of activations, and N as the number of elements of a pack: a
 * pack has 16 bytes if in_packs<T> is true for the width and the pointers in `row`, otherwise one element. Both values
 * of N give the same bits. */
#define WITH_PACKS(device, row, ...)                                                               \
    WITH_TYPE(                                                                                     \
        device,                                                                                    \
        if (in_packs<T> row) {                                                                     \
            constexpr int N = pack_elements<T>();                                                  \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            constexpr int N = 1;                                                                   \
            __VA_ARGS__;                                                                           \
        })
