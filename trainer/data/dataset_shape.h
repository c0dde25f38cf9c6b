/* dataset_shape.h - the shapes of a job's latents and text: what columns, one sample and the empty caption's embedding
 * say of them, and how sdctl learns them without a cluster.
 *
 * Ownership: values; *ret of dataset_read_empty_text() is the caller's.
 * Units:     as DatasetShape; zeros are what is not known yet.
 * Errors:    -EINVAL naming the key, the column and what it is: no retry can help; the store's.
 * Threads:   any; no state.
 */
#pragma once

#include "base/hash.h"
#include "store/store.h"
#include "trainer/api/shapes.h"
#include "trainer/data/index.h"

/* The column that a job's key names, if floats can be in it. where: the dataset. */
int dataset_find_column(const MdsSchema *schema, const char *where, const char *key,
                        const char *name, size_t *ret, Error *err);

/* Fills in the shape of latents, or of text, or compares it with what other streams or the empty
 * text have. sample NULL: by the encoding alone. 0: only a sample can tell; 1: known. */
int dataset_learn_latents(const MdsColumn *column, const MdsField *sample, DatasetShape *shape,
                          Error *err);
int dataset_learn_text(const MdsColumn *column, const MdsField *sample, DatasetShape *shape,
                       Error *err);

/* data.empty_text's values, its shape, and the hash of its file. */
int dataset_read_empty_text(const char *uri, DatasetShape *shape, float **ret, Hash *ret_hash,
                            Error *err);

/* What a job's data are, without an index: each stream's index.json, of one sample what no encoding
 * tells, and the empty text. */
typedef struct DatasetLook {
    DatasetShape shape;
    bool sides_known; /* false: only a sample that costs a large shard would tell */
    size_t n_streams;
    Hash index[JOB_STREAMS_MAX]; /* XXH3-128 of each stream's index.json */
    bool has_empty_text;
    Hash empty_text; /* of its file */
} DatasetLook;
int dataset_look(const Job *job, DatasetLook *ret, Error *err);
