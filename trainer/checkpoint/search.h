/* search.h - the newest own whole checkpoint in a folder, without anybody's word which it
 * is: for a job whose record is lost, and for one that keeps none (`sdtrainer run`).
 *
 * Own is a manifest that manifest_check_facts() accepts: its bits are this job's. It is whole when
 * its objects are all there with their sizes. What they hold is for the restore to find; when that
 * says no, checkpoint_search_reject() and the next older one:
 *
 *   search_new(); while (search_next() > 0 && restore() is -EBADMSG or -EIO) search_reject();
 *
 * Ownership: checkpoint_search_new() gives the caller a CheckpointSearch, which borrows the store;
 *            a found Manifest is the caller's, what was passed over stays the search's.
 * Units:     none.
 * Errors:    what one manifest has wrong (-EBADMSG, -ENOENT, -EIO) passes it over. Returned are
 *            -EPROTONOSUPPORT, a manifest of another version, which an older one must not hide; -ENOMEM;
 *            and of the store -EHOSTUNREACH, -EACCES and others.
 * Threads:   one.
 */
#pragma once

#include "trainer/checkpoint/checkpoint.h"

enum { CHECKPOINT_PASSED_MAX = 64 };

typedef struct CheckpointPassed {
    char folder[CHECKPOINT_FOLDER_MAX];
    Error why;
} CheckpointPassed;

typedef struct CheckpointSearch CheckpointSearch;

/* Lists the store, once. own: job identity, data and algorithms count; borrowed. */
int checkpoint_search_new(Store *store, const CheckpointFacts *own, CheckpointSearch **ret,
                          Error *err);
CheckpointSearch *checkpoint_search_free(CheckpointSearch *search);
DEFINE_CLEANUP(CheckpointSearch, checkpoint_search_free)
/* 1: *ret is the newest (step, then generation) that was not told before; 0: there is none. */
int checkpoint_search_next(CheckpointSearch *search, Manifest **ret, Error *err);
/* The one told last is passed over after all. */
void checkpoint_search_reject(CheckpointSearch *search, const Error *why);
/* How many were passed over, and the newest CHECKPOINT_PASSED_MAX of them, newest first. */
size_t checkpoint_search_passed(const CheckpointSearch *search, const CheckpointPassed **ret);
/* When there is none although some were passed over. -EBADMSG, or -EINVAL when all are other jobs':
 * "none of the N checkpoints in URI can be gone on from: FOLDER: why; ...", as far as it fits. */
int checkpoint_search_failed(const CheckpointSearch *search, Error *err);
/* The highest generation that has begun a checkpoint there, whosever, whole or not; 0: none. */
int64_t checkpoint_search_generation(const CheckpointSearch *search);
