/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c - see trace.h. */
#include "kernels/cuda/module/trace.h"

#include <inttypes.h>
#include <stdio.h>

void cuda_trace_put(CudaTrace *t, const char *name)
{
    const uint64_t place = atomic_load_explicit(&t->n_put, memory_order_relaxed);
    atomic_store_explicit(&t->names[place % TRACE_NAMES], name, memory_order_relaxed);
    atomic_store_explicit(&t->n_put, place + 1, memory_order_release);
}

uint64_t cuda_trace_place(const CudaTrace *t)
{
    return atomic_load_explicit(&t->n_put, memory_order_acquire);
}

void cuda_trace_reached(CudaTrace *t, uint64_t place)
{
    uint64_t before = atomic_load_explicit(&t->reached, memory_order_relaxed);
    while (before < place && !atomic_compare_exchange_weak(&t->reached, &before, place))
        ;
}

void cuda_trace_describe(const CudaTrace *t, char *ret, size_t size)
{
    const uint64_t n_put = cuda_trace_place(t), reached = atomic_load(&t->reached);
    const uint64_t n = n_put - reached;
    if (n == 0)
        (void)snprintf(ret, size, "no launch came after the last fence that was reached");
    else if (n > TRACE_NAMES)
        (void)snprintf(ret, size, "%" PRIu64 " launches came after the last fence that was reached",
                       n);
    else
        (void)snprintf(ret, size,
                       "after the last fence that was reached came %.80s, the 1st of %" PRIu64
                       " launches",
                       atomic_load_explicit(&t->names[reached % TRACE_NAMES], memory_order_relaxed),
                       n);
}
