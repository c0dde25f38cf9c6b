/* SPDX-License-Identifier: Apache-2.0 */
/* testing-pair.c - see testing-pair.h: answers are written as text, and the texts compared. */
#include "tests/sim/server/test/testing-pair.h"

#include "base/memory.h"

#include <string.h>

enum { MODEL, ETCD };
enum { NO_LEASE = 770000000 }; /* an id that exists on neither side */

/* One watch on both sides. Control messages and events have separate texts, because etcd sends
 * control messages and events in no fixed order. */
struct PairStream {
    ServerCall *call;
    TestingStream *stream;
    char *control[2], *events[2];
    size_t n_items[2];
    bool canceled;
};

typedef struct Answered {
    ProtobufCMessage *message;
    int code;
    char text[256];
    bool ended;
} Answered;

static void on_message(ServerCall *call _unused_, ProtobufCMessage *message, void *userdata)
{
    Answered *answered = userdata;
    assert_null(answered->message);
    answered->message = message;
}

static void on_ended(ServerCall *call _unused_, ServerCode code, const char *text, void *userdata)
{
    Answered *answered = userdata;
    answered->code = (int)code;
    answered->ended = true;
    (void)snprintf(answered->text, sizeof(answered->text), "%s", text);
}

static const ServerEvents answer_events = {.message = on_message, .ended = on_ended};

Pair *pair_new(const char *endpoint)
{
    Pair *pair = memory_new(Pair);
    ServerOptions options = {.n_members = 1, .cluster_id = 7, .election_usec = 500 * USEC_PER_MSEC};

    assert_int_equal(server_new(&options, &pair->server), 0);
    pair->client = testing_client_new(endpoint);
    pair->scenario = "";
    return pair;
}

Pair *pair_free(Pair *pair)
{
    if (!pair)
        return NULL;
    pair_close_watches(pair);
    free((char *)pair->tokens[MODEL]);
    free((char *)pair->tokens[ETCD]);
    (void)server_free(pair->server);
    (void)testing_client_free(pair->client);
    free(pair);
    return NULL;
}

/* ---- texts ---- */

static void say_bytes(FILE *f, ProtobufCBinaryData bytes)
{
    (void)fputc('"', f);
    for (size_t i = 0; i < bytes.len && i < 40; i++)
        if (bytes.data[i] > 32 && bytes.data[i] < 127)
            (void)fputc(bytes.data[i], f);
        else
            (void)fprintf(f, "\\%02x", bytes.data[i]);
    (void)fprintf(f, bytes.len > 40 ? "...%zu\"" : "\"", bytes.len);
}

static void say_header(FILE *f, const Pb__ResponseHeader *header)
{
    if (!header)
        (void)fprintf(f, "no header ");
    else
        (void)fprintf(f, "r%ld%s%s%s ", (long)header->revision, header->cluster_id ? "c" : "",
                      header->member_id ? "m" : "", header->raft_term ? "t" : "");
}

static int64_t lease_number(const Pair *pair, int side, int64_t id)
{
    for (int i = 0; id != 0 && i < pair->n_leases; i++)
        if (pair->leases[side][i] == id)
            return i + 1;
    return id != 0 ? -1 : 0; /* -1: a lease of an earlier scenario */
}

static void say_kv(FILE *f, const Pair *pair, int side, const Pb__KeyValue *kv)
{
    say_bytes(f, kv->key);
    (void)fprintf(f, "=");
    say_bytes(f, kv->value);
    (void)fprintf(f, " c%ld m%ld v%ld l%ld; ", (long)kv->create_revision, (long)kv->mod_revision,
                  (long)kv->version, (long)lease_number(pair, side, kv->lease));
}

static void say_range(FILE *f, const Pair *pair, int side, const Pb__RangeResponse *response)
{
    say_header(f, response->header);
    (void)fprintf(f, "count %ld%s: ", (long)response->count, response->more ? " more" : "");
    for (size_t i = 0; i < response->n_kvs; i++)
        say_kv(f, pair, side, response->kvs[i]);
}

static void say_txn(FILE *f, const Pair *pair, int side, const Pb__TxnResponse *response)
{
    say_header(f, response->header);
    (void)fprintf(f, "%s: ", response->succeeded ? "succeeded" : "failed");
    for (size_t i = 0; i < response->n_responses; i++) {
        const Pb__ResponseOp *op = response->responses[i];
        switch (op->response_case) {
        case PB__RESPONSE_OP__RESPONSE_RANGE:
            (void)fprintf(f, "{range ");
            say_range(f, pair, side, op->range);
            break;
        case PB__RESPONSE_OP__RESPONSE_PUT:
            (void)fprintf(f, "{put ");
            say_header(f, op->put->header);
            break;
        case PB__RESPONSE_OP__RESPONSE_DELETE_RANGE:
            (void)fprintf(f, "{deleted %ld ", (long)op->delete_range->deleted);
            say_header(f, op->delete_range->header);
            break;
        default:
            (void)fprintf(f, "{nothing ");
        }
        (void)fprintf(f, "} ");
    }
}

