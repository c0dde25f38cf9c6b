/* SPDX-License-Identifier: Apache-2.0 */
/* half.c - see half.h. */
#include "base/number/half.h"

#include "base/number/bits.h"

#include <stdatomic.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

enum { EXPONENT = 0x7c00 }; /* the exponent's bits: all are set in infinity and NaN */

float half_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7fff;
    if (magnitude >= 0x7c00) /* infinity stays infinity; a NaN gets its quiet bit */
        return float_from_bits(sign | 0x7f800000 | (magnitude & 0x3ff) << 13 |
                               (magnitude > 0x7c00 ? 0x400000 : 0));
    if (magnitude >= 0x400)
        return float_from_bits(sign | (magnitude + (112 << 10)) << 13);
    /* Subnormal: the value is the mantissa in units of 2^-24. */
    float f = (float)magnitude * 0x1p-24f;
    return sign ? -f : f;
}

uint16_t half_from_float(float value)
{
    uint32_t bits = float_bits(value);
    uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000) /* the value rounds to 65536 or more, so the half is infinity */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude >= 0x38800000) { /* normal: round away the lowest 13 bits */
        uint32_t odd = magnitude >> 13 & 1;
        return (uint16_t)(sign | (((magnitude + 0xfff + odd) >> 13) - (112 << 10)));
    }
    /* Subnormal: after adding 1/2, the mantissa holds the value rounded to a multiple of 2^-24. */
    uint32_t rounded = float_bits(float_from_bits(magnitude) + 0.5f);
    return (uint16_t)(sign | (rounded - 0x3f000000));
}

#ifdef __x86_64__
/* Uses cpuid directly, as __builtin_cpu_supports of clang 14 does not know f16c; and only once, as a virtual machine
 * traps on cpuid. */
static bool cpu_has_f16c(void)
{
    static atomic_int answer; /* does the CPU have f16c? 0: not known yet; 1: no; 2: yes */
    int known = atomic_load_explicit(&answer, memory_order_relaxed);
    if (known == 0) {
        unsigned a, b, c, d;
        bool has =
            __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) && __builtin_cpu_supports("avx");
        known = 1 + has;
        atomic_store_explicit(&answer, known, memory_order_relaxed);
    }
    return known == 2;
}

__attribute__((target("avx,f16c"))) static size_t expand_f16c(const uint8_t *p, size_t n,
                                                              float *ret, bool *finite)
{
    const __m128i exponent = _mm_set1_epi16(EXPONENT);
    __m128i bad = _mm_setzero_si128();
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)(p + 2 * i));
        _mm256_storeu_ps(ret + i, _mm256_cvtph_ps(halves));
        bad = _mm_or_si128(bad, _mm_cmpeq_epi16(_mm_and_si128(halves, exponent), exponent));
    }
    *finite = _mm_testz_si128(bad, bad);
    return i;
}
#endif

bool half_expand(const void *halves, size_t n, float *ret)
{
    const uint8_t *p = halves;
    bool finite = true;
    size_t i = 0;
#ifdef __x86_64__
    if (cpu_has_f16c())
        i = expand_f16c(p, n, ret, &finite);
#endif
    for (; i < n; i++) {
        uint16_t half;
        memcpy(&half, p + 2 * i, sizeof(half));
        ret[i] = half_to_float(half);
        finite &= (half & EXPONENT) != EXPONENT;
    }
    return finite;
}
