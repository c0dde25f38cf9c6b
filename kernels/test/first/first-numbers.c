/* SPDX-License-Identifier: Apache-2.0 */
/* first-numbers.c - case "numbers": an exact reciprocal by two Newton steps; how mma sums; how long page-locking takes.
 *
 * How mma sums is reported twice: raw results of crafted and of random operands, from which a model can be made later;
 * and for each known model, with how many of the random results it agrees. */
#include "kernels/test/first/first.h"

#ifndef FIRST_CUDA
int first_numbers(void)
{
    first_line(json_pack("{s:s}", "not_run", "there was no nvcc when this was built"));
    return 0;
}
#else

#include "base/clock.h"
#include "base/memory.h"
#include "base/number/philox.h"
#include "kernels/test/emulator/mma-model.h"
#include "kernels/test/first/first-numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { K = FIRST_MMA_K, RANDOM = 4096, SHOWN = 24, STEPS = 5, BEST = 12 };

#define LOCKED_BYTES ((size_t)4 << 30)

static void look_at_reciprocal(void)
{
    FirstReciprocals found = {0};
    const char *name;
    const uint64_t began = clock_monotonic_usec();
    const int code = first_reciprocals(&found, &name);
    first_line(json_pack("{s:s,s:i,s:s,s:I,s:I,s:I,s:I,s:I,s:f}", "api", "reciprocal", "code", code,
                         "name", name, "differ", (json_int_t)found.differ, "differ_once",
                         (json_int_t)found.differ_once, "raw_ulps", (json_int_t)found.raw_ulps,
                         "first", (json_int_t)found.first, "refined", (json_int_t)found.refined,
                         "seconds", (double)(clock_monotonic_usec() - began) * 1e-6));
}

/* ---- operands ---- */

static void set(FirstMma *m, int k, double value)
{
    /* A product with 1 is the value itself, if bf16 can represent the value. */
    m->a[k] = first_to_bf16(value);
    m->b[k] = first_to_bf16(1);
}

typedef struct Crafted {
    FirstMma *all;
    size_t n;
    char names[160][64];
} Crafted;

static FirstMma *add(Crafted *c, const char *what, int number, double addend)
{
    FirstMma *m = &c->all[c->n];
    assert(c->n < ELEMENTSOF(c->names));
    (void)snprintf(c->names[c->n++], sizeof(c->names[0]), "%s %d", what, number);
    m->c = (float)addend;
    return m;
}

/* Crafts operands that show which low bits survive beside a large term, and at which places of k the steps begin. */
static void craft(Crafted *c)
{
    for (int j = 20; j <= 34; j++) {
        FirstMma *m = add(c, "1 - 1 + 2^-j by products", j, 0);
        set(m, 0, 1);
        set(m, 1, -1);
        set(m, 2, ldexp(1, -j));
        m = add(c, "c=1, product -1, product 2^-j", j, 1);
        set(m, 0, -1);
        set(m, 1, ldexp(1, -j));
        m = add(c, "c=2^-j, products 1 and -1", j, ldexp(1, -j));
        set(m, 0, 1);
        set(m, 1, -1);
    }
    for (int k = 1; k < K; k++) {
        FirstMma *m = add(c, "1 at 0, -1 at 15, 2^-30 at k", k, 0);
        set(m, 0, 1);
        if (k < 15)
            set(m, 15, -1);
        set(m, k, ldexp(1, -30));
        m = add(c, "1 at 0, -1 at k, 2^-30 at 7 or 6", k, 0);
        set(m, 0, 1);
        set(m, k == 7 ? 6 : 7, ldexp(1, -30));
        set(m, k, -1);
    }
    for (int sign = -1; sign <= 1; sign += 2) {
        for (int j = 23; j <= 27; j++) {
            FirstMma *m = add(c, sign < 0 ? "-1 and 15 of -2^-j" : "1 and 15 of 2^-j", j, 0);
            set(m, 0, sign);
            for (int k = 1; k < K; k++)
                set(m, k, sign * ldexp(1, -j));
            m = add(c, sign < 0 ? "c=1 and 16 of -2^-j" : "c=1 and 16 of 2^-j", j, 1);
            for (int k = 0; k < K; k++)
                set(m, k, sign * ldexp(1, -j));
        }
        for (int j = 24; j <= 26; j++) { /* how the final sum is rounded */
            FirstMma *m =
                add(c, sign < 0 ? "c=-1.5, one of -3*2^-j" : "c=1.5, one of 3*2^-j", j, sign * 1.5);
            set(m, 0, sign * ldexp(3, -j));
        }
    }
    FirstMma *m = add(c, "2^24 and 15 of 1", 0, 0);
    set(m, 0, 0x1p24);
    for (int k = 1; k < K; k++)
        set(m, k, 1);
    m = add(c, "c=2^24 and 16 of 1", 0, 0x1p24);
    for (int k = 0; k < K; k++)
        set(m, k, 1);
    m = add(c, "1.5 * 1.5 - 2.25 + 2^-26: is a product's exponent normalised", 0, -2.25);
    m->a[0] = m->b[0] = first_to_bf16(1.5);
    set(m, 1, 0x1p-26);
}

static double uniform(uint64_t seed, uint64_t i)
{
    return (double)philox4x32(seed, 0, i).word[0] * 0x1p-32;
}

/* Draws operands with both signs, with exponents that differ by up to 2 * spread, and with a large accumulator in one
 * of three cases. */
