/* rendezvous-client.h - asking the rendezvous store of rank 0.
 *
 * Ownership: none; each call opens a connection and closes it.
 * Units:     bytes; deadlines in CLOCK_BOOTTIME microseconds.
 * Errors:    -ETIMEDOUT nobody set the key, or the store did not answer; -ECONNREFUSED the store is
 *            gone; -ECONNRESET it dropped us until the deadline, as it does those that it does not
 *            know for ranks of its world; -EHOSTUNREACH, -ENETUNREACH until the deadline there was no
 *            way to it; -EEXIST the key is set to something else already; -EPROTO an answer that makes
 *            no sense, or is not proven to be of our world. The text names store and key.
 * Threads:   any.
 */
#pragma once

#include "trainer/comm/comm.h"

int rendezvous_set(const char *address, const CommKey *key, const char *name, const void *value,
                   size_t n_bytes, uint64_t deadline_usec, Error *err);
/* Waits until somebody sets the key. */
int rendezvous_get(const char *address, const CommKey *key, const char *name, void *ret,
                   size_t max_bytes, size_t *ret_bytes, uint64_t deadline_usec, Error *err);
