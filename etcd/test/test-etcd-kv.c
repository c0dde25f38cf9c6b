/* SPDX-License-Identifier: Apache-2.0 */
/* test-etcd-kv.c - reads and transactions against one real member. */
#include "base/test/testing.h"

#include "etcd/etcd-wait.h"
#include "etcd/test/testing-etcd.h"

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
    assert_int_equal(found->kvs[0].lease, 0);

    EtcdOp delete = {.kind = ETCD_DELETE, .key = "/kv/a"};
    _cleanup_(etcd_answer_freep) EtcdAnswer *deleted = txn(etcd, NULL, 0, &delete, 1);
    assert_true(deleted->succeeded);
    _cleanup_(etcd_answer_freep) EtcdAnswer *gone = get(etcd, "/kv/a", false);
    assert_int_equal(gone->n_kvs, 0);
    assert_true(gone->revision > done->revision);
}

static void test_empty_value(void **state)
{
    Etcd *etcd = ((Fixture *)*state)->etcd;
    EtcdOp put = {.kind = ETCD_PUT, .key = "/empty", .value = ""};

    _unused_ _cleanup_(etcd_answer_freep) EtcdAnswer *done = txn(etcd, NULL, 0, &put, 1);
    _cleanup_(etcd_answer_freep) EtcdAnswer *found = get(etcd, "/empty", false);
    assert_int_equal(found->n_kvs, 1);
    assert_int_equal(found->kvs[0].n_value, 0);
    assert_string_equal(found->kvs[0].value, "");
}

static void test_guards(void **state)
{
    Etcd *etcd = ((Fixture *)*state)->etcd;
    EtcdCompare absent = {.key = "/guard", .target = ETCD_CREATE_REVISION, .equals = 0};
    EtcdOp put = {.kind = ETCD_PUT, .key = "/guard", .value = "1"};

    _cleanup_(etcd_answer_freep) EtcdAnswer *first = txn(etcd, &absent, 1, &put, 1);
    assert_true(first->succeeded);
    _cleanup_(etcd_answer_freep) EtcdAnswer *second = txn(etcd, &absent, 1, &put, 1);
    assert_false(second->succeeded);

    /* All compares must hold; each put changes mod revision and version. */
    EtcdCompare same[] = {
        {.key = "/guard", .target = ETCD_CREATE_REVISION, .equals = first->revision},
        {.key = "/guard", .target = ETCD_MOD_REVISION, .equals = first->revision},
        {.key = "/guard", .target = ETCD_VERSION, .equals = 1},
    };
    EtcdOp change[] = {
        {.kind = ETCD_PUT, .key = "/guard", .value = "2"},
        {.kind = ETCD_PUT, .key = "/guarded/by", .value = "it"},
        {.kind = ETCD_GET, .key = "/guard"},
        {.kind = ETCD_GET, .key = "/guarded/by"},
    };
    _cleanup_(etcd_answer_freep) EtcdAnswer *third = txn(etcd, same, 3, change, 4);
    assert_true(third->succeeded);
    assert_int_equal(third->n_kvs, 2);
    assert_string_equal(third->kvs[0].value, "2");
    assert_string_equal(third->kvs[1].key, "/guarded/by");
    assert_int_equal(third->kvs[1].mod_revision, third->revision);
    for (size_t i = 0; i < 3; i++) {
        _cleanup_(etcd_answer_freep) EtcdAnswer *stale = txn(etcd, &same[i], 1, change, 1);
        assert_true(stale->succeeded == (i == 0)); /* only the create revision is unchanged */
        if (i == 0)
            assert_int_equal(stale->n_kvs, 0);
    }
}