static void draw(FirstMma *all, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const int spread = (int)(i % 6);
        for (int k = 0; k < 2 * K; k++) {
            const uint64_t at = i * 128 + (uint64_t)k * 3;
            const double sign = uniform(5, at) < 0.5 ? -1 : 1;
            const int exponent = (int)floor((uniform(5, at + 1) * 2 - 1) * spread);
            const uint16_t bits = first_to_bf16(sign * ldexp(1 + uniform(5, at + 2), exponent));
            (k < K ? all[i].a : all[i].b)[k % K] = bits;
        }
        all[i].c = (float)((uniform(5, i * 128 + 100) - 0.5) * (i % 3 == 0 ? 1024 : i % 3));
    }
}

/* ---- models ---- */

typedef struct Model {
    MmaModel of;
    int agree;
} Model;

static bool agrees(const MmaModel *model, const FirstMma *m)
{
    MmaFactor a[K], b[K];
    float got;
    for (int k = 0; k < K; k++) {
        a[k] = mma_factor(m->a[k]);
        b[k] = mma_factor(m->b[k]);
    }
    memcpy(&got, &m->d, sizeof(got));
    return mma_model_sum(model, a, b, m->c) == got;
}

static int by_agreement(const void *a, const void *b)
{
    const Model *x = a, *y = b;
    return (x->agree < y->agree) - (x->agree > y->agree);
}

/* Prints with how many cases each model agrees. A model with 45 bits loses nothing of the operands that draw()
 * makes. */
static void look_at_models(const FirstMma *all, size_t n)
{
    static const int steps[STEPS] = {1, 2, 4, 8, 16}, bits[] = {22, 23, 24, 25, 26, 27, 28, 45};
    Model models[STEPS * ELEMENTSOF(bits) * 4];
    size_t n_models = 0;
    for (size_t i = 0; i < ELEMENTSOF(models); i++) {
        Model *model = &models[n_models++];
        *model = (Model){.of = {.step = steps[i / 4 / ELEMENTSOF(bits)],
                                .bits = bits[i / 4 % ELEMENTSOF(bits)],
                                .normalised = i % 4 / 2 == 1,
                                .nearest = i % 2 == 1}};
        for (size_t k = 0; k < n; k++)
            model->agree += agrees(&model->of, &all[k]);
    }
    qsort(models, n_models, sizeof(*models), by_agreement);
    for (size_t i = 0; i < BEST; i++)
        first_line(json_pack("{s:i,s:i,s:b,s:b,s:i,s:i}", "model step", models[i].of.step, "bits",
                             models[i].of.bits, "normalised", (int)models[i].of.normalised,
                             "nearest", (int)models[i].of.nearest, "agree", models[i].agree, "of",
                             (int)n));
}

/* ---- mma ---- */

static json_t *hex_of(const uint16_t values[K])
{
    char text[5 * K + 1] = "";
    for (int k = 0; k < K; k++)
        (void)snprintf(text + 5 * k, 6, "%04x ", values[k]);
    text[5 * K - 1] = '\0';
    return json_string(text);
}

static void tell(const char *name, const FirstMma *m)
{
    char c[16], d[16];
    float value;
    uint32_t bits;
    memcpy(&bits, &m->c, sizeof(bits));
    memcpy(&value, &m->d, sizeof(value));
    (void)snprintf(c, sizeof(c), "%08x", bits);
    (void)snprintf(d, sizeof(d), "%08x", m->d);
    first_line(json_pack("{s:s,s:o,s:o,s:s,s:s,s:o,s:b}", "mma", name, "a", hex_of(m->a), "b",
                         hex_of(m->b), "c", c, "d", d, "value", first_number((double)value),
                         "all_equal", (int)m->equal));
}

static void look_at_mma(void)
{
    Crafted crafted = {.n = 0};
    const char *name;
    crafted.all = memory_zeroed(ELEMENTSOF(crafted.names), sizeof(*crafted.all));
    _cleanup_free_ FirstMma *random = memory_zeroed(RANDOM, sizeof(*random));
    craft(&crafted);
    int code = first_mma(crafted.all, crafted.n, &name);
    first_line(json_pack("{s:s,s:i,s:s}", "api", "mma, crafted", "code", code, "name", name));
    for (size_t i = 0; code == 0 && i < crafted.n; i++)
        tell(crafted.names[i], &crafted.all[i]);
    free(crafted.all);
    if (code != 0)
        return;
    draw(random, RANDOM);
    code = first_mma(random, RANDOM, &name);
    first_line(json_pack("{s:s,s:i,s:s}", "api", "mma, random", "code", code, "name", name));
    for (size_t i = 0; code == 0 && i < SHOWN; i++)
        tell("random", &random[i]);
    if (code == 0)
        look_at_models(random, RANDOM);
}

static void look_at_page_locking(void)
{
    double sec = 0, free_sec = 0, copy_sec = 0;
    const char *name;
    const int code = first_page_lock(LOCKED_BYTES, &sec, &free_sec, &copy_sec, &name);
    first_line(json_pack("{s:s,s:i,s:s,s:I,s:f,s:f,s:f}", "api", "cudaHostAlloc", "code", code,
                         "name", name, "bytes", (json_int_t)LOCKED_BYTES, "seconds", sec,
                         "free_seconds", free_sec, "copy_seconds", copy_sec));
}

int first_numbers(void)
{
    if (first_emulated()) {
        first_line(json_pack("{s:s}", "not_run", "emulated"));
        return 0;
    }
    look_at_reciprocal();
    look_at_mma();
    look_at_page_locking();
    return 0;
}
#endif
