/* SPDX-License-Identifier: Apache-2.0 */
/* test-tokenizer.c - the ids of captions are those of open_clip and of transformers; hostile captions; threads. */
#include "encoders/tokenizer/tokenizer.h"

#include "base/clock.h"
#include "base/test/testing.h"

#include <pthread.h>
#include <string.h>

enum { N_TOKENS = 77, VOCABULARY = 49408, BEGIN = 49406, END = 49407, N_THREADS = 4 };
static const char MERGES[] = "encoders/tokenizer/bpe_simple_vocab_16e6.txt.gz";

typedef struct Vector {
    const char *text, *ids[TOKENIZER_N_RULES];
} Vector;

static const Vector vectors[] = {
#include "encoders/tokenizer/test/vectors.inc"
};

static Tokenizer *tokenizers[TOKENIZER_N_RULES];

static int setup(void **state)
{
    Error err = ERROR_INIT;
    (void)state;
    for (int rules = 0; rules < TOKENIZER_N_RULES; rules++)
        if (tokenizer_open(MERGES, (TokenizerRules)rules, VOCABULARY, N_TOKENS, &tokenizers[rules],
                           &err) < 0)
            fail_msg("%s", err.text);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int rules = 0; rules < TOKENIZER_N_RULES; rules++)
        tokenizers[rules] = tokenizer_free(tokenizers[rules]);
    return 0;
}

/* Converts "1 2 3" to all n_tokens ids that the tokenizer should write. */
static int expected(const char *words, int32_t ret[N_TOKENS])
{
    int n = 0;
    char *end;
    memset(ret, 0, N_TOKENS * sizeof(*ret));
    ret[n++] = BEGIN;
    for (long id; id = strtol(words, &end, 10), end != words; words = end)
        if (n < N_TOKENS - 1)
            ret[n++] = (int32_t)id;
    ret[n++] = END;
    return n;
}

static bool matches(TokenizerScratch **scratch, int rules, const char *text, size_t n_bytes,
                    const char *words)
{
    int32_t ids[N_TOKENS], right[N_TOKENS];
    int n_right = expected(words, right),
        n = tokenizer_encode(tokenizers[rules], scratch, text, n_bytes, ids);
    if (n == n_right && memcmp(ids, right, sizeof(ids)) == 0)
        return true;
    printf("%s: \"%.*s\":", tokenizer_rules_name((TokenizerRules)rules), (int)n_bytes, text);
    for (int i = 1; i < n - 1; i++)
        printf(" %d", ids[i]);
    printf(" and not %s\n", words);
    return false;
}

static void check(TokenizerScratch **scratch, int rules, const char *text, size_t n_bytes,
                  const char *words)
{
    assert_true(matches(scratch, rules, text, n_bytes, words));
}

static bool all_match(TokenizerScratch **scratch)
{
    bool all = true;
    for (size_t i = 0; i < ELEMENTSOF(vectors); i++)
        for (int rules = 0; rules < TOKENIZER_N_RULES; rules++) {
            const char *words = vectors[i].ids[rules];
            words = strcmp(words, "same") == 0 ? vectors[i].ids[0] : words;
            all = matches(scratch, rules, vectors[i].text, strlen(vectors[i].text), words) && all;
        }
    return all;
}

static void test_vectors(void **state)
{
    _cleanup_(tokenizer_scratch_freep) TokenizerScratch *scratch = NULL;
    (void)state;
    assert_true(all_match(&scratch));
}

/* Returns n copies of a text as one text; the caller frees it. */
static char *times(const char *text, size_t n, size_t *ret_bytes)
{
    size_t length = strlen(text);
    char *all = malloc(n * length + 1);
    for (size_t i = 0; i < n; i++)
        memcpy(all + i * length, text, length);
    all[n * length] = '\0';
    *ret_bytes = n * length;
    return all;
}

