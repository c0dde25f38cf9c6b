/* SPDX-License-Identifier: Apache-2.0 */
/* train-stage.c - see train-stage.h. */
#include "protocol/train-stage.h"

#include <assert.h>

const char *const train_stage_names[STAGE_COUNT] = {"starting", "restoring", "ready",
                                                    "joining",  "loading",   "computing",
                                                    "reducing", "updating",  "gathering",
                                                    "saving",   "leaving"};

const char *train_stage_name(TrainStage stage)
{
    assert((unsigned)stage <= STAGE_RUNNING);
    return stage == STAGE_RUNNING ? "running" : train_stage_names[stage];
}
