/* SPDX-License-Identifier: Apache-2.0 */
/* update.h - turns the grains' gradients into new weights, with the same bits for any world size.
 *
 * Each step calls update_begin(). For each owned grain it calls update_sink(), runs the grain's backward into that
 * sink, and calls update_add_grain(). Then it calls update_collect() and update_decide() (collective); on UPDATE_REDO
 * it computes and adds all grains again. At its end it calls update_apply() (collective). A rank with fewer grains than
 * the largest share calls update_add_grain() with has_grain = false for the missing grains, so that ZeRO 2's
 * collectives match.
 *
 * Ownership: update_new() gives the caller an Update; borrows TrainState, Comms and Job.
 * Units:     gradients are those of one grain's mean loss; the step's gradient is the mean
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
    UPDATE_REDO, /* an exponent was too large for the global maximum; at most once per step */
    /* some gradient or loss is NaN or infinite; all ranks agree on this, and the step cannot be applied */
    UPDATE_NON_FINITE,
} UpdateVerdict;

typedef struct UpdateResult {
    double loss;          /* mean over the G grains, added in grain order */
    double gradient_norm; /* before clipping */
    double lr;
    int64_t bad_grain; /* UPDATE_NON_FINITE: the first grain that is not finite, otherwise -1 */
    /* first bad tensor of that grain; "loss": the loss is not finite */
    char bad_tensor[PARAMETER_NAME_MAX];
    bool redone; /* the step was computed twice */
} UpdateResult;

/* bulk: a comm for sums and weights, which a separate thread uses; NULL: sums and weights use comm. */
int update_new(TrainState *state, Comm *comm, Comm *bulk, const Job *job, Update **ret, Error *err);
Update *update_free(Update *update);
DEFINE_CLEANUP(Update, update_free)

/* Computes a rank's grains: [first, first + n) = [rank G / W, (rank + 1) G / W). share: the largest n of any rank. */
void grain_share(int64_t n_grains, int rank, int world_size, int64_t *ret_first, int64_t *ret_n,
                 int64_t *ret_share);

void update_begin(Update *update);
/* Returns the sink of this rank's next grain, valid until the next call of update_*(). */
void update_sink(Update *update, int64_t grain, GradientSink *ret);
/* Returns device memory for the grain's mean loss, valid as long as the sink. */
double *update_loss(Update *update);
int update_add_grain(Update *update, int64_t grain, bool has_grain, Error *err);
/* Call it after the last grain. Begins the reduction of the sums, and waits until the device has computed all grains
 * and their losses and maxima are on the host. */
int update_collect(Update *update, Error *err);
int update_decide(Update *update, UpdateVerdict *ret, UpdateResult *ret_result, Error *err);
/* Clips, runs AdamW and the EMA on the owned chunks, all-gathers the weights, advances the scalars. word: this rank's
 * flags, which the norm's collective carries; on every rank *ret_word is the or of all ranks' flags. */
int update_apply(Update *update, uint32_t word, uint32_t *ret_word, UpdateResult *result,
                 Error *err);

/* Returns whether an error came from the device, not from a peer. */
bool update_device_failed(const Update *update);
/* For tests: returns the time that this rank's collectives took in the last step. */
uint64_t update_comm_usec(const Update *update);
