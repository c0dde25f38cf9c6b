/* SPDX-License-Identifier: Apache-2.0 */
/* folder.h - what lies in the folder of a dataset that is being made, and writes that another process may have done.
 *
 *   encoding/input.json            the units of the input (input.h): put first
 *   encoding/identity.json         whose the folder is: put next
 *   encoding/named/HASH            a key to leave out, one an object
 *   u00003-p0001.mds               the samples of part 1 of unit 3
 *   encoding/u00003-p0001.json     what became of that part; goes when the unit's report is there
 *   encoding/u00003.json           the unit's report: it is done
 *   rejects/u00003.jsonl           a row for each sample of the unit that was left out
 *   encoder.json, empty.npy, index.sdtrain, index.json     the dataset, in this order
 *
 * Ownership: the caller's.
 * Units:     bytes.
 * Errors:    -EEXIST another one is there with other bytes; the store's that do not pass.
 * Threads:   one.
 */
#pragma once

#include "base/number/hash.h"

#include <jansson.h>

#include "prep/encode/input.h"
#include "prep/raw/store-wait.h"

enum { FOLDER_KEY_MAX = 64, FOLDER_OBJECT_MAX = INT32_MAX };

typedef struct Folder {
    Store *store;
    StoreWait wait;
    StoreWait put_wait; /* apart: who may read need not be allowed to write */
} Folder;

void folder_shard_key(int64_t unit, int64_t part, char ret[FOLDER_KEY_MAX]);
void folder_part_key(int64_t unit, int64_t part, char ret[FOLDER_KEY_MAX]);
void folder_unit_key(int64_t unit, char ret[FOLDER_KEY_MAX]);
void folder_rejects_key(int64_t unit, char ret[FOLDER_KEY_MAX]);

/* Puts an object unless it is there with the same bytes. */
int folder_put(Folder *folder, const char *key, const void *data, size_t n_bytes, Error *err);
/* -ENOENT without an error: it is not there. */
int folder_get(Folder *folder, const char *key, char **ret, size_t *ret_bytes, Error *err);
/* Passes on r, the result of reading a report; says what to do about one that is none: it can be made again. */
int folder_reads(const Folder *folder, const char *key, int r, Error *err);
int folder_head(Folder *folder, const char *key, uint64_t *ret_bytes, Error *err);

/* The encoding that a folder belongs to. */
typedef struct FolderClaim {
    char identity[HASH_TEXT_BYTES]; /* of the encoding */
    char before[HASH_TEXT_BYTES];   /* the same by the rules before, which read tars otherwise */
    char input[HASH_TEXT_BYTES];    /* of the names and sizes of its units */
    const InputList *units;
    const json_t *terms; /* of the encoding: what its identity is the hash of (encoding_terms()) */
} FolderClaim;
/* 1: its dataset is finished, and is this one. 0: the folder is ours. -EEXIST: it is another's. *ret_units is the list
 * that the folder has, or ours where it is of a version that put none. */
int folder_claim(Folder *folder, const FolderClaim *claim, InputList *ret_units, Error *err);
#define FOLDER_INPUT_KEY "encoding/input.json"

/* Remembers a key to leave out, for every process that works in the folder. */
int folder_name(Folder *folder, const char *key, Error *err);
/* Where it is remembered. */
void folder_name_key(const char *key, char ret[FOLDER_KEY_MAX]);
/* All of them, sorted. */
int folder_named(Folder *folder, char ***ret, size_t *ret_n, Error *err);
