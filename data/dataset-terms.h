/* SPDX-License-Identifier: Apache-2.0 */
/* dataset-terms.h - under which names a job's samples are read: what its file says, else what encoder.json says.
 *
 * A dataset of sdprep encode knows its columns, its scale and where the empty caption's embedding lies, so that a job
 * need not repeat it. sdctl, each rank and each verb learn the terms here, by the same rules, from the job file and the
 * encoder.json of all streams; nothing else decides. A rank compares the hashes of what the terms came from with those
 * that were noted when the job was submitted.
 *
 * A job file that says what encoder.json says means the same job: the identity is of the terms (job_identity()).
 *
 * Ownership: dataset_terms_read() fills a DatasetTerms that dataset_terms_clear() empties, whatever was returned.
 * Units:     as DatasetShape.
 * Errors:    -EINVAL naming file and key: streams of different encoders, a job file that contradicts encoder.json, and
 *            what nobody says; -EBADMSG an encoder.json that is another than the submitted one; the store's.
 * Threads:   any; no state.
 */
#pragma once

#include "data/dataset-shape.h"

typedef struct DatasetTerms {
    char *latents, *text; /* columns */
    char *empty_text_uri; /* NULL: the job drops no caption, and its file names none */
    char *encoder;        /* URI of the first encoder.json; NULL: no stream has one */
    DatasetShape shape;   /* of the samples, as that file says */
    /* The hashes that each encoder.json has of the files beside it. */
    NotedHash empty_text, index[JOB_STREAMS_MAX];
} DatasetTerms;

/* submitted may be NULL. sources, which may be NULL, gets the hash of each encoder.json where the terms are others than
 * the job file's own. */
int dataset_terms_read(const Job *job, const DatasetSources *submitted, DatasetTerms *ret,
                       DatasetSources *sources, Error *err);
void dataset_terms_clear(DatasetTerms *terms);

/* The column that a key names, or what to write when it is not there; as dataset_find_column(). */
int dataset_terms_find(const DatasetTerms *terms, const Job *job, const MdsSchema *schema,
                       const char *where, size_t *ret_latents, size_t *ret_text, Error *err);
/* dataset_read_empty_text() of the file that they name, with what encoder.json says of it unless more was noted. */
int dataset_terms_read_empty(const DatasetTerms *terms, const Job *job, const NotedHash *noted,
                             DatasetShape *shape, float **ret, Hash *ret_hash, Error *err);
/* -EINVAL where the columns have another shape than encoder.json says: it is another dataset's. */
int dataset_terms_check(const DatasetTerms *terms, const DatasetShape *found, Error *err);
