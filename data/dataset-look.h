/* SPDX-License-Identifier: Apache-2.0 */
/* dataset-look.h - inspects a job's data before the job starts, without a cluster and without a compact index (for
 * sdctl).
 *
 * Ownership: values. Units: samples.
 * Errors:    -EINVAL naming the key, the column and the column's type: a retry cannot help; the store's errors.
 */
#pragma once

#include "data/dataset-shape.h"

typedef struct DatasetLook {
    DatasetShape shape;
    /* False: height and width could be found only in a sample of a large compressed shard. */
    bool sides_known;
    bool compressed; /* some stream has compressed shards */
    /* The number of samples. A stream whose index.json was not read whole counts only its first shard with samples. */
    uint64_t n_samples;
    /* The size of each stream; zeros: the stream's index.json was not read whole. */
    StreamSize sizes[JOB_STREAMS_MAX];
    DatasetSources sources;
} DatasetLook;

/* Reads each stream's index.json, the empty text, and, if a column's encoding does not give the shapes, one sample. */
int dataset_look(const Job *job, DatasetLook *ret, Error *err);
/* Computes the job's identity as a rank will compute it. *ret_terms gets the text of the job's terms
 * (job_terms_format()); it may be NULL, and the caller frees it. config: the network's configuration, as
 * unet_config_format() writes it. */
int dataset_look_identity(const Job *job, const char *config, Hash *ret, char **ret_terms,
                          Error *err);
