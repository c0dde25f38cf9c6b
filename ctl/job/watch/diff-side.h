/* SPDX-License-Identifier: Apache-2.0 */
/* diff-side.h - one of the two sides that `sdctl job diff` compares: a job of the cluster, a job file, or a checkpoint.
 *
 * For a job that has a checkpoint, the identity is taken from the newest checkpoint, because the files that the job
 * names may have changed since. Without a checkpoint, the identity is computed as a rank computes it, from the files
 * that the job names.
 *
 * Units: none. Threads: the main thread.
 * Ownership: diff_side_read() fills a DiffSide; diff_side_clear() frees it, also after an error.
 * Errors:    -errno if nothing could be read. If only a part could not be read, notes have the reason.
 */
#pragma once

#include "base/number/hash.h"
#include "ctl/model.h"

enum { DIFF_NOTES_MAX = 4 };

typedef struct DiffSide {
    const char *name; /* as given on the command line; borrowed */
    json_t *file;     /* the job file, flat (json_flat()); NULL: a manifest has none */
    json_t *terms;    /* from job_terms_parse(); NULL: an older version wrote only a hash */
    json_t *data;     /* terms of the data, flat; NULL: at most their hash is known */
    json_t *computes; /* numerics and algorithms, flat; NULL: no rank has reported them */
    Hash identity, digest;
    bool has_identity, has_digest;
    char notes[DIFF_NOTES_MAX][400];
    size_t n_notes;
} DiffSide;

/* Tells whether the name is a job's name, because it has no '/' and no '.'. Then the cluster's records are needed. */
bool diff_side_is_job(const char *name);
/* model is NULL if neither side is a job. */
int diff_side_read(const char *name, const Model *model, DiffSide *ret, Error *err);
void diff_side_clear(DiffSide *side);
