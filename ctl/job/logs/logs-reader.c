/* SPDX-License-Identifier: Apache-2.0 */
/* logs-reader.c - see logs-reader.h. */
#include "ctl/job/logs/logs-reader.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/number/hash.h"
#include "cluster/keys.h"

#include <string.h>

enum {
    PAUSE_MSEC = 250, /* minimum between two answers of one node */
    /* If n nodes are read, the minimum is at least n * PAUSE_NODE_MSEC: the nodes together write at most 33 times a
     * second. */
    PAUSE_NODE_MSEC = 30,
    RETRY_MSEC = 500,
    STOOD_STILL_MSEC = 1000,
    RECORDS_BYTES = 1024, /* assumed size of a request and an answer without the text */
    OPEN_SEC = CLIENT_TIMEOUT_SEC,
    CLOSE_MSEC = 1000,
};

typedef enum ReaderState {
    READER_WAITS,    /* queued, not started */
    READER_REQUESTS, /* the request must be written at next_usec */
    READER_RECEIVES, /* the request is written, or is being written */
    READER_OVER,
} ReaderState;

typedef struct Reader {
    LogReaders *all;
    LogWanted wanted;
    ReaderState state;
    char id[LOG_ID_MAX + 1];
    LogRequestRecord request;
    bool answered; /* the node has answered at least once */
    /* shown[i]: a part of the log of place i in the request was shown. elsewhere[i]: another node shows this log. */
    bool shown[RECORD_SLOTS_MAX], elsewhere[RECORD_SLOTS_MAX];
    bool again; /* the request changed while it was being written */
    uint64_t next_usec, deadline_usec;
    EtcdCall *call;
} Reader;

struct LogReaders {
    CtlClient *client;
    LogReadersEvents events;
    char job[RECORD_JOB_MAX + 1], name[HASH_TEXT_BYTES];
    EtcdLease *lease;
    EtcdWatch *watch;
    bool listed;
    size_t at_once;
    Reader **of;
    size_t n, size;
    unsigned n_made;
    int64_t budget_bytes;
    uint64_t budget_usec;
    uint64_t tick_usec; /* time of the last log_readers_tick(); 0: none yet */
    /* state of log_readers_close() */
    EtcdCall *revoke;
    sd_event_source *late;
    void (*closed)(void *userdata);
    void *closed_userdata;
};

static void reader_put(Reader *reader);
static void start_more(LogReaders *all);

static const char *key_of_reader(const Reader *reader, KeyKind kind, char ret[KEY_MAX])
{
    return key_log(reader->all->client->cluster, kind, reader->wanted.node, reader->id, ret);
}

/* ---- one node ---- */

static void on_removed(_unused_ int r, _unused_ const Error *err,
                       _unused_ const EtcdTxnResult *result, _unused_ void *userdata)
{
    /* if the deletion fails, the request is deleted when the lease ends */
}

static void reader_remove(const Reader *reader)
{
    char key[KEY_MAX];
    const EtcdOp op = {.kind = ETCD_DELETE, .key = key_of_reader(reader, KEY_ASKS, key)};
    (void)etcd_txn(reader->all->client->etcd, NULL, 0, &op, 1, on_removed, NULL,
                   NULL); /* if this fails, the request is deleted when the lease ends */
}

/* Ends the reading of one node. If a put is under way, it could reach etcd after a delete, so on_put() deletes the
 * request later. */
static void reader_end(Reader *reader, const char *why)
{
    const LogReaders *all = reader->all;
    const bool asked = reader->state == READER_REQUESTS || reader->state == READER_RECEIVES;
    if (reader->state == READER_OVER)
        return;
    reader->state = READER_OVER;
    if (asked && !reader->call)
        reader_remove(reader);
    if (why)
        all->events.failed(all->events.userdata, &reader->wanted, why);
}

