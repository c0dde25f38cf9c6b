/* SPDX-License-Identifier: Apache-2.0 */
/* wait.h - the waits behind `sdctl job stop --wait` and `job resize --wait`.
 *
 * Ownership: the arguments are borrowed.
 * Units:     seconds; timeout_sec < 0: no time limit.
 * Errors:    an exit code (CtlExit), after printing the error on standard error.
 * Threads:   the main thread.
 */
#pragma once

#include "ctl/arguments.h"

/* Waits until the job has stopped, or has succeeded before it could stop. If the job fails, returns CTL_FAILED. */
int job_wait_stopped(const Arguments *a, double timeout_sec);
/* Waits until the job runs on `size` ranks. */
int job_wait_size(const Arguments *a, int size, double timeout_sec);
