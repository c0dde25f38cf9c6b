/* SPDX-License-Identifier: Apache-2.0 */
/* first-numbers.h - the functions that first-numbers.cu runs on a GPU, for the case "numbers".
 *
 * Ownership: all memory is the caller's, on the host.
 * Units:     as each function says.
 * Errors:    a cudaError_t; *ret_name is its name.
 * Threads:   one.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct FirstReciprocals {
    uint64_t differ;         /* how many of 2^23 mantissas get another 1 / d than IEEE's */
    uint64_t differ_once;    /* how many mantissas differ after one Newton step instead of two */
    uint32_t raw_ulps;       /* the largest error of rcp.approx itself */
    uint32_t first, refined; /* the first d whose result differs, and that result: bits; 0: none */
} FirstReciprocals;

int first_reciprocals(FirstReciprocals *ret, const char **ret_name);

enum { FIRST_MMA_K = 16 };

/* One element of a product of mma.sync.m16n8k16: d = c + the sum of a[k] b[k]. */
typedef struct FirstMma {
    uint16_t a[FIRST_MMA_K], b[FIRST_MMA_K]; /* bf16 */
    float c;
    uint32_t d; /* the result's bits */
    /* whether all 128 elements of the tile, which have the same operands, are equal */
    uint32_t equal;
} FirstMma;

int first_mma(FirstMma *cases, size_t n, const char **ret_name);

/* Measures, in seconds, cudaHostAlloc and cudaFreeHost of so many bytes, and a copy from this memory to the GPU. */
int first_page_lock(size_t n_bytes, double *ret_sec, double *ret_free_sec, double *ret_copy_sec,
                    const char **ret_name);

#ifdef __cplusplus
}
#endif
