/* SPDX-License-Identifier: Apache-2.0 */
/* diff-side.h - one of the two sides that `sdctl job diff` compares: a job of the cluster, a job file, or a checkpoint.
 *
 * For a job that has a checkpoint, the identity is taken from the newest one: files that the job names may be others
 * by now. Without a checkpoint, the identity is found as a rank would find it, from what the job file names.
 *
 * Ownership: diff_side_read() fills a DiffSide that diff_side_clear() empties, whatever was returned.
 * Units:     none.
 * Errors:    -errno where nothing is known of it. Where a part is not known, notes say why.
 * Threads:   the main thread.
 */
#pragma once

#include "base/number/hash.h"
#include "ctl/model.h"

enum { DIFF_NOTES_MAX = 4 };

typedef struct DiffSide {
    const char *name; /* as it was given; borrowed */
    json_t *file;     /* the job file, flat (json_flat()); NULL: a manifest has none */
    json_t *terms;    /* job_terms_parse(); NULL: an older version wrote only the hash */
    json_t *data;     /* of the data, flat; NULL likewise */
    json_t *computes; /* numerics and algorithms, flat; NULL: no rank has told them */
    Hash identity, digest;
    bool has_identity, has_digest;
    char notes[DIFF_NOTES_MAX][400];
    size_t n_notes;
} DiffSide;

/* Tells whether it is a job's name, so that the cluster must be asked: it has no '/' and no '.'. */
bool diff_side_is_job(const char *name);
/* model: NULL where neither side is a job. */
int diff_side_read(const char *name, const Model *model, DiffSide *ret, Error *err);
void diff_side_clear(DiffSide *side);
