/* SPDX-License-Identifier: Apache-2.0 */
/* call.c - one request with a deadline.
 *
 * A request that is safe to repeat (reads, lease grants) is tried on one endpoint after the other until
 * its deadline. A transaction is tried again only if the last attempt certainly had no effect:
 * no connection was made, the member refused it at once because it had no leader, or the member refused the
 * token. Any other failure is reported to the caller, because etcd may have executed the transaction. */
#include "etcd/etcd-internal.h"

#include <string.h>

enum {
    PAUSE_MSEC = 100,         /* pause between two tries of the same endpoint */
    REFUSED_AVOID_MSEC = 500, /* time to avoid an endpoint that accepts no connection */
    LEADERLESS_AVOID_MSEC = 1000,
    /* How many tokens of one call may be refused: a member that lags behind may not know a new token yet. */
    TOKENS_MAX = 3,
};

uint64_t backoff_usec(unsigned n_failures)
{
    return MIN(UINT64_C(50) << MIN(n_failures, 5u), UINT64_C(1000)) * USEC_PER_MSEC;
}

ProtobufCBinaryData bytes_of(const char *text)
{
    return (ProtobufCBinaryData){.data = (uint8_t *)text, .len = strlen(text)};
}

ProtobufCBinaryData range_end(char *prefix)
{
    for (size_t n = strlen(prefix); n > 0; n--)
        if ((uint8_t)prefix[n - 1] != 0xff) {
            prefix[n - 1]++;
            return (ProtobufCBinaryData){.data = (uint8_t *)prefix, .len = n};
        }
    prefix[0] = 0; /* in etcd, "\0" stands for the end of all keys */
    return (ProtobufCBinaryData){.data = (uint8_t *)prefix, .len = 1};
}

EtcdKeyValue key_value_view(const Pb__KeyValue *kv)
{
    return (EtcdKeyValue){
        .key = kv->key.data ? (const char *)kv->key.data : "",
        .value = kv->value.data ? (const char *)kv->value.data : "",
        .n_value = kv->value.len,
        .create_revision = kv->create_revision,
        .mod_revision = kv->mod_revision,
        .version = kv->version,
        .lease = kv->lease,
    };
}

/* ---- the meaning of a status ---- */

static bool says(const RpcStatus *status, const char *text) { return strstr(status->text, text); }

/* Whether the member refused the request without executing it, because the member had no leader. */
static bool leaderless(const RpcStatus *status)
{
    return status->code == WIRE_UNAVAILABLE && says(status, "etcdserver: no leader");
}

static int status_errno(const RpcStatus *status)
{
    if (status->silent)
        return -ETIMEDOUT;
    switch (status->code) {
    case WIRE_OK:
        return 0;
    case WIRE_DEADLINE_EXCEEDED:
        return -ETIMEDOUT;
    case WIRE_UNAVAILABLE:
        return says(status, "etcdserver:") ? -ETIMEDOUT : -ECONNREFUSED;
    case WIRE_UNAUTHENTICATED:
    case WIRE_PERMISSION_DENIED:
        return -EACCES;
    case WIRE_INVALID_ARGUMENT:
        return says(status, "authentication failed") || says(status, "user name") ? -EACCES : -EIO;
    case WIRE_NOT_FOUND:
    case WIRE_OUT_OF_RANGE:
        return -ESTALE;
    default:
        return -EIO;
    }
}

static bool worth_repeating(const RpcStatus *status)
{
    return status->silent || status->code == WIRE_UNAVAILABLE || status->code == WIRE_INTERNAL ||
           status->code == WIRE_ABORTED;
}

static void judge_endpoint(const RpcStatus *status)
{
    if (status->unsent)
        endpoint_avoid(status->endpoint, REFUSED_AVOID_MSEC * USEC_PER_MSEC);
    else if (status->code == WIRE_UNAVAILABLE)
        endpoint_avoid(status->endpoint, LEADERLESS_AVOID_MSEC * USEC_PER_MSEC);
}

void stream_ended(Etcd *etcd, const RpcStatus *status)
{
    judge_endpoint(status);
    if (auth_token_refused(status))
        auth_forget(etcd);
}

/* ---- the life of a call ---- */

static void call_release(EtcdCall *call)
{
    LIST_REMOVE(call, list);
    call->rpc = rpc_cancel(call->rpc);
    sd_event_source_disable_unref(call->timer);
    if (call->context_free)
        call->context_free(call->context);
    (void)wire_request_free(call->request);
    message_free(call->answer);
    free(call);
}

EtcdCall *etcd_call_free(EtcdCall *call)
{
    /* If the call's own handler is running, call_answer() frees the call right after it. */
    if (call && call->state != CALL_ANSWERED)
        call_release(call);
    return NULL;
}

void etcd_set_observer(Etcd *etcd, EtcdObserver observer, void *userdata)
{
    etcd->observer = observer;
    etcd->observer_userdata = userdata;
}

void call_observe(Etcd *etcd, const WireMethod *method, int r, uint64_t begun_usec)
{
    const char *name = strrchr(method->path, '/') + 1; /* every path has a '/' */
    if (etcd->observer)
        etcd->observer(name, r, clock_boottime_usec() - begun_usec, etcd->observer_userdata);
}

static void call_answer(EtcdCall *call, int r, const Error *err, ProtobufCMessage *message)
{
    assert(call->state != CALL_ANSWERED && !call->rpc);
    call_observe(call->etcd, call->method, r, call->deadline_usec - call->etcd->timeout_usec);
    call->state = CALL_ANSWERED;
    call->handler(call, r, err, message);
    if (call->state == CALL_ANSWERED)
        call_release(call);
}

