/* SPDX-License-Identifier: Apache-2.0 */
/* elementwise.cu - activations, sums, copies and casts: each element is independent.
 *
 * The kernels are bound by memory. A thread moves packs of 16 bytes where rows and pointers allow it, DEPTH packs at a
 * time, and finds the row of a whole pack with one product. */
#include "kernels/cuda/kernels/activation.cuh"
#include "kernels/cuda/kernels/operations.h"

/* The packs that a kernel of two or three inputs loads. */
template <int N> struct Loaded {
    Pack<N> a, b, c;
};

/* Stores value in `to`, or before + value if add is true. `before` is the old content of `to`. */
template <int N, typename T>
__device__ static inline void store_sum(T *to, Pack<N> value, const Pack<N> &before, bool add)
{
    for (int k = 0; add && k < N; k++)
        value.at[k] = before.at[k] + value.at[k];
    store(to, value);
}

/* ---- activations ---- */

/* width: the number of packs in a row of f elements. */
template <int N, typename T>
__global__ void geglu_forward_kernel(int64_t n, Divisor width, const T *x, T *y)
{
    for_packs(
        n,
        [=](int64_t i) {
            const T *hidden = x + (divide(i, width).whole * width.by + i) * N;
            return Loaded<N>{load<N>(hidden), load<N>(hidden + width.by * N), {}};
        },
        [=](int64_t i, const Loaded<N> &in) {
            Pack<N> out;
            for (int k = 0; k < N; k++) {
                float density, distribution;
                normal(in.b.at[k], &density, &distribution);
                out.at[k] = in.a.at[k] * (in.b.at[k] * distribution);
            }
            store(y + i * N, out);
        });
}

void cuda_geglu_forward(Device *device, int64_t rows, int f, const void *x, void *y)
{
    WITH_PACKS(device, (f, x, y),
               LAUNCH(device, blocks_for_packs(rows * f / N), THREADS, 0,
                      (geglu_forward_kernel<N, T>), rows * f / N, divisor(f / N), (const T *)x,
                      (T *)y));
}

template <int N, typename T> __global__ void gelu_forward_kernel(int64_t n, const T *x, T *y)
{
    for_packs(
        n, [=](int64_t i) { return load<N>(x + i * N); },
        [=](int64_t i, Pack<N> pack) {
            for (int k = 0; k < N; k++)
                pack.at[k] = gelu(pack.at[k]);
            store(y + i * N, pack);
        });
}

void cuda_gelu_forward(Device *device, int64_t n, const void *x, void *y)
{
    WITH_PACKS(device, (n, x, y),
               LAUNCH(device, blocks_for_packs(n / N), THREADS, 0, (gelu_forward_kernel<N, T>),
                      n / N, (const T *)x, (T *)y));
}

template <int N, typename T> __global__ void silu_forward_kernel(int64_t n, const T *x, T *y)
{
    for_packs(
        n, [=](int64_t i) { return load<N>(x + i * N); },
        [=](int64_t i, Pack<N> pack) {
            for (int k = 0; k < N; k++)
                pack.at[k] = silu(pack.at[k]);
            store(y + i * N, pack);
        });
}

void cuda_silu_forward(Device *device, int64_t n, const void *x, void *y)
{
    WITH_PACKS(device, (n, x, y),
               LAUNCH(device, blocks_for_packs(n / N), THREADS, 0, (silu_forward_kernel<N, T>),
                      n / N, (const T *)x, (T *)y));
}

template <int N, typename T>
__global__ void silu_backward_kernel(int64_t n, const T *x, const T *dy, T *dx, bool add)
{
    for_packs(
        n,
        [=](int64_t i) {
            return Loaded<N>{load<N>(x + i * N), load<N>(dy + i * N),
                             add ? load<N>(dx + i * N) : Pack<N>{}};
        },
        [=](int64_t i, const Loaded<N> &in) {
            Pack<N> d;
            for (int k = 0; k < N; k++)
                d.at[k] = in.b.at[k] * silu_slope(in.a.at[k]);
            store_sum(dx + i * N, d, in.c, add);
        });
}

void cuda_silu_backward(Device *device, int64_t n, const void *x, const void *dy, void *dx,
                        bool accumulate)
{
    WITH_PACKS(device, (n, x, dy, dx),
               LAUNCH(device, blocks_for_packs(n / N), THREADS, 0, (silu_backward_kernel<N, T>),
                      n / N, (const T *)x, (const T *)dy, (T *)dx, accumulate));
}

/* ---- sums and copies ---- */

template <int N, typename T> __global__ void accumulate_kernel(int64_t n, const T *x, T *y)
{
    for_packs(
        n,
        [=](int64_t i) {
            return Loaded<N>{load<N>(x + i * N), {}, load<N>(y + i * N)};
        },
        [=](int64_t i, const Loaded<N> &in) { store_sum(y + i * N, in.a, in.c, true); });
}

