/* SPDX-License-Identifier: Apache-2.0 */
/* exit-code.h - the exit codes by which a trainer says how it ended.
 *
 * Ownership: none.
 * Units:     process exit codes; -errno.
 * Errors:    none.
 * Threads:   any.
 */
#pragma once

#include <stdbool.h>

typedef enum ExitCode {
    EXIT_ABORTED = -6, /* no exit code: the process says why it ends, and ends by SIGABRT */
    EXIT_DONE = 0,
    EXIT_RETRY = 75,        /* transient; start again */
    EXIT_NEVER_RETRY = 78,  /* the job itself is bad */
    EXIT_DEVICE_FAULT = 80, /* this slot's device failed */
    EXIT_PEER_LOST = 81,    /* a collective failed: another rank is to blame */
    EXIT_DATA_CORRUPT = 82, /* a shard, sample or manifest did not verify */
    EXIT_STORE_UNREACHABLE = 83,
    EXIT_NON_FINITE = 84, /* loss or gradient is not finite; the same on every rank */
    /* this node can't run this job: the canned grain's hash differs, or what its device needs is missing */
    EXIT_NUMERICS = 85,
    EXIT_NOT_OWNER = 86, /* the checkpoint folder belongs to another job, which the text names */
} ExitCode;

/* So long a rank whose grain is not finite may look for the operation that made it so, before it ends with 84. */
enum { EXIT_NON_FINITE_SEC = 10 };

/* "done", "retry", "never-retry", "device-fault", "peer-lost", "data-corrupt", "store-unreachable",
 * "non-finite", "numerics", "not-owner"; "signal" for negative values, "exit" for others. */
const char *exit_code_class(int code);

/* The exit code for a failure of data or of a checkpoint's store. r is -errno as in store.h:
 * -EBADMSG, -ENOENT: the object is damaged or missing. -EINVAL: no rank can use the URI or the object.
 * -EPROTONOSUPPORT: another version of sdtrain wrote it; this one will never read it. -ENOMEM: a retry may do.
 * Everything else, -EACCES too, counts as the store being unreachable: rights and keys are mended outside the job. */
ExitCode exit_code_of_store(int r);

/* For the datasets, config and first weights that the job file names: -EINVAL if r says that the named object is
 * missing or unreadable, so that the job is to blame; other codes come back unchanged. */
int exit_errno_of_named(int r);

/* Whether a store refuses the writer or the place: waiting mends that only where a write has succeeded before. */
bool exit_is_refusal(int r);
