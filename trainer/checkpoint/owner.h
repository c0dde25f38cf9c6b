/* SPDX-License-Identifier: Apache-2.0 */
/* owner.h - makes sure that one submission at a time writes below a checkpoint URI.
 *
 * Two jobs that save to one URI would remove each other's checkpoints. So the first writer puts owner/1, a writer that
 * takes the folder over puts the next number, each if absent (protocol/owner.h), and the highest number owns the
 * folder. The number is in the name of everything that its owner writes (CheckpointName.owner), so generations compare
 * as (number, generation), and even a folder that was never finished names its owner. All generations of a submission
 * share its number.
 *
 * The first writer may claim a folder without owners if it holds no manifest, or if the writer continues from one of
 * its manifests. Taking over from another owner must be allowed explicitly (OwnerTakes).
 *
 * If a store's put-if-absent is not atomic, two writers may put one number, and the later put remains. So a claim is
 * read back after a pause, and again at each check.
 *
 * The own history is everything that owners with this job's identity and data wrote: a job that took over from them
 * continues their state. Objects of other owners are never removed.
 *
 * Units: none. Threads: one at a time.
 * Ownership: checkpoint_owner_claim() gives the caller a CheckpointOwner, which borrows the store.
 * Errors:    -CHECKPOINT_NOT_OWNER: another submission owns the folder, and the text names it. Others are those of the
 *            store.
 */
#pragma once

#include "protocol/owner.h"
#include "trainer/checkpoint/checkpoint.h"

typedef struct CheckpointOwner CheckpointOwner;

/* Claims the folder, or takes it over if `claim` allows this; a run may always take over from a run that has recorded
 * its end. resumes: the manifest in this folder that the writer continues from; NULL: none. */
int checkpoint_owner_claim(Store *store, const CheckpointFacts *facts, const CheckpointClaim *claim,
                           const Manifest *resumes, CheckpointOwner **ret, Error *err);
CheckpointOwner *checkpoint_owner_free(CheckpointOwner *owner);
DEFINE_CLEANUP(CheckpointOwner, checkpoint_owner_free)
/* Checks that no other submission has taken the folder over. If the own claim is missing, it is put again. */
int checkpoint_owner_look(CheckpointOwner *owner, Error *err);
/* Records that a `sdtrainer run` has ended and writes no more: the next run may take the folder over. */
int checkpoint_owner_close(CheckpointOwner *owner, Error *err);
int64_t checkpoint_owner_number(const CheckpointOwner *owner);
/* Returns whether the owner with that number wrote a part of the own history. */
bool checkpoint_owner_holds(const CheckpointOwner *owner, int64_t number);
