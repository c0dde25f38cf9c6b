/* SPDX-License-Identifier: Apache-2.0 */
/* list.h - the objects of a checkpoint store, grouped by checkpoint.
 *
 * Ownership: a Catalogue owns its arrays; catalogue_clear() frees them.
 * Units:     indices into objects.
 * Errors:    those of store_list(); -ENOMEM.
 * Threads:   any.
 */
#pragma once

#include "trainer/checkpoint/checkpoint.h"

typedef struct CatalogueFolder {
    CheckpointName name;
    size_t first, n; /* the folder's objects: [first, first + n) */
    bool has_manifest;
    size_t manifest; /* index of the folder's manifest.json, if has_manifest */
} CatalogueFolder;

typedef struct Catalogue {
    StoreList objects;        /* all objects of the store, in key order */
    CatalogueFolder *folders; /* the folders in key order: oldest step first */
    size_t n_folders;
} Catalogue;

int catalogue_read(Store *store, Catalogue *ret, Error *err);
void catalogue_clear(Catalogue *catalogue);
/* Sorts the folders by step, then by owner, then by generation, the highest first. */
void catalogue_sort_newest_first(Catalogue *catalogue);
/* Finds an object by its key; NULL: there is none. */
const StoreObject *catalogue_find(const Catalogue *catalogue, const char *key);