/* Writes an error text without the member's id. */
static void report_error(FILE *f, const char *text)
{
    const char *at = strstr(text, "memberID:");
    if (!at) {
        (void)fprintf(f, "error \"%s\" ", text);
        return;
    }
    const char *end = at + strcspn(at, " ");
    (void)fprintf(f, "error \"%.*s%s\" ", (int)(at - text), text, *end ? end + 1 : end);
}

static void say_message(FILE *f, const Pair *pair, int side, const ProtobufCMessage *message)
{
    if (!message) {
        (void)fprintf(f, "nothing ");
    } else if (message->descriptor == &pb__range_response__descriptor) {
        say_range(f, pair, side, (const Pb__RangeResponse *)message);
    } else if (message->descriptor == &pb__txn_response__descriptor) {
        say_txn(f, pair, side, (const Pb__TxnResponse *)message);
    } else if (message->descriptor == &pb__lease_grant_response__descriptor) {
        const Pb__LeaseGrantResponse *grant = (const Pb__LeaseGrantResponse *)message;
        say_header(f, grant->header);
        (void)fprintf(f, "ttl %ld error \"%s\" ", (long)grant->ttl, grant->error);
    } else if (message->descriptor == &pb__lease_revoke_response__descriptor) {
        say_header(f, ((const Pb__LeaseRevokeResponse *)message)->header);
    } else if (message->descriptor == &pb__authenticate_response__descriptor) {
        const Pb__AuthenticateResponse *authenticated = (const Pb__AuthenticateResponse *)message;
        say_header(f, authenticated->header);
        (void)fprintf(f, "%zu letters before the dot ", strcspn(authenticated->token, "."));
    } else if (message->descriptor == &pb__status_response__descriptor) {
        const Pb__StatusResponse *status = (const Pb__StatusResponse *)message;
        say_header(f, status->header);
        (void)fprintf(f, "%s ", status->leader ? "leader" : "no leader");
        for (size_t i = 0; i < status->n_errors; i++)
            report_error(f, status->errors[i]);
    } else {
        fail_msg("no words for %s", message->descriptor->name);
    }
}

static char *answer_text(const Pair *pair, int side, int code, const char *text,
                         const ProtobufCMessage *message)
{
    char *ret = NULL;
    size_t n;
    FILE *f = memory_given(open_memstream(&ret, &n));

    (void)fprintf(f, "%d \"%s\" ", code, text);
    if (code == 0)
        say_message(f, pair, side, message);
    (void)fclose(f);
    return memory_given(ret);
}

static char *request_text(const ProtobufCMessage *request)
{
    char *ret = NULL;
    size_t n;
    FILE *f = memory_given(open_memstream(&ret, &n));

    (void)fprintf(f, "%s ", request->descriptor->name);
    if (request->descriptor == &pb__range_request__descriptor) {
        const Pb__RangeRequest *range = (const Pb__RangeRequest *)request;
        say_bytes(f, range->key);
        say_bytes(f, range->range_end);
        (void)fprintf(f, " limit %ld revision %ld", (long)range->limit, (long)range->revision);
    } else if (request->descriptor == &pb__txn_request__descriptor) {
        const Pb__TxnRequest *txn = (const Pb__TxnRequest *)request;
        for (size_t i = 0; i < txn->n_compare; i++) {
            say_bytes(f, txn->compare[i]->key);
            (void)fprintf(f, " target %d result %d operand %ld; ", (int)txn->compare[i]->target,
                          (int)txn->compare[i]->result, (long)txn->compare[i]->version);
        }
        for (size_t i = 0; i < txn->n_success; i++) {
            const Pb__RequestOp *op = txn->success[i];
            (void)fprintf(f, " op %d ", (int)op->request_case);
            if (op->request_case == PB__REQUEST_OP__REQUEST_PUT) {
                say_bytes(f, op->put->key);
                (void)fprintf(f, " lease %ld", (long)op->put->lease);
            } else if (op->request_case == PB__REQUEST_OP__REQUEST_DELETE_RANGE) {
                say_bytes(f, op->delete_range->key);
                say_bytes(f, op->delete_range->range_end);
            } else if (op->request_case == PB__REQUEST_OP__REQUEST_RANGE) {
                say_bytes(f, op->range->key);
                say_bytes(f, op->range->range_end);
                (void)fprintf(f, " revision %ld", (long)op->range->revision);
            }
        }
    }
    (void)fclose(f);
    return memory_given(ret);
}