static void on_put(int r, const Error *err, _unused_ const EtcdTxnResult *result, void *userdata)
{
    Reader *reader = userdata;
    reader->call = NULL; /* the call frees itself */
    if (reader->state == READER_OVER) {
        reader_remove(reader);
        return;
    }
    if (r == -EACCES) {
        reader_end(reader, "etcd does not let this user ask for logs; "
                           "/usr/share/sdtrain/etcd-roles gives the right");
        return;
    }
    if (r < 0 && clock_boottime_usec() > reader->deadline_usec) {
        reader_end(reader, err->text);
        return;
    }
    if (r == 0 && !reader->again)
        return;
    reader->state = READER_REQUESTS;
    reader->next_usec = clock_boottime_usec() + (r < 0 ? RETRY_MSEC * USEC_PER_MSEC : 0);
    if (r == 0)
        reader_put(reader);
}

static void reader_put(Reader *reader)
{
    LogReaders *all = reader->all;
    char key[KEY_MAX];
    const int64_t lease = etcd_lease_id(all->lease);
    reader->again = reader->call != NULL;
    if (reader->again || lease == 0)
        return; /* on_put() or on_lease() calls this function again */
    size_t n_asked = 0;
    for (size_t i = 0; i < all->n; i++)
        n_asked += all->of[i]->state == READER_REQUESTS || all->of[i]->state == READER_RECEIVES;
    reader->request.pause_usec =
        (int64_t)(MAX((size_t)PAUSE_MSEC, n_asked * PAUSE_NODE_MSEC) * USEC_PER_MSEC);
    _cleanup_free_ char *value = log_request_record_encode(&reader->request, NULL);
    const EtcdOp op = {.kind = ETCD_PUT,
                       .key = key_of_reader(reader, KEY_ASKS, key),
                       .value = value,
                       .lease = lease};
    reader->state = READER_RECEIVES;
    if (etcd_txn(all->client->etcd, NULL, 0, &op, 1, on_put, reader, &reader->call) < 0)
        reader_end(reader, "the ask could not be sent");
}

static bool has_budget(LogReaders *all, uint64_t now)
{
    const uint64_t passed = MIN(now - all->budget_usec, 100 * USEC_PER_SEC);
    all->budget_bytes =
        MIN(all->budget_bytes + (int64_t)(passed * LOG_READERS_BYTES_A_SEC / USEC_PER_SEC),
            (int64_t)LOG_READERS_BURST_BYTES);
    all->budget_usec = now;
    return all->budget_bytes > 0;
}

static void set_deadline(Reader *reader, uint64_t now)
{
    reader->deadline_usec = now + LOG_READERS_ANSWER_SEC * USEC_PER_SEC;
}

static void reader_go_on(Reader *reader)
{
    const uint64_t now = clock_boottime_usec();
    reader->request.seq++;
    set_deadline(reader, now);
    if (has_budget(reader->all, now)) {
        reader_put(reader);
        return;
    }
    reader->state = READER_REQUESTS;
    reader->next_usec = now + PAUSE_MSEC * USEC_PER_MSEC;
}

/* Returns the rank's place in the request. If the user named no ranks, adds a place for the rank, which the node has
 * reported. Returns NULL if the rank was not requested or there are too many ranks. */
static LogPlace *place_of(Reader *reader, int rank)
{
    LogRequestRecord *request = &reader->request;
    for (size_t i = 0; i < request->n_places; i++)
        if (request->places[i].rank == rank)
            return &request->places[i];
    if (reader->wanted.n_ranks > 0 || request->n_places == RECORD_SLOTS_MAX)
        return NULL;
    if (!request->places)
        request->places = memory_zeroed(RECORD_SLOTS_MAX, sizeof(request->places[0]));
    request->places[request->n_places].rank = rank;
    return &request->places[request->n_places++];
}

/* Tells whether another node shows the same log. Nodes may share a folder of logs; then each node reports all ranks. A
 * stopped reader of an earlier generation may still be among the readers, and its log is a different one. */
static bool is_shown_elsewhere(const Reader *reader, const LogPlace *next)
{
    const LogReaders *all = reader->all;
    for (size_t i = 0; i < all->n; i++) {
        const Reader *other = all->of[i];
        if (other == reader || other->request.generation != reader->request.generation)
            continue;
        for (size_t k = 0; k < other->request.n_places; k++)
            if (other->shown[k] && other->request.places[k].rank == next->rank &&
                other->request.places[k].file == next->file)
                return true;
    }
    return false;
}

