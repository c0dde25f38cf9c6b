/* SPDX-License-Identifier: Apache-2.0 */
/* printable.h - makes texts from outside safe for a terminal and a log.
 *
 * A text of a peer, a record or a trainer's output may hold escape sequences that move the cursor, recolour or
 * retitle the terminal, or line ends that forge a line.
 *
 * Units: bytes of UTF-8. Errors: none. Threads: any.
 * Ownership: texts are changed in place and never grow.
 */
#pragma once

#include "base/macro.h"

/* Replaces control characters (C0 except tab, DEL, C1 in UTF-8 and as bare bytes) and characters that change the
 * direction of writing (such as U+202E): each byte of such a character becomes '?'. Replaces each line end (also
 * U+2028) with spaces. Call printable_end() first: the bytes of a cut character at the end count as bare bytes. */
void printable_make(char *text);
/* Removes an incomplete character at the end of a text that was cut: JSON accepts only whole characters. */
void printable_end(char *text);
/* Works like printable_make() on n bytes, which need no NUL. */
void printable_make_bytes(char *text, size_t n);
/* Replaces each byte that belongs to no valid character with '?', so that the rest stays readable. */
void printable_repair_bytes(char *text, size_t n);
/* Works like printable_repair_bytes() on a whole text, but removes an incomplete character at the end. */
void printable_repair(char *text);
/* Shortens long paths and URIs in the middle, the longest first, until the text has at most n bytes: so the end of the
 * text, which describes the failure, is kept. A path that contains `kept` stays whole ("": all paths may be shortened).
 * The text stays longer than n if shortening its paths is not enough. */
void printable_shorten_paths(char *text, size_t n, const char *kept);
