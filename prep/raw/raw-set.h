/* SPDX-License-Identifier: Apache-2.0 */
/* raw-set.h - a folder of pictures and captions: WebDataset tars, or an MDS dataset. Its units are the tars in the
 * order of their names, or the shards in the order of index.json; a unit gives its samples one after another.
 *
 * Consecutive members of a tar with one key are a sample. The key is a name up to the first dot of its last
 * part, as WebDataset has it, or up to the last one; a member without such a key (".x", "README") is not of a sample.
 *
 * Ownership: raw_set_open() gives the caller a RawSet, raw_unit_open() a RawUnit that borrows it; *_free() accept NULL.
 *            A sample belongs to its unit and stays until the next one is asked for.
 * Units:     bytes. A unit of a tar holds 8 MiB and one sample; one of an MDS dataset on S3 holds a shard.
 * Errors:    -ENOENT a folder with neither; -EINVAL columns that an MDS dataset has not, or members of one; the store's
 *            that do not pass (store-wait.h). -ENOMEDIUM of a unit: it is not what it should be, and no part of it may
 *            be in a dataset. It is gone, refused, empty or no tar, its shard is not what index.json says, or captions
 *            that were taken for missing lie elsewhere in the tar. The text names the unit.
 * Threads:   one.
 */
#pragma once

#include "base/number/hash.h"
#include "prep/raw/raw-sample.h"
#include "prep/raw/store-wait.h"
#include "protocol/recipe.h"

typedef struct RawSet RawSet;
typedef struct RawUnit RawUnit;

enum { RAW_COLUMNS_MAX = 64 };

typedef struct RawOptions {
    const char *image, *caption; /* columns of an MDS dataset; the latter also a key of .json */
    const char *columns[RAW_COLUMNS_MAX]; /* others that an MDS dataset must have; not kept */
    size_t n_columns;
    const RecipeMembers *members; /* of tars; NULL: the usual ones */
    bool fields;                  /* RawSample.fields are wanted */
    bool keep_missing;            /* samples without a caption are fine */
} RawOptions;

int raw_set_open(const char *uri, const RawOptions *options, RawSet **ret, Error *err);
RawSet *raw_set_free(RawSet *set);
DEFINE_CLEANUP(RawSet, raw_set_free)
const char *raw_set_uri(const RawSet *set);
size_t raw_set_n_units(const RawSet *set);
/* Relative to the set's URI. */
const char *raw_set_unit_name(const RawSet *set, size_t unit);
uint64_t raw_set_unit_bytes(const RawSet *set, size_t unit);
bool raw_set_is_mds(const RawSet *set);
/* The hash of index.json; NULL: the units are tars. */
const Hash *raw_set_index(const RawSet *set);
/* The version that the unit had when the set was opened, as store_version() tells it. "": nobody needs it, since
 * index.json has the unit's hash, which is compared when the unit is opened; or the store does not tell it. */
const char *raw_set_unit_version(const RawSet *set, size_t unit);
/* Reads the version that the unit has now. -ENOMEDIUM: as raw_unit_open(). */
int raw_set_request_version(RawSet *set, size_t unit, char ret[STORE_VERSION_MAX], Error *err);

typedef enum RawState {
    RAW_WHOLE,
    RAW_NO_SAMPLE, /* whole, and none of its members belong to a sample */
    RAW_CUT,       /* a tar without an end: whoever wrote it may have been killed */
    RAW_DAMAGED,   /* a tar with places where no header is */
} RawState;

/* A unit's members and bytes, which together are all of the unit's. */
typedef struct RawCounts {
    int64_t n_members, n_strays; /* of samples, and of none; of an MDS dataset its samples */
    uint64_t member_bytes, stray_bytes;
    uint64_t frame_bytes; /* headers and what fills blocks; offsets of a shard */
    uint64_t lost_bytes;  /* of damaged places */
} RawCounts;

int raw_unit_open(RawSet *set, size_t unit, RawUnit **ret, Error *err);
RawUnit *raw_unit_free(RawUnit *unit);
DEFINE_CLEANUP(RawUnit, raw_unit_free)
/* 1: *ret is the next sample; without `whole` only its index and key are good. 0: there are no more. */
int raw_unit_next(RawUnit *unit, bool whole, RawSample **ret, Error *err);
/* Two hashes of what the samples since the last call, or the first, are made of: names, sizes and places of their
 * members, and the bytes of those that were read. The same reading of the same unit gives the same two; without `whole`
 * only the first is the same. */
typedef struct RawProof {
    Hash members, bytes;
} RawProof;
RawProof raw_unit_take_proof(RawUnit *unit);
/* The share of the unit that was read, 0 to 1. */
double raw_unit_done(const RawUnit *unit);
/* Both hold once raw_unit_next() has returned 0. text: for people; "" for a unit that is whole. */
RawState raw_unit_state(const RawUnit *unit, char *text, size_t size);
RawCounts raw_unit_counts(const RawUnit *unit);
