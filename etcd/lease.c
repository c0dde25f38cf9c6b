/* SPDX-License-Identifier: Apache-2.0 */
/* lease.c - a lease that is granted, renewed and, when lost, granted anew.
 *
 * Only one keep-alive is outstanding at a time, so it is clear which keep-alive an answer acknowledges. If a keep-alive
 * is not answered within a quarter of the TTL, the next keep-alive goes to another member, and the slow member is
 * avoided for another quarter; the rest of the TTL suffices for two more attempts. Only the server's report (TTL 0)
 * counts as a loss.
 *
 * A leader whose disk hangs does not notice that it was replaced, and continues to answer keep-alives
 * from memory (at least in etcd 3.4) while the lease expires under its successor. So each
 * keep-alive is sent together with a read that needs a quorum, the witness, to the same member: the lease is renewed
 * only by both answers, with the same raft term. The answers prove that a quorum followed one leader after both
 * requests were sent, and any later leader gives every lease its full TTL again. */
#include "base/log.h"
#include "etcd/etcd-internal.h"

#include <string.h>

enum {
    ANSWER_MIN_MSEC = 300,
};

struct EtcdLease {
    Etcd *etcd;
    int64_t wanted_ttl_sec;
    char *witness_key;
    EtcdLeaseHandler handler;
    void *userdata;

    int64_t id, ttl_sec; /* id is 0 while no lease is held */
    uint64_t deadline_usec;
    EtcdCall *granting;
    Rpc *stream, *witness;
    sd_event_source *timer;
    uint64_t sent_usec; /* when the last keep-alive and its witness were sent */
    bool waiting;       /* the answer to the keep-alive or to the witness is due */
    bool answered, witnessed;
    int64_t answered_ttl_sec;
    uint64_t answered_term, witnessed_term;
    bool revoked, complained;
    unsigned n_failures;
};

static const WireMethod grant_method = {
    .path = "/etcdserverpb.Lease/LeaseGrant",
    .purpose = "lease grant",
    .response = &pb__lease_grant_response__descriptor,
    .unary = true,
};
static const WireMethod revoke_method = {
    .path = "/etcdserverpb.Lease/LeaseRevoke",
    .purpose = "lease revocation",
    .response = &pb__lease_revoke_response__descriptor,
    .unary = true,
};
static const WireMethod keep_alive_method = {
    .path = "/etcdserverpb.Lease/LeaseKeepAlive",
    .purpose = "lease renewal",
    .response = &pb__lease_keep_alive_response__descriptor,
};

static void timer_set(EtcdLease *lease, uint64_t at_usec)
{
    /* Setting a timer fails only when the event loop has finished. */
    (void)sd_event_source_set_time(lease->timer, at_usec);
    (void)sd_event_source_set_enabled(lease->timer, SD_EVENT_ONESHOT);
}

static uint64_t ttl_usec(const EtcdLease *lease) { return (uint64_t)lease->ttl_sec * USEC_PER_SEC; }

static uint64_t answer_usec(const EtcdLease *lease)
{
    return MAX(ttl_usec(lease) / 4, ANSWER_MIN_MSEC * USEC_PER_MSEC);
}

/* ---- grant ---- */

static void grant_again(EtcdLease *lease)
{
    timer_set(lease, clock_boottime_usec() + backoff_usec(lease->n_failures++));
}

static void granted(EtcdCall *call, int r, const Error *err _unused_, ProtobufCMessage *message)
{
    EtcdLease *lease = call->context;
    Pb__LeaseGrantResponse *answer = (Pb__LeaseGrantResponse *)message;

    assert(!lease->waiting);
    lease->granting = NULL;
    if (r == 0 && answer->id != 0 && answer->ttl > 0) {
        lease->id = answer->id;
        lease->ttl_sec = answer->ttl;
        lease->n_failures = 0;
        lease->sent_usec = call->attempt_usec;
        lease->deadline_usec = lease->sent_usec + ttl_usec(lease);
        timer_set(lease, lease->sent_usec + ttl_usec(lease) / 4);
        message_free(message);
        lease->handler(ETCD_LEASE_GRANTED, lease->id, lease->userdata); /* may free `lease` */
        return;
    }
    message_free(message);
    grant_again(lease);
}

static int grant_start(EtcdLease *lease)
{
    Pb__LeaseGrantRequest request = PB__LEASE_GRANT_REQUEST__INIT;

    assert(lease->id == 0 && !lease->granting && !lease->revoked);
    request.ttl = lease->wanted_ttl_sec;
    int r = call_new(lease->etcd, &grant_method, &request.base, granted, lease, &lease->granting);
    if (r < 0)
        return r;
    lease->granting->repeatable = true; /* if two leases are granted, the unused one expires */
    call_start(lease->granting);
    return 0;
}

/* ---- renewal ---- */

