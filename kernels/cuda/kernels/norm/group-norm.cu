/* SPDX-License-Identifier: Apache-2.0 */
/* group-norm.cu - GroupNorm, with SiLU where the shape asks for it.
 *
 * Where an image's groups fit into the shared memory of a cluster, x is read once (group-norm-held.cu). The kernels
 * here serve any shape, but read x and dy twice. A block processes a chunk of pixels; threadIdx.x is the number of a
 * thread's pack of channels, threadIdx.y the number of its line. So a warp reads contiguous memory, and a thread keeps
 * the values of its channels in registers. */
#include "kernels/cuda/kernels/norm/group-norm.cuh"
#include "kernels/cuda/kernels/operations.h"

enum { WIDTH_MAX = 32 }; /* packs of a block, side by side */

/* Returns the size of a block whose threads have n channels each. The blocks share a pixel's channels evenly, and are
 * as wide as WIDTH_MAX allows. In the grid, blockIdx.x is the part of the channels, blockIdx.y the chunk and blockIdx.z
 * the image. */
static dim3 threads_of(const Groups &g, int n)
{
    const int packs = g.c / n;
    const int parts = DIV_ROUND_UP(packs, (int)WIDTH_MAX);
    return dim3((unsigned)DIV_ROUND_UP(packs, parts), LINES);
}

static dim3 blocks_of(const Groups &g, int n)
{
    const unsigned width = threads_of(g, n).x, packs = (unsigned)(g.c / n);
    return dim3(DIV_ROUND_UP(packs, width), (unsigned)g.chunks, (unsigned)g.n);
}

/* Returns the first channel of this thread. */
template <int N> __device__ static inline int own_channel(void)
{
    return (int)(blockIdx.x * blockDim.x + threadIdx.x) * N;
}

__device__ static inline Pixels own_pixels(void)
{
    return Pixels{blockIdx.z, blockIdx.y, (int)threadIdx.y};
}

/* Adds the lines of a block and writes the block's parts. */
template <int N>
__device__ static inline void write_parts(const Groups &g, const Sums<N> &sums, float *parts)
{
    enum { PITCH = WIDTH_MAX + 1 }; /* odd: neighbouring channels lie in different banks */
    __shared__ float lines[LINES][2 * N][PITCH];
    for (int k = 0; k < N; k++) {
        lines[threadIdx.y][k][threadIdx.x] = sums.plain.at[k];
        lines[threadIdx.y][N + k][threadIdx.x] = sums.scaled.at[k];
    }
    __syncthreads();
    const int width = (int)blockDim.x;
    for (int i = (int)threadIdx.y; i < 2 * N; i += LINES) {
        const int which = i / N,
                  mine = i % N * width + (int)threadIdx.x; /* index in the block's channels */
        const int channel = (int)blockIdx.x * width * N + mine;
        if (channel >= g.c)
            continue;
        double sum = 0;
        for (int line = 0; line < LINES; line++)
            sum += (double)lines[line][which * N + mine % N][mine / N];
        parts[part_at(g, blockIdx.z, blockIdx.y, which) + channel] = (float)sum;
    }
}

/* ---- forward ---- */

template <int N, typename T>
__global__ void __launch_bounds__(THREADS, 3)
    group_parts_kernel(Groups g, Joined<const T> x, float *parts)
{
    const int channel = own_channel<N>();
    Sums<N> sums = {};
    if (channel < g.c) {
        const Rows<const T> rows(x, channel);
        const Pack<N> pivot = load<N>(rows.at((int)(blockIdx.z * g.pixels)));
        for_pixels<4>(
            g, own_pixels(), [=](int row, int64_t) { return load<N>(rows.at(row)); },
            [&](int64_t, int64_t, const Pack<N> &in) { add_pixel(in, pivot, &sums); });
    }
    write_parts<N>(g, sums, parts);
}

/* Returns a sum from parts. If parts is NULL, computes the sum that group_parts_kernel would have written, for an image
 * of at most LINES pixels. */
template <typename T>
__device__ static inline float moment_part(const Groups &g, const Joined<const T> &x,
                                           const float *parts, int64_t image, int64_t chunk,
                                           int channel, int which)
{
    if (parts)
        return parts[part_at(g, image, chunk, which) + channel];
    const Rows<const T> rows(x, channel);
    const int first = (int)(image * g.pixels);
    double sum = 0;
    for (int i = 0; i < g.pixels; i++) {
        const float d = widen(*rows.at(first + i)) - widen(*rows.at(first));
        sum += (double)(which == 0 ? d : d * d);
    }
    return (float)sum;
}

