/* SPDX-License-Identifier: Apache-2.0 */
/* gradient.cu - moves gradients of parameters into their sink. For the same gradients the sums are those of a CPU.
 *
 * The kernels are bound by memory. A thread loads its gradients, and the values that they are added to, before it
 * stores the first sum, because a load does not overtake a store. */
#include "kernels/cuda/kernels/operations.h"
#include "kernels/cuda/kernels/sink.cuh"

/* Moves packs i, i + stride, ... into the sink, AT_ONCE packs in all. Returns the largest magnitude. */
template <int N, int WORDS, bool FRESH, int AT_ONCE, typename G>
__device__ static inline uint32_t take_packs(int64_t i, int64_t stride, const G *gradient,
                                             int64_t element, double factor,
                                             const GradientSink &sink)
{
    Pack<N> in[AT_ONCE];
    Before<N, WORDS> before[AT_ONCE];
    uint32_t most = 0;
    UNROLL for (int k = 0; k < AT_ONCE; k++)
    {
        const int64_t at = (i + k * stride) * N;
        in[k] = load<N>(gradient + at);
        before[k] = load_before<N, WORDS, FRESH>(sink, element + at);
    }
    UNROLL for (int k = 0; k < AT_ONCE; k++)
    {
        const uint32_t bits =
            sink_pack(sink, in[k], element + (i + k * stride) * N, factor, before[k]);
        most = MAX(most, bits);
    }
    return most;
}

/* blockIdx.y: a tensor of the place. n: packs of one tensor. */
template <int N, int WORDS, typename G>
__global__ void __launch_bounds__(THREADS, 4)
    gradient_take_kernel(int64_t n, const G *gradient, GradientPlace place, GradientSink sink)
{
    const int64_t first = n * N * blockIdx.y, stride = (int64_t)gridDim.x * THREADS;
    const int tensor = place.tensor + (int)blockIdx.y;
    const double factor = sink_factor(sink, tensor);
    uint32_t most = 0;
    with_fresh(sink, [&](auto fresh) {
        constexpr bool FRESH = decltype(fresh)::value;
        int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
        for (; i + (DEPTH - 1) * stride < n; i += DEPTH * stride) {
            const uint32_t bits =
                take_packs<N, WORDS, FRESH, DEPTH>(i, stride, gradient + first,
                                                   place.offset + first, factor, sink);
            most = MAX(most, bits);
        }
        for (; i < n; i += stride) {
            const uint32_t bits =
                take_packs<N, WORDS, FRESH, 1>(i, stride, gradient + first, place.offset + first,
                                               factor, sink);
            most = MAX(most, bits);
        }
    });
    if (sink.kind != SINK_PLAIN)
        raise_maximum(most, sink.maxima + tensor);
}

/* As gradient_take_kernel, where the gradient is [out][TAPS][in]. A tile is TURN_CHANNELS channels of `in` for a few
 * channels of `out`, with all taps. The tile is read along `in`, transposed in shared memory, and moved into the sink
 * along [in][TAPS]. A thread has all loads of its packs of gradients and of old sums in flight at once. */
enum { TURN_CHANNELS = 64, TAPS = 9, TURN_THREADS = 288 };

/* Packs of a thread, and rows of a tile. Sums of 64 bits need twice the registers, so a thread has half as many
 * packs. */
template <int N, int WORDS> struct Turn {
    enum {
        PACKS = WORDS == 2 ? 2 : 4,
        OF_ROW = TURN_CHANNELS * TAPS / N,
        ROWS = PACKS * TURN_THREADS / OF_ROW
    };
};

/* The part of a tile that lies inside the gradient. */
struct Tile {
    int high, width, channels; /* channels: the channels of the whole row */
};

/* Calls use(k, row, rest) for each pack of a tile that this thread has; `rest` is the pack's number in its row. */
template <typename T, typename Use> __device__ static inline void for_tile_packs(Use use)
{
    UNROLL for (int k = 0; k < T::PACKS; k++)
    {
        const int pack = (int)threadIdx.x + k * TURN_THREADS;
        use(k, pack / T::OF_ROW, pack % T::OF_ROW);
    }
}

/* `gradient` and `element` belong to the beginning of the tile. Returns the largest magnitude. */
template <int N, int WORDS, bool FRESH, typename G>
__device__ static inline uint32_t turn_tile(const Tile &tile, const G *gradient, int64_t element,
                                            double factor, const GradientSink &sink,
                                            Pack<N> *turned)
{
    typedef Turn<N, WORDS> T;
    enum { ACROSS = TURN_CHANNELS / N };
    const int row_elements = tile.channels * TAPS;
    Pack<N> in[T::PACKS];
    Before<N, WORDS> before[T::PACKS];
    uint32_t most = 0;
    for_tile_packs<T>([&](int k, int row, int rest) {
        const int channel = rest % ACROSS * N, tap = rest / ACROSS;
        const int at = row * row_elements + tap * tile.channels + channel;
        in[k] = load<N>(gradient + (((row < tile.high) & (channel < tile.width)) ? at : 0));
    });
    for_tile_packs<T>([&](int k, int row, int rest) {
        const bool there = (row < tile.high) & (rest * N < tile.width * TAPS);
        const int at = there ? row * row_elements + rest * N : 0;
        before[k] = load_before<N, WORDS, FRESH>(sink, element + at);
    });
    for_tile_packs<T>([&](int k, int row, int rest) {
        const int channel = rest % ACROSS * N, tap = rest / ACROSS;
        for (int i = 0; i < N; i++)
            ((float *)turned)[row * T::OF_ROW * N + (channel + i) * TAPS + tap] = in[k].at[i];
    });
    __syncthreads();
    for_tile_packs<T>([&](int k, int row, int rest) {
        if (row >= tile.high || rest * N >= tile.width * TAPS)
            return;
        const int64_t at = element + row * row_elements + rest * N;
        const uint32_t bits =
            sink_pack(sink, turned[row * T::OF_ROW + rest], at, factor, before[k]);
        most = MAX(most, bits);
    });
    __syncthreads();
    return most;
}

