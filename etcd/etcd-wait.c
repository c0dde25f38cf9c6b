/* SPDX-License-Identifier: Apache-2.0 */
/* etcd-wait.c - see etcd-wait.h. */
#include "etcd/etcd-wait.h"
#include "etcd/etcd-internal.h"

#include <string.h>

typedef struct Wait {
    bool done;
    int r;
    Error *err;
    EtcdAnswer *answer;
} Wait;

EtcdAnswer *etcd_answer_free(EtcdAnswer *answer)
{
    if (!answer)
        return NULL;
    for (size_t i = 0; i < answer->n_kvs; i++) {
        free((char *)answer->kvs[i].key);
        free((char *)answer->kvs[i].value);
    }
    free(answer->kvs);
    free(answer);
    return NULL;
}

static EtcdAnswer *answer_copy(const EtcdKeyValue *kvs, size_t n_kvs)
{
    EtcdAnswer *answer = memory_new(EtcdAnswer);
    answer->kvs = memory_zeroed(n_kvs, sizeof(*answer->kvs));
    answer->n_kvs = n_kvs;
    for (size_t i = 0; i < n_kvs; i++) {
        answer->kvs[i] = kvs[i];
        answer->kvs[i].key = memory_text(kvs[i].key);
        answer->kvs[i].value = memory_bytes(kvs[i].value, kvs[i].n_value);
    }
    return answer;
}

static void answered(Wait *wait, int r, const Error *err, const EtcdKeyValue *kvs, size_t n_kvs)
{
    wait->done = true;
    wait->r = r;
    if (r >= 0)
        wait->answer = answer_copy(kvs, n_kvs);
    else if (wait->err)
        *wait->err = *err;
}

static void on_range(int r, const Error *err, const EtcdRange *range, void *userdata)
{
    Wait *wait = userdata;

    answered(wait, r, err, range ? range->kvs : NULL, range ? range->n_kvs : 0);
    if (wait->answer) {
        wait->answer->succeeded = true;
        wait->answer->revision = range->revision;
    }
}

static void on_txn(int r, const Error *err, const EtcdTxnResult *result, void *userdata)
{
    Wait *wait = userdata;

    answered(wait, r, err, result ? result->kvs : NULL, result ? result->n_kvs : 0);
    if (wait->answer) {
        wait->answer->succeeded = result->succeeded;
        wait->answer->revision = result->revision;
    }
}

/* Runs the event loop until the answer has arrived. The call's own deadline bounds the wait. */
static int run(Etcd *etcd, EtcdCall *call, Wait *wait, EtcdAnswer **ret, Error *err)
{
    while (!wait->done) {
        int r = sd_event_run(etcd->event, UINT64_MAX);
        if (r >= 0 && sd_event_get_state(etcd->event) == SD_EVENT_FINISHED)
            r = -ECANCELED;
        if (r < 0 && !wait->done) {
            (void)etcd_call_free(call);
            return error_errno(err, r, "etcd: cannot wait for the answer");
        }
    }
    if (wait->r < 0)
        return wait->r;
    if (ret)
        *ret = wait->answer;
    else
        (void)etcd_answer_free(wait->answer);
    return 0;
}

int etcd_get_wait(Etcd *etcd, const char *key, bool prefix, EtcdAnswer **ret, Error *err)
{
    Wait wait = {.err = err};
    EtcdCall *call;

    int r = etcd_get(etcd, key, prefix, on_range, &wait, &call);
    if (r < 0)
        return error_errno(err, r, "etcd: cannot read %s", key);
    return run(etcd, call, &wait, ret, err);
}

int etcd_txn_wait(Etcd *etcd, const EtcdCompare *compares, size_t n_compares, const EtcdOp *ops,
                  size_t n_ops, EtcdAnswer **ret, Error *err)
{
    Wait wait = {.err = err};
    EtcdCall *call;

    int r = etcd_txn(etcd, compares, n_compares, ops, n_ops, on_txn, &wait, &call);
    if (r < 0)
        return error_errno(err, r, "etcd: cannot start a transaction");
    return run(etcd, call, &wait, ret, err);
}

int etcd_get_at_wait(Etcd *etcd, const char *key, int64_t revision, EtcdAnswer **ret, Error *err)
{
    Wait wait = {.err = err};
    EtcdCall *call;

    int r = etcd_get_at(etcd, key, revision, on_range, &wait, &call);
    if (r < 0)
        return error_errno(err, r, "etcd: cannot read %s", key);
    return run(etcd, call, &wait, ret, err);
}

int etcd_request_rights_wait(Etcd *etcd, const char *key, Error *err)
{
    Wait wait = {.err = err};
    EtcdCall *call;

    int r = etcd_request_rights(etcd, key, on_txn, &wait, &call);
    if (r < 0)
        return error_errno(err, r, "etcd: cannot start a transaction");
    return run(etcd, call, &wait, NULL, err);
}