static void show_part(Reader *reader, const LogPart *part, const char *text)
{
    const LogReadersEvents *events = &reader->all->events;
    LogPlace *place = place_of(reader, part->next.rank);
    if (!place)
        return; /* the rank was not requested */
    const size_t at = (size_t)(place - reader->request.places);
    bool *shown = &reader->shown[at];
    if (!*shown && !part->missing && part->next.file != 0 &&
        is_shown_elsewhere(reader, &part->next))
        reader->elsewhere[at] = true;
    *place = part->next;
    if (reader->elsewhere[at])
        return;
    if (part->missing && !reader->request.follow && !*shown)
        events->missing(events->userdata, place->rank, &reader->wanted);
    if (part->skipped > 0)
        events->skipped(events->userdata, place->rank, part->skipped, !*shown, &reader->wanted);
    *shown |= part->next.file != 0;
    if (part->bytes > 0)
        events->text(events->userdata, place->rank, text, (size_t)part->bytes);
}

static void reader_take(Reader *reader, const LogLinesRecord *lines)
{
    LogReaders *all = reader->all;
    const char *text = lines->text;
    if (reader->state == READER_OVER || lines->seq != reader->request.seq)
        return; /* the answer belongs to an earlier request */
    if (*lines->refused) {
        reader_end(reader, lines->refused);
        return;
    }
    reader->answered = true;
    for (size_t i = 0; i < lines->n_parts; i++) {
        show_part(reader, &lines->parts[i], text);
        text += lines->parts[i].bytes;
    }
    all->budget_bytes -= text - lines->text + RECORDS_BYTES;
    if (lines->end && reader->request.n_places == 0)
        all->events.missing(all->events.userdata, -1, &reader->wanted);
    if (!lines->end) {
        reader_go_on(reader);
        return;
    }
    reader_end(reader, NULL);
    start_more(all);
}

static void on_lines(const EtcdEvent *events, size_t n_events, _unused_ int64_t revision,
                     _unused_ bool initial, void *userdata)
{
    LogReaders *all = userdata;
    all->listed = true;
    for (size_t i = 0; i < n_events; i++) {
        KeyKind kind;
        const char *rest;
        char node[NODE_NAME_MAX + 1], id[LOG_ID_MAX + 1];
        const EtcdKeyValue *kv = &events[i].kv;
        if (events[i].kind == ETCD_EVENT_DELETE ||
            key_parse(all->client->cluster, kv->key, &kind, &rest) < 0 || kind != KEY_LINES ||
            key_parse_log(rest, node, sizeof(node), id, sizeof(id)) < 0)
            continue;
        for (size_t k = 0; k < all->n; k++) {
            Reader *reader = all->of[k];
            LogLinesRecord lines;
            Error err = ERROR_INIT;
            if (strcmp(reader->id, id) != 0 || strcmp(reader->wanted.node, node) != 0)
                continue;
            if (log_lines_record_decode(kv->key, kv->value, kv->n_value, &lines, &err) < 0) {
                reader_end(reader, err.text);
                continue;
            }
            reader_take(reader, &lines);
            log_lines_record_clear(&lines);
        }
    }
}

static Reader *reader_free(Reader *reader)
{
    reader->call = etcd_call_free(reader->call);
    log_request_record_clear(&reader->request);
    free(reader);
    return NULL;
}

/* ---- all nodes ---- */

static void start_more(LogReaders *all)
{
    const uint64_t now = clock_boottime_usec();
    size_t n_asked = 0;
    for (size_t i = 0; i < all->n; i++) {
        Reader *reader = all->of[i];
        n_asked += reader->state == READER_REQUESTS || reader->state == READER_RECEIVES;
        if (reader->state != READER_WAITS || n_asked >= all->at_once)
            continue;
        n_asked++;
        set_deadline(reader, now);
        reader->state = READER_REQUESTS;
        reader_put(reader);
    }
}

