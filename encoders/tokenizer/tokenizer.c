/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.c - the two sets of rules, and the pattern that splits a cleaned text into words. */
#include "encoders/tokenizer/tokenizer.h"

#include "base/memory.h"
#include "encoders/tokenizer/clean.h"
#include "encoders/tokenizer/vocabulary.h"

#include <string.h>

enum {
    LONG_S = 0x17F,
    /* The only character that no part of open_clip's pattern matches. The part for letters does not match it, since it
     * is not a letter. The part for other characters does not match it either: the pattern ignores case, and a
     * lower-case form of the character is the letter iota. So the character is left out and separates words. */
    YPOGEGRAMMENI = 0x345,
};

struct Tokenizer {
    TokenizerRules rules;
    int n_tokens;
    Bpe *bpe;
};

struct TokenizerScratch {
    Cleaning cleaning;
    CodePoints text, part, other;
    BpeScratch bpe;
    uint8_t *word; /* BPE_WORD_BYTES_MAX bytes, and room for one more code point */
};

/* The ids that are being written. */
typedef struct Ids {
    const Tokenizer *tokenizer;
    TokenizerScratch *scratch;
    int32_t *at;
    size_t n, room; /* the last place is kept for the end id */
} Ids;

const char *tokenizer_rules_name(TokenizerRules rules)
{
    static const char *const names[TOKENIZER_N_RULES] = {"open_clip/2", "diffusers/1"};
    return names[rules];
}

int tokenizer_n_tokens(const Tokenizer *tokenizer) { return tokenizer->n_tokens; }
Hash tokenizer_hash(const Tokenizer *tokenizer) { return bpe_hash(tokenizer->bpe); }

int tokenizer_open(const char *path, TokenizerRules rules, int vocabulary, int n_tokens,
                   Tokenizer **ret, Error *err)
{
    assert((int)rules < TOKENIZER_N_RULES);
    if (n_tokens < 2 || n_tokens > TOKENIZER_TOKENS_MAX)
        return error_set(err, -EINVAL, "%s: a text of %d tokens: it has 2 to %d", path, n_tokens,
                         TOKENIZER_TOKENS_MAX);
    Bpe *bpe;
    int r = vocabulary_open(path, vocabulary, &bpe, err);
    if (r < 0)
        return r;
    *ret = memory_new(Tokenizer);
    **ret = (Tokenizer){.rules = rules, .n_tokens = n_tokens, .bpe = bpe};
    return 0;
}

Tokenizer *tokenizer_free(Tokenizer *tokenizer)
{
    if (!tokenizer)
        return NULL;
    (void)bpe_free(tokenizer->bpe);
    free(tokenizer);
    return NULL;
}

TokenizerScratch *tokenizer_scratch_free(TokenizerScratch *scratch)
{
    if (!scratch)
        return NULL;
    cleaning_free(&scratch->cleaning);
    codes_free(&scratch->text);
    codes_free(&scratch->part);
    codes_free(&scratch->other);
    bpe_scratch_free(&scratch->bpe);
    free(scratch->word);
    free(scratch);
    return NULL;
}

static bool is_full(const Ids *ids) { return ids->n + 1 >= ids->room; }

static void add_id(Ids *ids, int32_t id)
{
    if (!is_full(ids))
        ids->at[ids->n++] = id;
}

static int32_t begin_id(const Tokenizer *tokenizer) { return bpe_vocabulary(tokenizer->bpe) - 2; }
static int32_t end_id(const Tokenizer *tokenizer) { return bpe_vocabulary(tokenizer->bpe) - 1; }

static int add_word(Ids *ids, const uint32_t *codes, size_t n)
{
    uint8_t *word = ids->scratch->word;
    size_t n_bytes = 0;
    for (size_t i = 0; i < n && n_bytes < BPE_WORD_BYTES_MAX; i++)
        n_bytes += code_encode(codes[i], word + n_bytes);
    int r = bpe_word(ids->tokenizer->bpe, &ids->scratch->bpe, word, n_bytes, ids->at + ids->n,
                     ids->room - 1 - ids->n);
    if (r < 0)
        return r;
    ids->n += (size_t)r;
    return 0;
}

/* Reports whether the codes begin with an ASCII text. long_s: a long s, which lower() does not change, counts as "s",
 * since open_clip's pattern ignores case. */
static bool begins_with(const uint32_t *codes, size_t n, const char *text, bool long_s)
{
    size_t i = 0;
    for (; text[i]; i++)
        if (i == n ||
            (codes[i] != (uint32_t)text[i] && !(long_s && text[i] == 's' && codes[i] == LONG_S)))
            return false;
    return true;
}

