/* SPDX-License-Identifier: Apache-2.0 */
/* calls.c - handles the requests of calls, lets calls wait, and answers them.
 *
 * A call's messages and its end are put into one queue, which server_advance() delivers, so that no callback runs
 * while the model is working. A call is freed when its client has gone or has got its end, the queue has no entry of
 * it, and no write of it waits for a quorum. */
#include "tests/sim/server/server-internal.h"

#include <string.h>

/* a request's deadline, to which two election timeouts are added, as in etcd */
enum { TIMEOUT_SEC = 5 };

static const Refusal no_leader = {SERVER_UNAVAILABLE, "etcdserver: no leader"};
static const Refusal timed_out = {SERVER_UNAVAILABLE, "etcdserver: request timed out"};

static const struct {
    const char *path;
    const ProtobufCMessageDescriptor *request;
    bool stream;
} methods[METHODS] = {
    [METHOD_RANGE] = {"/etcdserverpb.KV/Range", &pb__range_request__descriptor, false},
    [METHOD_TXN] = {"/etcdserverpb.KV/Txn", &pb__txn_request__descriptor, false},
    [METHOD_LEASE_GRANT] = {"/etcdserverpb.Lease/LeaseGrant", &pb__lease_grant_request__descriptor,
                            false},
    [METHOD_LEASE_REVOKE] = {"/etcdserverpb.Lease/LeaseRevoke",
                             &pb__lease_revoke_request__descriptor, false},
    [METHOD_LEASE_KEEP_ALIVE] = {"/etcdserverpb.Lease/LeaseKeepAlive",
                                 &pb__lease_keep_alive_request__descriptor, true},
    [METHOD_WATCH] = {"/etcdserverpb.Watch/Watch", &pb__watch_request__descriptor, true},
    [METHOD_AUTHENTICATE] = {"/etcdserverpb.Auth/Authenticate",
                             &pb__authenticate_request__descriptor, false},
    [METHOD_STATUS] = {"/etcdserverpb.Maintenance/Status", &pb__status_request__descriptor, false},
};

static Method method_find(const char *path)
{
    Method method = 0;
    while (method < METHODS && strcmp(methods[method].path, path) != 0)
        method++;
    return method;
}

const ProtobufCMessageDescriptor *server_request_type(const char *path)
{
    Method method = method_find(path);
    return method < METHODS ? methods[method].request : NULL;
}

/* ---- create and free ---- */

static void inbox_pop(ServerCall *call)
{
    Inbox *first = TAILQ_FIRST(&call->inbox);

    TAILQ_REMOVE(&call->inbox, first, list);
    protobuf_c_message_free_unpacked(first->request, NULL);
    free(first);
}

static void stop_waiting(ServerCall *call)
{
    if (call->wait != WAIT_NOTHING)
        TAILQ_REMOVE(&call->server->waiting, call, waiting_list);
    call->wait = WAIT_NOTHING;
    if (call->answer)
        protobuf_c_message_free_unpacked(call->answer, NULL);
    call->answer = NULL;
}

static void release(ServerCall *call)
{
    if (!call->gone || call->n_outputs > 0 || call->wait == WAIT_QUORUM)
        return;
    stop_waiting(call);
    while (!TAILQ_EMPTY(&call->inbox))
        inbox_pop(call);
    assert(TAILQ_EMPTY(&call->watchers));
    TAILQ_REMOVE(&call->server->members[call->member].calls, call, list);
    free(call->token);
    free(call);
}

static void wait_for(ServerCall *call, Wait wait)
{
    Server *server = call->server;

    if (call->wait == WAIT_NOTHING) {
        TAILQ_INSERT_TAIL(&server->waiting, call, waiting_list);
        call->until_usec =
            server->now_usec + TIMEOUT_SEC * USEC_PER_SEC + 2 * server->options.election_usec;
    }
    call->wait = wait;
}

void call_output(ServerCall *call, ProtobufCMessage *message)
{
    Output *output = memory_new(Output);

    *output = (Output){.call = call, .message = message};
    call->n_outputs++;
    TAILQ_INSERT_TAIL(&call->server->outputs, output, list);
}

