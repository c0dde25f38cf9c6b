/* SPDX-License-Identifier: Apache-2.0 */
/* raw-internal.h - shared by raw-set.c and the two kinds of units, raw-tar.c and raw-mds.c.
 *
 * Units: bytes, samples. Errors: as raw-set.h.
 * Ownership: a RawSet owns its units' names.
 */
#pragma once

#include "base/number/hash.h"
#include "data/mds/mds-index.h"
#include "prep/raw/raw-set.h"

/* A shard of an MDS dataset, as its entry in index.json describes it. */
typedef struct RawShard {
    uint64_t n_samples;
    MdsFile raw, zip;
} RawShard;

typedef struct RawUnitInfo {
    char *name, *version;
    uint64_t n_bytes;
    RawShard *shard; /* NULL: the unit is a tar */
} RawUnitInfo;

struct RawSet {
    Store *store;
    StoreWait wait;
    RawOptions options;
    char *image, *caption; /* copies of the options' texts */
    RecipeMembers members;
    RawUnitInfo *units;
    size_t n_units, room;
    bool is_mds;
    MdsEntry entry; /* entry of the first shard: columns, hashes, compression */
    Hash index;     /* hash of index.json */
};

/* Hashes the members of samples and their bytes; see raw_unit_take_proof(). */
typedef struct Prover {
    Hasher *members, *bytes;
} Prover;
/* Adds the name, offset and size of a sample's member; its bytes need not have been read. */
void prover_member(Prover *prover, const char *name, uint64_t offset, uint64_t n_bytes);
/* Adds the bytes of a member that was read to the hash of bytes. */
void prover_bytes(Prover *prover, const void *data, size_t n_bytes);

typedef struct RawTar RawTar;
/* A RawTar borrows its prover, and so does a RawMds. */
int raw_tar_open(RawSet *set, size_t unit, Prover *prover, RawTar **ret, Error *err);
RawTar *raw_tar_free(RawTar *tar);
DEFINE_CLEANUP(RawTar, raw_tar_free)
int raw_tar_next(RawTar *tar, bool whole, RawSample *ret, Error *err);
double raw_tar_done(const RawTar *tar);
RawState raw_tar_state(const RawTar *tar, char *text, size_t size);
RawCounts raw_tar_counts(const RawTar *tar);

typedef struct RawMds RawMds;
int raw_mds_open(RawSet *set, size_t unit, Prover *prover, RawMds **ret, Error *err);
RawMds *raw_mds_free(RawMds *mds);
DEFINE_CLEANUP(RawMds, raw_mds_free)
int raw_mds_next(RawMds *mds, bool whole, RawSample *ret, Error *err);
double raw_mds_done(const RawMds *mds);
RawCounts raw_mds_counts(const RawMds *mds);
/* Checks that the dataset has the columns that the options name, and that their types fit. Returns 0 or -EINVAL. */
int raw_mds_check(const RawSet *set, const RawOptions *options, Error *err);
