/* SPDX-License-Identifier: Apache-2.0 */
/* comparison.c - see comparison.h. */
#include "trainer/nn/comparison.h"

#include "base/memory.h"

#include <stdlib.h>

enum { RUNS = 2 };

/* What an operation may leave; the gradients of its inputs in the order of IN_*. */
typedef enum Result {
    RESULT_OUT,
    RESULT_OF_INPUT,
    RESULT_WEIGHT = RESULT_OF_INPUT + INPUTS_MAX,
    RESULT_BIAS,
    N_RESULTS
} Result;

struct TapeComparison {
    Tape *tape;
    int run;
    uint64_t *sums; /* device memory: [RUNS][operations][N_RESULTS]; 0: there is no such result */
};

static size_t sums_of_run(const TapeComparison *c) { return c->tape->n_operations * N_RESULTS; }

int tape_comparison_new(Tape *tape, TapeComparison **ret, Error *err)
{
    TapeComparison *c = memory_new(TapeComparison);
    c->tape = tape;
    int r = device_allocate(tape->device, RUNS * sums_of_run(c) * sizeof(*c->sums),
                            (void **)&c->sums, err);
    if (r < 0) {
        free(c);
        return r;
    }
    *ret = c;
    return 0;
}

TapeComparison *tape_comparison_free(TapeComparison *c)
{
    if (!c)
        return NULL;
    device_release(c->tape->device, c->sums);
    free(c);
    return NULL;
}

/* ---- watching ---- */

static void take(const TapeComparison *c, size_t operation, Result result, const void *data,
                 size_t n_bytes)
{
    if (data)
        fingerprint(c->tape->device, n_bytes, data,
                    c->sums + (size_t)c->run * sums_of_run(c) + operation * N_RESULTS + result);
}

static size_t value_bytes(const Tape *tape, ValueId value)
{
    return (size_t)value_elements(&tape->values[value]) * tape->element_bytes;
}

static void take_gradients(const TapeComparison *c, size_t operation)
{
    const Tape *tape = c->tape;
    const Operation *op = &tape->operations[operation];
    for (int i = 0; i < INPUTS_MAX; i++)
        if (op->in[i] != NO_VALUE)
            take(c, operation, (Result)(RESULT_OF_INPUT + i), tape_gradient(tape, op->in[i]),
                 value_bytes(tape, op->in[i]));
    if (op->layer.n_elements == 0)
        return;
    take(c, operation, RESULT_WEIGHT, tape_weight_gradient(tape, op),
         gradient_form_bytes(&op->form));
    take(c, operation, RESULT_BIAS, tape_bias_gradient(tape, op),
         (size_t)op->layer.out * sizeof(float));
}

static void watch(const Tape *tape, TapePhase phase, size_t operation, void *userdata)
{
    const TapeComparison *c = userdata;
    const ValueId out = tape->operations[operation].out;
    if (phase == TAPE_FORWARD)
        take(c, operation, RESULT_OUT, tape_data(tape, out), value_bytes(tape, out));
    else if (phase == TAPE_BACKWARD)
        take_gradients(c, operation);
}

void tape_comparison_watch(TapeComparison *c, int run)
{
    assert(run >= 0 && run < RUNS && !c->tape->observer);
    c->run = run;
    c->tape->observer = watch;
    c->tape->observer_userdata = c;
}

void tape_comparison_end(TapeComparison *c)
{
    assert(c->tape->observer == watch);
    c->tape->observer = NULL;
    c->tape->observer_userdata = NULL;
}

/* ---- telling ---- */

static int differs(const TapeComparison *c, size_t operation, Result result, Error *err)
{
    static const char *const names[] = {"its result",
                                        "the gradient of its input",
                                        "the gradient of its second input",
                                        "the gradient of its residual",
                                        "the gradient of its weight",
                                        "the gradient of its bias"};
    static_assert(ELEMENTSOF(names) == N_RESULTS, "each has a name");
    const Operation *op = &c->tape->operations[operation];
    const KernelPass pass = result == RESULT_OUT      ? KERNEL_FORWARD
                            : result == RESULT_WEIGHT ? KERNEL_BACKWARD_WEIGHT
                                                      : KERNEL_BACKWARD_DATA;
    char name[PARAMETER_NAME_MAX + 64], plan[320] = "";
    tape_describe(c->tape, operation, name, sizeof(name));
    if (op->kind->plan_text && result != RESULT_BIAS)
        op->kind->plan_text(op, pass, plan, sizeof(plan));
    return error_set(err, -EXDEV, "%s: %s has other bits when it is computed again; %s", name,
                     names[result], *plan ? plan : "no plan of a library");
}

int tape_comparison_tell(const TapeComparison *c, TapePhase phase, Error *err)
{
    const size_t n = sums_of_run(c), n_operations = c->tape->n_operations;
    const Result first = phase == TAPE_FORWARD ? RESULT_OUT : RESULT_OF_INPUT;
    const Result end = phase == TAPE_FORWARD ? RESULT_OF_INPUT : N_RESULTS;
    uint64_t *sums = memory_zeroed(RUNS * n, sizeof(*sums));
    device_download(c->tape->device, sums, c->sums, RUNS * n * sizeof(*sums));
    int r = device_synchronise(c->tape->device, err);
    for (size_t i = 0; r == 0 && i < n_operations; i++) {
        const size_t operation = phase == TAPE_FORWARD ? i : n_operations - 1 - i;
        for (Result result = first; r == 0 && result < end; result++)
            if (sums[operation * N_RESULTS + result] != sums[n + operation * N_RESULTS + result])
                r = differs(c, operation, result, err);
    }
    free(sums);
    return r;
}
