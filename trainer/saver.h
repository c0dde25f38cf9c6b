/* SPDX-License-Identifier: Apache-2.0 */
/* saver.h - decides when a checkpoint is due, takes it to its commit, and collects the metrics that
 * are saved with it.
 *
 * Rank 0 decides before a step's update whether the step is saved. Its flags travel in the update's
 * collective, so all ranks agree. A periodic save that is due while another is in flight is skipped
 * and logged; the first, the last, a leave's and a keep_every save wait. After a failed save the next
 * one is due after a pause of a second, which doubles up to a minute until one is written.
 *
 * Ownership: saver_new() gives the caller a Saver; borrows the Session.
 * Units:     steps that are done.
 * Errors:    -ESTALE: the world is over (the daemon refused); -CHECKPOINT_NOT_OWNER: another owns the
 *            folder; -EPIPE: the daemon is gone; the store's error, when a save that must be there
 *            has failed three times. A periodic save that fails is logged, and saver_trouble() has it.
 * Threads:   the training thread.
 */
#pragma once

#include "trainer/session/session.h"

typedef struct Saver Saver;

/* The flags that all ranks agree on with a step: each gives its own to the update's collective, which ors them. */
typedef enum StepFlags {
    STEP_NONE = 0,
    STEP_SAVE = 1,      /* rank 0: save once the step is done */
    STEP_MUST = 2,      /* rank 0: and go on when that save is committed */
    STEP_LEAVE = 4,     /* rank 0: and then end, this world is over */
    STEP_WAIT_DATA = 8, /* any rank: it lacks data of the next step */
} StepFlags;

int saver_new(Session *session, Saver **ret, Error *err);
Saver *saver_free(Saver *saver);
DEFINE_CLEANUP(Saver, saver_free)

/* Rank 0: the StepFlags of `step`, the one about to be updated. */
uint32_t saver_step_flags(Saver *saver, int64_t step);
/* Rank 0: one line of metrics for a step that is done, which took so long. */
int saver_record(Saver *saver, int64_t step, const UpdateResult *result, int64_t samples_seen,
                 uint64_t took_usec, Error *err);
/* All ranks, after the update of a step whose flags have STEP_SAVE. With STEP_MUST it returns when
 * the save is committed. */
int saver_save(Saver *saver, int64_t step, uint32_t flags, Error *err);
/* Rank 0, after the last step: metrics that wait for the store are tried again, three times. The log says what is
 * lost. */
void saver_end(Saver *saver);
/* Rank 0, once a step: tells the daemon what the writer has written, and the writer the verdict. */
int saver_pump(Saver *saver, Error *err);
/* State digest and manifest URI of the newest save that is written. */
Hash saver_digest(const Saver *saver);
const char *saver_uri(const Saver *saver);

typedef struct SaverTrouble {
    int64_t n_failed; /* failed saves since the process started */
    /* Begin of the first failed save after the last good one; 0: none failed. */
    uint64_t since_usec;
    Error error; /* of the newest failed save; code 0: none has failed after the last good */
} SaverTrouble;
const SaverTrouble *saver_trouble(const Saver *saver);
/* Rank 0: what the steps of this history so far say about divergence. */
const Divergence *saver_divergence(const Saver *saver);
/* Rank 0: the gap in the history's metrics, as it was found after the newest commit. */
void saver_gap(const Saver *saver, MetricsGap *ret);
/* Rank 0: checkpoint_room(). Warns in the log when the next save begins to lack room. */
void saver_room(Saver *saver, CheckpointRoom *ret);
