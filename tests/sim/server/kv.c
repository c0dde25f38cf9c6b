/* SPDX-License-Identifier: Apache-2.0 */
/* kv.c - checks, carries out and answers a Range or a Txn as etcd 3.4 does. */
#include "tests/sim/server/server-internal.h"

#include <string.h>

enum { OPS_MAX = 128 };

static const Refusal no_key = {SERVER_INVALID_ARGUMENT, "etcdserver: key is not provided"};

/* ---- checks that do not need the store ---- */

Refusal kv_check_range(const Pb__RangeRequest *request)
{
    return request->key.len == 0 ? no_key : REFUSAL_NONE;
}

static Refusal check_op(const Pb__RequestOp *op)
{
    switch (op->request_case) {
    case PB__REQUEST_OP__REQUEST_RANGE:
        return kv_check_range(op->range);
    case PB__REQUEST_OP__REQUEST_PUT:
        return op->put->key.len == 0 ? no_key : REFUSAL_NONE;
    case PB__REQUEST_OP__REQUEST_DELETE_RANGE:
        return op->delete_range->key.len == 0 ? no_key : REFUSAL_NONE;
    default:
        return (Refusal){SERVER_INVALID_ARGUMENT, "etcdserver: key not found"};
    }
}

/* Returns whether the operation deletes the key. For this check, as in etcd, a range end of "\0"
 * sorts before every key: such a delete overlaps with no put. */
static bool deletes(const Pb__RequestOp *op, Bytes key)
{
    if (op->request_case != PB__REQUEST_OP__REQUEST_DELETE_RANGE)
        return false;
    Bytes begin = bytes_from(op->delete_range->key), end = bytes_from(op->delete_range->range_end);
    if (end.n == 0)
        return bytes_compare(begin, key) == 0;
    return bytes_compare(begin, key) <= 0 && bytes_compare(key, end) < 0;
}

static Refusal check_overlap(const Pb__TxnRequest *request)
{
    for (size_t i = 0; i < request->n_success; i++) {
        const Pb__RequestOp *op = request->success[i];
        if (op->request_case != PB__REQUEST_OP__REQUEST_PUT)
            continue;
        Bytes key = bytes_from(op->put->key);
        for (size_t j = 0; j < request->n_success; j++) {
            const Pb__RequestOp *other = request->success[j];
            if (deletes(other, key) ||
                (j < i && other->request_case == PB__REQUEST_OP__REQUEST_PUT &&
                 bytes_compare(bytes_from(other->put->key), key) == 0))
                return (Refusal){SERVER_INVALID_ARGUMENT,
                                 "etcdserver: duplicate key given in txn request"};
        }
    }
    return REFUSAL_NONE;
}

Refusal kv_check_txn(const Pb__TxnRequest *request)
{
    if (MAX(request->n_compare, request->n_success) > OPS_MAX)
        return (Refusal){SERVER_INVALID_ARGUMENT, "etcdserver: too many operations in txn request"};
    for (size_t i = 0; i < request->n_compare; i++)
        if (request->compare[i]->key.len == 0)
            return no_key;
    for (size_t i = 0; i < request->n_success; i++) {
        Refusal refusal = check_op(request->success[i]);
        if (refusal.code != SERVER_OK)
            return refusal;
    }
    return check_overlap(request);
}

bool kv_only_reads(const Pb__TxnRequest *request)
{
    for (size_t i = 0; i < request->n_success; i++)
        if (request->success[i]->request_case != PB__REQUEST_OP__REQUEST_RANGE)
            return false;
    return true;
}

/* ---- range ---- */

Pb__KeyValue *kv_message(const Version *version)
{
    Pb__KeyValue *ret = memory_new(Pb__KeyValue);

    pb__key_value__init(ret);
    ret->key = bytes_copy(version->key->node.begin);
    ret->mod_revision = version->mod_revision;
    if (version->deleted)
        return ret;
    ret->value =
        bytes_copy((Bytes){.data = (const uint8_t *)version->value, .n = version->n_value});
    ret->create_revision = version->create_revision;
    ret->version = version->version;
    ret->lease = version->lease;
    return ret;
}

typedef struct Page {
    Pb__RangeResponse *response;
    size_t limit, room; /* limit 0: no limit */
    bool count_only;
} Page;

static bool add_to_page(const Version *version, void *userdata)
{
    Page *page = userdata;
    Pb__RangeResponse *response = page->response;

    response->count++;
    if (page->count_only)
        return true;
    if (page->limit > 0 && response->n_kvs == page->limit) {
        response->more = true;
        return true; /* the key is counted although it is not in the answer */
    }
    response->kvs =
        memory_grow(response->kvs, response->n_kvs, &page->room, sizeof(Pb__KeyValue *));
    response->kvs[response->n_kvs++] = kv_message(version);
    return true;
}

