/* SPDX-License-Identifier: Apache-2.0 */
/* test-conv-library.c - tests convolutions in bf16 by cuDNN, against float64, on the emulated device. A fake library
 * computes what its descriptors describe, and refuses what the real library would refuse
 * (kernels/test/fake/fake-cudnn.h). */
#include "base/memory.h"
#include "base/number/philox.h"
#include "base/test/testing.h"
#include "kernels/cuda/convolution/conv-graph.h"
#include "kernels/cuda/convolution/conv-library.h"
#include "kernels/cuda/module/libraries.h"
#include "kernels/test/emulator/emulated.h"
#include "nn/test/testing-sd2.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE_MAX = 3, WEIGHTS_MAX = 2 << 20, GUARD_BYTES = 256, GUARD = 0x5a, TOO_OLD = 91800 };

static const CudaLibraries *libraries;

/* ---- the device, with plans ---- */

static Device *device_open_plain(bool tune)
{
    const DeviceOptions options = {.kind = DEVICE_CPU,
                                   .threads = 1,
                                   .type = DATA_BF16,
                                   .tune = tune};
    Error err = ERROR_INIT;
    Device *device;
    if (emulated_device_open(&options, &device, &err) < 0)
        fail_msg("%s", err.text);
    return device;
}

/* Returns a plan set in which the named engines of the fake compute the passes of the shape; "" leaves a pass out. */
static char *plans_of(const ConvShape *shape, int cudnn, const char *const engines[N_CONV_PASSES])
{
    char *operations = memory_text("");
    for (ConvPass pass = 0; pass < N_CONV_PASSES; pass++) {
        char name[CONV_NAME_MAX];
        _cleanup_free_ char *before = operations;
        conv_pass_name(shape, conv_pads_same(shape), pass, name);
        operations = *engines[pass] ? memory_format("%s%s\"%s\":{%s,\"workspace\":4099}", before,
                                                    *before ? "," : "", name, engines[pass])
                                    : memory_text(before);
    }
    _cleanup_free_ char *all = operations;
    return memory_format("{\"architecture\":\"emulated\",\"cublaslt\":%d,\"cudnn\":%d,\"device\":"
                         "\"emulator\",\"operations\":{%s},\"sms\":1,\"version\":1}",
                         (int)libraries->cublaslt_version, cudnn, all);
}

#define ENGINE_PLAIN "\"engine\":1,\"knobs\":{}"
#define ENGINE_FINE "\"engine\":1,\"knobs\":{\"2\":0}" /* small blocks of sums */
#define ENGINE_COARSE "\"engine\":1,\"knobs\":{\"2\":3}"
#define ENGINE_WORKSPACE "\"engine\":2,\"knobs\":{\"2\":1}"
#define ENGINE_RANDOM "\"engine\":3,\"knobs\":{}"

static const char *const by_workspace[] = {ENGINE_WORKSPACE, ENGINE_WORKSPACE, ENGINE_WORKSPACE};

static Device *device_with(const char *text)
{
    Device *device = device_open_plain(false);
    Error err = ERROR_INIT;
    if (device_use_plans(device, text, &err) < 0)
        fail_msg("%s", err.text);
    return device;
}

/* ---- bf16 memory, with guards behind it ---- */

typedef struct Memory {
    char *bytes;
    size_t n;
} Memory;

static Memory memory_of(size_t n)
{
    Memory m = {aligned_alloc(256, ROUND_UP(n + GUARD_BYTES, (size_t)256)), n};
    assert_non_null(m.bytes);
    memset(m.bytes, GUARD, n + GUARD_BYTES);
    return m;
}

static void memory_drop(Memory *m)
{
    for (size_t i = 0; i < GUARD_BYTES; i++)
        assert_int_equal(m->bytes[m->n + i], GUARD);
    free(m->bytes);
}

