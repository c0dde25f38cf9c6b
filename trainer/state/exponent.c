/* SPDX-License-Identifier: Apache-2.0 */
/* exponent.c - see exponent.h. */

#include "trainer/state/exponent.h"

#include <math.h>
#include <string.h>

enum { FLOAT_INFINITY = 0x7f800000, HEADROOM_BITS = 2 };

static int ceil_log2(int64_t n)
{
    assert(n >= 1);
    int bits = 0;
    while ((INT64_C(1) << bits) < n)
        bits++;
    return bits;
}

static int64_t limit_of(SumWidth width) { return width == SUM_32 ? INT32_MAX : INT64_C(1) << 62; }

int exponent_choose(uint32_t maximum, int64_t n_grains, SumWidth width)
{
    if (maximum == 0)
        return EXPONENT_MAX;
    int above = (int)(maximum >> 23) - 126; /* the maximum is below 2^above, subnormal or not */
    int bits = width == SUM_32 ? 31 : 62;
    int exponent = bits - ceil_log2(n_grains) - HEADROOM_BITS - above;
    return CLAMP(exponent, EXPONENT_MIN, EXPONENT_MAX);
}

bool exponent_overflows(int exponent, uint32_t maximum, int64_t n_grains, SumWidth width)
{
    assert(maximum < FLOAT_INFINITY);
    float m;
    memcpy(&m, &maximum, sizeof(m));
    double counted = rint(ldexp((double)m, exponent)); /* ldexp() and rint() are exact */
    int64_t limit = limit_of(width);
    return counted > (double)limit || (int64_t)counted > limit / n_grains;
}

uint32_t exponent_infinite(int64_t n_grains)
{
    /* For one grain these are the bits of infinity. */
    return (uint32_t)(127 + 128 - ceil_log2(n_grains)) << 23;
}
