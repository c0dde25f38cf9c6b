/* SPDX-License-Identifier: Apache-2.0 */
/* store-wait.h - calls of the store that are retried while the store is unreachable or full.
 *
 * An outage of hours must only delay the work, and must not lose a sample. So a call that fails because of the store's
 * state is retried for ever: after one second at first, later after up to 30 s. The first failure is logged, then one a
 * minute, and at last the end of the outage.
 *
 * Ownership: borrows the Store. A StoreWait starts zeroed.
 * Units:     as store.h.
 * Errors:    as store.h, except those that are retried: -EHOSTUNREACH, -ENOSPC, -EDQUOT, and -EACCES of a server that
 *            has answered before, since its credentials may only have expired. -EACCES of a local folder is returned at
 *            once.
 * Threads:   a StoreWait belongs to one thread.
 */
#pragma once

#include "store/store.h"

typedef struct StoreWait {
    bool answered; /* the store has answered once, so a refusal is not due to a wrong key */
    uint64_t since_usec, told_usec, pause_usec;
    Error last;
} StoreWait;

/* Returns true if the call of the store that returned r must be retried; store_wait() has then slept. err may be
 * NULL. */
bool store_wait(StoreWait *wait, Store *store, const char *what, int r, const Error *err);

int store_wait_get_range(StoreWait *wait, Store *store, const char *key, uint64_t offset, size_t n,
                         void *buffer, Error *err);
int store_wait_get(StoreWait *wait, Store *store, const char *key, size_t max_bytes, char **ret,
                   size_t *ret_bytes, Error *err);
int store_wait_put(StoreWait *wait, Store *store, const char *key, const struct iovec *parts,
                   size_t n_parts, StorePutFlags flags, Error *err);
/* versions: calls store_list_versions() instead of store_list(). */
int store_wait_list(StoreWait *wait, Store *store, const char *prefix, size_t max, bool versions,
                    StoreList *ret, Error *err);
