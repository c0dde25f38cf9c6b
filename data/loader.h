/* SPDX-License-Identifier: Apache-2.0 */
/* loader.h - reads and decodes the samples of this rank's grains ahead of time, in order.
 *
 * A step must not wait for a slow store. So a background thread reads the samples of the steps to come, verifies and
 * decodes them into a bounded ring. The loop gets grains by (step, grain). They stay valid until the loop releases the
 * step, so that a step can be computed twice.
 *
 * Ownership: loader_new() borrows the Dataset, which must outlive the Loader; grains point into the Loader's memory.
 * Units:     latents and text as dataset.h. Steps count from 0: step s trains positions s * global_batch onward, so a
 *            state that has completed n steps continues with step n.
 * Errors:    as dataset.h. loader_get() returns an error when the loop requests the grain that failed, and from then
 *            on.
 * Threads:   loader_get() and loader_release() on the loop's thread; the loader has one thread of its own.
 */
#pragma once

#include "data/dataset.h"

typedef struct Loader Loader;

typedef struct LoaderGrain {
    int64_t step, grain, first_position;
    const float *latents; /* [grain][height][width][channels] */
    /* [grain][text_tokens][text_dim], as stored; caption drop is applied later. */
    const float *text;
    const OrderSample *samples; /* [grain] */
} LoaderGrain;

/* first_step is the first step that the loop will request. Grains first_grain .. first_grain + n_grains - 1 of each
 * step are this rank's. ahead_bytes bounds the ring of decoded samples, which holds at least one step. */
int loader_new(Dataset *dataset, const Job *job, int64_t first_step, int64_t first_grain,
               int64_t n_grains, size_t ahead_bytes, Loader **ret, Error *err);
Loader *loader_free(Loader *loader); /* stops the thread within a second */
DEFINE_CLEANUP(Loader, loader_free)
/* Blocks until the grain has been decoded or has failed, at most timeout_usec (-ETIMEDOUT). -EDEADLK: the grain cannot
 * be loaded, since earlier steps that were not released fill the ring. */
int loader_get(Loader *loader, int64_t step, int64_t grain, uint64_t timeout_usec, LoaderGrain *ret,
               Error *err);
void loader_release(Loader *loader, int64_t step); /* releases all grains of steps <= step */