/* Ends the attempt. An unanswered witness is only detached, not cancelled: so the watchdog still notices if its member
 * stays silent, and the client then leaves the member with all its streams. */
static void end_attempt(EtcdLease *lease, int r)
{
    assert(lease->waiting);
    call_observe(lease->etcd, &keep_alive_method, r, lease->sent_usec);
    lease->waiting = false;
    lease->witness = rpc_forget(lease->witness);
}

static void try_again_soon(EtcdLease *lease)
{
    uint64_t pause_usec = backoff_usec(lease->n_failures++);
    timer_set(lease, clock_boottime_usec() + MIN(pause_usec, ttl_usec(lease) / 8));
}

static void conclude(EtcdLease *lease)
{
    int64_t id = lease->id, ttl_sec = lease->answered_ttl_sec;

    assert(lease->waiting && id != 0);
    if (!lease->answered || !lease->witnessed)
        return;
    if (lease->answered_term != lease->witnessed_term) { /* the answers are of two leaders */
        end_attempt(lease, -EAGAIN);
        try_again_soon(lease);
        return;
    }
    end_attempt(lease, ttl_sec > 0 ? 0 : -ESTALE);
    lease->n_failures = 0;
    if (ttl_sec > 0) {
        lease->ttl_sec = ttl_sec;
        lease->deadline_usec = lease->sent_usec + ttl_usec(lease);
        timer_set(lease, lease->sent_usec + ttl_usec(lease) / 4);
        lease->handler(ETCD_LEASE_RENEWED, id, lease->userdata); /* may free `lease` */
        return;
    }
    lease->id = 0;
    lease->stream = rpc_cancel(lease->stream);
    timer_set(lease, clock_boottime_usec());
    lease->handler(ETCD_LEASE_LOST, id, lease->userdata); /* may free `lease` */
}

static void on_lease_message(void *userdata, ProtobufCMessage *message)
{
    EtcdLease *lease = userdata;
    Pb__LeaseKeepAliveResponse *answer = (Pb__LeaseKeepAliveResponse *)message;
    bool ours = answer->id == lease->id && lease->waiting && !lease->answered;

    if (ours) {
        lease->answered = true;
        lease->answered_ttl_sec = answer->ttl;
        lease->answered_term = answer->header ? answer->header->raft_term : 0;
    }
    message_free(message);
    if (ours)
        conclude(lease);
}

static void on_lease_ended(void *userdata, const RpcStatus *status)
{
    EtcdLease *lease = userdata;

    lease->stream = NULL;
    stream_ended(lease->etcd, status);
    if (!lease->waiting)
        return; /* the next renewal opens a new stream */
    end_attempt(lease, status->silent ? -ETIMEDOUT : -ECONNREFUSED);
    try_again_soon(lease);
}

static void on_witness(void *userdata, ProtobufCMessage *message)
{
    EtcdLease *lease = userdata;
    const Pb__RangeResponse *answer = (const Pb__RangeResponse *)message;

    assert(lease->waiting && lease->witness); /* only the newest witness is attached */
    lease->witnessed = true;
    lease->witnessed_term = answer->header ? answer->header->raft_term : 0;
    message_free(message);
}

static void on_witness_ended(void *userdata, const RpcStatus *status)
{
    EtcdLease *lease = userdata;

    lease->witness = NULL;
    if (lease->witnessed) {
        conclude(lease);
        return;
    }
    if (status->code == WIRE_PERMISSION_DENIED && !lease->complained) {
        char words[ETCD_WORDS_BYTES];
        auth_describe(lease->etcd, status->text, words);
        log_warning("etcd at %s: a lease is not renewed because %s can't be read: %s",
                    status->endpoint->address, lease->witness_key, words);
        lease->complained = true;
    }
    lease->stream = rpc_cancel(lease->stream);
    on_lease_ended(lease, status);
}

static const RpcEvents keep_alive_events = {.message = on_lease_message, .ended = on_lease_ended};
static const RpcEvents witness_events = {.message = on_witness, .ended = on_witness_ended};

static void query_witness(EtcdLease *lease)
{
    Pb__RangeRequest request = PB__RANGE_REQUEST__INIT;

    assert(lease->waiting && lease->stream && !lease->witness);
    request.key = bytes_of(lease->witness_key);
    request.count_only = true;
    _cleanup_(wire_request_freep) WireRequest *packed = wire_request_new(&request.base);
    lease->witness =
        rpc_start(lease->etcd, lease->stream->endpoint, &range_method, packed,
                  lease->sent_usec + lease->etcd->timeout_usec, &witness_events, lease);
}

