/* SPDX-License-Identifier: Apache-2.0 */
/* test-etcd-server-differential.c - the model gives the same answers as etcd: random scenarios ("stories") of reads,
 * transactions, leases, watches and compactions are run on both.
 *
 * SDTRAIN_ETCD_STORIES=FIRST..LAST runs those scenarios; without the variable a range is drawn, and printed. */
#include "tests/sim/server/test/testing-pair.h"

#include "base/memory.h"
#include "base/number/philox.h"
#include "etcd/test/testing-etcd.h"

#include <string.h>
#include <sys/random.h>

enum { SCENARIOS = 24, STEPS = 80, OPS_MAX = 5, COMPARES_MAX = 3, TTL_SEC = 10000000 };

typedef struct Draws {
    uint64_t seed, n;
} Draws;

static uint32_t draw(Draws *draws, uint32_t below)
{
    return philox4x32(draws->seed, 0, draws->n++).word[0] % below;
}

typedef struct Scenario {
    Pair *pair;
    Draws draws;
    int64_t first; /* revision at the scenario's start */
    /* the scenario draws no range that ends before its begin: etcd does not define the rights on such a range */
    bool ordered;
} Scenario;

static ProtobufCBinaryData bytes(const char *text, size_t n)
{
    return (ProtobufCBinaryData){.data = (uint8_t *)text, .len = n};
}

static ProtobufCBinaryData draw_key(Draws *draws)
{
    static const char *const keys[] = {"a",  "b",   "c",  "a/1",  "a/2",     "a/10",
                                       "ab", "b/x", "b0", "\xff", "\xff\xff"};
    const char *key = keys[draw(draws, ELEMENTSOF(keys))];

    if (draw(draws, 40) == 0)
        return bytes("", 0);
    if (draw(draws, 20) == 0)
        return bytes("a\0", 2);
    return bytes(key, strlen(key));
}

static ProtobufCBinaryData draw_any_end(Draws *draws)
{
    static const char *const ends[] = {"a0", "b", "c", "a/2", "z", "a", "\xff"};
    const char *end = ends[draw(draws, ELEMENTSOF(ends))];

    switch (draw(draws, 8)) {
    case 0:
    case 1:
    case 2:
        return bytes("", 0);
    case 3:
        return bytes("\0", 1);
    default:
        return bytes(end, strlen(end));
    }
}

static ProtobufCBinaryData draw_end(Scenario *scenario, ProtobufCBinaryData key)
{
    ProtobufCBinaryData end = draw_any_end(&scenario->draws);
    size_t n = MIN(key.len, end.len);
    int order = memcmp(key.data, end.data, n);

    if (scenario->ordered && end.len > 0 && end.data[0] != 0 &&
        (order > 0 || (order == 0 && key.len >= end.len)))
        return bytes("", 0);
    return end;
}

/* Draws a revision, mostly a revision that can be read. */
static int64_t draw_revision(Scenario *scenario)
{
    int64_t now = server_revision(scenario->pair->server);

    switch (draw(&scenario->draws, 8)) {
    case 0:
        return now + 1 + draw(&scenario->draws, 2);
    case 1:
        return now;
    case 2:
        return scenario->first - (int64_t)draw(&scenario->draws, 3);
    case 3:
        return -(int64_t)draw(&scenario->draws, 4);
    default:
        return MAX(scenario->first, now - (int64_t)draw(&scenario->draws, 20));
    }
}

static void draw_range(Scenario *scenario, Pb__RangeRequest *ret)
{
    pb__range_request__init(ret);
    ret->key = draw_key(&scenario->draws);
    ret->range_end = draw_end(scenario, ret->key);
    ret->limit = draw(&scenario->draws, 3) == 0 ? draw(&scenario->draws, 4) : 0;
    ret->revision = draw(&scenario->draws, 3) == 0 ? draw_revision(scenario) : 0;
    ret->count_only = draw(&scenario->draws, 6) == 0;
}

static void tell_range(Scenario *scenario)
{
    Pb__RangeRequest request;

    draw_range(scenario, &request);
    ProtobufCMessage *answer = pair_ask(scenario->pair, "/etcdserverpb.KV/Range", &request.base,
                                        &pb__range_response__descriptor);
    if (answer)
        protobuf_c_message_free_unpacked(answer, NULL);
}

