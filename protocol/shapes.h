/* SPDX-License-Identifier: Apache-2.0 */
/* shapes.h - checks that the network's config, the data and the job's numbers fit each other.
 *
 * A rank, `sdtrainer sample` and `sdctl job start` call shapes_check() before they allocate buffers of these sizes.
 * Afterwards buffers may be sized from any of the three.
 *
 * Ownership: a DatasetShape has no pointers.
 * Units:     pixels of latent, channels, tokens, elements.
 * Errors:    -EINVAL naming the config's file or the job's key, and both values.
 */
#pragma once

#include "protocol/job.h"
#include "protocol/unet-config.h"

typedef struct DatasetShape {
    int channels, height, width; /* of the latents, usually 4 x H x W */
    int text_tokens, text_dim;
} DatasetShape;

/* The size of one stream of the data. */
typedef struct StreamSize {
    uint64_t n_samples, n_bytes; /* the size of the stream's raw and compressed files; 0: unknown */
} StreamSize;

/* Checks the shapes. grain is the number of samples that are computed at once. */
int shapes_check(const Job *job, const UnetConfig *config, const DatasetShape *data, int64_t grain,
                 Error *err);
