/* SPDX-License-Identifier: Apache-2.0 */
/* unicode.c - uses the tables for classes, NFC (Unicode, chapter 3.11) and lower case (chapter 3.13). */
#include "encoders/tokenizer/unicode.h"

#include <string.h>

typedef struct UnicodeRecord {
    uint8_t flags, ccc; /* ccc is the canonical combining class */
    int32_t lower;      /* number to add to a letter's code point to get its lower-case form */
} UnicodeRecord;

typedef struct UnicodeDecomposition {
    uint32_t code;
    uint16_t pool, n;
} UnicodeDecomposition;

typedef struct UnicodePair {
    uint32_t first, second, made;
} UnicodePair;

#include "encoders/tokenizer/unicode-tables.inc"

enum {
    CODE_MAX = 0x10FFFF,
    DECOMPOSED_MAX = 4, /* the most code points that one code point decomposes to */
    HANGUL_S = 0xAC00,
    HANGUL_L = 0x1100,
    HANGUL_V = 0x1161,
    HANGUL_T = 0x11A7,
    HANGUL_N_L = 19,
    HANGUL_N_V = 21,
    HANGUL_N_T = 28,
    HANGUL_N = HANGUL_N_L * HANGUL_N_V * HANGUL_N_T,
    SORT_IN_PLACE = 32,
    WIDE_FIRST = 0xFF01,
    CAPITAL_SIGMA = 0x3A3,
    FINAL_SIGMA = 0x3C2,
    SIGMA = 0x3C3,
    CAPITAL_I_DOT = 0x130,
    DOT_ABOVE = 0x307,
};

static const UnicodeRecord *record_of(uint32_t code)
{
    assert(code <= CODE_MAX);
    size_t block = unicode_stage[code / UNICODE_BLOCK];
    return &unicode_records[unicode_blocks[block * UNICODE_BLOCK + code % UNICODE_BLOCK]];
}

unsigned code_flags(uint32_t code) { return record_of(code)->flags; }

bool code_is_python_space(uint32_t code)
{
    return (code >= 0x1C && code <= 0x1F) || (code_flags(code) & CODE_SPACE);
}

size_t code_narrow(uint32_t code, uint32_t ret[2])
{
    if (code < WIDE_FIRST || code - WIDE_FIRST >= ELEMENTSOF(unicode_wide) / 2)
        return 0;
    const uint16_t *wide = &unicode_wide[2 * (code - WIDE_FIRST)];
    ret[0] = wide[0];
    ret[1] = wide[1];
    return wide[1] ? 2 : 1;
}

void codes_free(CodePoints *codes)
{
    free(codes->at);
    *codes = (CodePoints){0};
}

int codes_reserve(CodePoints *codes, size_t n)
{
    if (codes->room - codes->n >= n)
        return 0;
    size_t room = MAX(codes->n + n, 2 * codes->room);
    uint32_t *at = reallocarray(codes->at, room, sizeof(*at));
    if (!at)
        return -ENOMEM;
    codes->at = at;
    codes->room = room;
    return 0;
}

int codes_copy(CodePoints *to, const uint32_t *from, size_t n)
{
    to->n = 0;
    int r = codes_reserve(to, n + 1);
    if (r < 0)
        return r;
    if (n)
        memcpy(to->at, from, n * sizeof(*from));
    to->n = n;
    return 0;
}

/* Reads a character whose first byte is 0x80 or more; returns its length in bytes, 0 if it is not valid. */
static size_t decode_one(const uint8_t *bytes, size_t n, uint32_t *ret)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = bytes[0] >= 0xF0 ? 4 : bytes[0] >= 0xE0 ? 3 : 2;
    if (bytes[0] < 0xC2 || bytes[0] > 0xF4 || length > n)
        return 0;
    uint32_t code = bytes[0] & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xC0) != 0x80)
            return 0;
        code = code << 6 | (bytes[i] & 0x3F);
    }
    if (code < least[length] || code > CODE_MAX || (code >= 0xD800 && code <= 0xDFFF))
        return 0;
    *ret = code;
    return length;
}

