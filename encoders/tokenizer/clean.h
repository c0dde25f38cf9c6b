/* SPDX-License-Identifier: Apache-2.0 */
/* clean.h - what open_clip does to a caption before lower-casing: ftfy's fixes and HTML's entities.
 *
 * clean_caption() has these steps of ftfy 6's fix_text(), per line and until nothing changes: entities (until a line
 * has a "<"), the repair of mojibake (mojibake.h), C1 controls read as windows-1252, Latin ligatures, full and half
 * width, curly quotes, line breaks, terminal escapes, removal of control characters (including U+0000) and NFC.
 * Python's html.unescape() follows, twice.
 *
 * After CLEAN_ROUNDS rounds a line is not changed further: each level of an entity within an entity would take another
 * round.
 *
 * Ownership: the caller's Cleaning, which begins as zeros and ends with cleaning_free().
 * Errors:    -ENOMEM.
 * Threads:   any; a Cleaning belongs to one thread.
 */
#pragma once

#include "encoders/tokenizer/mojibake.h"

enum { CLEAN_ROUNDS = 8, CLEAN_LINE_MAX = 1000000 /* longer lines are cut, as in ftfy */ };

/* Buffers that are reused between captions. */
typedef struct Cleaning {
    CodePoints out, line, mapped, scratch;
    Mojibake mojibake;
} Cleaning;

void cleaning_free(Cleaning *cleaning);
/* Cleans text in place. */
_must_check_ int clean_caption(Cleaning *cleaning, CodePoints *text);
