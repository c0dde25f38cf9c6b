/* SPDX-License-Identifier: Apache-2.0 */
/* fake-cudnn.h - shared by the parts of the fake libcudnn.so.9.
 *
 * The fake replaces cuDNN's backend API in tests without a GPU. It computes only convolutions, on host memory, by plain
 * loops over the dimensions, strides, pads and dilations of the given descriptors. It is independent of the code under
 * test. The fake refuses everything that the real library refuses: unknown or missing attributes, wrong types and
 * counts, descriptors that are not finalised, sizes that do not fit each other, data that is not aligned.
 *
 * FAKE_CUDNN_FAIL=N makes the N-th execution of the process fail. FAKE_CUDNN_WAVER=PASS:N (forward, data or weight)
 * makes the N-th plan of that pass, in the order of first runs, change a bit in the last element of its result from its
 * second run on: an engine that is not deterministic although its notes say so. With FAKE_CUDNN_NAN=PASS:N that plan
 * writes a NaN into this element in each run.
 * FAKE_CUDNN_USEC=ENGINE:USEC,...: how long engines take by the stream's clock (fake-environment.h);
 *     FAKE_CUDNN_ADDING_USEC: the same for runs that add to the old values.
 *
 * cudnn-descriptors.c stores descriptors and attributes; cudnn-engines.c defines the engines and what they accept;
 * cudnn-convolution.c computes.
 *
 * Ownership: a descriptor holds a reference to each descriptor set in it. A destroyed descriptor is refused wherever it
 *            is used, even if another descriptor still has a reference to it.
 * Units:     elements; alignment and workspace in bytes.
 * Errors:    as cuDNN's; cudnnGetLastErrorString() gives details.
 * Threads:   one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cudnn.h>

enum { FAKE_ATTRIBUTES_MAX = 16 };

typedef struct FakeAttribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t n;
    void *values;
} FakeAttribute;

/* A cudnnBackendDescriptor_t. */
typedef struct FakeDescriptor {
    uint32_t magic;
    cudnnBackendDescriptorType_t type;
    bool is_finalised, is_destroyed;
    int n_references;
    FakeAttribute attributes[FAKE_ATTRIBUTES_MAX];
    int n_attributes;
} FakeDescriptor;

/* Keeps the text for cudnnGetLastErrorString(); returns status. */
cudnnStatus_t fake_refuse(cudnnStatus_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns NULL if the attribute was not set. */
const FakeAttribute *fake_attribute(const FakeDescriptor *d, cudnnBackendAttributeName_t name);
/* The next three functions return values of attributes that were required for finalising. */
int64_t fake_int64(const FakeDescriptor *d, cudnnBackendAttributeName_t name, int64_t i);
double fake_real(const FakeDescriptor *d, cudnnBackendAttributeName_t name); /* float or double */
FakeDescriptor *fake_child(const FakeDescriptor *d, cudnnBackendAttributeName_t name, int64_t i);
cudnnStatus_t fake_set(FakeDescriptor *d, cudnnBackendAttributeName_t name,
                       cudnnBackendAttributeType_t type, int64_t n, const void *values);

/* Drops one reference to the descriptor. */
void fake_drop(FakeDescriptor *d);

/* ---- cudnn-engines.c ---- */

/* Makes the checks of cudnnBackendFinalize(), except for the check that all required attributes are set. */
cudnnStatus_t fake_check(const FakeDescriptor *d);
/* Returns the values of an attribute that a caller may read: the results of heuristics, the notes of an engine, the
 * parts of a configuration, or the workspace of a plan. */
cudnnStatus_t fake_get_found(const FakeDescriptor *d, cudnnBackendAttributeName_t name,
                             cudnnBackendAttributeType_t type, int64_t room, int64_t *n,
                             void *values);

/* ---- cudnn-convolution.c ---- */

typedef struct FakeTensor {
    int64_t dimensions[4], strides[4]; /* n, c, h, w; of a weight k, c, r, s */
    uint16_t *data;                    /* bf16 */
} FakeTensor;

typedef struct FakeConvolution {
    cudnnBackendDescriptorType_t pass;
    FakeTensor x, w, y;
    int64_t pads[2], strides[2], dilations[2];
    bool is_flipped;
    double alpha, beta;
    /* channels in a block: products are summed in blocks, and each sum is rounded to bf16 */
    int64_t block;
} FakeConvolution;

void fake_convolve(const FakeConvolution *convolution);
/* Returns the tensor that the convolution computes. */
const FakeTensor *fake_result(const FakeConvolution *convolution);