void cuda_accumulate(Device *device, int64_t n, const void *x, void *y)
{
    WITH_PACKS(device, (n, x, y),
               LAUNCH(device, blocks_for_packs(n / N), THREADS, 0, (accumulate_kernel<N, T>), n / N,
                      (const T *)x, (T *)y));
}

/* Returns the address, in a or in b, of pack i of the joined rows. wa, wb and both: the number of packs in a row of a,
 * in a row of b and in a joined row. */
template <int N, typename T>
__device__ static inline T *part_of(int64_t i, int64_t wa, int64_t wb, Divisor both, T *a, T *b)
{
    const Quotient q = divide(i, both);
    return q.rest < wa ? a + (q.whole * wa + q.rest) * N : b + (q.whole * wb + q.rest - wa) * N;
}

template <int N, typename T>
__global__ void concat_forward_kernel(int64_t n, int64_t wa, int64_t wb, Divisor both, const T *a,
                                      const T *b, T *y)
{
    for_packs(
        n, [=](int64_t i) { return load<N>(part_of<N>(i, wa, wb, both, a, b)); },
        [=](int64_t i, const Pack<N> &pack) { store(y + i * N, pack); });
}

void cuda_concat_forward(Device *device, int64_t rows, int ca, int cb, const void *a, const void *b,
                         void *y)
{
    const int64_t c = (int64_t)ca + cb;
    WITH_PACKS(device, (ca | cb, a, b, y),
               LAUNCH(device, blocks_for_packs(rows * c / N), THREADS, 0,
                      (concat_forward_kernel<N, T>), rows * c / N, ca / N, cb / N, divisor(c / N),
                      (const T *)a, (const T *)b, (T *)y));
}

template <int N, typename T>
__global__ void concat_backward_kernel(int64_t n, int64_t wa, int64_t wb, Divisor both, const T *dy,
                                       T *da, bool add_a, T *db, bool add_b)
{
    const auto adds = [=](int64_t i) { return divide(i, both).rest < wa ? add_a : add_b; };
    for_packs(
        n,
        [=](int64_t i) {
            return Loaded<N>{load<N>(dy + i * N),
                             {},
                             adds(i) ? load<N>(part_of<N>(i, wa, wb, both, da, db)) : Pack<N>{}};
        },
        [=](int64_t i, const Loaded<N> &in) {
            store_sum(part_of<N>(i, wa, wb, both, da, db), in.a, in.c, adds(i));
        });
}

void cuda_concat_backward(Device *device, int64_t rows, int ca, int cb, const void *dy, void *da,
                          bool accumulate_a, void *db, bool accumulate_b)
{
    const int64_t c = (int64_t)ca + cb;
    WITH_PACKS(device, (ca | cb, dy, da, db),
               LAUNCH(device, blocks_for_packs(rows * c / N), THREADS, 0,
                      (concat_backward_kernel<N, T>), rows * c / N, ca / N, cb / N, divisor(c / N),
                      (const T *)dy, (T *)da, accumulate_a, (T *)db, accumulate_b));
}

/* width: packs of a row; text: packs of all rows of a text. */
template <int N, typename T>
__global__ void embedding_forward_kernel(int64_t n, Divisor width, Divisor text, const float *words,
                                         const float *positions, const int32_t *ids, T *y)
{
    for_packs(
        n,
        [=](int64_t i) {
            const Quotient row = divide(i, width);
            return Loaded<N>{load<N>(words + (ids[row.whole] * width.by + row.rest) * N),
                             load<N>(positions + divide(i, text).rest * N),
                             {}};
        },
        [=](int64_t i, const Loaded<N> &in) {
            Pack<N> sum;
            for (int k = 0; k < N; k++)
                sum.at[k] = in.a.at[k] + in.b.at[k];
            store(y + i * N, sum);
        });
}

void cuda_embedding_forward(Device *device, int n, int tokens, int c, const float *words,
                            const float *positions, const int32_t *ids, void *y)
{
    const int64_t size = (int64_t)n * tokens * c;
    WITH_PACKS(device, (c, words, positions, y),
               LAUNCH(device, blocks_for_packs(size / N), THREADS, 0,
                      (embedding_forward_kernel<N, T>), size / N, divisor(c / N),
                      divisor((int64_t)tokens * (c / N)), words, positions, ids, (T *)y));
}

/* ---- nearest neighbour ---- */

/* The sizes of an upsampling: the small image in packs, and the sides of the large image. */
struct Doubling {
    Divisor c, w, h; /* c: packs of a pixel; w and h: sides of the small image */
    int64_t to_h, to_w;
};

static Doubling doubling(int to_h, int to_w, int c)
{
    return Doubling{divisor(c), divisor((to_w + 1) / 2), divisor((to_h + 1) / 2), to_h, to_w};
}

/* The square of up to four pixels of the large image into which a pack of the small image is copied. `first` is the
 * index of the pack's copy in the upper left pixel. right and below: the square also has pixels on the right, and
 * below. */
