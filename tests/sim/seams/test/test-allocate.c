/* SPDX-License-Identifier: Apache-2.0 */
/* test-allocate.c - the allocator of sim: blocks keep their content, do not overlap, and are reused
 * after they are freed. */
#include "base/number/philox.h"

#include <errno.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCKS = 500, STEPS = 40000, BYTES_MAX = 300000 };

static struct {
    unsigned char *bytes;
    size_t n;
    unsigned char mark;
} blocks[BLOCKS];

static void check(size_t i)
{
    for (size_t k = 0; k < blocks[i].n; k++)
        assert_int_equal(blocks[i].bytes[k], blocks[i].mark);
}

static void keep(size_t i, void *bytes, size_t n, unsigned mark)
{
    assert_non_null(bytes);
    assert_int_equal((size_t)bytes % 16, 0);
    assert_true(malloc_usable_size(bytes) >= n);
    blocks[i].bytes = bytes;
    blocks[i].n = n;
    blocks[i].mark = (unsigned char)mark;
    memset(bytes, (int)(unsigned char)mark, malloc_usable_size(bytes));
}

/* For random sizes in random order, no block changes another block, and realloc() keeps the content. */
static void stay_apart(void **state)
{
    (void)state;
    for (uint64_t step = 0; step < STEPS; step++) {
        const Philox draw = philox4x32(1, 0, step);
        const size_t i = draw.word[0] % BLOCKS, most = draw.word[1] % 50 ? 2000 : BYTES_MAX;
        const size_t n = draw.word[2] % most;
        check(i);
        if (draw.word[3] % 3 == 0) {
            unsigned char *bytes = realloc(blocks[i].bytes, n + 1);
            for (size_t k = 0; k < n + 1 && k < blocks[i].n; k++)
                assert_int_equal(bytes[k], blocks[i].mark);
            keep(i, bytes, n + 1, (unsigned)step);
            continue;
        }
        free(blocks[i].bytes);
        if (draw.word[3] % 3 == 1) {
            keep(i, malloc(n), n, (unsigned)step);
            continue;
        }
        unsigned char *bytes = calloc(n, 1);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(bytes[k], 0);
        keep(i, bytes, n, (unsigned)step);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        check(i);
        free(blocks[i].bytes);
    }
}

static void gives_again(void **state)
{
    (void)state;
    for (size_t n = 1; n < 5000000; n = n * 3 / 2 + 1) {
        void *first = malloc(n);
        assert_non_null(first);
        free(first);
        void *second = malloc(n);
        assert_ptr_equal(second, first);
        free(second);
    }
}

static void refuses(void **state)
{
    (void)state;
    /* volatile, so that compilers do not warn that the size is too large */
    volatile size_t much = SIZE_MAX / 2 + 1;
    void *p = NULL;
    assert_null(malloc(much));
    assert_int_equal(errno, ENOMEM);
    assert_null(calloc(much, 2));
    assert_int_equal(posix_memalign(&p, 4096, 1), ENOMEM);
    assert_int_equal(posix_memalign(&p, 16, 1), 0);
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stay_apart),
        cmocka_unit_test(gives_again),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
