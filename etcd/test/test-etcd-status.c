/* SPDX-License-Identifier: Apache-2.0 */
/* test-etcd-status.c - the status of single members: with a leader, without quorum, dead, out of space. */
#include "base/test/testing.h"

#include "etcd/etcd-wait.h"
#include "etcd/test/testing-etcd.h"

#include <string.h>

typedef struct Asked {
    bool done;
    int r;
    EtcdStatus status;
} Asked;

static void on_status(int r, _unused_ const Error *err, const EtcdStatus *status, void *userdata)
{
    Asked *asked = userdata;
    asked->done = true;
    asked->r = r;
    if (status)
        asked->status = *status;
}

static Asked ask(sd_event *event, TestingEtcd *server, size_t member)
{
    Asked asked = {0};
    Error err = ERROR_INIT;
    _cleanup_(etcd_freep) Etcd *etcd = NULL;
    EtcdOptions options = testing_etcd_options(server);
    options.endpoints = testing_etcd_endpoint(server, member);
    options.timeout_usec = 2 * USEC_PER_SEC;
    assert_int_equal(etcd_new(event, &options, &etcd, &err), 0);
    assert_int_equal(etcd_status(etcd, on_status, &asked, NULL), 0);
    TESTING_RUN_UNTIL(event, asked.done);
    return asked;
}

static bool sees_no_leader(sd_event *event, TestingEtcd *server, size_t member)
{
    Asked asked = ask(event, server, member);
    return asked.r == 0 && asked.status.leader == 0;
}

static void members_speak_for_themselves(void **state)
{
    (void)state;
    sd_event *event;
    assert_true(sd_event_new(&event) >= 0);
    TestingEtcd *server = testing_etcd_start(3, TESTING_ETCD_AUTH);
    const size_t leader = testing_etcd_leader(server), other = (leader + 1) % 3;
    Asked first = ask(event, server, leader), second = ask(event, server, other);
    assert_int_equal(first.r, 0);
    assert_int_equal(second.r, 0);
    assert_true(first.status.leader == first.status.member && first.status.member != 0);
    assert_true(second.status.leader == first.status.member);
    assert_true(second.status.member != first.status.member);
    assert_true(first.status.db_bytes > 0 && first.status.db_used_bytes <= first.status.db_bytes);
    assert_memory_equal(first.status.version, "3.", 2);
    assert_string_equal(first.status.errors, "");

    testing_etcd_kill(server, leader);
    testing_etcd_kill(server, (leader + 2) % 3);
    assert_true(ask(event, server, leader).r < 0);
    TESTING_RUN_UNTIL(event, sees_no_leader(event, server, other));
    assert_string_equal(ask(event, server, other).status.errors, "etcdserver: no leader");
    (void)testing_etcd_stop(server);
    (void)sd_event_unref(event);
}

static void a_full_database_is_an_alarm(void **state)
{
    (void)state;
    sd_event *event;
    assert_true(sd_event_new(&event) >= 0);
    assert_int_equal(setenv("ETCD_QUOTA_BACKEND_BYTES", "2097152", 1), 0);
    TestingEtcd *server = testing_etcd_start(1, 0);
    assert_int_equal(unsetenv("ETCD_QUOTA_BACKEND_BYTES"), 0);
    _cleanup_(etcd_freep) Etcd *etcd = NULL;
    EtcdOptions options = testing_etcd_options(server);
    Error err = ERROR_INIT;
    assert_int_equal(etcd_new(event, &options, &etcd, &err), 0);
    /* etcd checks the size at its last commit to disk, and commits every 100 ms. */
    enum { VALUE_BYTES = 500000, PUTS_MAX = 400 };
    char *value = malloc(VALUE_BYTES);
    assert_non_null(value);
    memset(value, 'x', VALUE_BYTES);
    EtcdOp op = {.kind = ETCD_PUT, .key = "/x", .value = value, .n_value = VALUE_BYTES};
    int r = 0;
    for (int i = 0; i < PUTS_MAX && r == 0; i++)
        r = etcd_txn_wait(etcd, NULL, 0, &op, 1, NULL, &err);
    assert_true(r < 0);
    Asked asked = ask(event, server, 0);
    assert_int_equal(asked.r, 0);
    assert_non_null(strstr(asked.status.errors, "NOSPACE"));
    assert_true(asked.status.db_bytes > VALUE_BYTES);
    free(value);
    etcd = etcd_free(etcd);
    (void)testing_etcd_stop(server);
    (void)sd_event_unref(event);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_speak_for_themselves),
        cmocka_unit_test(a_full_database_is_an_alarm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