/* tiles: the number of tiles in a row [TAPS][in]. */
template <int N, int WORDS, typename G>
__global__ void __launch_bounds__(TURN_THREADS, 2)
    gradient_turn_kernel(int64_t rows, Divisor tiles, int channels, const G *gradient,
                         GradientPlace place, GradientSink sink)
{
    typedef Turn<N, WORDS> T;
    alignas(16) __shared__ Pack<N> turned[T::PACKS * TURN_THREADS]; /* [row][channel][tap] */
    Pack<N> *const packs = turned;
    const int tensor = place.tensor + (int)blockIdx.y;
    const double factor = sink_factor(sink, tensor);
    const int64_t all = DIV_ROUND_UP(rows, (int64_t)T::ROWS) * tiles.by;
    uint32_t most = 0;
    with_fresh(sink, [&](auto fresh) {
        for (int64_t i = blockIdx.x; i < all; i += gridDim.x) {
            const Quotient at = divide(i, tiles);
            const int first = (int)at.rest * TURN_CHANNELS;
            const int64_t row = at.whole * T::ROWS;
            const int64_t begin = (blockIdx.y * rows + row) * channels * TAPS;
            const Tile tile = {(int)MIN(rows - row, (int64_t)T::ROWS),
                               MIN((int)TURN_CHANNELS, channels - first), channels};
            const uint32_t bits =
                turn_tile<N, WORDS, decltype(fresh)::value>(tile, gradient + begin + first,
                                                            place.offset + begin +
                                                                (int64_t)first * TAPS,
                                                            factor, sink, packs);
            most = MAX(most, bits);
        }
    });
    if (sink.kind != SINK_PLAIN)
        raise_maximum(most, sink.maxima + tensor);
}

template <int N, int WORDS, typename G>
static void take(Device *device, const GradientForm *form, const G *gradient,
                 const GradientPlace *place, const GradientSink *sink)
{
    const unsigned tensors = (unsigned)place->n_tensors;
    if (form->order == GRADIENT_AS_STATE || form->taps == 1) {
        const int64_t n = place->n / place->n_tensors / N;
        LAUNCH(device, dim3(blocks_for_packs(n), tensors), THREADS, 0,
               (gradient_take_kernel<N, WORDS, G>), n, gradient, *place, *sink);
        return;
    }
    assert(form->taps == TAPS);
    const int64_t rows = form->out / place->n_tensors;
    const int64_t tiles = DIV_ROUND_UP(form->in, (int)TURN_CHANNELS);
    enum { ROWS = Turn<N, WORDS>::ROWS };
    const int64_t all = DIV_ROUND_UP(rows, (int64_t)ROWS) * tiles;
    const dim3 grid((unsigned)MIN(all, (int64_t)GRID_MAX), tensors);
    LAUNCH(device, grid, TURN_THREADS, 0, (gradient_turn_kernel<N, WORDS, G>), rows, divisor(tiles),
           form->in, gradient, *place, *sink);
}

template <typename G>
static void take_in_packs(Device *device, const GradientForm *form, const G *gradient,
                          const GradientPlace *place, const GradientSink *sink)
{
    const int64_t each = place->n / place->n_tensors;
    if (form->in % SINK_ELEMENTS == 0 && each % SINK_ELEMENTS == 0 &&
        (uintptr_t)gradient % (SINK_ELEMENTS * sizeof(G)) == 0 &&
        sink_in_packs(sink, place->offset))
        WITH_WORDS(sink, take<SINK_ELEMENTS, WORDS>(device, form, gradient, place, sink));
    else
        WITH_WORDS(sink, take<1, WORDS>(device, form, gradient, place, sink));
}

void cuda_gradient_take(Device *device, const GradientForm *form, const void *gradient,
                        const GradientPlace *place, const GradientSink *sink)
{
    assert(place->n == (int64_t)form->out * form->in * form->taps);
    assert(place->n_tensors > 0 && form->out % place->n_tensors == 0);
    if (form->type == DATA_BF16)
        take_in_packs(device, form, (const Bf16 *)gradient, place, sink);
    else
        take_in_packs(device, form, (const float *)gradient, place, sink);
}