/* Computes mean and 1 / sqrt(variance + eps) of each group, with one warp for each group. */
template <typename T>
__global__ void group_moments_kernel(Groups g, Joined<const T> x, const float *parts, float *saved)
{
    const int64_t number = warp_number();
    if (number >= g.n * g.groups)
        return;
    const int64_t image = number / g.groups;
    const Moments moments = moments_of(
        g, (int)(number % g.groups),
        [=](int channel, int64_t chunk, int which) {
            return moment_part(g, x, parts, image, chunk, channel, which);
        },
        [=](int channel) { return widen(*Rows<const T>(x, channel).at((int)(image * g.pixels))); });
    if (threadIdx.x % 32 == 0) {
        saved[2 * number] = moments.mean;
        saved[2 * number + 1] = moments.inverse;
    }
}

template <int N, bool SILU, typename T>
__global__ void __launch_bounds__(THREADS, 3)
    group_normalise_kernel(Groups g, Joined<const T> x, const float *gamma, const float *beta,
                           const float *saved, T *y)
{
    const int channel = own_channel<N>();
    if (channel >= g.c)
        return;
    const float *moments = saved + 2 * (int64_t)blockIdx.z * g.groups;
    const Line<N> line = line_of<N>(g, channel, gamma, beta, moments, 0);
    const Rows<const T> rows(x, channel);
    for_pixels<4>(
        g, own_pixels(), [=](int row, int64_t) { return load<N>(rows.at(row)); },
        [=](int row, int64_t, const Pack<N> &in) {
            store(y + (int64_t)row * g.c + channel, normalised<SILU>(in, line));
        });
}

/* The memory of y contains the parts until y is written: the parts need 8 bytes for each channel of a chunk, and y has
 * 2 or 4 bytes for each channel of each of its CHUNK pixels. An image of few pixels has no room for parts, and needs
 * none. */
template <typename T> static float *parts_in(const Groups &g, T *y)
{
    if (g.pixels <= LINES)
        return NULL;
    float *parts = (float *)ROUND_UP((uintptr_t)y, sizeof(float));
    assert((char *)parts + parts_bytes(g) <= (char *)(y + g.n * g.pixels * g.c));
    return parts;
}

template <int N, typename T>
static void read_twice(Device *device, const GroupNormShape *shape, const Joined<const T> &x,
                       const float *gamma, const float *beta, T *y, float *saved)
{
    const Groups g = groups_of(shape);
    float *parts = parts_in(g, y);
    if (parts)
        LAUNCH(device, blocks_of(g, N), threads_of(g, N), 0, (group_parts_kernel<N, T>), g, x,
               parts);
    LAUNCH(device, blocks_of_warps(g.n * g.groups), THREADS, 0, group_moments_kernel<T>, g, x,
           (const float *)parts, saved);
    WITH_SILU(shape, LAUNCH(device, blocks_of(g, N), threads_of(g, N), 0,
                            (group_normalise_kernel<N, SILU, T>), g, x, gamma, beta,
                            (const float *)saved, y));
}

bool cuda_reads_joined(const Device *device)
{
    (void)device;
    return true;
}

/* Returns a number that is a multiple of a pack's elements exactly if the widths of both tensors are
 * multiples of it. */
static int64_t width_of(const GroupNormShape *shape) { return shape->c | shape->c_second; }

void cuda_group_norm_forward(Device *device, const GroupNormShape *shape, const void *x,
                             const void *second, const float *gamma, const float *beta, void *y,
                             float *saved)
{
    assert(x != y && second != y);
    WITH_PACKS(device, (width_of(shape), x, second, y), {
        const Joined<const T> in = joined(shape, (const T *)x, (const T *)second);
        if (N == 1 || !group_norm_held_forward(device, shape, in, gamma, beta, (T *)y, saved))
            read_twice<N>(device, shape, in, gamma, beta, (T *)y, saved);
    });
}

/* ---- backward ---- */

template <int N> struct Slopes {
    Pack<N> x, dy, dx;
};

template <int N, bool SILU, typename T>
__global__ void __launch_bounds__(THREADS, 2)
    group_slopes_kernel(Groups g, Joined<const T> x, const float *gamma, const float *beta,
                        const float *saved, const T *dy, float *parts)
{
    const int channel = own_channel<N>();
    Sums<N> sums = {};
    if (channel < g.c) {
        const float *moments = saved + 2 * (int64_t)blockIdx.z * g.groups;
        const Line<N> line = line_of<N>(g, channel, gamma, beta, moments, 0);
        const Pack<N> mean = means_of<N>(g, channel, moments);
        const Rows<const T> rows(x, channel);
        for_pixels<2>(
            g, own_pixels(),
            [=](int row, int64_t) {
                return Slopes<N>{load<N>(rows.at(row)),
                                 load<N>(dy + (int64_t)row * g.c + channel),
                                 {}};
            },
            [&](int64_t, int64_t, const Slopes<N> &in) {
                add_slopes<SILU>(in.x, in.dy, line, mean, &sums);
            });
    }
    write_parts<N>(g, sums, parts);
}

