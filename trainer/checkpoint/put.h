/* SPDX-License-Identifier: Apache-2.0 */
/* put.h - puts a rank's objects of one checkpoint from its snapshot into the store.
 *
 * Ownership: borrows everything. Units: bytes. Threads: the writer's.
 * Errors:    the first error of the store; -ENOMEM. In any case all puts have ended when the function returns, so the
 *            snapshot may change.
 */
#pragma once

#include "trainer/checkpoint/writer.h"

/* How many of the newest committed checkpoints keep their copies on this node. */
enum { COMMITTED_KEPT = 2 };

typedef struct PutPlan {
    CheckpointName name;
    char committed[COMMITTED_KEPT][CHECKPOINT_FOLDER_MAX]; /* "": there is no such checkpoint */
} PutPlan;

/* How a save changes the list of metrics. A segment without a key does not exist. */
typedef struct PutMetrics {
    MetricsSegment segment; /* the new segment, of the metrics since the last commit */
    MetricsSegment merged;  /* replaces METRICS_FAN_IN of the latest manifest's segments */
    size_t merged_at;       /* index of the first segment that is replaced */
} PutMetrics;

/* Puts the objects that this rank owns, and on rank 0 the metrics; all of them are durable when the function returns 0.
 * own gets every object whose put was begun. */
int checkpoint_put_objects(CheckpointWriter *writer, const PutPlan *plan, WriterReport *own,
                           PutMetrics *ret_metrics, Error *err);
