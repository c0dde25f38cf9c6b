/* SPDX-License-Identifier: Apache-2.0 */
/* exactmath.c - see exactmath.h.
 *
 * exp: x = k ln2 + r, |r| <= ln2/2, Taylor series of degree 13 in r by Horner, scaled by 2^k.
 * log: x = 2^k m, m in [sqrt(1/2), sqrt(2)), log m = 2 atanh(s), s = (m-1)/(m+1), odd series to
 * s^23. sin, cos: x = k pi/2 + r by a three-part pi/2 (Cody and Waite), Taylor series to degree 17
 * / 18. */
#include "base/number/exactmath.h"

#include "base/number/bits.h"

#include <math.h>

#ifndef EXACT_INTERNAL
#define EXACT_INTERNAL static
#endif
#ifdef __CUDA_ARCH__ /* a GPU kernel's stack has no room for assert() and its message */
#define EXACT_ASSERT(x)
#else
#define EXACT_ASSERT(x) assert(x)
#endif

/* Rounds to the nearest integer by adding and subtracting 1.5 * 2^52: exact for |x| < 2^51 and the same on every IEEE
 * machine. */
EXACT_INTERNAL double nearest(double x)
{
    const double magic = 0x1.8p52;
#ifdef __CUDA_ARCH__
    return __dsub_rn(__dadd_rn(x, magic), magic);
#else
    volatile double shifted = x + magic; /* volatile: forbids folding the two additions */
    return shifted - magic;
#endif
}

static const double ln2_high =
    0x1.62e42fefa3800p-1; /* ln 2 to 42 bits, so that k * ln2_high is exact */
static const double ln2_low = 0x1.ef35793c76730p-45;

EXACT_FUNCTION double exact_exp(double x)
{
    if (x != x)
        return x;
    if (x > 708.0)
        return INFINITY;
    if (x < -708.0)
        return 0.0;

    double k = nearest(x * 0x1.71547652b82fep+0);
    double r = (x - k * ln2_high) - k * ln2_low;

    static const double inverse_factorial[] = {1.0 / 6227020800.0, 1.0 / 479001600.0,
                                               1.0 / 39916800.0,   1.0 / 3628800.0,
                                               1.0 / 362880.0,     1.0 / 40320.0,
                                               1.0 / 5040.0,       1.0 / 720.0,
                                               1.0 / 120.0,        1.0 / 24.0,
                                               1.0 / 6.0,          0.5};
    double p = inverse_factorial[0];
    for (size_t i = 1; i < ELEMENTSOF(inverse_factorial); i++)
        p = p * r + inverse_factorial[i];
    double y = 1.0 + (r + r * r * p);
    return y * double_from_bits((uint64_t)((int64_t)k + 1023) << 52);
}

EXACT_FUNCTION double exact_log(double x)
{
    if (x != x)
        return x;
    EXACT_ASSERT(x >= 0x1p-1022);

    uint64_t bits = double_bits(x);
    int64_t k = (int64_t)(bits >> 52) - 1023;
    double m = double_from_bits((bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1023) << 52);
    if (m > 0x1.6a09e667f3bcdp+0) {
        m *= 0.5;
        k++;
    }
    double s = (m - 1.0) / (m + 1.0);
    double s2 = s * s;
    double p = 1.0 / 23.0;
    for (int odd = 21; odd >= 3; odd -= 2)
        p = p * s2 + 1.0 / (double)odd;
    double tail = 2.0 * s * s2 * p;
    return (double)k * ln2_high + (2.0 * s + (tail + (double)k * ln2_low));
}

/* Computes the sine (below: the cosine) of r in [-pi/4, pi/4]. */
EXACT_INTERNAL double sin_reduced(double r)
{
    static const double c[] = {
        1.0 / 355687428096000.0, -1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0,
        1.0 / 362880.0,          -1.0 / 5040.0,          1.0 / 120.0,        -1.0 / 6.0};
    double r2 = r * r;
    double p = c[0];
    for (size_t i = 1; i < ELEMENTSOF(c); i++)
        p = p * r2 + c[i];
    return r + r * r2 * p;
}

EXACT_INTERNAL double cos_reduced(double r)
{
    static const double c[] = {
        -1.0 / 6402373705728000.0, 1.0 / 20922789888000.0, -1.0 / 87178291200.0, 1.0 / 479001600.0,
        -1.0 / 3628800.0,          1.0 / 40320.0,          -1.0 / 720.0,         1.0 / 24.0};
    double r2 = r * r;
    double p = c[0];
    for (size_t i = 1; i < ELEMENTSOF(c); i++)
        p = p * r2 + c[i];
    return 1.0 - (0.5 * r2 - r2 * r2 * p);
}

EXACT_INTERNAL double reduce(double x, int *quadrant)
{
    static const double part1 = 0x1.921fb54400000p+0; /* pi/2 in parts of 33 bits */
    static const double part2 = 0x1.0b4611a600000p-34;
    static const double part3 = 0x1.3198a2e037073p-69;
    double k = nearest(x * 0x1.45f306dc9c883p-1);
    *quadrant = (int)((int64_t)k & 3);
    return ((x - k * part1) - k * part2) - k * part3;
}

EXACT_FUNCTION double exact_sin(double x)
{
    if (x != x)
        return x;
    EXACT_ASSERT(x >= -1e5 && x <= 1e5);

    int q;
    double r = reduce(x, &q);
    double y = (q & 1) ? cos_reduced(r) : sin_reduced(r);
    return (q & 2) ? -y : y;
}

EXACT_FUNCTION double exact_cos(double x)
{
    if (x != x)
        return x;
    EXACT_ASSERT(x >= -1e5 && x <= 1e5);

    int q;
    double r = reduce(x, &q);
    double y = (q & 1) ? sin_reduced(r) : cos_reduced(r);
    return (q == 1 || q == 2) ? -y : y;
}

EXACT_FUNCTION void exact_normal_pair(uint32_t word0, uint32_t word1, float ret[2])
{
    double u = ((double)word0 + 0.5) * 0x1p-32; /* in (0, 1): the logarithm is finite */
    double angle = ((double)word1 + 0.5) * (0x1p-32 * 0x1.921fb54442d18p+2);
    double radius = sqrt(-2.0 * exact_log(u));
    ret[0] = (float)(radius * exact_cos(angle));
    ret[1] = (float)(radius * exact_sin(angle));
}
