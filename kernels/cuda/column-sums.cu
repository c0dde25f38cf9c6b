/* SPDX-License-Identifier: Apache-2.0 */
/* column-sums.cu - the sum of each column of a matrix: gradients of biases, and of what an image's pixels share.
 *
 * A cluster shares the rows of SUM_WIDTH packs of columns, since one block alone would not have enough of memory under
 * way. A thread adds AHEAD rows in fp32 and all beyond in double; then its block adds the lines, and the cluster's
 * first block what the others have, in their order. The tree depends on the number of rows and on the type alone. */
#include "kernels/cuda/kernel.cuh"
#include "kernels/cuda/operations.h"

enum {
    SUM_WIDTH = 4,       /* packs, side by side: 64 bytes of a row */
    SUM_LINES = 64,      /* a line of threads takes every SUM_LINES-th row of the block's */
    AHEAD = 8,           /* rows that a thread loads before it uses the first */
    ROWS_OF_RANK = 1024, /* rows that are worth a block */
    RANKS_MAX = 8,
};

template <typename T> struct SumsLayout {
    enum {
        COLUMNS = SUM_WIDTH * pack_elements<T>(), /* of a block */
        PITCH = COLUMNS + 1, /* of a line's sums: neighbours lie in different banks */
        GROUPS = SUM_WIDTH * SUM_LINES / COLUMNS, /* of lines: together they occupy all threads */
        DOUBLES = SUM_LINES * PITCH + GROUPS * COLUMNS,
    };
};

template <bool WHOLE, typename From, typename To>
__global__ void __launch_bounds__(SUM_WIDTH *SUM_LINES, 2)
    column_sums_kernel(int64_t rows, int64_t rows_each, int c, const From *from, To *to)
{
    typedef SumsLayout<From> L;
    constexpr int N = pack_elements<From>();
    SHARED_ARRAY(double, lines);                   /* [SUM_LINES][PITCH] */
    double *groups = lines + SUM_LINES * L::PITCH; /* [GROUPS][COLUMNS]; then [0] is the block's */
    const unsigned rank = cluster_rank(), ranks = cluster_size();
    const int first = (int)(blockIdx.x / ranks) * L::COLUMNS, column = first + (int)threadIdx.x * N;
    const int64_t end = MIN((rank + 1) * rows_each, rows);
    const From *matrix = from + (int64_t)blockIdx.y * rows * c + column;
    double sum[N] = {};
    for (int64_t row = rank * rows_each + threadIdx.y; row < end && column < c;
         row += AHEAD * SUM_LINES) {
        Pack<N> loaded[AHEAD], chain = {};
        UNROLL for (int k = 0; k < AHEAD; k++)
        {
            const int64_t at = row + k * SUM_LINES;
            loaded[k] = at < end ? load_some<WHOLE>(matrix + at * c, c - column) : Pack<N>{};
        }
        UNROLL for (int k = 0; k < AHEAD; k++) for (int i = 0; i < N; i++) chain.at[i] +=
            loaded[k].at[i];
        for (int i = 0; i < N; i++)
            sum[i] += (double)chain.at[i];
    }
    for (int i = 0; i < N; i++)
        lines[threadIdx.y * L::PITCH + threadIdx.x * N + i] = sum[i];
    __syncthreads();

    const int thread = (int)(threadIdx.y * SUM_WIDTH + threadIdx.x), mine = thread % L::COLUMNS;
    const int each = SUM_LINES / L::GROUPS, line = thread / L::COLUMNS * each;
    double total = 0;
    for (int i = line; i < line + each; i++)
        total += lines[i * L::PITCH + mine];
    groups[thread] = total;
    __syncthreads();
    if (thread < L::COLUMNS) {
        for (int i = 1; i < L::GROUPS; i++)
            total += groups[i * L::COLUMNS + mine];
        groups[mine] = total;
    }
    if (ranks > 1)
        cluster_sync();
    if (rank == 0 && thread < L::COLUMNS && first + mine < c) {
        for (unsigned i = 1; i < ranks; i++)
            total += cluster_read(&groups[mine], i);
        to[(int64_t)blockIdx.y * c + first + mine] = narrow<To>((float)total);
    }
    if (ranks > 1)
        cluster_sync(); /* all blocks are there until the first one has read them */
}

template <bool WHOLE, typename From, typename To>
static void column_sums(Device *device, int64_t n_matrices, int64_t rows, int c, const From *from,
                        To *to)
{
    unsigned ranks = 1;
    while (ranks < RANKS_MAX && rows > (int64_t)ranks * ROWS_OF_RANK)
        ranks *= 2;
    const dim3 grid((unsigned)DIV_ROUND_UP(c, (int)SumsLayout<From>::COLUMNS) * ranks,
                    (unsigned)n_matrices);
    LAUNCH_CLUSTERS(device, ranks, grid, dim3(SUM_WIDTH, SUM_LINES),
                    SumsLayout<From>::DOUBLES * sizeof(double),
                    (column_sums_kernel<WHOLE, From, To>), rows, DIV_ROUND_UP(rows, (int64_t)ranks),
                    c, from, to);
}

void cuda_column_sums(Device *device, int64_t n_matrices, int64_t rows, int c, const void *from,
                      float *to)
{
    WITH_PACKS(device, (c, from),
               column_sums<(N > 1)>(device, n_matrices, rows, c, (const T *)from, to));
}

void cuda_spatial_sum(Device *device, int n, int64_t pixels, int c, const void *dy,
                      void *dper_image)
{
    WITH_PACKS(device, (c, dy),
               column_sums<(N > 1)>(device, n, pixels, c, (const T *)dy, (T *)dper_image));
}
