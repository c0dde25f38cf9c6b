/* SPDX-License-Identifier: Apache-2.0 */
/* mojibake.h - repairs texts whose UTF-8 was read as another encoding, as fix_encoding() of ftfy 6.3.1 does.
 *
 * "sch\u00C3\u00B6n" becomes "sch\u00F6n". A text is repaired if mojibake shows (mojibake-signs.h). In this order, and
 * until nothing changes: all of it is UTF-8 in one of ten encodings; parts of it are; control characters from U+0080 on
 * are windows-1252. Blanks that were U+00A0 and bytes that were lost are taken into account.
 *
 * ftfy goes on for as long as something changes. Here a text has an allowance of steps that grows with its length, and
 * parts within parts go MOJIBAKE_DEPTH deep: only texts that were made to waste time reach either.
 *
 * Ownership: the caller's Mojibake, which begins as zeros and ends with mojibake_free().
 * Units:     code points.
 * Errors:    -ENOMEM.
 * Threads:   any; a Mojibake belongs to one thread.
 */
#pragma once

#include "encoders/tokenizer/unicode.h"

enum { MOJIBAKE_DEPTH = 4, MOJIBAKE_WORK = 1 << 16, MOJIBAKE_WORK_FACTOR = 64 };

typedef struct Mojibake {
    CodePoints text[MOJIBAKE_DEPTH], made[MOJIBAKE_DEPTH]; /* at each depth */
    uint8_t *bytes[2];
    size_t room; /* of each */
    size_t work; /* code points that may still be looked at */
} Mojibake;

void mojibake_free(Mojibake *mojibake);
/* Allows work for a caption of n code points, whose lines are then repaired. */
void mojibake_begin(Mojibake *mojibake, size_t n);
/* Repairs a line in place, which never becomes longer. */
_must_check_ int mojibake_repair(Mojibake *mojibake, CodePoints *line);
