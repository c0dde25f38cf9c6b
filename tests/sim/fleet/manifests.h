/* SPDX-License-Identifier: Apache-2.0 */
/* manifests.h - the store to which the model of trainers saves: checkpoints by number, each with its history.
 *
 * A checkpoint appears completely or not at all. Each submission of a job has its own folder.
 *
 * Units: steps. Threads: one.
 * Ownership: manifests_open() makes the only store of a simulation, manifests_close() frees it.
 * Errors:    manifests_put() returns -1 while the store is out.
 */
#pragma once

#include "cluster/records.h"
#include "protocol/channel.h"

typedef struct Manifest {
    char job[RECORD_JOB_MAX + 1], submission[SUBMISSION_BYTES];
    int64_t generation; /* generation of the world that saved the checkpoint */
    int parent; /* the earlier checkpoint that the same world restored or saved last; -1: none */
    int64_t first, last; /* the steps trained since the parent; last is the checkpoint's step */
    /* damaged: the manifest or one of its objects is damaged; was_damaged: was damaged at any time */
    bool damaged, was_damaged;
    bool is_removed; /* a newer commit has let a trainer remove it */
} Manifest;

void manifests_open(void);
void manifests_close(void);

int manifests_put(const Manifest *manifest);
const Manifest *manifests_get(int number);
/* Returns the submission's newest checkpoint that verifies; -1: there is none. */
int manifests_newest(const char *submission);
/* Damages the checkpoint that was saved last, and up to three earlier checkpoints of the same job.
 * Returns how many were damaged. */
int manifests_damage(void);
/* Removes the checkpoints of the history that ends with the given one, except the newest keep_last and those whose
 * steps are held. */
void manifests_retire(int number, int keep_last, const ChannelHeld *held);
void manifests_mend(void); /* repairs all checkpoints */
/* Returns whether the history that ends with the given checkpoint has each step exactly once. */
bool manifests_are_whole(int number);

/* Makes the store fail (out) or work again. While the store is out, nothing is saved, found or
 * restored. */
void manifests_lose(bool out);
bool manifests_are_out(void);
/* returns whether the store was ever out, even if only for one node */
bool manifests_were_out(void);
void manifests_note_cut(void); /* notes that a node does not reach the store */
/* Returns whether the checkpoint ever failed to verify. */
bool manifests_was_damaged(int number);

enum { MANIFEST_URI_BYTES = 48 };
const char *manifest_uri(int number, char ret[MANIFEST_URI_BYTES]);
/* Returns the checkpoint's number in the URI; -1: the URI is empty. */
int manifest_of(const char *uri);
