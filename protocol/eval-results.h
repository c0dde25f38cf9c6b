/* SPDX-License-Identifier: Apache-2.0 */
/* eval-results.h - the results that a program reports of the evaluation of a checkpoint.
 *
 * Ownership: an EvalResults is a value.
 * Units:     seconds; numbers are the program's own.
 * Errors:    -EINVAL for a name or a URI that is not one; -ENOSPC if there are too many.
 * Threads:   any.
 * Source:    docs/operating/evaluations.md.
 */
#pragma once

#include <stddef.h>

enum {
    EVAL_NUMBERS_MAX = 32,
    EVAL_ARTIFACTS_MAX = 8,
    EVAL_NAME_MAX = 63,
    EVAL_URI_MAX = 511,
    EVAL_TEXT_MAX = 127,
};

typedef struct EvalNumber {
    char name[EVAL_NAME_MAX + 1];
    double value; /* NaN: not a number, or infinite */
} EvalNumber;

typedef struct EvalArtifact {
    char name[EVAL_NAME_MAX + 1];
    char uri[EVAL_URI_MAX + 1];
} EvalArtifact;

typedef struct EvalResults {
    EvalNumber
        numbers[EVAL_NUMBERS_MAX]; /* in the order in which their names were reported first */
    size_t n_numbers;
    EvalArtifact artifacts[EVAL_ARTIFACTS_MAX];
    size_t n_artifacts;
    char text[EVAL_TEXT_MAX + 1]; /* a text for people; empty: none */
    double seconds;               /* how long the evaluation took, from the start of its program */
} EvalResults;

/* Adds a number. One of that name is replaced: the last report counts. */
int eval_results_add_number(EvalResults *results, const char *name, double value);
int eval_results_add_artifact(EvalResults *results, const char *name, const char *uri);
