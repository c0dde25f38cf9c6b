/* SPDX-License-Identifier: Apache-2.0 */
/* store-wait.h - calls of a store that are made again until a store that is away or full is back.
 *
 * An outage of hours must cost hours and no sample. So a call whose failure is the store's is repeated, for ever:
 * after a second at first, then after up to 30 s. The first failure is logged, then one a minute, and that it is over.
 *
 * Ownership: borrows the Store. A StoreWait begins as zeros.
 * Units:     as store.h.
 * Errors:    as store.h without those that pass: -EHOSTUNREACH, -ENOSPC, -EDQUOT, and -EACCES of a server that has
 *            answered once, as it does when credentials run out. A folder that refuses will refuse tomorrow.
 * Threads:   a StoreWait belongs to one thread.
 */
#pragma once

#include "store/store.h"

typedef struct StoreWait {
    bool answered; /* once, so that a refusal is not that of a wrong key */
    uint64_t since_usec, told_usec, pause_usec;
    Error last;
} StoreWait;

/* Tells whether the call of the store that returned r is to be made again; has waited if so. */
bool store_wait(StoreWait *wait, Store *store, const char *what, int r, const Error *err);

int store_wait_get_range(StoreWait *wait, Store *store, const char *key, uint64_t offset, size_t n,
                         void *buffer, Error *err);
int store_wait_get(StoreWait *wait, Store *store, const char *key, size_t max_bytes, char **ret,
                   size_t *ret_bytes, Error *err);
int store_wait_put(StoreWait *wait, Store *store, const char *key, const struct iovec *parts,
                   size_t n_parts, StorePutFlags flags, Error *err);
/* With versions: store_list_versions(). */
int store_wait_list(StoreWait *wait, Store *store, const char *prefix, size_t max, bool versions,
                    StoreList *ret, Error *err);
