/* SPDX-License-Identifier: Apache-2.0 */
/* testing-memory-calls.c - see testing-memory.h: requests and their answers. */
#include "base/memory.h"
#include "etcd/test/testing-memory.h"

#include <errno.h>
#include <string.h>

enum { CALLS_MAX = 256, OPS_MAX = 120, ANSWERS_MAX = 4000, ROUNDS_MAX = 100 };

struct EtcdCall {
    const Etcd *etcd;
    CallKind kind;
    char *key; /* the key that is read, or that is written first */
    bool prefix;
    EtcdRangeHandler read; /* the handler of a CALL_READ */
    EtcdTxnHandler written;
    void *userdata;
    EtcdCompare guards[OPS_MAX]; /* keys and values are copies */
    EtcdOp ops[OPS_MAX];
    size_t n_guards, n_ops;
    int64_t lease;     /* the lease to revoke */
    EtcdKeyValue *kvs; /* what etcd has read; NULL: nothing yet */
    size_t n_kvs;
    int64_t revision;
};

static EtcdCall *calls[CALLS_MAX], *late;
static const EtcdCall *answering; /* the call whose handler runs */
static size_t n_calls;

size_t n_calls_of_all(void) { return n_calls + (late != NULL); }

/* Returns NULL if the request cannot begin. */
static EtcdCall *add_call(Etcd *etcd, CallKind kind, const char *key, void *userdata,
                          EtcdCall **ret)
{
    if (etcd->fails < 0) {
        etcd->n_failed++;
        return NULL;
    }
    assert_true(n_calls < CALLS_MAX);
    EtcdCall *call = calls[n_calls++] = memory_new(EtcdCall);
    call->etcd = etcd;
    call->kind = kind;
    call->key = memory_text(key);
    call->userdata = userdata;
    etcd->n_begun[kind]++;
    if (ret)
        *ret = call;
    return call;
}

int etcd_get(Etcd *etcd, const char *key, bool prefix, EtcdRangeHandler handler, void *userdata,
             EtcdCall **ret)
{
    assert_true(!etcd->range || (prefix && strcmp(key, etcd->range) == 0));
    EtcdCall *call = add_call(etcd, CALL_READ, key, userdata, ret);
    if (!call)
        return etcd->fails;
    call->read = handler;
    call->prefix = prefix;
    return 0;
}

int etcd_txn(Etcd *etcd, const EtcdCompare *compares, size_t n_compares, const EtcdOp *ops,
             size_t n_ops, EtcdTxnHandler handler, void *userdata, EtcdCall **ret)
{
    EtcdCall *call = add_call(etcd, CALL_TXN, ops[0].key, userdata, ret);
    if (!call)
        return etcd->fails;
    assert_true(n_compares <= OPS_MAX && n_ops <= OPS_MAX);
    call->written = handler;
    for (size_t i = 0; i < n_compares; i++) {
        call->guards[call->n_guards] = compares[i];
        call->guards[call->n_guards++].key = memory_text(compares[i].key);
    }
    for (size_t i = 0; i < n_ops; i++) {
        EtcdOp *op = &call->ops[call->n_ops++];
        *op = ops[i];
        op->key = memory_text(op->key);
        op->value = op->value ? memory_text(op->value) : NULL;
    }
    return 0;
}

int etcd_request_rights(Etcd *etcd, const char *key, EtcdTxnHandler handler, void *userdata,
                        EtcdCall **ret)
{
    EtcdCall *call = add_call(etcd, CALL_RIGHTS, key, userdata, ret);
    if (!call)
        return etcd->fails;
    call->written = handler;
    (void)snprintf(etcd->last_right, sizeof(etcd->last_right), "%s", key);
    return 0;
}

int etcd_revoke(Etcd *etcd, int64_t id, EtcdTxnHandler done, void *userdata, EtcdCall **ret)
{
    EtcdCall *call = add_call(etcd, CALL_REVOKE, "lease", userdata, ret);
    if (!call)
        return etcd->fails;
    call->written = done;
    call->lease = id;
    return 0;
}

static void end_call(EtcdCall *call)
{
    for (size_t i = 0; i < call->n_guards; i++)
        free((char *)call->guards[i].key);
    for (size_t i = 0; i < call->n_ops; i++) {
        free((char *)call->ops[i].key);
        free((char *)call->ops[i].value);
    }
    free(call->kvs);
    free(call->key);
    free(call);
}

static void take_call(const EtcdCall *call)
{
    size_t i = 0;
    while (i < n_calls && calls[i] != call)
        i++;
    assert_true(i < n_calls); /* the call is under way */
    memmove(&calls[i], &calls[i + 1], sizeof(calls[0]) * (--n_calls - i));
}

EtcdCall *etcd_call_free(EtcdCall *call)
{
    if (call && call != answering) {
        take_call(call);
        end_call(call);
    }
    return NULL;
}

/* ---- requests under way ---- */

static EtcdCall *find_under_way(const Etcd *etcd, const char *key)
{
    for (size_t i = 0; i < n_calls; i++)
        if (calls[i]->etcd == etcd && strcmp(calls[i]->key, key) == 0)
            return calls[i];
    return NULL;
}

bool is_under_way(const Etcd *etcd, const char *key) { return find_under_way(etcd, key); }

