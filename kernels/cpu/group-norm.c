/* SPDX-License-Identifier: Apache-2.0 */
/* group-norm.c - GroupNorm of NHWC images, with SiLU where the shape asks for it.
 *
 * A task computes a few groups of one image. The sum over the pixels of a channel is made of fp32 chains of CHAIN
 * pixels, which are added in double; then the channels are added to the sum of their group. The variance is computed
 * about the mean in a second pass. */
#include "kernels/cpu/device.h"
#include "kernels/cpu/sum.h"
#include "kernels/cpu/vectormath.h"
#include "kernels/kernels.h"

#include <math.h>

enum {
    CHANNELS = 64, /* channels that one loop computes together */
    CHAIN = 32,
};

/* Some groups of one image. */
typedef struct Groups {
    const GroupNormShape *shape;
    int first, end;   /* the groups first..end-1 */
    int size;         /* the number of channels of a group */
    size_t c, pixels; /* the numbers of channels and of pixels of the image */
    const float *x, *dy;
    float *saved; /* the image's part: mean and 1 / deviation of each group */
} Groups;

static int groups_at_once(const GroupNormShape *shape)
{
    return CLAMP(CHANNELS / (shape->c / shape->groups), 1, shape->groups);
}

static Groups groups_of(const GroupNormShape *shape, int image, int block, const float *x,
                        const float *dy, float *saved)
{
    const int n = groups_at_once(shape);
    const size_t pixels = (size_t)shape->h * (size_t)shape->w, c = (size_t)shape->c;

    assert(shape->c % shape->groups == 0);
    return (Groups){.shape = shape,
                    .first = block * n,
                    .end = MIN((block + 1) * n, shape->groups),
                    .size = shape->c / shape->groups,
                    .c = c,
                    .pixels = pixels,
                    .x = x + (size_t)image * pixels * c,
                    .dy = dy ? dy + (size_t)image * pixels * c : NULL,
                    .saved = saved + (size_t)image * (size_t)shape->groups * 2};
}

static int64_t group_norm_work(const GroupNormShape *s)
{
    return (int64_t)s->n * s->h * s->w * s->c;
}

/* ---- forward ---- */

/* Adds to sum[g], for each group g, the sum of x over the group's channels and pixels, or with `square` the sum of (x -
 * mean)^2. */
static void add_moments(const Groups *g, bool square, double *sum)
{
    for (int at = g->first * g->size; at < g->end * g->size; at += CHANNELS) {
        const int n = MIN((int)CHANNELS, g->end * g->size - at);
        float mean[CHANNELS] = {0};
        double total[CHANNELS] = {0};
        if (square)
            for (int j = 0; j < n; j++)
                mean[j] = g->saved[2 * ((at + j) / g->size)];
        for (size_t first = 0; first < g->pixels; first += CHAIN) {
            float part[CHANNELS] = {0};
            for (size_t p = first; p < MIN(first + CHAIN, g->pixels); p++) {
                const float *x = g->x + p * g->c + at;
                if (square)
                    for (int j = 0; j < n; j++)
                        part[j] += (x[j] - mean[j]) * (x[j] - mean[j]);
                else
                    for (int j = 0; j < n; j++)
                        part[j] += x[j];
            }
            for (int j = 0; j < n; j++)
                total[j] += (double)part[j];
        }
        for (int j = 0; j < n; j++)
            sum[(at + j) / g->size - g->first] += total[j];
    }
}

static void normalise(const Groups *g, const float *gamma, const float *beta, float *y)
{
    for (int at = g->first * g->size; at < g->end * g->size; at += CHANNELS) {
        const int n = MIN((int)CHANNELS, g->end * g->size - at);
        float mean[CHANNELS], factor[CHANNELS], shift[CHANNELS];
        for (int j = 0; j < n; j++) {
            mean[j] = g->saved[2 * ((at + j) / g->size)];
            factor[j] = g->saved[2 * ((at + j) / g->size) + 1] * gamma[at + j];
            shift[j] = beta[at + j];
        }
        for (size_t p = 0; p < g->pixels; p++) {
            const float *x = g->x + p * g->c + at;
            float *to = y + p * g->c + at;
            if (g->shape->silu)
                for (int j = 0; j < n; j++)
                    to[j] = vector_silu((x[j] - mean[j]) * factor[j] + shift[j]);
            else
                for (int j = 0; j < n; j++)
                    to[j] = (x[j] - mean[j]) * factor[j] + shift[j];
        }
    }
}

