/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c - reports the state of a key range and its changes.
 *
 * A watch lists the keys, then receives the changes after the list through a stream; whenever the stream ends, for
 * whatever reason, the watch lists the keys and opens a stream again. It remembers the name, create revision and mod
 * revision of each key that it delivered, and delivers only the difference of a later list. The watch does the same
 * after a disconnect, a change of leader, a compaction, and when the store was restored from a backup.
 *
 * If a stream is silent, the watch requests a progress report; without an answer, it connects to another member. The
 * revision in a progress report is not used: etcd before 3.4.25 may send the report ahead of the
 * events. */
#include "base/log.h"
#include "etcd/etcd-internal.h"

#include <string.h>

enum {
    IDLE_SEC = 5,    /* after this time without any message, request a progress report */
    PATIENCE_SEC = 4 /* after this time without an answer, leave the member */
};

typedef struct Known {
    char *key;
    int64_t create_revision, mod_revision;
} Known;

struct EtcdWatch {
    Etcd *etcd;
    char *prefix, *end;
    bool one_key; /* true: prefix is the whole key */
    ProtobufCBinaryData end_bytes;
    EtcdWatchHandler handler;
    void *userdata;

    EtcdCall *listing;
    Rpc *stream;
    sd_event_source *timer; /* starts the next attempt, or the next check of a silent stream */
    uint64_t n_lists;
    bool connected, complained;
    /* While the handler runs: a flag in deliver() that etcd_watch_free() sets. Otherwise NULL. */
    bool *freed;
    unsigned n_failures;
    int64_t revision; /* all events up to this revision are delivered */
    uint64_t heard_usec;
    bool asked; /* a request for progress, or for the watch itself, is unanswered */

    Known *known; /* the delivered keys that still exist, sorted */
    size_t n_known, known_size;

    /* Messages with fragments of one revision, held until its last fragment arrives. first_held: how many events of
     * held[0] are delivered already. */
    Pb__WatchResponse **held;
    size_t n_held, first_held;
};

static const WireMethod watch_method = {
    .path = "/etcdserverpb.Watch/Watch",
    .purpose = "watch",
    .response = &pb__watch_response__descriptor,
};

/* ---- delivered keys ---- */

