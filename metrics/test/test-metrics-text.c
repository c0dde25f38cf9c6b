/* SPDX-License-Identifier: Apache-2.0 */
/* test-metrics-text.c - the exact text that the metrics are written as. */
#include "base/test/testing.h"
#include "metrics/metrics.h"

#include <math.h>
#include <string.h>

enum { LEVEL, DONE, SPENT, TOOK, HIDDEN, MANY, FAMILIES };

static const double bounds[] = {0.1, 1, 2.5};

static const MetricFamily families[FAMILIES] = {
    [LEVEL] = {"t_level", METRIC_GAUGE, "A level.", .labels = {"tank"}},
    [DONE] = {"t_done_total", METRIC_COUNTER, "Done.", .labels = {"who", "how"}},
    [SPENT] = {"t_spent_seconds", METRIC_SUMMARY, "Spent."},
    [TOOK] = {"t_took_seconds", METRIC_HISTOGRAM, "Took.", .labels = {"who"}, .bounds = bounds,
              .n_bounds = ELEMENTSOF(bounds)},
    [HIDDEN] = {"t_hidden", METRIC_GAUGE, "Of group 2.", .group = 2},
    [MANY] = {"t_many_total", METRIC_COUNTER, "Many.", .labels = {"n"}},
};

static char *text_of(const Metrics *m, unsigned groups)
{
    char *text = NULL;
    size_t n;
    FILE *to = open_memstream(&text, &n);
    assert_non_null(to);
    metrics_write(m, groups, to);
    assert_int_equal(fclose(to), 0);
    return text;
}

static void assert_text(const Metrics *m, unsigned groups, const char *expected)
{
    _cleanup_free_ char *text = text_of(m, groups);
    assert_string_equal(text, expected);
}

static Metrics *new_metrics(void)
{
    Metrics *m = NULL;
    m = metrics_new(families, FAMILIES);
    return m;
}

static void test_every_kind(_unused_ void **state)
{
    _cleanup_(metrics_freep) Metrics *m = new_metrics();
    assert_text(m, 0, ""); /* a family without series is not written */
    metrics_set(m, LEVEL, LABELS("b"), 0.1);
    metrics_set(m, LEVEL, LABELS("a"), -3);
    metrics_set(m, LEVEL, LABELS("a"), 1e18);
    metrics_add(m, DONE, LABELS("x", "well"), 2);
    metrics_know(m, DONE, LABELS("x", "badly"));
    metrics_add(m, DONE, LABELS("x", "well"), 1);
    metrics_observe_sum(m, SPENT, NO_LABELS, 1.5, 3);
    metrics_observe_sum(m, SPENT, NO_LABELS, 0.5, 1);
    /* A value equal to a bound is in the bound's bucket. */
    metrics_observe(m, TOOK, LABELS("x"), 0.1);
    metrics_observe(m, TOOK, LABELS("x"), 2);
    metrics_observe(m, TOOK, LABELS("x"), 100);
    assert_text(m, 0,
                "# HELP t_level A level.\n# TYPE t_level gauge\n"
                "t_level{tank=\"a\"} 1e+18\nt_level{tank=\"b\"} 0.1\n"
                "# HELP t_done_total Done.\n# TYPE t_done_total counter\n"
                "t_done_total{who=\"x\",how=\"badly\"} 0\nt_done_total{who=\"x\",how=\"well\"} 3\n"
                "# HELP t_spent_seconds Spent.\n# TYPE t_spent_seconds summary\n"
                "t_spent_seconds_sum 2\nt_spent_seconds_count 4\n"
                "# HELP t_took_seconds Took.\n# TYPE t_took_seconds histogram\n"
                "t_took_seconds_bucket{who=\"x\",le=\"0.1\"} 1\n"
                "t_took_seconds_bucket{who=\"x\",le=\"1\"} 1\n"
                "t_took_seconds_bucket{who=\"x\",le=\"2.5\"} 2\n"
                "t_took_seconds_bucket{who=\"x\",le=\"+Inf\"} 3\n"
                "t_took_seconds_sum{who=\"x\"} 102.1\nt_took_seconds_count{who=\"x\"} 3\n");
}

