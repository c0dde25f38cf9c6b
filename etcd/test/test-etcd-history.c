/* SPDX-License-Identifier: Apache-2.0 */
/* test-etcd-history.c - another history, with a lower revision or another cluster id, is reported once; growing
 * revisions are not reported. */
#include "base/test/testing.h"

#include "etcd/etcd-wait.h"
#include "etcd/test/testing-etcd.h"

typedef struct Told {
    int n;
    EtcdHistory was, now;
} Told;

static void on_history(const EtcdHistory *was, const EtcdHistory *now, void *userdata)
{
    Told *told = userdata;
    *told = (Told){.n = told->n + 1, .was = *was, .now = *now};
}

static void put(Etcd *etcd)
{
    Error err = ERROR_INIT;
    EtcdOp op = {.kind = ETCD_PUT, .key = "/a", .value = "x"};
    _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
    assert_int_equal(etcd_txn_wait(etcd, NULL, 0, &op, 1, &answer, &err), 0);
}

static void get(Etcd *etcd)
{
    Error err = ERROR_INIT;
    _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
    assert_int_equal(etcd_get_wait(etcd, "/a", false, &answer, &err), 0);
}

static void another_history_is_told_once(void **state)
{
    (void)state;
    sd_event *event;
    Error err = ERROR_INIT;
    Told told = {0};
    assert_true(sd_event_new(&event) >= 0);
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(server);
    _cleanup_(etcd_freep) Etcd *etcd = NULL;
    assert_int_equal(etcd_new(event, &options, &etcd, &err), 0);

    etcd_set_history(etcd, (EtcdHistory){0}, on_history, &told);
    put(etcd);
    put(etcd);
    get(etcd);
    const EtcdHistory here = etcd_history(etcd);
    assert_true(here.cluster != 0 && here.revision >= 3);
    assert_int_equal(told.n, 0);

    etcd_set_history(etcd, here, on_history, &told); /* as after a restart with stored history */
    put(etcd);
    assert_int_equal(told.n, 0);

    etcd_set_history(etcd, (EtcdHistory){here.cluster, here.revision + 1000}, on_history, &told);
    get(etcd);
    get(etcd);
    assert_int_equal(told.n, 1);
    assert_int_equal(told.was.revision, here.revision + 1000);
    assert_true(told.now.revision < told.was.revision);

    etcd_set_history(etcd, (EtcdHistory){here.cluster + 1, 1}, on_history, &told);
    put(etcd);
    put(etcd);
    assert_int_equal(told.n, 2);
    assert_true(told.now.cluster == here.cluster);
    sd_event_unref(event);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_history_is_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
