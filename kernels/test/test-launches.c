/* SPDX-License-Identifier: Apache-2.0 */
/* test-launches.c - tests what device_time_launches() reports of kernels and, with the libraries that compute on the
 * host, of the libraries' operations: names that outlive their objects, bytes, floating-point operations and times. */
#include "base/test/testing.h"
#include "kernels/test/emulator/emulated.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 16, IN = 32, OUT = 48, BYTES = 1 << 16, LAUNCHES_MAX = 64 };

static bool by_library(void) { return getenv("SDTRAIN_CUDA_LIBRARIES") != NULL; }

static Device *open_device(void)
{
    const DeviceOptions options = {.kind = DEVICE_CUDA,
                                   .threads = 1,
                                   .type = DATA_BF16,
                                   .tune = by_library()};
    Device *device;
    Error err = ERROR_INIT;
    if (emulated_device_open(&options, &device, &err) < 0)
        fail_msg("%s", err.text);
    return device;
}

static void *memory_of(Device *device)
{
    void *memory;
    Error err = ERROR_INIT;
    assert_int_equal(device_allocate(device, BYTES, &memory, &err), 0);
    return memory;
}

static void time_launches(Device *device, size_t n_max)
{
    Error err = ERROR_INIT;
    if (device_time_launches(device, n_max, &err) < 0)
        fail_msg("%s", err.text);
}

static const DeviceLaunch *read_launches(Device *device)
{
    Error err = ERROR_INIT;
    const DeviceLaunch *launches;
    if (device_read_launches(device, &launches, &err) < 0)
        fail_msg("%s", err.text);
    return launches;
}

static void assert_launch(const DeviceLaunch *l, const char *name, double bytes, double flop)
{
    assert_non_null(strstr(l->name, name));
    assert_float_equal(l->bytes, bytes, 0);
    assert_float_equal(l->flop, flop, 0);
    assert_true(l->usec >= 0 && l->usec < 1e8);
}

static void kernels_are_timed_while_they_are_asked_for(void **unused)
{
    (void)unused;
    Device *device = open_device();
    Error err = ERROR_INIT;
    const DeviceLaunch *none;
    void *x = memory_of(device), *y = memory_of(device);
    silu_forward(device, ROWS, x, y);
    assert_int_equal(device_timed_launches(device), 0);
    assert_int_equal(device_read_launches(device, &none, &err), -EINVAL);

    time_launches(device, 2);
    silu_forward(device, ROWS, x, y);
    assert_int_equal(device_timed_launches(device), 1);
    accumulate(device, ROWS, x, y);
    assert_int_equal(device_timed_launches(device), 2);
    const DeviceLaunch *launches = read_launches(device);
    assert_launch(&launches[0], "silu_forward_kernel", 0, 0);
    assert_launch(&launches[1], "accumulate_kernel", 0, 0);
    silu_forward(device, ROWS, x, y); /* one launch more than requested */
    assert_int_equal(device_timed_launches(device), 2);
    assert_int_equal(device_read_launches(device, &none, &err), -ENOSPC);

    time_launches(device, 1); /* timing starts again */
    assert_int_equal(device_timed_launches(device), 0);
    accumulate(device, ROWS, x, y);
    assert_launch(read_launches(device), "accumulate_kernel", 0, 0);
    time_launches(device, 0);
    silu_forward(device, ROWS, x, y);
    assert_int_equal(device_timed_launches(device), 0);
    time_launches(device, 1); /* freeing the device also frees the memory of the timing */
    device_release(device, x);
    device_release(device, y);
    (void)device_free(device);
}