int codes_decode(CodePoints *codes, const char *text, size_t n_bytes)
{
    const uint8_t *bytes = (const uint8_t *)text;
    codes->n = 0;
    int r = codes_reserve(codes, n_bytes + 1);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n_bytes;) {
        uint32_t code = bytes[i];
        size_t length = code < 0x80 ? 1 : decode_one(bytes + i, n_bytes - i, &code);
        if (!length)
            return -EILSEQ;
        codes->at[codes->n++] = code;
        i += length;
    }
    return 0;
}

size_t code_encode(uint32_t code, uint8_t ret[4])
{
    size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    if (length == 1) {
        ret[0] = (uint8_t)code;
        return 1;
    }
    for (size_t i = length - 1; i > 0; i--) {
        ret[i] = (uint8_t)(0x80 | (code & 0x3F));
        code >>= 6;
    }
    ret[0] = (uint8_t)(0xF00u >> length | code);
    return length;
}

/* Adds the full canonical decomposition; `to` must have room for it. */
static void add_decomposed(CodePoints *to, uint32_t code)
{
    if (code - HANGUL_S < HANGUL_N) {
        uint32_t s = code - HANGUL_S, t = s % HANGUL_N_T;
        codes_add(to, HANGUL_L + s / (HANGUL_N_V * HANGUL_N_T));
        codes_add(to, HANGUL_V + s / HANGUL_N_T % HANGUL_N_V);
        if (t)
            codes_add(to, HANGUL_T + t);
        return;
    }
    size_t lo = 0, hi = code < 0xC0 ? 0 : ELEMENTSOF(unicode_decompositions);
    while (lo < hi) {
        size_t middle = (lo + hi) / 2;
        if (unicode_decompositions[middle].code < code)
            lo = middle + 1;
        else
            hi = middle;
    }
    const UnicodeDecomposition *found = &unicode_decompositions[lo];
    if (code < 0xC0 || lo == ELEMENTSOF(unicode_decompositions) || found->code != code) {
        codes_add(to, code);
        return;
    }
    for (size_t i = 0; i < found->n; i++)
        codes_add(to, unicode_pool[found->pool + i]);
}

/* Sorts n marks by their combining classes; marks of equal class keep their order. Long runs, as in hostile texts, are
 * sorted by counting. */
static int sort_marks(uint32_t *marks, size_t n)
{
    if (n > SORT_IN_PLACE) {
        size_t begin[257] = {0};
        uint32_t *copy = reallocarray(NULL, n, sizeof(*copy));
        if (!copy)
            return -ENOMEM;
        memcpy(copy, marks, n * sizeof(*copy));
        for (size_t i = 0; i < n; i++)
            begin[record_of(copy[i])->ccc + 1]++;
        for (size_t i = 1; i < ELEMENTSOF(begin); i++)
            begin[i] += begin[i - 1];
        for (size_t i = 0; i < n; i++)
            marks[begin[record_of(copy[i])->ccc]++] = copy[i];
        free(copy);
        return 0;
    }
    for (size_t i = 1; i < n; i++) {
        uint32_t mark = marks[i];
        size_t j = i;
        for (; j > 0 && record_of(marks[j - 1])->ccc > record_of(mark)->ccc; j--)
            marks[j] = marks[j - 1];
        marks[j] = mark;
    }
    return 0;
}

