/* SPDX-License-Identifier: Apache-2.0 */
/* manifest-internal.h - the inside of a Manifest, for the sources that write checkpoints and keep
 * their history; all other sources include manifest.h.
 *
 * Ownership: a Manifest owns its arrays; manifest_free() accepts a Manifest that is only partly
 *            filled in.
 * Units:     elements of the flat buffer, bytes, steps.
 * Errors:    as manifest.h.
 * Threads:   any; a Manifest does not change after it was read.
 */
#pragma once

#include "base/json/json.h"
#include "manifest/manifest.h"
#include "manifest/state-digest.h"
#include "protocol/manifest-limits.h"

enum {
    MANIFEST_VERSION = 2,
    MANIFEST_DIGEST_ALGORITHM = 1, /* the version of train_state_chunk_hash() and state_digest() */
};

struct Manifest {
    CheckpointName name;
    CheckpointFacts facts;
    TrainScalars scalars; /* the Manifest owns scalars.maxima */
    int64_t n_tensors;
    ChunkLayout layout;
    bool ema;              /* the EMA was active, and its objects are listed */
    ObjectRecord *objects; /* in the order of ObjectTable */
    size_t n_objects;
    Hash *chunks; /* the hash of each chunk: [layout.n_chunks] */
    Hash digest;  /* digest of the state */
    /* the history's first step: 1, or the step after the adopted checkpoint */
    int64_t metrics_first;
    MetricsSegment *segments; /* contiguous from metrics_first to scalars.step */
    size_t n_segments;
    char (*committed)[CHECKPOINT_FOLDER_MAX]; /* folders of the earlier checkpoints, oldest first */
    size_t n_committed;
    char divergence[DIVERGENCE_TEXT_MAX]; /* text of divergence_format(); empty: not recorded */
    char step_times[STEP_TIMES_TEXT_MAX]; /* text of step_times_format(); empty: not recorded */
    /* the text that manifest_plan_changes() returns; empty: no change */
    char plan_changes[PLAN_CHANGES_TEXT_MAX];
    Hash hash; /* hash of the manifest's text; manifest_read() sets it */
};

/* Computes the state digest from the manifest's chunk hashes and scalars. */
Hash manifest_state_digest(const Manifest *manifest);
/* Computes the value of the member "hash": the hash of the text of all other members, which are
 * sorted and written without white space. */
int manifest_seal(const json_t *root, Hash *ret);
/* Writes the text of manifest.json; the caller frees it. */
int manifest_format(const Manifest *manifest, char **ret);
/* Parses a manifest's text. source names the text in errors. Does not set the field hash. */
int manifest_parse(const char *source, const char *text, size_t n_bytes, Manifest **ret,
                   Error *err);