bool cpu_reads_joined(const Device *device)
{
    (void)device;
    return false;
}

void cpu_group_norm_forward(Device *device, const GroupNormShape *shape, const void *x,
                            const void *second, const float *gamma, const float *beta, void *y,
                            float *saved)
{
    assert(!second);
    const int blocks = DIV_ROUND_UP(shape->groups, groups_at_once(shape));
    const int team = device_team(device, group_norm_work(shape));

#pragma omp parallel for collapse(2) num_threads(team) schedule(static)
    for (int image = 0; image < shape->n; image++) {
        for (int block = 0; block < blocks; block++) {
            const Groups g = groups_of(shape, image, block, x, NULL, saved);
            const double size = (double)g.size * (double)g.pixels;
            double sum[CHANNELS] = {0}, square[CHANNELS] = {0};

            add_moments(&g, false, sum);
            for (int i = g.first; i < g.end; i++)
                g.saved[2 * i] = (float)(sum[i - g.first] / size);
            add_moments(&g, true, square);
            for (int i = g.first; i < g.end; i++)
                g.saved[2 * i + 1] = (float)(1.0 / sqrt(square[i - g.first] / size + shape->eps));
            normalise(&g, gamma, beta, (float *)y + (g.x - (const float *)x));
        }
    }
}

/* ---- backward ---- */

/* The values of up to CHANNELS channels that the backward loops need. */
typedef struct Channels {
    float mean[CHANNELS], inverse[CHANNELS], gamma[CHANNELS], beta[CHANNELS];
} Channels;

static Channels channels_at(const Groups *g, int at, int n, const float *gamma, const float *beta)
{
    Channels ch;
    for (int j = 0; j < n; j++) {
        ch.mean[j] = g->saved[2 * ((at + j) / g->size)];
        ch.inverse[j] = g->saved[2 * ((at + j) / g->size) + 1];
        ch.gamma[j] = gamma[at + j];
        ch.beta[j] = beta[at + j];
    }
    return ch;
}

/* Computes dz, the gradient of the input of SiLU, and the normalised x, for n channels of one pixel. */
static inline void pixel_slopes(int n, bool silu, const Channels *restrict ch,
                                const float *restrict x, const float *restrict dy,
                                float *restrict dz, float *restrict normal)
{
    for (int j = 0; j < n; j++)
        normal[j] = (x[j] - ch->mean[j]) * ch->inverse[j];
    if (silu)
        for (int j = 0; j < n; j++)
            dz[j] = dy[j] * vector_silu_slope(normal[j] * ch->gamma[j] + ch->beta[j]);
    else
        memcpy(dz, dy, (size_t)n * sizeof(float));
}

/* sums[0][channel] = sum over pixels of dz; sums[1][channel] = sum over pixels of dz * normalised x. z is the input of
 * SiLU. Stores dz in `keep` unless `keep` is NULL. */
static void sum_slopes(const Groups *g, const float *gamma, const float *beta, float *sums,
                       float *keep)
{
    for (int at = g->first * g->size; at < g->end * g->size; at += CHANNELS) {
        const int n = MIN((int)CHANNELS, g->end * g->size - at);
        const Channels ch = channels_at(g, at, n, gamma, beta);
        double total[2][CHANNELS] = {0};
        for (size_t first = 0; first < g->pixels; first += CHAIN) {
            float part[2][CHANNELS] = {0};
            for (size_t p = first; p < MIN(first + CHAIN, g->pixels); p++) {
                float dz[CHANNELS], normal[CHANNELS];
                pixel_slopes(n, g->shape->silu, &ch, g->x + p * g->c + at, g->dy + p * g->c + at,
                             dz, normal);
                for (int j = 0; j < n; j++) {
                    part[0][j] += dz[j];
                    part[1][j] += dz[j] * normal[j];
                }
                if (keep)
                    memcpy(keep + p * g->c + at, dz, (size_t)n * sizeof(float));
            }
            for (int j = 0; j < n; j++) {
                total[0][j] += (double)part[0][j];
                total[1][j] += (double)part[1][j];
            }
        }
        for (int j = 0; j < n; j++) {
            sums[at + j] = (float)total[0][j];
            sums[g->c + (size_t)(at + j)] = (float)total[1][j];
        }
    }
}

