/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer.c - the training state's flat ranges: exact sums of gradients, norms, AdamW, EMA. */
#include "base/bits.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/vectormath.h"
#include "kernels/kernels.h"

#include <math.h>

enum {
    RANGE = 16384, /* elements of one task */
    SEGMENTS = 64, /* partial sums of a norm, whatever n is */
};

#define FLOAT_INFINITY_BITS 0x7f800000u

static double power_of_two(int exponent)
{
    assert(exponent > -1022 && exponent < 1024);
    return double_from_bits((uint64_t)(exponent + 1023) << 52);
}

void cpu_absolute_max(Device *device, int64_t n, const float *g, uint32_t *max)
{
    const int team = device_team(device, n);
    uint32_t largest = *max;

#pragma omp parallel for num_threads(team) schedule(static) reduction(max : largest)
    for (int64_t first = 0; first < n; first += RANGE) {
        uint32_t mine = 0;
        for (int64_t i = first; i < MIN(first + RANGE, n); i++) {
            uint32_t bits = float_bits(g[i]) & 0x7fffffffu;
            mine = bits > mine ? bits : mine;
        }
        largest = mine > largest ? mine : largest;
    }
    *max = largest;
}

/* 1.5 * 2^52 + v has v, rounded half to even, in its low bits. */
static const double rounder = 0x1.8p52;

void cpu_quantise_add(Device *device, int64_t n, const float *g, int exponent, int32_t *sum)
{
    const int team = device_team(device, n);
    const float factor = (float)power_of_two(exponent);

    /* In floats: the product is exact, or so small that it rounds to 0, or saturates; 2^23 + |v| is
     * |v| rounded half to even while |v| < 2^23, and a float beyond that is an integer already. */
#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t first = 0; first < n; first += RANGE) {
        for (int64_t i = first; i < MIN(first + RANGE, n); i++) {
            bool finite = (float_bits(g[i]) & FLOAT_INFINITY_BITS) != FLOAT_INFINITY_BITS;
            float v = (finite ? g[i] : 0.0f) * factor, size = fabsf(v);
            float whole = copysignf((size + 0x1p23f) - 0x1p23f, v);
            v = size < 0x1p23f ? whole : v;
            v = v > 2147483520.0f ? 2147483520.0f : v; /* the largest float below 2^31 */
            v = v < -2147483648.0f ? -2147483648.0f : v;
            sum[i] = (int32_t)((uint32_t)sum[i] + (uint32_t)(int32_t)v);
        }
    }
}

static int64_t quantise_one(float g, double factor)
{
    if ((float_bits(g) & FLOAT_INFINITY_BITS) == FLOAT_INFINITY_BITS)
        return 0;
    double v = (double)g * factor;
    if (v >= 0x1p63)
        return INT64_MAX;
    if (v <= -0x1p63)
        return INT64_MIN;
    if (v > -0x1p51 && v < 0x1p51)
        return (int64_t)(double_bits(v + rounder) - double_bits(rounder));
    return (int64_t)v; /* a float's 24 bits end above the point */
}

void cpu_quantise_add64(Device *device, int64_t n, const float *g, int exponent, int64_t *sum)
{
    const int team = device_team(device, n);
    const double factor = power_of_two(exponent);

#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t first = 0; first < n; first += RANGE)
        for (int64_t i = first; i < MIN(first + RANGE, n); i++)
            sum[i] = (int64_t)((uint64_t)sum[i] + (uint64_t)quantise_one(g[i], factor));
}

void cpu_dequantise(Device *device, int64_t n, const int32_t *sum, int exponent, double scale,
                    float *g)
{
    const int team = device_team(device, n);
    const double factor = power_of_two(-exponent);

#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t first = 0; first < n; first += RANGE)
        for (int64_t i = first; i < MIN(first + RANGE, n); i++)
            g[i] = (float)((double)sum[i] * factor * scale);
}

void cpu_dequantise64(Device *device, int64_t n, const int64_t *sum, int exponent, double scale,
                      float *g)
{
    const int team = device_team(device, n);
    const double factor = power_of_two(-exponent);

#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t first = 0; first < n; first += RANGE)
        for (int64_t i = first; i < MIN(first + RANGE, n); i++)
            g[i] = (float)((double)sum[i] * factor * scale);
}

static double squares(const float *g, int64_t n)
{
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += (double)g[i + j] * (double)g[i + j];
    for (int j = 0; i < n; i++, j++)
        lane[j] += (double)g[i] * (double)g[i];
    return lanes_sum_double(lane);
}

void cpu_sum_of_squares(Device *device, int64_t n, const float *g, double *sum)
{
    const int team = device_team(device, n);
    const int64_t each = ROUND_UP(DIV_ROUND_UP(n, (int64_t)SEGMENTS), (int64_t)LANES);
    double part[SEGMENTS];

#pragma omp parallel for num_threads(team) schedule(static)
    for (int s = 0; s < SEGMENTS; s++) {
        const int64_t first = MIN(s * each, n);
        part[s] = squares(g + first, MIN(each, n - first));
    }
    double total = 0;
    for (int s = 0; s < SEGMENTS; s++)
        total += part[s];
    *sum = total;
}

void cpu_adamw_update(Device *device, const AdamW *adamw, int64_t n, const float *g, float *w,
                      float *m, float *v)
{
    const int team = device_team(device, n * 4);
    const AdamW a = *adamw;
    const float beta1 = (float)a.beta1, beta2 = (float)a.beta2;
    const float rest1 = (float)(1.0 - a.beta1), rest2 = (float)(1.0 - a.beta2);
    const float decay = a.lr * a.weight_decay, rate = a.lr / a.correction1;

#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t first = 0; first < n; first += RANGE) {
        for (int64_t i = first; i < MIN(first + RANGE, n); i++) {
            float gradient = g[i] * a.gradient_scale, weight = w[i] - decay * w[i];
            float mean = beta1 * m[i] + rest1 * gradient;
            float square = beta2 * v[i] + rest2 * (gradient * gradient);
            m[i] = mean;
            v[i] = square;
            w[i] = weight - rate * (mean / (sqrtf(square / a.correction2) + a.eps));
        }
    }
}

void cpu_ema_update(Device *device, double decay, int64_t n, const float *w, float *ema)
{
    const int team = device_team(device, n);
    const float keep = (float)decay, rest = (float)(1.0 - decay);

#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t first = 0; first < n; first += RANGE)
        for (int64_t i = first; i < MIN(first + RANGE, n); i++)
            ema[i] = keep * ema[i] + rest * w[i];
}
