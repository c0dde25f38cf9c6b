/* cache.h - a folder of unpacked shards, bounded in bytes, shared by the ranks of a node.
 *
 * Any rank adds and removes; a file that is open stays readable after its removal. The least
 * recently used goes first, by modification time, which a use renews.
 *
 * Ownership: none.
 * Units:     bytes.
 * Errors:    -ENOSPC when n_bytes alone exceed the bound; -errno of the folder.
 * Threads:   any, and any process.
 */
#pragma once

#include "base/error.h"

/* Removes *.mds files from the folder until n_bytes more fit under bound (0: no bound). */
int cache_make_room(const char *folder, uint64_t bound, uint64_t n_bytes);

/* Marks a file as used now. */
void cache_touch(const char *path);
