/* SPDX-License-Identifier: Apache-2.0 */
/* results.h - what an operation of a tape leaves, for observers: where it lies right behind the step, and what it is
 * called.
 *
 * Ownership: memory is the tape's.
 * Units:     elements.
 * Errors:    none.
 * Threads:   the device's.
 */
#pragma once

#include "nn/tape.h"

/* In the order in which they are looked at; the gradients of inputs in the order of IN_*. */
typedef enum TapeResult {
    RESULT_PACKED, /* weights, which tape_set_weights() has packed */
    RESULT_OUT,
    RESULT_SAVED, /* what forward keeps for backward */
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

/* To be asked right behind the step: memory is used again. */
ResultPlace tape_result(const Tape *tape, size_t operation, TapeResult result);
/* "the gradient of its weight" */
const char *tape_result_name(TapeResult result);
/* As conv_plan_text() of kernels.h: "" where no library computes that result. */
void tape_result_plan_text(const Tape *tape, size_t operation, TapeResult result, char *text,
                           size_t size);
