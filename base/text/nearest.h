/* SPDX-License-Identifier: Apache-2.0 */
/* nearest.h - finds the one or two offered words that a person probably meant, as they differ from the typed word only
 * by slips of the fingers.
 *
 * A slip is one letter too many, too few or wrong, or two neighbours exchanged. A word of n letters may have
 * 1 + n / 4 slips. A typed word that is only the beginning of an offered word counts as one slip, if it has at least
 * two letters. Words that differ only in digits are not similar: node7 is not node9.
 *
 * Units: bytes. Threads: any.
 * Ownership: a Nearest borrows the words.
 * Errors:    none; a word longer than NEAREST_WORD_MAX is similar to no other word.
 */
#pragma once

#include "base/macro.h"

enum { NEAREST_WORD_MAX = 63, NEAREST_TEXT_BYTES = 180 };

typedef struct Nearest {
    const char *asked;
    const char *words[2]; /* the best of the offered words, the nearest first */
    int distances[2];
    int n;
} Nearest;

static inline Nearest nearest_to(const char *asked) { return (Nearest){.asked = asked}; }
void nearest_offer(Nearest *nearest, const char *word);
/* Writes ' (did you mean "steps"?)' or ' (did you mean "a" or "b"?)', or nothing; returns ret. */
const char *nearest_text(const Nearest *nearest, char ret[NEAREST_TEXT_BYTES]);
