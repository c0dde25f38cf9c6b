/* SPDX-License-Identifier: Apache-2.0 */
/* store.h - objects under a URI: one interface for file:// and s3://.
 *
 * A store must behave the same for its callers whether it is a disk or a remote server, so it offers only functions
 * that both have. An object is written whole and never changed. A key is relative to the store's URI, uses '/', and has
 * no empty, "." or ".." part and no part that begins with ".put-" (temporary files of file://). There are no pointers
 * such as "LATEST": readers list. There are no folders to manage: a folder appears with its first object and disappears
 * with its last.
 *
 * Ownership: store_open() gives the caller a Store; store_free() accepts NULL. Returned buffers are
 *            free()d by the caller.
 * Units:     bytes.
 * Errors:    -ENOENT no such object; -EEXIST put-if-absent found one; -EACCES the store refuses these
 *            credentials or this request; -EHOSTUNREACH the store gave no usable answer until the
 *            deadline; -ENOSPC, -EIO and other -errno as the store reported them; -EINVAL a bad URI or
 *            key. The text names the object's URI. A put that fails leaves either nothing or the whole
 *            object.
 * Threads:   any, except that on one Store only one thread uses STORE_DEFER and store_flush(). Calls
 *            block; each is bounded by the store's own timeouts.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "base/event-count.h"

#include <stdatomic.h>
#include <sys/uio.h>

typedef struct Store Store;

typedef enum StorePutFlags {
    STORE_IF_ABSENT =
        1 << 0,           /* if the key exists, the put fails with -EEXIST and changes nothing */
    STORE_DEFER = 1 << 1, /* the object is durable only when store_flush() has returned 0 */
} StorePutFlags;

typedef struct StoreObject {
    char *key; /* relative to the store's URI */
    uint64_t n_bytes;
    uint64_t modified_usec; /* time of the object's put since 1970, by the store's clock */
    char *version;          /* set only by store_list_versions() */
} StoreObject;

typedef struct StoreList {
    StoreObject *objects; /* in key order */
    size_t n_objects;
} StoreList;

/* Opens "file:///absolute/folder", a plain path (made absolute), or "s3://bucket/prefix"; the prefix is used as
 * written, without %XX decoding. Creates nothing and sends nothing. */
int store_open(const char *uri, Store **ret, Error *err);
Store *store_free(Store *store);
DEFINE_CLEANUP(Store, store_free)
const char *store_uri(const Store *store); /* normalised, without a trailing slash */

/* Writes an object with the bytes of the iovecs, in order. The object is durable when store_put() returns, or, with
 * STORE_DEFER, when store_flush() returns; until then the memory of the iovecs must not change. A failure of a deferred
 * put may be reported only by store_flush(). */
int store_put(Store *store, const char *key, const struct iovec *parts, size_t n_parts,
              StorePutFlags flags, Error *err);
/* Number of calls that ended since the store was opened, successful or not, and the time that callers spent in them.
 * Time in store_flush() is added to put_usec. */
typedef struct StoreUse {
    uint64_t puts, gets, put_usec, get_usec;
} StoreUse;
void store_use(const Store *store, StoreUse *ret);

/* Waits for all deferred puts. After a failure, any of those objects may be missing; on file:// also incomplete. */
int store_flush(Store *store, Error *err);
/* Reads a whole object; -EFBIG if it is larger than max_bytes. The buffer has a NUL after its last byte. */
int store_get(Store *store, const char *key, size_t max_bytes, char **ret, size_t *ret_bytes,
              Error *err);
/* Works like store_get() for the object that uri names; opens and closes its own store. */
int store_get_uri(const char *uri, size_t max_bytes, char **ret, size_t *ret_bytes, Error *err);
/* Reads exactly n_bytes from offset into the caller's buffer; -EIO if the object is shorter. */
int store_get_range(Store *store, const char *key, uint64_t offset, size_t n_bytes, void *buffer,
                    Error *err);
int store_head(Store *store, const char *key, uint64_t *ret_bytes, Error *err);

