/* SPDX-License-Identifier: Apache-2.0 */
/* list-operations.c - lists the operations of a grain of sd2-base, with their shapes, in the order of the tape.
 *
 *     list-operations sd2-512|sd2-256
 *
 * sd2-512: pictures of 512^2, 32 samples per grain; sd2-256: pictures of 256^2, 128 samples, as in bench-profile. Each
 * line is a JSON object; numbers are elements. A gradient is "none", "written" or "added". "flop" counts one matrix
 * product; an attention has two products forward and five backward. Nothing is computed, and no memory of the network
 * is allocated. ops/gpu_predict.py predicts the time of each operation on a GPU. */
#include "nn/test/testing-sd2.h"
#include "nn/test/testing-work.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *name;
    int side, grain;
} scales[] = {{"sd2-512", 64, 32}, {"sd2-256", 32, 128}};

static int64_t elements_of(const Tape *tape, ValueId id)
{
    return id == NO_VALUE ? 0 : value_elements(&tape->values[id]);
}

static const char *gradient_of(const Tape *tape, const Operation *op, int i)
{
    if (!has_gradient(tape, op->in[i]))
        return "none";
    return op->accumulate[i] ? "added" : "written";
}

static void print_operation(const Tape *tape, size_t operation)
{
    static const char *const roles[INPUTS_MAX] = {"x", "second", "residual"};
    char text[320];
    const Operation *op = &tape->operations[operation];
    const Layer *layer = &op->layer;
    const int64_t bias = layer->n_elements == 0 || layer->bias < 0 ? 0 : layer->out;
    tape_describe(tape, operation, text, sizeof(text));
    printf("{\"operation\":\"%s\",\"kind\":\"%s\"", text, op->kind->name);
    for (int i = 0; i < INPUTS_MAX; i++)
        printf(",\"%s\":%" PRId64 ",\"d%s\":\"%s\"", roles[i], elements_of(tape, op->in[i]),
               roles[i], gradient_of(tape, op, i));
    printf(",\"y\":%" PRId64 ",\"channels\":%d,\"images\":%d,\"backward\":%s",
           elements_of(tape, op->out), tape->values[op->out].c, tape->values[op->out].n,
           op->runs_backward ? "true" : "false");
    printf(",\"weight\":%" PRId64 ",\"bias\":%" PRId64 ",\"flop\":%.0f", layer->n_elements - bias,
           bias, product_flop(tape, op));
    if (is_kind(op, "conv"))
        printf(",\"taps\":%d", op->shape.conv.kernel * op->shape.conv.kernel);
    if (is_kind(op, "group_norm"))
        printf(",\"silu\":%s", op->shape.group_norm.silu ? "true" : "false");
    if (is_kind(op, "attention"))
        printf(",\"heads\":%d,\"queries\":%" PRId64 ",\"keys\":%" PRId64, op->shape.attention.heads,
               op->shape.attention.q_tokens, op->shape.attention.kv_tokens);
    printf("}\n");
}

int main(int argc, char **argv)
{
    const DeviceOptions options = {.kind = DEVICE_CPU, .threads = 1, .type = DATA_F32};
    Error err = ERROR_INIT;
    Device *device = NULL;
    Tape *tape = NULL;
    for (size_t i = 0; argc == 2 && i < ELEMENTSOF(scales); i++)
        if (strcmp(argv[1], scales[i].name) == 0)
            tape = sd2_tape_new(scales[i].side, scales[i].grain);
    if (!tape) {
        (void)fprintf(stderr, "usage: list-operations sd2-512|sd2-256\n");
        return 2;
    }
    int r = device_open(&options, &device, &err);
    if (r == 0)
        r = tape_measure(tape, device, true, &err);
    for (size_t i = 0; r == 0 && i < tape->n_operations; i++)
        print_operation(tape, i);
    if (r < 0)
        (void)fprintf(stderr, "list-operations: %s\n", err.text);
    (void)tape_free(tape);
    (void)device_free(device);
    return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