static void draw_compare(Scenario *scenario, Pb__Compare *ret)
{
    static const Pb__Compare__OperandCase cases[] = {PB__COMPARE__OPERAND_VERSION,
                                                     PB__COMPARE__OPERAND_CREATE_REVISION,
                                                     PB__COMPARE__OPERAND_MOD_REVISION};
    int64_t operand = 0;

    pb__compare__init(ret);
    ret->key = draw_key(&scenario->draws);
    ret->target = (Pb__Compare__Target)draw(&scenario->draws, draw(&scenario->draws, 4) ? 3 : 5);
    ret->result = (Pb__Compare__Result)draw(&scenario->draws, 4);
    if (draw(&scenario->draws, 2) == 0)
        operand = ret->target == PB__COMPARE__TARGET__VERSION ? (int64_t)draw(&scenario->draws, 4)
                                                              : draw_revision(scenario);
    /* Sometimes the comparison gets the operand of another target. */
    ret->operand_case = cases[draw(&scenario->draws, 8) == 0 ? draw(&scenario->draws, 3)
                                                             : (uint32_t)ret->target % 3];
    ret->version = operand; /* the other members of the union have the same size */
}

typedef struct DrawnOp {
    Pb__RequestOp op;
    Pb__RangeRequest range;
    Pb__PutRequest put;
    Pb__DeleteRangeRequest delete_range;
    char value[16];
} DrawnOp;

static void draw_put(Scenario *scenario, DrawnOp *ret)
{
    Pb__PutRequest *put = &ret->put;

    pb__put_request__init(put);
    put->key = draw_key(&scenario->draws);
    (void)snprintf(ret->value, sizeof(ret->value), "v%u", draw(&scenario->draws, 1000));
    put->value = bytes(ret->value, draw(&scenario->draws, 6) == 0 ? 0 : strlen(ret->value));
    /* lease number n_leases + 1 does not exist */
    if (draw(&scenario->draws, 2) == 0)
        put->lease = 1 + draw(&scenario->draws, (uint32_t)scenario->pair->n_leases + 1);
    ret->op.request_case = PB__REQUEST_OP__REQUEST_PUT;
    ret->op.put = put;
}

static void draw_op(Scenario *scenario, DrawnOp *ret)
{
    pb__request_op__init(&ret->op);
    switch (draw(&scenario->draws, 8)) {
    case 0:
    case 1:
        draw_range(scenario, &ret->range);
        ret->op.request_case = PB__REQUEST_OP__REQUEST_RANGE;
        ret->op.range = &ret->range;
        break;
    case 2:
    case 3:
        pb__delete_range_request__init(&ret->delete_range);
        ret->delete_range.key = draw_key(&scenario->draws);
        ret->delete_range.range_end = draw_end(scenario, ret->delete_range.key);
        ret->op.request_case = PB__REQUEST_OP__REQUEST_DELETE_RANGE;
        ret->op.delete_range = &ret->delete_range;
        break;
    default:
        if (draw(&scenario->draws, 60) > 0) /* in one case of 60, the operation stays empty */
            draw_put(scenario, ret);
    }
}

static void tell_txn(Scenario *scenario)
{
    Pb__TxnRequest request = PB__TXN_REQUEST__INIT;
    Pb__Compare compares[COMPARES_MAX], *compare_list[COMPARES_MAX];
    DrawnOp ops[OPS_MAX];
    Pb__RequestOp *op_list[OPS_MAX];

    request.n_compare =
        draw(&scenario->draws, 3) == 0 ? draw(&scenario->draws, COMPARES_MAX + 1) : 0;
    request.n_success = draw(&scenario->draws, OPS_MAX + 1);
    for (size_t i = 0; i < request.n_compare; i++) {
        draw_compare(scenario, &compares[i]);
        compare_list[i] = &compares[i];
    }
    for (size_t i = 0; i < request.n_success; i++) {
        draw_op(scenario, &ops[i]);
        op_list[i] = &ops[i].op;
    }
    request.compare = compare_list;
    request.success = op_list;
    ProtobufCMessage *answer = pair_ask(scenario->pair, "/etcdserverpb.KV/Txn", &request.base,
                                        &pb__txn_response__descriptor);
    if (answer)
        protobuf_c_message_free_unpacked(answer, NULL);
}

