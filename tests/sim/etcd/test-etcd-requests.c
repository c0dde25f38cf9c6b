/* SPDX-License-Identifier: Apache-2.0 */
/* test-etcd-requests.c - libetcd's requests, field by field, and its results from the answers. */
#include "base/clock.h"
#include "tests/sim/etcd/testing-answers.h"

#include <string.h>

static int set_up(void **state)
{
    int r = answers_set_up(state);
    open_client(answers_endpoints, NULL);
    return r;
}

/* ---- reads ---- */

typedef struct SeenRange {
    bool came;
    int r;
    size_t n;
    int64_t revision;
    char keys[8][16];
    EtcdKeyValue first;
} SeenRange;

static void on_range(int r, _unused_ const Error *err, const EtcdRange *range, void *userdata)
{
    SeenRange *seen = userdata;
    assert_false(seen->came);
    *seen = (SeenRange){.came = true, .r = r};
    if (r < 0)
        return;
    seen->n = range->n_kvs;
    seen->revision = range->revision;
    if (range->n_kvs > 0)
        seen->first = range->kvs[0];
    for (size_t i = 0; i < range->n_kvs; i++)
        (void)snprintf(seen->keys[i], sizeof(seen->keys[i]), "%s", range->kvs[i].key);
}

static void one_key_is_asked_for(_unused_ void **state)
{
    SeenRange seen = {0};
    assert_int_equal(etcd_get(etcd, "", false, on_range, &seen, NULL), -EINVAL);
    assert_int_equal(etcd_get(etcd, "/p/a", false, on_range, &seen, NULL), 0);
    ASSERT_BYTES(range_request()->key, "/p/a");
    ASSERT_BYTES(range_request()->range_end, "");
    assert_int_equal(range_request()->limit, 0);
    assert_int_equal(range_request()->revision, 0);
    assert_false(range_request()->count_only);
    reply_range(await_asked("Range"), 5, 2);
    assert_true(seen.came && seen.r == 0 && seen.n == 0);
    assert_int_equal(seen.revision, 5);
}

static void one_key_is_asked_for_as_it_was(_unused_ void **state)
{
    SeenRange seen = {0};
    assert_int_equal(etcd_get_at(etcd, "/p/a", 3, on_range, &seen, NULL), 0);
    ASSERT_BYTES(range_request()->key, "/p/a");
    ASSERT_BYTES(range_request()->range_end, "");
    assert_int_equal(range_request()->revision, 3);
    refuse(await_asked("Range"), WIRE_OUT_OF_RANGE,
           "etcdserver: mvcc: required revision has been compacted");
    assert_int_equal(seen.r, -ESTALE); /* a compacted revision is not retried */
    assert_false(is_asked("Range"));
}

static void a_prefix_ends_behind_its_last_key(_unused_ void **state)
{
    static const struct {
        const char *prefix, *end;
        size_t n;
    } all[] = {{"/p/", "/p0", 3}, {"a\xff", "b", 1}, {"\xff\xff", "\0", 1}, {"", "\0", 1}};
    for (size_t i = 0; i < ELEMENTSOF(all); i++) {
        SeenRange seen = {0};
        assert_int_equal(etcd_get(etcd, all[i].prefix, true, on_range, &seen, NULL), 0);
        if (*all[i].prefix)
            assert_bytes(range_request()->key, all[i].prefix, strlen(all[i].prefix));
        else
            assert_bytes(range_request()->key, "\0", 1);
        assert_bytes(range_request()->range_end, all[i].end, all[i].n);
        assert_int_equal(range_request()->limit, 512);
        reply_range(await_asked("Range"), 5, 2);
        assert_int_equal(seen.r, 0);
    }
}

/* All pages are read at one revision, though later answers have later headers. A page that is too
 * large is requested again with half the limit. */
