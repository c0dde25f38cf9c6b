/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - see table.h. */
#include "ctl/table.h"

#include "base/cleanup.h"
#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LAST_MIN = 20, GAP = 2 }; /* LAST_MIN: a last column narrower than this is not folded */

typedef struct Cell {
    char *text;
    Paint paint;
} Cell;

struct Table {
    const char *const *heads;
    size_t n_columns;
    Cell *cells;
    size_t n_cells;
};

/* ---- colours ---- */

static bool has_colours(void)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(STDOUT_FILENO) == 1 && !(no && *no) && term && strcmp(term, "dumb") != 0;
}

const char *paint_text(Paint paint)
{
    static const char *const texts[PAINTS] = {"\033[0m", "\033[32m", "\033[33m", "\033[31m"};
    return has_colours() ? texts[paint] : "";
}

Paint paint_of(const char *word)
{
    static const struct {
        const char *word;
        Paint paint;
    } words[] = {
        {"running", PAINT_GOOD}, {"succeeded", PAINT_GOOD},   {"up", PAINT_GOOD},
        {"healthy", PAINT_GOOD}, {"failed", PAINT_BAD},       {"gone", PAINT_BAD},
        {"isolate", PAINT_BAD},  {"lost", PAINT_BAD},         {"critical", PAINT_BAD},
        {"open", PAINT_BAD},     {"recovering", PAINT_WORTH}, {"suspect", PAINT_WORTH},
        {"drain", PAINT_WORTH},  {"warning", PAINT_WORTH},    {"quarantine", PAINT_WORTH},
        {"cordon", PAINT_WORTH},
    };
    for (size_t i = 0; i < ELEMENTSOF(words); i++)
        if (strncmp(word, words[i].word, strlen(words[i].word)) == 0)
            return words[i].paint;
    return PAINT_NONE;
}

/* ---- tables ---- */

Table *table_new(const char *const *heads, size_t n)
{
    Table *t = memory_new(Table);
    *t = (Table){.heads = heads, .n_columns = n};
    return t;
}

void table_add(Table *t, Paint paint, const char *format, ...)
{
    va_list ap;
    t->cells = memory_resize(t->cells, t->n_cells + 1, sizeof(*t->cells));
    Cell *cell = &t->cells[t->n_cells++];
    char text[1500];
    va_start(ap, format);
    (void)vsnprintf(text, sizeof(text), format, ap); /* not cut: texts of records are shorter */
    va_end(ap);
    *cell = (Cell){memory_text(text), paint};
}

static int width_of(const char *text, size_t n)
{
    int width = 0;
    for (size_t i = 0; i < n && text[i]; i++)
        width += ((unsigned char)text[i] & 0xc0) != 0x80;
    return width;
}

static int terminal_width(void)
{
    struct winsize size;
    bool known = isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
    return known && size.ws_col > 0 ? size.ws_col : 0;
}

/* Returns how many bytes of the text fit into `room` columns. Breaks at a blank if there is one, and takes at least one
 * code point. */
static size_t line_of(const char *text, int room)
{
    size_t end = 0, blank = 0;
    for (int width = 0; text[end]; end++) {
        width += ((unsigned char)text[end] & 0xc0) != 0x80;
        if (width > room)
            break;
        blank = text[end] == ' ' ? end : blank;
    }
    return !text[end] || text[end] == ' ' || blank == 0 ? end : blank;
}

static void print_folded(const char *text, int indent, int width)
{
    const int room = width - indent;
    if (width == 0 || room < LAST_MIN) {
        printf("%s", text);
        return;
    }
    while (width_of(text, SIZE_MAX) > room) {
        size_t n = line_of(text, room);
        printf("%.*s\n%*s", (int)n, text, indent, "");
        text += n;
        text += strspn(text, " ");
    }
    printf("%s", text);
}

static void print_row(const Table *t, const Cell *cells, const int *widths, int width)
{
    int indent = 0;
    for (size_t i = 0; i < t->n_columns; i++) {
        const char *text = cells ? cells[i].text : t->heads[i];
        const Paint paint = cells && *text ? cells[i].paint : PAINT_NONE;
        printf("%s", paint ? paint_text(paint) : "");
        if (i + 1 < t->n_columns)
            printf("%s", text);
        else
            print_folded(text, indent, width);
        printf("%s", paint ? paint_text(PAINT_NONE) : "");
        /* No padding is needed before an empty last cell. */
        const bool last = i + 2 == t->n_columns && cells && !*cells[i + 1].text;
        if (i + 1 < t->n_columns && !last)
            printf("%*s", widths[i] - width_of(text, SIZE_MAX) + GAP, "");
        indent += widths[i] + GAP;
    }
    printf("\n");
}

void table_print(Table *t)
{
    const size_t n = t->n_columns;
    int *widths = memory_resize(NULL, n, sizeof(*widths));
    for (size_t i = 0; i < n; i++)
        widths[i] = width_of(t->heads[i], SIZE_MAX);
    for (size_t i = 0; i < t->n_cells; i++)
        widths[i % n] = MAX(widths[i % n], width_of(t->cells[i].text, SIZE_MAX));
    const int width = terminal_width();
    assert(t->n_cells % n == 0);
    print_row(t, NULL, widths, width);
    for (size_t i = 0; i < t->n_cells; i += n)
        print_row(t, &t->cells[i], widths, width);
    for (size_t i = 0; i < t->n_cells; i++)
        free(t->cells[i].text);
    free(t->cells);
    free(widths);
    free(t);
}
