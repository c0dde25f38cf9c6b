/* SPDX-License-Identifier: Apache-2.0 */
/* dataset-internal.h - the inside of a Dataset, for the files that make and read one; other files use dataset.h.
 *
 * Units: bytes, samples. Errors: as dataset.h.
 * Ownership: a Dataset owns its streams, cache and event count. A SampleRead of dataset_begin() borrows the Dataset.
 * Threads:   the mutex protects the streams' shards, all SampleReads, the budget and planes. A thread does not hold it
 *            while it waits. The caller of dataset_begin(), dataset_expect(), dataset_decode() and sample_read_*()
 *            holds it, except before dataset_open() returns.
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
    size_t latents, text; /* column numbers */
    int caption;          /* column number; negative: the data have no captions */
} Stream;

struct Dataset {
    DatasetShape shape;
    size_t n_latents, n_text; /* number of floats in one sample */
    Order order;
    Hash digest;
    DatasetTerms terms;
    float latent_scale;
    float *empty_text;
    /* Number of samples that are requested ahead of their use, if the store is not local. */
    int64_t read_ahead;
    Cache *cache;       /* NULL: the job has no cache */
    EventCount *events; /* signalled when a waiting read may continue */
    size_t n_streams;
    Stream streams[JOB_STREAMS_MAX];
    bool has_mutex;
    pthread_mutex_t mutex;
    ReadBudget budget; /* shared by all streams */
    float *planes;     /* [n_latents]: scratch of dataset_decode() for the latents as stored, CHW */
};

/* Decides for which streams whole shards should be fetched in advance (docs/internals/data.md). The rank reads the
 * fraction `share` of all samples, and begins with step first_step. Returns the number of the rank's next samples whose
 * shards should be fetched. */
int64_t dataset_plan_cache(Dataset *dataset, const Job *job, int64_t first_step, double share);

/* Returns how many samples a reader should request ahead: read_ahead, or 1 if all streams are local. */
int64_t dataset_reads_ahead(const Dataset *dataset);
/* Begins to read a sample; sample_read_poll() returns any failure. */
void dataset_begin(Dataset *dataset, OrderSample sample, SampleRead *ret);
/* Announces to the stream that the sample's shard will be needed. The result is that of shards_expect(). */
bool dataset_expect(Dataset *dataset, OrderSample sample, uint64_t round);
/* Decodes the bytes of a sample that was read; the results are those of dataset_read(). */
int dataset_decode(Dataset *dataset, OrderSample sample, const void *bytes, size_t n_bytes,
                   float *latents, float *text, char **caption, Error *err);