static uint16_t bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static float value(const Memory *m, size_t i)
{
    uint16_t half;
    memcpy(&half, m->bytes + 2 * i, 2);
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Returns a small whole number. Sums of such numbers, and so all results, are exact in bf16. n_zeros of 8 numbers are
 * 0. */
static float drawn(uint64_t seed, size_t i, int n_zeros)
{
    const uint32_t word = philox4x32(seed, 0, i).word[0];
    return (int)(word % 8) < n_zeros ? 0 : word & 0x100 ? 1 : -1;
}

static Memory numbers_of(size_t n, uint64_t seed, int n_zeros)
{
    Memory m = memory_of(2 * n);
    for (size_t i = 0; i < n; i++) {
        const uint16_t x = bf16(drawn(seed, i, n_zeros));
        memcpy(m.bytes + 2 * i, &x, 2);
    }
    return m;
}

/* ---- a convolution and its right results ---- */

typedef struct Case {
    Device *device;
    Conv *conv;
    ConvShape s;
    int to_h, to_w;
    size_t n_x, n_y, n_w;
    Memory x, y, dy, packed, workspace, per_image, residual;
    float *w, *bias;
    double *expected_y, *expected_dx, *expected_dw;
} Case;

static void expect(Case *c)
{
    const ConvShape *s = &c->s;
    for (int n = 0; n < s->n; n++)
        for (int p = 0; p < c->to_h * c->to_w; p++)
            for (int tap = 0; tap < s->kernel * s->kernel; tap++) {
                const int row = p / c->to_w * s->stride + tap / s->kernel - s->kernel / 2;
                const int column = p % c->to_w * s->stride + tap % s->kernel - s->kernel / 2;
                if (row < 0 || row >= s->h || column < 0 || column >= s->w)
                    continue;
                const size_t xi = (size_t)((n * s->h + row) * s->w + column) * (size_t)s->c_in;
                const size_t yi = (size_t)(n * c->to_h * c->to_w + p) * (size_t)s->c_out;
                for (int o = 0; o < s->c_out; o++) {
                    const double dy = value(&c->dy, yi + (size_t)o);
                    const float *w =
                        c->w + (size_t)o * (size_t)s->c_in * (size_t)(s->kernel * s->kernel);
                    double *dw = c->expected_dw + (w - c->w), sum = 0;
                    for (int i = 0; i < s->c_in; i++) {
                        const size_t at = (size_t)(i * s->kernel * s->kernel + tap);
                        const double x = value(&c->x, xi + (size_t)i);
                        sum += x * (double)w[at];
                        c->expected_dx[xi + (size_t)i] += dy * (double)w[at];
                        dw[at] += dy * x;
                    }
                    c->expected_y[yi + (size_t)o] += sum;
                }
            }
}

static Case case_new(Device *device, const ConvShape *s)
{
    Error err = ERROR_INIT;
    const int n_zeros = s->c_in * s->c_out > 4096 ? 6 : 2;
    Case c = {.device = device,
              .s = *s,
              .to_h = (s->h - 1) / s->stride + 1,
              .to_w = (s->w - 1) / s->stride + 1};
    if (conv_new(device, s, &c.conv, &err) < 0)
        fail_msg("%s", err.text);
    c.n_x = (size_t)(s->n * s->h * s->w * s->c_in);
    c.n_y = (size_t)(s->n * c.to_h * c.to_w * s->c_out);
    c.n_w = (size_t)(s->c_out * s->c_in * s->kernel * s->kernel);
    c.x = numbers_of(c.n_x, 1, n_zeros);
    c.dy = numbers_of(c.n_y, 2, n_zeros);
    c.per_image = numbers_of((size_t)(s->n * s->c_out), 3, 2);
    c.residual = numbers_of(c.n_y, 4, 2);
    c.y = memory_of(2 * c.n_y);
    c.packed = memory_of(conv_packed_bytes(c.conv));
    c.workspace = memory_of(conv_workspace_bytes(c.conv));
    c.w = memory_zeroed(c.n_w, sizeof(float));
    for (size_t i = 0; i < c.n_w; i++)
        c.w[i] = drawn(5, i, n_zeros);
    c.bias = memory_zeroed((size_t)s->c_out, sizeof(float));
    for (size_t i = 0; i < (size_t)s->c_out; i++)
        c.bias[i] = 2 * drawn(6, i, 2);
    c.expected_y = memory_zeroed(c.n_y, sizeof(double));
    c.expected_dx = memory_zeroed(c.n_x, sizeof(double));
    c.expected_dw = memory_zeroed(c.n_w, sizeof(double));
    expect(&c);
    conv_pack(c.conv, c.w, c.packed.bytes);
    return c;
}

static void case_free(Case *c)
{
    Memory *const all[] = {&c->x,         &c->y,         &c->dy,      &c->packed,
                           &c->workspace, &c->per_image, &c->residual};
    for (size_t i = 0; i < ELEMENTSOF(all); i++)
        memory_drop(all[i]);
    free(c->w);
    free(c->bias);
    free(c->expected_y);
    free(c->expected_dx);
    free(c->expected_dw);
    c->conv = conv_free(c->conv);
}

static void assert_exact(const Case *c, const char *what, const Memory *m, size_t i,
                         double expected)
{
    const ConvShape *s = &c->s;
    if (!(fabs(expected) <= 256))
        fail_msg("%s: %g is more than bf16 holds: the test's numbers are too large", what,
                 expected);
    if ((double)value(m, i) != expected)
        fail_msg("%dx%dx%d %d->%d k%d s%d: %s: element %zu is %g, not %g", s->n, s->h, s->w,
                 s->c_in, s->c_out, s->kernel, s->stride, what, i, (double)value(m, i), expected);
}

static void no_failure(Device *device)
{
    Error err = ERROR_INIT;
    if (device_synchronise(device, &err) < 0)
        fail_msg("%s", err.text);
}

static void check_forward(Case *c, bool biased, bool per_image, bool residual, bool in_place)
{
    const size_t image = (size_t)(c->to_h * c->to_w * c->s.c_out), channels = (size_t)c->s.c_out;
    char what[64];
    (void)snprintf(what, sizeof(what), "y%s%s%s%s", biased ? " + bias" : "",
                   per_image ? " + per image" : "", residual ? " + residual" : "",
                   in_place ? " in place" : "");
    if (in_place)
        memcpy(c->y.bytes, c->residual.bytes, 2 * c->n_y);
    conv_forward(c->conv, c->x.bytes, c->packed.bytes, biased ? c->bias : NULL,
                 per_image ? c->per_image.bytes : NULL,
                 residual ? in_place ? c->y.bytes : c->residual.bytes : NULL, c->y.bytes,
                 c->workspace.bytes);
    no_failure(c->device);
    for (size_t i = 0; i < c->n_y; i++)
        assert_exact(c, what, &c->y, i,
                     c->expected_y[i] + (biased ? (double)c->bias[i % channels] : 0) +
                         (per_image
                              ? (double)value(&c->per_image, i / image * channels + i % channels)
                              : 0) +
                         (residual ? (double)value(&c->residual, i) : 0));
}

static void check_backward_data(Case *c)
{
    for (int add = 0; add < 2; add++) {
        Memory dx = numbers_of(c->n_x, 7, 2);
        conv_backward_data(c->conv, c->dy.bytes, c->w, c->packed.bytes, dx.bytes, add == 1,
                           c->workspace.bytes);
        no_failure(c->device);
        for (size_t i = 0; i < c->n_x; i++)
            assert_exact(c, add ? "dx, added" : "dx", &dx, i,
                         c->expected_dx[i] + (add ? (double)drawn(7, i, 2) : 0));
        memory_drop(&dx);
    }
}

static void check_backward_weight(Case *c)
{
    const GradientForm form = conv_gradient_form(c->conv);
    const GradientPlace place = {.n = (int64_t)c->n_w, .n_tensors = 1};
    const size_t channels = (size_t)c->s.c_out;
    _cleanup_free_ float *dw = memory_zeroed(c->n_w, sizeof(float));
    const GradientSink sink = {.kind = SINK_PLAIN, .to = dw};
    assert_int_equal(form.type, DATA_BF16);
    Memory left = memory_of(gradient_form_bytes(&form)),
           dbias = memory_of(channels * sizeof(float));
    for (int biased = c->n_w < 1 << 16 ? 0 : 1; biased < 2; biased++) {
        conv_backward_weight(c->conv, c->x.bytes, c->dy.bytes, left.bytes,
                             biased ? (float *)(void *)dbias.bytes : NULL, c->workspace.bytes);
        gradient_take(c->device, &form, left.bytes, &place, &sink);
        no_failure(c->device);
        for (size_t i = 0; i < c->n_w; i++)
            if ((double)dw[i] != c->expected_dw[i])
                fail_msg("dw: element %zu is %g, not %g", i, (double)dw[i], c->expected_dw[i]);
    }
    for (size_t o = 0; o < channels; o++) {
        double sum = 0;
        float is;
        for (size_t i = o; i < c->n_y; i += channels)
            sum += (double)value(&c->dy, i);
        memcpy(&is, dbias.bytes + o * sizeof(is), sizeof(is));
        assert_true((double)is == sum);
    }
    memory_drop(&left);
    memory_drop(&dbias);
}

static void check_shape(const ConvShape *shape, const char *const engines[N_CONV_PASSES])
{
    _cleanup_free_ char *text = plans_of(shape, libraries->cudnn_version, engines);
    Device *device = device_with(text);
    Case c = case_new(device, shape);
    check_forward(&c, false, false, false, false);
    check_forward(&c, true, true, true, false);
    if (c.n_w < 1 << 16) {
        check_forward(&c, true, false, false, false);
        check_forward(&c, false, false, true, true);
    }
    check_forward(&c, true, true, true, true);
    check_backward_data(&c);
    check_backward_weight(&c);
    case_free(&c);
    device = device_free(device);
}

/* ---- tests ---- */

/* Convolutions with the channels, kernels and strides of sd2-base give right results on few pixels. The two widest
 * convolutions of sd2-base are left out. */
static void convolutions_of_sd2_base_are_right(void **state)
{
    (void)state;
    _cleanup_(tape_freep) Tape *tape = sd2_tape_new(32, 1);
    ConvShape done[64];
    size_t n_done = 0;
    for (size_t i = 0; i < tape->n_operations; i++) {
        if (strcmp(tape->operations[i].kind->name, "conv") != 0)
            continue;
        ConvShape shape = tape->operations[i].shape.conv;
        if (shape.c_in * shape.c_out > WEIGHTS_MAX)
            continue;
        const bool is_large = shape.c_in * shape.c_out > 1 << 20;
        shape.h = shape.w = MIN(shape.h, is_large ? SIDE_MAX - 1 : SIDE_MAX);
        size_t j = 0;
        while (j < n_done && memcmp(&done[j], &shape, sizeof(shape)) != 0)
            j++;
        if (j < n_done)
            continue;
        assert_true(n_done < ELEMENTSOF(done));
        done[n_done++] = shape;
        check_shape(&shape, by_workspace);
    }
    assert_int_equal(n_done, 15);
}

/* Convolutions whose sides and channels are not multiples of a block give right results, also with several images, and
 * with kernels of 1x1. */
static void awkward_convolutions_are_right(void **state)
{
    (void)state;
    static const ConvShape shapes[] = {{1, 1, 1, 1, 1, 3, 1},   {2, 5, 7, 3, 5, 3, 1},
                                       {3, 4, 6, 17, 33, 3, 2}, {2, 7, 5, 9, 24, 3, 2},
                                       {2, 6, 6, 5, 18, 1, 1},  {2, 3, 5, 40, 8, 1, 2},
                                       {4, 9, 2, 8, 16, 3, 1},  {2, 12, 10, 4, 8, 3, 1}};
    static const char *const plain[] = {ENGINE_PLAIN, ENGINE_PLAIN, ENGINE_PLAIN};
    for (size_t i = 0; i < ELEMENTSOF(shapes); i++)
        check_shape(&shapes[i], i % 2 ? plain : by_workspace);
}

static const ConvShape small = {2, 6, 6, 64, 16, 3, 1};

/* Returns the bytes of y for inputs whose sums are not exact. */
static Memory forward_of(const char *engine)
{
    const char *const engines[] = {engine, ENGINE_PLAIN, ENGINE_PLAIN};
    _cleanup_free_ char *text = plans_of(&small, libraries->cudnn_version, engines);
    Device *device = device_with(text);
    Case c = case_new(device, &small);
    for (size_t i = 0; i < c.n_x; i++) {
        const uint16_t x = bf16(philox_uniform(philox4x32(8, 0, i).word[0]) - 0.5f);
        memcpy(c.x.bytes + 2 * i, &x, 2);
    }
    for (size_t i = 0; i < c.n_w; i++)
        c.w[i] = philox_uniform(philox4x32(9, 0, i).word[0]) - 0.5f;
    conv_pack(c.conv, c.w, c.packed.bytes);
    Memory y = memory_of(2 * c.n_y);
    conv_forward(c.conv, c.x.bytes, c.packed.bytes, NULL, NULL, NULL, y.bytes, c.workspace.bytes);
    no_failure(device);
    case_free(&c);
    device = device_free(device);
    return y;
}

static void plans_decide_the_bits(void **state)
{
    (void)state;
    Memory fine = forward_of(ENGINE_FINE), again = forward_of(ENGINE_FINE),
           coarse = forward_of(ENGINE_COARSE);
    assert_memory_equal(fine.bytes, again.bytes, fine.n);
    assert_memory_not_equal(fine.bytes, coarse.bytes, fine.n);
    double distance = 0, norm = 0;
    for (size_t i = 0; i < fine.n / 2; i++) {
        distance += pow((double)value(&fine, i) - (double)value(&coarse, i), 2);
        norm += pow((double)value(&fine, i), 2);
    }
    assert_true(sqrt(distance) < 2e-2 * sqrt(norm));
    memory_drop(&fine);
    memory_drop(&again);
    memory_drop(&coarse);
}

static void assert_refused(const char *const engines[N_CONV_PASSES], int r, const char *a,
                           const char *b)
{
    _cleanup_free_ char *text = plans_of(&small, libraries->cudnn_version, engines);
    Device *device = device_with(text);
    Conv *conv = NULL;
    Error err = ERROR_INIT;
    assert_int_equal(conv_new(device, &small, &conv, &err), r);
    assert_null(conv);
    if (!strstr(err.text, a) || !strstr(err.text, b))
        fail_msg("neither \"%s\" nor \"%s\": %s", a, b, err.text);
    device = device_free(device);
}

#define SMALL "conv bf16 n2 6x6 64->16 k3 s1 "

static void what_plans_lack_or_may_not_have_is_refused(void **state)
{
    (void)state;
    static const char *const lacking[] = {ENGINE_PLAIN, "", ENGINE_PLAIN};
    assert_refused(lacking, -ENOENT, SMALL "backward_data", "sdtrainer plan");
    static const char *const random[] = {ENGINE_PLAIN, ENGINE_PLAIN, ENGINE_RANDOM};
    assert_refused(random, -EINVAL, SMALL "backward_weight", "the same bits each time");
    static const char *const unknown[] = {"\"engine\":9,\"knobs\":{}", ENGINE_PLAIN, ENGINE_PLAIN};
    assert_refused(unknown, -EINVAL, SMALL "forward", "engine 9");
    static const char *const knob[] = {ENGINE_PLAIN, "\"engine\":2,\"knobs\":{\"7\":0}",
                                       ENGINE_PLAIN};
    assert_refused(knob, -EINVAL, SMALL "backward_data", "knob 7");
    static const char *const turned[] = {ENGINE_PLAIN, "\"engine\":2,\"knobs\":{\"2\":4}",
                                         ENGINE_PLAIN};
    assert_refused(turned, -EINVAL, SMALL "backward_data", "knob 2 cannot be 4");

    _cleanup_free_ char *older = plans_of(&small, TOO_OLD, by_workspace);
    Device *device = device_open_plain(false);
    Error err = ERROR_INIT;
    assert_int_equal(device_use_plans(device, older, &err), -EPROTO);
    assert_non_null(strstr(err.text, "91800"));
    device = device_free(device);
}

static void a_forward_alone_needs_no_other_plan(void **state)
{
    (void)state;
    static const char *const engines[] = {ENGINE_PLAIN, "", ""};
    assert_refused(engines, -ENOENT, SMALL "backward_data", "sdtrainer plan");
    _cleanup_free_ char *text = plans_of(&small, libraries->cudnn_version, engines);
    Device *device = device_with(text);
    ConvShape shape = small;
    Conv *conv;
    Error err = ERROR_INIT;
    shape.forward_only = true;
    if (conv_new(device, &shape, &conv, &err) < 0)
        fail_msg("%s", err.text);
    conv = conv_free(conv);
    device = device_free(device);
}

/* An error that the library reports while it runs becomes the device's error, from then on. */
static void a_failing_run_breaks_the_device(void **state)
{
    (void)state;
    _cleanup_free_ char *text = plans_of(&small, libraries->cudnn_version, by_workspace);
    Device *device = device_with(text);
    Case c = case_new(device, &small);
    assert_int_equal(setenv("FAKE_CUDNN_FAIL", "1", 1), 0);
    conv_forward(c.conv, c.x.bytes, c.packed.bytes, NULL, NULL, NULL, c.y.bytes, c.workspace.bytes);
    assert_int_equal(unsetenv("FAKE_CUDNN_FAIL"), 0);
    for (int i = 0; i < 2; i++) {
        Error err = ERROR_INIT;
        assert_int_equal(device_synchronise(device, &err), -EIO);
        if (!strstr(err.text, SMALL "forward") || !strstr(err.text, "EXECUTION_FAILED") ||
            !strstr(err.text, "emulator"))
            fail_msg("%s", err.text);
        conv_forward(c.conv, c.x.bytes, c.packed.bytes, NULL, NULL, NULL, c.y.bytes,
                     c.workspace.bytes);
    }
    case_free(&c);
    device = device_free(device);

    device = device_with(text); /* tensors that begin 8 bytes after a boundary are refused, too */
    c = case_new(device, &small);
    conv_forward(c.conv, c.x.bytes + 8, c.packed.bytes, NULL, NULL, NULL, c.y.bytes,
                 c.workspace.bytes);
    Error err = ERROR_INIT;
    assert_int_equal(device_synchronise(device, &err), -EIO);
    assert_non_null(strstr(err.text, "aligned"));
    case_free(&c);
    device = device_free(device);
}

/* A device that makes plans chooses the fastest deterministic engine, and the set with this engine gives the same bits
 * on another device. */
static void a_device_that_makes_plans_takes_what_is_deterministic(void **state)
{
    (void)state;
    Device *device = device_open_plain(true);
    Case c = case_new(device, &small);
    check_forward(&c, true, true, true, false);
    check_backward_data(&c);
    check_backward_weight(&c);
    case_free(&c);
    char *text;
    assert_int_equal(device_plans(device, &text), 0);
    for (ConvPass pass = 0; pass < N_CONV_PASSES; pass++) {
        char name[CONV_NAME_MAX];
        conv_pass_name(&small, conv_pads_same(&small), pass, name);
        _cleanup_free_ char *entry =
            memory_format("\"%s\":{%s\"engine\":2,\"knobs\":{\"2\":1},"
                          "\"variant\":\"plain\",\"workspace\":4099}",
                          name, pass == CONV_BACKWARD_WEIGHT ? "\"dw\":\"bf16\"," : "");
        if (!strstr(text, entry))
            fail_msg("no %s in %s", entry, text);
    }
    device = device_free(device);
    device = device_with(text);
    free(text);
    c = case_new(device, &small);
    check_forward(&c, true, true, true, false);
    case_free(&c);
    device = device_free(device);
}

/* An engine that is fast where it overwrites, but slow where it adds, is not chosen as the fastest. */
static void the_time_of_what_adds_counts(void **state)
{
    (void)state;
    static const char engine[] = "\"engine\":1,", other[] = "\"engine\":2,";
    assert_int_equal(setenv("FAKE_CUDNN_ADDING_USEC", "1:4500,2:9000", 1), 0);
    Device *device = device_open_plain(true);
    Case c = case_new(device, &small);
    assert_int_equal(unsetenv("FAKE_CUDNN_ADDING_USEC"), 0);
    _cleanup_free_ char *text = NULL;
    assert_int_equal(device_plans(device, &text), 0);
    for (ConvPass pass = 0; pass < N_CONV_PASSES; pass++) {
        char name[CONV_NAME_MAX];
        conv_pass_name(&small, conv_pads_same(&small), pass, name);
        const char *at = strstr(text, name);
        assert_non_null(at);
        at = strstr(at, "\"engine\":");
        const char *wanted = pass == CONV_BACKWARD_WEIGHT ? other : engine;
        if (!at || strncmp(at, wanted, strlen(wanted)) != 0)
            fail_msg("%s: no %s in %s", name, wanted, text);
    }
    case_free(&c);
    device = device_free(device);
}

/* No library computes in fp32, whatever plans there are. */
static void fp32_is_plain(void **state)
{
    (void)state;
    const DeviceOptions options = {.kind = DEVICE_CPU, .threads = 1, .type = DATA_F32};
    Error err = ERROR_INIT;
    Device *device;
    Conv *conv;
    assert_int_equal(emulated_device_open(&options, &device, &err), 0);
    assert_int_equal(conv_new(device, &small, &conv, &err), 0);
    assert_int_equal(conv_workspace_bytes(conv), 0);
    assert_int_equal(conv_gradient_form(conv).type, DATA_F32);
    conv = conv_free(conv);
    device = device_free(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_of_sd2_base_are_right),
        cmocka_unit_test(awkward_convolutions_are_right),
        cmocka_unit_test(plans_decide_the_bits),
        cmocka_unit_test(what_plans_lack_or_may_not_have_is_refused),
        cmocka_unit_test(a_forward_alone_needs_no_other_plan),
        cmocka_unit_test(a_failing_run_breaks_the_device),
        cmocka_unit_test(a_device_that_makes_plans_takes_what_is_deterministic),
        cmocka_unit_test(the_time_of_what_adds_counts),
        cmocka_unit_test(fp32_is_plain),
    };
    Error err = ERROR_INIT;
    if (setenv("SDTRAIN_CUDA_LIBRARIES", FAKES, 1) != 0 ||
        cuda_libraries_open(&libraries, &err) < 0) {
        print_error("%s\n", err.text);
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
