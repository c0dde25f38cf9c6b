/* SPDX-License-Identifier: Apache-2.0 */
/* unicode.h - properties of characters in Unicode 15.0, and texts as arrays of code points.
 *
 * With another version of Unicode, some characters would have other properties, and captions other tokens. So the
 * tables are of one version, in the source tree (make-unicode.py), and no library is used.
 *
 * Ownership: the caller's CodePoints, which begin as zeros and end with codes_free().
 * Units:     n counts code points.
 * Errors:    -ENOMEM; -EILSEQ bytes that are not UTF-8 (by Unicode's own rule: no surrogates, no overlong forms,
 *            nothing beyond U+10FFFF).
 * Threads:   any; a CodePoints belongs to one thread.
 */
#pragma once

#include "base/cleanup.h"
#include "base/macro.h"

typedef enum CodeFlags {
    CODE_LETTER = 1 << 0,  /* general category L */
    CODE_NUMBER = 1 << 1,  /* general category N */
    CODE_SPACE = 1 << 2,   /* White_Space */
    CODE_DECIMAL = 1 << 3, /* general category Nd */
    CODE_CASED = 1 << 4,
    CODE_IGNORABLE = 1 << 5, /* Case_Ignorable */
    CODE_UNSTABLE = 1 << 6,  /* NFC may change the character, or its neighbours */
} CodeFlags;

typedef struct CodePoints {
    uint32_t *at;
    size_t n, room;
} CodePoints;

void codes_free(CodePoints *codes);
/* Makes room for n more code points. */
_must_check_ int codes_reserve(CodePoints *codes, size_t n);
/* Adds one code point; there must be room for it. */
static inline void codes_add(CodePoints *codes, uint32_t code)
{
    assert(codes->n < codes->room);
    codes->at[codes->n++] = code;
}
_must_check_ int codes_copy(CodePoints *to, const uint32_t *from, size_t n);
/* Replaces the content of codes with the decoded text. */
_must_check_ int codes_decode(CodePoints *codes, const char *text, size_t n_bytes);
/* Encodes a code point as 1 to 4 bytes of UTF-8, and returns their number. */
size_t code_encode(uint32_t code, uint8_t ret[4]);

unsigned code_flags(uint32_t code);
/* Works like str.isspace() of Python: White_Space, and U+001C to U+001F. */
bool code_is_python_space(uint32_t code);
/* Writes the NFKC form, before composition, of U+FF01 to U+FFEF, and returns its number of code points: one or two.
 * Returns 0 for all other code points. */
size_t code_narrow(uint32_t code, uint32_t ret[2]);

/* Normalises in place to NFC; the content of scratch is overwritten. */
_must_check_ int codes_compose(CodePoints *codes, CodePoints *scratch);
/* Lower-cases in place: with final_sigma as str.lower() of Python does, else each character by itself. */
_must_check_ int codes_lower(CodePoints *codes, bool final_sigma, CodePoints *scratch);
