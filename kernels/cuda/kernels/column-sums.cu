/* SPDX-License-Identifier: Apache-2.0 */
/* column-sums.cu - the sum of each column of a matrix: gradients of biases, and of values that all pixels of an image
 * share.
 *
 * A cluster shares the rows of SUM_WIDTH packs of columns, which are whole lines of memory. Where a matrix is so narrow
 * that its clusters would leave most of a GPU idle, the matrix is cut into pieces; column_totals_kernel adds the sums
 * of the pieces. A thread adds AHEAD rows in fp32, and these partial sums in double. Then its block adds the sums of
 * its lines of threads, the cluster's first block adds the sums of the other blocks, and the pieces are added. Each of
 * these three steps has a fixed order. The tree depends only on rows, columns and the type.
 *
 * A conditional load is a branch, and the code behind the branch waits for the load before it. So all AHEAD loads are
 * always made; instead of a row behind the last one, the thread loads its first row once more. */
#include "kernels/cuda/kernels/kernel.cuh"
#include "kernels/cuda/kernels/operations.h"

enum {
    SUM_WIDTH = 8,        /* packs side by side: 128 bytes of a row */
    SUM_LINES = 32,       /* lines of threads; a line adds every SUM_LINES-th row of its block */
    AHEAD = 8,            /* rows that a thread loads before it uses the first */
    ROWS_OF_RANK = 256,   /* rows of a block, AHEAD for each line; more rows get more blocks */
    ROWS_OF_PIECE = 8192, /* the fewest rows of a piece; the sums of pieces must be added later */
    RANKS_MAX = 8,
    BLOCKS = 264,    /* the most blocks of a matrix in pieces: two for each of 132 SMs */
    TOTAL_LINES = 8, /* lines of threads that share the pieces of a column */
};

template <typename T> struct SumsLayout {
    enum {
        COLUMNS = SUM_WIDTH * pack_elements<T>(), /* columns of a block */
        PITCH = COLUMNS + 1, /* stride of a line's sums: neighbours lie in different banks */
        GROUPS = SUM_WIDTH * SUM_LINES / COLUMNS, /* groups of lines, to occupy all threads */
        DOUBLES = SUM_LINES * PITCH + GROUPS * COLUMNS,
    };
};

/* Computes the sums of one thread: `column` and its neighbours in the pack, over every SUM_LINES-th row from `row` to
 * `end`. */
template <bool WHOLE, int N, typename From>
__device__ static inline void sum_rows(int64_t row, int64_t end, int c, int column,
                                       const From *from, double *sum)
{
    const From *at = from + row * c + column;
    const int64_t step = (int64_t)SUM_LINES * c;
    for (; row < end && column < c; row += AHEAD * SUM_LINES, at += AHEAD * step) {
        Pack<N> loaded[AHEAD], chain = {};
        UNROLL for (int k = 0; k < AHEAD; k++) loaded[k] =
            load_some<WHOLE>(row + k * SUM_LINES < end ? at + k * step : at, c - column);
        UNROLL for (int k = 0; k < AHEAD; k++)
        {
            const bool there = row + k * SUM_LINES < end;
            for (int i = 0; i < N; i++)
                chain.at[i] += there ? loaded[k].at[i] : 0.0f;
        }
        for (int i = 0; i < N; i++)
            sum[i] += (double)chain.at[i];
    }
}

__device__ static inline void store_total(double *to, double total) { *to = total; }

template <typename To> __device__ static inline void store_total(To *to, double total)
{
    *to = narrow<To>((float)total);
}

/* blockIdx.y: a matrix, or a piece of a matrix, with `each` rows; the last piece has the remaining rows. */
template <bool WHOLE, typename From, typename To>
__global__ void __launch_bounds__(SUM_WIDTH *SUM_LINES, 2)
    column_sums_kernel(int64_t rows, int64_t each, int64_t of_rank, int c, const From *from, To *to)
{
    typedef SumsLayout<From> L;
    constexpr int N = pack_elements<From>();
    SHARED_ARRAY(double, lines);                   /* [SUM_LINES][PITCH] */
    double *groups = lines + SUM_LINES * L::PITCH; /* [GROUPS][COLUMNS]; [0]: the block's sums */
    const unsigned rank = cluster_rank(), ranks = cluster_size();
    const int first = (int)(blockIdx.x / ranks) * L::COLUMNS, column = first + (int)threadIdx.x * N;
    const int64_t begin = blockIdx.y * each + rank * of_rank;
    const int64_t end = MIN(MIN(begin + of_rank, (blockIdx.y + 1) * each), rows);
    double sum[N] = {};
    sum_rows<WHOLE, N>(begin + threadIdx.y, end, c, column, from, sum);
    for (int i = 0; i < N; i++)
        lines[threadIdx.y * L::PITCH + threadIdx.x * N + i] = sum[i];
    __syncthreads();

    const int thread = (int)(threadIdx.y * SUM_WIDTH + threadIdx.x), mine = thread % L::COLUMNS;
    const int of_group = SUM_LINES / L::GROUPS, line = thread / L::COLUMNS * of_group;
    double total = 0;
    for (int i = line; i < line + of_group; i++)
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
        store_total(to + (int64_t)blockIdx.y * c + first + mine, total);
    }
    if (ranks > 1)
        cluster_sync(); /* no block ends before the first block has read its sums */
}

