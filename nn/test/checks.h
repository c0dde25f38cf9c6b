/* SPDX-License-Identifier: Apache-2.0 */
/* checks.h - shared by the files of check-operations: tensors on the device, and the check of one pass of an operation.
 *
 * Units: elements. Threads: the main thread.
 * Ownership: tensor_new() and tensor_random() give the caller a tensor to tensor_free(); checks_allocate() gives
 *            device memory.
 * Errors:    an error of the device ends the program with exit status 2.
 */
#pragma once

#include "kernels/kernels.h"

enum { GRID = 64, SAMPLES = GRID * GRID };

typedef struct Tensor {
    int64_t n;
    DataType type;
    char *device;     /* guard bytes of 0xff follow the tensor */
    const void *host; /* copy on the host; NULL: not read since the device wrote the tensor */
} Tensor;

typedef struct Checks {
    Device *device;
    DataType type;
    double tolerance; /* upper bound of the error's norm divided by the results' norm */
    uint64_t draws;
    char *poison; /* device memory, all 0xff */
    size_t poison_bytes;
    int n_samples, n_passes, n_wrong;
} Checks;

/* One pass of an operation. */
typedef struct Pass {
    const char *operation, *name;
    Tensor *out;
    void (*run)(void *context);
    /* Draws indices of results and computes the expected results; at and want have SAMPLES elements. Returns how many
     * indices were drawn. */
    int (*sample)(void *context, int64_t at[SAMPLES], double want[SAMPLES]);
    void *context;
} Pass;

extern Checks checks;

/* name: cpu, emulated or cuda. tunes: the device makes plans if it has libraries; otherwise it uses the plans that it
 * finds. */
void checks_open(const char *name, DataType type, bool tunes);
/* Ends the program if r is an error. */
void checks_must(int r, const Error *err);
void *checks_allocate(size_t n_bytes);
void checks_poison(char *memory, size_t n_bytes);
/* Returns a random number in [0, n). */
int64_t checks_draw(int64_t n);

/* Makes a tensor whose bytes are all 0xff: NaN. */
Tensor tensor_new(int64_t n, DataType type);
/* Makes a random tensor, uniform in [-1, 1): 2^24 different values in fp32, 2^8 in bf16, all exact. */
Tensor tensor_random(int64_t n, DataType type);
/* Takes the tensor as rows of `stride` elements, and sets in each row the elements from, from + period, ... below `to`.
 * bf16 must represent the value exactly. */
void tensor_set(Tensor *t, int64_t stride, int64_t from, int64_t to, int64_t period, float value);
void tensor_free(Tensor *t);
/* Drops the copy on the host. Call it after the device has written the tensor. */
void tensor_forget(Tensor *t);
size_t tensor_bytes(const Tensor *t);
double tensor_value(Tensor *t, int64_t i);

/* Runs the pass twice, compares the results, prints a line, and counts the pass. */
void checks_run(const Pass *p);

void check_attention(const AttentionShape *s, const char *operation);
