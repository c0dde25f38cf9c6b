/* SPDX-License-Identifier: Apache-2.0 */
/* mojibake-signs.h - whether a text looks like UTF-8 that was read as another encoding.
 *
 * Some five hundred characters occur in such texts. Each is of a kind, and some kinds hardly ever stand side by side in
 * what somebody meant to write: an accented letter and a currency, say. The kinds and what may not be beside what are
 * ftfy's (Robyn Speer, "Heuristics for detecting mojibake"), whose judgement open_clip's ids rest on.
 *
 * Ownership: none.
 * Units:     code points.
 * Errors:    none.
 * Threads:   any; pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MOJIBAKE_COMMON = 1 << 0,   /* stands beside anything */
    MOJIBAKE_C1 = 1 << 1,       /* control characters from U+0080 on */
    MOJIBAKE_BAD = 1 << 2,      /* hardly used otherwise */
    MOJIBAKE_LAW = 1 << 3,      /* paragraph signs */
    MOJIBAKE_CURRENCY = 1 << 4, /* signs of currencies */
    MOJIBAKE_OPENING = 1 << 5,  /* begins what follows */
    MOJIBAKE_CLOSING = 1 << 6,  /* ends what was before */
    MOJIBAKE_NUMERIC = 1 << 7,  /* mathematics */
    MOJIBAKE_FACE = 1 << 8,     /* parts of faces made of letters */
    MOJIBAKE_UPPER_ACCENTED = 1 << 9,
    MOJIBAKE_LOWER_ACCENTED = 1 << 10,
    MOJIBAKE_UPPER = 1 << 11, /* Greek, Cyrillic */
    MOJIBAKE_LOWER = 1 << 12,
    MOJIBAKE_BOX = 1 << 13,
    MOJIBAKE_FIRST_OF_2 = 1 << 14, /* may be the first byte of two, three or four of UTF-8 */
    MOJIBAKE_FIRST_OF_3 = 1 << 15,
    MOJIBAKE_FIRST_OF_4 = 1 << 16,
    MOJIBAKE_NEXT = 1 << 17,      /* may be one of the others */
    MOJIBAKE_NEXT_ONLY = 1 << 18, /* and is not a quote, dash or dots */
    MOJIBAKE_ENCODINGS = 10,
};

typedef struct MojibakeSign {
    uint32_t kinds;
    uint16_t encodings; /* one bit for each that has the character */
    uint8_t bytes[MOJIBAKE_ENCODINGS];
} MojibakeSign;

/* All zeros for ASCII and for what does not occur in mojibake. */
const MojibakeSign *mojibake_sign(uint32_t code);
bool mojibake_shows(const uint32_t *codes, size_t n);
