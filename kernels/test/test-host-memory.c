/* SPDX-License-Identifier: Apache-2.0 */
/* test-host-memory.c - shows that memory for page-locking is zeroed, begins at a page, is present before the first
 * write, and is unmapped when it is freed. */
#include "base/macro.h"
#include "base/test/testing.h"
#include "kernels/cuda/module/host-memory.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Returns how many pages of the memory are present. */
static size_t present(void *memory, size_t n_bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), n = (n_bytes + page - 1) / page;
    unsigned char *pages = calloc(n, 1);
    size_t found = 0;
    assert_non_null(pages);
    assert_int_equal(mincore(memory, n_bytes, pages), 0);
    for (size_t i = 0; i < n; i++)
        found += pages[i] & 1;
    free(pages);
    return found;
}

static void check(size_t n_bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *memory;
    assert_int_equal(host_memory_new(n_bytes, &memory), 0);
    assert_int_equal((uintptr_t)memory % page, 0);
    assert_int_equal(present(memory, n_bytes), (n_bytes + page - 1) / page);
    const char *bytes = memory;
    for (size_t i = 0; i < n_bytes; i += 61)
        assert_int_equal(bytes[i], 0);
    assert_int_equal(bytes[n_bytes - 1], 0);
    memset(memory, 1, n_bytes);
    host_memory_free(memory);
    unsigned char one;
    assert_int_equal(mincore(memory, 1, &one), -1); /* nothing is mapped there */
    assert_int_equal(errno, ENOMEM);
}

static void memory_is_zeroed_and_present(void **state)
{
    (void)state;
    /* One byte, sizes near a page, and sizes that two and three threads share. */
    const size_t sizes[] = {
        1, 4095, 4096, 4097, ((size_t)2 << 20) + 5, (size_t)130 << 20, ((size_t)200 << 20) + 3};
    for (size_t i = 0; i < ELEMENTSOF(sizes); i++)
        check(sizes[i]);
}

static void what_cannot_be_had_is_an_error(void **state)
{
    (void)state;
    void *memory = &memory;
    assert_int_equal(host_memory_new(SIZE_MAX, &memory), -ENOMEM);
    assert_int_equal(host_memory_new(SIZE_MAX / 4, &memory), -ENOMEM);
    assert_ptr_equal(memory, &memory);
    host_memory_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zeroed_and_present),
        cmocka_unit_test(what_cannot_be_had_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
