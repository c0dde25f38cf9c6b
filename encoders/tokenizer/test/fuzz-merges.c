/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-merges.c - files of merges and vocab.json with arbitrary bytes. The first byte is the number of merges plus one,
 * or 0 for a vocab.json of two merges; a word is tokenized with the merges that were accepted. */
#include "encoders/tokenizer/vocabulary.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void read_json(const char *text, size_t n)
{
    static const char merges[] = "#version: 0.2\na b\nab c</w>\n";
    _cleanup_(bpe_freep) Bpe *bpe = NULL;
    Error err = ERROR_INIT;
    int r = bpe_new("merges", merges, strlen(merges), BPE_VOCABULARY_MIN + 2, &bpe, &err);
    assert(r == 0);
    r = vocabulary_check("fuzz", text, n, bpe, &err);
    assert(r == 0 || *err.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    _cleanup_(bpe_freep) Bpe *bpe = NULL;
    _cleanup_(bpe_scratch_free) BpeScratch scratch = {0};
    Error err = ERROR_INIT;
    int32_t ids[256];
    if (n == 0)
        return 0;
    if (data[0] == 0) {
        read_json((const char *)data + 1, n - 1);
        return 0;
    }
    int vocabulary = BPE_VOCABULARY_MIN + data[0] - 1;
    if (bpe_new("fuzz", (const char *)data + 1, n - 1, vocabulary, &bpe, &err) < 0) {
        assert(!bpe && *err.text);
        return 0;
    }
    int n_ids = bpe_word(bpe, &scratch, data, n, ids, ELEMENTSOF(ids));
    assert(n_ids > 0);
    for (int i = 0; i < n_ids; i++)
        assert(ids[i] >= 0 && ids[i] < vocabulary - 2);
    return 0;
}
