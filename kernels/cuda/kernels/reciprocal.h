/* SPDX-License-Identifier: Apache-2.0 */
/* reciprocal.h - 1 / d, correctly rounded, from a GPU's approximation.
 *
 * A GPU divides by a sequence with a slow path, whose branch keeps the divisions of a pack from overlapping. Its
 * rcp.approx is one instruction and within one unit in the last place of the correctly rounded result, by its
 * documentation; on an H100, measured at all 2^23 mantissas, too.
 *
 * Ownership: none.
 * Units:     none.
 * Errors:    none; NaN comes back as NaN.
 * Threads:   any; pure.
 */
#pragma once

#include "base/number/bits.h"

#include <math.h>

/* 1 / d for 1 <= d < 2^126. seed: the correctly rounded result, the float above it or the one below it. The result is
 * the same for all three and every d: test-reciprocal tries them.
 *
 * Two steps of Newton, y += y (1 - d y), are not enough. Where d has all mantissa bits set, 1 / d lies so near the
 * middle of a power of two and the next float that the power, once reached, stays. The seed is made odd, which is never
 * that power, and the second step uses the first one's remainder: what both leave is of the third order. */
_device_ static inline float reciprocal_of_seed(float d, float seed)
{
    const float y = float_from_bits(float_bits(seed) | 1u);
    const float rest = fmaf(-d, y, 1.0f);
    return fmaf(fmaf(y, rest, y), rest, y);
}
