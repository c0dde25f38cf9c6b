/* SPDX-License-Identifier: Apache-2.0 */
/* hashed-text.c - see hashed-text.h. */
#include "encoders/hashed-text.h"

#include "base/number/exactmath.h"
#include "base/number/hash.h"
#include "base/number/philox.h"

#include <string.h>

enum { WORD_SEED = 77, WORD_BYTES_MAX = 64 };

struct HashedText {
    int dim;
    float *tables; /* [HASHED_TEXT_TOKENS + 3][dim]: positions, then begin, end, padding */
};

/* Factors of a word's and a position's numbers, whose variance is 1. Their weighted sum has variance 1, too. */
static const float word_weight = 0.89442719F, position_weight = 0.44721360F;

static void draw(const void *name, size_t n_bytes, float weight, int dim, float *ret)
{
    uint64_t key = hash64_bytes(name, n_bytes, WORD_SEED);
    for (int i = 0; i < dim; i += 4) {
        Philox block = philox4x32(key, 0, (uint64_t)(i / 4));
        float values[4];
        exact_normal_pair(block.word[0], block.word[1], values);
        exact_normal_pair(block.word[2], block.word[3], values + 2);
        for (int k = 0; k < MIN(4, dim - i); k++)
            ret[i + k] = values[k] * weight;
    }
}

int hashed_text_new(int dim, HashedText **ret, Error *err)
{
    if (dim < 2 || dim > HASHED_TEXT_DIM_MAX || dim % 2 != 0)
        return error_set(err, -EINVAL, "text dim %d: an even number up to %d is possible", dim,
                         HASHED_TEXT_DIM_MAX);
    _cleanup_(hashed_text_freep) HashedText *text = calloc(1, sizeof(*text));
    if (!text)
        return error_set(err, -ENOMEM, "out of memory");
    text->dim = dim;
    text->tables = malloc((size_t)(HASHED_TEXT_TOKENS + 3) * (size_t)dim * sizeof(float));
    if (!text->tables)
        return error_set(err, -ENOMEM, "out of memory");

    /* No word equals one of these names: a word has no "<" and no ">". */
    static const char *const marks[] = {"<begin>", "<end>", "<pad>"};
    for (int i = 0; i < HASHED_TEXT_TOKENS; i++) {
        char name[32];
        int n = snprintf(name, sizeof(name), "<position %d>", i);
        draw(name, (size_t)n, position_weight, dim, text->tables + (ptrdiff_t)i * dim);
    }
    for (int i = 0; i < 3; i++)
        draw(marks[i], strlen(marks[i]), word_weight, dim,
             text->tables + (ptrdiff_t)(HASHED_TEXT_TOKENS + i) * dim);
    *ret = TAKE_PTR(text);
    return 0;
}

HashedText *hashed_text_free(HashedText *text)
{
    if (text) {
        free(text->tables);
        free(text);
    }
    return NULL;
}

/* Reports whether a byte belongs to a word: ASCII letters and digits, and all bytes that are not ASCII. */
static bool in_word(unsigned char c)
{
    return c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Reads the next word, lower-cased and cut to WORD_BYTES_MAX, and returns its length; 0 at the end. */
static size_t next_word(const char **p, char *ret)
{
    while (**p && !in_word((unsigned char)**p))
        (*p)++;
    size_t n = 0;
    for (; in_word((unsigned char)**p); (*p)++)
        if (n < WORD_BYTES_MAX)
            ret[n++] = **p >= 'A' && **p <= 'Z' ? (char)(**p - 'A' + 'a') : **p;
    return n;
}

void hashed_text_embed(const HashedText *text, const char *caption, float *ret)
{
    int dim = text->dim, n_tokens = 0;
    const float *marks = text->tables + (ptrdiff_t)HASHED_TEXT_TOKENS * dim;
    size_t row_bytes = (size_t)dim * sizeof(float);

    memcpy(ret, marks, row_bytes);
    n_tokens++;
    char word[WORD_BYTES_MAX];
    for (size_t n; n_tokens < HASHED_TEXT_TOKENS - 1 && (n = next_word(&caption, word)) > 0;)
        draw(word, n, word_weight, dim, ret + (ptrdiff_t)n_tokens++ * dim);
    memcpy(ret + (ptrdiff_t)n_tokens++ * dim, marks + dim, row_bytes);
    while (n_tokens < HASHED_TEXT_TOKENS)
        memcpy(ret + (ptrdiff_t)n_tokens++ * dim, marks + 2 * (ptrdiff_t)dim, row_bytes);

    for (ptrdiff_t i = 0; i < (ptrdiff_t)HASHED_TEXT_TOKENS * dim; i++)
        ret[i] += text->tables[i];
}
