/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.h - reading a checkpoint's manifest.json: what was saved, in which objects, with which
 * hashes. Both the trainer and sdctl read manifests through it.
 *
 * A Manifest is consistent in itself: its objects cover weights, moments and (when active) EMA
 * exactly, its metrics are contiguous, its state digest follows from the chunk hashes and scalars,
 * and its hash is the one that it records. The reader of the objects checks that their content has
 * the recorded hashes.
 *
 * Folder:    Threads: any.
 * Ownership: reading gives the caller a Manifest; manifest_free() accepts NULL. All pointers that a
 *            Manifest hands out are borrowed.
 * Units:     steps, bytes.
 * Errors:    -ENOENT: there is no such object; -EBADMSG: the manifest fails a check, and the text
 *            names object and member; -EPROTONOSUPPORT: a manifest of another version, which may be
 *            sound (do not invalidate it); those of the store.
 * Threads:   immutable after reading; any.
 * Source:    docs/reference/manifest.md.
 */
#pragma once

#include "manifest/checkpoint-name.h"
#include "manifest/divergence.h"
#include "manifest/object.h"
#include "manifest/step-times.h"
#include "protocol/job-terms.h"
#include "store/store.h"

enum {
    CHECKPOINT_URI_MAX = 512,
    CHECKPOINT_NUMERICS_MAX = 1024,
    METRICS_FAN_IN = 16, /* neighbours of one level that are merged into one of the next */
    METRICS_LEVEL_MAX = 16,
    PLAN_CHANGES_TEXT_MAX = 1024,
    DATASET_TERMS_MAX =
        12288, /* bytes of dataset_digest_terms() of 64 streams; a longer text is not kept */
};

/* The facts that a manifest records besides the state; the same on all ranks. */
typedef struct CheckpointFacts {
    char job[64];
    char submission[33]; /* the job's submission; `sdtrainer run` makes up its own */
    Hash job_identity;
    Hash dataset_digest;
    int64_t order_algorithm;     /* the value of ORDER_ALGORITHM */
    int64_t reduction_algorithm; /* version of the reduction in update.c */
    int64_t generation;
    char numerics[CHECKPOINT_NUMERICS_MAX]; /* canonical JSON */
    Hash canned_grain; /* hash of the canned grain's result under these numerics */
    /* The texts behind the two hashes, of job_terms_format() and dataset_digest_terms(). Empty if
     * an older version wrote the manifest. */
    char job_terms[JOB_TERMS_MAX], dataset_terms[DATASET_TERMS_MAX];
} CheckpointFacts;

/* Write the keys in which two sets of facts differ, as json_diff_format() writes them: for the
 * jobs, the data, the numerics. Return 0 if no difference is known, as when only the hashes are
 * known. */
size_t facts_diff_job(const CheckpointFacts *was, const CheckpointFacts *is, char *text,
                      size_t size);
size_t facts_diff_dataset(const CheckpointFacts *was, const CheckpointFacts *is, char *text,
                          size_t size);
size_t facts_diff_numerics(const CheckpointFacts *was, const CheckpointFacts *is, char *text,
                           size_t size);

/* An object that holds the metrics of a range of steps, one line per step. */
typedef struct MetricsSegment {
    char key[METRICS_KEY_MAX];
    int64_t first, last; /* steps */
    int64_t n_lines;     /* may be fewer than steps: lines may be lost before a merge */
    int64_t level; /* 0: written by a save; else merged from METRICS_FAN_IN of the level below */
    uint64_t n_bytes;
    Hash hash;
    uint32_t crc; /* CRC-32C */
} MetricsSegment;

typedef struct Manifest Manifest;

/* Reads <store>/<folder>/manifest.json. expected is the hash that its text must have, or NULL for
 * any. */
int manifest_read(Store *store, const char *folder, const Hash *expected, Manifest **ret,
                  Error *err);
/* As manifest_read(), but from a URI ".../<folder>/manifest.json": opens the store, too. */
int manifest_read_uri(const char *uri, const Hash *expected, Store **ret_store, Manifest **ret,
                      Error *err);
Manifest *manifest_free(Manifest *manifest);
DEFINE_CLEANUP(Manifest, manifest_free)

const CheckpointFacts *manifest_facts(const Manifest *manifest);
int64_t manifest_step(const Manifest *manifest);
Hash manifest_digest(const Manifest *manifest); /* hash of the state */
Hash manifest_hash(const Manifest *manifest);   /* hash of the text of manifest.json */
bool manifest_has_ema(const Manifest *manifest);
/* Returns the text for divergence_parse(): the divergence state after the manifest's step. Empty if
 * an older version wrote the manifest. */
const char *manifest_divergence(const Manifest *manifest);
/* Returns the text for step_times_parse(): how long the steps up to the manifest's step took. Empty
 * if an older version wrote the manifest. */
const char *manifest_step_times(const Manifest *manifest);
/* Returns at which steps an operator had the history change its plan set: "<step> <hash before>
 * <hash after>" for each change, oldest first, separated by "; ". A hash is "none" where there were
 * no plans. Empty: there was no change. */
const char *manifest_plan_changes(const Manifest *manifest);
/* Adds one change of plans. Drops the oldest changes if the text has no room. before and after are
 * hashes as text. */
void plan_changes_add(char text[PLAN_CHANGES_TEXT_MAX], int64_t step, const char *before,
                      const char *after);
/* Writes the name of the manifest's folder below the checkpoint URI. */
void manifest_folder(const Manifest *manifest, char ret[CHECKPOINT_FOLDER_MAX]);
/* Returns how many earlier checkpoints of the history the manifest lists as committed, and copies
 * the folders of the first n of them, oldest first. */
size_t manifest_committed(const Manifest *manifest, char (*ret)[CHECKPOINT_FOLDER_MAX], size_t n);
/* Sets *ret to the manifest's objects, in the order of ObjectTable. Returns how many there are. */
size_t manifest_objects(const Manifest *manifest, const ObjectRecord **ret);
/* Sets *ret to the metrics segments of the history, in the order of steps. Returns how many there
 * are. */
size_t manifest_segments(const Manifest *manifest, const MetricsSegment **ret);
/* The properties of a job's network that a checkpoint must fit. */
typedef struct ManifestNetwork {
    int64_t n_elements, n_tensors;
    int64_t chunk_elements; /* elements per chunk; manifest_chunk_elements(): fits any */
    bool keeps_ema;         /* false: a checkpoint with an EMA does not fit */
} ManifestNetwork;
int64_t manifest_chunk_elements(const Manifest *manifest);
/* Returns -EBADMSG, with the first difference in the text, if the manifest's state does not fit the
 * network. source names the manifest in errors. */
int manifest_check_network(const Manifest *manifest, const char *source,
                           const ManifestNetwork *network, Error *err);
/* Returns -EBADMSG, with the differing keys and both values in the text, unless the manifest's job
 * identity is that of facts. */
int manifest_check_job(const Manifest *manifest, const CheckpointFacts *facts, Error *err);
/* Returns -EBADMSG, with the differing keys and both values in the text, unless job identity, data
 * and algorithms are those of facts. Job name, generation and numerics may differ: the caller
 * decides about the numerics. */
int manifest_check_facts(const Manifest *manifest, const CheckpointFacts *facts, Error *err);
