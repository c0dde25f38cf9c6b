/* SPDX-License-Identifier: Apache-2.0 */
/* start-times.h - logs how a start spends its time, from the beginning of the process to the end of its first step.
 *
 * Units: seconds in the log. Errors: none.
 * Ownership: none; names are static.
 */
#pragma once

void start_begin(void);
/* Counts all time since the previous part for this part. Before start_begin() and after start_report() it does
 * nothing. */
void start_part(const char *name);
/* Logs "the first step after 12.345 s: data 0.100, device 2.000, ..."; only in the first call. */
void start_report(void);
