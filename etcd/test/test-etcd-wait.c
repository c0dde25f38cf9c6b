/* SPDX-License-Identifier: Apache-2.0 */
/* test-etcd-wait.c - tests of the blocking requests: their arguments, their answers, and what ends the wait. The test
 * itself answers the requests, in place of a server. */
#include "base/test/testing.h"

#include "base/clock.h"
#include "etcd/etcd-wait.h"

#include <stdint.h>
#include <string.h>

static sd_event *event;
static Etcd *etcd;

/* The start of the next request returns `begins`; its handler gets the result `ends`. */
static int begins, ends;
static bool is_silent, succeeds;
static EtcdKeyValue kvs[2];
static size_t n_kvs;
/* The arguments of the last request. */
static char asked_key[32];
static bool asked_prefix;
static int64_t asked_revision;
static size_t asked_compares, asked_ops;
static int n_freed, n_served;
static EtcdRangeHandler on_range;
static EtcdTxnHandler on_txn;
static void *waiter;

static int give_answer(sd_event_source *source, _unused_ void *userdata)
{
    Error err = ERROR_INIT;
    sd_event_source_disable_unref(source);
    if (ends < 0)
        (void)error_set(&err, ends, "the member says no");
    const EtcdRange range = {.kvs = kvs, .n_kvs = n_kvs, .revision = 9};
    const EtcdTxnResult result = {.succeeded = succeeds, .revision = 9, .kvs = kvs, .n_kvs = n_kvs};
    if (on_range)
        on_range(ends, &err, ends < 0 ? NULL : &range, waiter);
    else
        on_txn(ends, &err, ends < 0 ? NULL : &result, waiter);
    memset(kvs, 0xee, sizeof(kvs)); /* the values are valid only while the handler runs */
    return 0;
}

static int ask(const char *key, EtcdRangeHandler range, EtcdTxnHandler txn, void *userdata,
               EtcdCall **ret)
{
    sd_event_source *source = NULL;
    on_range = range;
    on_txn = txn;
    waiter = userdata;
    (void)snprintf(asked_key, sizeof(asked_key), "%s", key);
    if (begins < 0)
        return begins;
    *ret = (EtcdCall *)&waiter; /* any unique address suffices: nothing dereferences it */
    if (!is_silent)
        assert_true(sd_event_add_defer(event, &source, give_answer, NULL) >= 0);
    return 0;
}

int __wrap_etcd_get(_unused_ Etcd *e, const char *key, bool prefix, EtcdRangeHandler handler,
                    void *userdata, EtcdCall **ret);
int __wrap_etcd_get_at(_unused_ Etcd *e, const char *key, int64_t revision,
                       EtcdRangeHandler handler, void *userdata, EtcdCall **ret);
int __wrap_etcd_txn(_unused_ Etcd *e, const EtcdCompare *compares, size_t n_compares,
                    const EtcdOp *ops, size_t n_ops, EtcdTxnHandler handler, void *userdata,
                    EtcdCall **ret);
int __wrap_etcd_request_rights(_unused_ Etcd *e, const char *key, EtcdTxnHandler handler,
                               void *userdata, EtcdCall **ret);
EtcdCall *__wrap_etcd_call_free(EtcdCall *call);

int __wrap_etcd_get(_unused_ Etcd *e, const char *key, bool prefix, EtcdRangeHandler handler,
                    void *userdata, EtcdCall **ret)
{
    asked_prefix = prefix;
    return ask(key, handler, NULL, userdata, ret);
}

int __wrap_etcd_get_at(_unused_ Etcd *e, const char *key, int64_t revision,
                       EtcdRangeHandler handler, void *userdata, EtcdCall **ret)
{
    asked_revision = revision;
    return ask(key, handler, NULL, userdata, ret);
}

int __wrap_etcd_txn(_unused_ Etcd *e, const EtcdCompare *compares, size_t n_compares,
                    const EtcdOp *ops, size_t n_ops, EtcdTxnHandler handler, void *userdata,
                    EtcdCall **ret)
{
    asked_compares = n_compares;
    asked_ops = n_ops;
    assert_string_equal(compares[0].key, "/compared");
    return ask(ops[0].key, NULL, handler, userdata, ret);
}

