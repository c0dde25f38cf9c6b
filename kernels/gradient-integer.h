/* SPDX-License-Identifier: Apache-2.0 */
/* gradient-integer.h - how one gradient is converted to an integer, on every kind of device.
 *
 * Ownership: none. Errors: none. Threads: any; pure.
 * Units:     a maximum is the bit pattern of |g|; an exponent e means 2^e.
 */
#pragma once

#include "base/number/bits.h"

#include <math.h>

#define FLOAT_INFINITY_BITS 0x7f800000u

_device_ static inline double power_of_two(int exponent)
{
    assert(exponent > -1022 && exponent < 1024);
    return double_from_bits((uint64_t)(exponent + 1023) << 52);
}

/* Returns the bit pattern of g without the sign. */
_device_ static inline uint32_t magnitude_bits(float g) { return float_bits(g) & 0x7fffffffu; }

/* Returns rint(g * factor), as kernels.h defines it for 32 bits. All steps are in floats: the product is exact, or so
 * small that it rounds to 0, or saturates; 2^23 + |v| is |v| rounded half to even while |v| < 2^23, and a larger float
 * is an integer already. */
_device_ static inline int32_t count_one(float g, float factor)
{
    bool finite = (float_bits(g) & FLOAT_INFINITY_BITS) != FLOAT_INFINITY_BITS;
    float v = (finite ? g : 0.0f) * factor, size = fabsf(v);
    float whole = copysignf((size + 0x1p23f) - 0x1p23f, v);
    v = size < 0x1p23f ? whole : v;
    v = v > 2147483520.0f ? 2147483520.0f : v; /* the largest float below 2^31 */
    v = v < -2147483648.0f ? -2147483648.0f : v;
    return (int32_t)v;
}

/* As count_one(), for 64 bits. 1.5 * 2^52 + v has v, rounded half to even, in its low bits. */
_device_ static inline int64_t count_one64(float g, double factor)
{
    const double rounder = 0x1.8p52;
    if ((float_bits(g) & FLOAT_INFINITY_BITS) == FLOAT_INFINITY_BITS)
        return 0;
    double v = (double)g * factor;
    if (v >= 0x1p63)
        return INT64_MAX;
    if (v <= -0x1p63)
        return INT64_MIN;
    if (v > -0x1p51 && v < 0x1p51)
        return (int64_t)(double_bits(v + rounder) - double_bits(rounder));
    return (int64_t)v; /* v is an integer: a float has only 24 significant bits */
}
