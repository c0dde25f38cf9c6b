/* SPDX-License-Identifier: Apache-2.0 */
/* results.h - the results that an operation of a tape leaves, for observers: their place in memory right after the
 * step, and their names.
 * Units: elements. Errors: none.
 * Ownership: memory is the tape's.
 */
#pragma once

#include "nn/tape.h"

/* Results in the order in which observers check them; the gradients of inputs are in the order of IN_*. */
typedef enum TapeResult {
    RESULT_PACKED, /* the weights that tape_set_weights() has packed */
    RESULT_OUT,
    RESULT_SAVED, /* the data that forward keeps for backward */
    RESULT_OF_INPUT,
    RESULT_WEIGHT = RESULT_OF_INPUT + INPUTS_MAX,
    RESULT_BIAS,
    N_RESULTS
} TapeResult;

typedef struct ResultPlace {
    const void *data; /* NULL: the operation has no such result */
    DataType type;
    int64_t n;
} ResultPlace;

/* Call it right after the step: later steps use the memory again. */
ResultPlace tape_result(const Tape *tape, size_t operation, TapeResult result);
/* Returns a name such as "the gradient of its weight". */
const char *tape_result_name(TapeResult result);
/* Writes the text of the result's plan, as conv_plan_text() of kernels.h does. Writes "" if no library computes the
 * result. */
void tape_result_plan_text(const Tape *tape, size_t operation, TapeResult result, char *text,
                           size_t size);
