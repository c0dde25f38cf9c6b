/* found.h - what lies in the checkpoint folder, told to the daemon by rank 0 of a world that was told to
 * find where the job was: nobody knows of a commit.
 *
 * The newest own whole checkpoint and those that were committed before it become commits, under the
 * world's guard; then this world is over, and the next one goes on from there. Whatever does not verify
 * when it is restored is struck out like any other commit.
 *
 * Ownership: borrows everything.
 * Units:     none.
 * Errors:    0: there is nothing to go on from, and that is well. -ESTALE: found and told, the world is
 *            over (*ret_exit: retry). -EBADMSG: there is none, and there must be one (data corrupt; the
 *            text begins with "checkpoint.uri"); and of the store.
 * Threads:   the training thread's.
 */
#pragma once

#include "protocol/exit-code.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/daemon-link.h"

/* As assign.find says it. */
enum { FIND_ANY = 1, FIND_MUST = 2 };

int found_tell(DaemonLink *link, Store *store, const CheckpointFacts *own, bool must,
               ExitCode *ret_exit, Error *err);
