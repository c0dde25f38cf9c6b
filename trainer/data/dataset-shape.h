/* dataset-shape.h - the shapes of a job's latents and text: what columns, one sample and the empty caption's embedding
 * say of them, and how sdctl learns them without a cluster.
 *
 * Ownership: values; *ret of dataset_read_empty_text() is the caller's.
 * Units:     as DatasetShape; zeros are what is not known yet.
 * Errors:    -EINVAL naming the key, the column and what it is: no retry can help; the store's.
 * Threads:   any; no state.
 */
#pragma once

#include "base/hash.h"
#include "protocol/shapes.h"
#include "store/store.h"
#include "trainer/data/index/index.h"

/* The column that a job's key names, if floats can be in it. where: the dataset. */
int dataset_find_column(const MdsSchema *schema, const char *where, const char *key,
                        const char *name, size_t *ret, Error *err);

/* Fills in the shape of latents, or of text, or compares it with what other streams or the empty
 * text have. sample NULL: by the encoding alone. 0: only a sample can tell; 1: known. */
int dataset_learn_latents(const MdsColumn *column, const MdsField *sample, DatasetShape *shape,
                          Error *err);
int dataset_learn_text(const MdsColumn *column, const MdsField *sample, DatasetShape *shape,
                       Error *err);

/* data.empty_text's values, its shape, and the hash of its file. submitted: what that must be, or
 * -EBADMSG; NULL: anything. ret_hash may be NULL. */
int dataset_read_empty_text(const char *uri, const Hash *submitted, DatasetShape *shape,
                            float **ret, Hash *ret_hash, Error *err);

/* What a job names beside its shards, each by XXH3-128: what is not hashed by anything else. */
typedef struct DatasetSources {
    bool has_empty_text;
    Hash empty_text; /* of its file */
    size_t n_streams;
    Hash index[JOB_STREAMS_MAX]; /* of each stream's index.json, which has the shards' hashes */
} DatasetSources;
/* "<empty text or -> <index.json> ..."; as it stands in the job's record. */
const char *dataset_sources_format(const DatasetSources *sources, char text[JOB_SOURCES_MAX]);
int dataset_sources_parse(const char *text, DatasetSources *ret, Error *err);

/* What a job's data are, without an index: each stream's index.json, of one sample what no encoding
 * tells, and the empty text. */
typedef struct DatasetLook {
    DatasetShape shape;
    bool sides_known;   /* false: only a sample that costs a large shard would tell */
    bool compressed;    /* a stream's shards are */
    uint64_t n_samples; /* of the index.json that were read whole */
    DatasetSources sources;
} DatasetLook;
int dataset_look(const Job *job, DatasetLook *ret, Error *err);
