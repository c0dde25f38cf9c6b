/* SPDX-License-Identifier: Apache-2.0 */
/* test-verdict.c - the verdict, the table of faults, and results and contexts as JSON. */
#include "base/cleanup.h"
#include "base/test/testing.h"
#include "health/verdict.h"

#include <stdlib.h>
#include <string.h>

static ProbeAnswer weigh(FaultCode fault, int slot, int n_slots)
{
    ProbeAnswer answer = {0};
    ProbeFinding finding = {.fault = fault, .slot = slot, .text = "it"};
    verdict_weigh(&finding, 1, n_slots, &answer);
    return answer;
}

static void test_every_fault_has_a_rule(_unused_ void **state)
{
    for (int i = 0; i < FAULTS; i++) {
        const FaultRule *rule = fault_rule((FaultCode)i);
        assert_true(rule->level > HEALTH_OK && rule->level < HEALTH_LEVELS);
        assert_true(rule->cure < CURES);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(rule->name, fault_rule((FaultCode)k)->name);
    }
}

static void test_node_is_as_bad_as_its_worst_probe(_unused_ void **state)
{
    ProbeAnswer answers[] = {{.level = HEALTH_OK},
                             {.level = HEALTH_DRAIN},
                             {.level = HEALTH_SUSPECT}};
    Verdict verdict = verdict_judge(answers, 3, 8);
    assert_int_equal(verdict.level, HEALTH_DRAIN);
    assert_int_equal(verdict.worst, 1);
    assert_int_equal(verdict_judge(answers, 1, 8).level, HEALTH_OK);
    assert_int_equal(verdict_judge(answers, 1, 8).worst, -1);
    assert_int_equal(verdict_judge(answers, 0, 8).level, HEALTH_OK);
}

/* A memory fault of a GPU costs that GPU's slot. If no other slot is left, or the GPU's slot is unknown, the fault
 * costs the node. */
static void test_slots(_unused_ void **state)
{
    ProbeAnswer one = weigh(FAULT_GPU_DOUBLE_BIT, 3, 8);
    assert_int_equal(one.level, HEALTH_SUSPECT);
    assert_int_equal(one.bad_slots, 8);
    assert_int_equal(weigh(FAULT_GPU_DOUBLE_BIT, 0, 1).level, HEALTH_ISOLATE);
    assert_int_equal(weigh(FAULT_GPU_DOUBLE_BIT, -1, 8).level, HEALTH_ISOLATE);
    assert_int_equal(weigh(FAULT_GPU_DOUBLE_BIT, 9, 8).level, HEALTH_ISOLATE);
    assert_int_equal(weigh(FAULT_GPU_LOST, 3, 8).level, HEALTH_ISOLATE);
    assert_int_equal(weigh(FAULT_GPU_LOST, 3, 8).bad_slots, 0);
    assert_int_equal(weigh(FAULT_GPU_REMAP_PENDING, 3, 8).level, HEALTH_DRAIN);
    assert_int_equal(weigh(FAULT_GPU_REMAP_PENDING, 3, 8).cure, CURE_RESET);

    /* Two probes each cost one of two slots: no slot is left. */
    ProbeAnswer answers[] = {weigh(FAULT_GPU_DOUBLE_BIT, 0, 2), weigh(FAULT_XID_SLOT, 1, 2)};
    Verdict verdict = verdict_judge(answers, 1, 2);
    assert_int_equal(verdict.level, HEALTH_SUSPECT);
    assert_int_equal(verdict.bad_slots, 1);
    verdict = verdict_judge(answers, 2, 2);
    assert_int_equal(verdict.level, HEALTH_ISOLATE);
    assert_int_equal(verdict.bad_slots, 3);

    /* The verdict quotes the probe that costs a slot, not a probe whose finding only makes the node suspect. */
    ProbeAnswer mixed[] = {weigh(FAULT_CLOCK_WRONG, -1, 2), weigh(FAULT_XID_SLOT, 1, 2)};
    assert_int_equal(verdict_judge(mixed, 2, 2).worst, 1);
}

