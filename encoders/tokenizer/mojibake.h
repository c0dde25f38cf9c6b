/* SPDX-License-Identifier: Apache-2.0 */
/* mojibake.h - repairs texts whose UTF-8 was read as another encoding, as fix_encoding() of ftfy 6.3.1 does.
 *
 * "sch\u00C3\u00B6n" becomes "sch\u00F6n". A text is repaired if it looks like mojibake (mojibake-signs.h). These steps
 * are tried in this order, until nothing changes: converting the whole text to bytes in one of ten encodings, and
 * reading the bytes as UTF-8; doing so with parts of the text; reading control characters from U+0080 on as
 * windows-1252. U+00A0 that became a blank and lost bytes are taken into account.
 *
 * ftfy continues while something changes. Here the number of steps is limited in proportion to the text's length, and
 * parts within parts are repaired only MOJIBAKE_DEPTH deep: only texts that were made to waste time reach these limits.
 *
 * Ownership: the caller's Mojibake, which begins as zeros and ends with mojibake_free().
 * Errors:    -ENOMEM.
 * Threads:   any; a Mojibake belongs to one thread.
 */
#pragma once

#include "encoders/tokenizer/unicode.h"

enum { MOJIBAKE_DEPTH = 4, MOJIBAKE_WORK = 1 << 16, MOJIBAKE_WORK_FACTOR = 64 };

typedef struct Mojibake {
    /* The text and its repair, at each depth. */
    CodePoints text[MOJIBAKE_DEPTH], made[MOJIBAKE_DEPTH];
    uint8_t *bytes[2];
    size_t room; /* size of each buffer */
    size_t work; /* remaining allowance of work, in code points */
} Mojibake;

void mojibake_free(Mojibake *mojibake);
/* Sets the allowance of work for a caption of n code points, whose lines are then repaired. */
void mojibake_begin(Mojibake *mojibake, size_t n);
/* Repairs a line in place. The line never becomes longer. */
_must_check_ int mojibake_repair(Mojibake *mojibake, CodePoints *line);