/* Launches of a linear layer are reported, also those of column sums, which run in clusters of blocks. */
static void test_linear(void **unused)
{
    (void)unused;
    const LinearShape shape = {ROWS, IN, OUT};
    Device *device = open_device();
    Error err = ERROR_INIT;
    Linear *linear;
    if (linear_new(device, &shape, &linear, &err) < 0)
        fail_msg("%s", err.text);
    void *x = memory_of(device), *w = memory_of(device), *packed = memory_of(device);
    void *y = memory_of(device), *bias = memory_of(device), *workspace = NULL;
    assert_int_equal(device_allocate(device, linear_workspace_bytes(linear) + 1, &workspace, &err),
                     0);
    time_launches(device, LAUNCHES_MAX);
    linear_forward(linear, x, w, packed, NULL, NULL, y, workspace);
    const size_t n_forward = device_timed_launches(device);
    linear_backward_data(linear, y, w, packed, x, false, workspace);
    const size_t n_data = device_timed_launches(device);
    linear_backward_weight(linear, x, y, w, bias, workspace);
    const size_t n = device_timed_launches(device);
    (void)linear_free(linear); /* the launches' names stay valid */

    const DeviceLaunch *l = read_launches(device);
    const double flop = 2.0 * ROWS * IN * OUT, halves = 2.0 * (ROWS * IN + IN * OUT + ROWS * OUT);
    if (by_library()) {
        assert_int_equal(n_forward, 1);
        assert_int_equal(n_data, 2);
        assert_launch(&l[0], "linear bf16 16x32->48 forward", halves, flop);
        assert_launch(&l[1], "linear bf16 16x32->48 backward_data", halves, flop);
        assert_launch(&l[2], "linear bf16 16x32->48 backward_weight", halves + 2.0 * IN * OUT,
                      flop);
    } else {
        for (size_t i = 0; i < n; i++)
            assert_launch(&l[i], "kernel", 0, 0);
    }
    assert_true(n > n_data + 1);
    assert_launch(&l[n - 1], "column_sums_kernel", 0, 0);
    void *const all[] = {x, w, packed, y, bias, workspace};
    for (size_t i = 0; i < ELEMENTSOF(all); i++)
        device_release(device, all[i]);
    (void)device_free(device);
}

static void test_convolution(void **unused)
{
    (void)unused;
    const ConvShape shape = {2, 5, 4, 16, 8, 3, 2}; /* y has 3 x 2 pixels */
    const double x_bytes = 2.0 * 2 * 5 * 4 * 16, y_bytes = 2.0 * 2 * 3 * 2 * 8,
                 w_bytes = 2.0 * 9 * 128;
    const double flop = 2.0 * (2 * 3 * 2) * 9 * 128;
    if (!by_library())
        skip();
    Device *device = open_device();
    Error err = ERROR_INIT;
    Conv *conv;
    if (conv_new(device, &shape, &conv, &err) < 0)
        fail_msg("%s", err.text);
    void *x = memory_of(device), *packed = memory_of(device), *y = memory_of(device), *workspace;
    assert_int_equal(device_allocate(device, conv_workspace_bytes(conv) + 1, &workspace, &err), 0);
    time_launches(device, LAUNCHES_MAX);
    conv_forward(conv, x, packed, NULL, NULL, NULL, y, workspace);
    conv_forward(conv, x, packed, NULL, NULL, y, y, workspace); /* y is read, too */
    conv_backward_data(conv, y, NULL, packed, x, false, workspace);
    conv_backward_data(conv, y, NULL, packed, x, true, workspace); /* dx is read, too */
    conv_backward_weight(conv, x, y, packed, NULL, workspace);
    assert_int_equal(device_timed_launches(device), 5);
    const DeviceLaunch *l = read_launches(device);
    const double all = x_bytes + y_bytes + w_bytes;
    assert_launch(&l[0], "forward", all, flop);
    assert_launch(&l[1], "forward", all + y_bytes, flop);
    assert_launch(&l[2], "backward_data", all, flop);
    assert_launch(&l[3], "backward_data", all + x_bytes, flop);
    assert_launch(&l[4], "backward_weight", all, flop);
    assert_ptr_equal(l[0].name, l[1].name);
    void *const memory[] = {x, packed, y, workspace};
    for (size_t i = 0; i < ELEMENTSOF(memory); i++)
        device_release(device, memory[i]);
    (void)conv_free(conv);
    (void)device_free(device);
}

/* ---- the kernels that GroupNorm chooses, which its bits do not show ---- */

typedef struct Ways {
    GroupNormShape shape;
    size_t offset; /* distance in bytes of the tensors from a pack's boundary */
    const char *launches[8];
} Ways;

#define HELD_FORWARD "group_held_forward_kernel"
#define READ_TWICE "group_parts_kernel", "group_moments_kernel", "group_normalise_kernel"
#define HELD_BACKWARD "group_held_backward_kernel", "norm_parameters_kernel"
#define SLOPES_READ_TWICE                                                                          \
    "group_slopes_kernel", "group_means_kernel", "group_backward_kernel", "norm_parameters_kernel"

