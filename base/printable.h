/* printable.h - texts from outside, made fit for a terminal and a log.
 *
 * What a peer, a record or a trainer's output says may hold escape sequences that move the cursor, recolour or
 * retitle the terminal, or line ends that forge a line of their own.
 *
 * Ownership: texts are changed in place and never grow.
 * Units:     bytes of UTF-8.
 * Errors:    none.
 * Threads:   any.
 */
#pragma once

#include "base/macro.h"

/* Control characters (C0 but tabs, DEL, C1 as UTF-8 writes them) become '?', line ends a space. */
void printable_make(char *text);
/* The same of n bytes that need no end. */
void printable_make_bytes(char *text, size_t n);
