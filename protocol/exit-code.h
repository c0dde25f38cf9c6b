/* SPDX-License-Identifier: Apache-2.0 */
/* exit-code.h - the exit codes of a trainer, which tell how it ended.
 *
 * Folder:    defaults of the headers here: Threads: any.
 * Ownership: none. Errors: none.
 * Units:     process exit codes; -errno.
 */
#pragma once

#include <stdbool.h>

typedef enum ExitCode {
    EXIT_ABORTED = -6, /* not an exit code: the process reports its reason and ends by SIGABRT */
    EXIT_DONE = 0,
    EXIT_RETRY = 75,        /* a transient error; a new start may succeed */
    EXIT_NEVER_RETRY = 78,  /* the job itself is wrong */
    EXIT_DEVICE_FAULT = 80, /* this slot's device failed */
    EXIT_PEER_LOST = 81,    /* a collective failed: another rank is to blame */
    EXIT_DATA_CORRUPT = 82, /* a shard, sample or manifest is damaged */
    EXIT_STORE_UNREACHABLE = 83,
    EXIT_NON_FINITE = 84, /* the loss or gradient is not finite; all ranks exit with this code */
    /* this node cannot run this job: the canned grain's hash differs, or something that its device needs is missing */
    EXIT_NUMERICS = 85,
    EXIT_NOT_OWNER = 86, /* another job, which the error text names, owns the checkpoint folder */
} ExitCode;

/* Time limit for a rank with a non-finite grain to search for the operation that made a value non-finite, before the
 * rank exits with 84. */
enum { EXIT_NON_FINITE_SEC = 10 };

/* Returns the name of the code: "done", "retry", "never-retry", "device-fault", "peer-lost", "data-corrupt",
 * "store-unreachable", "non-finite", "numerics", "not-owner"; "signal" for negative values, "exit" for other codes. */
const char *exit_code_class(int code);

/* Returns the exit code for an error of the data or of a checkpoint's store. r is -errno as in store.h: -EBADMSG,
 * -ENOENT: the object is damaged or missing. -EINVAL: no rank can use the URI or the object. -EPROTONOSUPPORT: another
 * version of sdtrain wrote the object, and this version can never read it. -ENOMEM: a retry may succeed. All other
 * errors, also -EACCES, count as an unreachable store, because rights and keys are corrected outside the job. */
ExitCode exit_code_of_store(int r);

/* Converts errors of datasets, config and initial weights that the job file names: returns -EINVAL if the named object
 * is missing or unreadable, because then the job is wrong; returns other codes unchanged. */
int exit_errno_of_named(int r);

/* Tells whether r means that the store refuses the writer or the path. Waiting can help against such an error only if a
 * write has succeeded before. */
bool exit_is_refusal(int r);
