/* store.h - objects under a URI: one interface, file:// and s3:// behind it.
 *
 * An object is written whole and never changed. Keys are relative to the store's URI, use '/', hold
 * no empty, "." or ".." part, and no part that begins with ".put-" (temporaries of file://).
 * "LATEST"-like pointers do not exist: readers list. Folders do not exist either: they appear with
 * their first object and go with their last.
 *
 * Ownership: store_open() gives the caller a Store; store_free() accepts NULL. Buffers returned are
 *            free()d by the caller.
 * Units:     bytes.
 * Errors:    -ENOENT no such object; -EEXIST put-if-absent found one; -EACCES the store refuses who
 *            we are or what we may; -EHOSTUNREACH a store that gave no usable answer until the
 *            deadline; -ENOSPC, -EIO and other -errno as they came; -EINVAL a bad URI or key. The
 *            text names the object's URI. A put that fails leaves either nothing or the whole
 *            object.
 * Threads:   calls on one Store may come from several threads, except that STORE_DEFER and
 *            store_flush() belong to one of them. Calls block; each is bounded by the store's own
 *            timeouts.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "base/event-count.h"

#include <stdatomic.h>
#include <sys/uio.h>

typedef struct Store Store;

typedef enum StorePutFlags {
    STORE_IF_ABSENT = 1 << 0, /* -EEXIST when the key is there; nothing is changed */
    STORE_DEFER = 1 << 1,     /* there for sure only when store_flush() has returned */
} StorePutFlags;

typedef struct StoreObject {
    char *key; /* relative to the store */
    uint64_t n_bytes;
    uint64_t modified_usec; /* realtime of the store */
} StoreObject;

typedef struct StoreList {
    StoreObject *objects; /* in key order */
    size_t n_objects;
} StoreList;

/* "file:///absolute/folder", a plain path (made absolute), or "s3://bucket/prefix", whose prefix is
 * taken as it is written, without %XX. Creates nothing and asks nobody. */
int store_open(const char *uri, Store **ret, Error *err);
Store *store_free(Store *store);
DEFINE_CLEANUP(Store, store_free)
const char *store_uri(const Store *store); /* normalised, without a trailing slash */

/* The object is durable when put returns, unless deferred. The iovecs are its parts in order; what
 * they point to must stay until then, that is, of a deferred put until store_flush() returns. A
 * deferred put may tell of its failure in store_flush() alone. */
int store_put(Store *store, const char *key, const struct iovec *parts, size_t n_parts,
              StorePutFlags flags, Error *err);
/* Since it was opened, done or failed; put_usec holds the flushes. Any thread. */
typedef struct StoreUse {
    uint64_t puts, gets, put_usec, get_usec;
} StoreUse;
void store_use(const Store *store, StoreUse *ret);

/* Ends every deferred put. When it fails, any of them may be lost; on file:// also torn. */
int store_flush(Store *store, Error *err);
/* -EFBIG when the object is larger than max_bytes. The buffer has a NUL after its last byte. */
int store_get(Store *store, const char *key, size_t max_bytes, char **ret, size_t *ret_bytes,
              Error *err);
/* The same of one object by its own URI, through a store that is opened and closed for it. */
int store_get_uri(const char *uri, size_t max_bytes, char **ret, size_t *ret_bytes, Error *err);
/* Exactly n_bytes from offset into a buffer of the caller's; -EIO when the object is shorter. */
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
    EventCount *events; /* signalled once, when store_read_poll() has an answer; NULL: none is */
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
/* Leaves a read alone that was not begun. */
void store_read_cancel(Store *store, StoreRead *read);
/* The object's first n_bytes into an empty file, in ranges that come together, with a bounded amount of
 * memory. -EIO when the object is shorter; more is not looked at. */
int store_fetch(Store *store, const char *key, uint64_t n_bytes, int fd, Error *err);

/* A text that changes when the object does (an ETag; a file's inode, time and size). */
enum { STORE_VERSION_MAX = 128 };
int store_version(Store *store, const char *key, char ret[STORE_VERSION_MAX], Error *err);
/* Whether STORE_IF_ABSENT keeps its promise. Where it does not (a server without it), it looks
 * before it puts, and two writers may pass each other. May ask the server, once. True says it of an
 * object that goes in one piece: one that is so large that s3:// puts it in parts is looked for
 * first, and whether the server looks again at their end is not known. */
int store_puts_if_absent(Store *store, bool *ret, Error *err);
/* All objects whose key begins with prefix; at most max objects, else -E2BIG. */
int store_list(Store *store, const char *prefix, size_t max, StoreList *ret, Error *err);
void store_list_clear(StoreList *list);
/* A missing object is success. What was there is gone for good: after a failure of power, too. */
int store_delete(Store *store, const char *key, Error *err);
/* Many at once; a failure of power may bring any of them back. Stops at none, unless the store is out
 * of reach; the first failure is returned. */
int store_delete_many(Store *store, const char *const *keys, size_t n_keys, Error *err);
/* Removes what writers that died left behind (temporaries and empty folders, unfinished multipart
 * uploads) and that nobody touched for older_than_usec. may_remove, if not NULL, is asked for each
 * unfinished object, by the key that it was to get, and for each empty folder, whose key ends in '/'.
 * ret_removed may be NULL. */
typedef bool (*StoreMayRemove)(void *context, const char *key);
int store_sweep(Store *store, uint64_t older_than_usec, StoreMayRemove may_remove, void *context,
                size_t *ret_removed, Error *err);

/* For readers that can use a file directly (mmap of a shard): the local path, or -EOPNOTSUPP. */
int store_local_path(Store *store, const char *key, char *ret, size_t size, Error *err);