static void test_groups_and_pages(_unused_ void **state)
{
    _cleanup_(metrics_freep) Metrics *m = new_metrics();
    metrics_set(m, HIDDEN, NO_LABELS, 1);
    metrics_add(m, DONE, LABELS("x", "well"), 1);
    static const char counter[] = "# HELP t_done_total Done.\n# TYPE t_done_total counter\n"
                                  "t_done_total{who=\"x\",how=\"well\"} 1\n";
    assert_text(m, 1, counter);
    _cleanup_free_ char *both = text_of(m, 3);
    assert_non_null(strstr(both, "\nt_hidden 1\n"));
    metrics_forget_gauges(m); /* counters stay */
    assert_text(m, 3, counter);
}

static void test_what_is_forgotten(_unused_ void **state)
{
    _cleanup_(metrics_freep) Metrics *m = new_metrics();
    metrics_add(m, DONE, LABELS("a", "x"), 1);
    metrics_add(m, DONE, LABELS("b", "a"), 1);            /* the value is in another label */
    metrics_add(m, DONE, LABELS("b", "\",who=\"a\""), 1); /* a value that contains the same text */
    metrics_observe(m, TOOK, LABELS("a"), 1);
    metrics_forget(m, "who", "a");
    assert_text(m, 0,
                "# HELP t_done_total Done.\n# TYPE t_done_total counter\n"
                "t_done_total{who=\"b\",how=\"\\\",who=\\\"a\\\"\"} 1\n"
                "t_done_total{who=\"b\",how=\"a\"} 1\n");
    metrics_add(m, DONE, LABELS("a", "x"), 7); /* the removed series begins again at 0 */
    _cleanup_free_ char *text = text_of(m, 0);
    assert_non_null(strstr(text, "{who=\"a\",how=\"x\"} 7\n"));
}

static void test_odd_values(_unused_ void **state)
{
    _cleanup_(metrics_freep) Metrics *m = new_metrics();
    metrics_set(m, LEVEL, LABELS("a\\b\"c\nd"), NAN);
    metrics_set(m, LEVEL, LABELS("inf"), -INFINITY);
    metrics_set(m, LEVEL, LABELS("third"), 1.0 / 3);
    metrics_observe(m, TOOK, LABELS("x"), NAN); /* counted only in the bucket +Inf */
    _cleanup_free_ char *text = text_of(m, 0);
    assert_non_null(strstr(text, "t_level{tank=\"a\\\\b\\\"c\\nd\"} NaN\n"));
    assert_non_null(strstr(text, "t_level{tank=\"inf\"} -Inf\n"));
    assert_non_null(strstr(text, "t_level{tank=\"third\"} 0.333333333333333"));
    assert_non_null(strstr(text, "le=\"2.5\"} 0\n"));
    assert_non_null(strstr(text, "le=\"+Inf\"} 1\n"));
}

static void test_there_is_an_end(_unused_ void **state)
{
    _cleanup_(metrics_freep) Metrics *m = new_metrics();
    char name[32], huge[2000];
    for (int i = 0; i < METRICS_SERIES_MAX + 10; i++) {
        (void)snprintf(name, sizeof(name), "%d", i);
        metrics_add(m, MANY, LABELS(name), 1);
    }
    assert_int_equal(metrics_dropped(m), 10);
    metrics_add(m, MANY, LABELS("0"), 1); /* an existing series still counts */
    assert_int_equal(metrics_dropped(m), 10);
    memset(huge, 'x', sizeof(huge) - 1);
    huge[sizeof(huge) - 1] = '\0';
    metrics_forget(m, "n", "1");
    metrics_add(m, MANY, LABELS(huge), 1); /* there is room, but the key is too long */
    assert_int_equal(metrics_dropped(m), 11);
    metrics_add(m, MANY, LABELS("new"), 1);
    assert_int_equal(metrics_dropped(m), 11);
}

static void test_off(_unused_ void **state)
{
    metrics_know(NULL, DONE, LABELS("a", "b"));
    metrics_set(NULL, LEVEL, LABELS("a"), 1);
    metrics_add(NULL, DONE, LABELS("a", "b"), 1);
    metrics_observe(NULL, TOOK, LABELS("a"), 1);
    metrics_observe_sum(NULL, SPENT, NO_LABELS, 1, 1);
    metrics_forget(NULL, "who", "a");
    metrics_forget_gauges(NULL);
    assert_int_equal(metrics_dropped(NULL), 0);
    assert_text(NULL, 0, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind),        cmocka_unit_test(test_groups_and_pages),
        cmocka_unit_test(test_what_is_forgotten), cmocka_unit_test(test_odd_values),
        cmocka_unit_test(test_there_is_an_end),   cmocka_unit_test(test_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
