/* SPDX-License-Identifier: Apache-2.0 */
/* mma-model.c - see mma-model.h. */
#include "kernels/test/emulator/mma-model.h"

#include "base/number/bits.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

const MmaModel mma_model_card = {.step = MMA_K, .bits = 25};
const MmaModel mma_model_fused = {.step = MMA_K, .bits = MMA_BITS_MAX, .nearest = true};
const MmaModel mma_model_single = {.by_fma = true};

enum {
    FACTOR_BITS = 7, /* bits behind a bf16's first bit */
    FLOAT_BITS = 23,
    NOT_FINITE = 1 << 12, /* as an exponent: infinite or NaN */
    NONE = -(1 << 12),    /* as an exponent: all terms are 0 */
};

MmaFactor mma_factor(uint16_t bits)
{
    int exponent = bits >> FACTOR_BITS & 0xff, significand = bits & 0x7f;
    if (exponent == 0xff) {
        exponent = NOT_FINITE;
    } else if (exponent > 0) {
        significand |= 1 << FACTOR_BITS;
        exponent -= 127;
    } else if (significand > 0) { /* denormal */
        const int shift = __builtin_clz((unsigned)significand) - (31 - FACTOR_BITS);
        significand <<= shift;
        exponent = -126 - shift;
    }
    return (MmaFactor){bits >> 15 ? -significand : significand, exponent,
                       float_from_bits((uint32_t)bits << 16)};
}

/* ---- terms ---- */

/* The value significand * 2^exponent. `first` is the exponent by which the term is aligned. */
typedef struct Term {
    int64_t significand;
    int exponent, first;
} Term;

static Term term_of_sum(float sum)
{
    const uint32_t bits = float_bits(sum);
    const int exponent = bits >> FLOAT_BITS & 0xff;
    int64_t significand = bits & ((1 << FLOAT_BITS) - 1);
    int first = -126;
    if (exponent > 0) {
        significand |= 1 << FLOAT_BITS;
        first = exponent - 127;
    } else if (significand > 0) {
        first = ilogbf(sum);
    }
    const int lowest = MAX(exponent, 1) - 127 - FLOAT_BITS;
    return (Term){bits >> 31 ? -significand : significand, lowest, first};
}

static Term term_of_product(const MmaModel *model, MmaFactor a, MmaFactor b)
{
    const int product = a.significand * b.significand, exponent = a.exponent + b.exponent;
    const bool carries = model->normalised && abs(product) >= 1 << (2 * FACTOR_BITS + 1);
    return (Term){product, exponent - 2 * FACTOR_BITS, exponent + carries};
}

/* Returns the term in units of 2^unit; lower bits are cut off. */
static int64_t aligned(Term term, int unit)
{
    const int shift = term.exponent - unit;
    if (shift >= 0)
        return term.significand * (INT64_C(1) << shift);
    return shift > -63 ? term.significand / (INT64_C(1) << -shift) : 0;
}

static float narrow(int64_t sum, int unit, bool nearest)
{
    uint64_t size = sum < 0 ? -(uint64_t)sum : (uint64_t)sum;
    const int beyond = 63 - __builtin_clzll(size | 1) - FLOAT_BITS;
    if (!nearest && beyond > 0)
        size = size >> beyond << beyond;
    /* Only the first conversion rounds. The product is exact, because 1023 + unit is a valid exponent of a double. */
    const double scale = double_from_bits((uint64_t)(1023 + unit) << 52);
    const float value = (float)((double)(float)size * scale);
    return sum < 0 ? -value : value;
}

/* ---- sums ---- */

/* Computes a sum with an infinite or NaN term: the result is infinite or NaN in any order. */
static float sum_not_finite(const MmaFactor *a, const MmaFactor *b, float sum)
{
    for (int i = 0; i < MMA_K; i++)
        sum += a[i].value * b[i].value;
    return isnan(sum) ? float_from_bits(0x7fffffff) : sum;
}

static float sum_step(const MmaModel *model, const MmaFactor *a, const MmaFactor *b, float sum)
{
    Term terms[MMA_K + 1];
    int largest = NONE;
    terms[0] = term_of_sum(sum);
    for (int i = 0; i < model->step; i++)
        terms[i + 1] = term_of_product(model, a[i], b[i]);
    for (int i = 0; i <= model->step; i++)
        if (terms[i].significand != 0)
            largest = MAX(largest, terms[i].first);
    if (largest == NONE)
        return sum;
    int64_t whole = 0;
    for (int i = 0; i <= model->step; i++)
        if (terms[i].significand != 0)
            whole += aligned(terms[i], largest - model->bits);
    return narrow(whole, largest - model->bits, model->nearest);
}

float mma_model_sum(const MmaModel *model, const MmaFactor a[MMA_K], const MmaFactor b[MMA_K],
                    float sum)
{
    bool finite = isfinite(sum);
    assert(model->by_fma || (model->step >= 1 && MMA_K % model->step == 0));
    assert(model->by_fma || (model->bits >= 1 && model->bits <= MMA_BITS_MAX));
    for (int i = 0; i < MMA_K; i++)
        finite = finite && a[i].exponent != NOT_FINITE && b[i].exponent != NOT_FINITE;
    if (!finite)
        return sum_not_finite(a, b, sum);
    for (int i = 0; model->by_fma && i < MMA_K; i++)
        sum = fmaf(a[i].value, b[i].value, sum);
    for (int from = 0; !model->by_fma && from < MMA_K; from += model->step)
        sum = sum_step(model, a + from, b + from, sum);
    return sum;
}
