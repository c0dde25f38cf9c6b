/* SPDX-License-Identifier: Apache-2.0 */
/* testing-figures.h - what a benchmark of a program that runs beside it measures and prints.
 *
 * Ownership: borrows all.
 * Units:     seconds of processor; MiB.
 * Errors:    end this program with a text: the measured one is gone.
 * Threads:   any.
 */
#pragma once

#include "base/macro.h"

#include <sys/types.h>

/* Returns the CPU time that the process has used until now, by the kernel's ticks. */
double process_cpu_sec(pid_t pid);
/* field is a line of /proc/PID/status that is in kB, "VmRSS:". */
double process_memory_mib(pid_t pid, const char *field);
/* Prints a line of JSON, whose value is the median. Sorts the n values. */
void figure_print(const char *figure, const char *unit, double *values, int n);
