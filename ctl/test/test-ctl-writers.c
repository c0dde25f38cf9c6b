/* SPDX-License-Identifier: Apache-2.0 */
/* test-ctl-writers.c - records with several writers: two verbs at the same time, fields of later versions, records that
 * cannot be read here. The second writer reads what the first wrote, and no change is lost. */
#include "base/test/testing.h"

#include "base/clock.h"
#include "ctl/test/testing-ctl.h"

#include <string.h>

static DesiredRecord desired_of(CtlLab *lab, const char *name)
{
    DesiredRecord record = {0};
    Error err = ERROR_INIT;
    _cleanup_free_ char *text = ctl_get(lab, KEY_DESIRED, name);
    assert_non_null(text);
    if (desired_record_decode(name, text, strlen(text), &record, &err) < 0)
        fail_msg("%s", err.text);
    return record;
}

/* When an older sdctl changes a record of a newer sdctl, the older sdctl keeps the fields that it does not know. */
static void fields_of_a_later_version_stay(void **state)
{
    static const char desired[] =
        "{\"v\":2,\"state\":\"running\",\"min\":1,\"max\":4,\"target\":2,\"priority\":3,"
        "\"later\":{\"why\":\"kept\"}}";
    static const char *const lines[] = {"job resize a --world 3", "job stop a", "job start a",
                                        "job delete a"};
    CtlLab *lab = *state;
    ctl_put_running_job(lab, "a");
    ctl_put_text(lab, KEY_DESIRED, "a", desired);
    for (size_t i = 0; i < ELEMENTSOF(lines); i++) {
        if (i == 2)
            ctl_put_phase(lab, "a", PHASE_STOPPED, "stopped");
        assert_int_equal(ctl_run(lab, "%s", lines[i]), 0);
        _cleanup_free_ char *text = ctl_get(lab, KEY_DESIRED, "a");
        assert_contains(text, "\"later\":{\"why\":\"kept\"}");
        assert_contains(text, "\"priority\":3");
        assert_contains(text, "\"target\":3");
    }
    assert_int_equal(desired_of(lab, "a").state, DESIRED_DELETED);
}

static void two_verbs_at_once_both_count(void **state)
{
    enum { ROUNDS = 8 };
    CtlLab *lab = *state;
    for (int i = 0; i < ROUNDS; i++) {
        ctl_put_running_job(lab, "a");
        ctl_begin(lab, "job resize a --world %d", 3 + i % 2);
        /* the test is the second writer: it reads, changes and writes with a guard */
        char key[KEY_MAX];
        (void)key_of("lab", KEY_DESIRED, "a", key);
        for (bool done = false; !done;) {
            _cleanup_(etcd_answer_freep) EtcdAnswer *now = NULL;
            _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
            DesiredRecord record;
            Error err = ERROR_INIT;
            _cleanup_free_ char *text = NULL;
            assert_int_equal(etcd_get_wait(lab->etcd, key, false, &now, &err), 0);
            assert_int_equal(desired_record_decode(key, now->kvs[0].value, now->kvs[0].n_value,
                                                   &record, &err),
                             0);
            record.priority = 100 + i;
            text = desired_record_encode(&record, now->kvs[0].value);
            EtcdCompare same = {.key = key,
                                .target = ETCD_MOD_REVISION,
                                .equals = now->kvs[0].mod_revision};
            EtcdOp put = {.kind = ETCD_PUT, .key = key, .value = text};
            assert_int_equal(etcd_txn_wait(lab->etcd, &same, 1, &put, 1, &answer, &err), 0);
            done = answer->succeeded;
        }
        assert_int_equal(ctl_finish(lab), 0);
        DesiredRecord record = desired_of(lab, "a");
        assert_int_equal(record.target, 3 + i % 2);
        assert_int_equal(record.priority, 100 + i);
    }
}

/* A record that cannot be read here is not overwritten. */
static void what_cannot_be_read_is_not_changed(void **state)
{
    static const struct {
        KeyKind kind;
        const char *text, *words;
    } cases[] = {
        {KEY_DESIRED, "{\"v\":3,\"state\":\"paused\"}", "desired/a cannot be read here"},
        {KEY_DESIRED, "{\"v\":2,\"state\":\"paused\",\"min\":1,\"max\":2}",
         "desired/a cannot be read here"},
        {KEY_DESIRED, "{\"v\":2,", "desired/a cannot be read here"},
        {KEY_PHASES, "{\"v\":3}", "phases/a cannot be read here"},
    };
    static const char *const lines[] = {"job resize a --world 3", "job stop a", "job delete a"};
    CtlLab *lab = *state;
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        ctl_put_running_job(lab, "a");
        ctl_put_text(lab, cases[i].kind, "a", cases[i].text);
        _cleanup_free_ char *before = ctl_get(lab, KEY_DESIRED, "a");
        for (size_t k = 0; k < ELEMENTSOF(lines); k++) {
            assert_int_equal(ctl_run(lab, "%s", lines[k]), 1);
            assert_contains(lab->err, cases[i].words);
            _cleanup_free_ char *after = ctl_get(lab, KEY_DESIRED, "a");
            assert_string_equal(after, before);
        }
    }
}

/* A job whose spec is lost still trains and holds slots. It is shown with advice, and the advice works. */
static void a_job_without_its_file_is_shown(void **state)
{
    CtlLab *lab = *state;
    ctl_put_running_job(lab, "gone");
    for (int damaged = 0; damaged <= 1; damaged++) {
        if (damaged)
            ctl_put_text(lab, KEY_SPECS, "gone", "{\"v\":2,");
        else
            ctl_remove(lab, KEY_SPECS, "gone");
        assert_int_equal(ctl_run(lab, "job list"), 0);
        assert_contains(lab->out, "\ngone  running  ");
        assert_contains(lab->out, "its job file is lost");
        assert_int_equal(ctl_run(lab, "job status gone"), 0);
        assert_contains(lab->out, "job gone: running (its job file is lost");
        assert_contains(lab->out, "sdctl job start -f FILE");
        assert_contains(lab->out, "  0      n1 ");
        assert_int_equal(ctl_run(lab, "job status gone -o json"), 0);
        assert_contains(lab->out, "\"job_file_lost\": true");
        assert_int_equal(ctl_run(lab, "job events gone"), 0);
        assert_int_equal(ctl_run(lab, "cluster status"), 0);
        assert_contains(lab->out, "! job gone: its job file is lost");
        assert_int_equal(ctl_run(lab, "job stop gone"), 1);
        assert_contains(lab->err, "sdctl job start -f FILE");
        assert_int_equal(ctl_run(lab, "job resize gone --world 2"), 1);
        assert_int_equal(ctl_run(lab, "job export gone --out /tmp/x"), 3);
        assert_contains(lab->err, "its job file is lost");
    }
    ctl_remove(lab, KEY_DESIRED, "gone");
    assert_int_equal(ctl_run(lab, "job delete gone"), 0);
    assert_int_equal(desired_of(lab, "gone").state, DESIRED_DELETED);

    ctl_put_text(lab, KEY_SPECS, "gone", "{\"v\":3}");
    assert_int_equal(ctl_run(lab, "job delete gone"), 1);
    assert_contains(lab->err, "specs/gone is of another version");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_of_a_later_version_stay),
        cmocka_unit_test(two_verbs_at_once_both_count),
        cmocka_unit_test(what_cannot_be_read_is_not_changed),
        cmocka_unit_test(a_job_without_its_file_is_shown),
    };
    return cmocka_run_group_tests(tests, ctl_setup, ctl_teardown);
}
