/* SPDX-License-Identifier: Apache-2.0 */
/* testing-figures.h - measures and prints the figures of a benchmark of another process.
 *
 * Ownership: borrows all. Threads: any.
 * Units:     seconds of processor; MiB.
 * Errors:    if the measured process is gone, this program ends with a text.
 */
#pragma once

#include "base/macro.h"

#include <sys/types.h>

/* Returns the CPU time that the process has used so far, to the precision of the kernel's ticks. */
double process_cpu_sec(pid_t pid);
/* Returns a line of /proc/PID/status that is in kB; field is, for instance, "VmRSS:". */
double process_memory_mib(pid_t pid, const char *field);
/* Sorts the n values and prints a line of JSON, whose value is their median. */
void figure_print(const char *figure, const char *unit, double *values, int n);
