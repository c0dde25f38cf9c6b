/* SPDX-License-Identifier: Apache-2.0 */
/* testing-work.h - the bytes that an operation of a tape must move, and the floating-point operations that it must do.
 *
 * Bytes are the fewest that an operation can move: it reads each input once, writes each output once, and also reads
 * each output that it adds to. Floating-point operations are those of the matrix products: two for each pair of numbers
 * that is multiplied and added.
 *
 * Ownership: none. Errors: none. Threads: any.
 * Units:     bytes, floating-point operations; doubles, exact below 2^53.
 */
#pragma once

#include "nn/tape.h"

#include <string.h>

static inline bool is_kind(const Operation *op, const char *kind)
{
    return strcmp(op->kind->name, kind) == 0;
}

static inline bool is_matrix(const Operation *op)
{
    return is_kind(op, "conv") || is_kind(op, "linear") || is_kind(op, "attention");
}

static inline double value_bytes(const Tape *tape, ValueId id)
{
    return id == NO_VALUE ? 0
                          : (double)value_elements(&tape->values[id]) * (double)tape->element_bytes;
}

static inline bool has_gradient(const Tape *tape, ValueId id)
{
    return id != NO_VALUE && tape->values[id].wants_gradient;
}

/* Returns the bytes that forward must move, without the weights of a matrix operation. */
static inline double forward_bytes(const Tape *tape, const Operation *op)
{
    double bytes = value_bytes(tape, op->out);
    for (int i = 0; i < INPUTS_MAX; i++)
        bytes += value_bytes(tape, op->in[i]);
    return bytes;
}

/* Returns the bytes that backward must move, without weights and their gradients. */
static inline double backward_bytes(const Tape *tape, const Operation *op)
{
    double bytes = value_bytes(tape, op->out); /* the output's gradient */
    if (op->kind->backward_reads & BACKWARD_READS_OUT)
        bytes += value_bytes(tape, op->out);
    for (int i = 0; i < INPUTS_MAX; i++) {
        if (op->kind->backward_reads & 1u << i)
            bytes += value_bytes(tape, op->in[i]);
        if (has_gradient(tape, op->in[i]))
            bytes += (op->accumulate[i] ? 2 : 1) * value_bytes(tape, op->in[i]);
    }
    return bytes;
}

/* Returns the bytes that are moved to add the gradients of the operation's parameters to the sums. */
static inline double take_bytes(const Operation *op)
{
    const double bias = op->layer.bias < 0 ? 0 : 4.0 * op->layer.out;
    return (double)gradient_form_bytes(&op->form) + bias + 8.0 * (double)op->layer.n_elements;
}

static inline double pack_bytes(const Operation *op)
{
    return 4.0 * (double)op->layer.n_elements + (double)op->packed_bytes;
}

/* Returns the floating-point operations of one matrix product. An attention has two products forward and five backward.
 * A convolution or a linear layer has one product forward. Backward it has two, or one if its input has no gradient. */
static inline double product_flop(const Tape *tape, const Operation *op)
{
    const Value *y = &tape->values[op->out];
    if (is_kind(op, "conv"))
        return 2.0 * (double)value_elements(y) * op->shape.conv.c_in * op->shape.conv.kernel *
               op->shape.conv.kernel;
    if (is_kind(op, "linear"))
        return 2.0 * (double)op->shape.linear.rows * op->shape.linear.in * op->shape.linear.out;
    if (!is_kind(op, "attention"))
        return 0;
    const AttentionShape *s = &op->shape.attention;
    return 2.0 * s->n * s->heads * s->head_dim * (double)s->q_tokens * (double)s->kv_tokens;
}

static inline double phase_flop(const Tape *tape, const Operation *op, TapePhase phase)
{
    const double one = product_flop(tape, op);
    if (phase == TAPE_PACK)
        return 0;
    if (is_kind(op, "attention"))
        return (phase == TAPE_FORWARD ? 2 : 5) * one;
    return phase == TAPE_FORWARD ? one : (has_gradient(tape, op->in[IN_X]) ? 2 : 1) * one;
}

/* Returns all bytes that an operation moves in a phase, with its weights and their gradients. */
static inline double phase_bytes(const Tape *tape, const Operation *op, TapePhase phase)
{
    double bytes;
    switch (phase) {
    case TAPE_PACK:
        return pack_bytes(op);
    case TAPE_FORWARD:
        return forward_bytes(tape, op) + (double)op->packed_bytes;
    case TAPE_BACKWARD:
        break;
    }
    bytes = backward_bytes(tape, op) + (double)op->packed_bytes;
    if (is_matrix(op) && op->layer.n_elements > 0)
        bytes += (double)gradient_form_bytes(&op->form) + take_bytes(op);
    return bytes;
}
