/* SPDX-License-Identifier: Apache-2.0 */
/* test-divergence.c - which curves count as divergent: curves of real jobs (in curves/, made by
 * make-curves), and curves made here of noise, spikes, steps and slopes. */
#include "manifest/divergence.h"

#include "base/number/philox.h"
#include "base/test/testing.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool diverges(const Divergence *d) { return divergence_since(d) != 0; }

enum { CURVE_MAX = 4000 };

typedef struct Curve {
    int n;
    double loss[CURVE_MAX], norm[CURVE_MAX];
} Curve;

static void read_curve(const char *name, Curve *ret)
{
    char path[512], line[256];
    (void)snprintf(path, sizeof(path), "%s/%s", CURVES, name);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    ret->n = 0;
    while (fgets(line, sizeof(line), file))
        if (line[0] != '#') {
            assert_true(ret->n < CURVE_MAX);
            assert_int_equal(sscanf(line, "%lf %lf", &ret->loss[ret->n], &ret->norm[ret->n]), 2);
            ret->n++;
        }
    (void)fclose(file); /* the file was only read */
}

/* Returns the first step at which divergence is found, or 0 if none is found. */
static int64_t first_found(const Curve *curve, Divergence *ret)
{
    int64_t first = 0;
    *ret = (Divergence){0};
    for (int i = 0; i < curve->n; i++) {
        divergence_add(ret, i + 1, curve->loss[i], curve->norm[i]);
        if (first == 0 && diverges(ret))
            first = i + 1;
    }
    return first;
}

static void curves_of_real_jobs(_unused_ void **state)
{
    int n_well = 0, n_bad = 0;
    DIR *folder = opendir(CURVES);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        static Curve curve;
        Divergence d;
        bool well = strncmp(entry->d_name, "well-", 5) == 0;
        if (!well && strncmp(entry->d_name, "bad-", 4) != 0)
            continue;
        read_curve(entry->d_name, &curve);
        int64_t found = first_found(&curve, &d);
        print_message("%s: %d steps, found at step %lld\n", entry->d_name, curve.n,
                      (long long)found);
        assert_int_equal(found > 0, !well);
        /* divergence is found at a step at which the model of this curve is already useless */
        if (strcmp(entry->d_name, "bad-creeps.txt") == 0)
            assert_true(found > 220 && found < 260 && diverges(&d));
        n_well += well;
        n_bad += !well;
    }
    (void)closedir(folder);
    assert_true(n_well >= 6 && n_bad >= 3);
}

