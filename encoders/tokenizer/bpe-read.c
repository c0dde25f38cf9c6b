/* SPDX-License-Identifier: Apache-2.0 */
/* bpe-read.c - reads a file of merges, one pair per line, into the tables of a Bpe.
 *
 * A line is refused unless both of its tokens are bytes or were made by earlier lines, and no earlier line made the
 * same token: the order of merges (bpe.h) and the unique id of each token depend on this.
 */
#include "encoders/tokenizer/bpe-internal.h"

#include "base/memory.h"
#include "encoders/tokenizer/unicode.h"

static const char END_OF_WORD[] = "</w>";
static const char ORIGINAL[] = "\"bpe_simple_vocab_16e6.txt";
enum { END_BYTES = sizeof(END_OF_WORD) - 1 };

/* bytes_to_unicode() of CLIP: printable bytes come first and stand for themselves; the other 68 bytes are U+0100,
 * U+0101, ... */
static bool byte_prints(unsigned byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

const uint8_t bpe_id_of_byte[BPE_BYTES] = {
#define AFTER(byte, first, id) (((byte) - (first) + (id)) & 0xFF)
#define ID(b)                                                                                      \
    ((b) >= 174   ? AFTER(b, 174, 106)                                                             \
     : (b) == 173 ? 255                                                                            \
     : (b) >= 161 ? AFTER(b, 161, 94)                                                              \
     : (b) >= 127 ? AFTER(b, 127, 221)                                                             \
     : (b) >= 33  ? AFTER(b, 33, 0)                                                                \
                  : AFTER(b, 0, 188))
#define ID4(b) ID(b), ID((b) + 1), ID((b) + 2), ID((b) + 3)
#define ID16(b) ID4(b), ID4((b) + 4), ID4((b) + 8), ID4((b) + 12)
#define ID64(b) ID16(b), ID16((b) + 16), ID16((b) + 32), ID16((b) + 48)
    ID64(0), ID64(64), ID64(128), ID64(192)};

Bpe *bpe_free(Bpe *bpe)
{
    if (!bpe)
        return NULL;
    free(bpe->bytes);
    free(bpe->tokens);
    free(bpe->sorted);
    free(bpe->begin);
    free(bpe->right);
    free(bpe->made);
    free(bpe->words);
    free(bpe);
    return NULL;
}

/* Converts characters that stand for bytes to these bytes. Returns their number, or -EINVAL if a character stands for
 * no byte. */
static int read_bytes(const char *text, size_t n, uint8_t *ret)
{
    static const uint8_t others_first = 188; /* the id of U+0100 */
    int n_bytes = 0;
    for (size_t i = 0; i < n;) {
        const uint8_t *at = (const uint8_t *)text + i;
        unsigned code = at[0];
        if (code >= 0x80) {
            if ((at[0] & 0xE0) != 0xC0 || i + 1 == n || (at[1] & 0xC0) != 0x80)
                return -EINVAL;
            code = (at[0] & 0x1Fu) << 6 | (at[1] & 0x3Fu);
            if (code < 0x80)
                return -EINVAL;
            i++;
        }
        i++;
        if (code < BPE_BYTES) {
            if (!byte_prints(code))
                return -EINVAL;
            ret[n_bytes++] = (uint8_t)code;
            continue;
        }
        unsigned id = code - 0x100 + others_first, byte = 0;
        while (byte < BPE_BYTES && (byte_prints(byte) || bpe_id_of_byte[byte] != id))
            byte++;
        if (byte == BPE_BYTES)
            return -EINVAL;
        ret[n_bytes++] = (uint8_t)byte;
    }
    return n_bytes;
}

static bool take_end(const char *text, size_t *n)
{
    if (*n <= END_BYTES || memcmp(text + *n - END_BYTES, END_OF_WORD, END_BYTES) != 0)
        return false;
    *n -= END_BYTES;
    return true;
}

/* Reads the pair of one line; its bytes are appended at *n_bytes. */
static int read_line(Bpe *bpe, int rank, const char *line, size_t n, uint32_t *n_bytes,
                     const char **ret_why)
{
    BpeToken *token = &bpe->tokens[rank];
    const char *blank = memchr(line, ' ', n);
    *ret_why = "ends with CR LF; lines of merges end with LF";
    if (n && line[n - 1] == '\r')
        return -EINVAL;
    *ret_why = "is not two tokens with a blank between them";
    if (!blank || blank == line || blank + 1 == line + n ||
        memchr(blank + 1, ' ', n - (size_t)(blank + 1 - line)))
        return -EINVAL;
    *ret_why = "is longer than a token can be";
    if (n > BPE_TOKEN_BYTES_MAX)
        return -EINVAL;
    size_t n_left = (size_t)(blank - line), n_right = n - n_left - 1;
    *ret_why = "begins with a token that ends a word";
    if (take_end(line, &n_left))
        return -EINVAL;
    token->ends = take_end(blank + 1, &n_right);
    uint8_t *to = bpe->bytes + *n_bytes;
    int left = read_bytes(line, n_left, to);
    int right = left < 0 ? left : read_bytes(blank + 1, n_right, to + left);
    *ret_why = "has a character that stands for no byte";
    if (right < 0)
        return -EINVAL;
    token->at = *n_bytes;
    token->n = (uint16_t)(left + right);
    token->n_left = (uint16_t)left;
    *n_bytes += token->n;
    return 0;
}

static int compare(const uint8_t *a, size_t n_a, bool a_ends, const uint8_t *b, size_t n_b,
                   bool b_ends)
{
    int order = memcmp(a, b, MIN(n_a, n_b));
    if (order)
        return order;
    return n_a != n_b ? (n_a < n_b ? -1 : 1) : (int)a_ends - (int)b_ends;
}

static int compare_ranks(const void *a, const void *b, void *userdata)
{
    const Bpe *bpe = userdata;
    const BpeToken *x = &bpe->tokens[*(const uint32_t *)a], *y = &bpe->tokens[*(const uint32_t *)b];
    int order = compare(bpe->bytes + x->at, x->n, x->ends, bpe->bytes + y->at, y->n, y->ends);
    return order ? order : x < y ? -1 : x > y;
}

int bpe_find_bytes(const Bpe *bpe, const uint8_t *bytes, size_t n, bool ends)
{
    if (n == 1)
        return bpe_id_of_byte[bytes[0]] + (ends ? BPE_BYTES : 0);
    int lo = 0, hi = bpe->n_merges;
    while (lo < hi) {
        int middle = (lo + hi) / 2;
        const BpeToken *token = &bpe->tokens[bpe->sorted[middle]];
        int order = compare(bpe->bytes + token->at, token->n, token->ends, bytes, n, ends);
        if (order == 0)
            return BPE_MERGES_FIRST + (int)bpe->sorted[middle];
        if (order < 0)
            lo = middle + 1;
        else
            hi = middle;
    }
    return -ENOENT;
}

int bpe_find(const Bpe *bpe, const char *text, size_t n)
{
    uint8_t bytes[BPE_TOKEN_BYTES_MAX];
    if (n == strlen("<|startoftext|>") && memcmp(text, "<|startoftext|>", n) == 0)
        return bpe->vocabulary - 2;
    if (n == strlen("<|endoftext|>") && memcmp(text, "<|endoftext|>", n) == 0)
        return bpe->vocabulary - 1;
    if (n == 0 || n > sizeof(bytes))
        return -ENOENT;
    bool ends = take_end(text, &n);
    int n_bytes = read_bytes(text, n, bytes);
    return n_bytes < 0 ? -ENOENT : bpe_find_bytes(bpe, bytes, (size_t)n_bytes, ends);
}

static int compare_keys(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Resolves the two tokens of each line and sorts the pairs. Line 1 is the head, line 2 has rank 0. */
static int link_pairs(const char *source, Bpe *bpe, Error *err)
{
    _cleanup_free_ uint64_t *keys = calloc((size_t)bpe->n_merges + 1, sizeof(*keys));
    if (!keys)
        return -ENOMEM;
    for (int rank = 0; rank < bpe->n_merges; rank++)
        bpe->sorted[rank] = (uint32_t)rank;
    qsort_r(bpe->sorted, (size_t)bpe->n_merges, sizeof(*bpe->sorted), compare_ranks, bpe);
    for (int i = 1; i < bpe->n_merges; i++) {
        const BpeToken *a = &bpe->tokens[bpe->sorted[i - 1]], *b = &bpe->tokens[bpe->sorted[i]];
        if (compare(bpe->bytes + a->at, a->n, a->ends, bpe->bytes + b->at, b->n, b->ends) == 0)
            return error_set(err, -EINVAL, "%s:%u: makes the token that line %u makes", source,
                             bpe->sorted[i] + 2, bpe->sorted[i - 1] + 2);
    }
    for (int rank = 0; rank < bpe->n_merges; rank++) {
        const BpeToken *token = &bpe->tokens[rank];
        const uint8_t *bytes = bpe->bytes + token->at;
        int left = bpe_find_bytes(bpe, bytes, token->n_left, false);
        int right = bpe_find_bytes(bpe, bytes + token->n_left, (size_t)(token->n - token->n_left),
                                   token->ends);
        int own = BPE_MERGES_FIRST + rank;
        if (left < 0 || right < 0 || left >= own || right >= own)
            return error_set(err, -EINVAL,
                             "%s:%d: its %s token is not a byte, and no line above makes it",
                             source, rank + 2, left < 0 || left >= own ? "first" : "second");
        keys[rank] = (uint64_t)left << 40 | (uint64_t)right << 20 | (uint64_t)own;
        bpe->begin[left + 1]++;
    }
    qsort(keys, (size_t)bpe->n_merges, sizeof(*keys), compare_keys);
    for (int id = 0; id < bpe->vocabulary; id++)
        bpe->begin[id + 1] += bpe->begin[id];
    for (int i = 0; i < bpe->n_merges; i++) {
        bpe->right[i] = (uint16_t)(keys[i] >> 20 & 0xFFFFF);
        bpe->made[i] = (uint16_t)(keys[i] & 0xFFFFF);
    }
    return 0;
}

/* Lists the tokens that are whole words, since most words of a caption are one token and the table finds them at once.
 * A token is left out if merging its bytes gives other ids, or if no slot is free for it: words that are not in the
 * table are merged. */
static int list_words(Bpe *bpe)
{
    BpeScratch scratch = {0};
    int r = 0;
    for (int rank = 0; rank < bpe->n_merges && r >= 0; rank++) {
        const BpeToken *token = &bpe->tokens[rank];
        const uint8_t *word = bpe->bytes + token->at;
        int32_t ids[2];
        if (!token->ends)
            continue;
        r = bpe_word_by_merges(bpe, &scratch, word, token->n, ids, 2);
        if (r != 1 || ids[0] != BPE_MERGES_FIRST + rank)
            continue;
        size_t slot = bpe_word_slot(word, token->n);
        for (size_t probe = 0; probe < BPE_WORD_PROBES; probe++)
            if (!bpe->words[(slot + probe) % BPE_WORD_SLOTS]) {
                bpe->words[(slot + probe) % BPE_WORD_SLOTS] = (uint16_t)ids[0];
                break;
            }
    }
    bpe_scratch_free(&scratch);
    return r < 0 ? r : 0;
}

static int allocate(Bpe *bpe, size_t n_text)
{
    size_t n = (size_t)bpe->n_merges + 1;
    bpe->bytes = malloc(n_text + 1);
    bpe->tokens = calloc(n, sizeof(*bpe->tokens));
    bpe->sorted = calloc(n, sizeof(*bpe->sorted));
    bpe->begin = calloc((size_t)bpe->vocabulary + 1, sizeof(*bpe->begin));
    bpe->right = calloc(n, sizeof(*bpe->right));
    bpe->made = calloc(n, sizeof(*bpe->made));
    bpe->words = calloc(BPE_WORD_SLOTS, sizeof(*bpe->words));
    bool all = bpe->bytes && bpe->tokens && bpe->sorted && bpe->begin && bpe->right && bpe->made &&
               bpe->words;
    return all ? 0 : -ENOMEM;
}

static int read_lines(const char *source, Bpe *bpe, const char *text, size_t n, Error *err)
{
    const char *at = text, *end = text + n, *newline = memchr(text, '\n', n);
    size_t n_head = newline ? (size_t)(newline - text) : n;
    if (!memmem(text, n_head, "#version", strlen("#version")))
        return error_set(err, -EINVAL, "%s:1: the head of a file of merges says \"#version\"",
                         source);
    bool original =
        n_head >= sizeof(ORIGINAL) - 1 && memcmp(text, ORIGINAL, sizeof(ORIGINAL) - 1) == 0;
    at = newline ? newline + 1 : end;
    const char *first = at;
    uint32_t n_bytes = 0;
    for (int rank = 0; rank < bpe->n_merges; rank++) {
        if (at == end)
            return error_set(err, -EINVAL, "%s:%d: the file ends; a vocabulary of %d has %d merges",
                             source, rank + 2, bpe->vocabulary, bpe->n_merges);
        const char *why, *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        int r = read_line(bpe, rank, at, (size_t)(stop - at), &n_bytes, &why);
        if (r < 0)
            return error_set(err, r, "%s:%d: %s", source, rank + 2, why);
        at = stop == end ? end : stop + 1;
    }
    size_t n_used = (size_t)(at - first);
    bpe->hash = hash_bytes(first, n_used - (n_used && at[-1] == '\n'));
    if (!original && at != end)
        return error_set(err, -EINVAL, "%s:%d: goes on; a vocabulary of %d has %d merges", source,
                         bpe->n_merges + 2, bpe->vocabulary, bpe->n_merges);
    return 0;
}

int bpe_new(const char *source, const char *text, size_t n_bytes, int vocabulary, Bpe **ret,
            Error *err)
{
    if (vocabulary < BPE_VOCABULARY_MIN || vocabulary > BPE_VOCABULARY_MAX)
        return error_set(err, -EINVAL, "%s: a vocabulary of %d: it is %d to %d", source, vocabulary,
                         BPE_VOCABULARY_MIN, BPE_VOCABULARY_MAX);
    _cleanup_(bpe_freep) Bpe *bpe = memory_new(Bpe);
    bpe->vocabulary = vocabulary;
    bpe->n_merges = vocabulary - BPE_VOCABULARY_MIN;
    int r = allocate(bpe, n_bytes);
    if (r >= 0)
        r = read_lines(source, bpe, text, n_bytes, err);
    if (r >= 0)
        r = link_pairs(source, bpe, err);
    if (r >= 0)
        r = list_words(bpe);
    if (r == -ENOMEM)
        return error_errno(err, r, "%s", source);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(bpe);
    return 0;
}