static void compare(Pair *pair, const char *what, const char *model, const char *etcd)
{
    pair->n_compared++;
    if (strcmp(model, etcd) != 0)
        fail_msg("%s\n%s\nmodel: %s\netcd:  %s", pair->scenario, what, model, etcd);
}

/* ---- unary ---- */

/* Returns the id that the lease with this number has on the given side. A request contains at most
 * one number. */
static int64_t lease_id(const Pair *pair, int side, int64_t number)
{
    if (number > 0 && number <= pair->n_leases)
        return pair->leases[side][number - 1];
    return number != 0 ? NO_LEASE : 0;
}

static void name_leases(const Pair *pair, int side, ProtobufCMessage *request, int64_t *numbers)
{
    if (request->descriptor == &pb__lease_revoke_request__descriptor) {
        Pb__LeaseRevokeRequest *revoke = (Pb__LeaseRevokeRequest *)request;
        revoke->id = lease_id(pair, side, numbers[0]);
    } else if (request->descriptor == &pb__txn_request__descriptor) {
        Pb__TxnRequest *txn = (Pb__TxnRequest *)request;
        for (size_t i = 0; i < txn->n_success; i++)
            if (txn->success[i]->request_case == PB__REQUEST_OP__REQUEST_PUT)
                txn->success[i]->put->lease = lease_id(pair, side, numbers[i]);
    }
}

static int64_t *numbers_of(const ProtobufCMessage *request)
{
    if (request->descriptor == &pb__lease_revoke_request__descriptor) {
        int64_t *ret = memory_zeroed(1, sizeof(*ret));
        ret[0] = ((const Pb__LeaseRevokeRequest *)request)->id;
        return ret;
    }
    if (request->descriptor != &pb__txn_request__descriptor)
        return NULL;
    const Pb__TxnRequest *txn = (const Pb__TxnRequest *)request;
    int64_t *ret = memory_zeroed(txn->n_success, sizeof(*ret));
    for (size_t i = 0; i < txn->n_success; i++)
        if (txn->success[i]->request_case == PB__REQUEST_OP__REQUEST_PUT)
            ret[i] = txn->success[i]->put->lease;
    return ret;
}

static Answered ask_model(Pair *pair, const char *path, const ProtobufCMessage *request)
{
    Answered ret = {0};
    ServerMetadata metadata = {.hasleader = true, .token = pair->tokens[MODEL]};
    ServerCall *call = server_open(pair->server, 0, path, &metadata, &answer_events, &ret);

    server_send(call, request);
    server_advance(pair->server, ++pair->now_usec);
    assert_true(ret.ended);
    return ret;
}

static int ask_etcd(Pair *pair, const char *path, const ProtobufCMessage *request,
                    const ProtobufCMessageDescriptor *response, ProtobufCMessage **ret,
                    char **ret_text)
{
    size_t n = protobuf_c_message_get_packed_size(request);
    _cleanup_free_ uint8_t *packed = memory_zeroed(n + 1, 1);

    protobuf_c_message_pack(request, packed);
    return testing_client_call(pair->client, path, pair->tokens[ETCD], packed, n, response, ret,
                               ret_text);
}

static void observe_lease(Pair *pair, const ProtobufCMessage *model, const ProtobufCMessage *etcd)
{
    assert_true(pair->n_leases < PAIR_LEASES_MAX);
    pair->leases[MODEL][pair->n_leases] = ((const Pb__LeaseGrantResponse *)model)->id;
    pair->leases[ETCD][pair->n_leases] = ((const Pb__LeaseGrantResponse *)etcd)->id;
    assert_true(pair->leases[MODEL][pair->n_leases] != 0 &&
                pair->leases[ETCD][pair->n_leases] != 0);
    pair->n_leases++;
}