static void test_hung_probe_isolates(_unused_ void **state)
{
    ProbeAnswer answer = {0};
    verdict_note_hang(&answer);
    assert_int_equal(answer.level, HEALTH_SUSPECT);
    verdict_note_hang(&answer);
    assert_int_equal(answer.level, HEALTH_ISOLATE);
    verdict_weigh(NULL, 0, 8, &answer);
    assert_int_equal(answer.level, HEALTH_OK);
    verdict_note_failure(&answer);
    verdict_note_failure(&answer);
    assert_int_equal(answer.level, HEALTH_SUSPECT);

    /* Earlier findings still count when the probe fails or hangs. */
    answer = weigh(FAULT_GPU_LOST, 0, 8);
    verdict_note_failure(&answer);
    assert_int_equal(answer.level, HEALTH_ISOLATE);
    answer = weigh(FAULT_GPU_REMAP_PENDING, 0, 8);
    verdict_note_hang(&answer);
    assert_int_equal(answer.level, HEALTH_DRAIN);
}

static void test_result_travels(_unused_ void **state)
{
    ProbeResult result = {.note = "2 GPUs"}, back = {0};
    probe_find_fault(&result, FAULT_GPU_REMAP_FAILED, 3, "row remap \"failed\" on %s",
                     "0000:01:00.0");
    probe_find_fault(&result, FAULT_CLOCK_WRONG, -1, "slow");
    result.state = json_pack("{sf}", "usec", 3.5);
    _cleanup_free_ char *text = NULL;
    assert_int_equal(probe_result_format(&result, &text), 0);
    Error err = ERROR_INIT;
    assert_int_equal(probe_result_parse(text, strlen(text), &back, &err), 0);
    assert_int_equal(back.n_findings, 2);
    assert_int_equal(back.findings[0].fault, FAULT_GPU_REMAP_FAILED);
    assert_int_equal(back.findings[0].slot, 3);
    assert_string_equal(back.findings[0].text, "row remap \"failed\" on 0000:01:00.0");
    assert_int_equal(back.findings[1].slot, -1);
    assert_string_equal(back.note, "2 GPUs");
    double usec = 0;
    assert_true(probe_recall(back.state, "usec", &usec));
    assert_true(usec == 3.5);
    probe_result_clear(&result);
    probe_result_clear(&back);

    static const char *const bad[] = {"", "[]", "{}", "{\"findings\":[{\"fault\":\"fine\"}]}",
                                      "{\"findings\":[3]}"};
    for (size_t i = 0; i < ELEMENTSOF(bad); i++)
        assert_int_equal(probe_result_parse(bad[i], strlen(bad[i]), &back, &err), -EBADMSG);
}

static void test_context_travels(_unused_ void **state)
{
    ProbeContext context = {.run_dir = "/run/x",
                            .log_dir = "/log",
                            .nvml = "lib",
                            .sysfs = "/sys",
                            .proc = "/proc",
                            .boot_id = "b",
                            .gpus = 8,
                            .n_slots = 8,
                            .probe_sec = 30,
                            .spot_endpoint = "http://127.0.0.1:1",
                            .busy_slots = UINT64_C(1) << 63 | 1,
                            .state = json_pack("{sf}", "a", 1.0)},
                 back;
    _cleanup_free_ char *text = NULL;
    Error err = ERROR_INIT;
    assert_int_equal(probe_context_format(&context, &text), 0);
    assert_int_equal(probe_context_parse(text, strlen(text), &back, &err), 0);
    assert_string_equal(back.run_dir, "/run/x");
    assert_true(back.busy_slots == context.busy_slots);
    assert_int_equal(back.gpus, 8);
    assert_int_equal(back.probe_sec, 30);
    assert_string_equal(back.spot_endpoint, "http://127.0.0.1:1");
    assert_true(json_equal(back.state, context.state));
    probe_context_clear(&context);
    probe_context_clear(&back);
    assert_int_equal(probe_context_parse("{}", 2, &back, &err), -EBADMSG);
}

static void test_findings_are_bounded(_unused_ void **state)
{
    ProbeResult result = {0};
    for (int i = 0; i < 100; i++)
        probe_find_fault(&result, FAULT_CLOCK_WRONG, -1, "finding %d", i);
    probe_find_fault(&result, FAULT_GPU_LOST, 0, "the one that matters");
    assert_int_equal(result.n_findings, PROBE_FINDINGS_MAX);
    bool kept = false;
    for (size_t i = 0; i < result.n_findings; i++)
        kept = kept || result.findings[i].fault == FAULT_GPU_LOST;
    assert_true(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_fault_has_a_rule),
        cmocka_unit_test(test_node_is_as_bad_as_its_worst_probe),
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_hung_probe_isolates),
        cmocka_unit_test(test_result_travels),
        cmocka_unit_test(test_context_travels),
        cmocka_unit_test(test_findings_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