/* to[c] = the sum of parts[pieces][c]; a line of threads adds every TOTAL_LINES-th piece. */
__global__ void __launch_bounds__(32 * TOTAL_LINES)
    column_totals_kernel(int pieces, int c, const double *parts, float *to)
{
    __shared__ double lines[TOTAL_LINES][32];
    const int column = (int)(blockIdx.x * 32 + threadIdx.x);
    double total = 0;
    for (int first = (int)threadIdx.y; first < pieces && column < c; first += AHEAD * TOTAL_LINES) {
        double loaded[AHEAD];
        UNROLL for (int k = 0; k < AHEAD; k++)
        {
            const int i = first + k * TOTAL_LINES;
            loaded[k] = parts[(int64_t)(i < pieces ? i : first) * c + column];
        }
        UNROLL for (int k = 0; k < AHEAD; k++) if (first + k * TOTAL_LINES < pieces) total +=
            loaded[k];
    }
    lines[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.y > 0 || column >= c)
        return;
    for (int i = 1; i < TOTAL_LINES; i++)
        total += lines[i][threadIdx.x];
    to[column] = (float)total;
}

void cuda_column_totals(Device *device, int pieces, int c, const double *parts, float *to)
{
    LAUNCH(device, (unsigned)DIV_ROUND_UP(c, 32), dim3(32, TOTAL_LINES), 0, column_totals_kernel,
           pieces, c, parts, to);
}

static unsigned ranks_of(int64_t rows)
{
    unsigned ranks = 1;
    while (ranks < RANKS_MAX && rows > (int64_t)ranks * ROWS_OF_RANK)
        ranks *= 2;
    return ranks;
}

static int64_t pieces_of(const Device *device, int64_t rows, int c)
{
    const int64_t columns = SUM_WIDTH * ACCESS_BYTES / (int64_t)data_type_bytes(device->type);
    const int64_t blocks = DIV_ROUND_UP((int64_t)c, columns) * RANKS_MAX;
    return MAX(MIN(BLOCKS / blocks, rows / ROWS_OF_PIECE), (int64_t)1);
}

/* Launches the sums of several matrices, or of the pieces of one matrix, with `each` rows each and `rows` rows in
 * total. */
template <bool WHOLE, typename From, typename To>
static void column_sums(Device *device, int64_t rows, int64_t each, int c, const From *from, To *to)
{
    const unsigned ranks = ranks_of(each);
    const dim3 grid((unsigned)DIV_ROUND_UP(c, (int)SumsLayout<From>::COLUMNS) * ranks,
                    (unsigned)DIV_ROUND_UP(rows, each));
    LAUNCH_CLUSTERS(device, ranks, grid, dim3(SUM_WIDTH, SUM_LINES),
                    SumsLayout<From>::DOUBLES * sizeof(double),
                    (column_sums_kernel<WHOLE, From, To>), rows, each,
                    DIV_ROUND_UP(each, (int64_t)ranks), c, from, to);
}

size_t cuda_column_sums_bytes(const Device *device, int64_t rows, int c)
{
    const int64_t pieces = pieces_of(device, rows, c);
    return pieces > 1 ? (size_t)pieces * (size_t)c * sizeof(double) : 0;
}

void cuda_column_sums(Device *device, int64_t rows, int c, const void *from, float *to,
                      void *workspace)
{
    const int64_t pieces = pieces_of(device, rows, c), each = DIV_ROUND_UP(rows, pieces);
    double *parts = (double *)workspace;
    if (pieces == 1) {
        WITH_PACKS(device, (c, from),
                   column_sums<(N > 1)>(device, rows, rows, c, (const T *)from, to));
        return;
    }
    WITH_PACKS(device, (c, from),
               column_sums<(N > 1)>(device, rows, each, c, (const T *)from, parts));
    cuda_column_totals(device, (int)pieces, c, parts, to);
}

void cuda_spatial_sum(Device *device, int n, int64_t pixels, int c, const void *dy,
                      void *dper_image)
{
    WITH_PACKS(device, (c, dy),
               column_sums<(N > 1)>(device, n * pixels, pixels, c, (const T *)dy, (T *)dper_image));
}