/* Returns the code point that two code points compose to; 0: they do not compose. */
static uint32_t compose_pair(uint32_t first, uint32_t second)
{
    if (first - HANGUL_L < HANGUL_N_L && second - HANGUL_V < HANGUL_N_V)
        return HANGUL_S + ((first - HANGUL_L) * HANGUL_N_V + second - HANGUL_V) * HANGUL_N_T;
    if (first - HANGUL_S < HANGUL_N && (first - HANGUL_S) % HANGUL_N_T == 0 &&
        second - HANGUL_T - 1 < HANGUL_N_T - 1)
        return first + second - HANGUL_T;
    size_t lo = 0, hi = ELEMENTSOF(unicode_pairs);
    while (lo < hi) {
        size_t middle = (lo + hi) / 2;
        const UnicodePair *pair = &unicode_pairs[middle];
        if (pair->first < first || (pair->first == first && pair->second < second))
            lo = middle + 1;
        else
            hi = middle;
    }
    if (lo == ELEMENTSOF(unicode_pairs))
        return 0;
    const UnicodePair *pair = &unicode_pairs[lo];
    return pair->first == first && pair->second == second ? pair->made : 0;
}

/* Decomposes all of codes into to, with marks in their canonical order. */
static int decompose(const CodePoints *codes, CodePoints *to)
{
    to->n = 0;
    int r = codes_reserve(to, codes->n * DECOMPOSED_MAX + 1);
    if (r < 0)
        return r;
    for (size_t i = 0; i < codes->n; i++)
        add_decomposed(to, codes->at[i]);
    for (size_t i = 0; i < to->n;) {
        size_t end = i;
        while (end < to->n && record_of(to->at[end])->ccc)
            end++;
        r = sort_marks(to->at + i, end - i);
        if (r < 0)
            return r;
        i = end + 1;
    }
    return 0;
}

int codes_compose(CodePoints *codes, CodePoints *scratch)
{
    size_t stable = 0;
    while (stable < codes->n && !(code_flags(codes->at[stable]) & CODE_UNSTABLE))
        stable++;
    if (stable == codes->n)
        return 0;
    int r = decompose(codes, scratch);
    if (r < 0)
        return r;
    codes->n = 0;
    r = codes_reserve(codes, scratch->n + 1);
    if (r < 0)
        return r;
    size_t starter = SIZE_MAX; /* index of the last code point of class 0 */
    uint8_t last = 0;          /* class of the last code point after the starter; 0: none */
    for (size_t i = 0; i < scratch->n; i++) {
        uint32_t code = scratch->at[i];
        uint8_t ccc = record_of(code)->ccc;
        uint32_t made = 0;
        if (starter != SIZE_MAX && (last == 0 || last < ccc))
            made = compose_pair(codes->at[starter], code);
        if (made) {
            codes->at[starter] = made;
            continue;
        }
        if (ccc == 0)
            starter = codes->n;
        last = ccc;
        codes_add(codes, code);
    }
    return 0;
}

/* Reports whether a sigma ends a word: a cased letter is before it and none after it, skipping case-ignorable
 * characters. */
static bool is_final(const CodePoints *codes, size_t at)
{
    size_t i = at;
    while (i > 0 && (code_flags(codes->at[i - 1]) & CODE_IGNORABLE))
        i--;
    if (i == 0 || !(code_flags(codes->at[i - 1]) & CODE_CASED))
        return false;
    for (i = at + 1; i < codes->n && (code_flags(codes->at[i]) & CODE_IGNORABLE);)
        i++;
    return i == codes->n || !(code_flags(codes->at[i]) & CODE_CASED);
}

int codes_lower(CodePoints *codes, bool final_sigma, CodePoints *scratch)
{
    scratch->n = 0;
    int r = codes_reserve(scratch, 2 * codes->n + 1);
    if (r < 0)
        return r;
    for (size_t i = 0; i < codes->n; i++) {
        uint32_t code = codes->at[i];
        if (code == CAPITAL_SIGMA) {
            codes_add(scratch, final_sigma && is_final(codes, i) ? FINAL_SIGMA : SIGMA);
        } else if (code == CAPITAL_I_DOT) {
            codes_add(scratch, 'i');
            codes_add(scratch, DOT_ABOVE);
        } else {
            codes_add(scratch, (uint32_t)((int32_t)code + record_of(code)->lower));
        }
    }
    CodePoints before = *codes;
    *codes = *scratch;
    *scratch = before;
    return 0;
}
