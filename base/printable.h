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

/* Replaces each control character (C0 but tab, DEL, C1 in UTF-8) with '?' and each line end with a space. */
void printable_make(char *text);
/* Takes away the half of a character with which a text ends that was cut: JSON takes none. */
void printable_end(char *text);
/* Works as printable_make() on n bytes, which need no NUL. */
void printable_make_bytes(char *text, size_t n);
