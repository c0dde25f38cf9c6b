/* SPDX-License-Identifier: Apache-2.0 */
/* reciprocal.h - 1 / d, correctly rounded, from a GPU's approximation.
 *
 * A GPU divides by a sequence with a slow path, whose branch keeps the divisions of a pack from overlapping. Its
 * rcp.approx is one instruction, and its result is within one unit in the last place of the correctly rounded result,
 * according to its documentation and to a measurement of all 2^23 mantissas on an H100.
 *
 * Ownership: none. Units: none. Errors: none; NaN gives NaN. Threads: any; pure.
 */
#pragma once

#include "base/number/bits.h"

#include <math.h>

/* Returns 1 / d for 1 <= d < 2^126. seed: the correctly rounded result, or the float above or below it. The result is
 * the same for these three seeds and every d: test-reciprocal tries them.
 *
 * Two steps of Newton, y += y (1 - d y), are not enough. Where d has all mantissa bits set, 1 / d is so near the middle
 * between a power of two and the next float that Newton's iteration, once it has reached the power, stays there. So the
 * seed is made odd, which the power never is, and the second step uses the remainder of the first step: the error after
 * both steps is of the third order. */
_device_ static inline float reciprocal_of_seed(float d, float seed)
{
    const float y = float_from_bits(float_bits(seed) | 1u);
    const float rest = fmaf(-d, y, 1.0f);
    return fmaf(fmaf(y, rest, y), rest, y);
}
