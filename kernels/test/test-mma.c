/* SPDX-License-Identifier: Apache-2.0 */
/* test-mma.c - tests mma in the emulator: which elements are multiplied, and how each model rounds. */
#include "base/file.h"
#include "base/number/bits.h"
#include "base/number/philox.h"
#include "base/test/testing.h"
#include "kernels/test/emulator/emulated.h"
#include "kernels/test/testing-mma.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS = 6, RANDOM = 4096, GOLDEN_BYTES = 1 << 16, GOLDEN_CASES = 128 };

static uint16_t to_bf16(float value)
{
    const uint32_t bits = float_bits(value);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static float of_bf16(uint16_t bits) { return float_from_bits((uint32_t)bits << 16); }

static uint32_t draw(uint64_t seed, uint64_t i) { return philox4x32(seed, 0, i).word[0]; }

/* Returns a number from -2 to 2. Sums of such numbers and of their products are exact. */
static uint16_t small(uint64_t seed, uint64_t i) { return to_bf16((float)(draw(seed, i) % 5) - 2); }

/* ---- layout ---- */

static void elements_meet_as_the_manual_says(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        MmaMatrices m;
        float want[MMA_ROWS][MMA_COLUMNS];
        for (int i = 0; i < MMA_ROWS * MMA_DEPTH; i++)
            m.a[i / MMA_DEPTH][i % MMA_DEPTH] = small(seed, (uint64_t)i);
        for (int i = 0; i < MMA_DEPTH * MMA_COLUMNS; i++)
            m.b[i / MMA_COLUMNS][i % MMA_COLUMNS] = small(seed + 100, (uint64_t)i);
        for (int row = 0; row < MMA_ROWS; row++)
            for (int column = 0; column < MMA_COLUMNS; column++) {
                want[row][column] = m.sums[row][column] = (float)(100 * row + column);
                for (int k = 0; k < MMA_DEPTH; k++)
                    want[row][column] += of_bf16(m.a[row][k]) * of_bf16(m.b[k][column]);
            }
        mma_run(seed, &m);
        assert_memory_equal(m.sums, want, sizeof(want));
    }
}

static void multiply(const float a[MMA_ROWS][MMA_DEPTH], const MmaTiles *t,
                     float to[MMA_ROWS][MMA_ROWS])
{
    for (int row = 0; row < MMA_ROWS; row++)
        for (int column = 0; column < MMA_ROWS; column++) {
            to[row][column] = 0;
            for (int k = 0; k < MMA_DEPTH; k++)
                to[row][column] += a[row][k] * of_bf16(t->b[k][column]);
        }
}

static void tiles_are_loaded_as_they_lie(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++)
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            MmaTiles t = {.a_turned = how & 1, .b_turned = how & 2};
            float a[MMA_ROWS][MMA_DEPTH], once[MMA_ROWS][MMA_ROWS], twice[MMA_ROWS][MMA_ROWS];
            for (int i = 0; i < MMA_ROWS * MMA_DEPTH; i++) {
                t.a[i / MMA_DEPTH][i % MMA_DEPTH] = small(seed, (uint64_t)i);
                t.b[i / MMA_DEPTH][i % MMA_DEPTH] = small(seed + 100, (uint64_t)i);
                a[i / MMA_DEPTH][i % MMA_DEPTH] = of_bf16(t.a[i / MMA_DEPTH][i % MMA_DEPTH]);
            }
            multiply(a, &t, once);
            multiply(once, &t, twice);
            mma_run_tiles(seed, &t);
            for (int warp = 0; warp < MMA_WARPS; warp++) {
                assert_memory_equal(t.once[warp], once, sizeof(once));
                assert_memory_equal(t.twice[warp], twice, sizeof(twice));
            }
        }
}

/* ---- models ---- */

static float sum_of(const MmaModel *model, const uint16_t a[MMA_K], const uint16_t b[MMA_K],
                    float c)
{
    MmaFactor x[MMA_K], y[MMA_K];
    for (int k = 0; k < MMA_K; k++) {
        x[k] = mma_factor(a[k]);
        y[k] = mma_factor(b[k]);
    }
    return mma_model_sum(model, x, y, c);
}

static const char *read_words(const char *from, uint16_t to[MMA_K])
{
    for (int k = 0; k < MMA_K; k++) {
        char *end;
        to[k] = (uint16_t)strtoul(from, &end, 16);
        assert_ptr_equal(end, from + 4);
        from += 5;
    }
    return from;
}

/* mma_model_card agrees with an H100. Each line of the file has c, d, the 16 words of a and of b, and a description. */
static void the_card_s_model_is_an_h100_s(void **state)
{
    (void)state;
    char path[512];
    char *text;
    Error err = ERROR_INIT;
    int n = 0, n_fused = 0, n_single = 0;
    (void)snprintf(path, sizeof(path), "%s/tests/golden/gpu/mma-h100.txt",
                   getenv("SDTRAIN_SOURCE"));
    if (file_read(path, GOLDEN_BYTES, &text, NULL, &err) < 0)
        fail_msg("%s", err.text);
    for (const char *line = text; *line; line = strchr(line, '\n') + 1, n++) {
        uint16_t a[MMA_K], b[MMA_K];
        const float c = float_from_bits((uint32_t)strtoul(line, NULL, 16));
        const uint32_t want = (uint32_t)strtoul(line + 9, NULL, 16);
        const char *about = read_words(read_words(line + 18, a), b);
        const float got = sum_of(&mma_model_card, a, b, c);
        if (float_bits(got) != want)
            fail_msg("%.*s: %08x, and the card gave %08x", (int)strcspn(about, "\n"), about,
                     float_bits(got), want);
        n_fused += float_bits(sum_of(&mma_model_fused, a, b, c)) == want;
        n_single += float_bits(sum_of(&mma_model_single, a, b, c)) == want;
    }
    assert_int_equal(n, GOLDEN_CASES);
    assert_true(n_fused < n - 20 && n_single < n - 20); /* the cases distinguish the models */
    free(text);
}

