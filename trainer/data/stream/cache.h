/* cache.h - a folder of unpacked shards and copies of indices, bounded in bytes, shared by the ranks
 * of a node.
 *
 * A file is filled under its name with ".part" behind it, at its full size and locked (flock), and
 * renamed when it is whole. So one process fetches and the others see that it does; when it dies its
 * lock goes with it, and the next to come begins anew or clears away. What goes when room is needed
 * is what was used least recently, by modification time, which a use renews. A file that is open for
 * reading is locked, too (shared), and does not go: its room would not be freed.
 *
 * The folder is the cache's alone: files by exactly our names, and a marker that was put when it held
 * nobody else's files. One with an index.json, or with files and no marker, is refused.
 *
 * A folder that fails (full disk, no rights, somebody hangs on to its lock) is left alone for a
 * minute: a slower run, not a failed one.
 *
 * Ownership: cache_new() gives the caller a Cache; cache_free() accepts NULL. Descriptors are the
 *            caller's.
 * Units:     bytes.
 * Errors:    -ENOENT not there; -EAGAIN another process fills it; -EEXIST it has been filled;
 *            -ENOBUFS the bound leaves no room, or the folder is being left alone; other -errno of
 *            the folder.
 * Threads:   any thread, one at a time; any number of processes.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

enum { CACHE_NAME_MAX = 127 };

#define CACHE_ANY UINT64_MAX /* a size that is not known yet */

typedef struct Cache Cache;

/* Looks at the folder and touches nothing yet; -EINVAL: it is somebody else's. bound 0: none. */
int cache_new(const char *folder, uint64_t bound, Cache **ret, Error *err);
Cache *cache_free(Cache *cache);
DEFINE_CLEANUP(Cache, cache_free)

/* A descriptor to read from, in use until it is closed; the file has n_bytes, one of another size is
 * removed. */
int cache_open(Cache *cache, const char *name, uint64_t n_bytes);
/* A descriptor of an empty file that has room for n_bytes, for this process alone to fill. With
 * CACHE_ANY it has none until cache_resize(). */
int cache_reserve(Cache *cache, const char *name, uint64_t n_bytes);
/* Empties what was reserved and gives it other room. */
int cache_resize(Cache *cache, const char *name, int fd, uint64_t n_bytes);
/* What was reserved is whole, and stays open for reading. sync: it must not be found torn after a
 * power failure, since nothing else would tell. */
int cache_commit(Cache *cache, const char *name, int fd, bool sync);
/* Takes back what was reserved, and closes it. Returns -EBADF. */
int cache_abandon(Cache *cache, const char *name, int fd);
void cache_forget(Cache *cache, const char *name);
/* What the disk said to who filled a file: leaves the folder alone for a while, and says so once. */
void cache_failed(Cache *cache, int r);

/* An exclusive lock of a file, made if it is missing: its descriptor, or -EBUSY after the wait. The
 * lock goes with the descriptor, and with the process. */
int cache_lock(const char *path, uint64_t timeout_usec);
