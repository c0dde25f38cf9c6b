/* SPDX-License-Identifier: Apache-2.0 */
/* sample-options.h - the options of `sdtrainer sample`.
 *
 * Ownership: SampleOptions borrow argv.
 * Units:     pictures, DDIM steps.
 * Errors:    sample_options_parse() prints the error on standard error.
 * Threads:   the main thread.
 */
#pragma once

#include "protocol/grid-notes.h"

enum { SAMPLES_MAX = GRID_CELLS_MAX };

typedef struct SampleOptions {
    const char *job, *out, *from;
    const char *pictures; /* file for the data's own pictures; NULL: not written */
    JobGrid grid;
    char *captions[SAMPLES_MAX]; /* those of grid */
} SampleOptions;

/* Returns false if the verb must end with *ret_exit. */
bool sample_options_parse(int argc, char **argv, SampleOptions *ret, int *ret_exit);
