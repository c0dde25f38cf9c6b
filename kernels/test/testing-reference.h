/* SPDX-License-Identifier: Apache-2.0 */
/* testing-reference.h - shared by the kernels' tests: inputs, and distances from a float64 reference.
 *
 * Units: elements. Threads: the main thread.
 * Ownership: floats_new() and doubles_new() give the caller memory to free(); the memory of floats_new() is followed by
 *            guards that floats_free() checks.
 * Errors:    a failed assertion ends the test.
 */
#pragma once

#include "base/number/philox.h"
#include "base/test/testing.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD_FLOATS = 32 };

#define GUARD_VALUE 0x1.234567p+12f

/* Returns n floats, 64-byte aligned, with guards behind the last one. */
static inline float *floats_new(size_t n)
{
    assert(n > 0 && n < (size_t)1 << 30);
    float *p = aligned_alloc(64, ROUND_UP((n + GUARD_FLOATS) * sizeof(float), (size_t)64));
    assert_non_null(p);
    for (size_t i = 0; i < n + GUARD_FLOATS; i++)
        p[i] = GUARD_VALUE;
    return p;
}

static inline void floats_free(float *p, size_t n)
{
    for (size_t i = 0; i < GUARD_FLOATS; i++)
        assert_true(p[n + i] == GUARD_VALUE);
    free(p);
}

static inline double *doubles_new(size_t n)
{
    double *p = calloc(MAX(n, (size_t)1), sizeof(*p));
    assert_non_null(p);
    return p;
}

/* Returns n uniform values in [-1, 1), drawn from a seed. */
static inline float *random_new(size_t n, uint64_t seed)
{
    float *p = floats_new(n);
    for (size_t i = 0; i < n; i++)
        p[i] = 2.0f * philox_uniform(philox4x32(seed, 0, i).word[0]) - 1.0f;
    return p;
}

/* Returns the size of a workspace in floats, so that guards can follow it. */
static inline size_t workspace_floats(size_t n_bytes)
{
    return MAX(DIV_ROUND_UP(n_bytes, sizeof(float)), (size_t)1); /* n_bytes may be 0 */
}

/* Asserts ||a - b|| / ||b|| <= tolerance. */
static inline void assert_near(const char *what, const float *a, const double *b, size_t n,
                               double tolerance)
{
    double distance = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        distance += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += b[i] * b[i];
    }
    distance = sqrt(distance);
    norm = sqrt(norm);
    if (!(distance <= tolerance * norm + 1e-30))
        fail_msg("%s: distance %g of norm %g, %g allowed", what, distance, norm, tolerance);
}

static inline Device *cpu_open(int threads)
{
    const DeviceOptions options = {.kind = DEVICE_CPU, .threads = threads, .type = DATA_F32};
    Device *device;
    Error err = ERROR_INIT;
    if (device_open(&options, &device, &err) < 0)
        fail_msg("%s", err.text);
    return device;
}