ProtobufCMessage *pair_ask(Pair *pair, const char *path, ProtobufCMessage *request,
                           const ProtobufCMessageDescriptor *response)
{
    _cleanup_free_ int64_t *numbers = numbers_of(request);
    _cleanup_free_ char *what = request_text(request);
    _cleanup_free_ char *text = NULL;
    ProtobufCMessage *etcd = NULL;

    name_leases(pair, MODEL, request, numbers);
    Answered model = ask_model(pair, path, request);
    name_leases(pair, ETCD, request, numbers);
    int code = ask_etcd(pair, path, request, response, &etcd, &text);
    if (model.code == 0 && code == 0 && response == &pb__lease_grant_response__descriptor)
        observe_lease(pair, model.message, etcd);
    _cleanup_free_ char *by_model = answer_text(pair, MODEL, model.code, model.text, model.message);
    _cleanup_free_ char *by_etcd = answer_text(pair, ETCD, code, text, etcd);
    compare(pair, what, by_model, by_etcd);
    if (response == &pb__authenticate_response__descriptor && code == 0) {
        free((char *)pair->tokens[MODEL]);
        free((char *)pair->tokens[ETCD]);
        pair->tokens[MODEL] = memory_text(((Pb__AuthenticateResponse *)model.message)->token);
        pair->tokens[ETCD] = memory_text(((Pb__AuthenticateResponse *)etcd)->token);
    }
    if (etcd)
        protobuf_c_message_free_unpacked(etcd, NULL);
    return model.message;
}

void pair_grant(Pair *pair, int64_t ttl_sec, int64_t id)
{
    Pb__LeaseGrantRequest request = PB__LEASE_GRANT_REQUEST__INIT;

    request.ttl = ttl_sec;
    request.id = id;
    ProtobufCMessage *message = pair_ask(pair, "/etcdserverpb.Lease/LeaseGrant", &request.base,
                                         &pb__lease_grant_response__descriptor);
    if (message)
        protobuf_c_message_free_unpacked(message, NULL);
}

void pair_compact(Pair *pair, int64_t revision)
{
    uint8_t bytes[16] = {0x08};
    size_t n = 1;
    char *text;
    const char *words;

    for (uint64_t rest = (uint64_t)revision;; rest >>= 7) {
        bytes[n++] = (uint8_t)(rest & 127) | (rest >= 128 ? 128 : 0);
        if (rest < 128)
            break;
    }
    bytes[n++] = 0x10; /* the field physical = true */
    bytes[n++] = 1;
    int code = testing_client_call(pair->client, "/etcdserverpb.KV/Compact", pair->tokens[ETCD],
                                   bytes, n, NULL, NULL, &text);
    _cleanup_free_ char *by_etcd = answer_text(pair, ETCD, 0, text, NULL);
    ServerCode model = server_compact(pair->server, revision, &words);
    _cleanup_free_ char *by_model = answer_text(pair, MODEL, 0, words, NULL);
    free(text);
    compare(pair, "compact", by_model, by_etcd);
    assert_int_equal(model, code);
}

void pair_set_nospace(Pair *pair, bool full)
{
    const uint8_t bytes[] = {0x08, full ? 1 : 2, 0x18, 1}; /* an AlarmRequest */
    _cleanup_free_ char *text = NULL;
    int code = testing_client_call(pair->client, "/etcdserverpb.Maintenance/Alarm",
                                   pair->tokens[ETCD], bytes, sizeof(bytes), NULL, NULL, &text);

    assert_int_equal(code, 0);
    server_set_nospace(pair->server, full);
}

void pair_keep_alive(Pair *pair, int64_t lease)
{
    Pb__LeaseKeepAliveRequest request = PB__LEASE_KEEP_ALIVE_REQUEST__INIT;
    ServerMetadata metadata = {.hasleader = true, .token = pair->tokens[MODEL]};
    const char *path = "/etcdserverpb.Lease/LeaseKeepAlive";
    Answered answered = {0};
    ServerCall *call = server_open(pair->server, 0, path, &metadata, &answer_events, &answered);
    TestingStream *stream = testing_stream_open(pair->client, path, pair->tokens[ETCD],
                                                &pb__lease_keep_alive_response__descriptor);

    request.id = lease_id(pair, MODEL, lease);
    server_send(call, &request.base);
    server_advance(pair->server, ++pair->now_usec);
    request.id = lease_id(pair, ETCD, lease);
    testing_stream_send(stream, &request.base);
    Pb__LeaseKeepAliveResponse *etcd = (Pb__LeaseKeepAliveResponse *)testing_stream_receive(stream);
    Pb__LeaseKeepAliveResponse *model = (Pb__LeaseKeepAliveResponse *)answered.message;
    assert_non_null(etcd);
    assert_non_null(model);
    assert_int_equal(lease_number(pair, ETCD, etcd->id), lease_number(pair, MODEL, model->id));
    assert_int_equal(etcd->ttl, model->ttl);
    assert_int_equal(etcd->header->revision, model->header->revision);
    pair->n_compared++;
    protobuf_c_message_free_unpacked(&etcd->base, NULL);
    protobuf_c_message_free_unpacked(&model->base, NULL);
    (void)server_cancel(call);
    (void)testing_stream_close(stream);
}

