/* SPDX-License-Identifier: Apache-2.0 */
/* dataset-terms.h - the names under which a job's samples are read: those in the job file, else those in encoder.json.
 *
 * A dataset of sdprep encode states its columns, its scale and the place of the empty caption's embedding, so that a
 * job need not repeat them. sdctl, each rank and each verb find the terms here, by the same rules, from the job file
 * and the encoder.json of all streams; no other code decides them. A rank compares the hashes of the files that gave
 * the terms with the hashes that were noted when the job was submitted.
 *
 * A job file that repeats the statements of encoder.json means the same job as one that leaves them out: the identity
 * is a hash of the terms (job_identity()).
 *
 * Ownership: dataset_terms_read() fills a DatasetTerms that dataset_terms_clear() empties, whatever was returned.
 * Units:     as DatasetShape.
 * Errors:    -EINVAL naming file and key: streams of different encoders, a job file that contradicts encoder.json, or a
 *            term that is missing in all files; -EBADMSG an encoder.json that is not the submitted one; the store's
 *            errors.
 */
#pragma once

#include "data/dataset-shape.h"

typedef struct DatasetTerms {
    char *latents, *text; /* names of columns */
    char *empty_text_uri; /* NULL: the job drops no caption and its file has no empty_text */
    char *encoder;        /* URI of the first encoder.json; NULL: no stream has an encoder.json */
    DatasetShape shape;   /* shape of the samples, as `encoder` states it */
    /* The hashes that each encoder.json records of the files beside it. */
    NotedHash empty_text, index[JOB_STREAMS_MAX];
} DatasetTerms;

/* Finds the terms. submitted may be NULL. sources, which may be NULL, gets the hash of each encoder.json if the
 * job file alone does not give the same terms. */
int dataset_terms_read(const Job *job, const DatasetSources *submitted, DatasetTerms *ret,
                       DatasetSources *sources, Error *err);
void dataset_terms_clear(DatasetTerms *terms);

/* Finds the columns that the terms name, as dataset_find_column(); the error of a missing column suggests what to
 * write. */
int dataset_terms_find(const DatasetTerms *terms, const Job *job, const MdsSchema *schema,
                       const char *where, size_t *ret_latents, size_t *ret_text, Error *err);
/* Calls dataset_read_empty_text() for the file that the terms name; with noted NULL, the file must have
 * the hash that encoder.json records for it, if encoder.json records one. */
int dataset_terms_read_empty(const DatasetTerms *terms, const Job *job, const NotedHash *noted,
                             DatasetShape *shape, float **ret, Hash *ret_hash, Error *err);
/* -EINVAL: the columns' shapes differ from those in encoder.json, so that encoder.json belongs to another dataset. */
int dataset_terms_check(const DatasetTerms *terms, const DatasetShape *found, Error *err);
