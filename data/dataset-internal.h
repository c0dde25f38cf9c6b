/* SPDX-License-Identifier: Apache-2.0 */
/* dataset-internal.h - the inside of a Dataset, for the files that make and read one; others see dataset.h.
 *
 * Ownership: a Dataset owns its streams, cache and event count. A SampleRead of dataset_begin() borrows the Dataset.
 * Units:     bytes, samples.
 * Errors:    as dataset.h.
 * Threads:   the mutex protects the streams' shards, all SampleReads, the budget and planes. It is not held while a
 *            thread waits. It is held by the caller of dataset_begin(), dataset_expect(), dataset_decode() and of
 *            sample_read_*(), except before dataset_open() returns.
 */
#pragma once

#include "data/dataset-terms.h"
#include "data/dataset.h"
#include "data/stream/sample-read.h"

#include <pthread.h>

typedef struct Stream {
    Store *store;
    Index *index;
    Shards *shards;
    size_t latents, text; /* columns */
    int caption;          /* column; negative: the data have no captions */
} Stream;

struct Dataset {
    DatasetShape shape;
    size_t n_latents, n_text; /* floats of a sample */
    Order order;
    Hash digest;
    DatasetTerms terms;
    float latent_scale;
    float *empty_text;
    /* Samples that are asked for before they are wanted, of a store elsewhere. */
    int64_t read_ahead;
    Cache *cache;       /* NULL: none */
    EventCount *events; /* signalled when a read may go on */
    size_t n_streams;
    Stream streams[JOB_STREAMS_MAX];
    bool has_mutex;
    pthread_mutex_t mutex;
    ReadBudget budget; /* of all streams */
    float *planes;     /* [n_latents]: scratch of dataset_decode(), the latents as stored, CHW */
};

/* Decides which streams' shards are worth fetching whole before they are wanted, for a rank that reads `share` of all
 * samples from first_step on (docs/internals/data.md). Returns how many of its samples that rank should look ahead. */
int64_t dataset_plan_cache(Dataset *dataset, const Job *job, int64_t first_step, double share);

/* How many samples a reader should have asked for: read_ahead, or 1 where all streams are local. */
int64_t dataset_reads_ahead(const Dataset *dataset);
/* Begins to read a sample; sample_read_poll() tells of a failure. */
void dataset_begin(Dataset *dataset, OrderSample sample, SampleRead *ret);
/* Tells the stream that the sample's shard will be wanted; as shards_expect(). */
bool dataset_expect(Dataset *dataset, OrderSample sample, uint64_t round);
/* Decodes the bytes of a sample that was read; results as dataset_read(). */
int dataset_decode(Dataset *dataset, OrderSample sample, const void *bytes, size_t n_bytes,
                   float *latents, float *text, char **caption, Error *err);
