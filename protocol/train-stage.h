/* SPDX-License-Identifier: Apache-2.0 */
/* train-stage.h - the stages that a rank passes in a step.
 *
 * The stages stand in the order in which a rank passes them. When a world hangs, the rank with the smallest
 * (step, stage) is the culprit.
 *
 * Ownership: train_stage_name() returns static text.
 * Units:     none.
 * Errors:    none. A stage out of range is a bug of the caller.
 * Threads:   any.
 */
#pragma once

typedef enum TrainStage {
    STAGE_STARTING,
    STAGE_RESTORING,
    STAGE_READY,
    STAGE_JOINING,
    STAGE_LOADING,
    STAGE_COMPUTING,
    STAGE_REDUCING,
    STAGE_UPDATING,
    STAGE_GATHERING,
    STAGE_SAVING,
    STAGE_LEAVING,
    STAGE_COUNT,
} TrainStage;

/* The words of all stages, for tables of fields. */
extern const char *const train_stage_names[STAGE_COUNT];
/* The stage's word in messages and records: "computing". */
const char *train_stage_name(TrainStage stage);
