/* update.h - from gradients of grains to new weights, with the same bits for any world size.
 *
 * Per step: update_begin; for each owned grain, after its backward, update_add_grain; update_decide
 * (collective), and on UPDATE_REDO compute all grains again; then update_apply (collective). A rank
 * with fewer grains than the largest share calls update_add_grain with gradients = NULL for the
 * missing ones, so that ZeRO 2's collectives match.
 *
 * Ownership: update_new() gives the caller an Update; borrows TrainState, Comm and Job.
 * Units:     gradients are flat fp32 of one grain's mean loss; the step's gradient is the mean
 *            over G grains.
 * Errors:    those of comm.h; -ENOMEM.
 * Threads:   the training thread.
 * Source:    docs/concepts/why-bits-repeat.md, "Reduction", "Update".
 */
#pragma once

#include "protocol/job.h"
#include "trainer/comm/comm.h"
#include "trainer/state/train-state.h"

typedef struct Update Update;

typedef enum UpdateVerdict {
    UPDATE_ACCEPT,
    UPDATE_REDO,       /* an exponent was too large for the global maximum: once a step at most */
    UPDATE_NON_FINITE, /* some gradient or loss is NaN or infinite: the same on all ranks; nothing
                          is applied */
} UpdateVerdict;

typedef struct UpdateResult {
    double loss;          /* mean over the G grains, added in grain order */
    double gradient_norm; /* before clipping */
    double lr;
    int64_t bad_grain; /* UPDATE_NON_FINITE: the first guilty grain, else -1 */
    char bad_tensor[PARAMETER_NAME_MAX];
    bool redone;
} UpdateResult;

int update_new(TrainState *state, Comm *comm, const Job *job, Update **ret, Error *err);
Update *update_free(Update *update);
DEFINE_CLEANUP(Update, update_free)

/* This rank's grains: [first, first + n) = [rank G / W, (rank + 1) G / W); share: the largest n of
 * any rank. */
void grain_share(int64_t n_grains, int rank, int world_size, int64_t *ret_first, int64_t *ret_n,
                 int64_t *ret_share);

void update_begin(Update *update);
int update_add_grain(Update *update, int64_t grain, const float *gradients, double loss,
                     Error *err);
int update_decide(Update *update, UpdateVerdict *ret, UpdateResult *ret_result, Error *err);
/* Clips, AdamW on the owned chunks, EMA, all-gathers the weights, advances the scalars. word: bits that
 * ride along; *ret_word are those that any rank gave, on every rank. */
int update_apply(Update *update, uint32_t word, uint32_t *ret_word, UpdateResult *result,
                 Error *err);

/* Bytes this rank's collectives moved and the time they took in the last step, for the bench and
 * stage reports. */
uint64_t update_comm_usec(const Update *update);
