/* SPDX-License-Identifier: Apache-2.0 */
/* watcher.c - the watches of a stream.
 *
 * A synced watcher is in its member's tree of ranges, and is notified of a revision when the member applies it. A
 * watcher that began in the past, or whose member was behind, reads the history: up to 1000 revisions per answer. */
#include "tests/sim/server/server-internal.h"

#include <string.h>

enum {
    SYNC_MSEC = 100,      /* the interval at which etcd serves the unsynced watchers */
    REVISIONS_MAX = 1000, /* the largest number of revisions in one answer */
    GRPC_BYTES = 512 << 10,
};

static Member *member_of(const Watcher *watcher)
{
    return &watcher->call->server->members[watcher->call->member];
}

static Pb__WatchResponse *response_new(const ServerCall *call, int64_t id, int64_t revision)
{
    Pb__WatchResponse *ret = memory_new(Pb__WatchResponse);

    pb__watch_response__init(ret);
    ret->header = raft_header(call->server, call->member, revision);
    ret->watch_id = id;
    return ret;
}

static void watcher_free(Watcher *watcher)
{
    TAILQ_REMOVE(&watcher->call->watchers, watcher, list);
    if (watcher->synced)
        tree_remove(&member_of(watcher)->watchers, &watcher->node);
    else
        TAILQ_REMOVE(&member_of(watcher)->unsynced, watcher, unsynced_list);
    free(watcher->events);
    free(watcher->bytes);
    free(watcher);
}

void watcher_free_all(ServerCall *call)
{
    for (Watcher *watcher; (watcher = TAILQ_FIRST(&call->watchers));)
        watcher_free(watcher);
}

static void set_synced(Watcher *watcher, bool synced)
{
    Server *server = watcher->call->server;

    watcher->synced = synced;
    if (synced) {
        tree_insert(&member_of(watcher)->watchers, &watcher->node);
        return;
    }
    watcher->sync_usec = server->now_usec + server_draw(server) % (SYNC_MSEC * USEC_PER_MSEC);
    Watcher *before = TAILQ_LAST(&member_of(watcher)->unsynced, UnsyncedQueue);
    while (before && before->sync_usec > watcher->sync_usec)
        before = TAILQ_PREV(before, UnsyncedQueue, unsynced_list);
    if (before)
        TAILQ_INSERT_AFTER(&member_of(watcher)->unsynced, before, watcher, unsynced_list);
    else
        TAILQ_INSERT_HEAD(&member_of(watcher)->unsynced, watcher, unsynced_list);
}

/* ---- answers ---- */

static Pb__Event *event_message(const Version *version)
{
    Pb__Event *ret = memory_new(Pb__Event);

    pb__event__init(ret);
    ret->type = version->deleted ? PB__EVENT__EVENT_TYPE__DELETE : PB__EVENT__EVENT_TYPE__PUT;
    ret->kv = kv_message(version);
    return ret;
}

static size_t length_bytes(size_t n)
{
    size_t ret = 1;
    for (; n >= 128; n >>= 7)
        ret++;
    return ret;
}

static size_t event_bytes(const Pb__Event *event)
{
    size_t n = protobuf_c_message_get_packed_size(&event->base);
    return 1 + length_bytes(n) + n;
}

/* Sends an answer. An answer that is too large is sent in fragments, each of whole events. */
static void send_fragments(Watcher *watcher, Pb__WatchResponse *whole, int64_t revision)
{
    ServerCall *call = watcher->call;
    size_t most = call->server->options.request_bytes_max + GRPC_BYTES;

    if (!watcher->fragment || whole->n_events < 2 ||
        protobuf_c_message_get_packed_size(&whole->base) < most) {
        call_output(call, &whole->base);
        return;
    }
    for (size_t i = 0; i < whole->n_events;) {
        Pb__WatchResponse *part = response_new(call, watcher->id, revision);
        part->fragment = true;
        size_t bytes = protobuf_c_message_get_packed_size(&part->base);
        part->events = memory_zeroed(whole->n_events - i, sizeof(Pb__Event *));
        for (; i < whole->n_events; i++) {
            bytes += event_bytes(whole->events[i]);
            if (part->n_events > 0 && bytes >= most)
                break;
            part->events[part->n_events++] = whole->events[i];
        }
        part->fragment = i < whole->n_events;
        call_output(call, &part->base);
    }
    free(whole->events);
    whole->events = NULL;
    whole->n_events = 0;
    protobuf_c_message_free_unpacked(&whole->base, NULL);
}

