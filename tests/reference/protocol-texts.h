/* SPDX-License-Identifier: Apache-2.0 */
/* protocol-texts.h - job file, channel and exit codes as docs/reference shows them: a sentence for each key, field and
 * code.
 *
 * Ownership: everything is static.
 * Units:     none.
 * Errors:    none.
 * Threads:   any.
 */
#pragma once

#include "protocol/channel.h"

/* A key of the job file. test-reference parses each default, so that this table cannot differ from job.c. */
typedef struct JobKey {
    const char *key;   /* "train.optimizer.lr" */
    const char *value; /* the default as JSON; NULL: there is none */
    const char *shown; /* the default for people; NULL: value says it */
    bool required;
    const char *help;
} JobKey;

extern const JobKey job_keys[];
extern const size_t n_job_keys;

/* NULL: there is no description yet. */
const char *channel_field_help(const char *name);
const char *channel_type_help(ChannelType type);
bool channel_is_of_daemon(ChannelType type);

/* The meaning of a trainer's exit code; NULL: no code of ours. The cluster's answer is the table of causes
 * (controller/core/state/causes.h). */
const char *exit_code_help(int code);
