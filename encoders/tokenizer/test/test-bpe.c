/* SPDX-License-Identifier: Apache-2.0 */
/* test-bpe.c - merges compared with a direct implementation of OpenAI's loop; files that are refused; vocab.json. */
#include "encoders/tokenizer/bpe-internal.h"
#include "encoders/tokenizer/vocabulary.h"

#include "base/file.h"
#include "base/test/testing.h"

#include <sys/stat.h>
#include <zlib.h>

static const char MERGES[] = "encoders/tokenizer/bpe_simple_vocab_16e6.txt.gz";
enum { WORD_MAX = 40, VOCABULARY = 49408 };

static Bpe *open_all(void)
{
    Bpe *bpe = NULL;
    Error err = ERROR_INIT;
    if (vocabulary_open(MERGES, VOCABULARY, &bpe, &err) < 0)
        fail_msg("%s", err.text);
    return bpe;
}

/* Finds the bytes of a symbol. */
static void bytes_of(const Bpe *bpe, int32_t id, uint8_t *ret, size_t *ret_n, bool *ret_ends)
{
    if (id >= BPE_MERGES_FIRST) {
        const BpeToken *token = &bpe->tokens[id - BPE_MERGES_FIRST];
        memcpy(ret, bpe->bytes + token->at, token->n);
        *ret_n = token->n;
        *ret_ends = token->ends;
        return;
    }
    for (int byte = 0; byte < BPE_BYTES; byte++)
        if (bpe_id_of_byte[byte] == id % BPE_BYTES)
            ret[0] = (uint8_t)byte;
    *ret_n = 1;
    *ret_ends = id >= BPE_BYTES;
}

/* Returns the id that two symbols merge to, found only by their bytes. */
static int32_t made_of(const Bpe *bpe, int32_t left, int32_t right)
{
    uint8_t bytes[2 * BPE_TOKEN_BYTES_MAX];
    size_t n_left, n_right;
    bool ends;
    bytes_of(bpe, left, bytes, &n_left, &ends);
    if (ends)
        return INT32_MAX;
    bytes_of(bpe, right, bytes + n_left, &n_right, &ends);
    int id = bpe_find_bytes(bpe, bytes, n_left + n_right, ends);
    return id >= 0 && bpe->tokens[id - BPE_MERGES_FIRST].n_left == n_left ? id : INT32_MAX;
}

/* Implements the loop of OpenAI's tokenizer: find the best pair of the word, merge it everywhere from the left,
 * repeat. */
static size_t merge_slowly(const Bpe *bpe, const uint8_t *word, size_t n, int32_t *ids)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = bpe_id_of_byte[word[i]] + (i + 1 == n ? BPE_BYTES : 0);
    for (;;) {
        int32_t best = INT32_MAX, left = 0, right = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            int32_t made = made_of(bpe, ids[i], ids[i + 1]);
            if (made < best) {
                best = made;
                left = ids[i];
                right = ids[i + 1];
            }
        }
        if (best == INT32_MAX)
            return n;
        size_t n_new = 0;
        for (size_t i = 0; i < n;) {
            bool pair = i + 1 < n && ids[i] == left && ids[i + 1] == right;
            ids[n_new++] = pair ? best : ids[i];
            i += pair ? 2 : 1;
        }
        n = n_new;
    }
}

