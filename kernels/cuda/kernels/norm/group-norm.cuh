/* SPDX-License-Identifier: Apache-2.0 */
/* group-norm.cuh - shared by both implementations of GroupNorm: pixels, sums, and the computation of an element.
 *
 * An image consists of chunks of CHUNK pixels. A chunk has LINES lines of threads, each with every LINES-th pixel, and
 * a thread has a pack of channels. A sum over the pixels of an image has one tree, which depends only on the number of
 * pixels: the pixels of a line are added in fp32, at most CHUNK / LINES of them; lines are added in double and rounded
 * to a part in fp32; chunks and the channels of a group are added in double. Both implementations use this tree, so
 * they give the same bits.
 *
 * Ownership: none.
 * Units:     elements.
 * Errors:    a launch that fails is the device's sticky error.
 * Threads:   as kernels.h.
 */
#pragma once

#include "kernels/cuda/kernels/activation.cuh"
#include "kernels/cuda/kernels/norm/norm.cuh"

#include <math.h>

enum { LINES = 8, CHUNK = 128 };

/* The parts of a GroupNormShape that the kernels use. */
struct Groups {
    int64_t n, pixels, chunks;
    int c, groups;
    Divisor size; /* channels of a group */
    double eps;
};

/* A tensor, or two tensors that form one: the channels of the second follow those of the first. */
template <typename T> struct Joined {
    T *first, *second;
    int c_first, c_second;
};

template <typename T> static inline Joined<T> joined(const GroupNormShape *s, T *first, T *second)
{
    assert((s->c_second > 0) == (second != NULL) && s->c_second >= 0 && s->c_second < s->c);
    return Joined<T>{first, second, s->c - s->c_second, s->c_second};
}

/* Whether a gradient is added to the old values of each tensor. */
struct Adds {
    bool first, second;
};

/* The addresses of a thread's channels, all in one of the two tensors. Rows are pixels of all images. */
template <typename T> struct Rows {
    T *first; /* the channels of the first row */
    int c;    /* elements from row to row */
    bool behind;

    __device__ Rows(const Joined<T> &all, int channel)
    {
        behind = channel >= all.c_first;
        first = behind ? all.second + (channel - all.c_first) : all.first + channel;
        c = behind ? all.c_second : all.c_first;
    }
    __device__ T *at(int row) const { return first + (int64_t)row * c; }
};

static inline Groups groups_of(const GroupNormShape *s)
{
    assert(s->c % s->groups == 0);
    const int64_t pixels = (int64_t)s->h * s->w;
    assert(s->n * pixels <= INT_MAX); /* row numbers are ints */
    return Groups{s->n,  pixels,    DIV_ROUND_UP(pixels, (int64_t)CHUNK),
                  s->c,  s->groups, divisor(s->c / s->groups),
                  s->eps};
}

/* A thread's pixels: one line of a chunk of an image. */
struct Pixels {
    int64_t image, chunk;
    int line;
};

/* Calls use(row, pixel, load(row, pixel)) for each of this thread's pixels, in order. AHEAD pixels are loaded before
 * the first one is used. */
template <int AHEAD, typename Load, typename Use>
__device__ static inline void for_pixels(const Groups &g, const Pixels &p, Load load, Use use)
{
    const int64_t first = p.chunk * CHUNK, end = MIN(first + CHUNK, g.pixels);
    for (int64_t pixel = first + p.line; pixel < end; pixel += AHEAD * LINES) {
        const int row = (int)(p.image * g.pixels + pixel);
        decltype(load(row, pixel)) loaded[AHEAD];
        UNROLL for (int k = 0; k < AHEAD; k++) if (pixel + k * LINES < end) loaded[k] =
            load(row + k * LINES, pixel + k * LINES);
        UNROLL for (int k = 0; k < AHEAD; k++) if (pixel + k * LINES < end)
            use(row + k * LINES, pixel + k * LINES, loaded[k]);
    }
}

