/* SPDX-License-Identifier: Apache-2.0 */
/* cells.h - measures texts in a terminal's cells, and cuts them to fit.
 *
 * Texts may come from any writer of records. Control characters, marks that change the writing direction, and bytes
 * that are not UTF-8 become '?'. A letter that takes two cells is never cut in half.
 *
 * Errors: none. Threads: any.
 * Ownership: texts are the caller's; a result is written to a buffer of the caller.
 * Units:     cells of a terminal; sizes are bytes.
 */
#pragma once

#include "base/macro.h"

int cells_width(const char *text);
/* Appends text to line in at most `cells` cells. line is a buffer of `size` bytes that holds `*at` bytes. A text that
 * does not fit ends with an ellipsis. Returns the cells used, and advances *at. */
int cells_put(char *line, size_t size, size_t *at, const char *text, int cells);
/* Works as cells_put(), and fills up to `cells` cells with blanks on the right, or on the left if cells is negative. */
void cells_put_column(char *line, size_t size, size_t *at, const char *text, int cells);
/* Returns the first byte that does not fit into `cells` cells. Breaks at the end of a word if possible. */
const char *cells_break(const char *text, int cells);