static void test_lengths(void **state)
{
    _cleanup_(tokenizer_scratch_freep) TokenizerScratch *scratch = NULL;
    int32_t ids[N_TOKENS];
    size_t n_bytes;
    (void)state;
    for (int rules = 0; rules < TOKENIZER_N_RULES; rules++) {
        _cleanup_free_ char *a = times("a", 100, &n_bytes);
        check(&scratch, rules, a, n_bytes,
              "23126 23126 23126 23126 23126 23126 23126 23126 23126 23126 23126 23126 19336");
        _cleanup_free_ char *words = times("word ", 100, &n_bytes);
        assert_int_equal(tokenizer_encode(tokenizers[rules], &scratch, words, n_bytes, ids),
                         N_TOKENS);
        assert_int_equal(ids[N_TOKENS - 1], END);
        assert_int_equal(ids[1], ids[N_TOKENS - 2]);
        /* 75 words fit; the 76th does not. */
        assert_int_equal(tokenizer_encode(tokenizers[rules], &scratch, words, 5 * 75, ids),
                         N_TOKENS);
        assert_int_equal(tokenizer_encode(tokenizers[rules], &scratch, words, 5 * 74, ids),
                         N_TOKENS - 1);
        assert_int_equal(ids[N_TOKENS - 2], END);
        assert_int_equal(ids[N_TOKENS - 1], 0);
    }
    Tokenizer *shortest = NULL;
    Error err = ERROR_INIT;
    assert_int_equal(tokenizer_open(MERGES, TOKENIZER_OPEN_CLIP, VOCABULARY, 1, &shortest, &err),
                     -EINVAL);
    assert_int_equal(tokenizer_open(MERGES, TOKENIZER_OPEN_CLIP, VOCABULARY, 2, &shortest, &err),
                     0);
    assert_int_equal(tokenizer_encode(shortest, &scratch, "a cat", 5, ids), 2);
    assert_int_equal(ids[1], END);
    (void)tokenizer_free(shortest);
}