/* Returns the index of a chunk's part: parts[image][chunk][which][channel]. */
__device__ static inline int64_t part_at(const Groups &g, int64_t image, int64_t chunk, int which)
{
    return part_at(g.c, image * g.chunks + chunk, which);
}

static inline size_t parts_bytes(const Groups &g)
{
    return (size_t)(g.n * g.chunks * 2 * g.c) * sizeof(float);
}

/* ---- sums ---- */

/* Two sums for each of a thread's channels. */
template <int N> struct Sums {
    Pack<N> plain, scaled;
};

/* Forward: adds x and its square, after subtracting the channel's value in the image's first pixel. So a mean far above
 * the deviation cancels before the square is computed. */
template <int N>
__device__ static inline void add_pixel(const Pack<N> &x, const Pack<N> &pivot, Sums<N> *sums)
{
    for (int k = 0; k < N; k++) {
        const float d = x.at[k] - pivot.at[k];
        sums->plain.at[k] += d;
        sums->scaled.at[k] = fmaf(d, d, sums->scaled.at[k]);
    }
}

/* Returns the sum of term(channel, chunk) over a group. A warp computes the sum, and all of its lanes get it. */
template <typename Term>
__device__ static inline double sum_group(const Groups &g, int group, Term term)
{
    const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    double sum = 0;
    for (int64_t i = thread % 32; i < g.chunks * g.size.by; i += 32) {
        const Quotient at = divide(i, g.size);
        sum += term(group * (int)g.size.by + (int)at.rest, at.whole);
    }
    return warp_sum(sum);
}

struct Moments {
    float mean, inverse; /* inverse: 1 / sqrt(variance + eps) */
};

/* Returns a group's moments, computed by a warp from part(channel, chunk, which) and pivot(channel). */
template <typename Part, typename Pivot>
__device__ static inline Moments moments_of(const Groups &g, int group, Part part, Pivot pivot)
{
    const double pixels = (double)g.pixels, n = pixels * (double)g.size.by;
    const double sum = sum_group(g, group, [=](int channel, int64_t chunk) {
        const double plain = (double)part(channel, chunk, 0);
        return plain + (chunk == 0 ? pixels * (double)pivot(channel) : 0);
    });
    const double mean = sum / n;
    const double squares = sum_group(g, group, [=](int channel, int64_t chunk) {
        const double plain = (double)part(channel, chunk, 0);
        const double square = (double)part(channel, chunk, 1);
        const double off = mean - (double)pivot(channel);
        return square - 2 * off * plain + (chunk == 0 ? pixels * off * off : 0);
    });
    return Moments{(float)mean, (float)(1.0 / sqrt(fmax(squares / n, 0.0) + g.eps))};
}

/* Returns the means over a group of gamma dz and of gamma dz * normalised x, computed by a warp from part() as in
 * moments_of(). */
template <typename Part>
__device__ static inline Moments slope_means_of(const Groups &g, int group, const float *gamma,
                                                float inverse, Part part)
{
    const double n = (double)g.pixels * (double)g.size.by;
    double sums[2];
    for (int which = 0; which < 2; which++)
        sums[which] = sum_group(g, group, [=](int channel, int64_t chunk) {
            return (double)gamma[channel] * (double)part(channel, chunk, which);
        });
    return Moments{(float)(sums[0] / n), (float)(sums[1] * (double)inverse / n)};
}

/* ---- elements ---- */

/* Runs a statement with SILU defined as the constant true or false that `silu` has in the shape. */
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

/* y = scale x + shift, per channel. */
template <int N> struct Line {
    Pack<N> scale, shift;
};

/* moments: the saved values, [group][2], of the image's groups from first_group on. */
template <int N>
__device__ static inline Line<N> line_of(const Groups &g, int channel, const float *gamma,
                                         const float *beta, const float *moments, int first_group)
{
    Line<N> line;
    for (int k = 0; k < N; k++) {
        const float *group = moments + 2 * (divide(channel + k, g.size).whole - first_group);
        line.scale.at[k] = group[1] * gamma[channel + k];
        line.shift.at[k] = fmaf(-group[0], line.scale.at[k], beta[channel + k]);
    }
    return line;
}