/* Sends the gathered events[from..to) in one answer. */
static void send_events(Watcher *watcher, size_t from, size_t to, int64_t revision)
{
    Pb__WatchResponse *response = response_new(watcher->call, watcher->id, revision);

    response->n_events = to - from;
    response->events = memory_zeroed(to - from, sizeof(Pb__Event *));
    for (size_t i = from; i < to; i++)
        response->events[i - from] = event_message(watcher->events[i]);
    send_fragments(watcher, response, revision);
}

static void send_gathered(Watcher *watcher, int64_t revision)
{
    size_t from = 0;

    for (size_t i = 0, n_revisions = 0; i < watcher->n_events; i++) {
        if (i > from && watcher->events[i]->mod_revision == watcher->events[i - 1]->mod_revision)
            continue;
        if (++n_revisions > REVISIONS_MAX) {
            send_events(watcher, from, i, revision);
            from = i;
            n_revisions = 1;
        }
    }
    if (watcher->n_events > from)
        send_events(watcher, from, watcher->n_events, revision);
    watcher->n_events = 0;
}

static void gather(Watcher *watcher, Version *version)
{
    watcher->events =
        memory_grow(watcher->events, watcher->n_events, &watcher->room, sizeof(Version *));
    watcher->events[watcher->n_events++] = version;
}

/* Cancels a watcher whose next changes are compacted. */
static void cancel_compacted(Watcher *watcher)
{
    const Mvcc *mvcc = &watcher->call->server->mvcc;
    Pb__WatchResponse *response = response_new(watcher->call, watcher->id, 0);

    response->header->revision = 0; /* etcd's answer has the revision 0 here, too */
    response->canceled = true;
    response->compact_revision = mvcc->compacted;
    call_output(watcher->call, &response->base);
    watcher_free(watcher);
}

/* ---- synced watchers ---- */

typedef struct Round {
    Member *member;
    Version *version;
} Round;

static bool touch(TreeNode *node, void *userdata)
{
    Watcher *watcher = (Watcher *)node;
    const Round *round = userdata;
    Member *member = round->member;

    if (round->version->mod_revision < watcher->next_revision)
        return true;
    if (watcher->n_events == 0) {
        member->touched = memory_grow(member->touched, member->n_touched, &member->touched_room,
                                      sizeof(Watcher *));
        member->touched[member->n_touched++] = watcher;
    }
    gather(watcher, round->version);
    return true;
}

static bool find_outdated(TreeNode *node, void *userdata)
{
    Watcher *watcher = (Watcher *)node, **ret = userdata;

    if (watcher->next_revision > watcher->call->server->mvcc.compacted)
        return true;
    *ret = watcher;
    return false;
}

void watcher_notify(Server *server, size_t index, int64_t from, int64_t to)
{
    Member *member = &server->members[index];
    Round round = {.member = member};
    Watcher *outdated;

    do { /* only a member that was cut off during a compaction has outdated watchers */
        outdated = NULL;
        if (from <= server->mvcc.compacted) /* deletes of the compacted revision are lost, too */
            tree_visit(&member->watchers, (Bytes){0}, (Bytes){0}, true, find_outdated, &outdated);
        if (outdated)
            cancel_compacted(outdated);
    } while (outdated);

    for (int64_t r = from; r <= to; r++) {
        const Revision *revision = mvcc_changes(&server->mvcc, r);
        for (size_t i = 0; revision && i < revision->n_changes; i++) {
            round.version = revision->changes[i];
            tree_visit_around(&member->watchers, round.version->key->node.begin, touch, &round);
        }
    }
    for (size_t i = 0; i < member->n_touched; i++) {
        Watcher *watcher = member->touched[i];
        watcher->next_revision = to + 1;
        send_gathered(watcher, to);
    }
    member->n_touched = 0;
}

/* ---- unsynced watchers ---- */

static bool watches(const Watcher *watcher, Bytes key)
{
    const TreeNode *node = &watcher->node;
    return bytes_compare(node->begin, key) <= 0 &&
           (node->endless || bytes_compare(key, node->end) < 0);
}

static void sync_one(Watcher *watcher)
{
    Server *server = watcher->call->server;
    Member *member = member_of(watcher);

    if (watcher->next_revision < server->mvcc.compacted) {
        cancel_compacted(watcher);
        return;
    }
    for (int64_t r = watcher->next_revision; r <= member->applied; r++) {
        const Revision *revision = mvcc_changes(&server->mvcc, r);
        for (size_t i = 0; revision && i < revision->n_changes; i++)
            if (watches(watcher, revision->changes[i]->key->node.begin))
                gather(watcher, revision->changes[i]);
    }
    watcher->next_revision = MAX(watcher->next_revision, member->applied + 1);
    send_gathered(watcher, member->applied);
    TAILQ_REMOVE(&member->unsynced, watcher, unsynced_list);
    set_synced(watcher, true);
}