static void test_merges(void **state)
{
    static const char *const alphabets[] = {"abcdefghijklmnopqrstuvwxyz", "aet", "lo", "-.=!",
                                            "\xF0\x9F\x98\x80\x82\xE2\x80\xC3"};
    _cleanup_(bpe_freep) Bpe *bpe = open_all();
    _cleanup_(bpe_scratch_free) BpeScratch scratch = {0};
    uint64_t seed = 1;
    (void)state;
    for (int round = 0; round < 4000; round++) {
        const char *alphabet = alphabets[round % ELEMENTSOF(alphabets)];
        uint8_t word[WORD_MAX];
        int32_t slow[WORD_MAX], fast[WORD_MAX], whole[WORD_MAX];
        size_t n = 1;
        for (size_t i = 0; i < WORD_MAX; i++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
            word[i] = (uint8_t)alphabet[(seed >> 33) % strlen(alphabet)];
        }
        n += (seed >> 40) % WORD_MAX;
        size_t n_slow = merge_slowly(bpe, word, n, slow);
        assert_int_equal(bpe_word_by_merges(bpe, &scratch, word, n, fast, WORD_MAX), n_slow);
        assert_memory_equal(fast, slow, n_slow * sizeof(*slow));
        assert_int_equal(bpe_word(bpe, &scratch, word, n, whole, WORD_MAX), n_slow);
        assert_memory_equal(whole, slow, n_slow * sizeof(*slow));
        assert_int_equal(bpe_word(bpe, &scratch, word, n, whole, 1), 1);
        assert_int_equal(whole[0], slow[0]);
    }
}

/* Every token that is a word has the same ids by the table of words and by its merges. */
static void test_words(void **state)
{
    _cleanup_(bpe_freep) Bpe *bpe = open_all();
    _cleanup_(bpe_scratch_free) BpeScratch scratch = {0};
    int n_words = 0;
    (void)state;
    for (int rank = 0; rank < bpe->n_merges; rank++) {
        const BpeToken *token = &bpe->tokens[rank];
        int32_t merged[BPE_TOKEN_BYTES_MAX], ids[BPE_TOKEN_BYTES_MAX];
        int n = bpe_word_by_merges(bpe, &scratch, bpe->bytes + token->at, token->n, merged,
                                   BPE_TOKEN_BYTES_MAX);
        assert_int_equal(bpe_word(bpe, &scratch, bpe->bytes + token->at, token->n, ids,
                                  BPE_TOKEN_BYTES_MAX),
                         n);
        assert_memory_equal(ids, merged, (size_t)n * sizeof(*ids));
        n_words += token->ends && n == 1;
    }
    assert_in_range(n_words, 30000, bpe->n_merges);
}

static void test_long_word(void **state)
{
    _cleanup_(bpe_freep) Bpe *bpe = open_all();
    _cleanup_(bpe_scratch_free) BpeScratch scratch = {0};
    size_t n = BPE_WORD_BYTES_MAX + 1000;
    _cleanup_free_ uint8_t *word = malloc(n);
    _cleanup_free_ int32_t *all = calloc(n, sizeof(*all)), *cut = calloc(n, sizeof(*cut));
    (void)state;
    memset(word, 'b', n);
    int n_all = bpe_word(bpe, &scratch, word, n, all, n),
        n_cut = bpe_word(bpe, &scratch, word, BPE_WORD_BYTES_MAX, cut, n);
    assert_int_equal(n_all, n_cut);
    assert_memory_equal(all, cut, (size_t)n_all * sizeof(*all));
}