template <bool SILU, int N>
__device__ static inline Pack<N> normalised(const Pack<N> &x, const Line<N> &line)
{
    Pack<N> y;
    for (int k = 0; k < N; k++) {
        const float z = fmaf(x.at[k], line.scale.at[k], line.shift.at[k]);
        y.at[k] = SILU ? silu(z) : z;
    }
    return y;
}

/* Returns the gradient of SiLU's input. */
template <bool SILU>
__device__ static inline float before_silu(float x, float dy, float scale, float shift)
{
    return SILU ? dy * silu_slope(fmaf(x, scale, shift)) : dy;
}

/* Backward: adds dz and dz (x - mean) to the sums. */
template <bool SILU, int N>
__device__ static inline void add_slopes(const Pack<N> &x, const Pack<N> &dy, const Line<N> &line,
                                         const Pack<N> &mean, Sums<N> *sums)
{
    for (int k = 0; k < N; k++) {
        const float dz = before_silu<SILU>(x.at[k], dy.at[k], line.scale.at[k], line.shift.at[k]);
        sums->plain.at[k] += dz;
        sums->scaled.at[k] = fmaf(dz, x.at[k] - mean.at[k], sums->scaled.at[k]);
    }
}

template <int N>
__device__ static inline Pack<N> means_of(const Groups &g, int channel, const float *moments)
{
    Pack<N> mean;
    for (int k = 0; k < N; k++)
        mean.at[k] = moments[2 * divide(channel + k, g.size).whole];
    return mean;
}

/* Returns the part of dx that is linear in x: rest.scale x + rest.shift = -inverse * (mean(gamma dz) + normalised x *
 * mean(gamma dz normalised x)). The rest of dx is inverse * gamma dz. `moments` has all groups of the image, `means`
 * the groups from first_group on. */
template <int N>
__device__ static inline Line<N> rest_of(const Groups &g, int channel, const float *moments,
                                         const float *means, int first_group)
{
    Line<N> rest;
    for (int k = 0; k < N; k++) {
        const int64_t group = divide(channel + k, g.size).whole, mine = group - first_group;
        const float mean = moments[2 * group], inverse = moments[2 * group + 1];
        rest.scale.at[k] = -inverse * inverse * means[2 * mine + 1];
        rest.shift.at[k] = fmaf(-mean, rest.scale.at[k], -inverse * means[2 * mine]);
    }
    return rest;
}

/* before: the values that dx is added to, or zeros. */
template <bool SILU, int N>
__device__ static inline Pack<N> gradient(const Pack<N> &x, const Pack<N> &dy,
                                          const Pack<N> &before, const Line<N> &line,
                                          const Line<N> &rest)
{
    Pack<N> out;
    for (int k = 0; k < N; k++) {
        const float dz = before_silu<SILU>(x.at[k], dy.at[k], line.scale.at[k], line.shift.at[k]);
        const float other = fmaf(x.at[k], rest.scale.at[k], rest.shift.at[k]);
        out.at[k] = before.at[k] + fmaf(line.scale.at[k], dz, other);
    }
    return out;
}

/* ---- the kernels that read once: group-norm-held.cu ---- */

/* If the shape fits into the shared memory of a cluster, launches the kernel and returns true; otherwise returns false.
 * x and y, or x, dy and dx, must consist of packs. */
template <typename T>
bool group_norm_held_forward(Device *device, const GroupNormShape *shape, const Joined<const T> &x,
                             const float *gamma, const float *beta, T *y, float *saved);
template <typename T>
bool group_norm_held_backward(Device *device, const GroupNormShape *shape, const Joined<const T> &x,
                              const float *gamma, const float *beta, const float *saved,
                              const T *dy, const Joined<T> &dx, const Adds &add, float *parts);
