/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-cuda-plans.c - shows that a text is refused as a plan set, or gives a set whose canonical text reads as the same
 * set. */
#include "kernels/cuda/plans/plans.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    _cleanup_free_ char *text = memory_bytes(data, n);
    _cleanup_(cuda_plans_freep) CudaPlans *plans = NULL, *again = NULL;
    Error err = ERROR_INIT;
    if (cuda_plans_parse("fuzz", text, &plans, &err) < 0) {
        assert(err.code < 0 && *err.text);
        return 0;
    }
    _cleanup_free_ char *canonical = cuda_plans_text(plans);
    int r = cuda_plans_parse("fuzz", canonical, &again, &err);
    assert(r == 0);
    _cleanup_free_ char *twice = cuda_plans_text(again);
    assert(strcmp(canonical, twice) == 0);
    return 0;
}
