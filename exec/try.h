/* SPDX-License-Identifier: Apache-2.0 */
/* try.h - `sdtrain-exec try`: runs a job of kind "exec" on this machine, without a cluster.
 *
 * Each rank has a runner, as under sdtraind. When a rank fails, all are ended and the next generation starts from the
 * checkpoint that was registered last, until the job's failures are used up.
 *
 * Ownership: borrows the options. Units: none.
 * Errors:    logged; in the exit code.
 * Threads:   one; blocks until the end.
 */
#pragma once

#include "protocol/job.h"

enum { TRY_ENVIRONMENT_MAX = 64, TRY_RANKS_MAX = 64, TRY_STARTUP_SEC = 600 };

typedef struct TryOptions {
    const char *file;
    const char *secrets;    /* file of the values of exec.secrets; NULL: none */
    int n_ranks;            /* 0: world.min */
    const char *checkpoint; /* the checkpoint to begin from; NULL: none */
    int64_t step;           /* its step */
    int startup_sec;        /* the ranks of a generation must be ready within this time */
    const char *environment[TRY_ENVIRONMENT_MAX + 1]; /* names of variables to pass on */
    size_t n_environment;
} TryOptions;

/* Returns the process's exit code. program: the path of this program. */
int try_run(const TryOptions *options, const char *program);