static void tell_revoke(Pair *pair, int64_t lease)
{
    Pb__LeaseRevokeRequest request = PB__LEASE_REVOKE_REQUEST__INIT;

    request.id = lease;
    ProtobufCMessage *answer = pair_ask(pair, "/etcdserverpb.Lease/LeaseRevoke", &request.base,
                                        &pb__lease_revoke_response__descriptor);
    if (answer)
        protobuf_c_message_free_unpacked(answer, NULL);
}

static void tell_lease(Scenario *scenario)
{
    Pair *pair = scenario->pair;
    int64_t lease = 1 + draw(&scenario->draws, (uint32_t)pair->n_leases + 1);

    switch (draw(&scenario->draws, 5)) {
    case 0:
    case 1:
        /* Grants a lease with an id that etcd chooses or that may exist already, and sometimes with a TTL that is too
         * large. */
        if (pair->n_leases < PAIR_LEASES_MAX)
            pair_grant(pair, TTL_SEC * (draw(&scenario->draws, 10) ? INT64_C(1) : INT64_C(1000)),
                       draw(&scenario->draws, 3) ? 0 : 1000 + draw(&scenario->draws, 3));
        break;
    case 2:
        tell_revoke(pair, lease);
        break;
    default:
        pair_keep_alive(pair, lease);
    }
}

/* Waits until the watches that began in the past have read the history. etcd lets such watches read
 * only at intervals, and a compaction may come first. So this function puts a key: a watch that has
 * shown that put has read the history. */
static void let_read(Pair *pair, ProtobufCBinaryData key)
{
    Pb__TxnRequest request = PB__TXN_REQUEST__INIT;
    Pb__PutRequest put = PB__PUT_REQUEST__INIT;
    Pb__RequestOp op = PB__REQUEST_OP__INIT, *ops[] = {&op};

    put.key = key.len > 0 ? key : bytes("\0", 1);
    op.request_case = PB__REQUEST_OP__REQUEST_PUT;
    op.put = &put;
    request.n_success = 1;
    request.success = ops;
    ProtobufCMessage *answer =
        pair_ask(pair, "/etcdserverpb.KV/Txn", &request.base, &pb__txn_response__descriptor);
    if (answer)
        protobuf_c_message_free_unpacked(answer, NULL);
    pair_check_watches(pair);
}

static void tell_watch(Scenario *scenario)
{
    Pb__WatchCreateRequest create = PB__WATCH_CREATE_REQUEST__INIT;

    if (scenario->pair->n_watches == PAIR_WATCHES_MAX)
        return;
    create.key = draw_key(&scenario->draws);
    create.range_end = draw_end(scenario, create.key);
    create.start_revision = draw(&scenario->draws, 2) ? MAX(0, draw_revision(scenario)) : 0;
    create.fragment = draw(&scenario->draws, 2);
    pair_watch(scenario->pair, &create);
    if (create.start_revision != 0)
        let_read(scenario->pair, create.key);
}

/* Removes everything that a scenario leaves behind, so that each scenario can be run separately. */
static void tidy_up(Pair *pair)
{
    Pb__TxnRequest request = PB__TXN_REQUEST__INIT;
    Pb__DeleteRangeRequest all = PB__DELETE_RANGE_REQUEST__INIT;
    Pb__RequestOp op = PB__REQUEST_OP__INIT, *ops[] = {&op};

    pair_close_watches(pair);
    all.key = all.range_end = bytes("\0", 1);
    op.request_case = PB__REQUEST_OP__REQUEST_DELETE_RANGE;
    op.delete_range = &all;
    request.n_success = 1;
    request.success = ops;
    ProtobufCMessage *answer =
        pair_ask(pair, "/etcdserverpb.KV/Txn", &request.base, &pb__txn_response__descriptor);
    if (answer)
        protobuf_c_message_free_unpacked(answer, NULL);
    for (int i = 0; i < pair->n_leases; i++)
        tell_revoke(pair, i + 1);
    pair->n_leases = 0;
}

