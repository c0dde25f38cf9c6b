/* SPDX-License-Identifier: Apache-2.0 */
/* screen.h - a terminal that a program fills: its alternate screen, its size, keys without echo.
 *
 * Ownership: screen_enter() changes the terminal, screen_leave() gives it back as it was; both may be called again.
 * Units:     cells and lines.
 * Errors:    none: a terminal that is gone sends SIGHUP.
 * Threads:   the main thread.
 */
#pragma once

#include "ctl/top/frame.h"

#include <stdio.h>
#include <termios.h>

typedef struct Screen {
    bool is_entered, has_keys;
    struct termios before;
} Screen;

/* Tells whether standard output is a terminal that can be filled. */
bool screen_is_there(void);
/* Reads the terminal's size; without one the columns are $COLUMNS or 80, and the rows 0. */
void screen_size(int *ret_columns, int *ret_rows);
void screen_enter(Screen *screen);
void screen_leave(Screen *screen);
/* Shows the frame in place of the one before, in one write. */
void screen_draw(const Frame *frame);
/* Prints the lines as any program does. */
void screen_print(const Frame *frame);
