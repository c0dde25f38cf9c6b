/* SPDX-License-Identifier: Apache-2.0 */
/* search.h - finds the newest own, whole checkpoint in a folder, for a job whose record of commits is
 * lost, and for one that keeps none (`sdtrainer run`).
 *
 * A checkpoint is own when manifest_check_facts() accepts its manifest: its bits are this job's. It
 * is whole when all its objects are there with their sizes. Only a restore finds out whether they
 * hold the right bytes; if not, the caller rejects the checkpoint and asks for the next older one:
 *
 *   search_new(); while (search_next() > 0 && restore() is -EBADMSG or -EIO) search_reject();
 *
 * Ownership: checkpoint_search_new() gives the caller a CheckpointSearch, which borrows the store;
 *            a found Manifest is the caller's, the list of those passed over stays the search's.
 * Units:     none.
 * Errors:    a manifest that fails with -EBADMSG, -ENOENT or -EIO is passed over. Returned are
 *            -EPROTONOSUPPORT (a manifest of another version must not be hidden by an older one);
 *            -ENOMEM; and of the store -EHOSTUNREACH, -EACCES and others.
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
/* 1: *ret is the newest (step, then generation) that was not returned before; 0: there is none. */
int checkpoint_search_next(CheckpointSearch *search, Manifest **ret, Error *err);
/* Passes over the one that was returned last. */
void checkpoint_search_reject(CheckpointSearch *search, const Error *why);
/* Returns how many were passed over; *ret are the newest CHECKPOINT_PASSED_MAX of them, newest first. */
size_t checkpoint_search_passed(const CheckpointSearch *search, const CheckpointPassed **ret);
/* The error of a search that found none but passed some over: -EBADMSG, or -EINVAL when all are other
 * jobs': "none of the N checkpoints in URI can be gone on from: FOLDER: why; ...", cut to fit. */
int checkpoint_search_failed(const CheckpointSearch *search, Error *err);
/* The highest generation that has begun a checkpoint in the folder, of any job, whole or not; 0: none. */
int64_t checkpoint_search_generation(const CheckpointSearch *search);
