/* SPDX-License-Identifier: Apache-2.0 */
/* pace.h - how fast a job trains now, and how long it will take: one estimate for sdctl, sdctl top and the live page.
 *
 * Ownership: borrows the records. Units: seconds.
 */
#pragma once

#include "cluster/records.h"

/* Returns the seconds per step at the present pace, or 0 if unknown. The pace varies less than the time of the last
 * step. */
double progress_pace_sec(const ProgressRecord *progress);
/* Returns the seconds from the newest step to the job's last step. Returns NAN if unknown: before the first step, and
 * if steps is 0, as of a program that does not tell its last one. */
double progress_to_go_sec(const ProgressRecord *progress, int64_t steps);
