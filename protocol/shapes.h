/* SPDX-License-Identifier: Apache-2.0 */
/* shapes.h - whether the network's config, the data and the job's numbers fit each other.
 *
 * A rank, `sdtrainer sample` and `sdctl job start` call shapes_check() before they allocate anything of these sizes.
 * After it buffers may be sized from any of the three.
 *
 * Ownership: a DatasetShape is a value.
 * Units:     pixels of latent, channels, tokens, elements.
 * Errors:    -EINVAL naming the config's file or the job's key, and both values.
 * Threads:   any.
 */
#pragma once

#include "protocol/job.h"
#include "protocol/unet-config.h"

typedef struct DatasetShape {
    int channels, height, width; /* of the latents, usually 4, H, W */
    int text_tokens, text_dim;
} DatasetShape;

/* How much a stream of the data is. */
typedef struct StreamSize {
    uint64_t n_samples,
        n_bytes; /* n_bytes: of its shards as they are read and as they are kept; 0: not known */
} StreamSize;

/* grain: samples computed at once. */
int shapes_check(const Job *job, const UnetConfig *config, const DatasetShape *data, int64_t grain,
                 Error *err);
