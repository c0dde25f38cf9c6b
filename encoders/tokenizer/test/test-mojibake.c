/* SPDX-License-Identifier: Apache-2.0 */
/* test-mojibake.c - verdicts and repairs are those of ftfy; hostile texts end in time, and no text becomes longer. */
#include "encoders/tokenizer/mojibake-signs.h"
#include "encoders/tokenizer/mojibake.h"

#include "base/test/testing.h"

#include <string.h>

typedef struct Verdict {
    const char *text;
    bool bad;
} Verdict;

typedef struct Repair {
    const char *text, *fixed;
} Repair;

#include "encoders/tokenizer/test/mojibake-vectors.inc"

static void decode(CodePoints *codes, const char *text)
{
    assert_int_equal(codes_decode(codes, text, strlen(text)), 0);
}

static void test_verdicts(void **state)
{
    CodePoints codes = {0};
    int n_wrong = 0;
    (void)state;
    for (size_t i = 0; i < ELEMENTSOF(verdicts); i++) {
        decode(&codes, verdicts[i].text);
        if (mojibake_shows(codes.at, codes.n) == verdicts[i].bad)
            continue;
        printf("\"%s\" is%s bad\n", verdicts[i].text, verdicts[i].bad ? "" : " not");
        n_wrong++;
    }
    codes_free(&codes);
    assert_int_equal(n_wrong, 0);
}

static void encode(const CodePoints *codes, char *ret, size_t room)
{
    size_t n = 0;
    for (size_t i = 0; i < codes->n && n + 4 < room; i++)
        n += code_encode(codes->at[i], (uint8_t *)ret + n);
    ret[n] = '\0';
}

static void test_repairs(void **state)
{
    CodePoints codes = {0};
    Mojibake mojibake = {0};
    int n_wrong = 0, n_changed = 0;
    (void)state;
    for (size_t i = 0; i < ELEMENTSOF(repairs); i++) {
        char fixed[1024];
        decode(&codes, repairs[i].text);
        mojibake_begin(&mojibake, codes.n);
        assert_int_equal(mojibake_repair(&mojibake, &codes), 0);
        encode(&codes, fixed, sizeof(fixed));
        n_changed += strcmp(repairs[i].text, fixed) != 0;
        if (strcmp(repairs[i].fixed, fixed) == 0)
            continue;
        printf("\"%s\" became \"%s\" and not \"%s\"\n", repairs[i].text, fixed, repairs[i].fixed);
        n_wrong++;
    }
    codes_free(&codes);
    mojibake_free(&mojibake);
    assert_int_equal(n_wrong, 0);
    assert_in_range(n_changed, 150, ELEMENTSOF(repairs));
}

/* Java's two bytes for U+0000 become U+0000. As in ftfy, so does the first of these bytes at the end of a line. */
static void test_nul(void **state)
{
    static const struct {
        const char *text;
        uint32_t codes[4];
    } all[] = {
        {"\303\203\302\251\303\200\302\200x", {0xE9, 0, 'x'}},
        {"\303\203\302\251x\303\200\n", {0xE9, 'x', 0}},
        {"\303\203\302\251x\303\200", {0xE9, 'x', 0xC0}},
    };
    CodePoints codes = {0};
    Mojibake mojibake = {0};
    (void)state;
    for (size_t i = 0; i < ELEMENTSOF(all); i++) {
        decode(&codes, all[i].text);
        mojibake_begin(&mojibake, codes.n);
        assert_int_equal(mojibake_repair(&mojibake, &codes), 0);
        assert_int_equal(codes.n, 3);
        assert_memory_equal(codes.at, all[i].codes, 3 * sizeof(*codes.at));
    }
    codes_free(&codes);
    mojibake_free(&mojibake);
}

/* Encodes a text and reads its bytes as Latin-1, n_times in turn, as a chain of faulty programs does. */
static void garble(CodePoints *codes, int n_times)
{
    CodePoints to = {0};
    for (int i = 0; i < n_times; i++) {
        to.n = 0;
        assert_int_equal(codes_reserve(&to, 4 * codes->n + 1), 0);
        for (size_t j = 0; j < codes->n; j++) {
            uint8_t bytes[4];
            size_t n = code_encode(codes->at[j], bytes);
            for (size_t k = 0; k < n; k++)
                codes_add(&to, bytes[k]);
        }
        assert_int_equal(codes_copy(codes, to.at, to.n), 0);
    }
    codes_free(&to);
}

/* A text is fully repaired after it was garbled twelve times, so that one character became 4,096 characters. */
static void test_often_garbled(void **state)
{
    CodePoints codes = {0};
    Mojibake mojibake = {0};
    char text[64];
    (void)state;
    decode(&codes, "sch\303\266n");
    garble(&codes, 12);
    assert_in_range(codes.n, 4096, 5000);
    mojibake_begin(&mojibake, codes.n);
    assert_int_equal(mojibake_repair(&mojibake, &codes), 0);
    encode(&codes, text, sizeof(text));
    assert_string_equal(text, "sch\303\266n");
    codes_free(&codes);
    mojibake_free(&mojibake);
}

/* Without an allowance, a text is not changed; when the allowance is used up, the rest of the repair is not done. */
static void test_allowance(void **state)
{
    CodePoints codes = {0};
    Mojibake mojibake = {0};
    (void)state;
    decode(&codes, "sch\303\266n");
    garble(&codes, 3);
    size_t n = codes.n, least = n;
    for (size_t work = 0; work < 200; work++) {
        CodePoints copy = {0};
        assert_int_equal(codes_copy(&copy, codes.at, n), 0);
        mojibake.work = work;
        assert_int_equal(mojibake_repair(&mojibake, &copy), 0);
        assert_true(copy.n <= least);
        if (work < n)
            assert_int_equal(copy.n, n);
        least = copy.n;
        codes_free(&copy);
    }
    assert_int_equal(least, 5);
    codes_free(&codes);
    mojibake_free(&mojibake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdicts),  cmocka_unit_test(test_repairs),
        cmocka_unit_test(test_nul),       cmocka_unit_test(test_often_garbled),
        cmocka_unit_test(test_allowance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