int __wrap_etcd_request_rights(_unused_ Etcd *e, const char *key, EtcdTxnHandler handler,
                               void *userdata, EtcdCall **ret)
{
    return ask(key, NULL, handler, userdata, ret);
}

EtcdCall *__wrap_etcd_call_free(EtcdCall *call)
{
    if (call) {
        assert_ptr_equal(call, &waiter);
        n_freed++;
    }
    return NULL;
}

static void answer_with_two_keys(void)
{
    n_kvs = 2;
    kvs[0] = (EtcdKeyValue){.key = "/a",
                            .value = "x\0y",
                            .n_value = 3,
                            .create_revision = 2,
                            .mod_revision = 3,
                            .version = 4,
                            .lease = 5};
    kvs[1] = (EtcdKeyValue){.key = "/b", .value = "", .mod_revision = 6};
}

static int set_up(_unused_ void **state)
{
    begins = ends = n_freed = n_served = 0;
    is_silent = false;
    succeeds = true;
    n_kvs = 0;
    asked_prefix = false;
    asked_key[0] = '\0';
    assert_true(sd_event_new(&event) >= 0);
    return etcd_new(event, &(EtcdOptions){.endpoints = "127.0.0.1:1"}, &etcd, NULL);
}

static int tear_down(_unused_ void **state)
{
    etcd = etcd_free(etcd);
    event = sd_event_unref(event);
    return 0;
}

/* ---- answers ---- */

static void expect_two_keys(const EtcdAnswer *answer)
{
    assert_int_equal(answer->n_kvs, 2);
    const EtcdKeyValue *a = &answer->kvs[0], *b = &answer->kvs[1];
    assert_string_equal(a->key, "/a");
    assert_int_equal(a->n_value, 3);
    assert_memory_equal(a->value, "x\0y", 4); /* a NUL follows the value */
    assert_int_equal(a->create_revision, 2);
    assert_int_equal(a->mod_revision, 3);
    assert_int_equal(a->version, 4);
    assert_int_equal(a->lease, 5);
    assert_string_equal(b->key, "/b");
    assert_int_equal(b->n_value, 0);
    assert_string_equal(b->value, "");
    assert_int_equal(b->mod_revision, 6);
    assert_int_equal(answer->revision, 9);
}

static void a_read_hands_back_copies(_unused_ void **state)
{
    for (int prefix = 0; prefix < 2; prefix++) {
        _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
        answer_with_two_keys();
        assert_int_equal(etcd_get_wait(etcd, "/k", prefix, &answer, NULL), 0);
        assert_string_equal(asked_key, "/k");
        assert_int_equal(asked_prefix, prefix);
        assert_true(answer->succeeded);
        expect_two_keys(answer);
    }
    assert_int_equal(n_freed, 0); /* an answered call frees itself */
}

static void a_read_of_the_past_hands_back_copies(_unused_ void **state)
{
    _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
    answer_with_two_keys();
    assert_int_equal(etcd_get_at_wait(etcd, "/k", 17, &answer, NULL), 0);
    assert_string_equal(asked_key, "/k");
    assert_int_equal(asked_revision, 17);
    assert_true(answer->succeeded);
    expect_two_keys(answer);
}

static void nothing_is_an_answer(_unused_ void **state)
{
    _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
    assert_int_equal(etcd_get_wait(etcd, "/k", false, &answer, NULL), 0);
    assert_int_equal(answer->n_kvs, 0);
    assert_int_equal(answer->revision, 9);
    assert_null(etcd_answer_free(NULL));
}

static const EtcdCompare compares[] = {{.key = "/compared"}, {.key = "/too"}};
static const EtcdOp ops[] = {{.kind = ETCD_GET, .key = "/o"},
                             {.kind = ETCD_GET, .key = "/p"},
                             {.kind = ETCD_GET, .key = "/q"}};

static int run_txn(EtcdAnswer **ret, Error *err)
{
    return etcd_txn_wait(etcd, compares, 2, ops, 3, ret, err);
}

static void a_transaction_says_whether_it_was_done(_unused_ void **state)
{
    for (int i = 0; i < 2; i++) {
        _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
        succeeds = i;
        answer_with_two_keys();
        assert_int_equal(run_txn(&answer, NULL), 0);
        assert_int_equal(asked_compares, 2);
        assert_int_equal(asked_ops, 3);
        assert_string_equal(asked_key, "/o");
        assert_int_equal(answer->succeeded, succeeds);
        expect_two_keys(answer);
        answer_with_two_keys();
        assert_int_equal(run_txn(NULL, NULL), 0); /* a caller may need no answer */
    }
}

