/* put.h - a rank's objects of one checkpoint, from its snapshot into the store.
 *
 * Ownership: borrows everything.
 * Units:     bytes.
 * Errors:    those of the store; -ENOMEM. The first one; whatever it is, nothing is under way any
 *            more when the function returns, so the snapshot may change.
 * Threads:   the writer's.
 */
#pragma once

#include "trainer/checkpoint/writer.h"

/* What the folders' names mean to the copies on this node: the newest committed ones stay. */
enum { COMMITTED_KEPT = 2 };

typedef struct PutPlan {
    CheckpointName name;
    char committed[COMMITTED_KEPT][CHECKPOINT_FOLDER_MAX]; /* "" where there is none */
} PutPlan;

/* What the list of metrics becomes; without a key where there is none. */
typedef struct PutMetrics {
    MetricsSegment segment; /* of this save */
    MetricsSegment merged; /* replaces METRICS_FAN_IN of the latest manifest's, from merged_at on */
    size_t merged_at;
} PutMetrics;

/* Puts what this rank owns, and on rank 0 the metrics; all of it is durable when 0 is returned. own
 * lists what was begun. */
int checkpoint_put_objects(CheckpointWriter *writer, const PutPlan *plan, WriterReport *own,
                           PutMetrics *ret_metrics, Error *err);