/* Returns a normal deviate, by the method of Box and Muller. */
static double normal(uint64_t seed, int64_t step)
{
    Philox p = philox4x32(seed, 7, (uint64_t)step);
    double u = ((double)p.word[0] + 1) / 4294967297.0, v = (double)p.word[1] / 4294967296.0;
    return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

/* Adds the steps of a job whose loss and norm fall for 2000 steps and then stay the same, and
 * asserts that no divergence is found. The logarithms of loss and norm have noise with the standard
 * deviation sigma. */
static void healthy(Divergence *d, uint64_t seed, double sigma, int64_t from, int64_t to)
{
    for (int64_t step = from; step <= to; step++) {
        double level = 0.1 + 0.9 * exp(-(double)MIN(step, 2000) / 300);
        divergence_add(d, step, level * exp(sigma * normal(seed, step)),
                       level * exp(sigma * normal(seed + 1, step)));
        assert_false(diverges(d));
    }
}

static void noise_is_no_divergence(_unused_ void **state)
{
    for (uint64_t seed = 0; seed < 40; seed += 2) {
        Divergence d = {0};
        /* the largest sigma, 0.86, is a factor of 2.4 */
        healthy(&d, seed, 0.1 + 0.02 * (double)seed, 1, 20000);
    }
}

static void spikes_are_no_divergence(_unused_ void **state)
{
    Divergence d = {0};
    healthy(&d, 1, 0.2, 1, 1000);
    for (int i = 0; i < 50; i++) { /* spikes of three steps each, however high */
        int64_t at = 1001 + 100 * i;
        for (int k = 0; k < 3; k++)
            divergence_add(&d, at + k, 1e9, 1e12);
        assert_false(diverges(&d));
        healthy(&d, 1, 0.2, at + 3, at + 99);
    }
}

static void an_explosion_takes_ten_steps(_unused_ void **state)
{
    for (int64_t begin = 2; begin < 500; begin += 83) { /* the first explosion begins at step 2 */
        Divergence d = {0};
        healthy(&d, 3, 0, 1, begin - 1);
        for (int64_t i = 0; i < 9; i++) {
            divergence_add(&d, begin + i, i == 0 ? 5e7 : 92.7, 0.5);
            assert_false(diverges(&d));
            assert_int_equal(divergence_since(&d), 0);
        }
        divergence_add(&d, begin + 9, 92.7, 0.5);
        assert_true(diverges(&d));
        assert_int_equal(divergence_since(&d), begin);
        assert_true(d.loss.lowest < 1.6);   /* the lowest level did not rise with the explosion */
        for (int64_t i = 10; i < 2000; i++) /* divergence is still found after 2000 steps */
            divergence_add(&d, begin + i, 92.7, 0.5);
        assert_true(diverges(&d));
    }
}

static void a_slow_rise_is_found(_unused_ void **state)
{
    Divergence d = {0};
    int64_t step = 3000;
    healthy(&d, 5, 0.3, 1, step);
    /* the level doubles in 1,386 steps */
    for (double level = 0.1; !diverges(&d); level *= 1.0005) {
        step++;
        assert_true(level < 0.3);
        divergence_add(&d, step, level * exp(0.3 * normal(5, step)), 0.1);
    }
    assert_true(step > 3500);
}

static void an_exploding_norm_is_found_and_got_used_to(_unused_ void **state)
{
    Divergence d = {0};
    healthy(&d, 7, 0.1, 1, 1000);
    for (int64_t i = 0; i < 10; i++)
        divergence_add(&d, 1001 + i, 0.1, 500);
    assert_true(diverges(&d));
    assert_int_equal(divergence_since(&d), 1001);
    for (int64_t i = 10; i < 600; i++)
        divergence_add(&d, 1001 + i, 0.1, 500);
    /* the loss is healthy: a norm that stays at a higher level is not divergence */
    assert_false(diverges(&d));
}

static void it_is_over_when_the_loss_is_well_again(_unused_ void **state)
{
    Divergence d = {0};
    healthy(&d, 9, 0.1, 1, 1000);
    for (int64_t i = 0; i < 1000; i++)
        divergence_add(&d, 1001 + i, 50, 0.1);
    assert_true(diverges(&d));
    int64_t step = 2000;
    while (diverges(&d))
        divergence_add(&d, ++step, 0.12, 0.1);
    assert_true(step >= 2020 && step <= 2060);
    assert_int_equal(divergence_since(&d), 0);
    char text[160];
    divergence_write(&d, 0.12, 0.1, text, sizeof(text));
    assert_string_equal(text, "");
}

static void no_number_is_found_at_once(_unused_ void **state)
{
    const double bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < ELEMENTSOF(bad); i++)
        for (int norm = 0; norm < 2; norm++)
            for (int64_t before = 0; before < 200; before += 100) {
                Divergence d = {0};
                healthy(&d, 11, 0.1, 1, before);
                divergence_add(&d, before + 1, norm ? 0.1 : bad[i], norm ? bad[i] : 0.1);
                assert_true(diverges(&d));
                assert_int_equal(divergence_since(&d), before + 1);
            }
}

static void zeros_are_nothing(_unused_ void **state)
{
    Divergence d = {0};
    for (int64_t step = 1; step <= 200; step++) {
        divergence_add(&d, step, 0, 0);
        assert_false(diverges(&d));
    }
    healthy(&d, 13, 0.1, 201, 400);
    for (int64_t step = 401; step <= 800; step++)
        divergence_add(&d, step, 0, 0);
    /* finds no divergence, because the zeros did not become the lowest level */
    healthy(&d, 13, 0.1, 801, 1000);
}

