/* SPDX-License-Identifier: Apache-2.0 */
/* test-unicode.c - NFC is that of Unicode's NormalizationTest.txt, if unicode-data is installed; runs of marks;
 * UTF-8. */
#include "encoders/tokenizer/unicode.h"

#include "base/test/testing.h"

#include <string.h>

static const char CASES[] = "/usr/share/unicode/NormalizationTest.txt.bz2";
enum { COLUMNS = 5, CODES_MAX = 32, N_MARKS = 99994 };

static size_t read_codes(const char *text, uint32_t ret[CODES_MAX])
{
    size_t n = 0;
    char *end;
    for (unsigned long code; code = strtoul(text, &end, 16), end != text && n < CODES_MAX;
         text = end)
        ret[n++] = (uint32_t)code;
    return n;
}

static bool composes_to(const char *from, const char *to)
{
    CodePoints codes = {0}, scratch = {0};
    uint32_t begin[CODES_MAX], right[CODES_MAX];
    size_t n = read_codes(from, begin), n_right = read_codes(to, right);
    bool same = codes_copy(&codes, begin, n) == 0 && codes_compose(&codes, &scratch) == 0 &&
                codes.n == n_right && memcmp(codes.at, right, n_right * sizeof(*right)) == 0;
    codes_free(&codes);
    codes_free(&scratch);
    return same;
}

static void test_normalization(void **state)
{
    (void)state;
    if (access(CASES, R_OK) < 0)
        skip();
    FILE *cases = popen("bzcat /usr/share/unicode/NormalizationTest.txt.bz2", "re");
    char line[2048];
    int n_rows = 0;
    while (cases && fgets(line, sizeof(line), cases)) {
        char *columns[COLUMNS], *at = line;
        if (line[0] == '#' || line[0] == '@')
            continue;
        for (int i = 0; i < COLUMNS; i++)
            columns[i] = strsep(&at, ";");
        assert_non_null(at);
        for (int i = 0; i < COLUMNS; i++)
            if (!composes_to(columns[i], columns[i < 3 ? 1 : 3]))
                fail_msg("NFC of column %d of %s", i + 1, columns[0]);
        n_rows++;
    }
    assert_int_equal(pclose(cases), 0);
    assert_in_range(n_rows, 19000, 30000);
}

/* Long runs of marks, which are sorted by counting, keep their order within a class. There are as many U+0300 as
 * U+0301, so that the reverse order would be noticed. */
static void test_marks(void **state)
{
    static const uint32_t marks[] = {0x301, 0x323, 0x327, 0x345, 0x5B0, 0x3099, 0x31B, 0x300};
    CodePoints codes = {0}, scratch = {0};
    uint32_t *text = calloc(N_MARKS, sizeof(*text));
    (void)state;
    text[0] = 'q'; /* composes with none of the marks */
    for (size_t i = 1; i < N_MARKS; i++)
        text[i] = marks[i * 5 % ELEMENTSOF(marks)];
    assert_int_equal(codes_copy(&codes, text, N_MARKS), 0);
    assert_int_equal(codes_compose(&codes, &scratch), 0);
    assert_int_equal(codes.n, N_MARKS);
    /* Within a class the order is kept: U+0301 and U+0300 alternate, U+0301 first. */
    size_t n_above = 0;
    for (size_t i = 1; i < N_MARKS; i++)
        if (codes.at[i] == 0x300 || codes.at[i] == 0x301)
            n_above++;
    uint32_t first = 0;
    for (size_t i = 1; i < N_MARKS && !first; i++)
        first = text[i] == 0x300 || text[i] == 0x301 ? text[i] : 0;
    size_t at = 1;
    while (codes.at[at] != 0x300 && codes.at[at] != 0x301)
        at++;
    assert_int_equal(codes.at[at], first);
    for (size_t i = at; i + 1 < at + n_above; i++)
        assert_true(codes.at[i] != codes.at[i + 1] &&
                    (codes.at[i] == 0x300 || codes.at[i] == 0x301));
    codes_free(&codes);
    codes_free(&scratch);
    free(text);
}

static void test_utf8(void **state)
{
    CodePoints codes = {0};
    (void)state;
    for (uint32_t code = 0; code <= 0x10FFFF; code += code < 0x3000 ? 1 : 97) {
        uint8_t bytes[4];
        size_t n = code_encode(code, bytes);
        bool surrogate = code >= 0xD800 && code <= 0xDFFF;
        assert_int_equal(codes_decode(&codes, (const char *)bytes, n), surrogate ? -EILSEQ : 0);
        if (surrogate)
            continue;
        assert_int_equal(codes.n, 1);
        assert_int_equal(codes.at[0], code);
        for (size_t i = 1; i < n; i++)
            assert_int_equal(codes_decode(&codes, (const char *)bytes, i), -EILSEQ);
    }
    codes_free(&codes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_normalization),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
