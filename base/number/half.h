/* SPDX-License-Identifier: Apache-2.0 */
/* half.h - IEEE half precision to float and back, exact, the same bits on every CPU.
 *
 * Ownership: none.
 * Units:     elements. A half is its 16 bits.
 * Errors:    none. NaNs stay NaNs, made quiet; to half, rounding is to nearest, ties to even.
 * Threads:   any; pure.
 */
#pragma once

#include "base/macro.h"

float half_to_float(uint16_t half);
uint16_t half_from_float(float value);

/* Converts n halves at any alignment, by the CPU's own conversion where it has one. Returns whether all are finite. */
bool half_expand(const void *halves, size_t n, float *ret);