/* The last two ids of any vocabulary are begin and end, and n_tokens is the length of the result. */
static void test_small(void **state)
{
    static const char merges[] = "#version: 0.2\na b\nab c</w>\n";
    enum { SMALL = 516, SHORT = 5 };
    _cleanup_(tokenizer_scratch_freep) TokenizerScratch *scratch = NULL;
    char path[] = "/tmp/test-tokenizer-XXXXXX";
    Error err = ERROR_INIT;
    (void)state;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, merges, strlen(merges)), strlen(merges));
    assert_int_equal(close(fd), 0);
    for (int rules = 0; rules < TOKENIZER_N_RULES; rules++) {
        const char *text = rules == TOKENIZER_OPEN_CLIP ? "abc <end_of_text><start_of_text>ab"
                                                        : "abc <|endoftext|><|startoftext|>ab";
        static const int32_t right[SHORT] = {SMALL - 2, SMALL - 3, SMALL - 1, SMALL - 2, SMALL - 1},
                             empty[SHORT] = {SMALL - 2, SMALL - 1};
        Tokenizer *tokenizer = NULL;
        int32_t ids[SHORT];
        assert_int_equal(tokenizer_open(path, (TokenizerRules)rules, SMALL, SHORT, &tokenizer,
                                        &err),
                         0);
        assert_int_equal(tokenizer_n_tokens(tokenizer), SHORT);
        assert_int_equal(tokenizer_encode(tokenizer, &scratch, text, strlen(text), ids), SHORT);
        assert_memory_equal(ids, right, sizeof(ids));
        assert_int_equal(tokenizer_encode(tokenizer, &scratch, "", 0, ids), 2);
        assert_memory_equal(ids, empty, sizeof(ids));
        (void)tokenizer_free(tokenizer);
    }
    Tokenizer *none = NULL;
    assert_int_equal(tokenizer_open(path, TOKENIZER_OPEN_CLIP, SMALL + 1, SHORT, &none, &err),
                     -EINVAL);
    assert_non_null(strstr(err.text, ":4: the file ends; a vocabulary of 517 has 3 merges"));
    assert_int_equal(tokenizer_open(path, TOKENIZER_OPEN_CLIP, SMALL - 1, SHORT, &none, &err),
                     -EINVAL);
    assert_non_null(strstr(err.text, ":3: goes on; a vocabulary of 515 has 1 merges"));
    assert_int_equal(tokenizer_open(path, TOKENIZER_OPEN_CLIP, SMALL, TOKENIZER_TOKENS_MAX + 1,
                                    &none, &err),
                     -EINVAL);
    assert_non_null(strstr(err.text, "a text of 65537 tokens: it has 2 to 65536"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(tokenizer_open(path, TOKENIZER_OPEN_CLIP, SMALL, SHORT, &none, &err), -ENOENT);
    assert_non_null(strstr(err.text, path));
}

static void test_not_utf8(void **state)
{
    static const char *const bad[] = {
        "\x80",         "a\xC3",        "\xC0\xAF",         "\xE0\x80\xAF",
        "\xED\xA0\x80", "\xED\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
        "\xFF",         "\xE2\x82",     "\xF0\x9F\x98",     "\xC3(",
    };
    _cleanup_(tokenizer_scratch_freep) TokenizerScratch *scratch = NULL;
    int32_t ids[N_TOKENS];
    (void)state;
    for (int rules = 0; rules < TOKENIZER_N_RULES; rules++) {
        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
            assert_int_equal(tokenizer_encode(tokenizers[rules], &scratch, bad[i], strlen(bad[i]),
                                              ids),
                             -EILSEQ);
        assert_int_equal(tokenizer_encode(tokenizers[rules], &scratch, "\xF4\x8F\xBF\xBF", 4, ids) >
                             0,
                         1);
        assert_int_equal(tokenizer_encode(tokenizers[rules], &scratch, "",
                                          TOKENIZER_TEXT_BYTES_MAX + 1, ids),
                         -E2BIG);
    }
}

static void test_nul(void **state)
{
    _cleanup_(tokenizer_scratch_freep) TokenizerScratch *scratch = NULL;
    (void)state;
    check(&scratch, TOKENIZER_OPEN_CLIP, "a ca\0t", 6, "320 2368");
    /* By the rules of diffusers, U+0000 is a word between two other words, like other control characters. */
    check(&scratch, TOKENIZER_DIFFUSERS, "a ca\0t", 6, "320 1684 444 339");
}

/* Texts of a megabyte each, for which a naive program would need a second to an hour, are tokenized quickly. */
static void test_hostile(void **state)
{
    static const char *const parts[] = {
        "a",
        "ab",
        "-",
        "!",
        "\xCC\x81",
        "\xCC\xA3\xCC\x81",
        "\xCE\xA3\xC2\xAD",
        "&amp;",
        "amp;",
        "&",
        "&a",
        "\x1B[1",
        "\x1B[;",
        "\xEF\xBF\xBD",
        "\xE1\x84\x80",
        "\xEF\xAC\x83",
        "<",
        "&#1;",
        "\r\n",
        " ",
        "&#111111",
        "<|endo",
        "\xF0\x9F\x98\x80",
        "\xED\x95\x9C",
        "jeky ll",
        "\n&lt;",
        "aaaaaaaaaaaaaaaab",
        "<end_of_text",
        "\xE2\x80\x8B",
        "'",
        "\xC4\xB0",
        /* Mojibake: first bytes only, pairs, texts for which all encodings are tried, texts in which each part is
         * repaired separately, lost bytes, blanks, and a text whose repair is mojibake again. */
        "\xC3\x83",
        "\xE2\x88\x9A",
        "\xC3\x83 ",
        "\xC3\x83\xC2\xA9",
        "\xC3\xA2\xE2\x82\xAC\xC5\x93",
        "\xC3\x83\xC2\xA9\xD0\xB1",
        "\xC3\x83\xC2\xA9\xE4\xB8\x80",
        "\xC3\xA2\xE2\x82\xAC\xEF\xBF\xBD",
        "\xC3\x82\xC2\xA6\xC2\xA6",
        "\xC3\x83\xC6\x92\xC3\x82\xC2\xA9 \xD0\xB1",
        "\xC2\x81\xD0\xB1",
    };
    _cleanup_(tokenizer_scratch_freep) TokenizerScratch *scratch = NULL;
    int32_t ids[N_TOKENS];
    (void)state;
    uint64_t slowest = 0;
    for (size_t i = 0; i < ELEMENTSOF(parts); i++)
        for (int rules = 0; rules < TOKENIZER_N_RULES; rules++) {
            size_t n_bytes;
            _cleanup_free_ char *text = times(parts[i], (1 << 20) / strlen(parts[i]), &n_bytes);
            if (i == 8) /* "&amp;amp;amp;...": each round removes one "amp;" */
                text[3] = '&';
            uint64_t from = clock_monotonic_usec();
            int n = tokenizer_encode(tokenizers[rules], &scratch, text, n_bytes, ids);
            uint64_t took = clock_monotonic_usec() - from;
            slowest = MAX(slowest, took);
            printf("%-12s %-20zu %6.1f ms\n", tokenizer_rules_name((TokenizerRules)rules), i,
                   (double)took / 1e3);
            assert_in_range(n, 2, N_TOKENS);
            assert_int_equal(ids[0], BEGIN);
            assert_int_equal(ids[n - 1], END);
        }
    assert_true(slowest < 20 * USEC_PER_SEC); /* a quadratic program takes minutes */
}

static void *encode_all(void *userdata)
{
    _cleanup_(tokenizer_scratch_freep) TokenizerScratch *scratch = NULL;
    for (int i = 0; i < 50; i++)
        if (!all_match(&scratch))
            return NULL;
    return userdata; /* not NULL: all ids were right */
}

static void test_threads(void **state)
{
    pthread_t threads[N_THREADS];
    (void)state;
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, encode_all, tokenizers), 0);
    for (int i = 0; i < N_THREADS; i++) {
        void *right;
        assert_int_equal(pthread_join(threads[i], &right), 0);
        assert_non_null(right);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),  cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_not_utf8), cmocka_unit_test(test_nul),
        cmocka_unit_test(test_small),    cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
