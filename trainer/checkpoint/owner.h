/* owner.h - one prefix, one owner: who may write below a checkpoint URI.
 *
 * Who writes first puts owner/1, who takes the folder over puts the next number, if absent
 * (protocol/owner.h); the highest owns. The number is in the name of everything that its owner
 * writes (CheckpointName.owner), so generations compare as (number, generation), and a folder tells
 * whose it is though it was never finished. All generations of a submission share its number.
 *
 * A folder without owners is claimed by the first who comes, if it holds no manifest or if he goes
 * on from one of them. Where somebody owns it, taking over is explicit (OwnerTakes).
 *
 * Where put-if-absent is not atomic two may put one number and the later one stays: who has put
 * reads back after a pause, and again at each look.
 *
 * Own history are the owners whose job identity and data are this job's: whoever took over from
 * them goes on with their bits. Nothing of others is ever removed.
 *
 * Ownership: checkpoint_owner_claim() gives the caller a CheckpointOwner, which borrows the store.
 * Units:     none.
 * Errors:    -CHECKPOINT_NOT_OWNER: it is another's, whom the text names; those of the store.
 * Threads:   one at a time.
 */
#pragma once

#include "protocol/owner.h"
#include "trainer/checkpoint/checkpoint.h"

typedef struct CheckpointOwner CheckpointOwner;

/* A run takes over from a run that has closed, too. resumes: this writer goes on from a manifest that lies in
 * the folder; NULL: it does not. */
int checkpoint_owner_claim(Store *store, const CheckpointFacts *facts, const CheckpointClaim *claim,
                           const Manifest *resumes, CheckpointOwner **ret, Error *err);
CheckpointOwner *checkpoint_owner_free(CheckpointOwner *owner);
DEFINE_CLEANUP(CheckpointOwner, checkpoint_owner_free)
/* Is it still? An own object that was lost is put again. */
int checkpoint_owner_look(CheckpointOwner *owner, Error *err);
/* Of a `sdtrainer run` that has ended and writes nothing any more: the next run may take the folder over. */
int checkpoint_owner_close(CheckpointOwner *owner, Error *err);
int64_t checkpoint_owner_number(const CheckpointOwner *owner);
/* Is what that number wrote part of the own history? */
bool checkpoint_owner_holds(const CheckpointOwner *owner, int64_t number);
