/* SPDX-License-Identifier: Apache-2.0 */
/* dataset.h - the samples of a job: its streams, their compact indices, one sample decoded.
 *
 * Ownership: dataset_open() gives the caller a Dataset and copies what it needs of the Job; dataset_free() accepts
 *            NULL. dataset_shape(), dataset_order() and dataset_empty_text() return pointers into the Dataset.
 * Units:     latents and text are fp32 whatever the files hold. Latents are NHWC, multiplied by latent_scale.
 * Errors:    -EINVAL a job that its data do not fit, the text names key, column and what it is; -EBADMSG a corrupt
 *            index, shard or sample after retries, the text names shard, sample and both hashes; -ENOENT a missing
 *            shard; the store's.
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

/* Learns from encoder.json what the job file leaves out (dataset-terms.h), maps each stream's compact index
 * (index-open.h), reads the first samples to learn the shapes, checks that the streams
 * agree, reads empty_text. Refuses first samples whose latents' standard deviation is far from 1, with a hint about
 * latent_scale. */
int dataset_open(const Job *job, Dataset **ret, Error *err);
/* The same for a submitted job. sources tells the data's hashes at that time (dataset_sources_format()); "": nobody
 * noted them. -EBADMSG: the data have changed since. */
int dataset_open_submitted(const Job *job, const char *sources, Dataset **ret, Error *err);
Dataset *dataset_free(Dataset *dataset);
DEFINE_CLEANUP(Dataset, dataset_free)
const DatasetShape *dataset_shape(const Dataset *dataset);
const Order *dataset_order(const Dataset *dataset);
Hash dataset_digest(const Dataset *dataset); /* over the compact indices, bitmaps included */
/* The text that the digest is of, canonical JSON for people and comparisons: {"data":{"streams":[{"index": the hash of
 * its compact index, "index_json": that of its index.json, "samples": those with latents, "shards"}]}}. The
 * caller's. */
char *dataset_digest_terms(const Dataset *dataset);
/* The parts of the job's identity that come from the data: the columns' names by job file or encoder.json, and the
 * empty caption. Borrows the dataset; config is the caller's. */
JobNamed dataset_job_named(const Dataset *dataset, const char *config);
/* [text_tokens][text_dim]; NULL when the job drops no caption and names none. */
const float *dataset_empty_text(const Dataset *dataset);
/* A sample's name for people, "shard.00012.mds[37]"; "1:shard..." where there are several streams. */
const char *dataset_sample_name(const Dataset *dataset, OrderSample sample, char *text,
                                size_t size);
/* Reads and decodes one sample on the calling thread (sdtrainer sample, tests). Each of the three results may be NULL.
 * The caption is an empty string where the data have none, and the caller frees it. */
int dataset_read(Dataset *dataset, OrderSample sample, float *latents, float *text, char **caption,
                 Error *err);
