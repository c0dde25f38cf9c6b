/* async-read.h - ranges of objects that come while their reader does something else, and the bell that
 * rings when one has come.
 *
 * Whoever waits for several notes bell_count(), polls them all, and calls bell_wait() with that
 * count: what arrived since the count was noted ends the wait at once.
 *
 * Ownership: bell_new() gives the caller a Bell, which outlives what rings it. An Arrival is the
 *            caller's, zero before arrival_begin(), and stays where it is until it was polled to
 *            its end or cancelled; it borrows store, key, buffer and bell until then.
 * Units:     bytes; deadlines are clock_monotonic_usec().
 * Errors:    the store's.
 * Threads:   a Bell is anybody's; an Arrival belongs to one thread at a time.
 */
#pragma once

#include "store/store.h"

#include <stdatomic.h>

typedef struct Bell Bell;

int bell_new(Bell **ret);
Bell *bell_free(Bell *bell);
DEFINE_CLEANUP(Bell, bell_free)
void bell_ring(Bell *bell);
uint64_t bell_count(const Bell *bell);
/* Until the count is another than seen, or the deadline. */
void bell_wait(Bell *bell, uint64_t seen, uint64_t deadline_usec);

typedef struct Arrival {
    StoreRead read;
    Bell *bell;
    atomic_bool arrived;
    bool begun;
} Arrival;

int arrival_begin(Arrival *arrival, Store *store, const char *key, uint64_t offset, size_t n_bytes,
                  void *buffer, Bell *bell, Error *err);
/* 1: all of it is in the buffer; 0: not yet. Afterwards, unless 0, it may be begun anew. */
int arrival_poll(Arrival *arrival, Store *store, Error *err);
void arrival_cancel(Arrival *arrival, Store *store); /* one that was not begun is left alone */
