/* SPDX-License-Identifier: Apache-2.0 */
/* table.h - tables for people: columns as wide as what stands in them, states in colour, and a last column that is
 * folded at the terminal's edge.
 *
 * Where standard output is not a terminal, nothing is folded, cut or coloured, so that a line stays a line.
 * NO_COLOR (set and not empty) and TERM=dumb keep colours away, too.
 *
 * Ownership: table_new() gives the caller a Table; table_print() frees it. Cells are copied.
 * Units:     columns of the terminal; a code point of UTF-8 counts as one.
 * Errors:    none.
 * Threads:   the main thread.
 */
#pragma once

#include "base/macro.h"

typedef enum Paint { PAINT_NONE, PAINT_GOOD, PAINT_WORTH, PAINT_BAD, PAINTS } Paint;

/* Returns what begins a colour, or "" where there are none; PAINT_NONE ends it. */
const char *paint_text(Paint paint);
/* The paint of a word that stands for a state or a severity, "running", "failed", "critical"; others have none. */
Paint paint_of(const char *word);

typedef struct Table Table;

/* heads: n texts that live as long as the table. */
Table *table_new(const char *const *heads, size_t n);
/* Adds the next cell, row by row. */
void table_add(Table *table, Paint paint, const char *format, ...) _printf_(3, 4);
void table_print(Table *table);
