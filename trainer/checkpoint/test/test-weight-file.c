/* SPDX-License-Identifier: Apache-2.0 */
/* test-weight-file.c - the header of a weight file names the parameters in the file's range, and is that of no other
 * range. */
#include "base/test/testing.h"
#include "trainer/checkpoint/weight-file.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { N = 3, EACH = 10 }; /* parameters, and elements of each */

static ParameterList list;

/* The parameters lie before memory that nobody may read. */
static int set_up(_unused_ void **state)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), n_bytes = N * sizeof(Parameter);
    const size_t room = (n_bytes + page - 1) / page * page;
    char *memory =
        mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    assert_int_equal(mprotect(memory + room, page, PROT_NONE), 0);
    list = (ParameterList){.items = (Parameter *)(void *)(memory + room - n_bytes),
                           .n_items = N,
                           .n_elements = N * EACH};
    for (int i = 0; i < N; i++) {
        list.items[i] =
            (Parameter){.n_dims = 2, .dims = {2, EACH / 2}, .n_elements = EACH, .offset = i * EACH};
        (void)snprintf(list.items[i].name, sizeof(list.items[i].name), "layer.%d", i);
    }
    return 0;
}

static int tear_down(_unused_ void **state)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t end = (uintptr_t)(list.items + N), begin = (uintptr_t)list.items / page * page;
    return munmap((void *)begin, end + page - begin);
}

static ObjectRecord file_of(int64_t first, int64_t count)
{
    return (ObjectRecord){.kind = OBJECT_WEIGHTS, .key = "w", .first = first, .count = count};
}

static char *header_of(ObjectRecord *file, size_t *ret_bytes)
{
    char *header;
    Error err = ERROR_INIT;
    assert_int_equal(weight_file_header(&list, file, &header, ret_bytes, &err), 0);
    file->n_bytes = *ret_bytes + (uint64_t)file->count * sizeof(float);
    return header;
}

static void a_header_is_that_of_its_range(_unused_ void **state)
{
    for (int first = 0; first < N; first++)
        for (int end = first + 1; end <= N; end++) {
            size_t n_bytes;
            ObjectRecord file = file_of(first * EACH, (end - first) * EACH);
            _cleanup_free_ char *header = header_of(&file, &n_bytes);
            for (int i = 0; i < N; i++) {
                char name[24];
                (void)snprintf(name, sizeof(name), "\"layer.%d\"", i);
                const bool there = memmem(header, n_bytes, name, strlen(name));
                assert_int_equal(there, i >= first && i < end);
            }
            for (int other = 0; other < N; other++) {
                Error err = ERROR_INIT;
                ObjectRecord as = file;
                as.first = other * EACH;
                assert_int_equal(weight_file_check("w", &list, &as, header, n_bytes, &err),
                                 other == first ? 0 : -EBADMSG);
            }
        }
}

/* A damaged manifest may say so. */
static void a_range_in_which_no_parameter_begins_has_none(_unused_ void **state)
{
    Error err = ERROR_INIT;
    size_t n_bytes;
    ObjectRecord file = file_of(N * EACH - 1, 1), whole = file_of(0, N * EACH);
    _cleanup_free_ char *none = NULL, *header = header_of(&whole, &n_bytes);
    whole.first = N * EACH - 1;
    assert_int_equal(weight_file_check("w", &list, &whole, header, n_bytes, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "w: 3 tensors, the model has 0 there"));
    assert_int_equal(weight_file_header(&list, &file, &none, &n_bytes, &err), 0);
    assert_null(memmem(none, n_bytes, "layer", 5));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_header_is_that_of_its_range),
        CASE(a_range_in_which_no_parameter_begins_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
