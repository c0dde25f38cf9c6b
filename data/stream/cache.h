/* SPDX-License-Identifier: Apache-2.0 */
/* cache.h - a folder of unpacked shards and copies of indices, bounded in bytes, shared by the ranks
 * of a node.
 *
 * The ranks of a node want the same shards, and each should be fetched once. So a file is filled under its name with
 * ".part" behind it, at its full size and locked (flock), and renamed when it is whole. The lock tells other processes
 * that one is filling the file. When that process dies its lock goes with it, and the next process begins anew or
 * clears the file away.
 *
 * When room is needed the least recently used file goes, by modification time, which each use renews. A file that is
 * open for reading has a shared lock and does not go, since its room would not be freed.
 *
 * Only the cache uses the folder. It holds files by exactly our names, and a marker that was put while it held no
 * other files. A folder with an index.json, or with files and no marker, is refused.
 *
 * A folder that fails (full disk, no rights, a lock that is not released) is not used for a minute. That makes a run
 * slower, and does not fail it.
 *
 * Ownership: cache_new() gives the caller a Cache; cache_free() accepts NULL. Descriptors are the
 *            caller's.
 * Units:     bytes.
 * Errors:    -ENOENT no such file; -EAGAIN another process fills it; -EEXIST it has been filled; -ENOBUFS the bound
 *            leaves no room, or the folder is not used for now; other -errno of the folder.
 * Threads:   any thread, one at a time; any number of processes.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

enum { CACHE_NAME_MAX = 127 };

#define CACHE_ANY UINT64_MAX /* the size is not known yet */

typedef struct Cache Cache;

/* Looks at the folder and changes nothing. -EINVAL: its files are not a cache's. bound 0: no bound. */
int cache_new(const char *folder, uint64_t bound, Cache **ret, Error *err);
Cache *cache_free(Cache *cache);
DEFINE_CLEANUP(Cache, cache_free)

/* Returns a descriptor to read from; the file is in use until it is closed. A file of another size than n_bytes is
 * removed. */
int cache_open(Cache *cache, const char *name, uint64_t n_bytes);
/* Returns a descriptor of an empty file with room for n_bytes, which only this process fills. With CACHE_ANY it has
 * no room until cache_resize(). */
int cache_reserve(Cache *cache, const char *name, uint64_t n_bytes);
/* Empties a reserved file and gives it room for n_bytes. */
int cache_resize(Cache *cache, const char *name, int fd, uint64_t n_bytes);
/* Gives a reserved file, now whole, its name; it stays open for reading. sync: a power failure must not tear it,
 * since no hash would show that. */
int cache_commit(Cache *cache, const char *name, int fd, bool sync);
/* Removes a reserved file and closes it; accepts -EBADF. Returns -EBADF. */
int cache_abandon(Cache *cache, const char *name, int fd);
/* Removes a file. */
void cache_forget(Cache *cache, const char *name);
/* To be called with the error of filling a file: the folder is not used for a minute, which is logged once. */
void cache_failed(Cache *cache, int r);

/* Locks a file exclusively, and makes it if it is missing. Returns its descriptor, or -EBUSY after timeout_usec. The
 * lock goes with the descriptor, and with the process. */
int cache_lock(const char *path, uint64_t timeout_usec);
