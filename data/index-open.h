/* SPDX-License-Identifier: Apache-2.0 */
/* index-open.h - finds the compact index of a dataset, fetches it or makes it, and keeps it.
 *
 * In a local folder the index is the file INDEX_NAME beside index.json. Where the folder cannot be written it lies in
 * the job's cache; of a job without one, in the first folder of CACHE_DIRECTORY, which systemd gives a service; else in
 * a file without a name, which goes with the Index. An index whose recorded hash of index.json no longer holds is made
 * anew.
 *
 * The node's cache keeps a copy of the index of a dataset on S3. One process of the node fetches it for all, or
 * makes it where the dataset has none. The copy is named after the URI and the version (ETag) of index.json, so an
 * unchanged dataset costs one request. The cache treats it as it treats a shard: it counts in the bound, it stays
 * while it is mapped, and it goes when it was used least recently. Without room in the cache each process fetches
 * its own copy into a file without a name.
 *
 * INDEX_ORIGIN beside the dataset's index tells of which index.json that index was made, so that a node need not fetch
 * an index.json of gigabytes to know that the two belong together. Without INDEX_ORIGIN, or where it names another
 * version, index.json is fetched and hashed.
 *
 * Ownership: functions that return an Index give it to the caller; index_origin_format() gives the caller a text to
 *            free.
 * Units:     bytes.
 * Errors:    -EINVAL no index.json, a wrong one (the text names shard and key), a text that is not an origin, or a
 *            version that JSON cannot hold; -EBADMSG an index.json that is another than the noted one; the store's.
 * Threads:   any, one call at a time on a Store.
 * Source:    docs/internals/data.md, "The compact index".
 */
#pragma once

#include "data/index-build.h"
#include "data/index/index.h"
#include "data/stream/cache.h"

#define INDEX_NAME "index.sdtrain"
#define INDEX_ORIGIN "index.sdtrain.json"

/* Maps the compact index of the dataset in store; builds and keeps it first where it is missing or stale. cache may be
 * NULL. Then the copy of a dataset on S3 has no name and goes with the Index. */
int index_open(Store *store, Cache *cache, Index **ret, Error *err);
/* The same; noted is of index.json, or NULL. -EBADMSG: its hash is another one now. */
int index_open_noted(Store *store, Cache *cache, const NotedHash *noted, Index **ret, Error *err);
/* -EBADMSG with both hashes when they differ; name is for the text. noted may be NULL. */
int index_check_source(const char *name, Hash found, const NotedHash *noted, Error *err);

/* Builds the index and puts it beside index.json, as `sdprep index` does; *ret is that index. */
int index_make(Store *store, bool sample_hashes, IndexProgress progress, void *context, Index **ret,
               Error *err);

/* For callers that learn about a dataset without an index: the length of its index.json. -EINVAL: it has none. */
int index_head(Store *store, uint64_t *ret_bytes, Error *err);
/* And its hash: INDEX_ORIGIN tells it where it names the present version, else index.json is fetched and hashed. */
int index_find_source(Store *store, Hash *ret, Error *err);
/* The name of the copy in the cache. */
const char *index_cache_name(Store *store, const char *version, char ret[CACHE_NAME_MAX + 1]);

/* ---- INDEX_ORIGIN ---- */

enum { INDEX_ORIGIN_MAX = 64 << 10 }; /* bytes; a longer object is not read as an origin */

typedef struct IndexOrigin {
    char version[STORE_VERSION_MAX]; /* of index.json, as store_version() tells it */
    Hash source;                     /* XXH3-128 of the bytes of index.json */
} IndexOrigin;

/* name is for errors. Unknown keys are ignored. */
int index_origin_parse(const char *name, const char *text, size_t n_bytes, IndexOrigin *ret,
                       Error *err);
int index_origin_format(const IndexOrigin *origin, char **ret, Error *err);