static void rights_are_there_or_not(_unused_ void **state)
{
    Error err = ERROR_INIT;
    succeeds = false; /* the guard of this request never holds */
    assert_int_equal(etcd_request_rights_wait(etcd, "/r", &err), 0);
    assert_string_equal(asked_key, "/r");
    ends = -EACCES;
    assert_int_equal(etcd_request_rights_wait(etcd, "/r", &err), -EACCES);
    assert_string_equal(err.text, "the member says no");
}

/* ---- the end of the wait ---- */

static int wait_for(int which, EtcdAnswer **ret, Error *err)
{
    switch (which) {
    case 0:
        return etcd_get_wait(etcd, "/k", false, ret, err);
    case 1:
        return etcd_get_at_wait(etcd, "/k", 17, ret, err);
    case 2:
        return run_txn(ret, err);
    default:
        return etcd_request_rights_wait(etcd, "/k", err);
    }
}

/* Each request fails with `wanted`, and leaves the answer's pointer unchanged. */
static void expect_failures(int wanted, const char *text)
{
    EtcdAnswer *answer = (EtcdAnswer *)&n_freed;
    for (int i = 0; i < 4; i++) {
        Error err = ERROR_INIT;
        assert_int_equal(wait_for(i, &answer, &err), wanted);
        assert_ptr_equal(answer, &n_freed);
        assert_int_equal(err.code, wanted);
        if (!strstr(err.text, text))
            fail_msg("\"%s\" is not in \"%s\"", text, err.text);
        assert_int_equal(wait_for(i, &answer, NULL), wanted); /* a caller may need no error text */
    }
}

static void an_answer_that_says_no_is_told(_unused_ void **state)
{
    ends = -EIO;
    expect_failures(-EIO, "the member says no");
    assert_int_equal(n_freed, 0);
}

static void a_request_that_cannot_begin_is_not_waited_for(_unused_ void **state)
{
    begins = -E2BIG;
    is_silent = true;
    expect_failures(-E2BIG, "etcd: cannot ");
    assert_int_equal(n_freed, 0);
}

static int serve(sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    if (++n_served < 3) {
        assert_true(sd_event_source_set_time_relative(source, USEC_PER_MSEC) >= 0);
        return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    }
    if (userdata)
        return sd_event_exit(event, 0);
    sd_event_source *last = NULL;
    return sd_event_add_defer(event, &last, give_answer, NULL);
}

/* The loop serves its other sources during the wait. */
static void others_are_served_during_the_wait(_unused_ void **state)
{
    _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
    sd_event_source *source = NULL;
    is_silent = true;
    assert_true(sd_event_add_time_relative(event, &source, CLOCK_BOOTTIME, 0, 1, serve, NULL) >= 0);
    assert_int_equal(etcd_get_wait(etcd, "/k", false, &answer, NULL), 0);
    assert_int_equal(n_served, 3);
    assert_non_null(answer);
    sd_event_source_disable_unref(source);
}

static void a_loop_that_is_told_to_exit_ends_the_wait(_unused_ void **state)
{
    EtcdAnswer *answer = NULL;
    Error err = ERROR_INIT;
    sd_event_source *source = NULL;
    is_silent = true;
    assert_true(sd_event_add_time_relative(event, &source, CLOCK_BOOTTIME, 0, 1, serve, &waiter) >=
                0);
    assert_int_equal(etcd_get_wait(etcd, "/k", false, &answer, &err), -ECANCELED);
    assert_null(answer);
    assert_int_equal(n_freed, 1); /* the call was cancelled, so that no handler runs later */
    assert_non_null(strstr(err.text, "cannot wait"));
    sd_event_source_disable_unref(source);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_read_hands_back_copies),
        CASE(a_read_of_the_past_hands_back_copies),
        CASE(nothing_is_an_answer),
        CASE(a_transaction_says_whether_it_was_done),
        CASE(rights_are_there_or_not),
        CASE(an_answer_that_says_no_is_told),
        CASE(a_request_that_cannot_begin_is_not_waited_for),
        CASE(others_are_served_during_the_wait),
        CASE(a_loop_that_is_told_to_exit_ends_the_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
