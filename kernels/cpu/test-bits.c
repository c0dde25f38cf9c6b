/* test-bits.c - the same bits from every number of threads, alignment and vector width. */
#include "base/cleanup.h"
#include "base/macro.h"
#include "base/testing.h"

#include <string.h>

enum { TEXT_BYTES = 1 << 16 };

/* What `program threads offset` prints. */
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
    assert_non_null(strstr(text, "dequantised from 64 bits")); /* the last one */
}

static void compare(const char *program, int threads, int offset)
{
    static char expected[TEXT_BYTES], text[TEXT_BYTES];

    if (!expected[0])
        run("kernels-bits", 1, 0, expected);
    run(program, threads, offset, text);
    assert_string_equal(text, expected);
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
    /* threads that outnumber the cores must not spin */
    (void)setenv("OMP_WAIT_POLICY", "passive", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_without_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