static void renew(EtcdLease *lease)
{
    Pb__LeaseKeepAliveRequest request = PB__LEASE_KEEP_ALIVE_REQUEST__INIT;

    assert(lease->id != 0 && !lease->granting);
    if (lease->waiting) { /* no answer has arrived in time */
        assert(lease->stream);
        endpoint_avoid(lease->stream->endpoint, answer_usec(lease));
        lease->stream = rpc_cancel(lease->stream);
        end_attempt(lease, -ETIMEDOUT);
    }
    if (!lease->stream && !auth_ready(lease->etcd)) {
        timer_set(lease, clock_boottime_usec() + ttl_usec(lease) / 16);
        return;
    }
    request.id = lease->id;
    lease->sent_usec = clock_boottime_usec();
    lease->waiting = true;
    lease->answered = lease->witnessed = false;
    timer_set(lease, lease->sent_usec + answer_usec(lease));
    if (lease->stream) {
        /* -EBUSY: the previous message is not even sent; then the timer will find no answer. */
        (void)rpc_send(lease->stream, &request.base);
    } else {
        _cleanup_(wire_request_freep) WireRequest *packed = wire_request_new(&request.base);
        lease->stream = rpc_start(lease->etcd, endpoint_pick(lease->etcd), &keep_alive_method,
                                  packed, USEC_INFINITY, &keep_alive_events, lease);
    }
    query_witness(lease);
}

static int on_lease_timer(sd_event_source *source _unused_, uint64_t usec _unused_, void *userdata)
{
    EtcdLease *lease = userdata;

    if (lease->etcd->closed || lease->revoked)
        return 0;
    if (lease->id != 0)
        renew(lease);
    else if (!lease->granting && grant_start(lease) < 0)
        grant_again(lease);
    return 0;
}

/* ---- creation and end ---- */

int etcd_lease_new(Etcd *etcd, int64_t ttl_sec, const char *witness_key, EtcdLeaseHandler handler,
                   void *userdata, EtcdLease **ret)
{
    if (ttl_sec <= 0 || !*witness_key)
        return -EINVAL;
    _cleanup_(etcd_lease_freep) EtcdLease *lease = memory_new(EtcdLease);
    lease->etcd = etcd_ref(etcd);
    lease->wanted_ttl_sec = ttl_sec;
    lease->witness_key = memory_text(witness_key);
    lease->handler = handler;
    lease->userdata = userdata;
    int r = timer_new(etcd, on_lease_timer, lease, &lease->timer);
    if (r >= 0)
        r = grant_start(lease);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(lease);
    return 0;
}

int64_t etcd_lease_id(const EtcdLease *lease) { return lease->id; }
int64_t etcd_lease_ttl_sec(const EtcdLease *lease) { return lease->ttl_sec; }
uint64_t etcd_lease_deadline_usec(const EtcdLease *lease) { return lease->deadline_usec; }

void etcd_lease_check(EtcdLease *lease)
{
    if (lease->id != 0 && !lease->waiting && !lease->revoked)
        timer_set(lease, clock_boottime_usec());
}

static void stop(EtcdLease *lease)
{
    if (!lease->etcd->closed) {
        lease->granting = etcd_call_free(lease->granting);
        lease->stream = rpc_cancel(lease->stream);
        lease->witness = rpc_cancel(lease->witness);
    }
    lease->id = 0;
}

EtcdLease *etcd_lease_free(EtcdLease *lease)
{
    if (!lease)
        return NULL;
    stop(lease);
    sd_event_source_disable_unref(lease->timer);
    (void)etcd_unref(lease->etcd);
    free(lease->witness_key);
    free(lease);
    return NULL;
}

static void revoked(EtcdCall *call, int r, const Error *err, ProtobufCMessage *message)
{
    EtcdTxnResult result = {0};

    if (r == 0) {
        const Pb__LeaseRevokeResponse *answer = (const Pb__LeaseRevokeResponse *)message;
        result.succeeded = true;
        result.revision = answer->header ? answer->header->revision : 0;
    }
    if (call->user.txn)
        call->user.txn(r, err, r == 0 ? &result : NULL, call->userdata);
    message_free(message);
}

int etcd_revoke(Etcd *etcd, int64_t id, EtcdTxnHandler done, void *userdata, EtcdCall **ret)
{
    Pb__LeaseRevokeRequest request = PB__LEASE_REVOKE_REQUEST__INIT;
    EtcdCall *call;

    request.id = id;
    int r = call_new(etcd, &revoke_method, &request.base, revoked, NULL, &call);
    if (r < 0)
        return r;
    call->repeatable = true;
    call->user.txn = done;
    call->userdata = userdata;
    call_start(call);
    if (ret)
        *ret = call;
    return 0;
}

int etcd_lease_revoke(EtcdLease *lease, EtcdTxnHandler done, void *userdata, EtcdCall **ret)
{
    const int64_t id = lease->id;
    lease->revoked = true;
    stop(lease);
    return id == 0 ? -ESTALE : etcd_revoke(lease->etcd, id, done, userdata, ret);
}