/* A job that restarts from its checkpoint's state after every step finds divergence at the same
 * steps as a job without restarts. */
static void a_restart_changes_nothing(_unused_ void **state)
{
    static Curve curve;
    Divergence whole = {0}, pieces = {0};
    char text[DIVERGENCE_TEXT_MAX], a[160], b[160];
    read_curve("bad-late.txt", &curve);
    for (int i = 0; i < curve.n; i++) {
        divergence_format(&pieces, text);
        pieces = (Divergence){0};
        assert_int_equal(divergence_parse(text, &pieces), 0);
        divergence_add(&whole, i + 1, curve.loss[i], curve.norm[i]);
        divergence_add(&pieces, i + 1, curve.loss[i], curve.norm[i]);
        assert_int_equal(divergence_since(&whole), divergence_since(&pieces));
        divergence_write(&whole, curve.loss[i], curve.norm[i], a, sizeof(a));
        divergence_write(&pieces, curve.loss[i], curve.norm[i], b, sizeof(b));
        assert_string_equal(a, b);
    }
    char last[DIVERGENCE_TEXT_MAX];
    divergence_format(&whole, text);
    divergence_format(&pieces, last);
    assert_string_equal(text, last);
}

static void text_that_it_does_not_know_is_refused(_unused_ void **state)
{
    const char *bad[] = {"",
                         "1",
                         "later",
                         "1 0x1p+0 0x1p+0 0 0 0 0x1p+0 0x1p+0 0 0",
                         "1 0x1p+0 0x1p+0 0 0 0 0x1p+0 0x1p+0 0 0 0 1",
                         "1 nan 0x1p+0 0 0 0 0x1p+0 0x1p+0 0 0 0",
                         "1 0x1p+0 0x1p+1 0 0 0 0x1p+0 0x1p+0 0 0 0",
                         "1 0x1p+0 0x1p+0 21 0 0 0x1p+0 0x1p+0 0 0 0",
                         "1 0x1p+0 0x1p+0 0 -1 0 0x1p+0 0x1p+0 0 0 0",
                         "-1 0x1p+0 0x1p+0 0 0 0 0x1p+0 0x1p+0 0 0 0"};
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        Divergence d = {.n_steps = 5};
        assert_int_equal(divergence_parse(bad[i], &d), -EBADMSG);
        assert_int_equal(d.n_steps, 5);
    }
    Divergence d;
    assert_int_equal(divergence_parse("1 0x1p+0 0x1p+0 0 0 0 0x1p+0 0x1p+0 0 0 0", &d), 0);
}

static void it_says_what_is_too_large(_unused_ void **state)
{
    Divergence d = {0};
    char text[160];
    for (int64_t step = 1; step <= 100; step++)
        divergence_add(&d, step, 1.17, 2);
    for (int64_t step = 101; step <= 120; step++)
        divergence_add(&d, step, 92.7, 2);
    divergence_write(&d, 92.7, 2, text, sizeof(text));
    assert_string_equal(text, "the loss is 92.7, and was 1.17 at best");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(curves_of_real_jobs),
        cmocka_unit_test(noise_is_no_divergence),
        cmocka_unit_test(spikes_are_no_divergence),
        cmocka_unit_test(an_explosion_takes_ten_steps),
        cmocka_unit_test(a_slow_rise_is_found),
        cmocka_unit_test(an_exploding_norm_is_found_and_got_used_to),
        cmocka_unit_test(it_is_over_when_the_loss_is_well_again),
        cmocka_unit_test(no_number_is_found_at_once),
        cmocka_unit_test(zeros_are_nothing),
        cmocka_unit_test(a_restart_changes_nothing),
        cmocka_unit_test(text_that_it_does_not_know_is_refused),
        cmocka_unit_test(it_says_what_is_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
