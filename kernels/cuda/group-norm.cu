/* SPDX-License-Identifier: Apache-2.0 */
/* group-norm.cu - GroupNorm, with SiLU when asked.
 *
 * Whatever a sum is of is made again from x and dy, so that nothing is kept but two floats a group.
 *
 * It lies on the pixels of a part of an image: a block takes CHUNK of them, its threads' x is the pack of
 * channels, their y the line, every LINES-th pixel. A warp so reads what lies side by side, and a thread keeps what
 * its channels need in registers. A sum over the pixels of an image has one tree, which the number of pixels alone
 * determines: a line's in fp32, at most CHUNK / LINES of them; lines, chunks and the channels of a group in double. */
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/operations.h"

#include <math.h>

/* ---- GroupNorm: its parts ---- */

enum {
    LINES = 8,      /* of a block's threads */
    CHUNK = 128,    /* pixels of a block */
    WIDTH_MAX = 32, /* packs of a block, side by side */
};

/* What its kernels want of a GroupNormShape. */
struct Groups {
    int64_t n, pixels, chunks;
    int c, groups;
    Divisor size; /* channels of a group */
    double eps;
};

static Groups groups_of(const GroupNormShape *s)
{
    assert(s->c % s->groups == 0);
    const int64_t pixels = (int64_t)s->h * s->w;
    return Groups{s->n,  pixels,    DIV_ROUND_UP(pixels, (int64_t)CHUNK),
                  s->c,  s->groups, divisor(s->c / s->groups),
                  s->eps};
}

/* Threads and blocks where a thread has N channels: the widest blocks that share a pixel evenly. grid: x part of the
 * channels, y chunk, z image. */
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

/* The first channel of this thread. */
template <int N> __device__ static inline int own_channel(void)
{
    return (int)(blockIdx.x * blockDim.x + threadIdx.x) * N;
}

__device__ static inline int64_t group_of(const Groups &g, int channel)
{
    return (int64_t)blockIdx.z * g.groups + divide(channel, g.size).whole;
}

/* Gives use(at, load(at, pixel)) the place of each pack of this thread in turn: a channel's pixels in their order. AHEAD
 * of them are loaded before the first is used. */
template <int AHEAD, typename Load, typename Use>
__device__ static inline void for_pixels(const Groups &g, int channel, Load load, Use use)
{
    const int64_t first = (int64_t)blockIdx.y * CHUNK, end = MIN(first + CHUNK, g.pixels);
    const int64_t line = (int64_t)LINES * g.c;
    for (int64_t pixel = first + threadIdx.y; pixel < end; pixel += AHEAD * LINES) {
        const int64_t at = (blockIdx.z * g.pixels + pixel) * g.c + channel;
        decltype(load(at, pixel)) loaded[AHEAD];
        UNROLL for (int k = 0; k < AHEAD; k++) if (pixel + k * LINES < end) loaded[k] =
            load(at + k * line, pixel + k * LINES);
        UNROLL for (int k = 0; k < AHEAD; k++) if (pixel + k * LINES < end)
            use(at + k * line, loaded[k]);
    }
}

/* A part is of a chunk: parts[image][chunk][which][channel]. */
__device__ static inline int64_t part_at(const Groups &g, int64_t image, int64_t chunk, int which)
{
    return part_at(g.c, image * g.chunks + chunk, which);
}

/* Adds the lines of a block, and writes parts. */
template <int N>
__device__ static inline void write_parts(const Groups &g, const Pack<N> &plain,
                                          const Pack<N> &scaled, float *parts)
{
    enum { PITCH = WIDTH_MAX + 1 }; /* odd: neighbouring channels lie in different banks */
    __shared__ float lines[LINES][2 * N][PITCH];
    for (int k = 0; k < N; k++) {
        lines[threadIdx.y][k][threadIdx.x] = plain.at[k];
        lines[threadIdx.y][N + k][threadIdx.x] = scaled.at[k];
    }
    __syncthreads();
    const int width = (int)blockDim.x;
    for (int i = (int)threadIdx.y; i < 2 * N; i += LINES) {
        const int which = i / N,
                  mine = i % N * width + (int)threadIdx.x; /* of the block's channels */
        const int channel = (int)blockIdx.x * width * N + mine;
        if (channel >= g.c)
            continue;
        double sum = 0;
        for (int line = 0; line < LINES; line++)
            sum += (double)lines[line][which * N + mine % N][mine / N];
        parts[part_at(g, blockIdx.z, blockIdx.y, which) + channel] = (float)sum;
    }
}