/* Returns the length of 's, 't, 're, ... at an apostrophe; 0: there is none. */
static size_t contraction(const uint32_t *codes, size_t n, bool long_s)
{
    static const char *const all[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    for (size_t i = 0; i < ELEMENTSOF(all); i++)
        if (begins_with(codes, n, all[i], long_s))
            return strlen(all[i]);
    return 0;
}

static unsigned class_of(uint32_t code)
{
    return code_flags(code) & (CODE_LETTER | CODE_NUMBER | CODE_SPACE);
}

/* Returns the length of the word at codes, which does not begin with white space. */
static size_t word_length(const uint32_t *codes, size_t n, bool open_clip)
{
    unsigned class = class_of(codes[0]);
    size_t length = codes[0] == '\'' ? contraction(codes, n, open_clip) : 0;
    if (length || class & CODE_NUMBER)
        return length ? length : 1;
    while (length < n && class_of(codes[length]) == class &&
           !(open_clip && codes[length] == YPOGEGRAMMENI))
        length++;
    return length;
}

/* Returns which of two special texts, begin (0) or end (1), the codes begin with; -1: neither. */
static int special_at(const uint32_t *codes, size_t n, const char *const specials[2],
                      bool open_clip)
{
    if (codes[0] != '<')
        return -1;
    return begins_with(codes, n, specials[0], open_clip)   ? 0
           : begins_with(codes, n, specials[1], open_clip) ? 1
                                                           : -1;
}

static int add_words(Ids *ids, const uint32_t *codes, size_t n)
{
    static const char *const specials[2] = {"<start_of_text>", "<end_of_text>"};
    bool open_clip = ids->tokenizer->rules == TOKENIZER_OPEN_CLIP;
    int r = 0;
    for (size_t i = 0, length; i < n && !is_full(ids) && r >= 0; i += length) {
        length = 1;
        if ((class_of(codes[i]) & CODE_SPACE) || (open_clip && codes[i] == YPOGEGRAMMENI))
            continue;
        int special = open_clip ? special_at(codes + i, n - i, specials, true) : -1;
        length = special < 0 ? word_length(codes + i, n - i, open_clip) : strlen(specials[special]);
        if (special >= 0 && special_at(codes + i, n - i, specials, false) == special)
            add_id(ids, special ? end_id(ids->tokenizer) : begin_id(ids->tokenizer));
        else
            r = add_word(ids, codes + i, length);
    }
    return r;
}

/* Replaces runs of white space by one blank, and removes white space at both ends. */
static void join_words(CodePoints *text)
{
    size_t n = 0;
    bool blank = false;
    for (size_t i = 0; i < text->n; i++) {
        if (code_is_python_space(text->at[i])) {
            blank = true;
            continue;
        }
        if (blank && n)
            text->at[n++] = ' ';
        blank = false;
        text->at[n++] = text->at[i];
    }
    text->n = n;
}

/* Reports whether ftfy and html.unescape() certainly leave the text unchanged: it has no "&" and no control
 * characters. */
static bool is_plain(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((text[i] < ' ' && text[i] != '\n' && text[i] != '\t') || text[i] == '&' ||
            text[i] == 0x7F)
            return false;
    return true;
}

static int encode_open_clip(Ids *ids, const char *text, size_t n_bytes)
{
    TokenizerScratch *scratch = ids->scratch;
    int r = codes_decode(&scratch->text, text, n_bytes);
    if (r >= 0 && !is_plain(text, n_bytes))
        r = clean_caption(&scratch->cleaning, &scratch->text);
    if (r < 0)
        return r;
    join_words(&scratch->text);
    r = codes_lower(&scratch->text, true, &scratch->other);
    return r < 0 ? r : add_words(ids, scratch->text.at, scratch->text.n);
}

/* Adds the ids of the text between two "!". */
static int add_part(Ids *ids, const uint32_t *codes, size_t n)
{
    static const char *const specials[2] = {"<|startoftext|>", "<|endoftext|>"};
    CodePoints *part = &ids->scratch->part;
    int r = codes_copy(part, codes, n);
    if (r >= 0)
        r = codes_compose(part, &ids->scratch->other);
    if (r >= 0)
        r = codes_lower(part, false, &ids->scratch->other);
    size_t from = 0;
    for (size_t i = 0; r >= 0 && i < part->n;) {
        int which = special_at(part->at + i, part->n - i, specials, false);
        if (which < 0) {
            i++;
            continue;
        }
        r = add_words(ids, part->at + from, i - from);
        add_id(ids, which ? end_id(ids->tokenizer) : begin_id(ids->tokenizer));
        i += strlen(specials[which]);
        from = i;
    }
    return r < 0 ? r : add_words(ids, part->at + from, part->n - from);
}

static int encode_diffusers(Ids *ids, const char *text, size_t n_bytes)
{
    const CodePoints *codes = &ids->scratch->text;
    int r = codes_decode(&ids->scratch->text, text, n_bytes);
    for (size_t i = 0; r >= 0 && i < codes->n && !is_full(ids);) {
        size_t end = i;
        while (end < codes->n && codes->at[end] != '!')
            end++;
        if (end > i)
            r = add_part(ids, codes->at + i, end - i);
        if (end < codes->n)
            add_id(ids, 0);
        i = end + 1;
    }
    return r;
}

int tokenizer_encode(const Tokenizer *tokenizer, TokenizerScratch **scratch, const char *text,
                     size_t n_bytes, int32_t *ret)
{
    if (n_bytes > TOKENIZER_TEXT_BYTES_MAX)
        return -E2BIG;
    if (!*scratch) {
        *scratch = memory_new(TokenizerScratch);
        (*scratch)->word = memory_zeroed(BPE_WORD_BYTES_MAX + 4, 1);
    }
    Ids ids = {.tokenizer = tokenizer,
               .scratch = *scratch,
               .at = ret,
               .room = (size_t)tokenizer->n_tokens};
    add_id(&ids, begin_id(tokenizer));
    int r = tokenizer->rules == TOKENIZER_OPEN_CLIP ? encode_open_clip(&ids, text, n_bytes)
                                                    : encode_diffusers(&ids, text, n_bytes);
    if (r < 0)
        return r;
    ret[ids.n++] = end_id(tokenizer);
    for (size_t i = ids.n; i < ids.room; i++)
        ret[i] = 0;
    return (int)ids.n;
}
