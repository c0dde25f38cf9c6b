/* SPDX-License-Identifier: Apache-2.0 */
/* job-terms.h - what a job's identity is the hash of, as a text that is kept beside the hash.
 *
 * Two hashes tell that two jobs would not train the same; the texts tell why. A text is the job file's canonical text
 * (job_canonical()) with two keys added: the hash of the network's config, model.config, and that of the empty
 * caption's embedding, data.empty_text, which the identity is of, too. It is never hashed itself.
 *
 * Ownership: job_terms_format() gives the caller the text, job_terms_parse() a reference.
 * Units:     bytes.
 * Errors:    -ENOMEM.
 * Threads:   any.
 */
#pragma once

#include "protocol/job.h"

#include <jansson.h>

enum { JOB_TERMS_MAX = 8192 }; /* a longer text is kept nowhere */

/* Contents that the job file names and does not hold. */
typedef struct JobNamed {
    const char *latents, *text; /* columns: of the job file, else of encoder.json */
    const char *config; /* of the network, as unet_config_format() writes it; NULL: not known */
    const float *empty; /* the empty caption's embedding; NULL: none */
    size_t empty_bytes;
} JobNamed;

/* The identity that checkpoints hold: of all that may change a bit of the weights. */
int job_terms_identity(const Job *job, const JobNamed *named, Hash *ret);
/* Its text, without what is not known; NULL where it would be longer than JOB_TERMS_MAX. */
char *job_terms_format(const Job *job, const JobNamed *named);
/* The same for people: one flat object of the job file's keys and words, {"train.optimizer.lr": 0.0001,
 * "train.precision": "bf16"}. NULL: the text is of another kind ("": a version before wrote none). */
json_t *job_terms_parse(const char *text);
/* json_diff_format() of two texts; 0 where one of them is not known, or they say the same. */
size_t job_terms_diff(const char *was, const char *is, char *text, size_t size);