/* Makes the answer to a Range. now: the newest revision that the reader sees. */
static Pb__RangeResponse *range_response(const Server *server, const Pb__RangeRequest *request,
                                         int64_t now)
{
    KeyRange range = key_range(request->key, request->range_end);
    Page page = {
        .response = memory_new(Pb__RangeResponse),
        .limit = request->limit > 0 ? (size_t)request->limit : 0,
        .count_only = request->count_only,
    };

    pb__range_response__init(page.response);
    mvcc_visit(&server->mvcc, &range, request->revision > 0 ? request->revision : now, add_to_page,
               &page);
    return page.response;
}

static Refusal check_revision(const Server *server, int64_t revision, int64_t now)
{
    if (revision > now)
        return (Refusal){SERVER_OUT_OF_RANGE,
                         "etcdserver: mvcc: required revision is a future revision"};
    if (revision < server->mvcc.compacted)
        return (Refusal){SERVER_OUT_OF_RANGE,
                         "etcdserver: mvcc: required revision has been compacted"};
    return REFUSAL_NONE;
}

Refusal kv_range(Server *server, size_t member, const Caller *caller,
                 const Pb__RangeRequest *request, ProtobufCMessage **ret)
{
    KeyRange range = key_range(request->key, request->range_end);
    int64_t now = server->members[member].applied;
    Refusal refusal = users_may(server, caller, &range, SERVER_READ);

    if (refusal.code == SERVER_OK)
        refusal = check_revision(server, request->revision > 0 ? request->revision : now, now);
    if (refusal.code != SERVER_OK)
        return refusal;
    Pb__RangeResponse *response = range_response(server, request, now);
    response->header = raft_header(server, member, now);
    *ret = &response->base;
    return REFUSAL_NONE;
}

/* ---- transaction ---- */

static int compare_numbers(int64_t a, int64_t b) { return a < b ? -1 : a > b; }

/* Returns whether a comparison holds. A comparison without an operand, or with the operand of
 * another target, compares with 0 or an empty value. */
static bool holds(const Server *server, const Pb__Compare *compare, int64_t now)
{
    static const Version none = {0};
    const Version *version = mvcc_get(&server->mvcc, bytes_from(compare->key), now);
    int r = 0;

    if (!version && compare->target == PB__COMPARE__TARGET__VALUE)
        return false;
    version = version ? version : &none;
    switch (compare->target) {
    case PB__COMPARE__TARGET__VERSION:
        r = compare_numbers(version->version, compare->operand_case == PB__COMPARE__OPERAND_VERSION
                                                  ? compare->version
                                                  : 0);
        break;
    case PB__COMPARE__TARGET__CREATE:
        r = compare_numbers(version->create_revision,
                            compare->operand_case == PB__COMPARE__OPERAND_CREATE_REVISION
                                ? compare->create_revision
                                : 0);
        break;
    case PB__COMPARE__TARGET__MOD:
        r = compare_numbers(version->mod_revision,
                            compare->operand_case == PB__COMPARE__OPERAND_MOD_REVISION
                                ? compare->mod_revision
                                : 0);
        break;
    case PB__COMPARE__TARGET__VALUE:
        r = version->n_value > 0;
        break;
    case PB__COMPARE__TARGET__LEASE:
        r = compare_numbers(version->lease, 0);
        break;
    default:
        break;
    }
    switch (compare->result) {
    case PB__COMPARE__RESULT__EQUAL:
        return r == 0;
    case PB__COMPARE__RESULT__GREATER:
        return r > 0;
    case PB__COMPARE__RESULT__LESS:
        return r < 0;
    case PB__COMPARE__RESULT__NOT_EQUAL:
        return r != 0;
    default:
        return true;
    }
}

static Refusal check_rights(const Server *server, const Caller *caller,
                            const Pb__TxnRequest *request)
{
    Refusal refusal = REFUSAL_NONE;

    for (size_t i = 0; i < request->n_compare && refusal.code == SERVER_OK; i++) {
        KeyRange range = key_range(request->compare[i]->key, (ProtobufCBinaryData){0});
        refusal = users_may(server, caller, &range, SERVER_READ);
    }
    for (size_t i = 0; i < request->n_success && refusal.code == SERVER_OK; i++) {
        const Pb__RequestOp *op = request->success[i];
        bool reads = op->request_case == PB__REQUEST_OP__REQUEST_RANGE;
        KeyRange range = reads ? key_range(op->range->key, op->range->range_end)
                         : op->request_case == PB__REQUEST_OP__REQUEST_PUT
                             ? key_range(op->put->key, (ProtobufCBinaryData){0})
                             : key_range(op->delete_range->key, op->delete_range->range_end);
        refusal = users_may(server, caller, &range, reads ? SERVER_READ : SERVER_WRITE);
    }
    return refusal;
}

