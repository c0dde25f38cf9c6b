/* loop.h - the steps: compute the owned grains, decide, update, report, save; until the last one or
 * the word to leave.
 *
 * Ownership: borrows the Session.
 * Units:     steps that are done; samples.
 * Errors:    -errno with *ret_exit; a collective that fails is EXIT_PEER_LOST, whoever is guilty.
 * Threads:   the training thread.
 */
#pragma once

#include "trainer/session.h"

typedef struct LoopResult {
    bool finished; /* the job's last step is committed; else this world was told to leave */
    int64_t step;
    Hash digest; /* of the state that was saved last */
} LoopResult;

int loop_run(Session *session, LoopResult *ret, ExitCode *ret_exit, Error *err);
