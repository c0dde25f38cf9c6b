/* SPDX-License-Identifier: Apache-2.0 */
/* tile.h - the matrix product on which convolution, linear and attention are built.
 *
 * A tile is TILE_ROWS x TILE_COLUMNS of the result. Each of its elements is one chain of fused multiply-adds over the
 * segments in order and, inside a segment, over k in order. A chain's bits do not depend on how tiles are shared among
 * threads or on the vector width, and fma is the same function on every machine.
 *
 * Ownership: borrows everything. Errors: none.
 * Units:     strides and offsets in floats.
 * Threads:   any; tiles are independent.
 */
#pragma once

#include "base/macro.h"

#include <string.h>
#ifdef __FMA__
#include <immintrin.h>
#else
#include <math.h>
#endif

enum { TILE_ROWS = 6, TILE_COLUMNS = 16 };

/* TILE_ROWS rows of the left matrix. b: the offset, in the right matrix, of the row with which the first column of
 * these rows is multiplied. */
typedef struct Segment {
    const float *a[TILE_ROWS];
    size_t b;
} Segment;

typedef struct __attribute__((aligned(64))) Tile {
    float at[TILE_ROWS][TILE_COLUMNS];
} Tile;

/* tile[i][j] = sum over segments s and k < depth of s.a[i][a_offset + k * a_step] *
 * b[s.b + k * b_step + j]. Rows of b are TILE_COLUMNS floats wide, though some may be padding. */
#ifdef __FMA__
static inline void tile_multiply(const Segment *segments, size_t n_segments, size_t a_offset,
                                 size_t a_step, const float *b, size_t b_step, size_t depth,
                                 Tile *ret)
{
    __m256 c00 = _mm256_setzero_ps(), c01 = c00, c10 = c00, c11 = c00, c20 = c00, c21 = c00;
    __m256 c30 = c00, c31 = c00, c40 = c00, c41 = c00, c50 = c00, c51 = c00;

    for (const Segment *s = segments; s < segments + n_segments; s++) {
        const float *a0 = s->a[0] + a_offset, *a1 = s->a[1] + a_offset, *a2 = s->a[2] + a_offset;
        const float *a3 = s->a[3] + a_offset, *a4 = s->a[4] + a_offset, *a5 = s->a[5] + a_offset;
        const float *row = b + s->b;
        for (size_t k = 0, at = 0; k < depth; k++, at += a_step, row += b_step) {
            __m256 b0 = _mm256_loadu_ps(row), b1 = _mm256_loadu_ps(row + 8), x;
            x = _mm256_broadcast_ss(a0 + at);
            c00 = _mm256_fmadd_ps(x, b0, c00);
            c01 = _mm256_fmadd_ps(x, b1, c01);
            x = _mm256_broadcast_ss(a1 + at);
            c10 = _mm256_fmadd_ps(x, b0, c10);
            c11 = _mm256_fmadd_ps(x, b1, c11);
            x = _mm256_broadcast_ss(a2 + at);
            c20 = _mm256_fmadd_ps(x, b0, c20);
            c21 = _mm256_fmadd_ps(x, b1, c21);
            x = _mm256_broadcast_ss(a3 + at);
            c30 = _mm256_fmadd_ps(x, b0, c30);
            c31 = _mm256_fmadd_ps(x, b1, c31);
            x = _mm256_broadcast_ss(a4 + at);
            c40 = _mm256_fmadd_ps(x, b0, c40);
            c41 = _mm256_fmadd_ps(x, b1, c41);
            x = _mm256_broadcast_ss(a5 + at);
            c50 = _mm256_fmadd_ps(x, b0, c50);
            c51 = _mm256_fmadd_ps(x, b1, c51);
        }
    }
    const __m256 c[TILE_ROWS][2] = {{c00, c01}, {c10, c11}, {c20, c21},
                                    {c30, c31}, {c40, c41}, {c50, c51}};
    for (int i = 0; i < TILE_ROWS; i++) {
        _mm256_store_ps(ret->at[i], c[i][0]);
        _mm256_store_ps(ret->at[i] + 8, c[i][1]);
    }
}
#else
static inline void tile_multiply(const Segment *segments, size_t n_segments, size_t a_offset,
                                 size_t a_step, const float *b, size_t b_step, size_t depth,
                                 Tile *ret)
{
    Tile c = {0};
    for (const Segment *s = segments; s < segments + n_segments; s++)
        for (size_t k = 0; k < depth; k++)
            for (int i = 0; i < TILE_ROWS; i++)
                for (int j = 0; j < TILE_COLUMNS; j++)
                    c.at[i][j] = fmaf(s->a[i][a_offset + k * a_step],
                                      b[s->b + k * b_step + (size_t)j], c.at[i][j]);
    *ret = c;
}
#endif

/* Copies rows first..end-1 of from[rows][columns] to to[panel * panel_stride + row * width + j], in panels of `width`
 * columns. The last panel is padded with zeros. */
static inline void pack_panels(size_t columns, const float *from, size_t stride, size_t width,
                               size_t first, size_t end, float *to, size_t panel_stride)
{
    const size_t whole = columns / width, rest = columns % width;

    for (size_t row = first; row < end; row++) {
        const float *in = from + row * stride;
        for (size_t panel = 0; panel < whole; panel++)
            memcpy(to + panel * panel_stride + row * width, in + panel * width,
                   width * sizeof(float));
        if (rest > 0) {
            float *out = to + whole * panel_stride + row * width;
            memcpy(out, in + whole * width, rest * sizeof(float));
            memset(out + rest, 0, (width - rest) * sizeof(float));
        }
    }
}