struct Square {
    int64_t first;
    bool right, below;
};

__device__ static inline Square square_of(int64_t i, const Doubling &d)
{
    const Quotient pixel = divide(i, d.c), line = divide(pixel.whole, d.w);
    const Quotient image = divide(line.whole, d.h);
    const int64_t y = 2 * image.rest, x = 2 * line.rest;
    return Square{((image.whole * d.to_h + y) * d.to_w + x) * d.c.by + pixel.rest, x + 1 < d.to_w,
                  y + 1 < d.to_h};
}

template <int N, typename T>
__global__ void upsample_forward_kernel(int64_t n, Doubling d, const T *x, T *y)
{
    for_packs(
        n, [=](int64_t i) { return load<N>(x + i * N); },
        [=](int64_t i, const Pack<N> &pack) {
            const Square to = square_of(i, d);
            T *upper = y + to.first * N, *lower = upper + d.to_w * d.c.by * N;
            store(upper, pack);
            if (to.right)
                store(upper + d.c.by * N, pack);
            if (to.below)
                store(lower, pack);
            if (to.right && to.below)
                store(lower + d.c.by * N, pack);
        });
}

static int64_t small_elements(int n, int to_h, int to_w, int c)
{
    return (int64_t)n * ((to_h + 1) / 2) * ((to_w + 1) / 2) * c;
}

void cuda_upsample_forward(Device *device, int n, int to_h, int to_w, int c, const void *x, void *y)
{
    const int64_t size = small_elements(n, to_h, to_w, c);
    WITH_PACKS(device, (c, x, y),
               LAUNCH(device, blocks_for_packs(size / N), THREADS, 0,
                      (upsample_forward_kernel<N, T>), size / N, doubling(to_h, to_w, c / N),
                      (const T *)x, (T *)y));
}

/* Adds pixel a of a line to sum, or a + b if there is a right neighbour b. */
template <int N, typename T>
__device__ static inline void add_line(Pack<N> *sum, const T *line, int64_t pixel, bool right)
{
    const Pack<N> a = load<N>(line), b = right ? load<N>(line + pixel) : Pack<N>{};
    for (int k = 0; k < N; k++)
        sum->at[k] += right ? a.at[k] + b.at[k] : a.at[k];
}

/* Adds the upper line first, and left before right, as on a CPU. */
template <int N, typename T>
__global__ void upsample_backward_kernel(int64_t n, Doubling d, const T *dy, T *dx, bool add)
{
    const int64_t pixel = d.c.by * N;
    for_packs(
        n,
        [=](int64_t i) {
            const Square from = square_of(i, d);
            const T *upper = dy + from.first * N;
            Loaded<N> in = {{}, {}, add ? load<N>(dx + i * N) : Pack<N>{}};
            add_line(&in.a, upper, pixel, from.right);
            if (from.below)
                add_line(&in.a, upper + d.to_w * pixel, pixel, from.right);
            return in;
        },
        [=](int64_t i, const Loaded<N> &in) { store_sum(dx + i * N, in.a, in.c, add); });
}

void cuda_upsample_backward(Device *device, int n, int to_h, int to_w, int c, const void *dy,
                            void *dx, bool accumulate)
{
    const int64_t size = small_elements(n, to_h, to_w, c);
    WITH_PACKS(device, (c, dy, dx),
               LAUNCH(device, blocks_for_packs(size / N), THREADS, 0,
                      (upsample_backward_kernel<N, T>), size / N, doubling(to_h, to_w, c / N),
                      (const T *)dy, (T *)dx, accumulate));
}

/* ---- casts: a pack is 16 bytes of fp32, so that a warp's accesses are contiguous on both sides ---- */

template <int N, typename From, typename To>
__global__ void cast_kernel(int64_t n, const From *x, To *y)
{
    for_packs(
        n, [=](int64_t i) { return load<N>(x + i * N); },
        [=](int64_t i, const Pack<N> &pack) { store(y + i * N, pack); });
}

template <typename From, typename To>
static void cast(Device *device, int64_t n, const From *x, To *y)
{
    constexpr int N = pack_elements<float>();
    if (in_packs<float>(n, x, y))
        LAUNCH(device, blocks_for_packs(n / N), THREADS, 0, (cast_kernel<N, From, To>), n / N, x,
               y);
    else
        LAUNCH(device, blocks_for_packs(n), THREADS, 0, (cast_kernel<1, From, To>), n, x, y);
}

void cuda_cast_from_f32(Device *device, int64_t n, const float *x, void *y)
{
    WITH_TYPE(device, cast(device, n, x, (T *)y));
}

void cuda_cast_to_f32(Device *device, int64_t n, const void *x, float *y)
{
    WITH_TYPE(device, cast(device, n, (const T *)x, y));
}

#ifdef __CUDACC__
extern "C" cudaError_t cuda_one_kernel(void)
{
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, (const void *)silu_forward_kernel<1, float>);
}
#endif