void call_fail(EtcdCall *call, int r, const Error *err)
{
    Error copy = *err; /* err may point into the call, which will be freed */
    call_answer(call, r, &copy, NULL);
}

static void call_timeout(EtcdCall *call)
{
    Error err = ERROR_INIT;
    double sec = (double)call->etcd->timeout_usec / (double)USEC_PER_SEC;
    int r = call->error.code ? call->error.code : -ETIMEDOUT;

    (void)error_set(&err, r, "etcd at %s: no %s within %.1f s%s%s", call->etcd->endpoint_list,
                    call->method->purpose, sec, call->error.code ? ", lastly: " : "",
                    call->error.text);
    call_fail(call, r, &err);
}

static void call_wait(EtcdCall *call, CallState state, uint64_t until_usec)
{
    assert(!call->rpc);
    call->state = state;
    /* Setting a timer fails only when the event loop has finished; then the call ends together with its Etcd. */
    (void)sd_event_source_set_time(call->timer, MIN(until_usec, call->deadline_usec));
    (void)sd_event_source_set_enabled(call->timer, SD_EVENT_ONESHOT);
}

static void call_pause(EtcdCall *call)
{
    bool fresh = ++call->n_attempts % call->etcd->n_endpoints != 0;
    uint64_t now = clock_boottime_usec();

    call_wait(call, CALL_PAUSING, fresh ? now : now + PAUSE_MSEC * USEC_PER_MSEC);
}

static void on_call_message(void *userdata, ProtobufCMessage *message)
{
    EtcdCall *call = userdata;

    assert(call->state == CALL_IN_FLIGHT);
    message_free(call->answer); /* a unary call has one answer; the last of several counts */
    call->answer = message;
}

static void on_call_ended(void *userdata, const RpcStatus *status)
{
    EtcdCall *call = userdata;
    int r = status_errno(status);

    assert(call->state == CALL_IN_FLIGHT && call->rpc);
    call->rpc = NULL;
    if (r == 0 && call->answer) {
        call_answer(call, 0, &ERROR_INIT, TAKE_PTR(call->answer));
        return;
    }
    if (r == 0)
        r = -EIO;
    char words[ETCD_WORDS_BYTES];
    auth_describe(call->etcd, status->text, words);
    (void)error_set(&call->error, r, "etcd at %s: %s: %s", status->endpoint->address,
                    call->method->purpose,
                    status->silent ? "it is silent"
                    : *words       ? words
                                   : "no answer");
    judge_endpoint(status);
    if (!call->anonymous && auth_token_refused(status) && ++call->n_tokens <= TOKENS_MAX) {
        auth_forget(call->etcd);
        call_pause(call);
    } else if (status->unsent || leaderless(status) ||
               (call->repeatable && worth_repeating(status)))
        call_pause(call);
    else if (status->code == WIRE_DEADLINE_EXCEEDED) {
        endpoint_avoid(status->endpoint, LEADERLESS_AVOID_MSEC * USEC_PER_MSEC);
        call->error = ERROR_INIT;
        call_timeout(call);
    } else
        call_fail(call, r, &call->error);
}

static const RpcEvents call_events = {.message = on_call_message, .ended = on_call_ended};

void call_attempt(EtcdCall *call)
{
    assert(call->state != CALL_IN_FLIGHT && !call->rpc);
    if (!call->anonymous && !auth_ready(call->etcd)) {
        call->auth_round = call->etcd->auth_round;
        call_wait(call, CALL_TOKENLESS, call->deadline_usec);
        return;
    }
    call->state = CALL_IN_FLIGHT;
    call->attempt_usec = clock_boottime_usec();
    (void)sd_event_source_set_enabled(call->timer, SD_EVENT_OFF);
    call->rpc = rpc_start(call->etcd, endpoint_pick(call->etcd), call->method, call->request,
                          call->deadline_usec, &call_events, call);
}

static int on_call_timer(sd_event_source *source _unused_, uint64_t usec _unused_, void *userdata)
{
    EtcdCall *call = userdata;

    assert(call->state == CALL_PAUSING || call->state == CALL_TOKENLESS);
    if (clock_boottime_usec() >= call->deadline_usec)
        call_timeout(call);
    else if (call->state == CALL_PAUSING)
        call_attempt(call);
    return 0;
}

int call_new(Etcd *etcd, const WireMethod *method, const ProtobufCMessage *request,
             CallHandler handler, void *context, EtcdCall **ret)
{
    if (etcd->closed)
        return -ESHUTDOWN;
    EtcdCall *call = memory_new(EtcdCall);
    *call = (EtcdCall){.etcd = etcd, .method = method, .handler = handler, .context = context};
    int r = timer_new(etcd, on_call_timer, call, &call->timer);
    if (r < 0) {
        free(call);
        return r;
    }
    call->request = wire_request_new(request);
    call->floor_revision = etcd->history.revision;
    LIST_INSERT_HEAD(&etcd->calls, call, list);
    *ret = call;
    return 0;
}

void call_start(EtcdCall *call)
{
    call->deadline_usec = clock_boottime_usec() + call->etcd->timeout_usec;
    call_attempt(call);
}

void call_again(EtcdCall *call, const ProtobufCMessage *request)
{
    assert(call->state == CALL_ANSWERED);
    (void)wire_request_free(call->request);
    call->request = wire_request_new(request);
    call->error = ERROR_INIT;
    call_start(call);
}
