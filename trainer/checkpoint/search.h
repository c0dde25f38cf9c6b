/* SPDX-License-Identifier: Apache-2.0 */
/* search.h - finds the newest own, whole checkpoint in a folder, for a job whose record of commits is lost, and for a
 * job that keeps no such record (`sdtrainer run`).
 *
 * A checkpoint is own if manifest_check_facts() accepts its manifest: then its state is this job's. It is whole if all
 * its objects exist with their sizes. Only a restore finds out whether the objects hold the right bytes; if not, the
 * caller rejects the checkpoint and searches for the next older one:
 *
 *   search_new(); while (search_next() > 0 && restore() is -EBADMSG or -EIO) search_reject();
 *
 * Units: none. Threads: one.
 * Ownership: checkpoint_search_new() gives the caller a CheckpointSearch, which borrows the store; a found Manifest
 *            belongs to the caller, the list of passed-over checkpoints to the search.
 * Errors:    a manifest that fails with -EBADMSG, -ENOENT or -EIO is passed over. Returned errors are -EPROTONOSUPPORT
 *            (a manifest of another version must not be hidden by an older one); -ENOMEM; and of the store
 *            -EHOSTUNREACH, -EACCES and others.
 */
#pragma once

#include "trainer/checkpoint/checkpoint.h"

enum { CHECKPOINT_PASSED_MAX = 64 };

typedef struct CheckpointPassed {
    char folder[CHECKPOINT_FOLDER_MAX];
    Error why;
} CheckpointPassed;

typedef struct CheckpointSearch CheckpointSearch;

/* Lists the store, once. own: job identity, data and algorithms that a checkpoint must have; borrowed. */
int checkpoint_search_new(Store *store, const CheckpointFacts *own, CheckpointSearch **ret,
                          Error *err);
CheckpointSearch *checkpoint_search_free(CheckpointSearch *search);
DEFINE_CLEANUP(CheckpointSearch, checkpoint_search_free)
/* Finds the newest checkpoint (by step, then by generation) that was not found before. Returns 1, with the checkpoint's
 * manifest in *ret, or 0 if there is none. */
int checkpoint_search_next(CheckpointSearch *search, Manifest **ret, Error *err);
/* Passes over the checkpoint that was returned last. */
void checkpoint_search_reject(CheckpointSearch *search, const Error *why);
/* Returns how many checkpoints were passed over; *ret are the newest CHECKPOINT_PASSED_MAX of them, newest first. */
size_t checkpoint_search_passed(const CheckpointSearch *search, const CheckpointPassed **ret);
/* Sets the error of a search that found no checkpoint but passed some over: -EBADMSG, or -EINVAL if all are of other
 * jobs. Its text is "none of the N checkpoints in URI can be gone on from: FOLDER: why; ...", truncated to fit. */
int checkpoint_search_failed(const CheckpointSearch *search, Error *err);
/* Returns the highest generation of any job that has begun a checkpoint in the folder, whole or not; 0: none. */
int64_t checkpoint_search_generation(const CheckpointSearch *search);
