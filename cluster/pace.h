/* SPDX-License-Identifier: Apache-2.0 */
/* pace.h - how fast a job trains now, and when it will be done: one answer for sdctl, its top and the live page.
 *
 * Ownership: borrows the records.
 * Units:     seconds.
 * Errors:    none.
 * Threads:   any.
 */
#pragma once

#include "cluster/records.h"

/* Returns the seconds that a step takes at the present pace; 0: unknown. The last step's own time varies more. */
double progress_pace_sec(const ProgressRecord *progress);
/* Returns the seconds to the job's last step, from the newest step on; NAN: unknown, as before the first step. */
double progress_to_go_sec(const ProgressRecord *progress, int64_t steps);