static void test_bad_merges(void **state)
{
#define HEAD "#version: 0.2\n"
    static const struct {
        const char *text;
        int vocabulary;
        const char *why;
    } bad[] = {
        {"", 514, "m:1: the head of a file of merges says \"#version\""},
        {"a b\n", 515, "m:1: the head of a file of merges says \"#version\""},
        {HEAD, 513, "m: a vocabulary of 513: it is 514 to 65536"},
        {HEAD, 65537, "m: a vocabulary of 65537: it is 514 to 65536"},
        {HEAD, 515, "m:2: the file ends; a vocabulary of 515 has 1 merges"},
        {HEAD "a b\n", 516, "m:3: the file ends; a vocabulary of 516 has 2 merges"},
        {HEAD "a b\nb c\n", 515, "m:3: goes on; a vocabulary of 515 has 1 merges"},
        {HEAD "a b\n\n", 515, "m:3: goes on; a vocabulary of 515 has 1 merges"},
        {HEAD "\n", 515, "m:2: is not two tokens with a blank between them"},
        {HEAD "ab\n", 515, "m:2: is not two tokens with a blank between them"},
        {HEAD " b\n", 515, "m:2: is not two tokens with a blank between them"},
        {HEAD "a \n", 515, "m:2: is not two tokens with a blank between them"},
        {HEAD "a  b\n", 515, "m:2: is not two tokens with a blank between them"},
        {HEAD "a b c\n", 515, "m:2: is not two tokens with a blank between them"},
        {HEAD "a</w> b\n", 515, "m:2: begins with a token that ends a word"},
        {HEAD "a b\r\n", 515, "m:2: ends with CR LF; lines of merges end with LF"},
        {"#version: 0.2\r\na b\r\n", 515, "m:2: ends with CR LF; lines of merges end with LF"},
        {HEAD "a \t\n", 515, "m:2: has a character that stands for no byte"},
        {HEAD "a \x80\n", 515, "m:2: has a character that stands for no byte"},
        {HEAD "a \xC4\n", 515, "m:2: has a character that stands for no byte"},
        {HEAD "a \xC2\xAD\n", 515, "m:2: has a character that stands for no byte"},
        {HEAD "a \xC5\x84\n", 515, "m:2: has a character that stands for no byte"},
        {HEAD "a bc\nb c\n", 516,
         "m:2: its second token is not a byte, and no line above makes it"},
        {HEAD "ab c\na b\n", 516, "m:2: its first token is not a byte, and no line above makes it"},
        {HEAD "a b\na b</w>\nc ab</w>\nab</w> c\n", 518,
         "m:5: begins with a token that ends a word"},
        {HEAD "a b\na b\n", 516, "m:3: makes the token that line 2 makes"},
        {HEAD "a b\nb c\nab c\na bc\n", 518, "m:5: makes the token that line 4 makes"},
    };
    (void)state;
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        Error err = ERROR_INIT;
        Bpe *bpe = NULL;
        assert_int_equal(bpe_new("m", bad[i].text, strlen(bad[i].text), bad[i].vocabulary, &bpe,
                                 &err),
                         -EINVAL);
        assert_string_equal(err.text, bad[i].why);
        assert_null(bpe);
    }
    char line[2 * BPE_TOKEN_BYTES_MAX];
    int n = snprintf(line, sizeof(line), HEAD "a %0*d\n", BPE_TOKEN_BYTES_MAX, 0);
    Error err = ERROR_INIT;
    Bpe *bpe = NULL;
    assert_int_equal(bpe_new("m", line, (size_t)n, 515, &bpe, &err), -EINVAL);
    assert_string_equal(err.text, "m:2: is longer than a token can be");
}

/* A small file of merges gives ids that can be checked by hand. */
static void test_small(void **state)
{
    static const char text[] = HEAD "a b\nab a\na b</w>\nab ab</w>";
    _cleanup_(bpe_freep) Bpe *bpe = NULL;
    _cleanup_(bpe_scratch_free) BpeScratch scratch = {0};
    Error err = ERROR_INIT;
    int32_t ids[8];
    (void)state;
    assert_int_equal(bpe_new("m", text, strlen(text), 518, &bpe, &err), 0);
    /* In "abab" the first two bytes become ab (id 512), then with the third byte aba (id 513); b</w> remains. */
    assert_int_equal(bpe_word(bpe, &scratch, (const uint8_t *)"abab", 4, ids, 8), 2);
    assert_int_equal(ids[0], 513);
    assert_int_equal(ids[1], bpe_find(bpe, "b</w>", 5));
    assert_int_equal(bpe_find(bpe, "!", 1), 0);
    assert_int_equal(bpe_find(bpe, "!</w>", 5), 256);
    assert_int_equal(bpe_find(bpe, "ab</w>", 6), 514);
    assert_int_equal(bpe_find(bpe, "abab</w>", 8), 515);
    assert_int_equal(bpe_find(bpe, "abab", 4), -ENOENT);
    assert_int_equal(bpe_find(bpe, "", 0), -ENOENT);
    assert_int_equal(bpe_find(bpe, "<|startoftext|>", 15), 516);
    assert_int_equal(bpe_find(bpe, "<|endoftext|>", 13), 517);
    /* A byte order mark, as some editors write it, may precede the head. */
    static const char marked[] = "\xEF\xBB\xBF" HEAD "a b\nab a\na b</w>\nab ab</w>\n";
    Hash hash = bpe_hash(bpe);
    bpe = bpe_free(bpe);
    assert_int_equal(bpe_new("m", marked, strlen(marked), 518, &bpe, &err), 0);
    assert_true(hash_equal(bpe_hash(bpe), hash));
}

