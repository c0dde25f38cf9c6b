/* SPDX-License-Identifier: Apache-2.0 */
/* layer-norm.cu - LayerNorm. Rows are read once, forward and backward.
 *
 * In forward, a warp processes a row, whose elements its lanes keep. In backward, a thread has the same columns of many
 * rows, so that gamma and the columns' sums stay in registers; a row is then shared by several warps, which exchange
 * its sums. All trees of sums depend only on the shape and the type: a column's sum over ROWS_AHEAD * BATCHES_MAX rows
 * is in fp32, all further sums are in double. Where SUMS is 3, the third sum is that of the rounded dx: the gradient of
 * the bias of the layer that made x. */
#include "kernels/cuda/kernels/norm/norm.cuh"
#include "kernels/cuda/kernels/operations.h"

#include <math.h>

/* ---- forward ---- */

/* A row of c elements. In each round the packs of the warp's lanes are side by side. HELD rounds are kept in registers;
 * where HELD is 0, a row may have any number of rounds, and each round is read again when it is used. */
template <int HELD, bool WHOLE, typename T> struct Row {
    enum { N = pack_elements<T>() };
    const T *from;
    int c;
    Pack<N> held[MAX(HELD, 1)];

    __device__ Row(const T *row, int c_) : from(row), c(c_)
    {
        UNROLL for (int k = 0; k < HELD; k++)
        {
            const int column = (k * 32 + (int)threadIdx.x % 32) * N;
            held[k] = column < c ? load_some<WHOLE>(from + column, c - column) : Pack<N>{};
        }
    }
    __device__ Pack<N> at(int k, int column) const
    {
        return HELD > 0 ? held[HELD > 0 ? k : 0] : load_some<WHOLE>(from + column, c - column);
    }
};

/* Calls use(k, column) for each pack of this lane. */
template <int HELD, int N, typename Use> __device__ static inline void for_row(int c, Use use)
{
    const int rounds = HELD > 0 ? HELD : DIV_ROUND_UP(c, 32 * N);
    UNROLL for (int k = 0; k < rounds; k++)
    {
        const int column = (k * 32 + (int)threadIdx.x % 32) * N;
        if (column < c)
            use(k, column);
    }
}

template <bool WHOLE, int N>
__device__ static inline Pack<N> load_parameters(const float *from, int there)
{
    if constexpr (WHOLE) {
        (void)there;
        return load<N>(from);
    } else {
        Pack<N> pack;
        for (int i = 0; i < N; i++)
            pack.at[i] = i < there ? from[i] : 0.0f;
        return pack;
    }
}

template <int HELD, bool WHOLE, typename T>
__global__ void __launch_bounds__(THREADS, 2)
    layer_norm_forward_kernel(int64_t rows, int c, double eps, const T *x, const float *gamma,
                              const float *beta, T *y, float *saved)
{
    constexpr int N = pack_elements<T>();
    const int64_t number = warp_number();
    if (number >= rows)
        return;
    const Row<HELD, WHOLE, T> row(x + number * c, c);
    float sum = 0, squares = 0;
    for_row<HELD, N>(c, [&](int k, int column) {
        const Pack<N> in = row.at(k, column);
        for (int i = 0; i < N; i++)
            sum += in.at[i];
    });
    const float mean = warp_sum(sum) / (float)c;
    for_row<HELD, N>(c, [&](int k, int column) {
        const Pack<N> in = row.at(k, column);
        for (int i = 0; i < N; i++)
            if (WHOLE || column + i < c)
                squares += (in.at[i] - mean) * (in.at[i] - mean);
    });
    const double variance = (double)warp_sum(squares) / (double)c;
    const float inverse = (float)(1.0 / sqrt(variance + eps));
    for_row<HELD, N>(c, [&](int k, int column) {
        const Pack<N> in = row.at(k, column);
        const Pack<N> scale = load_parameters<WHOLE, N>(gamma + column, c - column);
        Pack<N> out = load_parameters<WHOLE, N>(beta + column, c - column);
        for (int i = 0; i < N; i++)
            out.at[i] = (in.at[i] - mean) * inverse * scale.at[i] + out.at[i];
        store_some<WHOLE>(y + number * c + column, out, c - column);
    });
    if (threadIdx.x % 32 == 0) {
        saved[2 * number] = mean;
        saved[2 * number + 1] = inverse;
    }
}

/* Runs a statement with HELD and WHOLE defined for rows of c elements, which consist of packs if in_packs<T> is true
 * for the arguments in `row`. */
