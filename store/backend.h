/* SPDX-License-Identifier: Apache-2.0 */
/* backend.h - the functions that file:// and s3:// implement; store.c checks arguments and dispatches.
 *
 * Units: bytes. Threads: as in store.h.
 * Ownership: a backend allocates its own struct with a Store as first member and frees it in
 *            `free`; store.c owns uri, which it sets after `new`.
 * Errors:    as in store.h; texts name the object's URI.
 */
#pragma once

#include "store/store.h"

#include <stdatomic.h>

enum { STORE_KEY_MAX = 1024 };

#define STORE_TEMPORARY                                                                            \
    ".put-" /* start of the name of a temporary file; no part of a key begins with it */

typedef struct StoreBackend {
    Store *(*free)(Store *store);
    int (*put)(Store *store, const char *key, const struct iovec *parts, size_t n_parts,
               StorePutFlags flags, Error *err);
    int (*flush)(Store *store, Error *err);
    int (*get)(Store *store, const char *key, size_t max_bytes, char **ret, size_t *ret_bytes,
               Error *err);
    int (*get_range)(Store *store, const char *key, uint64_t offset, size_t n_bytes, void *buffer,
                     Error *err);
    int (*head)(Store *store, const char *key, uint64_t *ret_bytes, Error *err);
    int (*list)(Store *store, const char *prefix, size_t max, bool versions, StoreList *ret,
                Error *err);
    int (*delete)(Store *store, const char *key, Error *err);
    int (*sweep)(Store *store, uint64_t older_than_usec, StoreMayRemove may_remove, void *context,
                 size_t *ret_removed, Error *err);
    int (*local_path)(Store *store, const char *key, char *ret, size_t size, Error *err);
    int (*version)(Store *store, const char *key, char ret[STORE_VERSION_MAX], Error *err);
    /* Implements store_puts_if_absent(); NULL: STORE_IF_ABSENT is atomic in every store of this kind. */
    int (*puts_if_absent)(Store *store, bool *ret, Error *err);
    /* Each of the following may be NULL: store.c then uses the functions above instead. */
    int (*read_begin)(Store *store, StoreRead *read, Error *err);
    int (*read_wait)(Store *store, StoreRead *read, Error *err);
    void (*read_cancel)(Store *store, StoreRead *read);
    int (*fetch)(Store *store, const char *key, uint64_t n_bytes, int fd, Error *err);
    int (*delete_many)(Store *store, const char *const *keys, size_t n_keys, Error *err);
} StoreBackend;

struct Store {
    const StoreBackend *backend;
    char *uri;
    _Atomic uint64_t puts, gets, put_usec, get_usec; /* counted by store.c */
};

/* Opens a store in `folder`, an absolute and normalised path. */
Store *file_store_new(const char *folder);
/* Opens a store in a bucket, with `prefix` before each key: "", or any bytes without a slash at their end. */
int s3_store_new(const char *bucket, const char *prefix, Store **ret, Error *err);

/* Orders StoreObjects by key, for qsort(). */
int store_compare_keys(const void *a, const void *b);
/* Reports that a read has arrived, so that its caller need not wait any more. Called once per read, from any thread;
 * the backend's read_wait and read_cancel do not return while this function runs. */
void store_read_arrive(StoreRead *read);
/* Returns whether `key` is a valid key of an object, as store.h defines it. */
bool store_key_is_good(const char *key);