static void check_ways(const Ways *ways)
{
    enum { X, Y, DY, DX, GAMMA, BETA, DGAMMA, DBETA, SAVED, SPACE, N_BUFFERS };
    const GroupNormShape *s = &ways->shape;
    Device *device = open_device();
    Error err = ERROR_INIT;
    char *b[N_BUFFERS];
    const size_t tensor = (size_t)(s->n * s->h * s->w * s->c) * 2 + ways->offset;
    for (int i = 0; i < N_BUFFERS; i++) {
        const size_t n_bytes = i == SPACE   ? group_norm_workspace_bytes(device, s)
                               : i <= DX    ? tensor
                               : i == SAVED ? (size_t)(s->n * s->groups) * 8
                                            : (size_t)s->c * 4;
        void *memory;
        assert_int_equal(device_allocate(device, n_bytes, &memory, &err), 0);
        memset(memory, 0, n_bytes);
        b[i] = memory;
    }
    char *x = b[X] + ways->offset, *y = b[Y] + ways->offset;
    char *dy = b[DY] + ways->offset, *dx = b[DX] + ways->offset;
    time_launches(device, LAUNCHES_MAX);
    group_norm_forward(device, s, x, NULL, (float *)b[GAMMA], (float *)b[BETA], y,
                       (float *)b[SAVED]);
    group_norm_backward(device, s, x, NULL, (float *)b[GAMMA], (float *)b[BETA], (float *)b[SAVED],
                        dy, dx, false, NULL, false, (float *)b[DGAMMA], (float *)b[DBETA],
                        b[SPACE]);
    const size_t n = device_timed_launches(device);
    const DeviceLaunch *l = read_launches(device);
    for (size_t i = 0; i < n; i++)
        if (i >= ELEMENTSOF(ways->launches) || !ways->launches[i] ||
            !strstr(l[i].name, ways->launches[i]))
            fail_msg("%dx%dx%d: launch %zu is %s", s->h, s->w, s->c, i, l[i].name);
    assert_true(n > 0 && (n == ELEMENTSOF(ways->launches) || !ways->launches[n]));
    for (int i = 0; i < N_BUFFERS; i++)
        device_release(device, b[i]);
    (void)device_free(device);
}

static void group_norms_are_read_once_where_they_fit(void **unused)
{
    (void)unused;
    static const Ways ways[] = {
        {{1, 64, 64, 320, 32, 1e-5, true}, 0, {HELD_FORWARD, HELD_BACKWARD}},
        {{1, 16, 16, 2560, 32, 1e-5, true}, 0, {HELD_FORWARD, HELD_BACKWARD}},
        {{1, 4, 4, 1280, 32, 1e-6, false}, 0, {HELD_FORWARD, HELD_BACKWARD}},
        /* a group has as many pixels and channels as in sd2-base at 64 x 64 with 960 channels in 32 groups */
        {{1, 64, 64, 120, 4, 1e-5, true}, 0, {HELD_FORWARD, SLOPES_READ_TWICE}},
        {{1, 140, 140, 40, 1, 1e-5, true}, 0, {READ_TWICE, SLOPES_READ_TWICE}},
        {{1, 9, 9, 320, 32, 1e-5, true},
         2,
         {READ_TWICE, SLOPES_READ_TWICE}}, /* unaligned: no packs */
    };
    for (size_t i = 0; i < ELEMENTSOF(ways); i++)
        check_ways(&ways[i]);
}

static void a_cpu_has_none(void **unused)
{
    (void)unused;
    const DeviceOptions options = {.kind = DEVICE_CPU, .threads = 1};
    Device *device;
    Error err = ERROR_INIT;
    const DeviceLaunch *none;
    assert_int_equal(device_open(&options, &device, &err), 0);
    assert_int_equal(device_time_launches(device, 1, &err), -ENOTSUP);
    assert_int_equal(device_time_launches(device, 0, &err), 0);
    assert_int_equal(device_timed_launches(device), 0);
    assert_int_equal(device_read_launches(device, &none, &err), -ENOTSUP);
    assert_int_equal(device_time_graph(device, NULL, NULL, 1, NULL, NULL, &err), -ENOTSUP);
    (void)device_free(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_are_timed_while_they_are_asked_for),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_convolution),
        cmocka_unit_test(group_norms_are_read_once_where_they_fit),
        cmocka_unit_test(a_cpu_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
