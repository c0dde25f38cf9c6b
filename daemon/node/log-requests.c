/* SPDX-License-Identifier: Apache-2.0 */
/* log-requests.c - see log-requests.h. */
#include "daemon/node/log-requests.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "daemon/process/log-tail.h"

#include <string.h>

enum {
    RIGHTS_MSEC = 30000,
    RETRY_MSEC = 200,
    FAILED_MSEC = 1000,
    PAUSE_MAX_SEC = 60,
    RECORD_BYTES = 512, /* bytes that a record takes in etcd besides its text */
};

static void look_later(LogRequests *requests);
static bool answer_request(LogRequest *request, uint64_t now);

static LogRequest *find_request(LogRequests *requests, const char *id)
{
    for (size_t i = 0; i < LOG_REQUESTS_MAX; i++)
        if (requests->of[i].requests && strcmp(requests->of[i].id, id) == 0)
            return &requests->of[i];
    return NULL;
}

static void forget_request(LogRequest *request)
{
    request->call = etcd_call_free(request->call);
    log_request_record_clear(&request->record);
    *request = (LogRequest){0};
}

/* ---- writing answers ---- */

static void warn_once(LogRequests *requests, const Error *err)
{
    if (!requests->refused_told)
        log_warning("cannot answer who asks for logs: %s; /usr/share/sdtrain/etcd-roles gives the "
                    "right NODE=%s",
                    err->text, requests->config->node);
    requests->refused_told = true;
}

static void on_removed(_unused_ int r, _unused_ const Error *err,
                       _unused_ const EtcdTxnResult *result, _unused_ void *userdata)
{
    /* a failure is ignored: the lines expire with the node's lease */
}

static void remove_lines(LogRequests *requests, const char *id)
{
    char key[KEY_MAX];
    const EtcdOp op = {.kind = ETCD_DELETE,
                       .key = key_log(requests->config->cluster, KEY_LINES, requests->config->node,
                                      id, key)};
    /* A failure to delete the lines is ignored, see on_removed(). */
    (void)etcd_txn(requests->etcd, NULL, 0, &op, 1, on_removed, NULL, NULL);
}

static void on_put(int r, const Error *err, _unused_ const EtcdTxnResult *result, void *userdata)
{
    LogRequest *request = userdata;
    LogRequests *requests = request->requests;
    assert(requests && request->call);
    request->call = NULL; /* the call frees itself */
    if (request->gone) {
        remove_lines(requests, request->id);
        forget_request(request);
        return;
    }
    if (r == -EACCES) {
        warn_once(requests, err);
        forget_request(request);
        return;
    }
    const uint64_t now = clock_boottime_usec();
    if (r < 0) {
        request->answered = 0;
        request->next_usec = now + FAILED_MSEC * USEC_PER_MSEC;
    } else if (request->ends) {
        forget_request(request);
        return;
    } else if (request->answered == request->record.seq && request->put_usec == 0) {
        request->put_usec = now;
    }
    /* The reader may have asked again before etcd confirmed the write. */
    if (answer_request(request, now))
        look_later(requests);
}

static bool put_lines(LogRequests *requests, const char *id, const LogLinesRecord *lines,
                      EtcdTxnHandler handler, void *userdata, EtcdCall **ret)
{
    char key[KEY_MAX];
    const int64_t lease = etcd_lease_id(requests->lease);
    if (lease == 0 || !*requests->has_name) /* the requests are for another node */
        return false;
    _cleanup_free_ char *value = log_lines_record_encode(lines, NULL);
    const EtcdOp op = {.kind = ETCD_PUT,
                       .key = key_log(requests->config->cluster, KEY_LINES, requests->config->node,
                                      id, key),
                       .value = value,
                       .lease = lease};
    requests->budget_bytes -= (int64_t)strlen(value) + RECORD_BYTES;
    return etcd_txn(requests->etcd, NULL, 0, &op, 1, handler, userdata, ret) == 0;
}

/* ---- reading log files ---- */

static bool has_budget(LogRequests *requests, uint64_t now)
{
    const uint64_t passed = MIN(now - requests->budget_usec, (uint64_t)100 * USEC_PER_SEC);
    requests->budget_bytes =
        MIN(requests->budget_bytes + (int64_t)(passed * LOG_REQUESTS_BYTES_A_SEC / USEC_PER_SEC),
            (int64_t)LOG_REQUESTS_BURST_BYTES);
    requests->budget_usec = now;
    return requests->budget_bytes > 0;
}

