/* SPDX-License-Identifier: Apache-2.0 */
/* test-bits-emulated.c - shows that the CUDA kernels give the same bits in every order of threads and blocks, and the
 * bits of tests/golden/kernels-cuda.txt, which a GPU must give, too.
 *
 * SDTRAIN_BITS=write writes that file: for new kernels, or after an intended change of bits. */
#include "base/cleanup.h"
#include "base/file.h"
#include "base/test/testing.h"

#include <string.h>

#ifdef __SANITIZE_ADDRESS__ /* one random order of each kind makes all accesses, which the sanitizer checks */
enum { SEEDS = 3 };
#else
enum { SEEDS = 8 };
#endif
enum { TEXT_BYTES = 1 << 16 };

/* Runs kernels-bits-emulated and stores its output in text. */
static void run_at(int offset, const char *type, int seed, char text[TEXT_BYTES])
{
    char command[512];
    const char *folder = getenv("SDTRAIN_BIN");

    assert_non_null(folder);
    (void)snprintf(command, sizeof(command), "%s/kernels-bits-emulated 1 %d %s %d", folder, offset,
                   type, seed);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(text, 1, TEXT_BYTES - 1, pipe);
    text[n] = '\0';
    assert_int_equal(pclose(pipe), 0);
    const char *end = n > 0 ? memrchr(text, '\n', n - 1) : NULL;
    assert_true(end && strncmp(end, "\nsums layer norm's columns ", 27) == 0); /* the last line */
}

/* Returns the output for threads and blocks in the order of their numbers. */
static const char *in_order(const char *type)
{
    static char texts[2][TEXT_BYTES];
    char *text = texts[strcmp(type, "f32") == 0];
    if (!*text)
        run_at(0, type, 0, text);
    return text;
}

static void check_orders(const char *type)
{
    static char text[TEXT_BYTES];
    const char *first = in_order(type);
    for (int seed = 1; seed < SEEDS; seed++) {
        run_at(0, type, seed, text);
        assert_string_equal(text, first);
    }
    run_at(3, type, SEEDS, text); /* unaligned tensors have no packs, but the same bits */
    assert_string_equal(text, first);
}

static void fp32_has_one_result(void **state)
{
    (void)state;
    check_orders("f32");
}

static void bf16_has_one_result(void **state)
{
    (void)state;
    check_orders("bf16");
}

static void test_golden(void **state)
{
    (void)state;
    static char text[2 * TEXT_BYTES];
    char path[512];
    Error err = ERROR_INIT;
    _cleanup_free_ char *golden = NULL;
    const char *source = getenv("SDTRAIN_SOURCE"), *how = getenv("SDTRAIN_BITS");

    assert_non_null(source);
    (void)snprintf(path, sizeof(path), "%s/tests/golden/kernels-cuda.txt", source);
    (void)snprintf(text, sizeof(text), "%s%s", in_order("f32"), in_order("bf16"));
    if (how && strcmp(how, "write") == 0)
        assert_int_equal(file_write(path, text, strlen(text), 0, &err), 0);
    assert_int_equal(file_read(path, 2 * TEXT_BYTES, &golden, NULL, &err), 0);
    assert_string_equal(golden, text);
}

/* Draws, sums, squares and the update have the bits of a CPU, for gradients of any device. */
static void the_state_has_the_bits_of_a_cpu(void **state)
{
    (void)state;
    static const char *const names[] = {"\nnoise ",
                                        "\nnoised ",
                                        "\ntarget ",
                                        "\nweights ",
                                        "\nfirst moments ",
                                        "\nsecond moments ",
                                        "\nema ",
                                        "\nsum of squares ",
                                        "\nabsolute maximum ",
                                        "\nquantised ",
                                        "\nquantised to 64 bits ",
                                        "\ndequantised ",
                                        "\ndequantised from 64 bits "};
    char path[512];
    Error err = ERROR_INIT;
    _cleanup_free_ char *golden = NULL;

    (void)snprintf(path, sizeof(path), "%s/tests/golden/kernels-bits.txt",
                   getenv("SDTRAIN_SOURCE"));
    assert_int_equal(file_read(path, TEXT_BYTES, &golden, NULL, &err), 0);
    const char *text = in_order("f32");
    for (size_t i = 0; i < ELEMENTSOF(names); i++) {
        const char *mine = strstr(text, names[i]), *cpu = strstr(golden, names[i]);
        assert_non_null(mine);
        assert_non_null(cpu);
        assert_memory_equal(mine, cpu, strcspn(cpu + 1, "\n") + 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp32_has_one_result),
        cmocka_unit_test(bf16_has_one_result),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(the_state_has_the_bits_of_a_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