static void tell_scenario(Pair *pair, uint64_t seed)
{
    _cleanup_free_ char *name = memory_format("SDTRAIN_ETCD_STORIES=%llu..%llu",
                                              (unsigned long long)seed, (unsigned long long)seed);
    Scenario scenario = {.pair = pair,
                         .draws = {.seed = seed},
                         .first = server_revision(pair->server)};

    pair->scenario = name;
    for (int step = 0; step < STEPS; step++) {
        uint32_t kind = draw(&scenario.draws, 100);
        if (kind < 55)
            tell_txn(&scenario);
        else if (kind < 75)
            tell_range(&scenario);
        else if (kind < 88)
            tell_lease(&scenario);
        else if (kind < 96)
            tell_watch(&scenario);
        else
            pair_compact(pair, MAX(0, draw_revision(&scenario)));
    }
    pair_check_watches(pair);
    tidy_up(pair);
    pair->scenario = "";
}

static void the_model_says_what_etcd_says(void **state)
{
    (void)state;
    uint32_t drawn = 0;
    assert_int_equal(getrandom(&drawn, sizeof(drawn), 0), sizeof(drawn));
    unsigned long long first = drawn, last = first + SCENARIOS - 1;
    const char *asked = getenv("SDTRAIN_ETCD_STORIES");
    if (asked)
        assert_int_equal(sscanf(asked, "%llu..%llu", &first, &last), 2);
    print_message("stories %llu..%llu\n", first, last);

    _cleanup_(testing_etcd_stopp) TestingEtcd *etcd = testing_etcd_start(1, 0);
    _cleanup_(pair_freep) Pair *pair = pair_new(testing_etcd_endpoint(etcd, 0));
    for (unsigned long long seed = first; seed <= last; seed++)
        tell_scenario(pair, seed);
    print_message("%llu answers compared\n", (unsigned long long)pair->n_compared);
}

/* ---- cases that scenarios do not draw ---- */

static void ask_status(Pair *pair)
{
    Pb__StatusRequest request = PB__STATUS_REQUEST__INIT;
    ProtobufCMessage *answer = pair_ask(pair, "/etcdserverpb.Maintenance/Status", &request.base,
                                        &pb__status_response__descriptor);
    assert_non_null(answer);
    protobuf_c_message_free_unpacked(answer, NULL);
}

static void steps(Pair *pair, uint64_t seed, int n)
{
    Scenario scenario = {
        .pair = pair,
        .draws = {.seed = seed},
        .first = server_revision(pair->server),
        .ordered = true,
    };

    for (int step = 0; step < n; step++)
        switch (draw(&scenario.draws, 4)) {
        case 0:
            tell_range(&scenario);
            break;
        case 1:
            tell_lease(&scenario);
            break;
        default:
            tell_txn(&scenario);
        }
}

static void a_full_disk_refuses_writes_alone(void **state)
{
    (void)state;
    _cleanup_(testing_etcd_stopp) TestingEtcd *etcd = testing_etcd_start(1, 0);
    _cleanup_(pair_freep) Pair *pair = pair_new(testing_etcd_endpoint(etcd, 0));
    steps(pair, 1, 40);
    pair_set_nospace(pair, true);
    ask_status(pair);
    steps(pair, 2, 80);
    pair_set_nospace(pair, false);
    ask_status(pair);
    steps(pair, 3, 20);
}

static void limits_are_those_of_etcd(void **state)
{
    (void)state;
    enum { OPS = 129, VALUE_BYTES = 1600 << 10 };
    _cleanup_(testing_etcd_stopp) TestingEtcd *etcd = testing_etcd_start(1, 0);
    _cleanup_(pair_freep) Pair *pair = pair_new(testing_etcd_endpoint(etcd, 0));
    DrawnOp drawn[OPS];
    Pb__RequestOp *ops[OPS];
    _cleanup_free_ char *value = memory_zeroed(VALUE_BYTES, 1);
    Pb__TxnRequest request = PB__TXN_REQUEST__INIT;
    for (size_t i = 0; i < OPS; i++) {
        ops[i] = &drawn[i].op;
        pb__request_op__init(ops[i]);
        pb__put_request__init(&drawn[i].put);
        (void)snprintf(drawn[i].value, sizeof(drawn[i].value), "key%zu", i);
        drawn[i].put.key = bytes(drawn[i].value, strlen(drawn[i].value));
        ops[i]->request_case = PB__REQUEST_OP__REQUEST_PUT;
        ops[i]->put = &drawn[i].put;
    }
    request.success = ops;
    for (request.n_success = OPS - 1; request.n_success <= OPS; request.n_success++) {
        ProtobufCMessage *answer =
            pair_ask(pair, "/etcdserverpb.KV/Txn", &request.base, &pb__txn_response__descriptor);
        assert_true((answer != NULL) == (request.n_success < OPS));
        if (answer)
            protobuf_c_message_free_unpacked(answer, NULL);
    }
    request.n_success = 1;
    drawn[0].put.value = bytes(value, VALUE_BYTES);
    assert_null(
        pair_ask(pair, "/etcdserverpb.KV/Txn", &request.base, &pb__txn_response__descriptor));
}

