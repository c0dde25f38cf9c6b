/* SPDX-License-Identifier: Apache-2.0 */
/* protocol-texts.h - texts on job file, channel and exit codes for docs/reference: a sentence for each key, field and
 * code.
 *
 * Units: none. Errors: none. Threads: any.
 * Ownership: everything is static.
 */
#pragma once

#include "protocol/channel.h"

/* A key of the job file. test-reference parses each default, so that this table cannot differ from job.c. */
typedef struct JobKey {
    const char *key;   /* "train.optimizer.lr" */
    const char *value; /* the default as JSON; NULL: there is no default */
    const char *shown; /* the default as text for people; NULL: show value */
    bool required;
    const char *help;
} JobKey;

extern const JobKey job_keys[];
extern const size_t n_job_keys;
/* The keys of a job of kind "exec". */
extern const JobKey exec_job_keys[];
extern const size_t n_exec_job_keys;
/* The keys that kind "eval" adds to those of kind "exec", or understands in another way. */
extern const JobKey eval_job_keys[];
extern const size_t n_eval_job_keys;
/* The further keys of a job of kind "eval" with `loss`. */
extern const JobKey loss_job_keys[];
extern const size_t n_loss_job_keys;
/* The further keys of a job of kind "eval" with `grid`. */
extern const JobKey grid_job_keys[];
extern const size_t n_grid_job_keys;

/* Returns the description of a field of the channel, or NULL if the field has no description
 * yet. */
const char *channel_field_help(const char *name);
const char *channel_type_help(ChannelType type);
bool channel_is_of_daemon(ChannelType type);

/* Returns the meaning of a trainer's exit code, or NULL if sdtrain does not use the code. The
 * cluster's reaction is in the table of causes (controller/core/state/causes.h). */
const char *exit_code_help(int code);
