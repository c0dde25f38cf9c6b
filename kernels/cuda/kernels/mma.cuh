/* SPDX-License-Identifier: Apache-2.0 */
/* mma.cuh - products of small matrices in bf16 by a tensor core: mma.sync.m16n8k16, and the loads of its operands.
 *
 * Each function is an operation of a whole warp, whose lanes hold the elements of the matrices as the PTX manual
 * defines. With g = lane / 4 and t = lane % 4, each word of a lane has two neighbours of a row (of A and the sums) or
 * of a column (of B):
 *
 *     A, 16 rows x 16:   word 0: row g, 2t     1: row g + 8, 2t     2: row g, 2t + 8     3: row g + 8, 2t + 8
 *     B, 16 x 8 columns: word 0: column g, 2t  1: column g, 2t + 8
 *     sums, 16 x 8:      0, 1: row g, 2t and 2t + 1                 2, 3: row g + 8, the same
 *
 * So the narrowed sums of one product are the words of A of another product: words_of_a().
 *
 * How the addition of 16 products rounds depends on the GPU. The emulator has models of this rounding (mma-model.h).
 *
 * Ownership: none.
 * Units:     elements.
 * Errors:    none.
 * Threads:   all lanes of a warp, together.
 */
#pragma once

#include "kernels/cuda/kernels/kernel.cuh"

struct MmaA {
    uint32_t at[4];
};

struct MmaB {
    uint32_t at[2];
};

struct MmaSums {
    float at[4];
};

#ifndef __CUDACC__
namespace emulate
{
struct MmaLane {
    MmaA a;
    MmaB b;
    MmaSums sums;
};

/* One lane of a load: the address of the row of 8 elements that this lane names, and the words of four matrices that
 * this lane receives. */
struct MatricesLane {
    const Bf16 *row;
    bool turned;
    uint32_t words[4];
};

void mma(void *const lanes[WARP]);
void load_matrices(void *const lanes[WARP]);
} // namespace emulate
#endif

/* sums += a b */
__device__ static inline void warp_mma(const MmaA &a, const MmaB &b, MmaSums *sums)
{
#ifdef __CUDACC__
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(sums->at[0]), "+f"(sums->at[1]), "+f"(sums->at[2]), "+f"(sums->at[3])
                 : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]),
                   "r"(b.at[1]));
#else
    emulate::MmaLane lane = {a, b, *sums};
    emulate::warp_together(&lane, emulate::mma);
    *sums = lane.sums;
#endif
}

/* Loads four matrices of 8x8 from shared memory. Lanes 8i to 8i + 7 name the rows of matrix i, which are aligned to 16
 * bytes. From each matrix a lane gets elements 2t and 2t + 1 of row g or, if TURNED, of column g. */
template <bool TURNED>
__device__ static inline void load_matrices(const Bf16 *row, uint32_t words[4])
{
#ifdef __CUDACC__
    const unsigned place = (unsigned)__cvta_generic_to_shared(row);
    if constexpr (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(place)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(place)
                     : "memory");
#else
    emulate::MatricesLane lane = {row, TURNED, {}};
    emulate::warp_together(&lane, emulate::load_matrices);
    for (int i = 0; i < 4; i++)
        words[i] = lane.words[i];
#endif
}

/* ---- tiles of 16x16 in shared memory, whose rows lie `stride` apart ----
 *
 * Where strides are odd multiples of 8 elements, the eight rows of a matrix lie in different banks. */

/* Loads A from tile[row][k]. */
__device__ static inline MmaA load_a(const Bf16 *tile, int stride)
{
    const int lane = (int)threadIdx.x % 32;
    MmaA a;
    load_matrices<false>(tile + lane % 16 * stride + lane / 16 * 8, a.at);
    return a;
}

/* Loads A from tile[k][row]. */
__device__ static inline MmaA load_a_turned(const Bf16 *tile, int stride)
{
    const int lane = (int)threadIdx.x % 32;
    MmaA a;
    load_matrices<true>(tile + (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8, a.at);
    return a;
}

/* Two operands B, for columns 0 to 7 and for columns 8 to 15. */
struct MmaPair {
    MmaB left, right;
};

/* Loads both operands B from tile[column][k]. */
__device__ static inline MmaPair load_b(const Bf16 *tile, int stride)
{
    const int lane = (int)threadIdx.x % 32;
    uint32_t w[4];
    load_matrices<false>(tile + (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8, w);
    return MmaPair{{{w[0], w[1]}}, {{w[2], w[3]}}};
}

/* Loads both operands B from tile[k][column]. */
__device__ static inline MmaPair load_b_turned(const Bf16 *tile, int stride)
{
    const int lane = (int)threadIdx.x % 32;
    uint32_t w[4];
    load_matrices<true>(tile + lane % 16 * stride + lane / 16 * 8, w);
    return MmaPair{{{w[0], w[1]}}, {{w[2], w[3]}}};
}

/* Turns the sums of 16 columns, given as a left and a right half, into an operand A whose 16 k are these columns. */
__device__ static inline MmaA words_of_a(const MmaSums &left, const MmaSums &right)
{
    return MmaA{{narrow_pair(left.at[0], left.at[1]), narrow_pair(left.at[2], left.at[3]),
                 narrow_pair(right.at[0], right.at[1]), narrow_pair(right.at[2], right.at[3])}};
}
