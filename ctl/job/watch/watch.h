/* SPDX-License-Identifier: Apache-2.0 */
/* watch.h - the live view of one job.
 *
 * Units: none. Threads: the main thread.
 * Ownership: the options are borrowed.
 * Errors:    an exit code (CtlExit), after printing the error on standard error.
 */
#pragma once

#include "ctl/client.h"

/* Shows the job until it ends, and redraws at each change. */
int job_watch(const ClientOptions *options, const char *name);
