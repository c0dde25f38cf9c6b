/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-caption.c - captions of arbitrary bytes through both sets of rules. The ids end with END, and a caption has the
 * same ids with a fresh buffer and with a used buffer. The repair of mojibake never makes a text longer. */
#include "encoders/tokenizer/mojibake.h"
#include "encoders/tokenizer/tokenizer.h"

#include <string.h>

enum { N_TOKENS = 77, VOCABULARY = 514 + 4, BEGIN = VOCABULARY - 2, END = VOCABULARY - 1 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static Tokenizer *open_small(TokenizerRules rules)
{
    static const char merges[] = "#version: 0.2\na b\nab c\nab c</w>\ne d</w>\n";
    char path[] = "/tmp/fuzz-caption-XXXXXX";
    Tokenizer *tokenizer = NULL;
    Error err = ERROR_INIT;
    int fd = mkstemp(path);
    assert(fd >= 0);
    ssize_t written = write(fd, merges, strlen(merges));
    assert(written == (ssize_t)strlen(merges));
    (void)fd_close(fd);
    int r = tokenizer_open(path, rules, VOCABULARY, N_TOKENS, &tokenizer, &err);
    assert(r == 0);
    (void)unlink(path); /* the file has been read */
    return tokenizer;
}

static void repair(const uint8_t *data, size_t n)
{
    Mojibake mojibake = {0};
    CodePoints codes = {0};
    if (codes_decode(&codes, (const char *)data, n) == 0) {
        size_t before = codes.n;
        mojibake_begin(&mojibake, before);
        int r = mojibake_repair(&mojibake, &codes);
        assert(r == 0 && codes.n <= before);
    }
    codes_free(&codes);
    mojibake_free(&mojibake);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static Tokenizer *tokenizers[TOKENIZER_N_RULES];
    static TokenizerScratch *scratch;
    repair(data, n);
    for (int rules = 0; rules < TOKENIZER_N_RULES; rules++) {
        _cleanup_(tokenizer_scratch_freep) TokenizerScratch *fresh = NULL;
        int32_t ids[N_TOKENS], again[N_TOKENS];
        if (!tokenizers[rules])
            tokenizers[rules] = open_small((TokenizerRules)rules);
        int n_ids = tokenizer_encode(tokenizers[rules], &scratch, (const char *)data, n, ids);
        int n_again = tokenizer_encode(tokenizers[rules], &fresh, (const char *)data, n, again);
        assert(n_ids == n_again && (n_ids == -EILSEQ || (n_ids >= 2 && n_ids <= N_TOKENS)));
        if (n_ids < 0)
            continue;
        assert(memcmp(ids, again, sizeof(ids)) == 0 && ids[0] == BEGIN && ids[n_ids - 1] == END);
        for (int i = 0; i < N_TOKENS; i++)
            assert(ids[i] >= 0 && ids[i] < VOCABULARY && (i < n_ids || ids[i] == 0));
    }
    return 0;
}
