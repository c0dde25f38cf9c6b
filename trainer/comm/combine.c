/* SPDX-License-Identifier: Apache-2.0 */
/* combine.c - see combine.h. Compiled with vectorisation: this is the inner loop of every sum. */

#include "trainer/comm/combine.h"

static void sum_u32(uint32_t *restrict into, const uint32_t *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        into[i] += from[i];
}

static void sum_u64(uint64_t *restrict into, const uint64_t *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        into[i] += from[i];
}

static void sum_f32(float *restrict into, const float *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        into[i] += from[i];
}

static void max_u32(uint32_t *restrict into, const uint32_t *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        into[i] = MAX(into[i], from[i]);
}

void combine(CommType type, CommOp op, void *into, const void *from, size_t n)
{
    if (op == COMM_MAX) {
        assert(type == COMM_U32);
        max_u32(into, from, n);
        return;
    }
    switch (type) {
    case COMM_I32: /* unsigned addition wraps, and gives the same bits as signed addition */
    case COMM_U32:
        sum_u32(into, from, n);
        break;
    case COMM_I64:
        sum_u64(into, from, n);
        break;
    case COMM_F32:
        sum_f32(into, from, n);
        break;
    }
}
