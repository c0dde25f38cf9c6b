/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint-search.h - if the record of the job's commits is lost, rank 0 searches the job's folder for checkpoints,
 * and reports them to the daemon.
 *
 * The newest checkpoint that is whole and this job's own (trainer/checkpoint/search.h) becomes a commit again, under
 * the world's guard, and so do those that were committed before it. Then this world is over, and the next world
 * continues from the newest commit. A commit that does not verify when it is restored is invalidated like any other.
 *
 * Ownership: borrows everything.
 * Errors:    0: there is no checkpoint, and none is required. -ESTALE: checkpoints were found and reported, so the
 *            world is over. -EBADMSG: there is no checkpoint, but one is required (data corrupt; the text begins with
 *            "checkpoint.uri"). And those of the store.
 * Threads:   the training thread's.
 */
#pragma once

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/link/daemon-link.h"

/* Values of `find` in the channel's `assign`: a checkpoint may exist, or must exist. */
enum { FIND_ANY = 1, FIND_MUST = 2 };

int checkpoint_search_report(DaemonLink *link, Store *store, const CheckpointFacts *own, bool must,
                             Error *err);
