/* SPDX-License-Identifier: Apache-2.0 */
/* geglu-backward.cu - the gradient of GEGLU's input, and the sums of its columns, which are the gradient of the bias of
 * the linear layer that made the input. So most terms of the biases' gradients are added while they are in registers.
 *
 * A block processes GATE_WIDTH packs of columns and GATE_LINES * GATE_ROWS rows. A thread always has the same columns:
 * it adds in fp32 the rounded values that it stores for its GATE_ROWS rows. Then its block adds the lines in double,
 * and column_totals_kernel adds the sums of the blocks; each of these sums has a fixed order. The tree depends only on
 * the number of rows. */
#include "kernels/cuda/kernels/activation.cuh"
#include "kernels/cuda/kernels/operations.h"

enum {
    GATE_WIDTH = 8,  /* packs side by side: 128 bytes */
    GATE_LINES = 32, /* lines of threads; a line processes every GATE_LINES-th row of its block */
    GATE_ROWS = 32,  /* rows of a thread */
};

/* The packs that a thread loads from one row. */
template <int N> struct GateRow {
    Pack<N> hidden, gate, slope;
};

template <int N, typename T>
__device__ static inline GateRow<N> load_row(int64_t row, int f, int column, const T *x,
                                             const T *dy)
{
    const T *hidden = x + row * 2 * f + column;
    return GateRow<N>{load<N>(hidden), load<N>(hidden + f), load<N>(dy + row * f + column)};
}

template <bool SUMS, int N, typename T>
__device__ static inline void backward_row(const GateRow<N> &in, T *dx, int f, float *sum)
{
    Pack<N> dhidden, dgate;
    for (int k = 0; k < N; k++) {
        const float hidden = in.hidden.at[k], gate = in.gate.at[k], slope = in.slope.at[k];
        float density, distribution;
        normal(gate, &density, &distribution);
        dhidden.at[k] = slope * (gate * distribution);
        dgate.at[k] = slope * hidden * (distribution + gate * density);
    }
    store(dx, dhidden);
    store(dx + f, dgate);
    for (int k = 0; SUMS && k < N; k++) {
        sum[k] += rounded<T>(dhidden.at[k]);
        sum[N + k] += rounded<T>(dgate.at[k]);
    }
}

/* parts[blockIdx.y][2 * f] = the sums of the block's columns. */
template <int N> __device__ static inline void store_sums(const float *sum, int f, double *parts)
{
    enum { COLUMNS = GATE_WIDTH * N, PITCH = 2 * COLUMNS + 1 };
    __shared__ float lines[GATE_LINES * PITCH];
    const int first = (int)blockIdx.x * COLUMNS;
    for (int k = 0; k < N; k++) {
        lines[threadIdx.y * PITCH + threadIdx.x * N + k] = sum[k];
        lines[threadIdx.y * PITCH + COLUMNS + threadIdx.x * N + k] = sum[N + k];
    }
    __syncthreads();
    const int mine = (int)(threadIdx.y * GATE_WIDTH + threadIdx.x);
    const int column = first + mine % COLUMNS;
    if (mine >= 2 * COLUMNS || column >= f)
        return;
    double total = 0;
    for (int line = 0; line < GATE_LINES; line++)
        total += (double)lines[line * PITCH + mine];
    parts[(int64_t)blockIdx.y * 2 * f + mine / COLUMNS * f + column] = total;
}

template <bool SUMS, int N, typename T>
__global__ void __launch_bounds__(GATE_WIDTH *GATE_LINES, 2)
    geglu_backward_kernel(int64_t rows, int f, const T *x, const T *dy, T *dx, double *parts)
{
    const int column = (int)(blockIdx.x * GATE_WIDTH + threadIdx.x) * N;
    const int64_t first = (int64_t)blockIdx.y * (GATE_LINES * GATE_ROWS) + threadIdx.y;
    const int64_t end = MIN(first + GATE_LINES * GATE_ROWS, rows);
    float sum[2 * N] = {};
    for (int64_t row = first; row < end && column < f; row += DEPTH * GATE_LINES) {
        /* Instead of a row behind the last one, `row` is loaded again, so that no load depends on a condition. */
        GateRow<N> in[DEPTH];
        UNROLL for (int k = 0; k < DEPTH; k++)
        {
            const int64_t at = row + k * GATE_LINES;
            in[k] = load_row<N>(at < end ? at : row, f, column, x, dy);
        }
        UNROLL for (int k = 0; k < DEPTH; k++)
        {
            const int64_t at = row + k * GATE_LINES;
            if (at < end)
                backward_row<SUMS, N>(in[k], dx + at * 2 * f + column, f, sum);
        }
    }
    if constexpr (SUMS)
        store_sums<N>(sum, f, parts);
}

static int64_t parts_of(int64_t rows)
{
    return DIV_ROUND_UP(rows, (int64_t)(GATE_LINES * GATE_ROWS));
}

size_t cuda_geglu_workspace_bytes(const Device *device, int64_t rows, int f)
{
    (void)device; /* the size is the same for each type */
    return (size_t)parts_of(rows) * 2 * (size_t)f * sizeof(double);
}

template <int N, typename T>
static void geglu_backward_of(Device *device, int64_t rows, int f, const T *x, const T *dy, T *dx,
                              double *parts)
{
    const dim3 grid((unsigned)DIV_ROUND_UP(f, GATE_WIDTH * N), (unsigned)parts_of(rows));
    const dim3 block(GATE_WIDTH, GATE_LINES);
    if (parts)
        LAUNCH(device, grid, block, 0, (geglu_backward_kernel<true, N, T>), rows, f, x, dy, dx,
               parts);
    else
        LAUNCH(device, grid, block, 0, (geglu_backward_kernel<false, N, T>), rows, f, x, dy, dx,
               parts);
}

void cuda_geglu_backward(Device *device, int64_t rows, int f, const void *x, const void *dy,
                         void *dx, float *dsums, void *workspace)
{
    double *parts = dsums ? (double *)workspace : NULL;
    WITH_PACKS(device, (f, x, dy, dx),
               geglu_backward_of<N>(device, rows, f, (const T *)x, (const T *)dy, (T *)dx, parts));
    if (dsums)
        cuda_column_totals(device, (int)parts_of(rows), 2 * f, parts, dsums);
}
