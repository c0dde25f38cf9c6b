/* SPDX-License-Identifier: Apache-2.0 */
/* testing-leaks.h - for tests: a life that is lived again and again leaves no memory behind. It needs no sanitizer, so
 * that a free() that is forgotten is seen by each build.
 *
 * Ownership: none.
 * Units:     bytes.
 * Errors:    fail the test.
 * Threads:   those that a life starts end with it.
 */
#pragma once

#include "base/test/testing.h"

#include <malloc.h>

enum { LEAKS_LIVES = 200, LEAKS_BLOCK = 24 }; /* the smallest block of malloc() is larger */

static inline int64_t leaks_in_use(void)
{
    const struct mallinfo2 info = mallinfo2();
    return (int64_t)(info.uordblks + info.hblkhd);
}

/* The memory that malloc() keeps for itself grows only with the first lives. */
static inline void leaks_none(void (*life)(void *), void *arg)
{
    for (int i = 0; i < LEAKS_LIVES / 10; i++)
        life(arg);
    const int64_t before = leaks_in_use();
    for (int i = 0; i < LEAKS_LIVES; i++)
        life(arg);
    const int64_t grown = leaks_in_use() - before;
    if (grown >= LEAKS_LIVES * LEAKS_BLOCK)
        fail_msg("%d lives left %lld bytes", LEAKS_LIVES, (long long)grown);
}
