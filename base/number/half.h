/* SPDX-License-Identifier: Apache-2.0 */
/* half.h - exact conversion between IEEE half precision and float, with the same bits on every CPU.
 *
 * Ownership: none.
 * Units:     elements. A half is stored as its 16 bits.
 * Errors:    none. NaNs stay NaNs, made quiet; conversion to half rounds to nearest, ties to even.
 */
#pragma once

#include "base/macro.h"

float half_to_float(uint16_t half);
uint16_t half_from_float(float value);

/* Converts n halves at any alignment, with the CPU's instruction if it has one. Returns whether all are finite. */
bool half_expand(const void *halves, size_t n, float *ret);