void watcher_sync(Server *server, size_t member)
{
    Watcher *watcher = TAILQ_FIRST(&server->members[member].unsynced), *next;

    for (; watcher && watcher->sync_usec <= server->now_usec; watcher = next) {
        next = TAILQ_NEXT(watcher, unsynced_list);
        sync_one(watcher);
    }
}

uint64_t watcher_next_usec(const Server *server, size_t member)
{
    const Watcher *first = TAILQ_FIRST(&server->members[member].unsynced);
    return first ? first->sync_usec : UINT64_MAX;
}

/* ---- requests ---- */

static void refuse(ServerCall *call, const char *reason, int64_t revision)
{
    Pb__WatchResponse *response = response_new(call, -1, revision);

    response->created = response->canceled = true;
    response->cancel_reason = memory_text(reason);
    call_output(call, &response->base);
}

static const char *reason_of(Refusal refusal)
{
    if (refusal.code == SERVER_UNAUTHENTICATED)
        return "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token";
    if (refusal.code == SERVER_INVALID_ARGUMENT && strstr(refusal.text, "old"))
        return "rpc error: code = InvalidArgument desc = etcdserver: revision of auth store is old";
    if (refusal.code == SERVER_INVALID_ARGUMENT)
        return "rpc error: code = InvalidArgument desc = etcdserver: user name is empty";
    return "rpc error: code = PermissionDenied desc = etcdserver: permission denied";
}

static Refusal may_watch(ServerCall *call, const KeyRange *range)
{
    Caller caller;
    Refusal refusal = users_caller(call->server, call->member, call->token, &caller);

    if (refusal.code == SERVER_OK)
        refusal = users_may(call->server, &caller, range, SERVER_READ);
    free(caller.user);
    return refusal;
}

static void create(ServerCall *call, const Pb__WatchCreateRequest *request)
{
    static uint8_t first_key[1] = {0};
    const Member *member = &call->server->members[call->member];
    ProtobufCBinaryData key = request->key;

    if (key.len == 0) /* an empty key stands for the smallest possible key */
        key = (ProtobufCBinaryData){.data = first_key, .len = 1};
    KeyRange range = key_range(key, request->range_end);
    Refusal refusal = may_watch(call, &range);
    if (refusal.code != SERVER_OK) {
        refuse(call, reason_of(refusal), member->applied);
        return;
    }
    if (!range.single && !range.endless && bytes_compare(range.begin, range.end) >= 0) {
        refuse(call, "mvcc: watcher range is empty", member->applied);
        return;
    }
    Watcher *watcher = memory_new(Watcher);
    watcher->call = call;
    watcher->id = call->next_watch_id++;
    watcher->fragment = request->fragment;
    watcher->bytes = memory_zeroed(key.len + 1 + range.end.n, 1);
    memcpy(watcher->bytes, key.data, key.len);
    if (!range.single)
        memcpy(watcher->bytes + key.len + 1, range.end.data, range.end.n);
    watcher->node.begin = (Bytes){.data = watcher->bytes, .n = key.len};
    /* The range of a single key ends at the key followed by a 0. */
    watcher->node.end = range.single
                            ? (Bytes){.data = watcher->bytes, .n = key.len + 1}
                            : (Bytes){.data = watcher->bytes + key.len + 1, .n = range.end.n};
    watcher->node.endless = range.endless;
    bool synced = request->start_revision > member->applied || request->start_revision == 0;
    watcher->next_revision =
        synced ? MAX(request->start_revision, member->applied + 1) : request->start_revision;
    TAILQ_INSERT_TAIL(&call->watchers, watcher, list);
    set_synced(watcher, synced);

    Pb__WatchResponse *response = response_new(call, watcher->id, member->applied);
    response->created = true;
    call_output(call, &response->base);
}

void watcher_request(ServerCall *call, const Pb__WatchRequest *request)
{
    if (request->request_case == PB__WATCH_REQUEST__REQUEST_CREATE)
        create(call, request->create);
    else if (request->request_case == PB__WATCH_REQUEST__REQUEST_PROGRESS)
        /* As in etcd before 3.4.25, the answer to a request for progress does not wait for earlier
         * events. */
        call_output(call,
                    &response_new(call, -1, call->server->members[call->member].applied)->base);
}
