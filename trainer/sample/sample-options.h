/* SPDX-License-Identifier: Apache-2.0 */
/* sample-options.h - the options of `sdtrainer sample`.
 *
 * Ownership: SampleOptions borrow argv.
 * Units:     pictures, DDIM steps.
 * Errors:    sample_options_parse() tells the error on standard error.
 * Threads:   the main thread.
 */
#pragma once

#include "base/macro.h"

enum { SAMPLES_MAX = 400 };

typedef struct SampleOptions {
    const char *job, *out, *from;
    const char *model; /* a diffusers folder; NULL: the codec stands in for it */
    const char *captions[SAMPLES_MAX];
    int n_captions; /* 0: those of the dataset's first samples */
    int samples, steps;
    double guidance;
    uint64_t seed;
} SampleOptions;

/* false: the verb ends with *ret_exit. */
bool sample_options_parse(int argc, char **argv, SampleOptions *ret, int *ret_exit);
