/* SPDX-License-Identifier: Apache-2.0 */
/* watch.h - the live view of one job.
 *
 * Ownership: the options are borrowed.
 * Units:     none.
 * Errors:    an exit code (CtlExit), after the error was told on standard error.
 * Threads:   the main thread.
 */
#pragma once

#include "ctl/client.h"

/* Shows the job, redrawn at each change, until it ends. */
int job_watch(const ClientOptions *options, const char *name);
