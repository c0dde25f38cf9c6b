/* SPDX-License-Identifier: Apache-2.0 */
/* manifests.h - the store that the model of trainers saves to: checkpoints by number, and which history each tells.
 *
 * A checkpoint appears whole or not at all. Each submission of a job has a folder of its own.
 *
 * Ownership: manifests_open() makes the only store of a simulation, manifests_close() frees it.
 * Units:     steps.
 * Errors:    manifests_put(): -1 while the store is out.
 * Threads:   one.
 */
#pragma once

#include "cluster/records.h"

typedef struct Manifest {
    char job[RECORD_JOB_MAX + 1], submission[SUBMISSION_BYTES];
    int64_t generation;  /* that saved it */
    int parent;          /* the checkpoint that its world went on from, or saved before; -1: none */
    int64_t first, last; /* the steps that were trained since; last is the checkpoint's */
    bool damaged, was_damaged; /* it, or an object of it; was_damaged: at any time */
} Manifest;

void manifests_open(void);
void manifests_close(void);

int manifests_put(const Manifest *manifest);
const Manifest *manifests_get(int number);
/* Returns the newest checkpoint of the submission among those that verify; -1: there is none. */
int manifests_newest(const char *submission);
/* The one that was saved last, and up to three of its job before it. Returns how many. */
int manifests_damage(void);
void manifests_mend(void); /* all of them */
/* Whether the history that ends with that checkpoint has each step exactly once. */
bool manifests_are_whole(int number);

/* While it is out nothing is saved, found or restored. */
void manifests_lose(bool out);
bool manifests_are_out(void);
bool manifests_were_out(void); /* once, at least, for somebody */
void manifests_note_cut(void); /* a node does not reach it */
/* It did not verify once, at least. */
bool manifests_was_damaged(int number);

enum { MANIFEST_URI_BYTES = 48 };
const char *manifest_uri(int number, char ret[MANIFEST_URI_BYTES]);
/* -1: the URI is empty. */
int manifest_of(const char *uri);
