/* SPDX-License-Identifier: Apache-2.0 */
/* index-open.h - finds the compact index of a dataset, fetches it or makes it, and keeps it.
 *
 * In a local folder the index is the file INDEX_NAME beside index.json. If the folder cannot be written, the index is
 * kept in the job's cache; if the job has no cache, in the first folder of CACHE_DIRECTORY, which systemd gives a
 * service; else in a file without a name, which vanishes with the Index. An index whose recorded hash of index.json no
 * longer holds is made again.
 *
 * For a dataset on S3, the node's cache keeps a copy of the index. One process of the node fetches the index for all
 * processes, or makes it if the dataset has none. The copy is named after the URI and the version (ETag) of index.json,
 * so an unchanged dataset costs one request. The cache treats the copy as it treats a shard: the copy counts towards
 * the cache's size, stays while it is mapped, and is removed when it is the least recently used file. Without room in
 * the cache, each process fetches its own copy into a file without a name.
 *
 * INDEX_ORIGIN beside the dataset's index names the index.json of which that index was made, so that a node need not
 * fetch an index.json of gigabytes to know that the index belongs to it. Without INDEX_ORIGIN, or if it names another
 * version, index.json is fetched and hashed.
 *
 * Folder:    defaults of the headers here: Threads: any.
 * Ownership: functions that return an Index give it to the caller; index_origin_format() gives the caller a text to
 *            free.
 * Units:     bytes.
 * Errors:    -EINVAL no index.json, a wrong index.json (the text names shard and key), a text that is not an origin, or
 *            a version that JSON cannot hold; -EBADMSG an index.json whose hash is not the noted one; the store's
 *            errors.
 * Threads:   any, one call at a time on a Store.
 * Source:    docs/internals/data.md, "The compact index".
 */
#pragma once

#include "data/index-build.h"
#include "data/index/index.h"
#include "data/stream/cache.h"

#define INDEX_NAME "index.sdtrain"
#define INDEX_ORIGIN "index.sdtrain.json"

/* Maps the compact index of the dataset in store; first builds and stores it if it is missing or stale. cache may be
 * NULL: then the copy of a dataset on S3 has no name and vanishes with the Index. */
int index_open(Store *store, Cache *cache, Index **ret, Error *err);
/* As index_open(); noted is an earlier hash of index.json, or NULL. -EBADMSG: index.json has another hash now. */
int index_open_noted(Store *store, Cache *cache, const NotedHash *noted, Index **ret, Error *err);
/* Compares the hash of a file with its noted hash. -EBADMSG, with both hashes in the text, if they differ. name is used
 * in the text. noted may be NULL. */
int index_check_source(const char *name, Hash found, const NotedHash *noted, Error *err);

/* Builds the index and stores it beside index.json, as `sdprep index` does; *ret is that index. */
int index_make(Store *store, bool sample_hashes, IndexProgress progress, void *context, Index **ret,
               Error *err);

/* Finds the length of the dataset's index.json, without an index. -EINVAL: the dataset has no index.json. */
int index_head(Store *store, uint64_t *ret_bytes, Error *err);
/* Finds the hash of the dataset's index.json: in INDEX_ORIGIN if INDEX_ORIGIN names the present version of index.json,
 * else index.json is fetched and hashed. */
int index_find_source(Store *store, Hash *ret, Error *err);
/* Writes the name of the index's copy in the cache. */
const char *index_cache_name(Store *store, const char *version, char ret[CACHE_NAME_MAX + 1]);

/* ---- INDEX_ORIGIN ---- */

enum { INDEX_ORIGIN_MAX = 64 << 10 }; /* bytes; a longer object is not read as an origin */

typedef struct IndexOrigin {
    char version[STORE_VERSION_MAX]; /* version of index.json, as store_version() returns it */
    Hash source;                     /* XXH3-128 of the bytes of index.json */
} IndexOrigin;

/* Parses the text of an INDEX_ORIGIN. name is used in error texts. Unknown keys are ignored. */
int index_origin_parse(const char *name, const char *text, size_t n_bytes, IndexOrigin *ret,
                       Error *err);
int index_origin_format(const IndexOrigin *origin, char **ret, Error *err);
