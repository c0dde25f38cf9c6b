/* SPDX-License-Identifier: Apache-2.0 */
/* number.h - elements of the fake libraries' matrices and tensors: fp32 or bf16.
 *
 * Ownership: none. Units: elements. Errors: none. Threads: any.
 */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Returns element i of an array of fp32 or of bf16. */
static inline float fake_read(const void *array, bool is_f32, int64_t i)
{
    uint32_t bits;
    float value;
    if (is_f32)
        return ((const float *)array)[i];
    bits = (uint32_t)((const uint16_t *)array)[i] << 16;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Writes element i. Rounds half to even; a NaN stays a NaN. */
static inline void fake_write(float value, void *array, bool is_f32, int64_t i)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if (is_f32)
        ((float *)array)[i] = value;
    else if (isnan(value))
        ((uint16_t *)array)[i] = (uint16_t)(bits >> 16 | 0x40u);
    else
        ((uint16_t *)array)[i] = (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* Adds from[i] * factor to sums[i], for i < n. The caller ensures that the arrays are long enough. The sanitizers'
 * checks are switched off here, because they took most of a product's time. */
__attribute__((no_sanitize("address"), no_sanitize("undefined"))) static inline void
fake_add_scaled(float *sums, const float *from, float factor, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        sums[i] += from[i] * factor;
}
