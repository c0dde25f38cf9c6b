/* SPDX-License-Identifier: Apache-2.0 */
/* kv.c - reads and transactions. */
#include "etcd/etcd-internal.h"

#include <string.h>

enum {
    PAGE_KEYS = 512, /* keys of a page; halved if a page does not fit into a message */
    OPS_MAX = 120,   /* operations of a transaction; etcd accepts 128 */
};

/* ---- get ---- */

const WireMethod range_method = {
    .path = "/etcdserverpb.KV/Range",
    .purpose = "read",
    .response = &pb__range_response__descriptor,
    .unary = true,
};

/* A read in progress, with the pages received so far. The messages of the pages own the memory of keys and values. */
typedef struct Get {
    char *key, *end;
    ProtobufCBinaryData end_bytes;
    int64_t limit, revision;
    Pb__RangeResponse **pages;
    size_t n_pages, n_kvs;
} Get;

static void get_forget_pages(Get *get)
{
    for (size_t i = 0; i < get->n_pages; i++)
        message_free(&get->pages[i]->base);
    free(get->pages);
    get->pages = NULL;
    get->n_pages = get->n_kvs = 0;
    get->revision = 0;
}

static void get_free(void *context)
{
    Get *get = context;

    get_forget_pages(get);
    free(get->key);
    free(get->end);
    free(get);
}

/* Makes the request for the first page, or for the page after the last key received. */
static Pb__RangeRequest get_request(const Get *get)
{
    Pb__RangeRequest request = PB__RANGE_REQUEST__INIT;

    request.key = *get->key ? bytes_of(get->key) : (ProtobufCBinaryData){1, (uint8_t *)get->key};
    request.range_end = get->end_bytes;
    request.limit = get->end_bytes.len ? get->limit : 0;
    request.revision = get->revision;
    if (get->n_kvs > 0) {
        const Pb__RangeResponse *last = get->pages[get->n_pages - 1];
        assert(last->n_kvs > 0); /* get_answered() refuses an empty page that is not the last */
        request.key = last->kvs[last->n_kvs - 1]->key;
        request.key.len++; /* a key and a NUL byte is the next possible key */
    }
    return request;
}

static void get_done(EtcdCall *call, const Get *get)
{
    size_t n = 0;
    _cleanup_free_ EtcdKeyValue *kvs = memory_zeroed(get->n_kvs, sizeof(*kvs));

    for (size_t i = 0; i < get->n_pages; i++)
        for (size_t j = 0; j < get->pages[i]->n_kvs; j++)
            kvs[n++] = key_value_view(get->pages[i]->kvs[j]);
    assert(n == get->n_kvs);
    EtcdRange range = {.kvs = kvs, .n_kvs = n, .revision = get->revision};
    call->user.range(0, &ERROR_INIT, &range, call->userdata);
}

static void get_failed(EtcdCall *call, Get *get, int r, const Error *err)
{
    if (strstr(err->text, "larger than max") && get->limit > 1) {
        get->limit /= 2;
    } else if (r == -ESTALE && get->n_pages > 0) {
        /* The revision was compacted between two pages: read all pages again, at a later revision. */
        get_forget_pages(get);
    } else {
        call->user.range(r, err, NULL, call->userdata);
        return;
    }
    Pb__RangeRequest request = get_request(get);
    call_again(call, &request.base);
}

/* Sets the error for an answer of which a part is missing. */
static int cut_short(const EtcdCall *call, Error *err)
{
    return error_set(err, -EIO, "etcd at %s: %s: a part of the answer is missing",
                     call->etcd->endpoint_list, call->method->purpose);
}

static void get_answered(EtcdCall *call, int r, const Error *err, ProtobufCMessage *message)
{
    Get *get = call->context;

    if (r < 0) {
        get_failed(call, get, r, err);
        return;
    }
    Pb__RangeResponse *page = (Pb__RangeResponse *)message;
    if (page->more && page->n_kvs == 0) { /* the next page would begin behind no key */
        Error cut = ERROR_INIT;
        message_free(message);
        call->user.range(cut_short(call, &cut), &cut, NULL, call->userdata);
        return;
    }
    history_note(call, page->header);
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers it is */
    get->pages = memory_resize(get->pages, get->n_pages + 1, sizeof(*get->pages));
    get->pages[get->n_pages++] = page;
    get->n_kvs += page->n_kvs;
    if (get->revision == 0 && page->header)
        get->revision = page->header->revision;
    if (page->more) {
        Pb__RangeRequest request = get_request(get);
        call_again(call, &request.base);
        return;
    }
    get_done(call, get);
}

