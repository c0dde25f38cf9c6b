/* async-read.h - ranges of objects that come while their reader does something else, and the event count that
 * rings when one has come.
 *
 * Whoever waits for several notes event_count_read(), polls them all, and calls event_count_wait() with that
 * count: what arrived since the count was noted ends the wait at once.
 *
 * Ownership: event_count_new() gives the caller a EventCount, which outlives what rings it. An Arrival is the
 *            caller's, zero before async_read_begin(), and stays where it is until it was polled to
 *            its end or cancelled; it borrows store, key, buffer and event count until then.
 * Units:     bytes; deadlines are clock_monotonic_usec().
 * Errors:    the store's.
 * Threads:   a EventCount is anybody's; an Arrival belongs to one thread at a time.
 */
#pragma once

#include "store/store.h"

#include <stdatomic.h>

typedef struct EventCount EventCount;

int event_count_new(EventCount **ret);
EventCount *event_count_free(EventCount *events);
DEFINE_CLEANUP(EventCount, event_count_free)
void event_count_signal(EventCount *events);
uint64_t event_count_read(const EventCount *events);
/* Until the count is another than seen, or the deadline. */
void event_count_wait(EventCount *events, uint64_t seen, uint64_t deadline_usec);

typedef struct AsyncRead {
    StoreRead read;
    EventCount *events;
    atomic_bool arrived;
    bool begun;
} AsyncRead;

int async_read_begin(AsyncRead *async, Store *store, const char *key, uint64_t offset,
                     size_t n_bytes, void *buffer, EventCount *events, Error *err);
/* 1: all of it is in the buffer; 0: not yet. Afterwards, unless 0, it may be begun anew. */
int async_read_poll(AsyncRead *async, Store *store, Error *err);
void async_read_cancel(AsyncRead *async, Store *store); /* one that was not begun is left alone */