/* A read of a range while the caller does other work. The caller fills the first five fields. These fields, the store,
 * and the memory of key, buffer and events must not change until the read has ended: it was waited for, polled to its
 * end, or cancelled. Afterwards the buffer is not used any more, and the read may be begun again. */
typedef struct StoreRead {
    const char *key;
    uint64_t offset;
    size_t n_bytes;
    void *buffer;
    EventCount *events; /* signalled once, when store_read_poll() has a result; may be NULL */
    /* Only the store uses these fields: */
    void *state;         /* data of the backend */
    bool begun;          /* the read has begun and not ended */
    atomic_bool arrived; /* store_read_wait() would not wait for the network */
} StoreRead;
/* Begins a read; does not wait for the network. file:// reads only when the read is waited for or polled. */
int store_read_begin(Store *store, StoreRead *read, Error *err);
/* Returns 0 if the read is still in progress, 1 if all bytes are in the buffer, or a failure like those of
 * store_get_range(). The read has ended unless the result is 0. */
int store_read_poll(Store *store, StoreRead *read, Error *err);
/* Waits for a read; returns the same results as store_get_range(). Any thread may call it, one per read. */
int store_read_wait(Store *store, StoreRead *read, Error *err);
/* Cancels a read; has no effect on a read that was not begun. */
void store_read_cancel(Store *store, StoreRead *read);
/* Copies the object's first n_bytes into the empty file fd, eight ranges at a time, with at most 16 MiB of memory. -EIO
 * if the object is shorter, or changes repeatedly; bytes beyond n_bytes are ignored. */
int store_fetch(Store *store, const char *key, uint64_t n_bytes, int fd, Error *err);

/* Returns a text that changes when the object changes: an ETag; for a file its inode, time and size. */
enum { STORE_VERSION_MAX = 128 };
int store_version(Store *store, const char *key, char ret[STORE_VERSION_MAX], Error *err);
/* Returns whether STORE_IF_ABSENT is atomic here. true: atomic for objects sent in one request (on s3:// up to two
 * parts). A multipart upload is never known to be atomic: the store sends a HEAD first, and a concurrent writer may win
 * the race. false: for every object there is only the HEAD. Probes the server on first use. */
int store_puts_if_absent(Store *store, bool *ret, Error *err);
/* Lists all objects whose key begins with prefix; -E2BIG if there are more than max. */
int store_list(Store *store, const char *prefix, size_t max, StoreList *ret, Error *err);
/* Works like store_list(), with each object's version as store_version() returns it; "" if the server reports none. */
int store_list_versions(Store *store, const char *prefix, size_t max, StoreList *ret, Error *err);
void store_list_clear(StoreList *list);
/* Deletes an object, durably: after a power failure it is still deleted. A missing object is success. */
int store_delete(Store *store, const char *key, Error *err);
/* Deletes many objects, not durably: after a power failure any of them may exist again. A failure does not stop the
 * other deletions, unless the store is unreachable; the first failure is returned. */
int store_delete_many(Store *store, const char *const *keys, size_t n_keys, Error *err);
/* Removes leftovers of crashed writers (temporary files, empty folders, unfinished multipart uploads) that were not
 * changed for older_than_usec. may_remove, if not NULL, decides for each leftover; `key` is the key of the unfinished
 * object, or an empty folder's with '/' at its end. ret_removed may be NULL. */
typedef bool (*StoreMayRemove)(void *context, const char *key);
int store_sweep(Store *store, uint64_t older_than_usec, StoreMayRemove may_remove, void *context,
                size_t *ret_removed, Error *err);

/* Returns the free bytes for a new object: those that the file system below the URI has free for this user, even if the
 * store's folder does not exist yet. -EOPNOTSUPP on s3://, which does not report free space. */
int store_free_bytes(const Store *store, uint64_t *ret, Error *err);

/* Returns the object's path on this machine, for readers that map files; -EOPNOTSUPP on s3://. */
int store_local_path(Store *store, const char *key, char *ret, size_t size, Error *err);
