/* SPDX-License-Identifier: Apache-2.0 */
/* loop.h - runs the steps (compute the owned grains, decide, update, report, save) until the last step is done or the
 * world must leave.
 *
 * Ownership: borrows the Session. Threads: the training thread.
 * Units:     steps that are done; samples.
 * Errors:    -errno with an exit code as in session.h; a collective that fails is EXIT_PEER_LOST, whichever rank caused
 *            it.
 */
#pragma once

#include "trainer/session/session.h"

typedef struct LoopResult {
    bool finished; /* the job's last step is committed; false: this world had to leave */
    int64_t step;
    Hash digest; /* digest of the newest state that was saved */
} LoopResult;

int loop_run(Session *session, LoopResult *ret, Error *err);