static int get_start(Etcd *etcd, const char *key, bool prefix, int64_t revision,
                     EtcdRangeHandler handler, void *userdata, EtcdCall **ret)
{
    EtcdCall *call;

    if (!prefix && !*key)
        return -EINVAL;
    Get *get = memory_new(Get);
    get->limit = PAGE_KEYS;
    get->revision = revision;
    get->key = memory_text(key);
    get->end = memory_text(key);
    if (prefix)
        get->end_bytes = range_end(get->end);
    Pb__RangeRequest request = get_request(get);
    int r = call_new(etcd, &range_method, &request.base, get_answered, get, &call);
    if (r < 0) {
        get_free(get);
        return r;
    }
    call->context_free = get_free;
    call->repeatable = true;
    call->user.range = handler;
    call->userdata = userdata;
    call_start(call);
    if (ret)
        *ret = call;
    return 0;
}

int etcd_get(Etcd *etcd, const char *key, bool prefix, EtcdRangeHandler handler, void *userdata,
             EtcdCall **ret)
{
    return get_start(etcd, key, prefix, 0, handler, userdata, ret);
}

int etcd_get_at(Etcd *etcd, const char *key, int64_t revision, EtcdRangeHandler handler,
                void *userdata, EtcdCall **ret)
{
    return get_start(etcd, key, false, revision, handler, userdata, ret);
}

/* ---- transaction ---- */

static const WireMethod txn_method = {
    .path = "/etcdserverpb.KV/Txn",
    .purpose = "transaction",
    .response = &pb__txn_response__descriptor,
    .unary = true,
};

static void txn_answered(EtcdCall *call, int r, const Error *err, ProtobufCMessage *message)
{
    if (r < 0) {
        call->user.txn(r, err, NULL, call->userdata);
        return;
    }
    Pb__TxnResponse *answer = (Pb__TxnResponse *)message;
    if (answer->succeeded && answer->n_responses != call->n_results) {
        /* If the result of a read is missing, its key would seem not to exist. */
        Error cut = ERROR_INIT;
        message_free(message);
        call->user.txn(cut_short(call, &cut), &cut, NULL, call->userdata);
        return;
    }
    history_note(call, answer->header);
    size_t n = 0;
    for (size_t i = 0; i < answer->n_responses; i++)
        if (answer->responses[i]->response_case == PB__RESPONSE_OP__RESPONSE_RANGE)
            n += answer->responses[i]->range->n_kvs;

    _cleanup_free_ EtcdKeyValue *kvs = memory_zeroed(n, sizeof(*kvs));
    EtcdTxnResult result = {
        .succeeded = answer->succeeded,
        .revision = answer->header ? answer->header->revision : 0,
        .kvs = kvs,
    };
    for (size_t i = 0; i < answer->n_responses; i++) {
        const Pb__ResponseOp *op = answer->responses[i];
        for (size_t j = 0;
             op->response_case == PB__RESPONSE_OP__RESPONSE_RANGE && j < op->range->n_kvs; j++)
            kvs[result.n_kvs++] = key_value_view(op->range->kvs[j]);
    }
    call->user.txn(0, &ERROR_INIT, &result, call->userdata);
    message_free(message);
}