static void test_prefixes(void **state)
{
    Etcd *etcd = ((Fixture *)*state)->etcd;
    EtcdOp puts[] = {
        {.kind = ETCD_PUT, .key = "/p/b", .value = "b"},
        {.kind = ETCD_PUT, .key = "/p/a", .value = "a"},
        {.kind = ETCD_PUT, .key = "/p0", .value = "after"},
        {.kind = ETCD_PUT, .key = "/p", .value = "before"},
        {.kind = ETCD_PUT, .key = "\xff\xff/x", .value = "end"},
    };
    EtcdOp delete = {.kind = ETCD_DELETE_PREFIX, .key = "/p/"};

    _unused_ _cleanup_(etcd_answer_freep) EtcdAnswer *done = txn(etcd, NULL, 0, puts, 5);
    _cleanup_(etcd_answer_freep) EtcdAnswer *found = get(etcd, "/p/", true);
    assert_int_equal(found->n_kvs, 2);
    assert_string_equal(found->kvs[0].key, "/p/a");
    assert_string_equal(found->kvs[1].key, "/p/b");
    _cleanup_(etcd_answer_freep) EtcdAnswer *end = get(etcd, "\xff\xff", true);
    assert_int_equal(end->n_kvs, 1);
    _cleanup_(etcd_answer_freep) EtcdAnswer *all = get(etcd, "", true);
    assert_true(all->n_kvs >= 5);
    _unused_ _cleanup_(etcd_answer_freep) EtcdAnswer *deleted = txn(etcd, NULL, 0, &delete, 1);
    _cleanup_(etcd_answer_freep) EtcdAnswer *rest = get(etcd, "/p", true);
    assert_int_equal(rest->n_kvs, 2);
    assert_string_equal(rest->kvs[0].key, "/p");
    assert_string_equal(rest->kvs[1].key, "/p0");
}

/* Reads more keys than fit into a page, then more bytes than fit into a message. */
static void test_paging(void **state)
{
    Etcd *etcd = ((Fixture *)*state)->etcd;
    enum { KEYS = 1320, BATCH = 120, LARGE = 40, LARGE_BYTES = 500000 };
    static char keys[KEYS][24], large[LARGE_BYTES + 1];
    EtcdOp ops[BATCH];

    for (int i = 0; i < KEYS; i++) {
        (void)snprintf(keys[i], sizeof(keys[i]), "/page/%04d", i);
        ops[i % BATCH] = (EtcdOp){.kind = ETCD_PUT, .key = keys[i], .value = keys[i]};
        if (i % BATCH == BATCH - 1)
            (void)etcd_answer_free(txn(etcd, NULL, 0, ops, BATCH));
    }
    _cleanup_(etcd_answer_freep) EtcdAnswer *found = get(etcd, "/page/", true);
    assert_int_equal(found->n_kvs, KEYS);
    for (int i = 0; i < KEYS; i++) {
        assert_string_equal(found->kvs[i].key, keys[i]);
        assert_string_equal(found->kvs[i].value, keys[i]);
    }

    memset(large, 'x', LARGE_BYTES);
    for (int i = 0; i < LARGE; i++) {
        EtcdOp put = {.kind = ETCD_PUT, .key = keys[i], .value = large};
        (void)etcd_answer_free(txn(etcd, NULL, 0, &put, 1));
    }
    _cleanup_(etcd_answer_freep) EtcdAnswer *heavy = get(etcd, "/page/", true);
    assert_int_equal(heavy->n_kvs, KEYS);
    for (int i = 0; i < KEYS; i++) {
        assert_string_equal(heavy->kvs[i].key, keys[i]);
        assert_int_equal(heavy->kvs[i].n_value, i < LARGE ? LARGE_BYTES : strlen(keys[i]));
    }
}

