/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.h - reading a checkpoint's manifest.json: what was saved, in which objects, with which
 * hashes. Both the trainer and sdctl read manifests through it.
 *
 * A Manifest is consistent in itself: its objects cover weights, moments and (when active) EMA
 * exactly, its metrics are contiguous, its state digest follows from the chunk hashes and scalars,
 * and its hash is the hash that it records. The reader of the objects checks that their content has
 * the recorded hashes.
 *
 * Folder:    defaults of the headers here: Threads: any.
 * Ownership: reading gives the caller a Manifest; manifest_free() accepts NULL. All pointers that a
 *            Manifest hands out are borrowed.
 * Units:     steps, bytes.
 * Errors:    -ENOENT: there is no such object; -EBADMSG: the manifest fails a check, and the text
 *            names object and member; -EPROTONOSUPPORT: a manifest of another version, which may be
 *            sound (do not invalidate it); the errors of the store.
 * Threads:   any; a Manifest does not change after it was read.
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
    /* neighbouring segments of one level that are merged into one segment of the next level */
    METRICS_FAN_IN = 16,
    METRICS_LEVEL_MAX = 16,
    PLAN_CHANGES_TEXT_MAX = 1024,
    /* bytes that dataset_digest_terms() needs for 64 streams; a longer text is not kept */
    DATASET_TERMS_MAX = 12288,
};

/* The facts that a manifest records besides the state. They are the same on all ranks. */
typedef struct CheckpointFacts {
    char job[64];
    /* the job's submission; `sdtrainer run` makes up a submission of its own */
    char submission[33];
    Hash job_identity;
    Hash dataset_digest;
    int64_t order_algorithm;     /* the value of ORDER_ALGORITHM */
    int64_t reduction_algorithm; /* version of the reduction in update.c */
    int64_t generation;
    char numerics[CHECKPOINT_NUMERICS_MAX]; /* the numerics as canonical JSON */
    Hash canned_grain; /* hash of the canned grain's result under these numerics */
    /* The texts of which job_identity and dataset_digest are the hashes: job_terms_format() and
     * dataset_digest_terms() write them. Both are empty if an older version wrote the manifest. */
    char job_terms[JOB_TERMS_MAX], dataset_terms[DATASET_TERMS_MAX];
} CheckpointFacts;

/* These functions write the keys in which the jobs, the data or the numerics of two sets of facts
 * differ, in the format of json_diff_format(). They return 0 if no differing key is known, for
 * example because only the hashes are known. */
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
    /* may be less than the number of steps, because lines may be lost before a merge */
    int64_t n_lines;
    /* 0: a save wrote the segment; else it was merged from METRICS_FAN_IN segments of the level
     * below */
    int64_t level;
    uint64_t n_bytes;
    Hash hash;
    uint32_t crc; /* CRC-32C */
} MetricsSegment;

typedef struct Manifest Manifest;

/* Reads <store>/<folder>/manifest.json. expected is the hash that the file's text must have, or
 * NULL for any hash. */
int manifest_read(Store *store, const char *folder, const Hash *expected, Manifest **ret,
                  Error *err);
/* As manifest_read(), but reads from a URI ".../<folder>/manifest.json", and opens the store of
 * that URI. */
int manifest_read_uri(const char *uri, const Hash *expected, Store **ret_store, Manifest **ret,
                      Error *err);
Manifest *manifest_free(Manifest *manifest);
DEFINE_CLEANUP(Manifest, manifest_free)

const CheckpointFacts *manifest_facts(const Manifest *manifest);
int64_t manifest_step(const Manifest *manifest);
Hash manifest_digest(const Manifest *manifest); /* hash of the state */
Hash manifest_hash(const Manifest *manifest);   /* hash of the text of manifest.json */
bool manifest_has_ema(const Manifest *manifest);
/* Returns the divergence state after the manifest's step, as text for divergence_parse(). The text
 * is empty if an older version wrote the manifest. */
const char *manifest_divergence(const Manifest *manifest);
/* Returns how long the steps up to the manifest's step took, as text for step_times_parse(). The
 * text is empty if an older version wrote the manifest. */
const char *manifest_step_times(const Manifest *manifest);
/* Returns the changes of the history's plan set, each of which an operator requested: "<step> <hash
 * before> <hash after>" for each change, oldest first, separated by "; ". A hash is "none" where
 * there were no plans. The text is empty if there was no change. */
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
    /* elements per chunk; the value of manifest_chunk_elements() always fits */
    int64_t chunk_elements;
    bool keeps_ema; /* false: a checkpoint with an EMA does not fit */
} ManifestNetwork;
int64_t manifest_chunk_elements(const Manifest *manifest);
/* Returns -EBADMSG if the manifest's state does not fit the network; the error's text has the first
 * difference. source names the manifest in errors. */
int manifest_check_network(const Manifest *manifest, const char *source,
                           const ManifestNetwork *network, Error *err);
/* Returns -EBADMSG if the job identity of the manifest differs from that of `facts`; the error's
 * text has the differing keys with both values. */
int manifest_check_job(const Manifest *manifest, const CheckpointFacts *facts, Error *err);
/* Returns -EBADMSG if the job identity, the data or the algorithms of the manifest differ from
 * those of `facts`; the error's text has the differing keys with both values. Job name, generation
 * and numerics may differ: the caller decides about the numerics. */
int manifest_check_facts(const Manifest *manifest, const CheckpointFacts *facts, Error *err);