/* merges.txt and vocab.json are read from a folder; a missing file, a wrong vocab.json and a cut gzip file are
 * refused. */
static void test_files(void **state)
{
    static const char merges[] = HEAD "a b\n";
    char folder[] = "/tmp/test-bpe-XXXXXX", path[64], json[64];
    _cleanup_(bpe_freep) Bpe *bpe = NULL;
    Error err = ERROR_INIT;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/merges.txt", folder);
    snprintf(json, sizeof(json), "%s/vocab.json", folder);
    assert_int_equal(vocabulary_open(folder, 515, &bpe, &err), -ENOENT);
    assert_non_null(strstr(err.text, "merges.txt"));
    assert_int_equal(file_write(path, merges, strlen(merges), 0, &err), 0);
    assert_int_equal(vocabulary_open(folder, 515, &bpe, &err), 0);
    Hash hash = bpe_hash(bpe);
    bpe = bpe_free(bpe);

    assert_int_equal(file_write(json, "{\"a\": 64}", 9, 0, &err), 0);
    assert_int_equal(vocabulary_open(folder, 515, &bpe, &err), -EINVAL);
    assert_non_null(
        strstr(err.text, "vocab.json: 1 tokens, and the merges make a vocabulary of 515"));
    assert_int_equal(vocabulary_open(path, 515, &bpe, &err), -EINVAL);
    assert_int_equal(unlink(json), 0);

    /* The same merges are read from a gzipped file; then the file is cut. */
    snprintf(path, sizeof(path), "%s/m.gz", folder);
    gzFile file = gzopen(path, "wb");
    assert_int_equal(gzwrite(file, merges, strlen(merges)), strlen(merges));
    assert_int_equal(gzclose(file), Z_OK);
    assert_int_equal(vocabulary_open(path, 515, &bpe, &err), 0);
    assert_true(hash_equal(bpe_hash(bpe), hash));
    bpe = bpe_free(bpe);
    assert_int_equal(truncate(path, 20), 0);
    assert_true(vocabulary_open(path, 515, &bpe, &err) < 0);
    assert_non_null(strstr(err.text, "m.gz"));
    assert_int_equal(folder_remove(folder, &err), 0);
}

/* Checks that a file of merges is refused with its path and a word in the error's text; returns the error. */
static int refuse_file(const char *path, const char *word)
{
    _cleanup_(bpe_freep) Bpe *bpe = NULL;
    Error err = ERROR_INIT;
    int r = vocabulary_open(path, VOCABULARY, &bpe, &err);
    assert_null(bpe);
    if (!strstr(err.text, path) || !strstr(err.text, word))
        fail_msg("\"%s\" does not name %s and %s", err.text, path, word);
    return r;
}

/* Files that would never end, or would fill the memory, are refused: ten million lines, a gzip bomb of 256 MiB in 256
 * KiB, a pipe without a writer, a device. */