/* dx = inverse * (gamma dz - mean of gamma dz - normalised x * mean of gamma dz normalised x). If accumulate_dx is
 * false, dx contains dz when the function is called. */
static void store_slopes(const Groups *g, const float *gamma, const float *beta, const float *sums,
                         float *dx, bool accumulate_dx)
{
    const double size = (double)g->size * (double)g->pixels;
    double group_sum[2][CHANNELS] = {0};

    for (int i = g->first * g->size; i < g->end * g->size; i++) {
        group_sum[0][i / g->size - g->first] += (double)gamma[i] * (double)sums[i];
        group_sum[1][i / g->size - g->first] += (double)gamma[i] * (double)sums[g->c + (size_t)i];
    }
    for (int at = g->first * g->size; at < g->end * g->size; at += CHANNELS) {
        const int n = MIN((int)CHANNELS, g->end * g->size - at);
        const Channels ch = channels_at(g, at, n, gamma, beta);
        float mean0[CHANNELS], mean1[CHANNELS];
        for (int j = 0; j < n; j++) {
            mean0[j] = (float)(group_sum[0][(at + j) / g->size - g->first] / size);
            mean1[j] = (float)(group_sum[1][(at + j) / g->size - g->first] / size);
        }
        for (size_t p = 0; p < g->pixels; p++) {
            float dz[CHANNELS], normal[CHANNELS];
            float *to = dx + p * g->c + at;
            const float *slope = accumulate_dx ? g->dy + p * g->c + at : to;
            pixel_slopes(n, g->shape->silu && accumulate_dx, &ch, g->x + p * g->c + at, slope, dz,
                         normal);
            for (int j = 0; j < n; j++)
                dz[j] = ch.inverse[j] * ((dz[j] * ch.gamma[j] - mean0[j]) - normal[j] * mean1[j]);
            if (accumulate_dx)
                for (int j = 0; j < n; j++)
                    to[j] += dz[j];
            else
                memcpy(to, dz, (size_t)n * sizeof(float));
        }
    }
}

size_t cpu_group_norm_workspace_bytes(const Device *device, const GroupNormShape *shape)
{
    (void)device;
    return floats_bytes((size_t)shape->n * 2 * (size_t)shape->c);
}

void cpu_group_norm_backward(Device *device, const GroupNormShape *shape, const void *x,
                             const void *second, const float *gamma, const float *beta,
                             const float *saved, const void *dy, void *dx, bool accumulate_dx,
                             void *dsecond, bool accumulate_second, float *dgamma, float *dbeta,
                             void *workspace)
{
    assert(!second && !dsecond && !accumulate_second);
    const int blocks = DIV_ROUND_UP(shape->groups, groups_at_once(shape));
    const int team = device_team(device, group_norm_work(shape));
    const size_t stride = 2 * (size_t)shape->c;
    float *sums = workspace; /* [n][2][c] */

#pragma omp parallel for collapse(2) num_threads(team) schedule(static)
    for (int image = 0; image < shape->n; image++) {
        for (int block = 0; block < blocks; block++) {
            const Groups g = groups_of(shape, image, block, x, dy, (float *)saved);
            float *image_sums = sums + (size_t)image * stride;

            float *image_dx = (float *)dx + (g.x - (const float *)x);
            sum_slopes(&g, gamma, beta, image_sums, accumulate_dx ? NULL : image_dx);
            store_slopes(&g, gamma, beta, image_sums, image_dx, accumulate_dx);
        }
    }
    for (int c = 0; c < shape->c; c += SUM_COLUMNS) {
        const int n = MIN((int)SUM_COLUMNS, shape->c - c);
        sum_rows(shape->n, n, sums + c, stride, dbeta + c);
        sum_rows(shape->n, n, sums + shape->c + c, stride, dgamma + c);
    }
}
