/* SPDX-License-Identifier: Apache-2.0 */
/* dataset-shape.h - the shapes of a job's latents and text, found from columns, one sample and the empty caption's
 * embedding.
 *
 * Ownership: values; *ret of dataset_read_empty_text() is the caller's.
 * Units:     as DatasetShape; a zero means not known yet.
 * Errors:    -EINVAL, which no retry can mend: the text names the key, the column and what the column is; the store's.
 * Threads:   any; no state.
 */
#pragma once

#include "base/number/hash.h"
#include "data/index/index.h"
#include "protocol/shapes.h"
#include "store/store.h"

/* Finds the column that a job's key names; the column must be able to hold floats. where names the dataset in texts. */
int dataset_find_column(const MdsSchema *schema, const char *where, const char *key,
                        const char *name, size_t *ret, Error *err);

/* Fill in the shape of latents, or of text, or compare it with the shape that other streams or the empty text have.
 * With sample NULL they use only the encoding. They return 1 when the shape is known, 0 when it takes a sample. */
int dataset_observe_latents(const MdsColumn *column, const MdsField *sample, DatasetShape *shape,
                            Error *err);
int dataset_observe_text(const MdsColumn *column, const MdsField *sample, DatasetShape *shape,
                         Error *err);

/* Reads data.empty_text: its values, its shape, and the hash of its file. A hash other than noted's gives -EBADMSG;
 * with noted NULL any hash will do. ret_hash may be NULL. */
int dataset_read_empty_text(const char *uri, const NotedHash *noted, DatasetShape *shape,
                            float **ret, Hash *ret_hash, Error *err);

#define DATASET_SUBMITTED "when the job was submitted" /* NotedHash.when */

/* XXH3-128 of the files that a job names and that no other hash covers. */
typedef struct DatasetSources {
    bool has_empty_text;
    Hash empty_text; /* of data.empty_text's file */
    size_t n_streams;
    Hash index[JOB_STREAMS_MAX]; /* of each stream's index.json, which has the shards' hashes */
    /* The hash of each stream's encoder.json, where that gives terms that the job file does not:
     * dataset_terms_read(). */
    bool has_encoder[JOB_STREAMS_MAX];
    Hash encoder[JOB_STREAMS_MAX];
} DatasetSources;
/* Writes "<empty text or -> <index.json>[+<encoder.json>] ...", as in the job's record. */
const char *dataset_sources_format(const DatasetSources *sources, char text[JOB_SOURCES_MAX]);
int dataset_sources_parse(const char *text, DatasetSources *ret, Error *err);
