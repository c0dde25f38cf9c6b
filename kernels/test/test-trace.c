/* SPDX-License-Identifier: Apache-2.0 */
/* test-trace.c - tests which kernel is reported as the first one after the last fence that was reached. */
#include "base/test/testing.h"
#include "kernels/cuda/module/trace.h"

static CudaTrace trace;

static void assert_said(const char *text)
{
    char said[160];
    cuda_trace_describe(&trace, said, sizeof(said));
    assert_string_equal(said, text);
}

static void test_trace(void **state)
{
    (void)state;
    assert_said("no launch came after the last fence that was reached");
    cuda_trace_put(&trace, "pack_kernel<T>");
    const uint64_t first = cuda_trace_place(&trace);
    cuda_trace_put(&trace, "norm_kernel<T>");
    cuda_trace_put(&trace, "silu_kernel<T>");
    const uint64_t second = cuda_trace_place(&trace);
    assert_said("after the last fence that was reached came pack_kernel<T>, the 1st of 3 launches");
    cuda_trace_reached(&trace, first);
    assert_said("after the last fence that was reached came norm_kernel<T>, the 1st of 2 launches");
    cuda_trace_reached(&trace, second);
    cuda_trace_reached(&trace, first); /* an older fence is observed later */
    assert_said("no launch came after the last fence that was reached");

    /* The buffer of names wraps around, so the names after a very old fence are lost. */
    for (int i = 0; i < 2 * TRACE_NAMES - 1; i++)
        cuda_trace_put(&trace, "early");
    const uint64_t third = cuda_trace_place(&trace);
    for (int i = 0; i < TRACE_NAMES; i++)
        cuda_trace_put(&trace, i == 0 ? "late" : "later");
    assert_said("24575 launches came after the last fence that was reached");
    cuda_trace_reached(&trace, third);
    assert_said("after the last fence that was reached came late, the 1st of 8192 launches");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_trace)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
