/* SPDX-License-Identifier: Apache-2.0 */
/* sum.h - sums the columns of a matrix by a fixed tree.
 *
 * Ownership: borrows everything. Units: strides in floats. Errors: none. Threads: any.
 */
#pragma once

#include "base/macro.h"
#include "kernels/cpu/device.h"

enum { SUM_COLUMNS = 32, SUM_ROWS = 64 };

/* to[j] = the sum over all rows of from[row][j], for j < columns <= SUM_COLUMNS. Chains of SUM_ROWS rows are summed
 * first, then one chain of their sums. */
static inline void sum_rows(int64_t rows, int columns, const float *from, size_t stride, float *to)
{
    float total[SUM_COLUMNS] = {0};

    for (int64_t first = 0; first < rows; first += SUM_ROWS) {
        int64_t end = MIN(first + SUM_ROWS, rows);
        float part[SUM_COLUMNS] = {0};
        if (columns == SUM_COLUMNS) {
            for (int64_t row = first; row < end; row++)
                for (int j = 0; j < SUM_COLUMNS; j++)
                    part[j] += from[(size_t)row * stride + (size_t)j];
        } else {
            for (int64_t row = first; row < end; row++)
                for (int j = 0; j < columns; j++)
                    part[j] += from[(size_t)row * stride + (size_t)j];
        }
        for (int j = 0; j < SUM_COLUMNS; j++)
            total[j] += part[j];
    }
    for (int j = 0; j < columns; j++)
        to[j] = total[j];
}

/* to[matrix][columns] = the column sums of from[matrix][rows][columns]. */
static inline void sum_columns(const Device *device, int n_matrices, int64_t rows, int columns,
                               const float *from, float *to)
{
    const int blocks = DIV_ROUND_UP(columns, (int)SUM_COLUMNS);
    const int team = device_team(device, n_matrices * rows * columns);

#pragma omp parallel for collapse(2) num_threads(team) schedule(static)
    for (int matrix = 0; matrix < n_matrices; matrix++) {
        for (int block = 0; block < blocks; block++) {
            int first = block * SUM_COLUMNS;
            sum_rows(rows, MIN((int)SUM_COLUMNS, columns - first),
                     from + (size_t)matrix * (size_t)rows * (size_t)columns + first,
                     (size_t)columns, to + (size_t)matrix * (size_t)columns + first);
        }
    }
}