/* Old revisions can be read until they are compacted. */
static void test_old_revisions(void **state)
{
    const Fixture *fixture = *state;
    Error err = ERROR_INIT;
    int64_t revisions[2];
    for (int i = 0; i < 2; i++) {
        const EtcdOp put = {.kind = ETCD_PUT, .key = "/old/a", .value = i ? "second" : "first"};
        _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
        assert_int_equal(etcd_txn_wait(fixture->etcd, NULL, 0, &put, 1, &answer, &err), 0);
        revisions[i] = answer->revision;
    }
    EtcdAnswer *answer = NULL;
    assert_int_equal(etcd_get_at_wait(fixture->etcd, "/old/a", revisions[0], &answer, &err), 0);
    assert_string_equal(answer->kvs[0].value, "first");
    answer = etcd_answer_free(answer);
    testing_etcd_compact(fixture->server);
    assert_int_equal(etcd_get_at_wait(fixture->etcd, "/old/a", revisions[0], &answer, &err),
                     -ESTALE);
    assert_non_null(strstr(err.text, "compacted"));
    assert_int_equal(etcd_request_rights_wait(fixture->etcd, "/old/b", &err), 0);
    assert_int_equal(etcd_get_wait(fixture->etcd, "/old/b", false, &answer, &err), 0);
    assert_int_equal(answer->n_kvs, 0); /* the request for rights wrote nothing */
    answer = etcd_answer_free(answer);
}

static void test_bad_requests(void **state)
{
    Etcd *etcd = ((Fixture *)*state)->etcd;
    static EtcdOp ops[121];
    static char huge[1800000];
    Error err = ERROR_INIT;

    assert_int_equal(etcd_get(etcd, "", false, NULL, NULL, NULL), -EINVAL);
    assert_int_equal(etcd_txn(etcd, NULL, 0, ops, 121, NULL, NULL, NULL), -E2BIG);
    EtcdOp keyless = {.kind = ETCD_PUT, .key = "", .value = ""};
    assert_int_equal(etcd_txn(etcd, NULL, 0, &keyless, 1, NULL, NULL, NULL), -EINVAL);

    EtcdOp no_lease = {.kind = ETCD_PUT, .key = "/x", .value = "", .lease = 12345};
    assert_int_equal(etcd_txn_wait(etcd, NULL, 0, &no_lease, 1, NULL, &err), -ESTALE);
    assert_non_null(strstr(err.text, "lease not found"));

    memset(huge, 'x', sizeof(huge) - 1);
    EtcdOp too_large = {.kind = ETCD_PUT, .key = "/x", .value = huge};
    assert_int_equal(etcd_txn_wait(etcd, NULL, 0, &too_large, 1, NULL, &err), -EIO);
    assert_non_null(strstr(err.text, "too large"));

    EtcdOp twice[] = {{.kind = ETCD_PUT, .key = "/x", .value = "1"},
                      {.kind = ETCD_PUT, .key = "/x", .value = "2"}};
    assert_int_equal(etcd_txn_wait(etcd, NULL, 0, twice, 2, NULL, &err), -EIO);
    assert_non_null(strstr(err.text, "duplicate key"));
}

static void never_called(int r _unused_, const Error *err _unused_, const EtcdRange *range _unused_,
                         void *userdata _unused_)
{
    fail_msg("a cancelled call was answered");
}

static void free_itself(int r, const Error *err _unused_, const EtcdRange *range _unused_,
                        void *userdata)
{
    EtcdCall **call = userdata;

    assert_int_equal(r, 0);
    *call = etcd_call_free(*call); /* allowed within the handler, and has no effect */
}

static void test_cancel(void **state)
{
    Fixture *fixture = *state;
    EtcdCall *cancelled, *own;

    assert_int_equal(etcd_get(fixture->etcd, "/a", false, never_called, NULL, &cancelled), 0);
    cancelled = etcd_call_free(cancelled);
    assert_int_equal(etcd_get(fixture->etcd, "/a", false, free_itself, &own, &own), 0);
    TESTING_RUN_UNTIL(fixture->event, own == NULL);
    /* One connection answers in order: an answer to the cancelled call would arrive before this one. */
    (void)etcd_answer_free(get(fixture->etcd, "/a", false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put_get_delete), cmocka_unit_test(test_empty_value),
        cmocka_unit_test(test_guards),         cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_paging),         cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_cancel),         cmocka_unit_test(test_old_revisions),
    };
    return cmocka_run_group_tests_name("etcd-kv", tests, set_up, tear_down);
}
