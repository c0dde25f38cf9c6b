/* SPDX-License-Identifier: Apache-2.0 */
/* dataset.h - the samples of a job: its streams, their compact indices, one sample decoded.
 *
 * Ownership: dataset_open() gives the caller a Dataset and copies what it needs of the Job; dataset_free() accepts
 *            NULL. dataset_shape(), dataset_order() and dataset_empty_text() return pointers into the Dataset.
 * Units:     latents and text are fp32, whatever type the files hold. Latents are NHWC, multiplied by latent_scale.
 * Errors:    -EINVAL the data do not fit the job, the text names the key, the column and the column's type; -EBADMSG a
 *            corrupt index, shard or sample after retries, the text names shard, sample and both hashes; -ENOENT a
 *            missing shard; the store's errors.
 * Threads:   any. dataset_read() waits for the store without holding a lock.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "base/number/hash.h"
#include "data/order.h"
#include "protocol/job-terms.h"
#include "protocol/shapes.h"

typedef struct Dataset Dataset;

/* Opens the dataset: reads the terms that the job file leaves out from encoder.json (dataset-terms.h), maps each
 * stream's compact index (index-open.h), finds the shapes in the first samples, checks that the streams agree, and
 * reads empty_text. Refuses first samples whose latents' standard deviation is far from 1, with a hint about
 * latent_scale. */
int dataset_open(const Job *job, Dataset **ret, Error *err);
/* As dataset_open(), for a submitted job. sources holds the data's hashes at submission (dataset_sources_format()); "":
 * no hashes were noted. -EBADMSG: the data have changed since. */
int dataset_open_submitted(const Job *job, const char *sources, Dataset **ret, Error *err);
Dataset *dataset_free(Dataset *dataset);
DEFINE_CLEANUP(Dataset, dataset_free)
const DatasetShape *dataset_shape(const Dataset *dataset);
const Order *dataset_order(const Dataset *dataset);
Hash dataset_digest(const Dataset *dataset); /* hash over the compact indices and their bitmaps */
/* Returns what the digest depends on, as canonical JSON for people and comparisons:
 * {"data":{"streams":[{"index": the hash of the compact index, "index_json": the hash of index.json, "samples": the
 * number of samples with latents, "shards": the number of shards}]}}. The caller frees the text. */
char *dataset_digest_terms(const Dataset *dataset);
/* Returns the parts of the job's identity that come from the data: the names of the columns, from the job file or
 * encoder.json, and the empty caption. The result borrows the dataset and config. */
JobNamed dataset_job_named(const Dataset *dataset, const char *config);
/* The empty caption's embedding, [text_tokens][text_dim]; NULL when the job drops no captions and names no empty
 * text. */
const float *dataset_empty_text(const Dataset *dataset);
/* Writes a sample's name for people, "shard.00012.mds[37]"; "1:shard..." if there are several streams. */
const char *dataset_sample_name(const Dataset *dataset, OrderSample sample, char *text,
                                size_t size);
/* Reads and decodes one sample on the calling thread (sdtrainer sample, tests). Each of the three results may be NULL.
 * The caption is an empty string if the data have no captions; the caller frees it. */
int dataset_read(Dataset *dataset, OrderSample sample, float *latents, float *text, char **caption,
                 Error *err);
