/* loader.h - the samples of this rank's grains, ahead of time, in order, checked.
 *
 * A background thread reads shards through the dataset, decodes the owned grains of the steps ahead
 * into a bounded ring, and verifies what it reads. The loop takes grains by (step, grain); they
 * stay valid until it releases the step, so that a step can be computed twice.
 *
 * Ownership: loader_new() borrows the Dataset, which must outlive it; grains point into the
 *            loader's memory. dataset_open() copies what it needs of the Job.
 * Units:     latents and text are fp32 whatever the files hold; latents are NHWC, multiplied by
 *            latent_scale. Steps count from 0: step s trains positions s * global_batch onward, so
 *            that the first step of a state is the number of steps it has behind it.
 * Errors:    -EBADMSG a corrupt shard or sample after retries (text names shard, sample, both
 *            hashes); -ENOENT a missing shard; other -errno of the store. They come out of
 *            loader_get, once the loop reaches that grain, and stick.
 * Threads:   loader_get/release on the loop's thread; one thread of its own. dataset_read() any.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "base/hash.h"
#include "protocol/shapes.h"
#include "trainer/data/order.h"

/* ---- dataset: all streams of a job, by their compact indices ---- */

typedef struct Dataset Dataset;

/* Maps each stream's compact index (building it from index.json beside it, or in cache_dir, when
 * missing or stale), reads one sample to learn the shapes, checks that streams agree, reads
 * empty_text. Refuses first samples whose latents' standard deviation is far from 1 with the hint
 * about latent_scale. */
int dataset_open(const Job *job, Dataset **ret, Error *err);
/* The same of a job whose data were looked at when it was submitted (dataset_sources_format()):
 * -EBADMSG when they are others now. sources "": they were not. */
int dataset_open_submitted(const Job *job, const char *sources, Dataset **ret, Error *err);
Dataset *dataset_free(Dataset *dataset);
DEFINE_CLEANUP(Dataset, dataset_free)
const DatasetShape *dataset_shape(const Dataset *dataset);
const Order *dataset_order(const Dataset *dataset);
Hash dataset_digest(const Dataset *dataset); /* over the compact indices, bitmaps included */
/* [text_tokens][text_dim]; NULL when the job names none. */
const float *dataset_empty_text(const Dataset *dataset);
/* "shard.00012.mds[37]" of a sample, for people; "1:shard..." where there are several streams. */
const char *dataset_sample_name(const Dataset *dataset, OrderSample sample, char *text,
                                size_t size);
/* One sample, read and decoded on the calling thread (sdtrainer sample, tests). Each of the three
 * may be NULL; the caption is an empty string where the data have none, and the caller frees it. */
int dataset_read(Dataset *dataset, OrderSample sample, float *latents, float *text, char **caption,
                 Error *err);

/* ---- loader ---- */

typedef struct Loader Loader;

typedef struct LoaderGrain {
    int64_t step, grain, first_position;
    const float *latents; /* [grain][height][width][channels] */
    const float *text;    /* [grain][text_tokens][text_dim], as stored (drop is applied later) */
    const OrderSample *samples; /* [grain] */
} LoaderGrain;

/* first_step: the first step that will be asked for. Grains first_grain .. first_grain + n_grains -
 * 1 of each step are this rank's; ahead_bytes bounds the ring (at least one step). */
int loader_new(Dataset *dataset, const Job *job, int64_t first_step, int64_t first_grain,
               int64_t n_grains, size_t ahead_bytes, Loader **ret, Error *err);
Loader *loader_free(Loader *loader); /* stops the thread within a second */
DEFINE_CLEANUP(Loader, loader_free)
/* Blocks until the grain is there or has failed; bounded by timeout_usec (-ETIMEDOUT). Steps whose
 * predecessors fill the ring unreleased cannot come: -EDEADLK. */
int loader_get(Loader *loader, int64_t step, int64_t grain, uint64_t timeout_usec, LoaderGrain *ret,
               Error *err);
void loader_release(Loader *loader, int64_t step); /* all grains of steps <= step */
