/* initial-state.h - where a state's first bits come from: this job's checkpoint, another one's, a weights
 * file, or chance.
 *
 * Ownership: borrows everything.
 * Units:     none.
 * Errors:    -EBADMSG what does not verify; *ret_exit says whom to blame.
 * Threads:   the training thread.
 */
#pragma once

#include "protocol/exit-code.h"
#include "protocol/job.h"
#include "trainer/checkpoint/checkpoint.h"

/* state->weights hold the job's random initial weights when this is called. resume, with the store
 * it lies in and this node's copies (or NULL), may be NULL; else it is known to be of this job, its
 * data and algorithms. */
int init_state(const Job *job, Store *store, const CheckpointLocal *local, const Manifest *resume,
               TrainState *state, ExitCode *ret_exit, Error *err);
