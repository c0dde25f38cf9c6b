/* SPDX-License-Identifier: Apache-2.0 */
/* results.c - see results.h. */
#include "nn/results.h"

static ResultPlace of_type(const Tape *tape, const void *data, size_t n_bytes)
{
    return (ResultPlace){data, device_type(tape->device), (int64_t)(n_bytes / tape->element_bytes)};
}

static ResultPlace of_value(const Tape *tape, const void *data, ValueId value)
{
    return (ResultPlace){data, device_type(tape->device), value_elements(&tape->values[value])};
}

ResultPlace tape_result(const Tape *tape, size_t operation, TapeResult result)
{
    const Operation *op = &tape->operations[operation];
    const bool has_layer = op->layer.n_elements > 0;
    const int input = (int)result - RESULT_OF_INPUT;
    const GradientForm *form = &op->form;
    switch (result) {
    case RESULT_PACKED:
        return of_type(tape, op->packed_bytes > 0 ? tape->packed + op->packed_offset : NULL,
                       op->packed_bytes);
    case RESULT_OUT:
        return of_value(tape, tape_data(tape, op->out), op->out);
    case RESULT_SAVED: /* on all devices, all kinds of operation save floats */
        return (ResultPlace){tape_saved(tape, op), DATA_F32,
                             (int64_t)(op->saved_bytes / sizeof(float))};
    case RESULT_WEIGHT:
        return (ResultPlace){has_layer ? tape_weight_gradient(tape, op) : NULL, form->type,
                             (int64_t)form->out * form->in * form->taps};
    case RESULT_BIAS:
        return (ResultPlace){has_layer ? tape_bias_gradient(tape, op) : NULL, DATA_F32,
                             op->layer.out};
    default:
        assert(input >= 0 && input < INPUTS_MAX);
        if (op->in[input] == NO_VALUE)
            return (ResultPlace){.data = NULL};
        return of_value(tape, tape_gradient(tape, op->in[input]), op->in[input]);
    }
}

const char *tape_result_name(TapeResult result)
{
    static const char *const names[] = {"its packed weights",
                                        "its result",
                                        "what it keeps for its backward",
                                        "the gradient of its input",
                                        "the gradient of its second input",
                                        "the gradient of its residual",
                                        "the gradient of its weight",
                                        "the gradient of its bias"};
    static_assert(ELEMENTSOF(names) == N_RESULTS, "each has a name");
    return names[result];
}

/* Returns whether a library may have computed the result. If not, the project's own kernels always compute it: for
 * example, the gradient of a convolution's per-image input. A library may compute the gradient of IN_SECOND if the
 * operation is an attention, or if IN_SECOND is a part of x. */
static bool may_be_planned(const Operation *op, TapeResult result)
{
    switch ((int)result) {
    case RESULT_PACKED:
    case RESULT_BIAS:
    case RESULT_OF_INPUT + IN_RESIDUAL:
        return false;
    case RESULT_OF_INPUT + IN_SECOND:
        return op->layer.n_elements == 0 || op->kind->reads_joined;
    default:
        return true;
    }
}

void tape_result_plan_text(const Tape *tape, size_t operation, TapeResult result, char *text,
                           size_t size)
{
    const Operation *op = &tape->operations[operation];
    const KernelPass pass = result == RESULT_OUT || result == RESULT_SAVED ? KERNEL_FORWARD
                            : result == RESULT_WEIGHT                      ? KERNEL_BACKWARD_WEIGHT
                                                                           : KERNEL_BACKWARD_DATA;
    (void)snprintf(text, size, "%s", "");
    if (op->kind->plan_text && may_be_planned(op, result))
        op->kind->plan_text(op, pass, text, size);
}