/* mma_model_fused rounds once, mma_model_single after each product. Factors have sizes between 1/16 and 32 and both
 * signs, and the accumulator is a multiple of 2^-20, so sums in double are exact. */
static void the_other_models_round_once_and_each_time(void **state)
{
    (void)state;
    const MmaModel steps = {.step = 1, .bits = MMA_BITS_MAX, .nearest = true}; /* as fmaf() does */
    int differ = 0;
    for (uint64_t i = 0; i < RANDOM; i++) {
        uint16_t a[MMA_K], b[MMA_K];
        const float c = (float)((int32_t)draw(7, i) >> 8) * 0x1p-20f;
        double fused = (double)c;
        float single = c;
        for (uint64_t k = 0; k < MMA_K; k++) {
            const uint32_t x = draw(8, i * MMA_K + k), y = draw(9, i * MMA_K + k);
            a[k] = (uint16_t)((x & 0x807f) | (uint32_t)(123 + x % 9) << 7);
            b[k] = (uint16_t)((y & 0x807f) | (uint32_t)(123 + y % 9) << 7);
            fused += (double)of_bf16(a[k]) * (double)of_bf16(b[k]);
            single = fmaf(of_bf16(a[k]), of_bf16(b[k]), single);
        }
        assert_int_equal(float_bits(sum_of(&mma_model_fused, a, b, c)), float_bits((float)fused));
        assert_int_equal(float_bits(sum_of(&mma_model_single, a, b, c)), float_bits(single));
        assert_int_equal(float_bits(sum_of(&steps, a, b, c)), float_bits(single));
        differ += (float)fused != single;
    }
    assert_true(differ > RANDOM / 8);
}

static float sum_of_one(const MmaModel *model, float a, float b, float c)
{
    const uint16_t x[MMA_K] = {[5] = to_bf16(a)}, y[MMA_K] = {[5] = to_bf16(b)};
    return sum_of(model, x, y, c);
}

static void what_is_not_ordinary(void **state)
{
    (void)state;
    static const MmaModel *const models[] = {&mma_model_card, &mma_model_fused, &mma_model_single};
    for (size_t i = 0; i < ELEMENTSOF(models); i++) {
        const MmaModel *m = models[i];
        assert_true(sum_of_one(m, 0, 3, 0.7f) == 0.7f);
        assert_true(sum_of_one(m, 3, -0.5f, 0) == -1.5f);
        assert_true(sum_of_one(m, INFINITY, 2, 1) == INFINITY);
        assert_true(sum_of_one(m, 1, 1, -INFINITY) == -INFINITY);
        assert_true(sum_of_one(m, 0x1p127f, 4, 1) == INFINITY);
        assert_int_equal(float_bits(sum_of_one(m, INFINITY, 1, -INFINITY)), 0x7fffffff);
        assert_int_equal(float_bits(sum_of_one(m, INFINITY, 0, 1)), 0x7fffffff);
        assert_int_equal(float_bits(sum_of_one(m, NAN, 1, 1)), 0x7fffffff);
        assert_true(sum_of_one(m, 0x1p-130f, 0x1p4f, 0) == 0x1p-126f); /* a denormal factor */
        assert_true(sum_of_one(m, 1, 1, 0x1p-140f) == 1);
        assert_true(sum_of_one(m, 0, 1, 0x1p-140f) == 0x1p-140f);
    }
}

/* The emulator uses the model that a test sets: mma_model_card cuts off the bits of 1 + 1.5 * 2^-24, the other models
 * round up. */
static void the_emulator_takes_a_model(void **state)
{
    (void)state;
    static const struct {
        const MmaModel *model;
        float want;
    } cases[] = {{&mma_model_fused, 1 + 0x1p-23f},
                 {&mma_model_single, 1 + 0x1p-23f},
                 {&mma_model_card, 1}};
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        MmaMatrices m;
        memset(&m, 0, sizeof(m));
        m.a[3][2] = to_bf16(1.5f);
        m.b[2][7] = to_bf16(0x1p-24f);
        m.sums[3][7] = 1;
        emulated_mma_model(cases[i].model);
        mma_run(1, &m);
        assert_true(m.sums[3][7] == cases[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_meet_as_the_manual_says),
        cmocka_unit_test(tiles_are_loaded_as_they_lie),
        cmocka_unit_test(the_card_s_model_is_an_h100_s),
        cmocka_unit_test(the_other_models_round_once_and_each_time),
        cmocka_unit_test(what_is_not_ordinary),
        cmocka_unit_test(the_emulator_takes_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