static void pages_follow_each_other(_unused_ void **state)
{
    SeenRange seen = {0};
    assert_int_equal(etcd_get(etcd, "/p/", true, on_range, &seen, NULL), 0);
    reply_page(5, true, "/p/a", "/p/b");
    assert_bytes(range_request()->key, "/p/b\0", 5);
    ASSERT_BYTES(range_request()->range_end, "/p0");
    assert_int_equal(range_request()->revision, 5);
    refuse(await_asked("Range"), WIRE_RESOURCE_EXHAUSTED,
           "Received message larger than max (5 vs. 4)");
    assert_bytes(range_request()->key, "/p/b\0", 5);
    assert_int_equal(range_request()->limit, 256);
    reply_page(6, true, "/p/c", NULL);
    assert_bytes(range_request()->key, "/p/c\0", 5);
    assert_int_equal(range_request()->revision, 5);
    reply_page(7, false, "/p/d", "/p/e");
    assert_true(seen.came && seen.r == 0);
    assert_int_equal(seen.n, 5);
    assert_int_equal(seen.revision, 5);
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(seen.keys[i], ((char[]){'/', 'p', '/', (char)('a' + i), 0}));
    assert_int_equal(seen.first.create_revision, 2);
    assert_int_equal(seen.first.mod_revision, 3);
    assert_int_equal(seen.first.version, 4);
    assert_int_equal(seen.first.lease, 77);
    assert_int_equal(seen.first.n_value, 1);
}

/* A read of a single key that is too large fails: the client does not request the key for ever. */
static void a_key_that_is_too_large_fails(_unused_ void **state)
{
    SeenRange seen = {0};
    assert_int_equal(etcd_get(etcd, "/p/", true, on_range, &seen, NULL), 0);
    for (int limit = 512; limit >= 1; limit /= 2) {
        assert_false(seen.came);
        assert_int_equal(range_request()->limit, limit);
        refuse(await_asked("Range"), WIRE_RESOURCE_EXHAUSTED,
               "Received message larger than max (5 vs. 4)");
    }
    assert_true(seen.came);
    assert_int_equal(seen.r, -EIO);
    assert_false(is_asked("Range"));
}

/* If the revision of the pages is compacted, the read starts again, and its result does not contain
 * the keys of the first pages twice. */
static void pages_that_begin_anew_tell_nothing_twice(_unused_ void **state)
{
    SeenRange seen = {0};
    assert_int_equal(etcd_get(etcd, "/p/", true, on_range, &seen, NULL), 0);
    reply_page(5, true, "/p/a", "/p/b");
    refuse(await_asked("Range"), WIRE_OUT_OF_RANGE,
           "etcdserver: mvcc: required revision has been compacted");
    ASSERT_BYTES(range_request()->key, "/p/");
    assert_int_equal(range_request()->revision, 0);
    reply_page(9, false, "/p/a", NULL);
    assert_int_equal(seen.n, 1);
    assert_int_equal(seen.revision, 9);
}

/* Each page has its own deadline. */
static void pages_may_take_longer_than_one_deadline(_unused_ void **state)
{
    SeenRange seen = {0};
    char keys[2][8] = {"/p/a", "/p/b"};
    assert_int_equal(etcd_get(etcd, "/p/", true, on_range, &seen, NULL), 0);
    for (int i = 0; i < 6; i++) {
        pass_usec(1500 * USEC_PER_MSEC);
        reply_page(5, i < 5, keys[i % 2], NULL);
    }
    assert_true(seen.came && seen.r == 0);
    assert_int_equal(seen.n, 6);
}

/* ---- writes ---- */

typedef struct SeenTxn {
    bool came, succeeded;
    int r;
    int64_t revision;
    size_t n_kvs;
} SeenTxn;

static void on_txn(int r, _unused_ const Error *err, const EtcdTxnResult *result, void *userdata)
{
    *(SeenTxn *)userdata = (SeenTxn){.came = true,
                                     .r = r,
                                     .succeeded = result && result->succeeded,
                                     .revision = result ? result->revision : 0,
                                     .n_kvs = result ? result->n_kvs : 0};
}

