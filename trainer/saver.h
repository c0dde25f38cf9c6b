/* SPDX-License-Identifier: Apache-2.0 */
/* saver.h - decides when a checkpoint is due, saves it, handles its commit, and collects the metrics that are saved
 * with it.
 *
 * Rank 0 decides before a step's update whether the step is saved. The update's collective carries rank 0's flags, so
 * all ranks agree. A periodic save that is due while another save is in flight is skipped and logged; the first save,
 * the last save, the save before leaving and a keep_every save wait instead. After a failed save the next save is due
 * after a pause of a second; the pause doubles up to a minute until a save is written.
 *
 * Units: steps that are done. Threads: the training thread.
 * Ownership: saver_new() gives the caller a Saver; borrows the Session.
 * Errors:    -ESTALE: the world is over (the daemon refused a save); -CHECKPOINT_NOT_OWNER: another submission owns the
 *            folder; -EPIPE: the daemon has closed the channel; the store's error, if a required save has failed three
 *            times. A periodic save that fails is logged, and saver_trouble() reports it.
 */
#pragma once

#include "trainer/session/session.h"

typedef struct Saver Saver;

/* Flags on which all ranks agree in a step: each rank gives its own flags to the update's collective, which ors
 * them. */
typedef enum StepFlags {
    STEP_NONE = 0,
    STEP_SAVE = 1,      /* rank 0: save when the step is done */
    STEP_MUST = 2,      /* rank 0: continue only when the step's save is committed */
    STEP_LEAVE = 4,     /* rank 0: end after the step's save, since this world must leave */
    STEP_WAIT_DATA = 8, /* any rank: this rank lacks data of the next step */
} StepFlags;

int saver_new(Session *session, Saver **ret, Error *err);
Saver *saver_free(Saver *saver);
DEFINE_CLEANUP(Saver, saver_free)

/* Rank 0: returns the StepFlags of a step. Call this function just before the update of that step. */
uint32_t saver_step_flags(Saver *saver, int64_t step);
/* Rank 0: adds one line of metrics for a finished step, which took took_usec. */
int saver_record(Saver *saver, int64_t step, const UpdateResult *result, int64_t samples_seen,
                 uint64_t took_usec, Error *err);
/* All ranks call saver_save() after the update of a step whose flags have STEP_SAVE. If the flags also have STEP_MUST,
 * the function returns when the save is committed. */
int saver_save(Saver *saver, int64_t step, uint32_t flags, Error *err);
/* Rank 0, after the last step: tries three times to put the metrics that wait for the store. Logs the loss of
 * metrics. */
void saver_end(Saver *saver);
/* Rank 0, once per step: reports a written save to the daemon, and passes the daemon's answer to the writer. */
int saver_pump(Saver *saver, Error *err);
/* State digest and manifest URI of the newest written save. */
Hash saver_digest(const Saver *saver);
const char *saver_uri(const Saver *saver);

typedef struct SaverTrouble {
    int64_t n_failed; /* failed saves since the process started */
    /* When the first failed save after the last good save began; 0: no save has failed since. */
    uint64_t since_usec;
    /* error of the newest failed save; code 0: no save has failed after the last good save */
    Error error;
} SaverTrouble;
const SaverTrouble *saver_trouble(const Saver *saver);
/* Rank 0: returns the divergence of this history's steps so far. */
const Divergence *saver_divergence(const Saver *saver);
/* Rank 0: returns the gap in the history's metrics, as found after the newest commit. */
void saver_gap(const Saver *saver, MetricsGap *ret);
/* Rank 0: calls checkpoint_room(). Logs a warning when the next save begins to lack space. */
void saver_room(Saver *saver, CheckpointRoom *ret);
