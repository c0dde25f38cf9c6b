/* SPDX-License-Identifier: Apache-2.0 */
/* testing-leaks.h - for tests: checks that a function leaks no memory when it runs many times.
 *
 * The check needs no sanitizer, so every build finds a missing free().
 *
 * Ownership: none. Units: bytes. Errors: fail the test.
 * Threads:   threads that the function starts must end before it returns.
 */
#pragma once

#include "base/test/testing.h"

#include <malloc.h>

/* Every block that malloc() allocates has more than LEAKS_BLOCK bytes. */
enum { LEAKS_LIVES = 200, LEAKS_BLOCK = 24, LEAKS_ROUNDS = 4 };

static inline int64_t leaks_in_use(void)
{
    const struct mallinfo2 info = mallinfo2();
    return (int64_t)(info.uordblks + info.hblkhd);
}

/* Fails the test if LEAKS_LIVES runs of life(arg) leave memory allocated, in each of LEAKS_ROUNDS rounds. A leak shows
 * in each round. A round alone may also show blocks that were freed: malloc() counts what a thread keeps for its next
 * allocations as used, and sizes and threads differ a little between runs. The first runs are not counted. */
static inline void leaks_none(void (*life)(void *), void *arg)
{
    int64_t grown = 0;
    for (int i = 0; i < LEAKS_LIVES / 10; i++)
        life(arg);
    for (int round = 0; round < LEAKS_ROUNDS; round++) {
        const int64_t before = leaks_in_use();
        for (int i = 0; i < LEAKS_LIVES; i++)
            life(arg);
        grown = leaks_in_use() - before;
        if (grown < LEAKS_LIVES * LEAKS_BLOCK)
            return;
    }
    fail_msg("%d lives left %lld bytes, and as much in each of %d rounds", LEAKS_LIVES,
             (long long)grown, LEAKS_ROUNDS);
}
