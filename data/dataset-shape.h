/* SPDX-License-Identifier: Apache-2.0 */
/* dataset-shape.h - the shapes of a job's latents and text, found from columns, one sample and the empty caption's
 * embedding.
 *
 * Ownership: values; *ret of dataset_read_empty_text() is the caller's.
 * Units:     as DatasetShape; a zero means not known yet.
 * Errors:    -EINVAL, which a retry cannot help: the text names the key, the column and the column's type; the store's
 *            errors.
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
 * With sample NULL they use only the encoding. They return 1 when the shape is known, 0 when a sample is needed. */
int dataset_observe_latents(const MdsColumn *column, const MdsField *sample, DatasetShape *shape,
                            Error *err);
int dataset_observe_text(const MdsColumn *column, const MdsField *sample, DatasetShape *shape,
                         Error *err);

/* Reads data.empty_text: its values, its shape, and the hash of its file. -EBADMSG: the hash differs from noted's; with
 * noted NULL, any hash is accepted. ret_hash may be NULL. */
int dataset_read_empty_text(const char *uri, const NotedHash *noted, DatasetShape *shape,
                            float **ret, Hash *ret_hash, Error *err);

#define DATASET_SUBMITTED "when the job was submitted" /* for NotedHash.when */

/* XXH3-128 of the files that a job names and that are not covered by another hash. */
typedef struct DatasetSources {
    bool has_empty_text;
    Hash empty_text; /* hash of data.empty_text's file */
    size_t n_streams;
    Hash index[JOB_STREAMS_MAX]; /* hash of each stream's index.json and so of its shards */
    /* The hash of each stream's encoder.json, if dataset_terms_read() takes from encoder.json a term that the job file
     * does not give. */
    bool has_encoder[JOB_STREAMS_MAX];
    Hash encoder[JOB_STREAMS_MAX];
} DatasetSources;
/* Writes the hashes as they are in the job's record: that of the empty text, or "-" if there is none; then for each
 * stream a blank, the hash of index.json, and, if it is noted, "+" and the hash of encoder.json. */
const char *dataset_sources_format(const DatasetSources *sources, char text[JOB_SOURCES_MAX]);
int dataset_sources_parse(const char *text, DatasetSources *ret, Error *err);
