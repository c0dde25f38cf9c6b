/* SPDX-License-Identifier: Apache-2.0 */
/* test-rights-asked.c - a controller whose role lacks one kind of record, each in turn: it reports the kind, and no
 * longer reports it once the right is granted. Uses a real member of etcd. */
#include "base/test/testing.h"
#include "cluster/records.h"
#include "controller/rights/rights.h"
#include "etcd/etcd-wait.h"
#include "etcd/test/testing-etcd.h"

#include <string.h>

typedef struct Lab {
    TestingEtcd *server;
    sd_event *event;
    Etcd *etcd;
} Lab;

static void prefix_of(KeyKind kind, char ret[KEY_MAX]) { (void)key_prefix("lab", kind, ret); }

static void give(Lab *lab, KeyKind kind)
{
    char prefix[KEY_MAX];
    prefix_of(kind, prefix);
    testing_etcd_ctl(lab->server, "role", "grant-permission", "--prefix", "old", "readwrite",
                     prefix, NULL);
}

static void take(Lab *lab, KeyKind kind)
{
    char prefix[KEY_MAX];
    prefix_of(kind, prefix);
    testing_etcd_ctl(lab->server, "role", "revoke-permission", "--prefix", "old", prefix, NULL);
}

static bool is_written(int kind)
{
    return kind != KEY_NODES && kind != KEY_HEALTH && kind != KEY_ASKS && kind != KEY_LINES &&
           kind != KEY_PROGRAMS;
}

static void open_lab(Lab *lab)
{
    Error err = ERROR_INIT;
    *lab = (Lab){.server = testing_etcd_start(1, TESTING_ETCD_AUTH)};
    EtcdOptions user = testing_etcd_options(lab->server);
    testing_etcd_ctl(lab->server, "role", "add", "old", NULL);
    for (int kind = 0; kind < KEY_KINDS; kind++)
        if (is_written(kind))
            give(lab, (KeyKind)kind);
    testing_etcd_ctl(lab->server, "user", "add", "old:word", NULL);
    testing_etcd_ctl(lab->server, "user", "grant-role", "old", "old", NULL);
    user.user = "old";
    user.password = "word";
    assert_true(sd_event_new(&lab->event) >= 0);
    assert_int_equal(etcd_new(lab->event, &user, &lab->etcd, &err), 0);
}

static void close_lab(Lab *lab)
{
    (void)etcd_free(lab->etcd);
    lab->event = sd_event_unref(lab->event);
    (void)testing_etcd_stop(lab->server);
}

/* Does nothing: the tests read the denied kinds in Rights.lacks. */
static void note_nothing(void *userdata) { (void)userdata; }

static bool is_answered(const Rights *rights)
{
    for (int kind = 0; kind < KEY_KINDS; kind++)
        if (rights->questions[kind].call)
            return false;
    return true;
}

static void each_kind_that_is_lacking_is_named(void **state)
{
    (void)state;
    Lab lab;
    open_lab(&lab);
    for (int kind = 0; kind < KEY_KINDS; kind++) {
        Rights rights;
        if (!is_written(kind))
            continue;
        take(&lab, (KeyKind)kind);
        rights_open(&rights, lab.etcd, "lab", note_nothing, NULL);
        TESTING_RUN_UNTIL(lab.event, is_answered(&rights));
        assert_string_equal(rights.lacks, key_kind_name((KeyKind)kind));
        for (int other = 0; other < KEY_KINDS; other++) /* no other kind is left out */
            assert_int_equal(rights_leave_out(&rights, (KeyKind)other),
                             other == kind && rights_without((KeyKind)kind));

        give(&lab, (KeyKind)kind);
        for (int tick = 0; tick < 15; tick++)
            rights_tick(&rights);
        assert_false(is_answered(&rights)); /* the rights are requested again */
        TESTING_RUN_UNTIL(lab.event, is_answered(&rights));
        assert_string_equal(rights.lacks, "");
        assert_false(rights_leave_out(&rights, (KeyKind)kind));
        for (int tick = 0; tick < 40; tick++)
            rights_tick(&rights);
        assert_true(is_answered(&rights)); /* no more requests when nothing is denied */
        rights_clear(&rights);
    }
    close_lab(&lab);
}

/* A right that is revoked is noticed by the transaction that is denied. */
static void a_right_that_goes_is_missed_at_once(void **state)
{
    (void)state;
    Lab lab;
    Rights rights;
    open_lab(&lab);
    rights_open(&rights, lab.etcd, "lab", note_nothing, NULL);
    TESTING_RUN_UNTIL(lab.event, is_answered(&rights));
    assert_string_equal(rights.lacks, "");
    take(&lab, KEY_ALERTS);
    take(&lab, KEY_WORLDS);
    rights_denied(&rights);
    assert_false(is_answered(&rights));
    TESTING_RUN_UNTIL(lab.event, is_answered(&rights));
    assert_true(words_have(rights.lacks, "alerts") && words_have(rights.lacks, "worlds"));
    assert_true(rights_leave_out(&rights, KEY_ALERTS));
    assert_false(
        rights_leave_out(&rights, KEY_WORLDS)); /* worlds are never left out of a transaction */
    rights_denied(&rights);
    assert_true(is_answered(&rights)); /* the rights are requested only once between two ticks */
    rights_clear(&rights);
    close_lab(&lab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_that_is_lacking_is_named),
        cmocka_unit_test(a_right_that_goes_is_missed_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
