/* SPDX-License-Identifier: Apache-2.0 */
/* rendezvous-client.h - sets and gets keys of the rendezvous store on rank 0.
 *
 * Ownership: none; each call opens a connection and closes it.
 * Units:     bytes; deadlines in CLOCK_BOOTTIME microseconds.
 * Errors:    -ETIMEDOUT: no rank set the key, or the store did not answer; -ECONNREFUSED: the store has
 *            ended; -ECONNRESET: the store dropped this client's connections until the deadline, as it
 *            does with clients that do not prove that they belong to its world; -EHOSTUNREACH,
 *            -ENETUNREACH: there was no route to the store until the deadline; -EEXIST: the key already
 *            has another value; -EPROTO: the answer is malformed, or does not prove that it comes from
 *            this world. The text names store and key. An answer that arrived by the deadline counts,
 *            however late this process reads it.
 */
#pragma once

#include "trainer/comm/comm.h"

/* Returns whether a call failed because the store was not reached. Then the cause is rank 0, which
 * serves the store. But -ETIMEDOUT of rendezvous_get() may also mean that no rank set the key. If
 * the function returns false, the store has answered, or no request was sent. */
static inline bool rendezvous_is_away(int r)
{
    return r != -EEXIST && r != -ENOSPC && r != -ENOMEM && r != -EINVAL;
}

int rendezvous_set(const char *address, const CommKey *key, const char *name, const void *value,
                   size_t n_bytes, uint64_t deadline_usec, Error *err);
/* As rendezvous_get(), but does not wait: returns -ENOENT if no rank has set the key yet. */
int rendezvous_look(const char *address, const CommKey *key, const char *name, void *ret,
                    size_t max_bytes, size_t *ret_bytes, uint64_t deadline_usec, Error *err);
/* Gets the value of the key; waits until a rank has set it. */
int rendezvous_get(const char *address, const CommKey *key, const char *name, void *ret,
                   size_t max_bytes, size_t *ret_bytes, uint64_t deadline_usec, Error *err);
