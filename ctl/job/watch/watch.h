/* SPDX-License-Identifier: Apache-2.0 */
/* watch.h - the live view of one job.
 *
 * Ownership: the options are borrowed.
 * Units:     none.
 * Errors:    an exit code (CtlExit), after printing the error on standard error.
 * Threads:   the main thread.
 */
#pragma once

#include "ctl/client.h"

/* Shows the job until it ends, and redraws at each change. */
int job_watch(const ClientOptions *options, const char *name);
