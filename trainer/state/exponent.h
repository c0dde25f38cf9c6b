/* SPDX-License-Identifier: Apache-2.0 */
/* exponent.h - chooses how finely a tensor's gradients are counted, and proves that their sum cannot
 * overflow.
 *
 * A gradient g becomes the integer rint(g 2^e), |g| at most the tensor's largest over all grains, M. With Q = rint(M
 * 2^e), any sum over any of the G grains, in any order and on any rank, is at most G Q in magnitude, because rint is
 * monotone and odd. So G Q <= limit proves that neither one value saturates nor any partial sum overflows, and all
 * ranks come to the same result from M only.
 *
 * Ownership: none. Errors: none. Threads: any; pure.
 * Units:     maxima are the bit patterns of |g| as float: they order like the values, infinity and
 *            NaN above all finite ones. An exponent e stands for 2^e.
 * Source:    docs/concepts/why-bits-repeat.md, "Reduction".
 */
#pragma once

#include "base/macro.h"

enum { EXPONENT_MIN = -100, EXPONENT_MAX = 120 };

/* Bits of the integer. Sums of 32 stay within 2^31 - 1, sums of 64 within 2^62. */
typedef enum SumWidth { SUM_32 = 32, SUM_64 = 64 } SumWidth;

/* Returns the exponent at which n_grains gradients of up to four times the maximum still fit. */
int exponent_choose(uint32_t maximum, int64_t n_grains, SumWidth width);

/* Reports whether the sum of n_grains gradients of up to `maximum` (finite) could overflow. */
bool exponent_overflows(int exponent, uint32_t maximum, int64_t n_grains, SumWidth width);

/* Returns the smallest maximum that counts as infinite: from 2^128 / G on the sum could leave fp32. Every smaller
 * maximum fits at some exponent that is allowed. */
uint32_t exponent_infinite(int64_t n_grains);
