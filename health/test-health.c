/* test-health.c - the verdict, the two simple probes, and how a result travels. */
#include "base/cleanup.h"
#include "base/testing.h"
#include "health/verdict.h"

#include <stdlib.h>
#include <string.h>

static void test_verdict_is_the_worst(_unused_ void **state)
{
    ProbeAnswer answers[] = {{.level = HEALTH_OK},
                             {.level = HEALTH_DRAIN},
                             {.level = HEALTH_SUSPECT}};
    size_t worst = 99;
    assert_int_equal(verdict_judge(answers, 3, &worst), HEALTH_DRAIN);
    assert_int_equal(worst, 1);
    assert_int_equal(verdict_judge(answers, 1, &worst), HEALTH_OK);
    assert_int_equal(verdict_judge(answers, 0, &worst), HEALTH_OK);
}

static void test_hung_probe_isolates(_unused_ void **state)
{
    ProbeAnswer answers[] = {{.hangs = 1}};
    size_t worst;
    assert_int_equal(verdict_judge(answers, 1, &worst), HEALTH_SUSPECT);
    answers[0].hangs = 2;
    assert_int_equal(verdict_judge(answers, 1, &worst), HEALTH_ISOLATE);
    answers[0] = (ProbeAnswer){.failures = 5};
    assert_int_equal(verdict_judge(answers, 1, &worst), HEALTH_SUSPECT);
    answers[0] = (ProbeAnswer){.level = HEALTH_DRAIN, .failures = 1};
    assert_int_equal(verdict_judge(answers, 1, &worst), HEALTH_DRAIN);
}

static void test_disk_space(_unused_ void **state)
{
    const Probe *probe = probe_find("disk-space");
    assert_non_null(probe);
    ProbeContext context = {.paths = {"/tmp"}, .n_paths = 1};
    ProbeResult result = {0};
    Error err = ERROR_INIT;
    assert_int_equal(probe->run(&context, &result, &err), 0);
    assert_int_equal(result.n_findings, 0);

    context.disk_min_bytes = INT64_MAX;
    assert_int_equal(probe->run(&context, &result, &err), 0);
    assert_int_equal(result.n_findings, 1);
    assert_int_equal(result.findings[0].level, HEALTH_SUSPECT);
    assert_non_null(strstr(result.findings[0].text, "disk_min_bytes"));

    context.paths[0] = "/no/such/folder";
    assert_int_equal(probe->run(&context, &result, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/no/such/folder"));
}

static void test_clock(_unused_ void **state)
{
    ProbeContext context = {0};
    ProbeResult result = {0};
    Error err = ERROR_INIT;
    assert_int_equal(probe_find("clock")->run(&context, &result, &err), 0);
    assert_int_equal(result.n_findings, 0);
    assert_null(probe_find("clocks"));
}

static void test_result_travels(_unused_ void **state)
{
    ProbeResult result = {0}, back = {0};
    probe_find_fault(&result, HEALTH_ISOLATE, 3, "row remap \"failed\" on %s", "0000:01:00.0");
    probe_find_fault(&result, HEALTH_SUSPECT, -1, "slow");
    _cleanup_free_ char *text = NULL;
    assert_int_equal(probe_result_format(&result, &text), 0);
    Error err = ERROR_INIT;
    assert_int_equal(probe_result_parse(text, strlen(text), &back, &err), 0);
    assert_int_equal(back.n_findings, 2);
    assert_int_equal(back.findings[0].level, HEALTH_ISOLATE);
    assert_int_equal(back.findings[0].slot, 3);
    assert_string_equal(back.findings[0].text, "row remap \"failed\" on 0000:01:00.0");
    assert_int_equal(back.findings[1].slot, -1);

    static const char *const bad[] = {"", "[]", "{}", "{\"findings\":[{\"level\":\"fine\"}]}",
                                      "{\"findings\":[3]}"};
    for (size_t i = 0; i < ELEMENTSOF(bad); i++)
        assert_int_equal(probe_result_parse(bad[i], strlen(bad[i]), &back, &err), -EBADMSG);
}

static void test_findings_are_bounded(_unused_ void **state)
{
    ProbeResult result = {0};
    for (int i = 0; i < 100; i++)
        probe_find_fault(&result, HEALTH_SUSPECT, -1, "finding %d", i);
    probe_find_fault(&result, HEALTH_ISOLATE, 0, "the one that matters");
    assert_int_equal(result.n_findings, PROBE_FINDINGS_MAX);
    bool kept = false;
    for (size_t i = 0; i < result.n_findings; i++)
        kept = kept || result.findings[i].level == HEALTH_ISOLATE;
    assert_true(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdict_is_the_worst), cmocka_unit_test(test_hung_probe_isolates),
        cmocka_unit_test(test_disk_space),           cmocka_unit_test(test_clock),
        cmocka_unit_test(test_result_travels),       cmocka_unit_test(test_findings_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