/* Ends a call. That does not cancel a write that a leader already has. */
void call_end(ServerCall *call, Refusal refusal)
{
    if (call->gone)
        return;
    call_output(call, NULL);
    TAILQ_LAST(&call->server->outputs, Outputs)->refusal = refusal;
    watcher_free_all(call);
    if (call->wait != WAIT_QUORUM)
        stop_waiting(call);
    call->gone = true;
}

void calls_end_of_member(Server *server, size_t member, Refusal refusal)
{
    for (ServerCall *call = TAILQ_FIRST(&server->members[member].calls), *next; call; call = next) {
        next = TAILQ_NEXT(call, list);
        call_end(call, refusal);
    }
}

/* ---- one request ---- */

/* Handles a request. Returns true if it was answered or refused, false if it waits. */
typedef bool (*Handler)(ServerCall *call, const ProtobufCMessage *request);

static bool answer(ServerCall *call, Refusal refusal, ProtobufCMessage *message)
{
    if (call->gone) {
        if (message)
            protobuf_c_message_free_unpacked(message, NULL);
        return true;
    }
    if (refusal.code == SERVER_OK)
        call_output(call, message);
    call_end(call, refusal);
    return true;
}

/* Answers a write that was done. The answer waits until the call's member has applied the write. */
static bool answer_applied(ServerCall *call, Refusal refusal, ProtobufCMessage *message)
{
    const Server *server = call->server;
    const Member *m = &server->members[call->member];

    if (refusal.code != SERVER_OK || call->gone ||
        (m->in_contact && m->applied >= server->mvcc.revision))
        return answer(call, refusal, message);
    wait_for(call, WAIT_APPLIED);
    call->wait_revision = server->mvcc.revision;
    call->answer = message;
    return false;
}

/* Returns whether a linearizable read can be answered: the call's member must have applied all
 * revisions of the quorum. Otherwise makes the call wait. */
static bool can_read(ServerCall *call)
{
    const Server *server = call->server;

    if (!raft_reaches_leader(server, call->member)) {
        wait_for(call, WAIT_LEADER);
        return false;
    }
    if (call->wait == WAIT_APPLIED)
        return server->members[call->member].applied >= call->wait_revision;
    if (server->members[call->member].applied >= server->mvcc.revision)
        return true;
    wait_for(call, WAIT_APPLIED);
    call->wait_revision = server->mvcc.revision;
    return false;
}

static bool can_write(ServerCall *call)
{
    const Member *m = &call->server->members[call->member];

    if (call->decided || raft_reaches_leader(call->server, call->member))
        return true;
    if (m->leader == SIZE_MAX) {
        wait_for(call, WAIT_LEADER);
        return false;
    }
    wait_for(call, WAIT_QUORUM);
    call->wait_term = m->term;
    call->wait_alone = !m->in_contact;
    return false;
}

static bool handle_range(ServerCall *call, const ProtobufCMessage *message)
{
    const Pb__RangeRequest *request = (const Pb__RangeRequest *)message;
    ProtobufCMessage *response = NULL;
    Caller caller = {0};
    Refusal refusal = kv_check_range(request);

    if (refusal.code != SERVER_OK)
        return answer(call, refusal, NULL);
    if (!can_read(call))
        return false;
    refusal = users_caller(call->server, call->member, call->token, &caller);
    if (refusal.code == SERVER_OK)
        refusal = kv_range(call->server, call->member, &caller, request, &response);
    free(caller.user);
    return answer(call, refusal, response);
}

static bool handle_txn(ServerCall *call, const ProtobufCMessage *message)
{
    const Pb__TxnRequest *request = (const Pb__TxnRequest *)message;
    bool reads = kv_only_reads(request);
    ProtobufCMessage *response = NULL;
    Caller caller = {0};
    Refusal refusal = kv_check_txn(request);

    if (refusal.code == SERVER_OK && !reads &&
        protobuf_c_message_get_packed_size(message) > call->server->options.request_bytes_max)
        refusal = (Refusal){SERVER_INVALID_ARGUMENT, "etcdserver: request is too large"};
    if (refusal.code != SERVER_OK)
        return answer(call, refusal, NULL);
    if (reads && !can_read(call))
        return false;
    refusal = users_caller(call->server, call->member, call->token, &caller);
    bool ready = reads || refusal.code != SERVER_OK || can_write(call);
    call->server->writer = call->client;
    if (ready && refusal.code == SERVER_OK)
        refusal = kv_txn(call->server, call->member, &caller, request, &response);
    call->server->writer = SIZE_MAX;
    free(caller.user);
    if (!ready)
        return false;
    return reads ? answer(call, refusal, response) : answer_applied(call, refusal, response);
}

