/* SPDX-License-Identifier: Apache-2.0 */
/* job-terms.h - the terms of a job: all facts that the job's identity hashes, as a text that is stored beside the hash.
 *
 * Different hashes show that two jobs would train differently; the texts show why. A text is the job file's canonical
 * text (job_canonical()) with two keys added: model.config, the hash of the network's config, and data.empty_text, the
 * hash of the empty caption's embedding. The identity covers both hashes, too. The text itself is never hashed.
 *
 * Units: bytes. Errors: -ENOMEM.
 * Ownership: job_terms_format() gives the caller the text, job_terms_parse() a reference.
 */
#pragma once

#include "protocol/job.h"

#include <jansson.h>

enum { JOB_TERMS_MAX = 8192 }; /* a longer text is not stored */

/* Contents of files that the job file only names. */
typedef struct JobNamed {
    const char *latents, *text; /* names of columns, from the job file, or else from encoder.json */
    /* Config of the network, as written by unet_config_format(); NULL: unknown. */
    const char *config;
    const float *empty; /* the empty caption's embedding; NULL: none */
    size_t empty_bytes;
} JobNamed;

/* Computes the job identity that checkpoints store: a hash of all facts that may change a bit of the weights. */
int job_terms_identity(const Job *job, const JobNamed *named, Hash *ret);
/* Returns the text of the terms, without unknown facts, or NULL if the text were longer than JOB_TERMS_MAX. */
char *job_terms_format(const Job *job, const JobNamed *named);
/* Parses the text of terms for display: one flat object with the job file's keys and words, such as
 * {"train.optimizer.lr": 0.0001, "train.precision": "bf16"}. Returns NULL for any other text ("": an older version
 * wrote no terms). */
json_t *job_terms_parse(const char *text);
/* Writes the differences of two texts with json_diff_format(). Returns 0 if one text is unknown or if both are
 * equal. */
size_t job_terms_diff(const char *was, const char *is, char *text, size_t size);
