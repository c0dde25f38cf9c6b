/* SPDX-License-Identifier: Apache-2.0 */
/* raw-stream.c - see raw-stream.h. Window k is read into buffer k % 2. */
#include "prep/raw/raw-stream.h"

#include <string.h>

enum { WINDOW_BYTES = 4 << 20 };

typedef struct Window {
    uint64_t number;
    bool begun, whole; /* begun: a read is under way; whole: the window was read */
    char *data;
    StoreRead read;
} Window;

struct RawStream {
    Store *store;
    char *key;
    uint64_t n_bytes;
    Window windows[2];
    StoreWait wait;
};

int raw_stream_new(Store *store, const char *key, uint64_t n_bytes, RawStream **ret, Error *err)
{
    _cleanup_(raw_stream_freep) RawStream *s = calloc(1, sizeof(*s));
    size_t room = (size_t)MIN((uint64_t)WINDOW_BYTES, MAX(n_bytes, 1));
    if (s) {
        s->store = store;
        s->n_bytes = n_bytes;
        s->key = strdup(key);
        s->windows[0].data = malloc(room);
        s->windows[1].data = malloc(room);
    }
    if (!s || !s->key || !s->windows[0].data || !s->windows[1].data)
        return error_set(err, -ENOMEM, "out of memory reading %s", key);
    *ret = TAKE_PTR(s);
    return 0;
}

static void cancel(RawStream *s, Window *w)
{
    if (w->begun)
        store_read_cancel(s->store, &w->read);
    w->begun = false;
}

RawStream *raw_stream_free(RawStream *s)
{
    if (!s)
        return NULL;
    for (size_t i = 0; i < ELEMENTSOF(s->windows); i++) {
        cancel(s, &s->windows[i]);
        free(s->windows[i].data);
    }
    free(s->key);
    free(s);
    return NULL;
}

uint64_t raw_stream_bytes(const RawStream *s) { return s->n_bytes; }

static size_t window_bytes(const RawStream *s, uint64_t number)
{
    return (size_t)MIN((uint64_t)WINDOW_BYTES, s->n_bytes - number * WINDOW_BYTES);
}

/* Begins to read a window in the background; if that fails, need() reads the window again. */
static void begin(RawStream *s, uint64_t number)
{
    Window *w = &s->windows[number % 2];
    if (number * WINDOW_BYTES >= s->n_bytes || (w->number == number && (w->begun || w->whole)))
        return;
    cancel(s, w);
    w->whole = false;
    w->number = number;
    w->read = (StoreRead){.key = s->key,
                          .offset = number * WINDOW_BYTES,
                          .n_bytes = window_bytes(s, number),
                          .buffer = w->data};
    w->begun = store_read_begin(s->store, &w->read, NULL) == 0;
}

static int need(RawStream *s, uint64_t number, Error *err)
{
    Window *w = &s->windows[number % 2];
    if (w->number == number && w->whole)
        return 0;
    begin(s, number);
    int r = -EAGAIN;
    if (w->begun)
        r = store_read_wait(s->store, &w->read, err);
    w->begun = false;
    if (r < 0)
        r = store_wait_get_range(&s->wait, s->store, s->key, number * WINDOW_BYTES,
                                 window_bytes(s, number), w->data, err);
    w->whole = r >= 0;
    return MIN(r, 0);
}

int raw_stream_read(RawStream *s, uint64_t offset, void *buffer, size_t n_bytes, Error *err)
{
    assert(offset <= s->n_bytes && n_bytes <= s->n_bytes - offset);
    for (char *to = buffer; n_bytes > 0;) {
        uint64_t number = offset / WINDOW_BYTES;
        int r = need(s, number, err);
        if (r < 0)
            return r;
        begin(s, number + 1);
        size_t first = (size_t)(offset % WINDOW_BYTES);
        size_t n = MIN(n_bytes, window_bytes(s, number) - first);
        memcpy(to, s->windows[number % 2].data + first, n);
        to += n;
        offset += n;
        n_bytes -= n;
    }
    return 0;
}
