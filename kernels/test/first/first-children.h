/* SPDX-License-Identifier: Apache-2.0 */
/* first-children.h - runs each case in a separate process, and passes on its output.
 *
 * A trap on a GPU breaks the whole process that caused it, and a library may abort or hang. Then only the output that
 * this one case has not yet written is lost.
 *
 * Ownership: borrows the table. Units: seconds. Threads: main.
 * Errors:    see first_children_run().
 */
#pragma once

#include "kernels/test/first/first.h"

typedef struct FirstCase {
    const char *name;
    FirstRun run;
    int limit_sec;
    bool timed;  /* no other case runs at the same time */
    bool hidden; /* the case runs only if it is named: for tests of this program */
} FirstCase;

/* Runs the cases in order, up to four at a time, for at most `seconds` seconds, and prints all lines. Returns 0 if all
 * cases ended by themselves; -ECANCELED if a case did not, or was not begun; -errno if no process can be made. */
int first_children_run(const FirstCase *const *cases, size_t n, int seconds, bool emulated);