void log_readers_add(LogReaders *all, int64_t generation, const LogWanted *wanted)
{
    const size_t n = wanted->n_ranks;
    Reader *reader = memory_new(Reader);
    *reader = (Reader){.all = all, .wanted = *wanted};
    (void)snprintf(reader->id, sizeof(reader->id), "%s-%u", all->name, ++all->n_made);
    reader->request = (LogRequestRecord){.generation = generation,
                                         .seq = 1,
                                         .follow = wanted->follow,
                                         .tail_bytes = wanted->tail_bytes,
                                         .n_places = n};
    memcpy(reader->request.job, all->job, sizeof(all->job));
    if (n > 0)
        reader->request.places = memory_zeroed(n, sizeof(reader->request.places[0]));
    for (size_t i = 0; i < n; i++)
        reader->request.places[i].rank = wanted->ranks[i];
    all->of = memory_grow(all->of, all->n, &all->size, sizeof(all->of[0]));
    all->of[all->n++] = reader;
}

void log_readers_start(LogReaders *all, size_t at_once)
{
    all->at_once = MIN(at_once, (size_t)LOG_READERS_AT_ONCE);
    start_more(all);
}

void log_readers_finish(LogReaders *all)
{
    for (size_t i = 0; i < all->n; i++) {
        Reader *reader = all->of[i];
        if (reader->state == READER_OVER || !reader->request.follow)
            continue;
        reader->request.follow = false;
        if (reader->state != READER_WAITS)
            reader_go_on(reader);
    }
}

void log_readers_forget(LogReaders *all, const char *node)
{
    for (size_t i = 0; i < all->n; i++)
        if (strcmp(all->of[i]->wanted.node, node) == 0)
            reader_end(all->of[i], NULL);
}

bool log_readers_busy(const LogReaders *all)
{
    for (size_t i = 0; all && i < all->n; i++)
        if (all->of[i]->state != READER_OVER)
            return true;
    return false;
}

void log_readers_stop(LogReaders *all)
{
    size_t kept = 0;
    for (size_t i = 0; i < all->n; i++) {
        reader_end(all->of[i], NULL);
        if (all->of[i]->call) /* on_put() still has to delete the request */
            all->of[kept++] = all->of[i];
        else
            (void)reader_free(all->of[i]);
    }
    all->n = kept;
}

void log_readers_tick(LogReaders *all)
{
    const uint64_t now = clock_boottime_usec();
    const uint64_t gap_usec = all->tick_usec > 0 ? now - all->tick_usec : 0;
    all->tick_usec = now;
    for (size_t i = 0; i < all->n; i++) {
        Reader *reader = all->of[i];
        /* This process was blocked by the reader of its output, so extend the deadline. */
        if (gap_usec > STOOD_STILL_MSEC * USEC_PER_MSEC)
            reader->deadline_usec += gap_usec;
        const bool waits = reader->state == READER_RECEIVES || reader->state == READER_REQUESTS;
        if (waits && (!reader->answered || !reader->request.follow) &&
            now > reader->deadline_usec) {
            char why[64];
            (void)snprintf(why, sizeof(why), "it does not answer within %d s",
                           LOG_READERS_ANSWER_SEC);
            reader_end(reader, why);
        } else if (reader->state == READER_REQUESTS && now >= reader->next_usec) {
            if (has_budget(all, now))
                reader_put(reader);
            else
                set_deadline(reader, now);
        }
    }
    start_more(all);
}

/* ---- the lease ---- */

static void on_lease(EtcdLeaseState state, _unused_ int64_t lease, void *userdata)
{
    LogReaders *all = userdata;
    if (state != ETCD_LEASE_GRANTED)
        return;
    for (size_t i = 0; i < all->n; i++) /* the requests were deleted with the previous lease */
        if (all->of[i]->state == READER_RECEIVES || all->of[i]->state == READER_REQUESTS)
            reader_put(all->of[i]);
}

/* ---- creation and end ---- */

