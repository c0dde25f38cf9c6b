/* SPDX-License-Identifier: Apache-2.0 */
/* mojibake-signs.h - decides whether a text looks like UTF-8 that was read as another encoding.
 *
 * About five hundred characters occur in such texts. Each is of a kind, and some kinds are hardly ever adjacent in a
 * correct text: for example, an accented letter and a currency sign. The kinds and the pairs that must not be adjacent
 * are those of ftfy (Robyn Speer, "Heuristics for detecting mojibake"), on whose decisions open_clip's ids depend.
 *
 * Ownership: none. Errors: none. Threads: any; pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MOJIBAKE_COMMON = 1 << 0,   /* may be next to any character */
    MOJIBAKE_C1 = 1 << 1,       /* control characters from U+0080 on */
    MOJIBAKE_BAD = 1 << 2,      /* rare in correct texts */
    MOJIBAKE_LAW = 1 << 3,      /* paragraph signs */
    MOJIBAKE_CURRENCY = 1 << 4, /* signs of currencies */
    MOJIBAKE_OPENING = 1 << 5,  /* opening punctuation */
    MOJIBAKE_CLOSING = 1 << 6,  /* closing punctuation */
    MOJIBAKE_NUMERIC = 1 << 7,  /* mathematics */
    MOJIBAKE_FACE = 1 << 8,     /* parts of emoticons */
    MOJIBAKE_UPPER_ACCENTED = 1 << 9,
    MOJIBAKE_LOWER_ACCENTED = 1 << 10,
    MOJIBAKE_UPPER = 1 << 11, /* Greek, Cyrillic */
    MOJIBAKE_LOWER = 1 << 12,
    MOJIBAKE_BOX = 1 << 13,
    MOJIBAKE_FIRST_OF_2 = 1 << 14, /* may be the first byte of a UTF-8 character of 2 bytes */
    MOJIBAKE_FIRST_OF_3 = 1 << 15,
    MOJIBAKE_FIRST_OF_4 = 1 << 16,
    MOJIBAKE_NEXT = 1 << 17,      /* may be a later byte of a UTF-8 character */
    MOJIBAKE_NEXT_ONLY = 1 << 18, /* as MOJIBAKE_NEXT, but not a quote, dash or ellipsis */
    MOJIBAKE_ENCODINGS = 10,
};

typedef struct MojibakeSign {
    uint32_t kinds;
    uint16_t encodings; /* one bit for each encoding that has the character */
    uint8_t bytes[MOJIBAKE_ENCODINGS];
} MojibakeSign;

/* Returns the sign of a character: all zeros for ASCII and for characters that do not occur in mojibake. */
const MojibakeSign *mojibake_sign(uint32_t code);
bool mojibake_shows(const uint32_t *codes, size_t n);
