/* SPDX-License-Identifier: Apache-2.0 */
/* folder.h - names, reads and puts the objects in the folder of a dataset that is being made. Another process may have
 * put the same object already.
 *
 *   encoding/input.json         the units of the input (input.h): put first
 *   encoding/identity.json      the encoding to which the folder belongs: put next
 *   encoding/named/HASH         the key of one sample to leave out
 *   u00003-p0001.mds            the samples of part 1 of unit 3
 *   encoding/u00003-p0001.json  the report of that part; removed after the unit's report was put
 *   encoding/u00003.json        the unit's report: the unit is done
 *   rejects/u00003.jsonl        a row for each sample of the unit that was left out
 *   encoder.json, empty.npy, index.sdtrain, index.json  the dataset, in this order
 *
 * Ownership: the caller's. Units: bytes. Threads: one.
 * Errors:    -EEXIST an object is there with other bytes; the store's errors that waiting does not cure.
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
    StoreWait put_wait; /* separate from `wait`: a process may have the right to read only */
} Folder;

void folder_shard_key(int64_t unit, int64_t part, char ret[FOLDER_KEY_MAX]);
void folder_part_key(int64_t unit, int64_t part, char ret[FOLDER_KEY_MAX]);
void folder_unit_key(int64_t unit, char ret[FOLDER_KEY_MAX]);
void folder_rejects_key(int64_t unit, char ret[FOLDER_KEY_MAX]);

/* Puts an object; succeeds also if it is there already with the same bytes. */
int folder_put(Folder *folder, const char *key, const void *data, size_t n_bytes, Error *err);
/* Gets an object. -ENOENT, without a text in err: the object is missing. */
int folder_get(Folder *folder, const char *key, char **ret, size_t *ret_bytes, Error *err);
/* Returns r, the result of parsing a report. If r is an error, the function adds to the error's text which object to
 * remove, since the report can be made again. */
int folder_reads(const Folder *folder, const char *key, int r, Error *err);
int folder_head(Folder *folder, const char *key, uint64_t *ret_bytes, Error *err);

/* The encoding and the input to which a folder belongs. */
typedef struct FolderClaim {
    char identity[HASH_TEXT_BYTES]; /* hash of the encoding */
    char before[HASH_TEXT_BYTES];   /* hash by the earlier rules, which read tars differently */
    char input[HASH_TEXT_BYTES];    /* hash of the names and sizes of the input's units */
    const InputList *units;
    const json_t *terms; /* the values whose hash is the identity (encoding_terms()) */
} FolderClaim;
/* Claims the folder for an encoding and an input. Returns 1 if this dataset is finished already; 0 if the folder
 * belongs to this dataset; -EEXIST if the folder belongs to another dataset. *ret_units is the folder's list of units;
 * it is empty if an older version finished the dataset without a list. */
int folder_claim(Folder *folder, const FolderClaim *claim, InputList *ret_units, Error *err);
#define FOLDER_INPUT_KEY "encoding/input.json"

/* Stores the key of a sample that every process working in the folder must leave out. */
int folder_name(Folder *folder, const char *key, Error *err);
/* Writes the name of the object that stores the key of a sample to leave out. */
void folder_name_key(const char *key, char ret[FOLDER_KEY_MAX]);
/* Reads the keys of all samples to leave out, sorted. */
int folder_named(Folder *folder, char ***ret, size_t *ret_n, Error *err);
