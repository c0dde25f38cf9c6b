/* SPDX-License-Identifier: Apache-2.0 */
/* printable.h - texts from outside, made fit for a terminal and a log.
 *
 * A text of a peer, a record or a trainer's output may hold escape sequences that move the cursor, recolour or
 * retitle the terminal, or line ends that forge a line.
 *
 * Ownership: texts are changed in place and never grow.
 * Units:     bytes of UTF-8.
 * Errors:    none.
 * Threads:   any.
 */
#pragma once

#include "base/macro.h"

/* Replaces each control character (C0 but tab, DEL, C1 in UTF-8 and as bare bytes) and each one that steers the
 * direction of writing (U+202E and its like) with '?' for each of its bytes, and each line end (U+2028, too) with
 * spaces. Half a character at the end is bare bytes, so printable_end() comes first. */
void printable_make(char *text);
/* Takes away the half of a character with which a text ends that was cut: JSON takes none. */
void printable_end(char *text);
/* Works as printable_make() on n bytes, which need no NUL. */
void printable_make_bytes(char *text, size_t n);
/* Replaces each byte that belongs to no character with '?', so that the rest can be read. */
void printable_repair_bytes(char *text, size_t n);
/* The same, but the half of a character at the end goes. */
void printable_repair(char *text);
/* Leaves out the middle of long paths and URIs, the longest first, until the text has at most n bytes: what is wrong
 * stands at its end. A path that has `kept` in it stays whole ("": none does). A text whose paths cannot make up for it
 * stays longer. */
void printable_shorten_paths(char *text, size_t n, const char *kept);
