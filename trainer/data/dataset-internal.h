/* dataset-internal.h - the inside of a Dataset, and samples read ahead from it; for the files that make and
 * use one. What others see is in loader.h.
 *
 * Ownership: a Dataset owns its streams. ahead_new() gives the caller an Ahead, which borrows the
 *            Dataset; ahead_free() accepts NULL.
 * Units:     bytes, samples.
 * Errors:    as loader.h; -ECANCELED ahead_take() was stopped.
 * Threads:   the mutex protects the streams' shards, the budget and planes, and is not held while
 *            anybody waits; an Ahead belongs to one thread, but ahead_stop() is anybody's.
 */
#pragma once

#include "trainer/data/dataset.h"
#include "trainer/data/stream/shards.h"

#include <pthread.h>

typedef struct Stream {
    Store *store;
    Index *index;
    Shards *shards;
    size_t latents, text; /* columns */
    int caption;          /* column, or negative */
} Stream;

struct Dataset {
    DatasetShape shape;
    size_t n_latents, n_text; /* elements of a sample */
    Order order;
    Hash digest;
    float latent_scale;
    float *empty_text;
    int64_t read_ahead;
    Cache *cache; /* NULL: none */
    EventCount *events;
    size_t n_streams;
    Stream streams[JOB_STREAMS_MAX];
    bool has_mutex;
    pthread_mutex_t mutex;
    ReadBudget budget;
    float *planes; /* [n_latents]: latents as stored, CHW */
};

/* Decides which streams' shards are worth fetching whole before they are wanted, for one who reads
 * share of all samples from first_step on (docs/internals/data.md). Returns how many of its
 * samples it should look ahead. */
int64_t dataset_plan_cache(Dataset *dataset, const Job *job, int64_t first_step, double share);

/* Begins to read a sample; the caller holds the mutex, here and below. */
int dataset_begin(Dataset *dataset, OrderSample sample, SampleRead *ret, Error *err);
/* What was read; as dataset_read(). */
int dataset_decode(Dataset *dataset, OrderSample sample, const void *bytes, size_t n_bytes,
                   float *latents, float *text, char **caption, Error *err);

/* Numbers of an array as floats, all of them finite. Errors begin with "<what> <name>". */
int dataset_expand(const char *what, const char *name, MdsNumber number, const void *values,
                   size_t n, float *ret, Error *err);

/* Samples in an order that is known beforehand: the reads of those to come are under way while one
 * is decoded. */
typedef struct Ahead Ahead;

/* The next sample to come; false when there is none any more. */
typedef bool (*AheadNext)(void *context, OrderSample *ret);

int ahead_new(Dataset *dataset, AheadNext next, void *context, Ahead **ret, Error *err);
Ahead *ahead_free(Ahead *ahead);
DEFINE_CLEANUP(Ahead, ahead_free)
/* scout() tells the same samples as next() once more: the shards of the next `horizon` after those
 * taken are expected. */
void ahead_scout(Ahead *ahead, AheadNext scout, void *context, int64_t horizon);
/* The sample that next() told first of those not taken yet; -ENODATA when there is none. */
int ahead_take(Ahead *ahead, float *latents, float *text, OrderSample *ret_sample, Error *err);
/* For who has nothing to take now: lets what is under way go on, and returns when there may be more
 * to do. seen: the event count's count before it was clear that nothing is to be taken. */
void ahead_tend(Ahead *ahead, uint64_t seen);
/* What takes, now or later, ends with -ECANCELED. */
void ahead_stop(Ahead *ahead);
