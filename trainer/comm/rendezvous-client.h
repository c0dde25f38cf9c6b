/* SPDX-License-Identifier: Apache-2.0 */
/* rendezvous-client.h - sets and gets keys of the rendezvous store on rank 0.
 *
 * Ownership: none; each call opens a connection and closes it.
 * Units:     bytes; deadlines in CLOCK_BOOTTIME microseconds.
 * Errors:    -ETIMEDOUT: no rank set the key, or the store did not answer; -ECONNREFUSED: the store is
 *            gone; -ECONNRESET: the store dropped us until the deadline, as it drops all that it does not
 *            know for ranks of its world; -EHOSTUNREACH, -ENETUNREACH: there was no way to it until the
 *            deadline; -EEXIST: the key has another value already; -EPROTO: the answer makes no sense, or
 *            does not prove that it is of our world. The text names store and key. An answer that came
 *            by the deadline counts, however late this process looks.
 * Threads:   any.
 */
#pragma once

#include "trainer/comm/comm.h"

/* Tells whether a call failed for want of a store: then its rank 0 is to blame, for -ETIMEDOUT of rendezvous_get()
 * perhaps. Else the store has answered, or nothing was asked. */
static inline bool rendezvous_is_away(int r)
{
    return r != -EEXIST && r != -ENOSPC && r != -ENOMEM && r != -EINVAL;
}

int rendezvous_set(const char *address, const CommKey *key, const char *name, const void *value,
                   size_t n_bytes, uint64_t deadline_usec, Error *err);
/* -ENOENT: the store says that no rank has set the key yet. */
int rendezvous_look(const char *address, const CommKey *key, const char *name, void *ret,
                    size_t max_bytes, size_t *ret_bytes, uint64_t deadline_usec, Error *err);
/* Waits until a rank has set the key. */
int rendezvous_get(const char *address, const CommKey *key, const char *name, void *ret,
                   size_t max_bytes, size_t *ret_bytes, uint64_t deadline_usec, Error *err);