static size_t known_find(const EtcdWatch *watch, const char *key, bool *ret_found)
{
    size_t low = 0, high = watch->n_known;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(watch->known[middle].key, key);
        if (order == 0) {
            *ret_found = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *ret_found = false;
    return low;
}

static void known_update(EtcdWatch *watch, const EtcdEvent *event)
{
    bool found;
    size_t at = known_find(watch, event->kv.key, &found);

    if (event->kind == ETCD_EVENT_DELETE) {
        if (found) {
            free(watch->known[at].key);
            watch->n_known--;
            memmove(&watch->known[at], &watch->known[at + 1],
                    (watch->n_known - at) * sizeof(Known));
        }
        return;
    }
    if (!found) {
        watch->known = memory_grow(watch->known, watch->n_known, &watch->known_size, sizeof(Known));
        assert(at <= watch->n_known && watch->n_known < watch->known_size);
        memmove(&watch->known[at + 1], &watch->known[at], (watch->n_known - at) * sizeof(Known));
        watch->n_known++;
        watch->known[at].key = memory_text(event->kv.key);
    }
    watch->known[at].create_revision = event->kv.create_revision;
    watch->known[at].mod_revision = event->kv.mod_revision;
}

static void known_free(Known *known, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(known[i].key);
    free(known);
}

/* ---- delivery ---- */

/* Calls the handler. Returns false if the handler freed the watch. */
static bool deliver(EtcdWatch *watch, const EtcdEvent *events, size_t n, int64_t revision,
                    bool initial)
{
    bool freed = false;

    assert(!watch->freed); /* no handler runs within another */
    watch->freed = &freed;
    watch->handler(events, n, revision, initial, watch->userdata);
    if (freed)
        return false;
    watch->freed = NULL;
    return true;
}

static EtcdEvent delete_event(const char *key, int64_t revision)
{
    return (EtcdEvent){.kind = ETCD_EVENT_DELETE,
                       .kv = {.key = key, .value = "", .mod_revision = revision}};
}

static int by_revision(const void *a, const void *b)
{
    const EtcdEvent *x = a, *y = b;
    return x->kv.mod_revision < y->kv.mod_revision   ? -1
           : x->kv.mod_revision > y->kv.mod_revision ? 1
                                                     : strcmp(x->kv.key, y->kv.key);
}

/* Writes to ret the events that lead from the known keys to the list: the deletes, then the puts, sorted by revision.
 * Known keys and list are sorted by key. ret has room for n_known + range->n_kvs events. Returns how many it wrote. */
static size_t difference(const EtcdWatch *watch, const EtcdRange *range, EtcdEvent *ret)
{
    size_t n = 0, i = 0;
    EtcdEvent *puts = ret + watch->n_known;
    size_t n_puts = 0;

    for (size_t j = 0; j <= range->n_kvs; j++) {
        const EtcdKeyValue *kv = j < range->n_kvs ? &range->kvs[j] : NULL;
        for (; i < watch->n_known && (!kv || strcmp(watch->known[i].key, kv->key) < 0); i++)
            ret[n++] = delete_event(watch->known[i].key, range->revision);
        if (!kv)
            break;
        bool same_key = i < watch->n_known && !strcmp(watch->known[i].key, kv->key);
        const Known *known = same_key ? &watch->known[i++] : NULL;
        if (known && known->create_revision != kv->create_revision)
            ret[n++] = delete_event(kv->key, kv->create_revision - 1); /* or earlier */
        if (!known || known->create_revision != kv->create_revision ||
            known->mod_revision != kv->mod_revision)
            puts[n_puts++] = (EtcdEvent){.kind = ETCD_EVENT_PUT, .kv = *kv};
    }
    assert(n <= watch->n_known && n_puts <= range->n_kvs);
    qsort(puts, n_puts, sizeof(*puts), by_revision);
    memmove(ret + n, puts, n_puts * sizeof(*puts));
    return n + n_puts;
}

/* ---- list ---- */

static void stream_start(EtcdWatch *watch);
static void list_start(EtcdWatch *watch);

static void timer_set(EtcdWatch *watch, uint64_t after_usec)
{
    /* Setting a timer fails only when the event loop has finished. */
    (void)sd_event_source_set_time(watch->timer, clock_boottime_usec() + after_usec);
    (void)sd_event_source_set_enabled(watch->timer, SD_EVENT_ONESHOT);
}

static void held_free(EtcdWatch *watch)
{
    for (size_t i = 0; i < watch->n_held; i++)
        message_free(&watch->held[i]->base);
    free(watch->held);
    watch->held = NULL;
    watch->n_held = watch->first_held = 0;
}

static void stream_drop(EtcdWatch *watch)
{
    watch->stream = rpc_cancel(watch->stream);
    watch->connected = false;
    held_free(watch);
}

static void try_again(EtcdWatch *watch, const char *reason)
{
    char words[ETCD_WORDS_BYTES];
    auth_describe(watch->etcd, reason, words);
    /* Log one line per outage, not one per attempt. */
    if (!watch->complained && watch->n_failures > 0)
        log_warning("watch of %s is down: %s", watch->prefix, words);
    watch->complained = watch->n_failures > 0;
    stream_drop(watch);
    timer_set(watch, backoff_usec(watch->n_failures++));
}

static void on_list(int r, const Error *err, const EtcdRange *range, void *userdata)
{
    EtcdWatch *watch = userdata;

    assert(watch->listing && !watch->stream && !watch->held);
    watch->listing = NULL;
    if (r < 0) {
        try_again(watch, err->text);
        return;
    }
    size_t n_old = watch->n_known;
    EtcdEvent *events = memory_zeroed(n_old + range->n_kvs + 1, sizeof(*events));
    size_t n = difference(watch, range, events);

    /* The old keys must stay valid until the events that refer to them are delivered. */
    Known *old = TAKE_PTR(watch->known);
    watch->n_known = range->n_kvs;
    watch->known_size = range->n_kvs;
    watch->known = memory_zeroed(range->n_kvs, sizeof(Known));
    for (size_t i = 0; i < range->n_kvs; i++)
        watch->known[i] = (Known){.key = memory_text(range->kvs[i].key),
                                  .create_revision = range->kvs[i].create_revision,
                                  .mod_revision = range->kvs[i].mod_revision};
    watch->revision = range->revision;

    bool initial = watch->n_lists++ == 0;
    stream_start(watch);
    (void)deliver(watch, events, n, range->revision, initial); /* the handler may free the watch */
    known_free(old, n_old);
    free(events);
}

static void list_start(EtcdWatch *watch)
{
    assert(!watch->listing && !watch->stream);
    int r = etcd_get(watch->etcd, watch->prefix, !watch->one_key, on_list, watch, &watch->listing);
    if (r < 0)
        try_again(watch, strerror(-r));
}

/* ---- watch ---- */

static EtcdEvent event_view(const Pb__Event *event)
{
    if (!event->kv) /* etcd never sends such an event; revision 0 is skipped as old */
        return (EtcdEvent){.kv = {.key = "", .value = ""}};
    return (EtcdEvent){.kind = event->type == PB__EVENT__EVENT_TYPE__DELETE ? ETCD_EVENT_DELETE
                                                                            : ETCD_EVENT_PUT,
                       .kv = key_value_view(event->kv)};
}

/* Delivers events[0..n), one revision at a time. If `more`, the last revision is not delivered, because further events
 * of that revision may follow. Returns how many events are handled; -ECANCELED if the handler freed the watch. */
static ssize_t deliver_revisions(EtcdWatch *watch, const EtcdEvent *events, size_t n, bool more)
{
    size_t from = 0;

    while (from < n) {
        int64_t revision = events[from].kv.mod_revision;
        size_t to = from;
        while (to < n && events[to].kv.mod_revision == revision)
            to++;
        if (to == n && more)
            break;
        if (revision > watch->revision) {
            for (size_t i = from; i < to; i++)
                known_update(watch, &events[i]);
            watch->revision = revision;
            history_note_revision(watch->etcd, revision);
            if (!deliver(watch, &events[from], to - from, revision, false))
                return -ECANCELED;
        }
        from = to;
    }
    return (ssize_t)from;
}

static void deliver_held(EtcdWatch *watch, bool more)
{
    /* Take the held messages out of the watch, as the handler may free it; messages that must wait are
     * put back below. */
    Pb__WatchResponse **held = TAKE_PTR(watch->held);
    size_t n_held = watch->n_held, skip = watch->first_held, n = 0, used = 0;
    watch->n_held = watch->first_held = 0;

    for (size_t i = 0; i < n_held; i++)
        n += held[i]->n_events;
    _cleanup_free_ EtcdEvent *events = memory_zeroed(n + 1, sizeof(*events));
    n = 0;
    for (size_t i = 0; i < n_held; i++)
        for (size_t j = 0; j < held[i]->n_events; j++)
            events[n++] = event_view(held[i]->events[j]);

    assert(skip <= n);
    ssize_t done = deliver_revisions(watch, events + skip, n - skip, more);
    size_t first = skip + (done < 0 ? 0 : (size_t)done);
    assert(first <= n);
    while (used < n_held && (!more || done < 0 || held[used]->n_events <= first)) {
        first -= MIN(held[used]->n_events, first);
        message_free(&held[used++]->base);
    }
    if (used == n_held) {
        free(held);
        return;
    }
    assert(first < held[used]->n_events); /* the rest of one revision must wait */
    /* NOLINTNEXTLINE(bugprone-sizeof-expression) */
    memmove(held, held + used, (n_held - used) * sizeof(*held));
    watch->held = held;
    watch->n_held = n_held - used;
    watch->first_held = first;
}

static void on_watch_message(void *userdata, ProtobufCMessage *message)
{
    EtcdWatch *watch = userdata;
    Pb__WatchResponse *response = (Pb__WatchResponse *)message;

    assert(watch->stream && !watch->listing);
    watch->heard_usec = clock_boottime_usec();
    watch->asked = false;
    if (response->canceled) {
        char reason[160];
        (void)snprintf(reason, sizeof(reason), "%s",
                       response->compact_revision > 0 ? "its revision is compacted"
                                                      : response->cancel_reason);
        /* etcd also reports an expired token as "permission denied". */
        if (strstr(reason, "permission denied"))
            auth_forget(watch->etcd);
        message_free(message);
        try_again(watch, reason);
        return;
    }
    if (response->created) {
        watch->connected = true;
        watch->complained = false;
        watch->n_failures = 0;
        timer_set(watch, IDLE_SEC * USEC_PER_SEC);
    }
    if (response->n_events == 0 && !watch->held) {
        message_free(message);
        return;
    }
    /* NOLINTBEGIN(bugprone-sizeof-expression): an array of pointers it is */
    watch->held = memory_resize(watch->held, watch->n_held + 1, sizeof(*watch->held));
    /* NOLINTEND(bugprone-sizeof-expression) */
    watch->held[watch->n_held++] = response;
    deliver_held(watch, response->fragment);
}

static void on_watch_ended(void *userdata, const RpcStatus *status)
{
    EtcdWatch *watch = userdata;

    watch->stream = NULL;
    stream_ended(watch->etcd, status);
    try_again(watch, status->silent ? "its member is silent" : status->text);
}

static const RpcEvents watch_events = {.message = on_watch_message, .ended = on_watch_ended};

static void stream_start(EtcdWatch *watch)
{
    Pb__WatchRequest request = PB__WATCH_REQUEST__INIT;
    Pb__WatchCreateRequest create = PB__WATCH_CREATE_REQUEST__INIT;

    assert(!watch->stream && !watch->listing);
    create.key = *watch->prefix ? bytes_of(watch->prefix)
                                : (ProtobufCBinaryData){1, (uint8_t *)watch->prefix};
    create.range_end = watch->end_bytes;
    /* Start at the revision that is delivered already; its events are skipped. If the watch started at
     * the next revision and that is compacted by now, etcd would accept the watch and never report the
     * deletes of that revision. */
    create.start_revision = watch->revision;
    create.fragment = true;
    request.request_case = PB__WATCH_REQUEST__REQUEST_CREATE;
    request.create = &create;

    _cleanup_(wire_request_freep) WireRequest *packed = wire_request_new(&request.base);
    watch->stream = rpc_start(watch->etcd, endpoint_pick(watch->etcd), &watch_method, packed,
                              USEC_INFINITY, &watch_events, watch);
    watch->heard_usec = clock_boottime_usec();
    watch->asked = true;
    timer_set(watch, PATIENCE_SEC * USEC_PER_SEC);
}

static void look_at_stream(EtcdWatch *watch)
{
    uint64_t silent_usec = clock_boottime_usec() - watch->heard_usec;
    Pb__WatchRequest request = PB__WATCH_REQUEST__INIT;
    Pb__WatchProgressRequest progress = PB__WATCH_PROGRESS_REQUEST__INIT;

    if (watch->asked) {
        endpoint_avoid(watch->stream->endpoint, PATIENCE_SEC * USEC_PER_SEC);
        try_again(watch, "it is silent");
    } else if (silent_usec < IDLE_SEC * USEC_PER_SEC) {
        timer_set(watch, IDLE_SEC * USEC_PER_SEC - silent_usec);
    } else {
        request.request_case = PB__WATCH_REQUEST__REQUEST_PROGRESS;
        request.progress = &progress;
        /* -EBUSY: the previous request is not even sent; this counts as no answer. */
        (void)rpc_send(watch->stream, &request.base);
        watch->asked = true;
        timer_set(watch, PATIENCE_SEC * USEC_PER_SEC);
    }
}

static int on_watch_timer(sd_event_source *source _unused_, uint64_t usec _unused_, void *userdata)
{
    EtcdWatch *watch = userdata;

    if (watch->etcd->closed)
        return 0;
    if (watch->stream)
        look_at_stream(watch);
    else if (!watch->listing)
        list_start(watch);
    return 0;
}

/* ---- creation and end ---- */

static int watch_new(Etcd *etcd, const char *prefix, bool one_key, EtcdWatchHandler handler,
                     void *userdata, EtcdWatch **ret)
{
    _cleanup_(etcd_watch_freep) EtcdWatch *watch = memory_new(EtcdWatch);
    watch->etcd = etcd_ref(etcd);
    watch->handler = handler;
    watch->userdata = userdata;
    watch->one_key = one_key;
    watch->prefix = memory_text(prefix);
    watch->end = memory_text(prefix);
    if (!one_key)
        watch->end_bytes = range_end(watch->end);
    int r = timer_new(etcd, on_watch_timer, watch, &watch->timer);
    if (r >= 0)
        r = etcd_get(etcd, prefix, !one_key, on_list, watch, &watch->listing);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(watch);
    return 0;
}

int etcd_watch_prefix(Etcd *etcd, const char *prefix, EtcdWatchHandler handler, void *userdata,
                      EtcdWatch **ret)
{
    return watch_new(etcd, prefix, false, handler, userdata, ret);
}

int etcd_watch_key(Etcd *etcd, const char *key, EtcdWatchHandler handler, void *userdata,
                   EtcdWatch **ret)
{
    return watch_new(etcd, key, true, handler, userdata, ret);
}

EtcdWatch *etcd_watch_free(EtcdWatch *watch)
{
    if (!watch)
        return NULL;
    if (watch->freed)
        *watch->freed = true;
    if (!watch->etcd->closed) {
        (void)etcd_call_free(watch->listing);
        (void)rpc_cancel(watch->stream);
    }
    sd_event_source_disable_unref(watch->timer);
    held_free(watch);
    known_free(watch->known, watch->n_known);
    free(watch->prefix);
    free(watch->end);
    (void)etcd_unref(watch->etcd);
    free(watch);
    return NULL;
}

uint64_t etcd_watch_lists(const EtcdWatch *watch) { return watch->n_lists; }

bool etcd_watch_knows(const EtcdWatch *watch, const char *key)
{
    bool found;
    (void)known_find(watch, key, &found); /* the position is not needed */
    return found;
}

bool etcd_watch_connected(const EtcdWatch *watch)
{
    return watch->connected && !watch->etcd->closed;
}
