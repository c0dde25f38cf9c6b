/* SPDX-License-Identifier: Apache-2.0 */
/* screen.h - full-screen use of a terminal: the alternate screen, the terminal's size, keys without echo.
 *
 * Units: cells and lines. Threads: the main thread.
 * Ownership: screen_enter() changes the terminal, screen_leave() restores it; both may be called repeatedly.
 * Errors:    none: if the terminal is closed, the process receives SIGHUP.
 */
#pragma once

#include "ctl/top/frame.h"

#include <stdio.h>
#include <termios.h>

typedef struct Screen {
    bool is_entered, has_keys;
    struct termios before;
} Screen;

/* Tells whether standard output is a terminal with full-screen support. */
bool screen_is_there(void);
/* Reads the terminal's size. Without a terminal, the columns are $COLUMNS or 80, and the rows are 0. */
void screen_size(int *ret_columns, int *ret_rows);
void screen_enter(Screen *screen);
void screen_leave(Screen *screen);
/* Draws the frame over the previous frame, with a single write. */
void screen_draw(const Frame *frame);
/* Prints the frame's lines as normal output. */
void screen_print(const Frame *frame);