/* Fills in the ranks of this node for a reader that does not know them. */
static void find_ranks(LogRequestRecord *record, const LogTail *tail)
{
    int ranks[RECORD_SLOTS_MAX];
    const size_t n = log_tail_ranks(tail, ranks, RECORD_SLOTS_MAX);
    if (n == 0)
        return;
    free(record->places); /* frees the empty list */
    record->places = memory_zeroed(n, sizeof(record->places[0]));
    record->n_places = n;
    for (size_t i = 0; i < n; i++)
        record->places[i].rank = ranks[i];
}

typedef struct Draft {
    LogLinesRecord lines;
    LogPart parts[RECORD_SLOTS_MAX];
    char text[LOG_TEXT_MAX + 1];
    size_t n_text;
    bool tells_any; /* the draft holds text, or a number of skipped bytes */
} Draft;

static void read_rank(const LogTail *tail, const LogPlace *place, size_t room, Draft *draft)
{
    LogTailPiece piece = {0};
    assert(draft->lines.n_parts < ELEMENTSOF(draft->parts));
    assert(draft->n_text + room <= LOG_TEXT_MAX);
    LogPart *part = &draft->parts[draft->lines.n_parts++];
    *part = (LogPart){.next = *place};
    if (log_tail_read(tail, &part->next, draft->text + draft->n_text, room, &piece) < 0) {
        part->missing = true; /* the log has not begun or was deleted; the reader knows which */
        return;
    }
    part->bytes = (int64_t)piece.n;
    part->skipped = piece.skipped;
    draft->n_text += piece.n;
    draft->tells_any |= piece.n > 0 || piece.skipped > 0;
    draft->lines.more |= piece.more;
}

/* With `follow`, the ranks share the room in an answer, and each answer begins with another rank. Without `follow`, the
 * ranks are read one after another. */
static void read_ranks(const LogRequestRecord *request, const LogTail *tail, Draft *draft)
{
    const size_t n = request->n_places;
    const size_t share = MAX(LOG_TEXT_MAX / MAX(n, (size_t)1), (size_t)LOG_TAIL_LINE_MAX);
    const size_t first = request->follow && n > 0 ? (size_t)request->seq % n : 0;
    draft->lines.parts = draft->parts;
    draft->lines.text = draft->text;
    for (size_t i = 0; i < n; i++) {
        const LogPlace *place = &request->places[(first + i) % n];
        const size_t room = LOG_TEXT_MAX - draft->n_text;
        if (room >= LOG_TAIL_LINE_MAX && (request->follow || !draft->lines.more)) {
            read_rank(tail, place, request->follow ? MIN(room, share) : room, draft);
            continue;
        }
        /* This log is read for a later answer. */
        draft->parts[draft->lines.n_parts++] = (LogPart){.next = *place};
        draft->lines.more = true;
    }
    assert(draft->lines.n_parts == n);
    draft->text[draft->n_text] = '\0';
}

/* Answers the request if that is possible now. Returns whether the request still waits. */
static bool answer_request(LogRequest *request, uint64_t now)
{
    LogRequests *requests = request->requests;
    LogRequestRecord *record = &request->record;
    if (request->call || request->gone || request->answered == record->seq)
        return false; /* on_put() tries again */
    if (now < request->next_usec || !has_budget(requests, now))
        return true;
    const LogTail tail = {.log_dir = requests->config->log_dir,
                          .job = record->job,
                          .generation = record->generation,
                          .tail_bytes = MIN(record->tail_bytes, (int64_t)LOG_REQUESTS_TAIL_MAX),
                          .follow = record->follow};
    Draft *draft =
        memory_new(Draft); /* too large for a stack that is shared with gRPC's callbacks */
    draft->lines = (LogLinesRecord){.seq = record->seq};
    if (record->n_places == 0)
        find_ranks(record, &tail);
    read_ranks(record, &tail, draft);
    request->ends = draft->lines.end = !record->follow && !draft->lines.more;
    /* The first answer is sent even if empty: it shows that this node serves the request. */
    const bool due = draft->tells_any || request->ends || !request->told;
    const bool put =
        due && put_lines(requests, request->id, &draft->lines, on_put, request, &request->call);
    if (put) {
        request->answered = record->seq;
        request->told = true;
        request->next_usec =
            draft->lines.more
                ? 0
                : now + CLAMP((uint64_t)record->pause_usec, LOG_REQUESTS_PAUSE_MSEC * USEC_PER_MSEC,
                              PAUSE_MAX_SEC * USEC_PER_SEC);
    }
    free(draft);
    return !put;
}

