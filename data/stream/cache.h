/* SPDX-License-Identifier: Apache-2.0 */
/* cache.h - a folder of unpacked shards and copies of indices, bounded in bytes, shared by the ranks of a node.
 *
 * The ranks of a node need the same shards, and each shard should be fetched once. So a process fills a file under its
 * name with ".part" behind it, at its full size and locked (flock), and renames it when it is whole. The lock shows
 * other processes that one process is filling the file. When that process dies, its lock is released, and the next
 * process begins again or removes the file.
 *
 * When room is needed, the file with the oldest modification time is removed; each use of a file renews this time.
 * A file that is open for reading has a shared lock and is not removed, since its room would not be freed.
 *
 * Only the cache uses the folder. It holds files whose names have the cache's form, and a marker that was created while
 * the folder held no other files. A folder with an index.json, or with files and no marker, is refused.
 *
 * A folder that fails (full disk, no rights, a lock that is not released) is not used for a minute. That makes a run
 * slower, but does not end it.
 *
 * Ownership: cache_new() gives the caller a Cache; cache_free() accepts NULL. Descriptors are the caller's.
 * Units:     bytes.
 * Errors:    -ENOENT no such file; -EAGAIN another process is filling the file; -EEXIST the file has been filled;
 *            -ENOBUFS the bound leaves no room, or the folder is not used for now; other -errno of the folder.
 * Threads:   any thread, one at a time; any number of processes.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

enum { CACHE_NAME_MAX = 127 };

#define CACHE_ANY UINT64_MAX /* the size is not known yet */

typedef struct Cache Cache;

/* Checks the folder and changes nothing. -EINVAL: the folder holds files that are not a cache's. bound 0: no bound. */
int cache_new(const char *folder, uint64_t bound, Cache **ret, Error *err);
Cache *cache_free(Cache *cache);
DEFINE_CLEANUP(Cache, cache_free)

/* Returns a descriptor to read from; the file is in use until the descriptor is closed. A file whose size is not
 * n_bytes is removed. */
int cache_open(Cache *cache, const char *name, uint64_t n_bytes);
/* Returns a descriptor of an empty file with room for n_bytes, which only this process fills. With CACHE_ANY, no room
 * is reserved until cache_resize(). */
int cache_reserve(Cache *cache, const char *name, uint64_t n_bytes);
/* Empties a reserved file and gives it room for n_bytes. */
int cache_resize(Cache *cache, const char *name, int fd, uint64_t n_bytes);
/* Gives a reserved file, now whole, its name; the file stays open for reading. sync: writes the data to the disk first,
 * for a file without hashes, in which damage by a power failure could not be detected. */
int cache_commit(Cache *cache, const char *name, int fd, bool sync);
/* Removes a reserved file and closes its descriptor; fd may be -EBADF. Returns -EBADF. */
int cache_abandon(Cache *cache, const char *name, int fd);
/* Removes a file. */
void cache_forget(Cache *cache, const char *name);
/* Notes that a file of the cache could not be filled, with the error r. The folder is then not used for a minute, which
 * is logged once. */
void cache_failed(Cache *cache, int r);

/* Locks a file exclusively, and creates it if it is missing. Returns its descriptor, or -EBUSY after timeout_usec. The
 * lock ends when the descriptor is closed or the process ends. */
int cache_lock(const char *path, uint64_t timeout_usec);