static void a_transaction_is_asked_for_as_it_is(_unused_ void **state)
{
    const EtcdCompare compares[] = {{.key = "/c", .target = ETCD_CREATE_REVISION, .equals = 11},
                                    {.key = "/m", .target = ETCD_MOD_REVISION, .equals = 12},
                                    {.key = "/v", .target = ETCD_VERSION, .equals = 13}};
    const EtcdOp ops[] = {{.kind = ETCD_PUT, .key = "/a", .value = "text", .lease = 77},
                          {.kind = ETCD_PUT, .key = "/b", .value = "a\0b", .n_value = 3},
                          {.kind = ETCD_PUT, .key = "/e"},
                          {.kind = ETCD_DELETE, .key = "/d"},
                          {.kind = ETCD_DELETE_PREFIX, .key = "/f/"},
                          {.kind = ETCD_GET, .key = "/g"}};
    SeenTxn seen = {0};
    assert_int_equal(etcd_txn(etcd, compares, 3, ops, ELEMENTSOF(ops), on_txn, &seen, NULL), 0);
    const Pb__TxnRequest *t = txn_request();
    assert_int_equal(t->n_compare, 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(t->compare[i]->result, PB__COMPARE__RESULT__EQUAL);
    ASSERT_BYTES(t->compare[0]->key, "/c");
    assert_int_equal(t->compare[0]->target, PB__COMPARE__TARGET__CREATE);
    assert_int_equal(t->compare[0]->create_revision, 11);
    assert_int_equal(t->compare[1]->target, PB__COMPARE__TARGET__MOD);
    assert_int_equal(t->compare[1]->mod_revision, 12);
    assert_int_equal(t->compare[2]->target, PB__COMPARE__TARGET__VERSION);
    assert_int_equal(t->compare[2]->version, 13);
    assert_int_equal(t->n_success, 6);
    ASSERT_BYTES(t->success[0]->put->key, "/a");
    ASSERT_BYTES(t->success[0]->put->value, "text");
    assert_int_equal(t->success[0]->put->lease, 77);
    ASSERT_BYTES(t->success[1]->put->value, "a\0b");
    assert_int_equal(t->success[1]->put->lease, 0);
    ASSERT_BYTES(t->success[2]->put->value, "");
    ASSERT_BYTES(t->success[3]->delete_range->key, "/d");
    ASSERT_BYTES(t->success[3]->delete_range->range_end, "");
    ASSERT_BYTES(t->success[4]->delete_range->key, "/f/");
    ASSERT_BYTES(t->success[4]->delete_range->range_end, "/f0");
    ASSERT_BYTES(t->success[5]->range->key, "/g");
    ASSERT_BYTES(t->success[5]->range->range_end, "");
    reply_txn();
    assert_true(seen.came && seen.r == 0 && seen.succeeded);
    assert_int_equal(seen.revision, 5);
}

/* The transaction that asks for a user's rights writes nothing: its guard can never hold, whatever
 * the key is. */
static void a_question_for_rights_writes_nothing(_unused_ void **state)
{
    SeenTxn seen = {0};
    assert_int_equal(etcd_request_rights(etcd, "/k", on_txn, &seen, NULL), 0);
    const Pb__TxnRequest *t = txn_request();
    assert_int_equal(t->n_compare, 1);
    ASSERT_BYTES(t->compare[0]->key, "/k");
    assert_int_equal(t->compare[0]->target, PB__COMPARE__TARGET__VERSION);
    assert_int_equal(t->compare[0]->version, INT64_MAX);
    assert_int_equal(t->n_success, 2);
    ASSERT_BYTES(t->success[0]->range->key, "/k"); /* needs the right to read */
    ASSERT_BYTES(t->success[1]->put->key, "/k");   /* needs the right to write */
    refuse(await_asked("Txn"), WIRE_PERMISSION_DENIED, "etcdserver: permission denied");
    assert_int_equal(seen.r, -EACCES);
}

/* ---- a member's status ---- */

static void on_status(int r, _unused_ const Error *err, const EtcdStatus *status, void *userdata)
{
    assert_int_equal(r, 0);
    *(EtcdStatus *)userdata = *status;
}

static EtcdStatus status_of(const char *first, const char *second)
{
    EtcdStatus ret = {0};
    Pb__ResponseHeader header = header_of(5, 2);
    Pb__StatusResponse status = PB__STATUS_RESPONSE__INIT;
    char *errors[] = {(char *)first, (char *)second};
    header.member_id = 11;
    status.header = &header;
    status.leader = 12;
    status.version = (char *)"3.5.9";
    status.db_size = 100;
    status.db_size_in_use = 40;
    status.n_errors = !!first + !!second;
    status.errors = errors;
    assert_int_equal(etcd_status(etcd, on_status, &ret, NULL), 0);
    reply(await_asked("Status"), &status.base);
    return ret;
}

/* The reported status has each field of the answer, and as many of the member's errors as fit. */
static void a_member_says_how_it_is(_unused_ void **state)
{
    char large[300];
    EtcdStatus status = status_of(NULL, NULL);
    assert_int_equal(status.member, 11);
    assert_int_equal(status.leader, 12);
    assert_string_equal(status.version, "3.5.9");
    assert_int_equal(status.db_bytes, 100);
    assert_int_equal(status.db_used_bytes, 40);
    assert_string_equal(status.errors, "");
    assert_string_equal(status_of("no leader", "no space").errors, "no leader; no space");
    for (size_t n = 250; n < sizeof(large); n++) {
        memset(large, 'x', n);
        large[n] = '\0';
        status = status_of(large, "second");
        assert_int_equal(strlen(status.errors), MIN(n + 8, sizeof(status.errors) - 1));
    }
}

/* A member may echo the client's password in any text; no text of the status shows it. */
static void a_status_hides_the_password(_unused_ void **state)
{
    EtcdStatus seen = {0};
    char *errors[] = {(char *)"bad password secret"};
    Pb__ResponseHeader header = header_of(5, 2);
    Pb__StatusResponse status = PB__STATUS_RESPONSE__INIT;
    status.header = &header;
    status.version = (char *)"3.5.9-secret";
    status.n_errors = 1;
    status.errors = errors;
    etcd = etcd_free(etcd);
    open_client(answers_endpoint, "node");
    assert_int_equal(etcd_status(etcd, on_status, &seen, NULL), 0);
    reply(await_asked("Status"), &status.base);
    assert_string_equal(seen.version, "3.5.9-***");
    assert_string_equal(seen.errors, "bad password ***");
    status.version =
        (char *)"a version of 28 characters. secret"; /* it is cut within the password */
    assert_int_equal(etcd_status(etcd, on_status, &seen, NULL), 0);
    reply(await_asked("Status"), &status.base);
    assert_string_equal(seen.version, "a version of 28 characters. ***");
}

/* ---- the history ---- */

static void on_told(_unused_ const EtcdHistory *was, const EtcdHistory *now, void *userdata)
{
    *(EtcdHistory *)userdata = *now;
}

static void reply_of(uint64_t cluster, int64_t revision)
{
    SeenRange read = {0};
    Pb__ResponseHeader header = PB__RESPONSE_HEADER__INIT;
    Pb__RangeResponse range = PB__RANGE_RESPONSE__INIT;
    header.cluster_id = cluster;
    header.revision = revision;
    range.header = &header;
    assert_int_equal(etcd_get(etcd, "/p/a", false, on_range, &read, NULL), 0);
    reply(await_asked("Range"), &range.base);
    assert_true(read.came && read.r == 0);
}

/* The first answer defines the cluster. An answer without a cluster id is not of another cluster. */
static void an_answer_of_another_cluster_is_another_history(_unused_ void **state)
{
    EtcdHistory told = {0};
    etcd_set_history(etcd, (EtcdHistory){0}, on_told, &told);
    reply_of(7, 10);
    assert_int_equal(etcd_history(etcd).cluster, 7);
    reply_of(0, 11);
    reply_of(0, 0);
    assert_int_equal(etcd_history(etcd).cluster, 7);
    assert_int_equal(etcd_history(etcd).revision, 11);
    assert_int_equal(told.cluster, 0);
    reply_of(8, 500);
    assert_int_equal(told.cluster, 8);
    assert_int_equal(etcd_history(etcd).revision, 500);
}

/* ---- an observer that counts requests ---- */

static void on_lease(_unused_ EtcdLeaseState is, _unused_ int64_t id, _unused_ void *userdata) {}

typedef struct Counted {
    int n;
    char method[32];
    int r;
    uint64_t took_usec;
} Counted;

static void on_request(const char *method, int r, uint64_t took_usec, void *userdata)
{
    Counted *counted = userdata;
    counted->n++;
    counted->r = r;
    counted->took_usec = took_usec;
    (void)snprintf(counted->method, sizeof(counted->method), "%s", method);
}

static void each_request_is_counted_once(_unused_ void **state)
{
    SeenRange seen = {0};
    SeenTxn txn = {0};
    Counted counted = {0};
    const EtcdOp op = {.kind = ETCD_PUT, .key = "/a", .value = "v"};
    etcd_set_observer(etcd, on_request, &counted);
    assert_int_equal(etcd_get(etcd, "/p/a", false, on_range, &seen, NULL), 0);
    pass_usec(USEC_PER_SEC);
    refuse(await_asked("Range"), WIRE_UNAVAILABLE, "etcdserver: no leader");
    assert_int_equal(counted.n, 0); /* the request continues on another member */
    pass_usec(USEC_PER_SEC);
    reply_range(await_asked("Range"), 5, 2);
    assert_int_equal(counted.n, 1);
    assert_string_equal(counted.method, "Range");
    assert_int_equal(counted.r, 0);
    assert_in_range(counted.took_usec, 2 * USEC_PER_SEC, 2200 * USEC_PER_MSEC);
    assert_int_equal(etcd_txn(etcd, NULL, 0, &op, 1, on_txn, &txn, NULL), 0);
    refuse(await_asked("Txn"), WIRE_UNKNOWN, "no");
    assert_int_equal(counted.n, 2);
    assert_string_equal(counted.method, "Txn");
    assert_int_equal(counted.r, -EIO);
    assert_int_equal(etcd_lease_new(etcd, 10, "/p/w", on_lease, NULL, &lease), 0);
    reply_grant_of(77, 10);
    assert_int_equal(counted.n, 3);
    assert_string_equal(counted.method, "LeaseGrant");
    (void)await_asked("LeaseKeepAlive");
    pass_usec(USEC_PER_SEC);
    reply_range(await_asked("Range"), 5, 2);
    assert_int_equal(counted.n, 3); /* the witness does not count as a request of its own */
    reply_keep_alive(77, 10, 2);
    assert_int_equal(counted.n, 4);
    assert_string_equal(counted.method, "LeaseKeepAlive");
    assert_in_range(counted.took_usec, USEC_PER_SEC, 1100 * USEC_PER_MSEC);
    (void)await_asked("LeaseKeepAlive");
    refuse(await_asked("LeaseKeepAlive"), WIRE_UNAVAILABLE, "no");
    assert_int_equal(counted.n, 5);
    assert_int_equal(counted.r, -ECONNREFUSED);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, answers_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(one_key_is_asked_for),
        CASE(one_key_is_asked_for_as_it_was),
        CASE(a_prefix_ends_behind_its_last_key),
        CASE(pages_follow_each_other),
        CASE(a_key_that_is_too_large_fails),
        CASE(pages_that_begin_anew_tell_nothing_twice),
        CASE(pages_may_take_longer_than_one_deadline),
        CASE(a_transaction_is_asked_for_as_it_is),
        CASE(a_question_for_rights_writes_nothing),
        CASE(an_answer_of_another_cluster_is_another_history),
        CASE(a_member_says_how_it_is),
        CASE(a_status_hides_the_password),
        CASE(each_request_is_counted_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