#define WITH_ROWS(device, c, row, ...)                                                             \
    WITH_PACKS(device, row, {                                                                      \
        constexpr bool WHOLE = N > 1;                                                              \
        const int rounds = DIV_ROUND_UP(c, 32 * N);                                                \
        if (WHOLE && rounds <= 3) {                                                                \
            constexpr int HELD = WHOLE ? 3 : 0;                                                    \
            __VA_ARGS__;                                                                           \
        } else if (WHOLE && rounds <= 5) {                                                         \
            constexpr int HELD = WHOLE ? 5 : 0;                                                    \
            __VA_ARGS__;                                                                           \
        } else if (WHOLE && N == 4 && rounds <= 10) {                                              \
            constexpr int HELD = WHOLE && N == 4 ? 10 : 0;                                         \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            constexpr int HELD = 0;                                                                \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    })

void cuda_layer_norm_forward(Device *device, const LayerNormShape *shape, const void *x,
                             const float *gamma, const float *beta, void *y, float *saved)
{
    const int c = shape->c;
    WITH_ROWS(device, c, (c, x, y, gamma, beta),
              LAUNCH(device, blocks_of_warps(shape->rows), THREADS, 0,
                     (layer_norm_forward_kernel<HELD, WHOLE, T>), shape->rows, c, shape->eps,
                     (const T *)x, gamma, beta, (T *)y, saved));
}

/* ---- backward ---- */

/* Rows of 320, 640 and 1280 channels are 40, 80 and 160 packs of bf16. A block processes more than BATCHES_MIN batches
 * only if BLOCKS_ENOUGH blocks remain, which is enough for any GPU. With fewer than BATCHES_MIN batches, the block's
 * part would be large compared with its rows. */
enum {
    ROW_THREADS = 320, /* threads of a block */
    ROW_WARPS = ROW_THREADS / 32,
    ROWS_AHEAD = 2, /* rows of a line in a batch */
    BATCHES_MIN = 2,
    BATCHES_MAX = 16,
    BLOCKS_ENOUGH = 256,
};

/* How rows are distributed over blocks: a block processes `batches` times ROWS_AHEAD rows for each of its lines. The
 * threads of a line are side by side and have one pack each. Where a row has more packs than a block has threads
 * (is_wide()), a line is the whole block. */
struct Lines {
    int width, n; /* the number of threads in a line, and of lines in a block */
    int64_t batches, blocks;
    float share; /* weight of an element in a row's mean */
};

static bool is_wide(int c, int n) { return c > ROW_THREADS * n; }

static Lines lines_of(int64_t rows, int c, int n)
{
    const int width = MIN(DIV_ROUND_UP(c, n), (int)ROW_THREADS), lines = ROW_THREADS / width;
    const int64_t all = DIV_ROUND_UP(rows, (int64_t)lines * ROWS_AHEAD);
    const int64_t batches = CLAMP(all / BLOCKS_ENOUGH, (int64_t)BATCHES_MIN, (int64_t)BATCHES_MAX);
    return Lines{width, lines, batches, DIV_ROUND_UP(all, batches), 1.0f / (float)c};
}

static int elements_of_pack(const Device *device)
{
    return device->type == DATA_BF16 ? pack_elements<Bf16>() : pack_elements<float>();
}

/* A thread's part of a row: a pack of each tensor in its memory format, which takes half the registers or less. */
template <typename T> struct Held {
    Words<ACCESS_BYTES> x, dy, dx;
    float inverse, shift; /* normalised x = inverse x + shift */
};

/* Loads row `row`, or zeros if the row does not exist. */
template <bool WHOLE, typename T>
__device__ static inline Held<T> hold(bool there, int64_t row, int c, int column, const T *x,
                                      const float *saved, const T *dy, const T *before)
{
    Held<T> held = {};
    if (!there)
        return held;
    const int64_t at = row * c + column;
    held.x = load_raw<WHOLE>(x + at, c - column);
    held.dy = load_raw<WHOLE>(dy + at, c - column);
    if (before)
        held.dx = load_raw<WHOLE>(before + at, c - column);
    held.inverse = saved[2 * row + 1];
    held.shift = -saved[2 * row] * held.inverse;
    return held;
}

/* means[which][row] = share * the sum of sums[which][row][0..width), with one warp for each of n rows. */
__device__ static inline void mean_rows(const float *sums, int n, int width, float share,
                                        float *means)
{
    const int lane = (int)threadIdx.x % 32;
    for (int row = (int)threadIdx.x / 32; row < n; row += ROW_WARPS) {
        float plain = 0, scaled = 0;
        NOT_UNROLLED for (int i = lane; i < width; i += 32) /* the loop has one to ten rounds */
        {
            plain += sums[row * width + i];
            scaled += sums[(n + row) * width + i];
        }
        plain = warp_sum(plain);
        scaled = warp_sum(scaled);
        if (lane == 0) {
            means[row] = plain * share;
            means[n + row] = scaled * share;
        }
    }
}

/* The sums that a thread keeps for its columns. */
template <int SUMS, int N> struct Columns {
    Pack<N> sums[SUMS]; /* the plain sums, the scaled sums, the sums of dx */
};

/* Adds the lines of a block and writes the block's part. lines: shared memory, [which][element of a pack][line][thread
 * of the line]. */
template <int SUMS, int N>
__device__ static inline void write_part(const Lines &l, int c, const Columns<SUMS, N> &mine,
                                         float *lines, float *parts)
{
    const int all = l.n * l.width; /* threads that have a column */
    for (int which = 0; which < SUMS && (int)threadIdx.x < all; which++)
        for (int i = 0; i < N; i++)
            lines[(which * N + i) * all + (int)threadIdx.x] = mine.sums[which].at[i];
    __syncthreads();
    for (int which = 0; which < SUMS; which++)
        for (int channel = (int)threadIdx.x; channel < c; channel += ROW_THREADS) {
            const float *from = lines + (which * N + channel % N) * all + channel / N;
            double sum = 0;
            for (int line = 0; line < l.n; line++)
                sum += (double)from[line * l.width];
            parts[part_at<SUMS>(c, blockIdx.x, which) + channel] = (float)sum;
        }
}

/* Adds a row to the columns' sums. plain and scaled are this thread's parts of the row's sums of gamma dy and of gamma
 * dy * normalised x. */
template <int SUMS, int N, typename T>
__device__ static inline void add_row(const Held<T> &held, const Pack<N> &gamma,
                                      Columns<SUMS, N> *columns, float *plain, float *scaled)
{
    const Pack<N> in = unpack<T>(held.x), slope = unpack<T>(held.dy);
    *plain = *scaled = 0;
    for (int i = 0; i < N; i++) {
        const float normal = fmaf(in.at[i], held.inverse, held.shift);
        const float g = slope.at[i] * gamma.at[i]; /* 0 behind the end of the row */
        *plain += g;
        *scaled = fmaf(g, normal, *scaled);
        columns->sums[0].at[i] += slope.at[i];
        columns->sums[1].at[i] = fmaf(slope.at[i], normal, columns->sums[1].at[i]);
    }
}

/* plain and scaled are the row's means of gamma dy and of gamma dy * normalised x. */
template <int N, typename T>
__device__ static inline Pack<N> gradient_of_row(const Held<T> &held, const Pack<N> &gamma,
                                                 float plain, float scaled)
{
    const Pack<N> in = unpack<T>(held.x), slope = unpack<T>(held.dy);
    Pack<N> out = unpack<T>(held.dx);
    for (int i = 0; i < N; i++) {
        const float normal = fmaf(in.at[i], held.inverse, held.shift);
        const float g = fmaf(slope.at[i], gamma.at[i], -plain);
        out.at[i] += held.inverse * fmaf(-normal, scaled, g);
    }
    return out;
}

template <int SUMS, bool WHOLE, typename T>
__global__ void __launch_bounds__(ROW_THREADS, 2)
    layer_backward_kernel(Lines l, int64_t rows, int c, const T *x, const float *gamma,
                          const float *saved, const T *dy, T *dx, bool add, float *parts)
{
    constexpr int N = pack_elements<T>();
    __shared__ float sums[SUMS * N * ROW_THREADS], means[2 * ROWS_AHEAD * ROW_THREADS];
    const int line = (int)threadIdx.x / l.width, place = (int)threadIdx.x % l.width;
    const int column = place * N, n = ROWS_AHEAD * l.n; /* n: rows of a batch */
    const bool mine = line < l.n;
    Columns<SUMS, N> columns = {};
    Pack<N> scale = {};
    if (mine)
        scale = load_parameters<WHOLE, N>(gamma + column, c - column);
    for (int64_t batch = 0; batch < l.batches; batch++) {
        const int64_t first = (blockIdx.x * l.batches + batch) * n + line;
        if (first - line >= rows)
            break; /* further batches would only add zeros */
        Held<T> held[ROWS_AHEAD];
        UNROLL for (int k = 0; k < ROWS_AHEAD; k++)
        {
            const int64_t row = first + k * l.n;
            held[k] =
                hold<WHOLE>(mine && row < rows, row, c, column, x, saved, dy, add ? dx : NULL);
        }
        UNROLL for (int k = 0; k < ROWS_AHEAD; k++)
        {
            const int at = (k * l.n + line) * l.width + place;
            float plain, scaled;
            add_row(held[k], scale, &columns, &plain, &scaled);
            if (mine) {
                sums[at] = plain;
                sums[n * l.width + at] = scaled;
            }
        }
        __syncthreads();
        mean_rows(sums, n, l.width, l.share, means);
        __syncthreads();
        UNROLL for (int k = 0; k < ROWS_AHEAD; k++)
        {
            const int64_t row = first + k * l.n;
            const int at = k * l.n + line;
            if (!mine || row >= rows)
                continue;
            const Pack<N> out = gradient_of_row<N>(held[k], scale, means[at], means[n + at]);
            store_some<WHOLE>(dx + row * c + column, out, c - column);
            for (int i = 0; SUMS > 2 && i < N; i++)
                columns.sums[SUMS - 1].at[i] += rounded<T>(out.at[i]);
        }
    }
    write_part(l, c, columns, sums, parts);
}

/* For rows of any width. A row is read a second time at once, while the caches contain it, and the columns' sums are
 * kept in the block's part. */
template <int SUMS, typename T>
__global__ void __launch_bounds__(THREADS)
    layer_backward_wide_kernel(Lines l, int64_t rows, int c, const T *x, const float *gamma,
                               const float *saved, const T *dy, T *dx, bool add, float *parts)
{
    __shared__ float warps[WARPS];
    float *part = parts + part_at<SUMS>(c, blockIdx.x, 0);
    const int64_t each = l.batches * ROWS_AHEAD, first = blockIdx.x * each;
    const int64_t end = MIN(first + each, rows);
    for (int64_t row = first; row < end; row++) {
        const T *in = x + row * c, *slope = dy + row * c;
        const float inverse = saved[2 * row + 1], shift = -saved[2 * row] * inverse;
        float plain = 0, scaled = 0;
        for (int i = (int)threadIdx.x; i < c; i += THREADS) {
            const float g = widen(slope[i]) * gamma[i];
            plain += g;
            scaled = fmaf(g, fmaf(widen(in[i]), inverse, shift), scaled);
        }
        plain = block_sum(plain, warps) * l.share;
        scaled = block_sum(scaled, warps) * l.share;
        for (int i = (int)threadIdx.x; i < c; i += THREADS) {
            const float d = widen(slope[i]), normal = fmaf(widen(in[i]), inverse, shift);
            const float g = fmaf(d, gamma[i], -plain);
            const float before = add ? widen(dx[row * c + i]) : 0.0f;
            const T out = narrow<T>(before + inverse * fmaf(-normal, scaled, g));
            dx[row * c + i] = out;
            part[i] = (row == first ? 0.0f : part[i]) + d;
            part[c + i] = fmaf(d, normal, row == first ? 0.0f : part[c + i]);
            if constexpr (SUMS > 2)
                part[2 * c + i] = (row == first ? 0.0f : part[2 * c + i]) + widen(out);
        }
    }
}

size_t cuda_layer_norm_workspace_bytes(const Device *device, const LayerNormShape *shape)
{
    const Lines l = lines_of(shape->rows, shape->c, elements_of_pack(device));
    return (size_t)(l.blocks * 3 * shape->c) * sizeof(float);
}

template <int SUMS>
static void layer_norm_backward_of(Device *device, const LayerNormShape *shape, const void *x,
                                   const float *gamma, const float *saved, const void *dy, void *dx,
                                   bool accumulate, float *dgamma, float *dbeta, float *dsums,
                                   float *parts)
{
    const int c = shape->c;
    const int64_t rows = shape->rows;
    const Lines l = lines_of(rows, c, elements_of_pack(device));
    if (is_wide(c, elements_of_pack(device)))
        WITH_TYPE(device, LAUNCH(device, (unsigned)l.blocks, THREADS, 0,
                                 (layer_backward_wide_kernel<SUMS, T>), l, rows, c, (const T *)x,
                                 gamma, saved, (const T *)dy, (T *)dx, accumulate, parts));
    else
        WITH_PACKS(device, (c, x, dy, dx, gamma), {
            constexpr bool WHOLE = N > 1;
            LAUNCH(device, (unsigned)l.blocks, ROW_THREADS, 0,
                   (layer_backward_kernel<SUMS, WHOLE, T>), l, rows, c, (const T *)x, gamma, saved,
                   (const T *)dy, (T *)dx, accumulate, parts);
        });
    norm_parameters<SUMS>(device, Parts{l.blocks, divisor(l.blocks), c, 1, divisor(c)}, NULL, parts,
                          dgamma, dbeta, dsums);
}

void cuda_layer_norm_backward(Device *device, const LayerNormShape *shape, const void *x,
                              const float *gamma, const float *saved, const void *dy, void *dx,
                              bool accumulate, float *dgamma, float *dbeta, float *dsums,
                              void *workspace)
{
    float *parts = (float *)workspace;
    if (dsums)
        layer_norm_backward_of<3>(device, shape, x, gamma, saved, dy, dx, accumulate, dgamma, dbeta,
                                  dsums, parts);
    else
        layer_norm_backward_of<2>(device, shape, x, gamma, saved, dy, dx, accumulate, dgamma, dbeta,
                                  NULL, parts);
}
