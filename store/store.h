/* SPDX-License-Identifier: Apache-2.0 */
/* store.h - objects under a URI: one interface, file:// and s3:// behind it.
 *
 * A store must look the same to its callers whether it is a disk or a server that answers late, so it offers only what
 * both can do. An object is written whole and never changed. A key is relative to the store's URI, uses '/', and has no
 * empty, "." or ".." part and no part that begins with ".put-" (the temporaries of file://). There are no pointers such
 * as "LATEST": readers list. There are no folders: one appears with its first object and goes with its last.
 *
 * Ownership: store_open() gives the caller a Store; store_free() accepts NULL. Buffers returned are
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
        1 << 0,           /* the put fails with -EEXIST if the key exists, and changes nothing */
    STORE_DEFER = 1 << 1, /* the object is durable only when store_flush() has returned 0 */
} StorePutFlags;

typedef struct StoreObject {
    char *key; /* relative to the store's URI */
    uint64_t n_bytes;
    uint64_t modified_usec; /* time of its put, by the store's clock, since 1970 */
    char *version;          /* only of store_list_versions() */
} StoreObject;

typedef struct StoreList {
    StoreObject *objects; /* in key order */
    size_t n_objects;
} StoreList;

/* Opens "file:///absolute/folder", a plain path (made absolute), or "s3://bucket/prefix", whose prefix is
 * taken as written, without %XX decoding. Creates nothing and sends nothing. */
int store_open(const char *uri, Store **ret, Error *err);
Store *store_free(Store *store);
DEFINE_CLEANUP(Store, store_free)
const char *store_uri(const Store *store); /* normalised, without a trailing slash */

/* Writes an object whose bytes are those of the iovecs, in order. The object is durable when store_put() returns,
 * or, with STORE_DEFER, when store_flush() returns; until then the memory that the iovecs point to must stay as it is.
 * A deferred put that fails may report that only in store_flush(). */
int store_put(Store *store, const char *key, const struct iovec *parts, size_t n_parts,
              StorePutFlags flags, Error *err);
/* Calls that ended since the store was opened, successful or not, and the time that their callers spent in them.
 * Time in store_flush() counts into put_usec. */
typedef struct StoreUse {
    uint64_t puts, gets, put_usec, get_usec;
} StoreUse;
void store_use(const Store *store, StoreUse *ret);

/* Waits for every deferred put. If it fails, any of those objects may be missing; on file:// also incomplete. */
int store_flush(Store *store, Error *err);
/* Reads a whole object; -EFBIG if it is larger than max_bytes. The buffer has a NUL after its last byte. */
int store_get(Store *store, const char *key, size_t max_bytes, char **ret, size_t *ret_bytes,
              Error *err);
/* Reads the object that uri names as store_get() does, through a store opened and closed for this call. */
int store_get_uri(const char *uri, size_t max_bytes, char **ret, size_t *ret_bytes, Error *err);
/* Reads exactly n_bytes from offset into the caller's buffer; -EIO if the object is shorter. */
int store_get_range(Store *store, const char *key, uint64_t offset, size_t n_bytes, void *buffer,
                    Error *err);
int store_head(Store *store, const char *key, uint64_t *ret_bytes, Error *err);

/* A range that comes while its caller does something else. The caller fills the first five fields; they, the
 * store, and what key, buffer and events point to stay as they are until the read has ended: it was waited for, polled
 * to its end, or cancelled. Afterwards nothing touches the buffer, and the read may be begun anew. */
typedef struct StoreRead {
    const char *key;
    uint64_t offset;
    size_t n_bytes;
    void *buffer;
    EventCount *events; /* signalled once, when store_read_poll() has an answer; may be NULL */
    /* The store's own. */
    void *state;         /* the backend's */
    bool begun;          /* and not ended */
    atomic_bool arrived; /* store_read_wait() would not block for the network */
} StoreRead;
/* Does not wait for the network. file:// reads when the read is waited for or polled. */
int store_read_begin(Store *store, StoreRead *read, Error *err);
/* 0: not yet. 1: all bytes are in the buffer. Anything else is a failure, as of store_get_range(). The read has ended
 * unless the answer is 0. */
int store_read_poll(Store *store, StoreRead *read, Error *err);
/* As store_get_range(). Any thread, one per read. */
int store_read_wait(Store *store, StoreRead *read, Error *err);
/* Does nothing to a read that was not begun. */
void store_read_cancel(Store *store, StoreRead *read);
/* Copies the object's first n_bytes into the empty file fd, eight ranges at a time, with 16 MiB of memory at most. -EIO
 * if the object is shorter, or changes again and again; bytes beyond n_bytes are ignored. */
int store_fetch(Store *store, const char *key, uint64_t n_bytes, int fd, Error *err);

/* Returns a text that changes when the object does: an ETag; a file's inode, time and size. */
enum { STORE_VERSION_MAX = 128 };
int store_version(Store *store, const char *key, char ret[STORE_VERSION_MAX], Error *err);
/* Reports whether STORE_IF_ABSENT is atomic here. true: atomic for objects sent in one request (on s3:// up to two
 * parts). Multipart uploads are never known to be atomic: the store sends a HEAD first, and a concurrent writer may win
 * the race. false: the HEAD is all there is, for every object. Probes the server on first use. */
int store_puts_if_absent(Store *store, bool *ret, Error *err);
/* Lists all objects whose key begins with prefix; -E2BIG if there are more than max. */
int store_list(Store *store, const char *prefix, size_t max, StoreList *ret, Error *err);
/* As store_list(), with each object's version as store_version() returns it; "" where the server does not tell. */
int store_list_versions(Store *store, const char *prefix, size_t max, StoreList *ret, Error *err);
void store_list_clear(StoreList *list);
/* Deletes an object, durably: a power failure does not bring it back. A missing object is success. */
int store_delete(Store *store, const char *key, Error *err);
/* Deletes many objects, not durably: a power failure may bring any of them back. A failure does not stop the others,
 * unless the store is out of reach; the first failure is returned. */
int store_delete_many(Store *store, const char *const *keys, size_t n_keys, Error *err);
/* Removes leftovers of writers that died (temporaries, empty folders, unfinished multipart uploads), if they were not
 * touched for older_than_usec. may_remove, if not NULL, decides on each: its key is the one that the unfinished object
 * was to get, or an empty folder's with '/' at its end. ret_removed may be NULL. */
typedef bool (*StoreMayRemove)(void *context, const char *key);
int store_sweep(Store *store, uint64_t older_than_usec, StoreMayRemove may_remove, void *context,
                size_t *ret_removed, Error *err);

/* The bytes that a new object may have at most: those that the file system below the URI has free for this user, also
 * while the store's folder is not there yet. -EOPNOTSUPP on s3://, which does not report it. */
int store_free_bytes(const Store *store, uint64_t *ret, Error *err);

/* Returns the object's path on this machine, for readers that map files; -EOPNOTSUPP on s3://. */
int store_local_path(Store *store, const char *key, char *ret, size_t size, Error *err);
