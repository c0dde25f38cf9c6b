/* SPDX-License-Identifier: Apache-2.0 */
/* first-children.h - runs each case in a process of its own, and passes on what it says.
 *
 * A trap on a GPU breaks the whole process that caused it, and a library may abort or hang: then one case is lost, and
 * only what it had not said yet.
 *
 * Ownership: borrows the table.
 * Units:     seconds.
 * Errors:    see first_children_run().
 * Threads:   main.
 */
#pragma once

#include "kernels/test/first/first.h"

typedef struct FirstCase {
    const char *name;
    FirstRun run;
    int limit_sec;
    bool timed;  /* nothing runs beside it */
    bool hidden; /* runs only where it is named: for tests of this program */
} FirstCase;

/* Runs the cases in their order, up to four at a time, for so many seconds at most, and prints all lines. 0: all came
 * to an end of their own; -ECANCELED: one did not, or was not begun. -errno: no process can be made. */
int first_children_run(const FirstCase *const *cases, size_t n, int seconds, bool emulated);
