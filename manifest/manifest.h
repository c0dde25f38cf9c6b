/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.h - reading a checkpoint's manifest.json: what was saved, in which objects, with which
 * hashes. Both the trainer and sdctl read manifests through it.
 *
 * A Manifest is consistent in itself: its objects cover weights, moments and (when active) EMA
 * exactly, its metrics are contiguous, its state digest follows from the chunk hashes and scalars,
 * and it has the hash that it says it has. Whether the objects hold what their hashes say is for
 * the reader of the objects.
 *
 * Ownership: reading gives the caller a Manifest; manifest_free() accepts NULL. All that a
 *            Manifest hands out is borrowed.
 * Units:     steps, bytes.
 * Errors:    -ENOENT: there is no such object; -EBADMSG: it does not verify, and the text names
 *            object and member; -EPROTONOSUPPORT: a manifest of another version, with which nothing
 *            is wrong (do not invalidate it); those of the store.
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
    METRICS_FAN_IN = 16, /* neighbours of one level that become one of the next */
    METRICS_LEVEL_MAX = 16,
    PLAN_CHANGES_TEXT_MAX = 1024,
    DATASET_TERMS_MAX =
        12288, /* dataset_digest_terms() of 64 streams; a longer text is kept nowhere */
};

/* The facts that a manifest records besides the state; the same on all ranks. */
typedef struct CheckpointFacts {
    char job[64];
    char submission[33]; /* the job's; `sdtrainer run` makes one of its own */
    Hash job_identity;
    Hash dataset_digest;
    int64_t order_algorithm;     /* ORDER_ALGORITHM */
    int64_t reduction_algorithm; /* version of update.c's reduction */
    int64_t generation;
    char numerics[CHECKPOINT_NUMERICS_MAX]; /* canonical JSON */
    Hash canned_grain; /* hash of the canned grain's result under these numerics */
    /* Texts of the two hashes: job_terms_format(), dataset_digest_terms(). Empty: an older version wrote it. */
    char job_terms[JOB_TERMS_MAX], dataset_terms[DATASET_TERMS_MAX];
} CheckpointFacts;

/* The keys in which two sets of facts differ, as json_diff_format() writes them: of the jobs, the data, the numerics.
 * 0 where nothing is known to differ, as where only the hashes are known. */
size_t facts_diff_job(const CheckpointFacts *was, const CheckpointFacts *is, char *text,
                      size_t size);
size_t facts_diff_dataset(const CheckpointFacts *was, const CheckpointFacts *is, char *text,
                          size_t size);
size_t facts_diff_numerics(const CheckpointFacts *was, const CheckpointFacts *is, char *text,
                           size_t size);

/* An object that holds the metrics of a range of steps, one line a step. */
typedef struct MetricsSegment {
    char key[METRICS_KEY_MAX];
    int64_t first, last; /* steps */
    int64_t n_lines;     /* fewer than steps: some were lost before it was merged */
    int64_t level; /* 0: as a save wrote it; else merged of METRICS_FAN_IN of the level below */
    uint64_t n_bytes;
    Hash hash;
    uint32_t crc; /* CRC-32C */
} MetricsSegment;

typedef struct Manifest Manifest;

/* Reads <store>/<folder>/manifest.json. expected: the hash of its text, or NULL: any. */
int manifest_read(Store *store, const char *folder, const Hash *expected, Manifest **ret,
                  Error *err);
/* The same from ".../<folder>/manifest.json"; opens the store, too. */
int manifest_read_uri(const char *uri, const Hash *expected, Store **ret_store, Manifest **ret,
                      Error *err);
Manifest *manifest_free(Manifest *manifest);
DEFINE_CLEANUP(Manifest, manifest_free)

const CheckpointFacts *manifest_facts(const Manifest *manifest);
int64_t manifest_step(const Manifest *manifest);
Hash manifest_digest(const Manifest *manifest); /* of the state */
Hash manifest_hash(const Manifest *manifest);   /* of manifest.json */
bool manifest_has_ema(const Manifest *manifest);
/* Returns the text that divergence_parse() reads: the judgement of the steps up to that of the manifest. Empty: an
 * older version wrote the manifest. */
const char *manifest_divergence(const Manifest *manifest);
/* Returns the text that step_times_parse() reads: how long the steps up to that of the manifest took. Empty: an older
 * version wrote the manifest. */
const char *manifest_step_times(const Manifest *manifest);
/* At which steps the history went on by another plan set, as an operator asked: "<step> <hash before> <hash after>",
 * oldest first, with "; " between two; "none" where there were no plans. Empty: nowhere. */
const char *manifest_plan_changes(const Manifest *manifest);
/* Adds one; the oldest go where there is no room. Hashes as text. */
void plan_changes_add(char text[PLAN_CHANGES_TEXT_MAX], int64_t step, const char *before,
                      const char *after);
/* Its folder below the checkpoint URI. */
void manifest_folder(const Manifest *manifest, char ret[CHECKPOINT_FOLDER_MAX]);
/* Returns how many earlier checkpoints of the history it lists as committed, and copies the folders
 * of the first n of them, oldest first. */
size_t manifest_committed(const Manifest *manifest, char (*ret)[CHECKPOINT_FOLDER_MAX], size_t n);
/* Its objects, in the order of ObjectTable; returns how many. */
size_t manifest_objects(const Manifest *manifest, const ObjectRecord **ret);
/* The metrics of its history, in the order of steps; returns how many. */
size_t manifest_segments(const Manifest *manifest, const MetricsSegment **ret);
/* A job's network, as a checkpoint sees it. */
typedef struct ManifestNetwork {
    int64_t n_elements, n_tensors;
    int64_t chunk_elements; /* as the state is cut; manifest_chunk_elements(): any */
    bool keeps_ema;         /* false: a checkpoint with one does not fit */
} ManifestNetwork;
int64_t manifest_chunk_elements(const Manifest *manifest);
/* -EBADMSG, naming the first difference, where the state is not that of such a network. source names the manifest. */
int manifest_check_network(const Manifest *manifest, const char *source,
                           const ManifestNetwork *network, Error *err);
/* -EBADMSG, naming keys and both values, unless the job's identity is that of facts. */
int manifest_check_job(const Manifest *manifest, const CheckpointFacts *facts, Error *err);
/* -EBADMSG, naming what differs by its keys with both values, unless job identity, data and algorithms are those of
 * facts. (job, generation and numerics may differ: the caller decides about the last.) */
int manifest_check_facts(const Manifest *manifest, const CheckpointFacts *facts, Error *err);
