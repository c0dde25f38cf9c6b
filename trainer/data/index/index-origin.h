/* index-origin.h - which index.json a compact index was made of, as the JSON that lies beside it.
 *
 * Ownership: index_origin_format() gives the caller a text to free.
 * Units:     none.
 * Errors:    -EINVAL a text that is no origin, naming key and value; a version that JSON cannot hold.
 * Threads:   any.
 */
#pragma once

#include "base/hash.h"
#include "store/store.h"

enum { INDEX_ORIGIN_MAX = 64 << 10 }; /* bytes of one that is read */

typedef struct IndexOrigin {
    char version[STORE_VERSION_MAX]; /* of index.json, as store_version() tells it */
    Hash source;                     /* of its bytes */
} IndexOrigin;

/* name is for errors. Keys that are not known are passed over. */
int index_origin_parse(const char *name, const char *text, size_t n_bytes, IndexOrigin *ret,
                       Error *err);
int index_origin_format(const IndexOrigin *origin, char **ret, Error *err);