static Pb__Compare compare_pack(const EtcdCompare *compare)
{
    Pb__Compare ret = PB__COMPARE__INIT; /* PB__COMPARE__INIT compares for equality */

    ret.key = bytes_of(compare->key);
    switch (compare->target) {
    case ETCD_CREATE_REVISION:
        ret.target = PB__COMPARE__TARGET__CREATE;
        ret.operand_case = PB__COMPARE__OPERAND_CREATE_REVISION;
        ret.create_revision = compare->equals;
        return ret;
    case ETCD_MOD_REVISION:
        ret.target = PB__COMPARE__TARGET__MOD;
        ret.operand_case = PB__COMPARE__OPERAND_MOD_REVISION;
        ret.mod_revision = compare->equals;
        return ret;
    case ETCD_VERSION:
        ret.target = PB__COMPARE__TARGET__VERSION;
        ret.operand_case = PB__COMPARE__OPERAND_VERSION;
        ret.version = compare->equals;
        return ret;
    }
    return ret;
}

/* One packed operation, with the storage that its message points to. */
typedef struct PackedOp {
    Pb__RequestOp op;
    union {
        Pb__PutRequest put;
        Pb__DeleteRangeRequest delete_range;
        Pb__RangeRequest range;
    } request;
    char *end;
} PackedOp;

static void op_pack(const EtcdOp *op, PackedOp *ret)
{
    pb__request_op__init(&ret->op);
    switch (op->kind) {
    case ETCD_PUT:
        pb__put_request__init(&ret->request.put);
        ret->request.put.key = bytes_of(op->key);
        if (op->n_value > 0) /* the value need not end with a NUL */
            ret->request.put.value =
                (ProtobufCBinaryData){.data = (uint8_t *)op->value, .len = op->n_value};
        else
            ret->request.put.value = bytes_of(op->value ? op->value : "");
        ret->request.put.lease = op->lease;
        ret->op.request_case = PB__REQUEST_OP__REQUEST_PUT;
        ret->op.put = &ret->request.put;
        return;
    case ETCD_GET:
        pb__range_request__init(&ret->request.range);
        ret->request.range.key = bytes_of(op->key);
        ret->op.request_case = PB__REQUEST_OP__REQUEST_RANGE;
        ret->op.range = &ret->request.range;
        return;
    case ETCD_DELETE:
    case ETCD_DELETE_PREFIX:
        pb__delete_range_request__init(&ret->request.delete_range);
        ret->request.delete_range.key = bytes_of(op->key);
        if (op->kind == ETCD_DELETE_PREFIX) {
            ret->end = memory_text(op->key);
            ret->request.delete_range.range_end = range_end(ret->end);
        }
        ret->op.request_case = PB__REQUEST_OP__REQUEST_DELETE_RANGE;
        ret->op.delete_range = &ret->request.delete_range;
        return;
    }
}

int etcd_txn(Etcd *etcd, const EtcdCompare *compares, size_t n_compares, const EtcdOp *ops,
             size_t n_ops, EtcdTxnHandler handler, void *userdata, EtcdCall **ret)
{
    if (n_ops > OPS_MAX || n_compares > OPS_MAX)
        return -E2BIG;

    Pb__Compare packed_compares[OPS_MAX], *compare_list[OPS_MAX];
    Pb__RequestOp *op_list[OPS_MAX];
    _cleanup_free_ PackedOp *packed_ops = memory_zeroed(n_ops, sizeof(*packed_ops));
    Pb__TxnRequest request = PB__TXN_REQUEST__INIT;
    EtcdCall *call = NULL;
    int r = 0;

    for (size_t i = 0; i < n_compares; i++) {
        packed_compares[i] = compare_pack(&compares[i]);
        compare_list[i] = &packed_compares[i];
        r = *compares[i].key ? r : -EINVAL;
    }
    for (size_t i = 0; i < n_ops; i++) {
        op_list[i] = &packed_ops[i].op;
        op_pack(&ops[i], &packed_ops[i]);
        r = *ops[i].key ? r : -EINVAL;
    }
    request.n_compare = n_compares;
    request.compare = compare_list;
    request.n_success = n_ops;
    request.success = op_list;
    if (r == 0)
        r = call_new(etcd, &txn_method, &request.base, txn_answered, NULL, &call);
    for (size_t i = 0; i < n_ops; i++)
        free(packed_ops[i].end);
    if (r < 0)
        return r;
    call->n_results = n_ops;
    call->user.txn = handler;
    call->userdata = userdata;
    call_start(call);
    if (ret)
        *ret = call;
    return 0;
}
