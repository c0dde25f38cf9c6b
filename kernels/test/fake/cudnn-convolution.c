/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn-convolution.c - the fake cuDNN's loops: each element of the result is a separate sum, rounded to bf16. */
#include "kernels/test/fake/fake-cudnn.h"

#include <string.h>

static float widen(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static uint16_t narrow(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static int64_t at(const FakeTensor *t, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return a * t->strides[0] + b * t->strides[1] + c * t->strides[2] + d * t->strides[3];
}

/* Returns the sum of n products of elements that are a_stride and b_stride apart. The sum of each block is rounded, as
 * in engines that reduce parts in the type of the result, so that a knob changes bits. */
static float dot(const uint16_t *a, int64_t a_stride, const uint16_t *b, int64_t b_stride,
                 int64_t n, int64_t block)
{
    float sum = 0;
    for (int64_t begin = 0; begin < n; begin += block) {
        float part = 0;
        for (int64_t i = begin; i < n && i < begin + block; i++)
            part += widen(a[i * a_stride]) * widen(b[i * b_stride]);
        sum += block < n ? widen(narrow(part)) : part;
    }
    return sum;
}

/* Returns the row or column of x that output `to` reads at tap `tap`; -1: outside the image. */
static int64_t input_at(const FakeConvolution *c, int axis, int64_t to, int64_t tap)
{
    const int64_t taps = c->w.dimensions[2 + axis];
    const int64_t offset = (c->is_flipped ? taps - 1 - tap : tap) * c->dilations[axis];
    const int64_t from = to * c->strides[axis] - c->pads[axis] + offset;
    return from >= 0 && from < c->x.dimensions[2 + axis] ? from : -1;
}

/* Returns the output to which input `from` contributes at tap `tap`; -1: none. */
static int64_t output_at(const FakeConvolution *c, int axis, int64_t from, int64_t tap)
{
    const int64_t taps = c->w.dimensions[2 + axis];
    const int64_t offset = (c->is_flipped ? taps - 1 - tap : tap) * c->dilations[axis];
    const int64_t to = from + c->pads[axis] - offset;
    if (to < 0 || to % c->strides[axis] != 0 || to / c->strides[axis] >= c->y.dimensions[2 + axis])
        return -1;
    return to / c->strides[axis];
}

static float y_element(const FakeConvolution *c, int64_t n, int64_t k, int64_t p, int64_t q)
{
    float sum = 0;
    for (int64_t r = 0; r < c->w.dimensions[2]; r++)
        for (int64_t s = 0; s < c->w.dimensions[3]; s++) {
            const int64_t h = input_at(c, 0, p, r), w = input_at(c, 1, q, s);
            if (h >= 0 && w >= 0)
                sum += dot(c->x.data + at(&c->x, n, 0, h, w), c->x.strides[1],
                           c->w.data + at(&c->w, k, 0, r, s), c->w.strides[1], c->x.dimensions[1],
                           c->block);
        }
    return sum;
}

static float x_element(const FakeConvolution *c, int64_t n, int64_t i, int64_t h, int64_t w)
{
    float sum = 0;
    for (int64_t r = 0; r < c->w.dimensions[2]; r++)
        for (int64_t s = 0; s < c->w.dimensions[3]; s++) {
            const int64_t p = output_at(c, 0, h, r), q = output_at(c, 1, w, s);
            if (p >= 0 && q >= 0)
                sum += dot(c->y.data + at(&c->y, n, 0, p, q), c->y.strides[1],
                           c->w.data + at(&c->w, 0, i, r, s), c->w.strides[0], c->y.dimensions[1],
                           c->block);
        }
    return sum;
}

static float w_element(const FakeConvolution *c, int64_t k, int64_t i, int64_t r, int64_t s)
{
    double sum = 0; /* double, because the chain contains all pixels */
    for (int64_t n = 0; n < c->y.dimensions[0]; n++)
        for (int64_t p = 0; p < c->y.dimensions[2]; p++)
            for (int64_t q = 0; q < c->y.dimensions[3]; q++) {
                const int64_t h = input_at(c, 0, p, r), w = input_at(c, 1, q, s);
                if (h >= 0 && w >= 0)
                    sum += (double)(widen(c->x.data[at(&c->x, n, i, h, w)]) *
                                    widen(c->y.data[at(&c->y, n, k, p, q)]));
            }
    return (float)sum;
}

const FakeTensor *fake_result(const FakeConvolution *c)
{
    return c->pass == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR         ? &c->y
           : c->pass == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? &c->x
                                                                                     : &c->w;
}

void fake_convolve(const FakeConvolution *c)
{
    const FakeTensor *to = fake_result(c);
    float (*element)(const FakeConvolution *, int64_t, int64_t, int64_t, int64_t) =
        to == &c->y   ? y_element
        : to == &c->x ? x_element
                      : w_element;
    for (int64_t a = 0; a < to->dimensions[0]; a++)
        for (int64_t b = 0; b < to->dimensions[1]; b++)
            for (int64_t d = 0; d < to->dimensions[2]; d++)
                for (int64_t e = 0; e < to->dimensions[3]; e++) {
                    uint16_t *result = to->data + at(to, a, b, d, e);
                    double value = c->alpha * (double)element(c, a, b, d, e);
                    if (c->beta != 0)
                        value += c->beta * (double)widen(*result);
                    *result = narrow((float)value);
                }
}
