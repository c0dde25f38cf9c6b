/* SPDX-License-Identifier: Apache-2.0 */
/* test-bits.c - shows that results have the same bits for every number of threads, alignment and vector width, and the
 * recorded bits of their NUMERICS_VERSION.
 *
 * SDTRAIN_BITS=write writes tests/golden/kernels-bits.txt for a version that is not yet in it, or appends the output of
 * new operations. */
#include "base/cleanup.h"
#include "base/file.h"
#include "base/macro.h"
#include "base/test/testing.h"

#include <string.h>

enum { TEXT_BYTES = 1 << 16 };

/* Runs `program threads offset` and stores its output in text. */
static void run(const char *program, int threads, int offset, char text[TEXT_BYTES])
{
    char command[512];
    const char *folder = getenv("SDTRAIN_BIN");

    assert_non_null(folder);
    (void)snprintf(command, sizeof(command), "%s/%s %d %d", folder, program, threads, offset);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(text, 1, TEXT_BYTES - 1, pipe);
    text[n] = '\0';
    assert_int_equal(pclose(pipe), 0);
    assert_non_null(strstr(text, "encoder embedding in packs")); /* the last line of the output */
}

static void compare(const char *program, int threads, int offset)
{
    static char expected[TEXT_BYTES], text[TEXT_BYTES];

    if (!expected[0])
        run("kernels-bits", 1, 0, expected);
    run(program, threads, offset, text);
    assert_string_equal(text, expected);
}

/* The golden file contains exactly the output of kernels-bits, which begins with the numerics. */
static void test_golden(void **state)
{
    (void)state;
    static char text[TEXT_BYTES];
    char path[512];
    Error err = ERROR_INIT;
    _cleanup_free_ char *golden = NULL;
    const char *source = getenv("SDTRAIN_SOURCE"), *how = getenv("SDTRAIN_BITS");

    assert_non_null(source);
    (void)snprintf(path, sizeof(path), "%s/tests/golden/kernels-bits.txt", source);
    run("kernels-bits", 2, 0, text);
    assert_int_equal(file_read(path, TEXT_BYTES, &golden, NULL, &err), 0);
    if (strcmp(golden, text) == 0)
        return;
    const size_t first = strcspn(text, "\n");
    const bool longer = strncmp(golden, text, strlen(golden)) == 0;
    if (longer && !(how && strcmp(how, "write") == 0))
        fail_msg("%s lacks what is printed last: SDTRAIN_BITS=write adds it", path);
    if (!longer && strncmp(golden, text, first + 1) == 0)
        fail_msg("an operation gives other bits than those of %.*s: undo that, or raise "
                 "NUMERICS_VERSION, which ends every job that is under way",
                 (int)first, text);
    if (!how || strcmp(how, "write") != 0)
        fail_msg("%s holds the bits of other numerics: SDTRAIN_BITS=write writes it", path);
    assert_int_equal(file_write(path, text, strlen(text), 0, &err), 0);
}

static void test_again(void **state)
{
    (void)state;
    compare("kernels-bits", 1, 0);
}

static void test_threads(void **state)
{
    (void)state;
    compare("kernels-bits", 2, 0);
    compare("kernels-bits", 5, 0);
}

static void test_alignment(void **state)
{
    (void)state;
    compare("kernels-bits", 1, 1);
    compare("kernels-bits", 2, 13);
}

static void test_without_vectors(void **state)
{
    (void)state;
    compare("kernels-bits-scalar", 2, 0);
}

int main(void)
{
    /* if there are more threads than cores, they must not spin */
    (void)setenv("OMP_WAIT_POLICY", "passive", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),          cmocka_unit_test(test_again),
        cmocka_unit_test(test_threads),         cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_without_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
