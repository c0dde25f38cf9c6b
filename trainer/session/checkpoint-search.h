/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint-search.h - rank 0 looks for the job's checkpoints in its folder and tells the daemon, when the record of
 * the job's commits is lost.
 *
 * The newest own whole checkpoint and those that were committed before it become commits, under the
 * world's guard. Then this world is over, and the next one goes on from the newest commit. A commit that
 * does not verify when it is restored is invalidated like any other.
 *
 * Ownership: borrows everything.
 * Units:     none.
 * Errors:    0: there is no checkpoint, and there need not be one. -ESTALE: checkpoints were found and
 *            told, the world is over. -EBADMSG: there is no checkpoint, and there must
 *            be one (data corrupt; the text begins with "checkpoint.uri"). And those of the store.
 * Threads:   the training thread's.
 */
#pragma once

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/link/daemon-link.h"

/* Values of the channel's `find` in `assign`: may there be no checkpoint, or must there be one? */
enum { FIND_ANY = 1, FIND_MUST = 2 };

int checkpoint_search_report(DaemonLink *link, Store *store, const CheckpointFacts *own, bool must,
                             Error *err);
