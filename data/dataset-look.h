/* SPDX-License-Identifier: Apache-2.0 */
/* dataset-look.h - what sdctl learns of a job's data before the job starts, without a cluster and without an index.
 *
 * Ownership: values.
 * Units:     samples.
 * Errors:    -EINVAL naming the key, the column and what it is: no retry can help; the store's.
 * Threads:   any; no state.
 */
#pragma once

#include "data/dataset-shape.h"

typedef struct DatasetLook {
    DatasetShape shape;
    /* False: only a sample of a large compressed shard would tell height and width. */
    bool sides_known;
    bool compressed;                   /* the shards of some stream are */
    uint64_t n_samples;                /* of the streams whose index.json was read whole */
    StreamSize sizes[JOB_STREAMS_MAX]; /* of each stream; 0: its index.json was not read whole */
    DatasetSources sources;
} DatasetLook;

/* Reads each stream's index.json, one sample where its encoding does not tell the shapes, and the empty text. */
int dataset_look(const Job *job, DatasetLook *ret, Error *err);
/* The job's identity as a rank will find it, and its text (job_terms_format(), perhaps NULL), which the caller frees.
 * config: the network's, as unet_config_format() writes it. */
int dataset_look_identity(const Job *job, const char *config, Hash *ret, char **ret_terms,
                          Error *err);
