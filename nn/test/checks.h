/* SPDX-License-Identifier: Apache-2.0 */
/* checks.h - what check-operations and its parts share: tensors on the device, and the check of one pass of an
 * operation.
 *
 * Ownership: tensor_new() and tensor_random() give the caller a tensor to tensor_free(); checks_allocate() gives
 *            device memory.
 * Units:     elements.
 * Errors:    a device that fails ends the program with 2.
 * Threads:   the main thread.
 */
#pragma once

#include "kernels/kernels.h"

enum { GRID = 64, SAMPLES = GRID * GRID };

typedef struct Tensor {
    int64_t n;
    DataType type;
    char *device;     /* some bytes behind it stay 0xff */
    const void *host; /* a copy; NULL: not fetched since it was written */
} Tensor;

typedef struct Checks {
    Device *device;
    DataType type;
    double tolerance; /* of the distance, of the norm */
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
    /* Draws results and computes them; want's and at's n are SAMPLES at most. Returns how many. */
    int (*sample)(void *context, int64_t at[SAMPLES], double want[SAMPLES]);
    void *context;
} Pass;

extern Checks checks;

/* cpu, emulated or cuda. tunes: it makes plans, where it has libraries; else it has those that it finds. */
void checks_open(const char *name, DataType type, bool tunes);
/* Ends the program where r is an error. */
void checks_must(int r, const Error *err);
void *checks_allocate(size_t n_bytes);
void checks_poison(char *memory, size_t n_bytes);
/* The next draw below n. */
int64_t checks_draw(int64_t n);

/* All 0xff: NaN. */
Tensor tensor_new(int64_t n, DataType type);
/* Uniform in [-1, 1): of 2^24 values in fp32, of 2^8 in bf16, which holds them all. */
Tensor tensor_random(int64_t n, DataType type);
/* Rows of `stride` elements: sets the first of each group of `period` in [from, to), to a number that bf16 holds. */
void tensor_set(Tensor *t, int64_t stride, int64_t from, int64_t to, int64_t period, float value);
void tensor_free(Tensor *t);
/* It was written: the copy on the host is old. */
void tensor_forget(Tensor *t);
size_t tensor_bytes(const Tensor *t);
double tensor_value(Tensor *t, int64_t i);

/* Runs the pass twice, compares, prints a line, and counts. */
void checks_run(const Pass *p);

void check_attention(const AttentionShape *s, const char *operation);
