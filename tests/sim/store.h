/* SPDX-License-Identifier: Apache-2.0 */
/* store.h - a model of the object store: what manifests there are, which history each tells, what
 * retention leaves of them, and where rank 0 looks when nobody knows the newest.
 *
 * A manifest appears whole or not at all. Its segment of metrics says which steps its world trained
 * since the checkpoint that it went on from. Each submission has a folder of its own.
 *
 * Ownership: part of the Universe.
 * Units:     steps.
 * Errors:    store_put(): -1 while the store is out.
 * Threads:   one.
 */
#pragma once

#include "cluster/records.h"
#include "tests/sim/sim.h"

typedef struct ModelManifest {
    int job;
    char submission[SUBMISSION_BYTES];
    int64_t generation, world_revision;
    int parent;          /* the manifest whose history it continues; -1: the beginning */
    int64_t first, last; /* steps of its own segment; last is the checkpoint's */
    bool corrupt;
    bool was_corrupt; /* at some time: a search that passed over it then was right */
    bool removed;     /* by retention */
} ModelManifest;

typedef struct ModelStore {
    ModelManifest *manifests;
    int n, size;
    bool out;
    uint64_t out_usec; /* since when, or when it was last */
    uint64_t n_outs;
} ModelStore;

void store_lose(ModelStore *store, uint64_t now_usec);

int store_put(ModelStore *store, const ModelManifest *manifest);
/* The newest of the submission that is whole; -1: none. trainer/checkpoint/search.c */
int store_search(const ModelStore *store, const char *submission);
/* Removes, after a commit, the checkpoints that are not kept, as trainer/checkpoint/retire.c does. */
void store_retire(Universe *u, int latest);
void store_clear(ModelStore *store);

enum { STORE_URI_BYTES = 48, STORE_KEEP_LAST = 2 };
const char *store_uri(int manifest, char ret[STORE_URI_BYTES]);
/* -1 for the empty URI. */
int store_find(const ModelStore *store, const char *uri);
/* Whether the history that ends with the manifest has each step exactly once; ret_step: where not. */
bool store_history_is_whole(const ModelStore *store, int manifest, int64_t *ret_step);
