/* SPDX-License-Identifier: Apache-2.0 */
/* exit-code.h - how a trainer ended, in one byte that the daemon classifies.
 *
 * Ownership: none.
 * Units:     process exit codes; -errno.
 * Errors:    none.
 * Threads:   any.
 */
#pragma once

typedef enum ExitCode {
    EXIT_DONE = 0,
    EXIT_RETRY = 75,        /* transient; start again */
    EXIT_NEVER_RETRY = 78,  /* the job itself is bad */
    EXIT_DEVICE_FAULT = 80, /* this slot's device failed */
    EXIT_PEER_LOST = 81,    /* a collective failed: somebody else is guilty */
    EXIT_DATA_CORRUPT = 82, /* a shard, sample or manifest did not verify */
    EXIT_STORE_UNREACHABLE = 83,
    EXIT_NON_FINITE = 84, /* loss or gradient is not finite; the same on every rank */
    EXIT_NUMERICS = 85,   /* the canned grain's hash differs: this node can't run this job */
    EXIT_NOT_OWNER = 86,  /* the checkpoint folder is another job's, whom the text names */
} ExitCode;

/* "done", "retry", "never-retry", "device-fault", "peer-lost", "data-corrupt", "store-unreachable",
 * "non-finite", "numerics", "not-owner"; "signal" for negative values, "exit" for others. */
const char *exit_code_class(int code);

/* What a failure of data or of a checkpoint's store means, -errno as store.h has it:
 * -EBADMSG, -ENOENT: what lies there is not what should. -EINVAL: the URI or what it names cannot be
 * used by anybody. -EPROTONOSUPPORT: another version of sdtrain wrote it; nothing is wrong with it, and this
 * one does not read it however often it tries. -ENOMEM: try again. All else, -EACCES too, is the store: rights
 * and keys are mended outside the job, and nothing of the job has to change for it. */
ExitCode exit_code_of_store(int r);

/* What a job names itself, its datasets, config and first weights, must be there and be something that can be read:
 * -EINVAL where the fault is in what was named; all else as it is. */
int exit_errno_of_named(int r);
