/* SPDX-License-Identifier: Apache-2.0 */
/* launch-times.c - see launch-times.h. */
#include "kernels/cuda/module/launch-times.h"

#include <stdlib.h>

int cuda_times_begin(CudaTimes *t, size_t n_max, Error *err)
{
    free(t->launches);
    *t = (CudaTimes){0};
    if (n_max == 0)
        return 0;
    t->launches = calloc(n_max, sizeof(*t->launches));
    if (!t->launches)
        return error_set(err, -ENOMEM, "no memory for the times of %zu launches", n_max);
    t->n_max = n_max;
    return 0;
}

size_t cuda_times_put(CudaTimes *t, const CudaWork *work)
{
    if (!t->launches)
        return 0;
    if (t->n == t->n_max) {
        t->has_more = true;
        return 0;
    }
    t->launches[t->n] =
        (DeviceLaunch){.name = work->name, .bytes = work->bytes, .flop = work->flop};
    return ++t->n;
}

int cuda_times_check(const CudaTimes *t, Error *err)
{
    if (!t->launches)
        return error_set(err, -EINVAL, "no launch was timed");
    return t->has_more ? error_set(err, -ENOSPC,
                                   "there were more launches than the %zu to be timed", t->n_max)
                       : 0;
}
