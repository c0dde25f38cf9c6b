/* rendezvous_client.h - asking the rendezvous store of rank 0.
 *
 * Ownership: none; each call opens a connection and closes it.
 * Units:     bytes; deadlines in CLOCK_BOOTTIME microseconds.
 * Errors:    -ETIMEDOUT nobody set the key, or the store did not answer; -ECONNREFUSED,
 *            -ECONNRESET the store is gone; -EHOSTUNREACH, -ENETUNREACH until the deadline there
 *            was no way to it; -EEXIST the key is set to something else already; -EPROTO an
 *            answer that makes no sense. The text names store and key.
 * Threads:   any.
 */
#pragma once

#include "base/error.h"

int rendezvous_set(const char *address, const char *key, const void *value, size_t n_bytes,
                   uint64_t deadline_usec, Error *err);
/* Waits until somebody sets the key. */
int rendezvous_get(const char *address, const char *key, void *ret, size_t max_bytes,
                   size_t *ret_bytes, uint64_t deadline_usec, Error *err);