/* Checks the whole transaction. Refuses the transaction if it uses a lease or reads at a revision
 * that does not exist. */
static Refusal check_ops(const Server *server, const Pb__TxnRequest *request, int64_t now)
{
    Refusal refusal = REFUSAL_NONE;

    for (size_t i = 0; i < request->n_success; i++) {
        const Pb__RequestOp *op = request->success[i];
        if (op->request_case == PB__REQUEST_OP__REQUEST_PUT && op->put->lease != 0 &&
            !lessor_find(server, op->put->lease))
            return (Refusal){SERVER_NOT_FOUND, "etcdserver: requested lease not found"};
    }
    for (size_t i = 0; i < request->n_success && refusal.code == SERVER_OK; i++) {
        const Pb__RequestOp *op = request->success[i];
        if (op->request_case == PB__REQUEST_OP__REQUEST_RANGE && op->range->revision != 0)
            refusal = check_revision(server, op->range->revision, now);
    }
    return refusal;
}

/* Returns the header for an answer that is part of a Txn's answer. Such a header has only a
 * revision. */
static Pb__ResponseHeader *inner_header(int64_t revision)
{
    Pb__ResponseHeader *header = memory_new(Pb__ResponseHeader);

    pb__response_header__init(header);
    header->revision = revision;
    return header;
}

static Pb__ResponseOp *perform(Server *server, const Pb__RequestOp *op, int64_t now)
{
    Pb__ResponseOp *ret = memory_new(Pb__ResponseOp);

    pb__response_op__init(ret);
    switch (op->request_case) {
    case PB__REQUEST_OP__REQUEST_RANGE:
        ret->response_case = PB__RESPONSE_OP__RESPONSE_RANGE;
        ret->range = range_response(server, op->range, now ? now : mvcc_revision(server));
        ret->range->header = inner_header(now ? now : mvcc_revision(server));
        break;
    case PB__REQUEST_OP__REQUEST_PUT:
        mvcc_put(server, bytes_from(op->put->key), bytes_from(op->put->value), op->put->lease);
        ret->response_case = PB__RESPONSE_OP__RESPONSE_PUT;
        ret->put = memory_new(Pb__PutResponse);
        pb__put_response__init(ret->put);
        ret->put->header = inner_header(mvcc_revision(server));
        break;
    case PB__REQUEST_OP__REQUEST_DELETE_RANGE: {
        KeyRange range = key_range(op->delete_range->key, op->delete_range->range_end);
        ret->response_case = PB__RESPONSE_OP__RESPONSE_DELETE_RANGE;
        ret->delete_range = memory_new(Pb__DeleteRangeResponse);
        pb__delete_range_response__init(ret->delete_range);
        ret->delete_range->deleted = mvcc_delete(server, &range);
        ret->delete_range->header = inner_header(mvcc_revision(server));
        break;
    }
    default:
        assert(false); /* kv_check_txn() has refused other kinds */
    }
    return ret;
}

static bool costs_space(const Pb__TxnRequest *request)
{
    for (size_t i = 0; i < request->n_success; i++)
        if (request->success[i]->request_case == PB__REQUEST_OP__REQUEST_PUT)
            return true;
    return false;
}

Refusal kv_txn(Server *server, size_t member, const Caller *caller, const Pb__TxnRequest *request,
               ProtobufCMessage **ret)
{
    bool writes = !kv_only_reads(request);
    /* A read sees the revisions that its member has applied; a write sees all earlier writes. */
    int64_t now = writes ? server->mvcc.revision : server->members[member].applied;
    Refusal refusal = check_rights(server, caller, request);
    bool succeeded = true;

    if (refusal.code == SERVER_OK && server->nospace && costs_space(request))
        refusal = (Refusal){SERVER_RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"};
    if (refusal.code != SERVER_OK)
        return refusal;
    for (size_t i = 0; i < request->n_compare && succeeded; i++)
        succeeded = holds(server, request->compare[i], now);
    if (succeeded)
        refusal = check_ops(server, request, now);
    if (refusal.code != SERVER_OK)
        return refusal;

    Pb__TxnResponse *response = memory_new(Pb__TxnResponse);
    pb__txn_response__init(response);
    response->succeeded = succeeded;
    if (succeeded && request->n_success > 0) {
        response->n_responses = request->n_success;
        response->responses = memory_zeroed(request->n_success, sizeof(Pb__ResponseOp *));
        if (writes)
            mvcc_begin(server);
        for (size_t i = 0; i < request->n_success; i++)
            response->responses[i] = perform(server, request->success[i], writes ? 0 : now);
        if (writes)
            mvcc_end(server);
    }
    response->header = raft_header(server, member, writes ? server->mvcc.revision : now);
    *ret = &response->base;
    return REFUSAL_NONE;
}
