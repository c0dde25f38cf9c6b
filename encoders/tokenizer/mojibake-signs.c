/* SPDX-License-Identifier: Apache-2.0 */
/* mojibake-signs.c - the pairs of kinds, and longer contexts, that show that a text is mojibake. */
#include "encoders/tokenizer/mojibake-signs.h"

#include "encoders/tokenizer/unicode.h"

#include <uchar.h>

#include "encoders/tokenizer/mojibake-tables.inc"

enum {
    PAGE = 64,
    KINDS_OF_PAIRS = 14,
    PLACES_MAX = 7,
    /* Kinds of ordinary characters, for contexts. */
    LATIN_LOWER = 1 << 19,
    LATIN_UPPER = 1 << 20,
    NOT_LATIN = 1 << 21, /* not an ASCII letter */
    BLANK = 1 << 22,
    SPACE = 1 << 23,
    WORD = 1 << 24, /* letters, numbers and "_" */
    STOP = 1 << 25, /* . , ? ! */
    NO_BREAK = 1 << 26,
    BEGIN = 1 << 27, /* the beginning of the text, without a character */
    LATIN = LATIN_LOWER | LATIN_UPPER,
    BAD = MOJIBAKE_BAD,
    LAW = MOJIBAKE_LAW,
    CURRENCY = MOJIBAKE_CURRENCY,
    OPENING = MOJIBAKE_OPENING,
    CLOSING = MOJIBAKE_CLOSING,
    NUMERIC = MOJIBAKE_NUMERIC,
    UPPER_ACCENTED = MOJIBAKE_UPPER_ACCENTED,
    LOWER_ACCENTED = MOJIBAKE_LOWER_ACCENTED,
    ACCENTED = UPPER_ACCENTED | LOWER_ACCENTED,
    BOX = MOJIBAKE_BOX,
};

/* For each kind of character, by its bit number: the kinds that indicate mojibake directly behind such a character. */
static const uint32_t suspicious_behind[KINDS_OF_PAIRS] = {
    [2] = BAD | ACCENTED | BOX | OPENING | CLOSING | CURRENCY | NUMERIC | LAW, /* BAD */
    [3] = BAD | BOX,                                                           /* LAW */
    [4] = BAD | BOX | ACCENTED | OPENING,                                      /* CURRENCY */
    [5] = BAD | BOX,                                                           /* OPENING */
    [6] = BAD | BOX | ACCENTED | CURRENCY,                                     /* CLOSING */
    [7] = BAD | BOX | ACCENTED | OPENING,                                      /* NUMERIC */
    [9] = BAD | BOX | NUMERIC | LAW,                                           /* UPPER_ACCENTED */
    [10] = BAD | BOX | UPPER_ACCENTED | CURRENCY,                              /* LOWER_ACCENTED */
    [12] = UPPER_ACCENTED,                                                     /* LOWER */
    [13] = BAD | ACCENTED | OPENING | CLOSING | CURRENCY | NUMERIC | LAW |     /* BOX */
           MOJIBAKE_FACE,
};

/* One character of a context: it must be of one of the kinds, or be one of `others`. */
typedef struct Place {
    uint32_t kinds;
    const char16_t *others;
} Place;

typedef struct Context {
    uint8_t sign, n; /* sign: index of the place that is searched first; n: number of places */
    Place places[PLACES_MAX];
} Context;

#define A_GRAVE_BEGINS u"\u00C3\u00C2"
#define CYRILLIC_BEGINS u"\u0412\u0413\u0420\u0421"
#define GREEK_BEGINS u"\u0392\u0393\u039E\u039F"
#define ARABIC_BEGINS u"\u00D8\u00D9"
#define ARABIC_NEXT                                                                                \
    {                                                                                              \
        MOJIBAKE_COMMON | CURRENCY | BAD | NUMERIC | OPENING, u"\u0178\u0160\u00AE\u00B0\u00BB"    \
    }

