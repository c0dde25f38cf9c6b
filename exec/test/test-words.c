/* SPDX-License-Identifier: Apache-2.0 */
/* test-words.c - packets of a program: every key, and what is wrong with a line. */
#include "base/test/testing.h"

#include "base/cleanup.h"
#include "exec/words.h"

#include <math.h>
#include <signal.h>
#include <string.h>

static int parse(const char *packet, ExecReport *ret, Error *err)
{
    *err = ERROR_INIT;
    return exec_report_parse(packet, strlen(packet), ret, err);
}

static void every_key_arrives(_unused_ void **state)
{
    ExecReport of;
    Error err;
    assert_int_equal(
        parse(
            "READY=1\nSTEP=12\nLOSS=0.5\nGRAD_NORM=2\nLR=1e-4\nSAMPLES=99\nSTAGE=collective\n"
            "CHECKPOINT=s3://b/c\nSTATUS=all well\nWATCHDOG=1\nEXTEND=30\nFINISHED=1\nPOLLS=1\nSTACKS=SIGUSR2\n"
            "RESULT=fid=12.5\nRESULT=clip/score=0.25\nRESULT=fid=11\nARTIFACT=grid=s3://b/g=1.png",
            &of, &err),
        0);
    assert_int_equal(of.has, (1 << 16) - 1);
    assert_int_equal(of.step, 12);
    assert_true(of.loss == 0.5 && of.grad_norm == 2 && of.lr == 1e-4);
    assert_int_equal(of.samples, 99);
    assert_int_equal(of.stage, STAGE_REDUCING);
    assert_string_equal(of.checkpoint, "s3://b/c");
    assert_string_equal(of.status, "all well");
    assert_int_equal(of.extend_sec, 30);
    assert_int_equal(of.stacks_signal, SIGUSR2);
    assert_int_equal(of.results.n_numbers, 2);
    assert_string_equal(of.results.numbers[0].name, "fid");
    assert_true(of.results.numbers[0].value == 11 && of.results.numbers[1].value == 0.25);
    assert_int_equal(of.results.n_artifacts, 1);
    assert_string_equal(of.results.artifacts[0].name, "grid");
    assert_string_equal(of.results.artifacts[0].uri, "s3://b/g=1.png");
}

static void a_loss_need_not_be_finite(_unused_ void **state)
{
    ExecReport of;
    Error err;
    assert_int_equal(parse("LOSS=nan", &of, &err), 0);
    assert_true(isnan(of.loss));
    assert_int_equal(parse("LOSS=-inf\n", &of, &err), 0);
    assert_true(isinf(of.loss));
}

