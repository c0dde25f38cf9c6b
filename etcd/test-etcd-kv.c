/* test-etcd-kv.c - reads and transactions against one real member. */
#include "base/testing.h"

#include "etcd/etcd_wait.h"
#include "etcd/testing-etcd.h"

#include <string.h>

typedef struct Fixture {
    TestingEtcd *server;
    sd_event *event;
    Etcd *etcd;
} Fixture;

static int set_up(void **state)
{
    static Fixture fixture;
    Error err = ERROR_INIT;

    fixture.server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(fixture.server);
    assert_true(sd_event_new(&fixture.event) >= 0);
    if (etcd_new(fixture.event, &options, &fixture.etcd, &err) < 0)
        fail_msg("%s", err.text);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    Fixture *fixture = *state;

    (void)etcd_free(fixture->etcd);
    sd_event_unref(fixture->event);
    (void)testing_etcd_stop(fixture->server);
    return 0;
}

static EtcdAnswer *get(Etcd *etcd, const char *key, bool prefix)
{
    Error err = ERROR_INIT;
    EtcdAnswer *answer = NULL;

    if (etcd_get_wait(etcd, key, prefix, &answer, &err) < 0)
        fail_msg("%s", err.text);
    return answer;
}

static EtcdAnswer *txn(Etcd *etcd, const EtcdCompare *compares, size_t n_compares,
                       const EtcdOp *ops, size_t n_ops)
{
    Error err = ERROR_INIT;
    EtcdAnswer *answer = NULL;

    if (etcd_txn_wait(etcd, compares, n_compares, ops, n_ops, &answer, &err) < 0)
        fail_msg("%s", err.text);
    return answer;
}

static void test_put_get_delete(void **state)
{
    Etcd *etcd = ((Fixture *)*state)->etcd;
    EtcdOp put = {.kind = ETCD_PUT, .key = "/kv/a", .value = "with\0nul", .n_value = 8};

    _cleanup_(etcd_answer_freep) EtcdAnswer *done = txn(etcd, NULL, 0, &put, 1);
    assert_true(done->succeeded);
    _cleanup_(etcd_answer_freep) EtcdAnswer *found = get(etcd, "/kv/a", false);
    assert_int_equal(found->n_kvs, 1);
    assert_string_equal(found->kvs[0].key, "/kv/a");
    assert_int_equal(found->kvs[0].n_value, 8);
    assert_memory_equal(found->kvs[0].value, "with\0nul", 9);
    assert_int_equal(found->kvs[0].mod_revision, done->revision);
    assert_int_equal(found->kvs[0].create_revision, done->revision);
    assert_int_equal(found->kvs[0].version, 1);

    EtcdOp delete = {.kind = ETCD_DELETE, .key = "/kv/a"};
    _cleanup_(etcd_answer_freep) EtcdAnswer *deleted = txn(etcd, NULL, 0, &delete, 1);
    assert_true(deleted->succeeded);
    _cleanup_(etcd_answer_freep) EtcdAnswer *gone = get(etcd, "/kv/a", false);
    assert_int_equal(gone->n_kvs, 0);
    assert_true(gone->revision > done->revision);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put_get_delete),
    };
    return cmocka_run_group_tests_name("etcd-kv", tests, set_up, tear_down);
}