/* Computes means[image][group][2], with one warp for each group. */
__global__ void group_means_kernel(Groups g, const float *gamma, const float *saved,
                                   const float *parts, float *means)
{
    const int64_t number = warp_number();
    if (number >= g.n * g.groups)
        return;
    const int64_t image = number / g.groups;
    const Moments mine = slope_means_of(g, (int)(number % g.groups), gamma, saved[2 * number + 1],
                                        [=](int channel, int64_t chunk, int which) {
                                            return parts[part_at(g, image, chunk, which) + channel];
                                        });
    if (threadIdx.x % 32 == 0) {
        means[2 * number] = mine.mean;
        means[2 * number + 1] = mine.inverse;
    }
}

template <int N, bool SILU, typename T>
__global__ void __launch_bounds__(THREADS, 2)
    group_backward_kernel(Groups g, Joined<const T> x, const float *gamma, const float *beta,
                          const float *saved, const float *means, const T *dy, Joined<T> dx,
                          Adds adds)
{
    const int channel = own_channel<N>();
    if (channel >= g.c)
        return;
    const int64_t first = 2 * (int64_t)blockIdx.z * g.groups;
    const Line<N> line = line_of<N>(g, channel, gamma, beta, saved + first, 0);
    const Line<N> rest = rest_of<N>(g, channel, saved + first, means + first, 0);
    const Rows<const T> rows(x, channel);
    const Rows<T> out(dx, channel);
    const bool add = out.behind ? adds.second : adds.first;
    for_pixels<2>(
        g, own_pixels(),
        [=](int row, int64_t) {
            return Slopes<N>{load<N>(rows.at(row)), load<N>(dy + (int64_t)row * g.c + channel),
                             add ? load<N>(out.at(row)) : Pack<N>{}};
        },
        [=](int row, int64_t, const Slopes<N> &in) {
            store(out.at(row), gradient<SILU>(in.x, in.dy, in.dx, line, rest));
        });
}

static size_t slopes_bytes(const Groups &g)
{
    return ROUND_UP(parts_bytes(g), (size_t)DEVICE_ALIGNMENT);
}

size_t cuda_group_norm_workspace_bytes(const Device *device, const GroupNormShape *shape)
{
    (void)device;
    const Groups g = groups_of(shape);
    return slopes_bytes(g) + (size_t)(g.n * g.groups) * 2 * sizeof(float);
}

template <int N, typename T>
static void read_slopes_twice(Device *device, const GroupNormShape *shape, const Joined<const T> &x,
                              const float *gamma, const float *beta, const float *saved,
                              const T *dy, const Joined<T> &dx, const Adds &add, float *parts)
{
    const Groups g = groups_of(shape);
    float *means = (float *)((char *)parts + slopes_bytes(g));
    WITH_SILU(shape,
              LAUNCH(device, blocks_of(g, N), threads_of(g, N), 0,
                     (group_slopes_kernel<N, SILU, T>), g, x, gamma, beta, saved, dy, parts));
    LAUNCH(device, blocks_of_warps(g.n * g.groups), THREADS, 0, group_means_kernel, g, gamma, saved,
           (const float *)parts, means);
    WITH_SILU(shape, LAUNCH(device, blocks_of(g, N), threads_of(g, N), 0,
                            (group_backward_kernel<N, SILU, T>), g, x, gamma, beta, saved,
                            (const float *)means, dy, dx, add));
}

void cuda_group_norm_backward(Device *device, const GroupNormShape *shape, const void *x,
                              const void *second, const float *gamma, const float *beta,
                              const float *saved, const void *dy, void *dx, bool accumulate,
                              void *dsecond, bool accumulate_second, float *dgamma, float *dbeta,
                              void *workspace)
{
    const Groups g = groups_of(shape);
    const Adds add = {accumulate, accumulate_second};
    float *parts = (float *)workspace;
    WITH_PACKS(device, (width_of(shape), x, second, dy, dx, dsecond), {
        const Joined<const T> in = joined(shape, (const T *)x, (const T *)second);
        const Joined<T> out = joined(shape, (T *)dx, (T *)dsecond);
        if (N == 1 || !group_norm_held_backward(device, shape, in, gamma, beta, saved,
                                                (const T *)dy, out, add, parts))
            read_slopes_twice<N>(device, shape, in, gamma, beta, saved, (const T *)dy, out, add,
                                 parts);
    });
    const Parts all = {g.n * g.chunks, divisor(g.chunks), g.c, g.groups, g.size};
    norm_parameters(device, all, saved, parts, dgamma, dbeta);
}