static void on_look(void *userdata)
{
    LogRequests *requests = userdata;
    const uint64_t now = clock_boottime_usec();
    bool waits = false;
    for (size_t i = 0; i < LOG_REQUESTS_MAX; i++)
        if (requests->of[i].requests)
            waits |= answer_request(&requests->of[i], now);
    if (waits)
        look_later(requests);
}

static void look_later(LogRequests *requests)
{
    if (!timer_runs(&requests->look))
        timer_start(requests->timers, &requests->look, LOG_REQUESTS_LOOK_MSEC * USEC_PER_MSEC,
                    on_look, requests);
}

/* ---- accepting requests ---- */

static void on_refused(int r, const Error *err, _unused_ const EtcdTxnResult *result,
                       void *userdata)
{
    if (r == -EACCES)
        warn_once(userdata, err);
}

static void refuse(LogRequests *requests, const char *id, const LogRequestRecord *record)
{
    LogLinesRecord lines = {.seq = record->seq, .end = true};
    (void)snprintf(lines.refused, sizeof(lines.refused), "%d readers are served already",
                   LOG_REQUESTS_MAX);
    /* If the refusal cannot be put, the reader times out. */
    (void)put_lines(requests, id, &lines, on_refused, requests, NULL);
}

/* If no place is free, frees the place of the reader whose answer has waited longest, at least
 * LOG_REQUESTS_UNTAKEN_SEC. */
static void free_place(LogRequests *requests, uint64_t now)
{
    LogRequest *found = NULL;
    for (size_t i = 0; i < LOG_REQUESTS_MAX; i++) {
        LogRequest *request = &requests->of[i];
        if (!request->requests)
            return; /* a place is free */
        const bool waits = request->put_usec > 0 && !request->call;
        if (waits && (!found || request->put_usec < found->put_usec))
            found = request;
    }
    if (found && now - found->put_usec >= LOG_REQUESTS_UNTAKEN_SEC * USEC_PER_SEC)
        forget_request(found); /* deletes the lines and the request */
}

static void accept_request(LogRequests *requests, const char *id, LogRequestRecord *record)
{
    LogRequest *request = find_request(requests, id);
    if (!request)
        free_place(requests, clock_boottime_usec());
    for (size_t i = 0; !request && i < LOG_REQUESTS_MAX; i++)
        if (!requests->of[i].requests) {
            request = &requests->of[i];
            request->requests = requests;
            (void)snprintf(request->id, sizeof(request->id), "%s", id);
        }
    if (!request) {
        refuse(requests, id, record);
        log_request_record_clear(record);
        return;
    }
    if (request->record.seq != record->seq)
        request->put_usec = 0;
    log_request_record_clear(&request->record);
    request->record = *record;
    if (request->gone) { /* the write under way answers an earlier request with this id */
        request->gone = request->ends = request->told = false;
        request->answered = 0;
        request->put_usec = 0;
        request->next_usec = 0;
    }
    if (answer_request(request, clock_boottime_usec()))
        look_later(requests);
}

static void drop_request(LogRequests *requests, const char *id)
{
    LogRequest *request = find_request(requests, id);
    if (request && request->call) {
        request->gone = true; /* on_put() removes the lines after the write under way */
        return;
    }
    if (request)
        forget_request(request);
    remove_lines(requests, id);
}

static void on_damaged(void *userdata);

static void begin_to_count(LogRequests *requests)
{
    timer_start(requests->timers, &requests->damaged, LOG_REQUESTS_DAMAGED_SEC * USEC_PER_SEC,
                on_damaged, requests);
}