static void test_endless_files(void **state)
{
    static const char line[] = "a b\n";
    enum { N_LINES = 10000000, BOMB_MIB = 256 };
    char folder[] = "/tmp/test-bpe-XXXXXX", path[64];
    Error err = ERROR_INIT;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/lines", folder);
    _cleanup_free_ char *lines = malloc(strlen(HEAD) + N_LINES * strlen(line));
    memcpy(lines, HEAD, strlen(HEAD));
    for (size_t i = 0; i < N_LINES; i++)
        memcpy(lines + strlen(HEAD) + i * strlen(line), line, strlen(line));
    assert_int_equal(file_write(path, lines, strlen(HEAD) + N_LINES * strlen(line), 0, &err), 0);
    assert_int_equal(refuse_file(path, "merges of more than 8388608 bytes"), -EFBIG);

    snprintf(path, sizeof(path), "%s/bomb.gz", folder);
    gzFile bomb = gzopen(path, "wb1");
    memset(lines, 'a', 1 << 20);
    for (int i = 0; i < BOMB_MIB; i++)
        assert_int_equal(gzwrite(bomb, lines, 1 << 20), 1 << 20);
    assert_int_equal(gzclose(bomb), Z_OK);
    assert_int_equal(refuse_file(path, "merges of more than 8388608 bytes"), -EFBIG);

    snprintf(path, sizeof(path), "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(refuse_file(path, "not a regular file"), -EINVAL);
    assert_int_equal(refuse_file("/dev/zero", "not a regular file"), -EINVAL);
    snprintf(path, sizeof(path), "%s/vocab.json", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    Bpe *bpe = NULL;
    snprintf(path, sizeof(path), "%s/merges.txt", folder);
    assert_int_equal(file_write(path, HEAD, strlen(HEAD), 0, &err), 0);
    assert_int_equal(vocabulary_open(folder, BPE_VOCABULARY_MIN, &bpe, &err), -EINVAL);
    assert_non_null(strstr(err.text, "/vocab.json is not a regular file"));
    assert_int_equal(folder_remove(folder, &err), 0);
}

/* A complete vocab.json is accepted; a vocab.json with a single wrong entry is refused. */
static void test_vocabulary_json(void **state)
{
    static const char merges[] = HEAD "a b\nab \xC4\xA0</w>\n";
    _cleanup_(bpe_freep) Bpe *bpe = NULL;
    Error err = ERROR_INIT;
    (void)state;
    assert_int_equal(bpe_new("m", merges, strlen(merges), 516, &bpe, &err), 0);
    for (int wrong = 0; wrong < 4; wrong++) {
        char text[1 << 16] = "{", *at = text + 1;
        unsigned next = 0x100, order[BPE_BYTES], n = 0;
        for (unsigned b = 0; b < BPE_BYTES; b++)
            if ((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174)
                order[n++] = b;
        while (n < BPE_BYTES)
            order[n++] = next++;
        for (unsigned i = 0; i < 2 * BPE_BYTES; i++) {
            unsigned c = order[i % BPE_BYTES], id = wrong == 1 && i == 300 ? 301 : i;
            at += snprintf(at, 32, "\"\\u%04x%s\": %u, ", c, i >= BPE_BYTES ? "</w>" : "", id);
        }
        at += snprintf(at, 200,
                       "\"ab\": %d, \"%s\": 513, \"<|startoftext|>\": 514, \"<|endoftext|>\": 515}",
                       wrong == 2 ? 511 : 512, wrong == 3 ? "b\\u0120</w>" : "ab\\u0120</w>");
        int r = vocabulary_check("v", text, (size_t)(at - text), bpe, &err);
        assert_int_equal(r, wrong ? -EINVAL : 0);
        static const char *const why[] = {
            "", "v: \"M</w>\" is not 300, which the byte 300 of the merges says",
            "v: \"ab\" is not 512, which line 2 of the merges says",
            "v: \"b\xC4\xA0</w>\" is not a token that the merges make"};
        assert_string_equal(err.text, why[wrong]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merges),        cmocka_unit_test(test_words),
        cmocka_unit_test(test_long_word),     cmocka_unit_test(test_bad_merges),
        cmocka_unit_test(test_small),         cmocka_unit_test(test_files),
        cmocka_unit_test(test_endless_files), cmocka_unit_test(test_vocabulary_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