/* The sum of term(channel, chunk) over a group, by a warp, whose lanes all get it. */
template <typename Term>
__device__ static inline double sum_group(const Groups &g, int group, Term term)
{
    double sum = 0;
    for (int64_t i = threadIdx.x % 32; i < g.chunks * g.size.by; i += 32) {
        const Quotient at = divide(i, g.size);
        sum += term(group * (int)g.size.by + (int)at.rest, at.whole);
    }
    return warp_sum(sum);
}

static size_t parts_bytes(const Groups &g)
{
    return (size_t)(g.n * g.chunks * 2 * g.c) * sizeof(float);
}

/* Runs a statement with SILU, as the shape has it. */
#define WITH_SILU(shape, ...)                                                                      \
    do {                                                                                           \
        if ((shape)->silu) {                                                                       \
            constexpr bool SILU = true;                                                            \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            constexpr bool SILU = false;                                                           \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

/* ---- GroupNorm: forward ---- */

/* The sums of x and of its square, less the channel's value in the image's first pixel: means far above the
 * deviation cancel before they are squared. */
template <int N, typename T>
__global__ void __launch_bounds__(THREADS, 3) group_parts_kernel(Groups g, const T *x, float *parts)
{
    const int channel = own_channel<N>();
    Pack<N> plain = {}, squares = {};
    if (channel < g.c) {
        const Pack<N> pivot = load<N>(x + blockIdx.z * g.pixels * g.c + channel);
        for_pixels<4>(
            g, channel, [=](int64_t at, int64_t) { return load<N>(x + at); },
            [&](int64_t, const Pack<N> &in) {
                for (int k = 0; k < N; k++) {
                    const float d = in.at[k] - pivot.at[k];
                    plain.at[k] += d;
                    squares.at[k] += d * d;
                }
            });
    }
    write_parts<N>(g, plain, squares, parts);
}

/* What group_parts_kernel would have written, where parts is NULL: of an image of LINES pixels at most. */
template <typename T>
__device__ static inline double moment_part(const Groups &g, const T *x, const float *parts,
                                            int64_t image, int64_t chunk, int channel, int which)
{
    if (parts)
        return (double)parts[part_at(g, image, chunk, which) + channel];
    const T *first = x + image * g.pixels * g.c + channel;
    double sum = 0;
    for (int64_t i = 0; i < g.pixels; i++) {
        const float d = widen(first[i * g.c]) - widen(first[0]);
        sum += (double)(which == 0 ? d : d * d);
    }
    return (double)(float)sum;
}

/* Mean and 1 / sqrt(variance + eps) of a group, by a warp. */
template <typename T>
__global__ void group_moments_kernel(Groups g, const T *x, const float *parts, float *saved)
{
    const int64_t number = warp_number();
    if (number >= g.n * g.groups)
        return;
    const int64_t image = number / g.groups;
    const int group = (int)(number % g.groups);
    const double pixels = (double)g.pixels, n = pixels * (double)g.size.by;
    const T *pivot = x + image * g.pixels * g.c; /* [channel] */
    const double sum = sum_group(g, group, [=](int channel, int64_t chunk) {
        const double plain = moment_part(g, x, parts, image, chunk, channel, 0);
        return plain + (chunk == 0 ? pixels * (double)widen(pivot[channel]) : 0);
    });
    const double mean = sum / n;
    const double squares = sum_group(g, group, [=](int channel, int64_t chunk) {
        const double plain = moment_part(g, x, parts, image, chunk, channel, 0);
        const double square = moment_part(g, x, parts, image, chunk, channel, 1);
        const double off = mean - (double)widen(pivot[channel]);
        return square - 2 * off * plain + (chunk == 0 ? pixels * off * off : 0);
    });
    if (threadIdx.x % 32 == 0) {
        saved[2 * number] = (float)mean;
        saved[2 * number + 1] = (float)(1.0 / sqrt(fmax(squares / n, 0.0) + g.eps));
    }
}

/* y = scale x + shift, per channel. */
template <int N> struct Line {
    Pack<N> scale, shift;
};

template <int N>
__device__ static inline Line<N> line_of(const Groups &g, int channel, const float *gamma,
                                         const float *beta, const float *saved)
{
    Line<N> line;
    for (int k = 0; k < N; k++) {
        const int64_t group = group_of(g, channel + k);
        line.scale.at[k] = saved[2 * group + 1] * gamma[channel + k];
        line.shift.at[k] = fmaf(-saved[2 * group], line.scale.at[k], beta[channel + k]);
    }
    return line;
}

template <int N, bool SILU, typename T>
__global__ void __launch_bounds__(THREADS, 3)
    group_normalise_kernel(Groups g, const T *x, const float *gamma, const float *beta,
                           const float *saved, T *y)
{
    const int channel = own_channel<N>();
    if (channel >= g.c)
        return;
    const Line<N> line = line_of<N>(g, channel, gamma, beta, saved);
    for_pixels<4>(
        g, channel, [=](int64_t at, int64_t) { return load<N>(x + at); },
        [=](int64_t at, Pack<N> pack) {
            for (int k = 0; k < N; k++) {
                const float z = fmaf(pack.at[k], line.scale.at[k], line.shift.at[k]);
                pack.at[k] = SILU ? silu(z) : z;
            }
            store(y + at, pack);
        });
}

/* Until y is written, the parts lie in it: 8 bytes a channel of the 2 or 4 that each of CHUNK pixels has. An image of
 * few pixels has no room for them, and needs none. */
template <typename T> static float *parts_in(const Groups &g, T *y)
{
    if (g.pixels <= LINES)
        return NULL;
    float *parts = (float *)ROUND_UP((uintptr_t)y, sizeof(float));
    assert((char *)parts + parts_bytes(g) <= (char *)(y + g.n * g.pixels * g.c));
    return parts;
}

void cuda_group_norm_forward(Device *device, const GroupNormShape *shape, const void *x,
                             const float *gamma, const float *beta, void *y, float *saved)
{
    const Groups g = groups_of(shape);
    assert(x != y);
    WITH_PACKS(device, (g.c, x, y), {
        float *parts = parts_in(g, (T *)y);
        if (parts)
            LAUNCH(device, blocks_of(g, N), threads_of(g, N), 0, (group_parts_kernel<N, T>), g,
                   (const T *)x, parts);
        LAUNCH(device, blocks_of_warps(g.n * g.groups), THREADS, 0, group_moments_kernel<T>, g,
               (const T *)x, (const float *)parts, saved);
        WITH_SILU(shape, LAUNCH(device, blocks_of(g, N), threads_of(g, N), 0,
                                (group_normalise_kernel<N, SILU, T>), g, (const T *)x, gamma, beta,
                                (const float *)saved, (T *)y));
    });
}

/* ---- GroupNorm: backward ---- */

template <int N> struct Slopes {
    Pack<N> x, dy, dx;
};

/* The gradient before SiLU. */
template <bool SILU>
__device__ static inline float before_silu(float x, float dy, float scale, float shift)
{
    return SILU ? dy * silu_slope(fmaf(x, scale, shift)) : dy;
}

/* The sums of dz and of dz (x - mean). */
template <int N, bool SILU, typename T>
__global__ void __launch_bounds__(THREADS, 2)
    group_slopes_kernel(Groups g, const T *x, const float *gamma, const float *beta,
                        const float *saved, const T *dy, float *parts)
{
    const int channel = own_channel<N>();
    Pack<N> plain = {}, scaled = {}, mean;
    if (channel < g.c) {
        const Line<N> line = line_of<N>(g, channel, gamma, beta, saved);
        for (int k = 0; k < N; k++)
            mean.at[k] = saved[2 * group_of(g, channel + k)];
        for_pixels<2>(
            g, channel,
            [=](int64_t at, int64_t) {
                return Slopes<N>{load<N>(x + at), load<N>(dy + at), {}};
            },
            [&](int64_t, const Slopes<N> &in) {
                for (int k = 0; k < N; k++) {
                    const float dz = before_silu<SILU>(in.x.at[k], in.dy.at[k], line.scale.at[k],
                                                       line.shift.at[k]);
                    plain.at[k] += dz;
                    scaled.at[k] += dz * (in.x.at[k] - mean.at[k]);
                }
            });
    }
    write_parts<N>(g, plain, scaled, parts);
}

/* means[image][group] = the means over the group of gamma dz and of gamma dz * normalised x, by a warp. */
__global__ void group_means_kernel(Groups g, const float *gamma, const float *saved,
                                   const float *parts, float *means)
{
    const int64_t number = warp_number();
    if (number >= g.n * g.groups)
        return;
    const int64_t image = number / g.groups;
    const int group = (int)(number % g.groups);
    const double n = (double)g.pixels * (double)g.size.by;
    for (int which = 0; which < 2; which++) {
        const double sum = sum_group(g, group, [=](int channel, int64_t chunk) {
            return (double)gamma[channel] *
                   (double)parts[part_at(g, image, chunk, which) + channel];
        });
        const double factor = which == 0 ? 1.0 : (double)saved[2 * number + 1];
        if (threadIdx.x % 32 == 0)
            means[2 * number + which] = (float)(sum * factor / n);
    }
}

/* dx = scale dz + (slope x + offset): inverse * (gamma dz - mean(gamma dz) - normal * mean(gamma dz normal)). */
template <int N, bool SILU, typename T>
__global__ void __launch_bounds__(THREADS, 2)
    group_backward_kernel(Groups g, const T *x, const float *gamma, const float *beta,
                          const float *saved, const float *means, const T *dy, T *dx, bool add)
{
    const int channel = own_channel<N>();
    if (channel >= g.c)
        return;
    const Line<N> line = line_of<N>(g, channel, gamma, beta, saved);
    Line<N> rest;
    for (int k = 0; k < N; k++) {
        const int64_t group = group_of(g, channel + k);
        const float mean = saved[2 * group], inverse = saved[2 * group + 1];
        rest.scale.at[k] = -inverse * inverse * means[2 * group + 1];
        rest.shift.at[k] = fmaf(-mean, rest.scale.at[k], -inverse * means[2 * group]);
    }
    for_pixels<2>(
        g, channel,
        [=](int64_t at, int64_t) {
            return Slopes<N>{load<N>(x + at), load<N>(dy + at), add ? load<N>(dx + at) : Pack<N>{}};
        },
        [=](int64_t at, const Slopes<N> &in) {
            Pack<N> out;
            for (int k = 0; k < N; k++) {
                const float dz =
                    before_silu<SILU>(in.x.at[k], in.dy.at[k], line.scale.at[k], line.shift.at[k]);
                const float other = fmaf(in.x.at[k], rest.scale.at[k], rest.shift.at[k]);
                const float d = fmaf(line.scale.at[k], dz, other);
                out.at[k] = add ? in.dx.at[k] + d : d;
            }
            store(dx + at, out);
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

void cuda_group_norm_backward(Device *device, const GroupNormShape *shape, const void *x,
                              const float *gamma, const float *beta, const float *saved,
                              const void *dy, void *dx, bool accumulate, float *dgamma,
                              float *dbeta, void *workspace)
{
    const Groups g = groups_of(shape);
    float *parts = (float *)workspace, *means = (float *)((char *)workspace + slopes_bytes(g));
    WITH_PACKS(device, (g.c, x, dy, dx), {
        WITH_SILU(shape, LAUNCH(device, blocks_of(g, N), threads_of(g, N), 0,
                                (group_slopes_kernel<N, SILU, T>), g, (const T *)x, gamma, beta,
                                saved, (const T *)dy, parts));
        LAUNCH(device, blocks_of_warps(g.n * g.groups), THREADS, 0, group_means_kernel, g, gamma,
               saved, (const float *)parts, means);
        WITH_SILU(shape, LAUNCH(device, blocks_of(g, N), threads_of(g, N), 0,
                                (group_backward_kernel<N, SILU, T>), g, (const T *)x, gamma, beta,
                                saved, (const float *)means, (const T *)dy, (T *)dx, accumulate));
    });
    const Parts all = {g.n * g.chunks, g.chunks, g.c, g.groups, g.size};
    norm_parameters(device, all, saved, parts, dgamma, dbeta);
}
