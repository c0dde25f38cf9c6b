/* store.h - a model of the object store: what manifests there are, and which history each tells.
 *
 * A manifest appears whole or not at all. Its segment of metrics says which steps its world trained
 * since the checkpoint that it went on from.
 *
 * Ownership: part of the Universe.
 * Units:     steps.
 * Errors:    store_put(): -1 while the store is out.
 * Threads:   one.
 */
#pragma once

#include "tests/sim/sim.h"

typedef struct Manifest {
    int job;
    int64_t generation, world_revision;
    int parent;          /* the manifest whose history it continues; -1: the beginning */
    int64_t first, last; /* steps of its own segment; last is the checkpoint's */
    bool corrupt;
} Manifest;

typedef struct Store {
    Manifest *manifests;
    int n, size;
    bool out;
    uint64_t out_usec; /* since when, or when it was last */
    uint64_t n_outs;
} Store;

void store_lose(Store *store, uint64_t now_usec);

int store_put(Store *store, const Manifest *manifest);
void store_clear(Store *store);

enum { STORE_URI_BYTES = 48 };
const char *store_uri(int manifest, char ret[STORE_URI_BYTES]);
/* -1 for the empty URI. */
int store_find(const Store *store, const char *uri);
/* Whether the history that ends with the manifest has each step exactly once; ret_step: where not. */
bool store_history_is_whole(const Store *store, int manifest, int64_t *ret_step);