/* Waits until the watch has begun and the lease is granted, because an answer before the watch begins could be missed.
 * A missing right is found before any node receives a request. */
static int wait_open(LogReaders *all, Error *err)
{
    char key[KEY_MAX];
    _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
    int r = client_get(all->client, key_of(all->client->cluster, KEY_LINES, ".rights", key), false,
                       &answer, err);
    if (r == -EACCES)
        return error_set(err, r,
                         "etcd does not let this user read logs (%s); "
                         "/usr/share/sdtrain/etcd-roles gives the right",
                         key_prefix(all->client->cluster, KEY_LINES, key));
    if (r < 0)
        return r;
    const uint64_t deadline = clock_boottime_usec() + OPEN_SEC * USEC_PER_SEC;
    r = etcd_watch_prefix(all->client->etcd, key_prefix(all->client->cluster, KEY_LINES, key),
                          on_lines, all, &all->watch);
    if (r == 0)
        r = etcd_lease_new(all->client->etcd, LOG_READERS_LEASE_SEC,
                           key_of(all->client->cluster, KEY_ASKS, ".rights", key), on_lease, all,
                           &all->lease);
    if (r < 0)
        return error_errno(err, r, "cannot ask for logs");
    while (!all->listed || etcd_lease_id(all->lease) == 0) {
        if (sd_event_get_state(all->client->event) == SD_EVENT_FINISHED)
            return error_set(err, -ECANCELED, "told to end");
        if (clock_boottime_usec() > deadline)
            return error_set(err, -ECONNREFUSED, "etcd at %s gives no lease to ask for logs",
                             all->client->endpoints);
        r = sd_event_run(all->client->event, 100 * USEC_PER_MSEC);
        if (r < 0)
            return error_errno(err, r, "waiting for etcd");
    }
    return 0;
}

int log_readers_new(CtlClient *client, const char *job, const LogReadersEvents *events,
                    LogReaders **ret, Error *err)
{
    _cleanup_(log_readers_freep) LogReaders *all = memory_new(LogReaders);
    *all = (LogReaders){.client = client,
                        .events = *events,
                        .budget_bytes = LOG_READERS_BURST_BYTES,
                        .budget_usec = clock_boottime_usec()};
    (void)snprintf(all->job, sizeof(all->job), "%s", job);
    int r = hash_draw(all->name);
    if (r < 0)
        return error_errno(err, r, "no random name to ask by");
    r = wait_open(all, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(all);
    return 0;
}

LogReaders *log_readers_free(LogReaders *all)
{
    if (!all)
        return NULL;
    for (size_t i = 0; i < all->n; i++)
        (void)reader_free(all->of[i]);
    free(all->of);
    all->late = sd_event_source_disable_unref(all->late);
    all->revoke = etcd_call_free(all->revoke);
    all->watch = etcd_watch_free(all->watch);
    all->lease = etcd_lease_free(all->lease);
    free(all);
    return NULL;
}

static void closed(LogReaders *all)
{
    void (*done)(void *userdata) = all->closed;
    all->closed = NULL;
    if (done)
        done(all->closed_userdata);
}

static void on_revoked(_unused_ int r, _unused_ const Error *err,
                       _unused_ const EtcdTxnResult *result, void *userdata)
{
    LogReaders *all = userdata;
    all->revoke = NULL; /* the call frees itself; if the revocation failed, the lease expires */
    closed(all);
}

static int on_late(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    closed(userdata);
    return 0;
}

void log_readers_close(LogReaders *all, void (*done)(void *userdata), void *userdata)
{
    if (all->late)
        return; /* log_readers_close() was called before */
    all->closed = done;
    all->closed_userdata = userdata;
    for (size_t i = 0; i < all->n; i++)
        all->of[i]->state = READER_OVER;
    if (sd_event_add_time_relative(all->client->event, &all->late, CLOCK_BOOTTIME,
                                   CLOSE_MSEC * USEC_PER_MSEC, 1, on_late, all) < 0 ||
        etcd_lease_revoke(all->lease, on_revoked, all, &all->revoke) < 0)
        closed(all);
}
