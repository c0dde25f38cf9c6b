/* SPDX-License-Identifier: Apache-2.0 */
/* raw-set.h - a folder of pictures and captions: WebDataset tars, or an MDS dataset. Its units are the tars in the
 * order of their names, or the shards in the order of index.json; the samples of a unit are read one after another.
 *
 * Consecutive members of a tar with the same key form a sample. The key is the member's name up to the first dot of the
 * last path component, as in WebDataset, or up to the last dot if the recipe says so. A member without such a key
 * (".x", "README") does not belong to a sample.
 *
 * Ownership: raw_set_open() gives the caller a RawSet, raw_unit_open() a RawUnit that borrows the set; *_free() accept
 *            NULL. A sample belongs to its unit and is valid until the next raw_unit_next().
 * Units:     bytes. A unit that is a tar holds 8 MiB and one sample in memory; one of an MDS dataset on S3 holds a
 *            shard.
 * Errors:    -ENOENT the folder has neither tars nor an index.json; -EINVAL an MDS dataset lacks a column that the
 *            options name, or the options name members for it; the store's errors, except those that store-wait.h waits
 *            for. -ENOMEDIUM: the unit cannot be used, and no part of it may be in a dataset. It is missing, refused,
 *            empty or not a tar; its shard is not what index.json says; or captions that were taken for missing lie
 *            elsewhere in the tar. The text names the unit.
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
    const char *image, *caption; /* columns of an MDS dataset; caption is also a key of a .json */
    const char *columns[RAW_COLUMNS_MAX]; /* further columns that an MDS dataset must have */
    size_t n_columns;
    const RecipeMembers *members; /* which members of tars to use; NULL: the default members */
    bool fields;                  /* fill RawSample.fields */
    bool keep_missing;            /* accept samples without a caption */
} RawOptions;

int raw_set_open(const char *uri, const RawOptions *options, RawSet **ret, Error *err);
RawSet *raw_set_free(RawSet *set);
DEFINE_CLEANUP(RawSet, raw_set_free)
const char *raw_set_uri(const RawSet *set);
size_t raw_set_n_units(const RawSet *set);
/* Returns the name of a unit, relative to the set's URI. */
const char *raw_set_unit_name(const RawSet *set, size_t unit);
uint64_t raw_set_unit_bytes(const RawSet *set, size_t unit);
/* Returns the hash of index.json; NULL: the units are tars. */
const Hash *raw_set_index(const RawSet *set);
/* Returns the version that the unit had when the set was opened, in the form of store_version(). "": the version is not
 * needed, since index.json has the unit's hash, which is compared when the unit is opened; or the store has no
 * versions. */
const char *raw_set_unit_version(const RawSet *set, size_t unit);
/* Requests the unit's current version from the store. -ENOMEDIUM: as in raw_unit_open(). */
int raw_set_request_version(RawSet *set, size_t unit, char ret[STORE_VERSION_MAX], Error *err);

typedef enum RawState {
    RAW_WHOLE,
    RAW_NO_SAMPLE, /* the unit is whole, but no member belongs to a sample */
    RAW_CUT,       /* a tar without an end: its writer may have been killed */
    RAW_DAMAGED,   /* a tar with places where a header is missing or broken */
} RawState;

/* Counts the members and bytes of a unit. The four numbers of bytes add up to the unit's size. */
typedef struct RawCounts {
    /* n_members: members of a tar with a key, or samples of an MDS shard. n_strays: members without a key. */
    int64_t n_members, n_strays;
    uint64_t member_bytes, stray_bytes;
    uint64_t frame_bytes; /* bytes of a tar's headers and padding, or of a shard's offsets */
    uint64_t lost_bytes;  /* bytes in damaged places */
} RawCounts;

int raw_unit_open(RawSet *set, size_t unit, RawUnit **ret, Error *err);
RawUnit *raw_unit_free(RawUnit *unit);
DEFINE_CLEANUP(RawUnit, raw_unit_free)
/* 1: *ret is the next sample; without `whole` only its index and key are valid. 0: there are no more samples. */
int raw_unit_next(RawUnit *unit, bool whole, RawSample **ret, Error *err);
/* Returns two hashes of the samples that were read since the last call, or since the unit was opened. `members` covers
 * the names, sizes and offsets of their members, `bytes` the contents of the members that were read. Reading the same
 * unit again gives the same hashes; without `whole` only `members` is the same. */
typedef struct RawProof {
    Hash members, bytes;
} RawProof;
RawProof raw_unit_take_proof(RawUnit *unit);
/* Returns the fraction of the unit that was read, 0 to 1. */
double raw_unit_done(const RawUnit *unit);
/* The state and the counts are valid once raw_unit_next() has returned 0. text: an explanation for people; "" if the
 * unit is whole. */
RawState raw_unit_state(const RawUnit *unit, char *text, size_t size);
RawCounts raw_unit_counts(const RawUnit *unit);