static void log_in(Pair *pair, const char *user, const char *password)
{
    Pb__AuthenticateRequest request = PB__AUTHENTICATE_REQUEST__INIT;

    request.name = (char *)user;
    request.password = (char *)password;
    ProtobufCMessage *answer = pair_ask(pair, "/etcdserverpb.Auth/Authenticate", &request.base,
                                        &pb__authenticate_response__descriptor);
    if (answer)
        protobuf_c_message_free_unpacked(answer, NULL);
}

static void watch_all_kinds(Pair *pair)
{
    static const char *const ends[] = {"", "a/2", "b", "z", "\xff"};
    Pb__WatchCreateRequest create = PB__WATCH_CREATE_REQUEST__INIT;

    for (size_t i = 0; i < ELEMENTSOF(ends); i++) {
        create.key = bytes(i % 2 ? "a" : "b", 1);
        create.range_end = bytes(ends[i], strlen(ends[i]));
        pair_watch(pair, &create);
    }
    pair_close_watches(pair);
}

static void users_may_what_etcd_lets_them(void **state)
{
    (void)state;
    _cleanup_(testing_etcd_stopp) TestingEtcd *etcd = testing_etcd_start(1, TESTING_ETCD_AUTH);
    _cleanup_(pair_freep) Pair *pair = pair_new(testing_etcd_endpoint(etcd, 0));
    testing_etcd_ctl(etcd, "role", "add", "some", NULL);
    testing_etcd_ctl(etcd, "role", "grant-permission", "some", "readwrite", "a", "a/2", NULL);
    testing_etcd_ctl(etcd, "role", "grant-permission", "some", "read", "a/1", "b", NULL);
    testing_etcd_ctl(etcd, "role", "grant-permission", "some", "write", "b", NULL);
    testing_etcd_ctl(etcd, "role", "grant-permission", "some", "readwrite", "b0", NULL);
    testing_etcd_ctl(etcd, "user", "add", "u:pw", NULL);
    testing_etcd_ctl(etcd, "user", "grant-role", "u", "some", NULL);
    server_add_user(pair->server, "root", "secret");
    server_add_user(pair->server, "u", "pw");
    server_grant(pair->server, "u", SERVER_READ | SERVER_WRITE, "a", "a/2", 3);
    server_grant(pair->server, "u", SERVER_READ, "a/1", "b", 1);
    server_grant(pair->server, "u", SERVER_WRITE, "b", "", 0);
    server_grant(pair->server, "u", SERVER_READ | SERVER_WRITE, "b0", "", 0);
    server_enable_auth(pair->server, true);

    steps(pair, 1, 30); /* as a client without a user */
    watch_all_kinds(pair);
    log_in(pair, "u", "wrong");
    log_in(pair, "nobody", "pw");
    log_in(pair, "u", "pw");
    steps(pair, 2, 200);
    watch_all_kinds(pair);
    ask_status(pair);
    for (int side = 0; side < 2; side++) {
        free((char *)pair->tokens[side]);
        pair->tokens[side] = memory_text("no such token.1");
    }
    steps(pair, 3, 20);
    watch_all_kinds(pair);
    log_in(pair, "root", "secret"); /* refused, because the old token is sent, too */
    for (int side = 0; side < 2; side++) {
        free((char *)pair->tokens[side]);
        pair->tokens[side] = NULL;
    }
    log_in(pair, "root", "secret");
    assert_non_null(pair->tokens[0]);
    tidy_up(pair);
    tell_scenario(pair, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_model_says_what_etcd_says),
        cmocka_unit_test(a_full_disk_refuses_writes_alone),
        cmocka_unit_test(limits_are_those_of_etcd),
        cmocka_unit_test(users_may_what_etcd_lets_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
