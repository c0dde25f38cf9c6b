/* saver.h - when a checkpoint is due, what happens to it until it is committed, and the metrics
 * that ride along.
 *
 * Rank 0 decides before a step's update whether the step is saved; the word rides in the update's
 * collective, so all ranks agree. A periodic save that is due while one is in flight is skipped and
 * logged; the first, the last, a leave's and a keep_every one wait. After one that failed the next
 * one does not wait for its step: it is due after a pause of a second, which doubles to a minute,
 * until one is written.
 *
 * Ownership: saver_new() gives the caller a Saver; borrows the Session.
 * Units:     steps that are done.
 * Errors:    -ESTALE the world is over (refused); -CHECKPOINT_NOT_OWNER the folder is another's;
 *            -EPIPE the daemon is gone; a save that must be there and failed three times: its
 *            store's error. A periodic save that fails is logged and told (saver_trouble()).
 * Threads:   the training thread.
 */
#pragma once

#include "trainer/session.h"

typedef struct Saver Saver;

/* What all ranks agree on with a step: each gives its flags to the update's collective, which ors them. */
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

/* Rank 0: what all ranks shall do after `step`, the one about to be updated. */
uint32_t saver_step_flags(Saver *saver, int64_t step);
/* Rank 0: one line of metrics for a step that is done. */
int saver_record(Saver *saver, int64_t step, const UpdateResult *result, int64_t samples_seen,
                 Error *err);
/* All ranks, after the update of a step whose word says save. With STEP_MUST returns when it is
 * committed. */
int saver_save(Saver *saver, int64_t step, uint32_t flags, Error *err);
/* Rank 0, once a step: news of the writer to the daemon, and the daemon's to the writer. */
int saver_pump(Saver *saver, Error *err);
/* Of the newest save that is written. */
Hash saver_digest(const Saver *saver);
const char *saver_uri(const Saver *saver); /* its manifest */

typedef struct SaverTrouble {
    int64_t n_failed; /* saves that could not be written, so far */
    uint64_t
        since_usec; /* begin of the first one since one could be written; 0: the last was good */
    Error error;    /* of the newest one that failed; code 0: the last was good */
} SaverTrouble;
const SaverTrouble *saver_trouble(const Saver *saver);
/* Rank 0: the history's metrics as they were found after the newest commit. */
void saver_gap(const Saver *saver, MetricsGap *ret);
