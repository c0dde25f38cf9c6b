/* SPDX-License-Identifier: Apache-2.0 */
/* fake-cudnn.h - what the parts of the fake libcudnn.so.9 share.
 *
 * The fake stands for cuDNN's backend API in tests without a GPU: only convolutions, on host memory, by plain loops
 * over the dimensions, strides, pads and dilations of the descriptors that it is handed. It knows nothing of the code
 * that it tests. The fake refuses all that the real library refuses: unknown or missing attributes, wrong types and
 * counts, descriptors that are not finalised, sizes that do not fit each other, data that is not aligned.
 *
 * FAKE_CUDNN_FAIL=N makes the N-th execution of the process fail. FAKE_CUDNN_WAVER=PASS:N (forward, data or weight)
 * makes the N-th plan of that pass, counted as they are first run, leave another bit in the last element of its result
 * from its second run on: an engine that is not deterministic though its notes say so. With FAKE_CUDNN_NAN=PASS:N it
 * leaves a NaN there in each run.
 * FAKE_CUDNN_USEC=ENGINE:USEC,...: how long engines take by the stream's clock (fake-environment.h);
 *     FAKE_CUDNN_ADDING_USEC: where they add to what is there.
 *
 * cudnn-descriptors.c keeps descriptors and attributes; cudnn-engines.c defines which engines there are and what they
 * accept; cudnn-convolution.c computes.
 *
 * Ownership: a descriptor holds a reference to those that it was given. One that was destroyed is refused where it is
 *            used, even if another still holds it.
 * Units:     elements; alignment and workspace in bytes.
 * Errors:    as cuDNN's; cudnnGetLastErrorString() says more.
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

/* NULL: it was not set. */
const FakeAttribute *fake_attribute(const FakeDescriptor *d, cudnnBackendAttributeName_t name);
/* The next three return values of attributes that finalising required. */
int64_t fake_int64(const FakeDescriptor *d, cudnnBackendAttributeName_t name, int64_t i);
double fake_real(const FakeDescriptor *d, cudnnBackendAttributeName_t name); /* float or double */
FakeDescriptor *fake_child(const FakeDescriptor *d, cudnnBackendAttributeName_t name, int64_t i);
cudnnStatus_t fake_set(FakeDescriptor *d, cudnnBackendAttributeName_t name,
                       cudnnBackendAttributeType_t type, int64_t n, const void *values);

/* Gives up one reference to it. */
void fake_drop(FakeDescriptor *d);

/* ---- cudnn-engines.c ---- */

/* Checks all that finalising looks at beyond the presence of attributes. */
cudnnStatus_t fake_check(const FakeDescriptor *d);
/* Returns attributes that are not set but found. */
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
    int64_t
        block; /* products are summed in blocks of so many channels, and each sum is rounded to bf16 */
} FakeConvolution;

void fake_convolve(const FakeConvolution *convolution);
/* Returns the tensor that the convolution computes. */
const FakeTensor *fake_result(const FakeConvolution *convolution);
