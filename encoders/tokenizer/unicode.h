/* SPDX-License-Identifier: Apache-2.0 */
/* unicode.h - what Unicode 15.0 says of characters, and texts as arrays of them.
 *
 * A letter that a newer table knows would be another token in another year. So the tables are of one version, in the
 * tree (make-unicode.py), and no library is asked.
 *
 * Ownership: the caller's CodePoints, which begin as zeros and end with codes_free().
 * Units:     n counts code points.
 * Errors:    -ENOMEM; -EILSEQ bytes that are not UTF-8 (Unicode's own rule: no surrogate, nothing overlong,
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
    CODE_UNSTABLE = 1 << 6,  /* NFC may change it, or what is around it */
} CodeFlags;

typedef struct CodePoints {
    uint32_t *at;
    size_t n, room;
} CodePoints;

void codes_free(CodePoints *codes);
/* Makes room for n more. */
_must_check_ int codes_reserve(CodePoints *codes, size_t n);
/* Adds one, for which there is room. */
static inline void codes_add(CodePoints *codes, uint32_t code)
{
    assert(codes->n < codes->room);
    codes->at[codes->n++] = code;
}
_must_check_ int codes_copy(CodePoints *to, const uint32_t *from, size_t n);
/* Replaces what codes holds. */
_must_check_ int codes_decode(CodePoints *codes, const char *text, size_t n_bytes);
/* Writes 1 to 4 bytes and returns how many. */
size_t code_encode(uint32_t code, uint8_t ret[4]);

unsigned code_flags(uint32_t code);
/* str.isspace() of Python: White_Space, and U+001C to U+001F. */
bool code_is_python_space(uint32_t code);
/* Writes what NFKC makes of U+FF01 to U+FFEF, up to the composition, and returns how many code points these are: one or
 * two. Returns 0 for all others. */
size_t code_narrow(uint32_t code, uint32_t ret[2]);

/* Normalises in place to NFC; scratch may hold anything. */
_must_check_ int codes_compose(CodePoints *codes, CodePoints *scratch);
/* Lower-cases in place. With final_sigma it is str.lower() of Python, else each character by itself. */
_must_check_ int codes_lower(CodePoints *codes, bool final_sigma, CodePoints *scratch);