static const Context contexts[] = {
    /* Mojibake of any encoding. */
    {1, 3, {{LATIN, NULL}, {MOJIBAKE_UPPER | MOJIBAKE_LOWER, NULL}, {BAD, NULL}}},
    {1, 3, {{SPACE, NULL}, {UPPER_ACCENTED, NULL}, {CURRENCY, NULL}}},
    {1, 3, {{LATIN_LOWER, NULL}, {UPPER_ACCENTED, NULL}, {OPENING | CURRENCY, NULL}}},
    {0, 3, {{ACCENTED | BOX | CURRENCY | CLOSING, NULL}, {OPENING, NULL}, {NUMERIC, NULL}}},
    {0, 3, {{ACCENTED | BOX | CURRENCY | NUMERIC | LAW, NULL}, {CLOSING, NULL}, {OPENING, NULL}}},
    {0, 3, {{ACCENTED, NULL}, {OPENING | CLOSING, NULL}, {WORD, NULL}}},
    {0, 2, {{0, u"\u0152\u0153"}, {NOT_LATIN, NULL}}},
    {0, 2, {{UPPER_ACCENTED, NULL}, {0, u"\u00B0"}}},
    /* UTF-8 read as windows-1252: letters, then Hebrew, Arabic, Indic scripts; a blank may stand for U+00A0. */
    {0,
     2,
     {{0, u"\u00C2\u00C3\u00CE\u00D0"},
      {OPENING | CLOSING,
       u"\u20AC\u0153\u0160\u0161\u00A2\u00A3\u0178\u017E\u00A0\u00AD\u00B0\u00B7"
       u"\u2013\u2014\u00B4"}}},
    {0, 2, {{0, u"\u00D7"}, {0, u"\u00B2\u00B3"}}},
    {0, 4, {{0, ARABIC_BEGINS}, ARABIC_NEXT, {0, ARABIC_BEGINS}, ARABIC_NEXT}},
    {0, 2, {{0, u"\u00E0"}, {0, u"\u00B2\u00B5\u00B9\u00BC\u00BD\u00BE"}}},
    {1, 3, {{LATIN_LOWER | BEGIN, NULL}, {0, A_GRAVE_BEGINS}, {BLANK, NULL}}},
    {2, 4, {{LATIN_LOWER, NULL}, {SPACE, NULL}, {0, A_GRAVE_BEGINS}, {BLANK, NULL}}},
    {1, 3, {{STOP, NULL}, {0, u"\u00C2"}, {BLANK, NULL}}},
    /* UTF-8 read as Mac OS Roman. */
    {0,
     2,
     {{0, u"\u221A"},
      {0, u"\u00B1\u2202\u2020\u2260\u00AE\u2122\u00B4\u2264\u2265\u00A5\u00B5\u00F8"}}},
    {0, 2, {{0, u"\u2248"}, {0, u"\u00B0\u00A2"}}},
    {0,
     3,
     {{0, u"\u201A"},
      {0, u"\u00C4"},
      {0, u"\u00EC\u00EE\u00EF\u00F2\u00F4\u00FA\u00F9\u00FB\u2020\u00B0\u00A2\u03C0"}}},
    {0, 3, {{0, u"\u201A"}, {0, u"\u00E2\u00F3"}, {0, u"\u00E0\u00E4\u00B0\u00EA"}}},
    /* UTF-8 read as windows-1251; the text of the second context was also read as Latin-1. */
    {0, 2, {{0, u"\u0432"}, {0, u"\u0402"}}},
    {0,
     7,
     {{0, u"\u0413"},
      {0, u"\u045E"},
      {0, u"\u0412"},
      {0, u"\u0402"},
      {0, u"\u0412"},
      {NO_BREAK, NULL},
      {LATIN | BLANK, NULL}}},
    {0,
     3,
     {{0, CYRILLIC_BEGINS},
      {BAD | OPENING | CLOSING | CURRENCY, u"\u00B0\u00B5"},
      {0, CYRILLIC_BEGINS}}},
    /* UTF-8 read as windows-1253. */
    {0, 3, {{0, u"\u03B2"}, {0, u"\u20AC"}, {0, u"\u2122\u00A0\u0386\u00AD\u00AE\u00B0"}}},
    {0, 3, {{0, GREEK_BEGINS}, {BAD | OPENING | CLOSING | CURRENCY, u"\u00B0"}, {0, GREEK_BEGINS}}},
};

const MojibakeSign *mojibake_sign(uint32_t code)
{
    size_t page = code < ELEMENTSOF(mojibake_pages) * PAGE ? mojibake_pages[code / PAGE] : 0;
    return &mojibake_signs[mojibake_index[page * PAGE + code % PAGE]];
}

static uint32_t kinds_of(uint32_t code)
{
    unsigned flags = code_flags(code);
    bool lower = code >= 'a' && code <= 'z', upper = code >= 'A' && code <= 'Z';
    uint32_t kinds = mojibake_sign(code)->kinds;
    kinds |= lower ? LATIN_LOWER : upper ? LATIN_UPPER : NOT_LATIN;
    kinds |= code == ' ' ? BLANK : 0;
    kinds |= code_is_python_space(code) ? SPACE : 0;
    kinds |= flags & (CODE_LETTER | CODE_NUMBER) || code == '_' ? WORD : 0;
    kinds |= code == '.' || code == ',' || code == '?' || code == '!' ? STOP : 0;
    kinds |= code != '\n' ? NO_BREAK : 0;
    return kinds;
}

static bool is_among(const char16_t *others, uint32_t code)
{
    for (; others && *others; others++)
        if (*others == code)
            return true;
    return false;
}

/* Reports whether the context matches with its place `sign` at codes[at]. */
static bool is_there(const Context *context, const uint32_t *codes, size_t n, size_t at)
{
    for (size_t i = 0; i < context->n; i++) {
        const Place *place = &context->places[i];
        if (at + i < context->sign) {
            if (at + i + 1 != context->sign || !(place->kinds & BEGIN))
                return false;
            continue;
        }
        size_t which = at + i - context->sign;
        if (which >= n ||
            (!(place->kinds & kinds_of(codes[which])) && !is_among(place->others, codes[which])))
            return false;
    }
    return true;
}

bool mojibake_shows(const uint32_t *codes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t kinds = codes[i] < 0x80 ? 0 : mojibake_sign(codes[i])->kinds;
        if (!kinds)
            continue;
        if (kinds & MOJIBAKE_C1)
            return true;
        uint32_t next = i + 1 < n ? mojibake_sign(codes[i + 1])->kinds : 0;
        for (size_t kind = 0; kind < KINDS_OF_PAIRS; kind++)
            if (kinds >> kind & 1 && next & suspicious_behind[kind])
                return true;
        for (size_t c = 0; c < ELEMENTSOF(contexts); c++) {
            const Place *place = &contexts[c].places[contexts[c].sign];
            if ((kinds & place->kinds || is_among(place->others, codes[i])) &&
                is_there(&contexts[c], codes, n, i))
                return true;
        }
    }
    return false;
}