static void a_bad_line_costs_only_itself(_unused_ void **state)
{
    static const struct {
        const char *line, *error;
    } cases[] = {
        {"nonsense", "\"nonsense\" is not a line KEY=VALUE"},
        {"STEPS=3", "STEPS is not a key that this version knows"},
        {"=3", " is not a key that this version knows"},
        {"READY=yes", "READY=yes: expected 1"},
        {"STEP=", "STEP=: expected a number, 0 to 1099511627776"},
        {"STEP=-1", "STEP=-1: expected a number, 0 to 1099511627776"},
        {"STEP=1.5", "STEP=1.5: expected a number, 0 to 1099511627776"},
        {"STEP=99999999999999999999",
         "STEP=99999999999999999999: expected a number, 0 to 1099511627776"},
        {"LOSS=", "LOSS=: expected a number"},
        {"LOSS=1x", "LOSS=1x: expected a number"},
        {"STAGE=sleep", "STAGE=sleep: expected data, compute, collective or save"},
        {"CHECKPOINT=", "CHECKPOINT=...: expected 1 to 511 bytes"},
        {"STACKS=USR1", "STACKS=USR1: expected a signal's name, such as SIGUSR1"},
        {"STACKS=SIG", "STACKS=SIG: expected a signal's name, such as SIGUSR1"},
        {"STACKS=10", "STACKS=10: expected a signal's name, such as SIGUSR1"},
        {"RESULT=fid", "RESULT=fid: expected name=number"},
        {"RESULT==1", "RESULT==1: expected name=number"},
        {"RESULT=fid=", "RESULT=fid=: expected name=number"},
        {"RESULT=fid=1x", "RESULT=fid=1x: expected name=number"},
        {"RESULT=a b=1", "RESULT=a b=1: expected name=number"},
        {"RESULT=.a=1", "RESULT=.a=1: expected name=number"},
        {"ARTIFACT=grid=", "ARTIFACT=grid=: expected name=URI"},
        {"ARTIFACT=grid", "ARTIFACT=grid: expected name=URI"},
        {"EXTEND=86401", "EXTEND=86401: expected a number, 0 to 86400"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        char packet[200];
        ExecReport of;
        Error err;
        (void)snprintf(packet, sizeof(packet), "LR=3\n%s\nSAMPLES=7\n", cases[i].line);
        assert_int_equal(parse(packet, &of, &err), -EINVAL);
        assert_string_equal(err.text, cases[i].error);
        assert_int_equal(of.has, EXEC_KEY_LR | EXEC_KEY_SAMPLES);
        assert_true(of.lr == 3 && of.samples == 7);
    }
}

static void a_packet_is_bounded(_unused_ void **state)
{
    static char packet[EXEC_PACKET_MAX + 2];
    ExecReport of;
    Error err = ERROR_INIT;
    memset(packet, '\n', sizeof(packet));
    memcpy(packet, "STEP=1", 6);
    assert_int_equal(exec_report_parse(packet, EXEC_PACKET_MAX, &of, &err), 0);
    assert_int_equal(of.step, 1);
    assert_int_equal(exec_report_parse(packet, EXEC_PACKET_MAX + 1, &of, &err), -EINVAL);
    assert_int_equal(of.has, 0);
    err = ERROR_INIT;
    assert_int_equal(exec_report_parse("STEP=1\0", 7, &of, &err), -EINVAL);
    assert_string_equal(err.text, "a packet contains a NUL");
}

static void results_are_bounded(_unused_ void **state)
{
    char packet[EXEC_PACKET_MAX + 1], name[80];
    size_t n = 0;
    ExecReport of;
    Error err;
    for (int i = 0; i <= EVAL_NUMBERS_MAX; i++)
        n += (size_t)snprintf(packet + n, sizeof(packet) - n, "RESULT=n%d=%d\n", i, i);
    assert_int_equal(parse(packet, &of, &err), -EINVAL);
    assert_string_equal(err.text, "RESULT=n32=32: there may be 32 names");
    assert_int_equal(of.results.n_numbers, EVAL_NUMBERS_MAX);
    memset(name, 'a', sizeof(name));
    (void)snprintf(packet, sizeof(packet), "RESULT=%.*s=1", EVAL_NAME_MAX, name);
    assert_int_equal(parse(packet, &of, &err), 0);
    (void)snprintf(packet, sizeof(packet), "RESULT=%.*s=1", EVAL_NAME_MAX + 1, name);
    assert_int_equal(parse(packet, &of, &err), -EINVAL);
    assert_int_equal(parse("RESULT=fid=nan\nARTIFACT=a=b\033[2Jc", &of, &err), 0);
    assert_true(isnan(of.results.numbers[0].value));
    assert_string_equal(of.results.artifacts[0].uri, "b?[2Jc");
}

static void texts_are_safe_for_a_terminal(_unused_ void **state)
{
    ExecReport of;
    Error err;
    assert_int_equal(parse("STATUS=a\033[2Jb\xff", &of, &err), 0);
    assert_string_equal(of.status, "a?[2Jb?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_arrives),
        cmocka_unit_test(a_loss_need_not_be_finite),
        cmocka_unit_test(a_bad_line_costs_only_itself),
        cmocka_unit_test(a_packet_is_bounded),
        cmocka_unit_test(results_are_bounded),
        cmocka_unit_test(texts_are_safe_for_a_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