static bool handle_grant(ServerCall *call, const ProtobufCMessage *message)
{
    const Pb__LeaseGrantRequest *request = (const Pb__LeaseGrantRequest *)message;
    Server *server = call->server;
    Caller caller;
    Lease *lease;
    Refusal refusal = users_caller(server, call->member, call->token, &caller);

    free(caller.user); /* any user may revoke a lease, but a wrong token is refused */
    if (refusal.code != SERVER_OK)
        return answer(call, refusal, NULL);
    if (!can_write(call))
        return false;
    if (server->nospace)
        refusal = (Refusal){SERVER_RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"};
    else
        refusal = lessor_grant(server, request->id, request->ttl, &lease);
    if (refusal.code != SERVER_OK)
        return answer(call, refusal, NULL);
    Pb__LeaseGrantResponse *response = memory_new(Pb__LeaseGrantResponse);
    pb__lease_grant_response__init(response);
    response->header = raft_header(server, call->member, 0);
    response->id = lease->id;
    response->ttl = lease->ttl_sec;
    return answer_applied(call, refusal, &response->base);
}

static bool handle_revoke(ServerCall *call, const ProtobufCMessage *message)
{
    const Pb__LeaseRevokeRequest *request = (const Pb__LeaseRevokeRequest *)message;
    Server *server = call->server;
    const Key *key;
    Caller caller;
    Refusal refusal = users_caller(server, call->member, call->token, &caller);
    bool ready = refusal.code != SERVER_OK || can_write(call);
    const Lease *lease = ready ? lessor_find(server, request->id) : NULL;

    if (lease)
        LIST_FOREACH(key, &lease->keys, of_lease)
        {
            KeyRange range = {.begin = key->node.begin, .single = true};
            if (refusal.code == SERVER_OK)
                refusal = users_may(server, &caller, &range, SERVER_WRITE);
        }
    free(caller.user);
    if (!ready)
        return false;
    if (refusal.code == SERVER_OK)
        refusal = lessor_revoke(server, request->id);
    if (refusal.code != SERVER_OK)
        return answer(call, refusal, NULL);
    Pb__LeaseRevokeResponse *response = memory_new(Pb__LeaseRevokeResponse);
    pb__lease_revoke_response__init(response);
    response->header = raft_header(server, call->member, server->mvcc.revision);
    return answer_applied(call, refusal, &response->base);
}

/* Renews a lease as this member remembers it, even if the member is a former leader that does not
 * know that it leads no more. Returns the TTL in seconds, or -1 if the renewal has to wait. */
static int64_t renew_at(Server *server, size_t leader, int64_t id)
{
    Member *m = &server->members[leader];

    if (server->leader == leader)
        return lessor_renew(server, id);
    for (size_t i = 0; i < m->n_beliefs; i++)
        if (m->beliefs[i].id == id) {
            if (m->beliefs[i].expires_usec <= server->now_usec)
                return -1; /* the lease should be revoked, but no quorum agrees */
            m->beliefs[i].expires_usec =
                server->now_usec + (uint64_t)m->beliefs[i].ttl_sec * USEC_PER_SEC;
            return m->beliefs[i].ttl_sec;
        }
    return 0;
}

static bool handle_keep_alive(ServerCall *call, const ProtobufCMessage *message)
{
    const Pb__LeaseKeepAliveRequest *request = (const Pb__LeaseKeepAliveRequest *)message;
    Server *server = call->server;
    const Member *m = &server->members[call->member];
    /* The answer's header is made before the renewal, and has the member's term of that time. */
    Pb__ResponseHeader *header = raft_header(server, call->member, 0);
    int64_t ttl_sec = -1;

    if (m->leader != SIZE_MAX) {
        const Member *leader = &server->members[m->leader];
        bool reached = m->leader == call->member ||
                       (!m->isolated && leader->up && !leader->frozen && !leader->isolated);
        if (reached && leader->leader == m->leader)
            ttl_sec = renew_at(server, m->leader, request->id);
    }
    if (ttl_sec < 0) {
        protobuf_c_message_free_unpacked(&header->base, NULL);
        wait_for(call, WAIT_LEADER);
        return false;
    }
    Pb__LeaseKeepAliveResponse *response = memory_new(Pb__LeaseKeepAliveResponse);
    pb__lease_keep_alive_response__init(response);
    response->header = header;
    response->id = request->id;
    response->ttl = ttl_sec;
    call_output(call, &response->base);
    return true;
}

static bool handle_watch(ServerCall *call, const ProtobufCMessage *message)
{
    watcher_request(call, (const Pb__WatchRequest *)message);
    return true;
}

static bool handle_authenticate(ServerCall *call, const ProtobufCMessage *message)
{
    const Pb__AuthenticateRequest *request = (const Pb__AuthenticateRequest *)message;
    Server *server = call->server;

    if (!can_read(call))
        return false;
    Refusal refusal = users_check_password(server, request->name, request->password);
    if (refusal.code == SERVER_OK) { /* a caller with a wrong token gets no new token */
        Caller caller;
        refusal = users_caller(server, call->member, call->token, &caller);
        free(caller.user);
    }
    if (refusal.code != SERVER_OK)
        return answer(call, refusal, NULL);
    Pb__AuthenticateResponse *response = memory_new(Pb__AuthenticateResponse);
    pb__authenticate_response__init(response);
    response->header = raft_header(server, call->member, 0);
    response->token = users_token(server, request->name);
    return answer(call, refusal, &response->base);
}

static void status_error(Pb__StatusResponse *response, char *text)
{
    response->errors = memory_resize(response->errors, response->n_errors + 1, sizeof(char *));
    response->errors[response->n_errors++] = text;
}

static bool handle_status(ServerCall *call, const ProtobufCMessage *message _unused_)
{
    const Server *server = call->server;
    const Member *m = &server->members[call->member];
    Pb__StatusResponse *response = memory_new(Pb__StatusResponse);

    pb__status_response__init(response);
    response->header = raft_header(server, call->member, 0);
    response->version = memory_text("3.4.23");
    response->db_size = response->db_size_in_use = (int64_t)server->mvcc.live_bytes;
    if (m->leader == SIZE_MAX)
        status_error(response, memory_text("etcdserver: no leader"));
    else
        response->leader = server->members[m->leader].id;
    if (server->nospace)
        status_error(response,
                     memory_format("memberID:%llu alarm:NOSPACE ", (unsigned long long)m->id));
    return answer(call, REFUSAL_NONE, &response->base);
}

static const Handler handlers[METHODS] = {
    [METHOD_RANGE] = handle_range,
    [METHOD_TXN] = handle_txn,
    [METHOD_LEASE_GRANT] = handle_grant,
    [METHOD_LEASE_REVOKE] = handle_revoke,
    [METHOD_LEASE_KEEP_ALIVE] = handle_keep_alive,
    [METHOD_WATCH] = handle_watch,
    [METHOD_AUTHENTICATE] = handle_authenticate,
    [METHOD_STATUS] = handle_status,
};

/* ---- a call's requests ---- */

static void attempt(ServerCall *call)
{
    if (!handlers[call->method](call, TAILQ_FIRST(&call->inbox)->request))
        return;
    stop_waiting(call);
    inbox_pop(call);
}

static void process(ServerCall *call)
{
    const Member *m = &call->server->members[call->member];

    if (!m->up || m->frozen || call->gone)
        return;
    if (!call->opened && call->hasleader && m->leader == SIZE_MAX) {
        call_end(call, no_leader);
        return;
    }
    call->opened = true;
    while (!call->gone && call->wait == WAIT_NOTHING && !TAILQ_EMPTY(&call->inbox))
        attempt(call);
}

ServerCall *server_open(Server *server, size_t member, const char *path,
                        const ServerMetadata *metadata, const ServerEvents *events, void *userdata)
{
    Method method = method_find(path);

    assert(member < server->n_members && server->members[member].up);
    ServerCall *call = memory_new(ServerCall);
    *call = (ServerCall){
        .server = server,
        .member = member,
        .client = metadata ? metadata->client : SIZE_MAX,
        .method = method,
        .hasleader = metadata && metadata->hasleader,
        .token = metadata && metadata->token ? memory_text(metadata->token) : NULL,
        .events = *events,
        .userdata = userdata,
    };
    TAILQ_INIT(&call->inbox);
    TAILQ_INIT(&call->watchers);
    TAILQ_INSERT_TAIL(&server->members[member].calls, call, list);
    if (method == METHODS)
        call_end(call, (Refusal){SERVER_UNIMPLEMENTED, "unknown method"});
    else if (methods[method].stream)
        process(call);
    return call;
}

/* Returns a copy, as it would arrive over the wire. */
static ProtobufCMessage *copy_of(const ProtobufCMessage *message)
{
    size_t n = protobuf_c_message_get_packed_size(message);
    uint8_t *packed = memory_zeroed(n + 1, 1);

    protobuf_c_message_pack(message, packed);
    ProtobufCMessage *ret = protobuf_c_message_unpack(message->descriptor, NULL, n, packed);
    free(packed);
    return memory_given(ret);
}

void server_send(ServerCall *call, const ProtobufCMessage *request)
{
    if (call->gone)
        return;
    assert(request->descriptor == methods[call->method].request);
    assert(methods[call->method].stream || (TAILQ_EMPTY(&call->inbox) && !call->opened));
    Inbox *entry = memory_new(Inbox);
    entry->request = copy_of(request);
    TAILQ_INSERT_TAIL(&call->inbox, entry, list);
    process(call);
}

static void outputs_drop(ServerCall *call)
{
    Output *output, *next;

    for (output = TAILQ_FIRST(&call->server->outputs); output && call->n_outputs > 0;
         output = next) {
        next = TAILQ_NEXT(output, list);
        if (output->call != call)
            continue;
        TAILQ_REMOVE(&call->server->outputs, output, list);
        if (output->message)
            protobuf_c_message_free_unpacked(output->message, NULL);
        free(output);
        call->n_outputs--;
    }
}

ServerCall *server_cancel(ServerCall *call)
{
    if (!call)
        return NULL;
    call->gone = true;
    call->events = (ServerEvents){0};
    outputs_drop(call);
    watcher_free_all(call);
    if (call->wait != WAIT_QUORUM)
        stop_waiting(call);
    release(call);
    return NULL;
}

void calls_thawed(Server *server, size_t member)
{
    for (ServerCall *call = TAILQ_FIRST(&server->members[member].calls), *next; call; call = next) {
        next = TAILQ_NEXT(call, list);
        if (!TAILQ_EMPTY(&call->inbox) || !call->opened)
            process(call);
    }
}

/* ---- waiting ---- */

static bool is_read(const ServerCall *call)
{
    return call->method == METHOD_RANGE || call->method == METHOD_AUTHENTICATE ||
           (call->method == METHOD_TXN &&
            kv_only_reads((const Pb__TxnRequest *)TAILQ_FIRST(&call->inbox)->request));
}

static void retry_applied(ServerCall *call)
{
    Server *server = call->server;

    if (!server->members[call->member].in_contact ||
        server->members[call->member].applied < call->wait_revision)
        return;
    if (!call->answer) {
        attempt(call);
        return;
    }
    ProtobufCMessage *message = TAKE_PTR(call->answer);
    stop_waiting(call);
    /* the return value is not needed: the call is answered now */
    (void)answer(call, REFUSAL_NONE, message);
}

/* The leader that has the call's proposal is back in contact. If that leader's term has ended, the
 * proposal is lost, because no other member had it. */
static void retry_proposal(ServerCall *call)
{
    Server *server = call->server;

    if (!raft_reaches_leader(server, call->member))
        return;
    if (call->wait_term == server->term)
        attempt(call);
    else
        call->wait = WAIT_ANSWER;
    release(call);
}

void calls_decide(Server *server)
{
    for (ServerCall *call = TAILQ_FIRST(&server->waiting), *next; call; call = next) {
        next = TAILQ_NEXT(call, waiting_list);
        if (call->wait != WAIT_QUORUM)
            continue;
        call->decided = !call->wait_alone && server_draw(server) % 2 == 0;
        if (call->decided)
            attempt(call);
        else
            call->wait = WAIT_ANSWER;
        release(call);
    }
}

static void retry(ServerCall *call, bool new_leader)
{
    switch (call->wait) {
    case WAIT_LEADER:
        if (is_read(call) && new_leader)
            call_end(call, (Refusal){SERVER_UNAVAILABLE, "etcdserver: leader changed"});
        else
            attempt(call);
        process(call); /* handles the stream's next request */
        break;
    case WAIT_QUORUM:
        retry_proposal(call);
        break;
    case WAIT_APPLIED:
        retry_applied(call);
        break;
    case WAIT_ANSWER:
    case WAIT_NOTHING:
        break;
    }
}

void calls_retry(Server *server, size_t member, bool new_leader)
{
    for (ServerCall *call = TAILQ_FIRST(&server->waiting), *next; call; call = next) {
        next = TAILQ_NEXT(call, waiting_list);
        if (call->member == member)
            retry(call, new_leader);
    }
}

static Refusal timeout_of(const ServerCall *call)
{
    const Member *m = &call->server->members[call->member];

    if (call->method == METHOD_LEASE_KEEP_ALIVE && m->leader == SIZE_MAX)
        return no_leader;
    if (call->wait == WAIT_ANSWER)
        return (Refusal){SERVER_UNAVAILABLE,
                         "etcdserver: request timed out, possibly due to previous leader failure"};
    if (call->wait == WAIT_QUORUM && m->leader != SIZE_MAX)
        return (Refusal){SERVER_UNAVAILABLE,
                         "etcdserver: request timed out, possibly due to connection lost"};
    return timed_out;
}

void calls_time_out(Server *server)
{
    for (ServerCall *call = TAILQ_FIRST(&server->waiting), *next; call; call = next) {
        next = TAILQ_NEXT(call, waiting_list);
        /* all calls wait for the same time, so all later calls in the list have later deadlines */
        if (call->until_usec > server->now_usec)
            break;
        if (!call->gone && !server->members[call->member].frozen)
            call_end(call, timeout_of(call));
    }
}

uint64_t calls_next_usec(const Server *server)
{
    const ServerCall *call;

    if (!TAILQ_EMPTY(&server->outputs))
        return server->now_usec;
    TAILQ_FOREACH(call, &server->waiting, waiting_list)
    if (!call->gone && !server->members[call->member].frozen)
        return call->until_usec;
    return UINT64_MAX;
}

/* ---- delivery ---- */

void calls_deliver(Server *server)
{
    for (Output *output; (output = TAILQ_FIRST(&server->outputs));) {
        ServerCall *call = output->call;
        Output now = *output;
        TAILQ_REMOVE(&server->outputs, output, list);
        free(output);
        call->n_outputs--;
        if (now.message) {
            /* the callback may cancel the call */
            call->events.message(call, now.message, call->userdata);
            continue;
        }
        ServerEvents events = call->events;
        void *userdata = call->userdata;
        assert(call->gone && call->n_outputs == 0); /* a call gets nothing after its end */
        events.ended(call, now.refusal.code, now.refusal.text, userdata);
        release(call);
    }
}

void calls_forget_proposals(Server *server)
{
    for (ServerCall *call = TAILQ_FIRST(&server->waiting), *next; call; call = next) {
        next = TAILQ_NEXT(call, waiting_list);
        if (call->wait == WAIT_QUORUM)
            call->wait = WAIT_ANSWER;
        release(call);
    }
}

void calls_clear(Server *server)
{
    for (size_t i = 0; i < server->n_members; i++)
        for (ServerCall *call = TAILQ_FIRST(&server->members[i].calls), *next; call; call = next) {
            next = TAILQ_NEXT(call, list);
            if (call->wait == WAIT_QUORUM)
                call->wait = WAIT_ANSWER;
            (void)server_cancel(call); /* frees the call */
        }
}
