/* SPDX-License-Identifier: Apache-2.0 */
/* screen.c - see screen.h. The escape sequences are from ECMA-48 and xterm, and work on all current terminals. */
#include "ctl/top/screen.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const char *const colours[] = {
    [TONE_PLAIN] = "",        [TONE_HEAD] = "\033[1m",  [TONE_BAD] = "\033[31m",
    [TONE_BUSY] = "\033[33m", [TONE_GOOD] = "\033[32m", [TONE_SOFT] = "\033[2m",
};

bool screen_is_there(void)
{
    const char *term = getenv("TERM");
    return isatty(STDOUT_FILENO) == 1 && term && *term && strcmp(term, "dumb") != 0;
}

void screen_size(int *ret_columns, int *ret_rows)
{
    struct winsize size = {0};
    const char *columns = getenv("COLUMNS");
    const int said = columns ? atoi(columns) : 0; /* 0 if $COLUMNS is not a number */
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    *ret_columns = known ? size.ws_col : said > 0 ? said : 80;
    *ret_rows = !known ? 0 : size.ws_row > 0 ? size.ws_row : 24;
}

static void put(const char *text)
{
    (void)fputs(text, stdout); /* if the terminal is closed, SIGHUP follows */
    (void)fflush(stdout);
}

void screen_enter(Screen *s)
{
    if (s->is_entered)
        return;
    s->is_entered = true;
    s->has_keys = isatty(STDIN_FILENO) == 1 && tcgetattr(STDIN_FILENO, &s->before) == 0;
    if (s->has_keys) {
        struct termios now = s->before;
        now.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        now.c_cc[VMIN] = 0; /* reads do not block */
        now.c_cc[VTIME] = 0;
        (void)tcsetattr(STDIN_FILENO, TCSANOW,
                        &now); /* on failure keys are echoed and need Enter */
    }
    put("\033[?1049h\033[?25l\033[?7l"); /* alternate screen, no cursor, no wrapping */
}

void screen_leave(Screen *s)
{
    if (!s->is_entered)
        return;
    s->is_entered = false;
    put("\033[0m\033[?7h\033[?25h\033[?1049l");
    if (s->has_keys)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &s->before); /* restores the saved state */
}

static bool wants_colour(void)
{
    const char *no = getenv("NO_COLOR"); /* defined by no-color.org */
    return screen_is_there() && !(no && *no);
}

static void write_line(FILE *to, const FrameLine *line, bool colour)
{
    const char *tone = colour ? colours[line->tone] : "";
    (void)fprintf(to, "%s%s%s", tone, line->text, *tone ? "\033[0m" : "");
}

void screen_draw(const Frame *frame)
{
    char *text = NULL;
    size_t n_bytes = 0;
    const bool colour = wants_colour();
    FILE *to = memory_given(open_memstream(&text, &n_bytes));
    (void)fputs("\033[H", to); /* cannot fail: a memory stream */
    for (size_t i = 0; i < frame->n; i++) {
        (void)fputs(i == 0 ? "\033[2K" : "\r\n\033[2K", to);
        write_line(to, &frame->lines[i], colour);
    }
    (void)fputs("\033[J", to);
    (void)fclose(to);
    put(text ? text : "");
    free(text);
}

void screen_print(const Frame *frame)
{
    const bool colour = wants_colour();
    for (size_t i = 0; i < frame->n; i++) {
        write_line(stdout, &frame->lines[i], colour);
        printf("\n");
    }
}
