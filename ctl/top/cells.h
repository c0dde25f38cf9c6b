/* SPDX-License-Identifier: Apache-2.0 */
/* cells.h - texts in a terminal's cells: how wide a text is, and what of it fits.
 *
 * Texts may come from anybody who writes records. Control characters, marks that turn the direction of writing and
 * bytes that are not UTF-8 become '?'. A letter that takes two cells is never cut in half.
 *
 * Ownership: texts are the caller's; a result is written to a buffer of the caller.
 * Units:     cells of a terminal; sizes are bytes.
 * Errors:    none.
 * Threads:   any.
 */
#pragma once

#include "base/macro.h"

int cells_width(const char *text);
/* Appends text to line, a text of `size` bytes that is `*at` bytes long, in at most `cells` cells. A text that does not
 * fit ends with an ellipsis. Returns the cells used, and moves *at. */
int cells_put(char *line, size_t size, size_t *at, const char *text, int cells);
/* As cells_put(), filled up with blanks on the right, or on the left if cells is negative. */
void cells_put_column(char *line, size_t size, size_t *at, const char *text, int cells);
/* Returns the first byte that does not fit into `cells` cells, at a word's end where there is one. */
const char *cells_break(const char *text, int cells);