/* ---- watches ---- */

static void append(char **text, char *more)
{
    char *longer = memory_format("%s%s", *text ? *text : "", more);
    free(*text);
    free(more);
    *text = longer;
}

/* Records a response, and frees it. Each event and each control message counts as an item. */
static void note(Pair *pair, PairStream *watch, int side, Pb__WatchResponse *response)
{
    char *control = NULL, *events = NULL;
    size_t n;
    FILE *f = memory_given(open_memstream(&control, &n));

    if (response->created || response->canceled || response->n_events == 0) {
        say_header(f, response->header);
        (void)fprintf(f, "watch %ld%s%s compacted %ld \"%s\"; ", (long)response->watch_id,
                      response->created ? " created" : "", response->canceled ? " canceled" : "",
                      (long)response->compact_revision, response->cancel_reason);
        watch->n_items[side]++;
        watch->canceled = watch->canceled || response->canceled;
    }
    (void)fclose(f);
    append(&watch->control[side], control);
    f = memory_given(open_memstream(&events, &n));
    for (size_t i = 0; i < response->n_events; i++) {
        (void)fprintf(f, "%s ", response->events[i]->type ? "delete" : "put");
        say_kv(f, pair, side, response->events[i]->kv);
        watch->n_items[side]++;
    }
    (void)fclose(f);
    append(&watch->events[side], events);
    protobuf_c_message_free_unpacked(&response->base, NULL);
}

static void on_watch_message(ServerCall *call, ProtobufCMessage *message, void *userdata)
{
    Pair *pair = userdata;

    for (int i = 0; i < pair->n_watches; i++)
        if (pair->watches[i]->call == call)
            note(pair, pair->watches[i], MODEL, (Pb__WatchResponse *)message);
}

static void on_watch_ended(ServerCall *call _unused_, ServerCode code, const char *text,
                           void *userdata _unused_)
{
    fail_msg("the model ended a watch: %d %s", (int)code, text);
}

static const ServerEvents watch_events = {.message = on_watch_message, .ended = on_watch_ended};

void pair_watch(Pair *pair, const Pb__WatchCreateRequest *create)
{
    Pb__WatchRequest request = PB__WATCH_REQUEST__INIT;
    ServerMetadata metadata = {.hasleader = true, .token = pair->tokens[MODEL]};
    const char *path = "/etcdserverpb.Watch/Watch";
    PairStream *watch = memory_new(PairStream);

    assert_true(pair->n_watches < PAIR_WATCHES_MAX);
    pair->watches[pair->n_watches++] = watch;
    request.request_case = PB__WATCH_REQUEST__REQUEST_CREATE;
    request.create = (Pb__WatchCreateRequest *)create;
    watch->call = server_open(pair->server, 0, path, &metadata, &watch_events, pair);
    server_send(watch->call, &request.base);
    watch->stream = testing_stream_open(pair->client, path, pair->tokens[ETCD],
                                        &pb__watch_response__descriptor);
    testing_stream_send(watch->stream, &request.base);
    /* Waits for the answer, because the next request is on another stream and might overtake this
     * request. */
    pair_check_watches(pair);
}

static void check_watch(Pair *pair, PairStream *watch)
{
    while (watch->n_items[ETCD] < watch->n_items[MODEL]) {
        Pb__WatchResponse *response = (Pb__WatchResponse *)testing_stream_receive(watch->stream);
        if (!response)
            fail_msg("%s\netcd says no more on a watch\nmodel: %s %s\netcd:  %s %s", pair->scenario,
                     watch->control[MODEL], watch->events[MODEL],
                     watch->control[ETCD] ? watch->control[ETCD] : "",
                     watch->events[ETCD] ? watch->events[ETCD] : "");
        note(pair, watch, ETCD, response);
    }
    compare(pair, "watch", watch->control[MODEL], watch->control[ETCD]);
    compare(pair, "events of a watch", watch->events[MODEL], watch->events[ETCD]);
}

void pair_check_watches(Pair *pair)
{
    /* lets the watches that began in the past read the history */
    server_advance(pair->server, pair->now_usec += USEC_PER_SEC);
    for (int i = 0; i < pair->n_watches; i++)
        check_watch(pair, pair->watches[i]);
}

void pair_close_watches(Pair *pair)
{
    for (int i = 0; i < pair->n_watches; i++) {
        PairStream *watch = pair->watches[i];
        (void)server_cancel(watch->call);
        (void)testing_stream_close(watch->stream);
        for (int side = 0; side < 2; side++) {
            free(watch->control[side]);
            free(watch->events[side]);
        }
        free(watch);
    }
    pair->n_watches = 0;
}
