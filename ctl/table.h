/* SPDX-License-Identifier: Apache-2.0 */
/* table.h - tables for people: columns as wide as their contents, states in colour, and a last column that is folded at
 * the terminal's edge.
 *
 * If standard output is not a terminal, nothing is folded, cut or coloured, so that each row is one line. NO_COLOR (set
 * and not empty) and TERM=dumb also disable colours.
 *
 * Ownership: table_new() gives the caller a Table; table_print() frees it. Cells are copied.
 * Units:     columns of the terminal; a code point of UTF-8 counts as one.
 */
#pragma once

#include "base/macro.h"

typedef enum Paint { PAINT_NONE, PAINT_GOOD, PAINT_WORTH, PAINT_BAD, PAINTS } Paint;

/* Returns the escape sequence that begins a colour, or "" if colours are disabled. PAINT_NONE ends the colour. */
const char *paint_text(Paint paint);
/* Returns the paint of a state or severity, such as "running", "failed" or "critical"; PAINT_NONE for other words. */
Paint paint_of(const char *word);

typedef struct Table Table;

/* heads are n texts, which must remain valid as long as the table. */
Table *table_new(const char *const *heads, size_t n);
/* Adds the next cell, row by row. */
void table_add(Table *table, Paint paint, const char *format, ...) _printf_(3, 4);
void table_print(Table *table);
