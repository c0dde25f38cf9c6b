/* SPDX-License-Identifier: Apache-2.0 */
/* train-stage.h - the stages of a rank, from its start through each step to its end.
 *
 * The stages are listed in the order in which a rank passes them. When a world of trainers hangs, the rank with the
 * smallest (step, stage) is the culprit.
 *
 * Ownership: train_stage_name() returns static text.
 * Units:     none.
 * Errors:    none. A stage out of range is a bug of the caller.
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
    /* A program that names no stage: it may wait for another rank, or not. Messages and records say `unnamed` instead,
     * beside a stage that older versions know. */
    STAGE_RUNNING = STAGE_COUNT,
} TrainStage;

/* The names of all stages, for field tables. */
extern const char *const train_stage_names[STAGE_COUNT];
/* Returns the stage's name in messages and records, such as "computing". */
const char *train_stage_name(TrainStage stage);