static void on_damaged(void *userdata)
{
    LogRequests *requests = userdata;
    if (requests->n_damaged == 0)
        return;
    log_warning("%u more asks for logs were passed over within %d s, the last: %s",
                requests->n_damaged, LOG_REQUESTS_DAMAGED_SEC, requests->damaged_text);
    requests->n_damaged = 0;
    begin_to_count(requests);
}

/* Logs that a request is skipped: at once for the first skipped request, then once a minute for all later skipped
 * requests, so that a client cannot fill the journal. */
static void pass_over(LogRequests *requests, const char *text)
{
    if (timer_runs(&requests->damaged)) {
        requests->n_damaged++;
        (void)snprintf(requests->damaged_text, sizeof(requests->damaged_text), "%s", text);
        return;
    }
    log_warning("%s", text);
    begin_to_count(requests);
}

static void on_request_events(const EtcdEvent *events, size_t n_events, _unused_ int64_t revision,
                              _unused_ bool initial, void *userdata)
{
    LogRequests *requests = userdata;
    for (size_t i = 0; i < n_events; i++) {
        KeyKind kind;
        const char *rest;
        char node[NODE_NAME_MAX + 1], id[LOG_ID_MAX + 1];
        const EtcdKeyValue *kv = &events[i].kv;
        LogRequestRecord record;
        Error err = ERROR_INIT;
        if (key_parse(requests->config->cluster, kv->key, &kind, &rest) < 0 || kind != KEY_ASKS ||
            key_parse_log(rest, node, sizeof(node), id, sizeof(id)) < 0)
            continue; /* the key is not that of a request */
        if (events[i].kind == ETCD_EVENT_DELETE)
            drop_request(requests, id);
        else if (kv->lease == 0) {
            (void)error_set(&err, -EINVAL,
                            "%s: it has no lease, so it would stay for ever; passed over", kv->key);
            pass_over(requests, err.text);
        } else if (log_request_record_decode(kv->key, kv->value, kv->n_value, &record, &err) < 0)
            pass_over(requests, err.text);
        else
            accept_request(requests, id, &record);
    }
}

/* ---- the right to read asks ---- */

static void on_rights_retry(void *userdata) { log_requests_open(userdata); }

static void request_again(LogRequests *requests, uint64_t msec)
{
    timer_start(requests->timers, &requests->rights_retry, msec * USEC_PER_MSEC, on_rights_retry,
                requests);
}

static void on_rights(int r, _unused_ const Error *err, _unused_ const EtcdRange *range,
                      void *userdata)
{
    LogRequests *requests = userdata;
    char prefix[KEY_MAX];
    requests->rights_call = NULL; /* the call frees itself */
    if (r == 0)
        r = etcd_watch_prefix(requests->etcd,
                              key_log(requests->config->cluster, KEY_ASKS, requests->config->node,
                                      "", prefix),
                              on_request_events, requests, &requests->watch);
    /* After -EACCES an operator may update the roles in etcd, so the right is checked again later. */
    if (r < 0)
        request_again(requests, r == -EACCES ? RIGHTS_MSEC : RETRY_MSEC);
    else
        requests->ready(requests->userdata);
}

void log_requests_open(LogRequests *requests)
{
    char key[KEY_MAX];
    assert(!requests->rights_call && !requests->watch);
    requests->budget_bytes = LOG_REQUESTS_BURST_BYTES;
    int r = etcd_get(requests->etcd,
                     key_log(requests->config->cluster, KEY_ASKS, requests->config->node, ".rights",
                             key),
                     false, on_rights, requests, &requests->rights_call);
    if (r < 0)
        request_again(requests, RETRY_MSEC);
}

void log_requests_clear(LogRequests *requests)
{
    requests->watch = etcd_watch_free(requests->watch);
    requests->rights_call = etcd_call_free(requests->rights_call);
    timer_stop(&requests->rights_retry);
    timer_stop(&requests->look);
    timer_stop(&requests->damaged);
    for (size_t i = 0; i < LOG_REQUESTS_MAX; i++)
        forget_request(&requests->of[i]);
}

void log_requests_lease_changed(LogRequests *requests)
{
    for (size_t i = 0; i < LOG_REQUESTS_MAX; i++)
        if (requests->of[i].requests)
            requests->of[i].answered = 0;
    look_later(requests);
}