EtcdCall *under_way(const Etcd *etcd, const char *key)
{
    EtcdCall *call = find_under_way(etcd, key);
    if (!call)
        fail_msg("no request for %s is under way", key);
    return call;
}

size_t n_under_way(const Etcd *etcd)
{
    size_t n = 0;
    for (size_t i = 0; i < n_calls; i++)
        n += calls[i]->etcd == etcd;
    return n;
}

EtcdCall *newest_call(const Etcd *etcd, CallKind kind)
{
    for (size_t i = n_calls; i-- > 0;)
        if (calls[i]->etcd == etcd && calls[i]->kind == kind)
            return calls[i];
    fail_msg("no request of kind %d is under way", kind);
    return NULL;
}

EtcdCall *oldest_call(const Etcd *etcd, CallKind kind)
{
    for (size_t i = 0; i < n_calls; i++)
        if (calls[i]->etcd == etcd && calls[i]->kind == kind)
            return calls[i];
    return newest_call(etcd, kind); /* ends the test */
}

/* ---- answers ---- */

void take_snapshot(EtcdCall *read)
{
    read->kvs = copy_keys(read->key, read->prefix, &read->n_kvs);
    read->revision = newest_revision;
}

static bool holds(const EtcdCompare *guard)
{
    const StoredKey *k = find(guard->key);
    const int64_t is = !k                                      ? 0
                       : guard->target == ETCD_MOD_REVISION    ? k->modified
                       : guard->target == ETCD_CREATE_REVISION ? k->created
                                                               : k->version;
    return is == guard->equals;
}

static void run_op(EtcdCall *call, const EtcdOp *op)
{
    size_t n;
    EtcdKeyValue *kvs = copy_keys(op->key, op->kind == ETCD_DELETE_PREFIX, &n);
    assert_true(op->lease == 0 || lease_lives(op->lease));
    if (op->kind == ETCD_PUT)
        change_at(newest_revision, op->key, op->value, op->lease);
    else if (op->kind == ETCD_GET && n > 0)
        call->kvs[call->n_kvs++] = kvs[0];
    else
        for (size_t i = 0; i < n; i++)
            change_at(newest_revision, kvs[i].key, NULL, 0);
    free(kvs);
}

/* Returns whether the guards held, so that the transaction was done. */
static bool transact(EtcdCall *call)
{
    bool writes_any = false;
    for (size_t i = 0; i < call->n_guards; i++)
        if (!holds(&call->guards[i]))
            return false;
    for (size_t i = 0; i < call->n_ops; i++)
        writes_any |= call->ops[i].kind != ETCD_GET;
    newest_revision += writes_any;
    call->kvs = memory_zeroed(OPS_MAX, sizeof(*call->kvs));
    for (size_t i = 0; i < call->n_ops; i++)
        run_op(call, &call->ops[i]);
    return true;
}

void come_late(void)
{
    assert_non_null(late);
    (void)transact(late);
    end_call(late);
    late = NULL;
}

void answer(EtcdCall *call, AnswerKind kind)
{
    Error err = ERROR_INIT;
    bool is_done = kind == GIVEN || kind == LOST_AFTER;
    int r = kind == GIVEN    ? 0
            : kind == DENIED ? error_set(&err, -EACCES, "permission denied")
                             : error_set(&err, -ETIMEDOUT, "no answer");
    take_call(call);
    answering = call;
    if (is_done && call->kind == CALL_TXN)
        is_done = transact(call);
    else if (is_done && call->kind == CALL_REVOKE && !end_lease(call->lease) && r == 0)
        r = error_set(&err, -ESTALE, "no such lease");
    if (call->kind == CALL_READ) {
        if (!call->kvs)
            take_snapshot(call);
        const EtcdRange range = {call->kvs, call->n_kvs, call->revision};
        call->read(r, &err, r ? NULL : &range, call->userdata);
    } else if (call->written) {
        const EtcdTxnResult result = {is_done, newest_revision, call->kvs, call->n_kvs};
        call->written(r, &err, r ? NULL : &result, call->userdata);
    }
    answering = NULL;
    if (kind == LATE) {
        assert_true(!late && call->kind == CALL_TXN);
        late = call;
    } else {
        end_call(call);
    }
}

void answer_kind(const Etcd *etcd, CallKind kind, AnswerKind with)
{
    for (size_t i = 0; i < n_calls;)
        if (calls[i]->etcd == etcd && calls[i]->kind == kind)
            answer(calls[i], with);
        else
            i++;
}

/* Returns the first request whose answer gets through; NULL: there is none. */
static EtcdCall *next_to_answer(void)
{
    for (size_t i = 0; i < n_calls; i++)
        if (!calls[i]->etcd->is_cut)
            return calls[i];
    return NULL;
}

void answer_all(void)
{
    EtcdCall *call;
    for (int n = 0; (call = next_to_answer()); n++)
        if (n < ANSWERS_MAX)
            answer(call, GIVEN);
        else
            fail_msg("%s is requested again and again", call->key);
}

void settle(void)
{
    bool any = true;
    for (int n = 0; any; n++) {
        assert_true(n < ROUNDS_MAX);
        any = show_everybody();
        pass(gather_usec);
        any |= next_to_answer() != NULL;
        answer_all();
    }
}
