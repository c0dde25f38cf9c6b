/* SPDX-License-Identifier: Apache-2.0 */
/* cells.c - see cells.h. */
#include "ctl/top/cells.h"

#include <string.h>

static const char ellipsis[] = "\xe2\x80\xa6"; /* U+2026, one cell */

typedef struct Letter {
    size_t n_bytes;
    int cells;
    bool is_bad; /* the letter is shown as '?' */
} Letter;

typedef struct Range {
    uint32_t first, last;
} Range;

static bool is_in(uint32_t code, const Range *ranges, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (code >= ranges[i].first && code <= ranges[i].last)
            return true;
    return false;
}

/* Letters that take two cells. Source: Unicode's EastAsianWidth.txt; these blocks contain its classes W and F. */
static const Range wide[] = {{0x1100, 0x115f},   {0x2e80, 0x303e},   {0x3041, 0xa4cf},
                             {0xa960, 0xa97c},   {0xac00, 0xd7a3},   {0xf900, 0xfaff},
                             {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6},
                             {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1faff},
                             {0x20000, 0x3fffd}};
/* Characters that take no cell: combining marks, joiners and selectors. */
static const Range narrow[] = {{0x300, 0x36f},   {0x200b, 0x200d}, {0x20d0, 0x20ff},
                               {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}, {0xe0100, 0xe01ef}};
/* Control characters, and characters that change the writing direction of the rest of the line. */
static const Range harmful[] = {{0, 0x1f},        {0x7f, 0x9f},       {0x200e, 0x200f},
                                {0x2028, 0x202e}, {0x2066, 0x2069},   {0xd800, 0xdfff},
                                {0xfff9, 0xfffb}, {0xe0000, 0xe007f}, {0xfeff, 0xfeff}};

/* Reads one letter of UTF-8. A byte that does not begin a valid letter counts as a letter that is shown as '?'. */
static Letter letter_at(const char *text)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *p = (const unsigned char *)text;
    size_t n = *p < 0x80 ? 1 : *p >= 0xf0 ? 4 : *p >= 0xe0 ? 3 : 2;
    uint32_t code = n == 1 ? *p : *p & (0x7fU >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) /* also true at the end of the text */
            return (Letter){1, 1, true};
        code = code << 6 | (p[i] & 0x3f);
    }
    if ((*p >= 0x80 && *p < 0xc0) || *p >= 0xf8 || code < least[n] || code > 0x10ffff)
        return (Letter){1, 1, true};
    if (is_in(code, harmful, ELEMENTSOF(harmful)))
        return (Letter){n, 1, true};
    return (Letter){n,
                    is_in(code, narrow, ELEMENTSOF(narrow)) ? 0
                    : is_in(code, wide, ELEMENTSOF(wide))   ? 2
                                                            : 1,
                    false};
}

int cells_width(const char *text)
{
    int cells = 0;
    for (Letter letter; *text && cells < INT32_MAX / 2; text += letter.n_bytes) {
        letter = letter_at(text);
        cells += letter.cells;
    }
    return cells;
}

static bool append(char *line, size_t size, size_t *at, const char *bytes, size_t n)
{
    if (*at + n >= size)
        return false;
    memcpy(line + *at, bytes, n);
    *at += n;
    line[*at] = '\0';
    return true;
}

int cells_put(char *line, size_t size, size_t *at, const char *text, int cells)
{
    const bool is_cut = cells_width(text) > cells;
    const int room = is_cut ? cells - 1 : cells;
    int used = 0;
    if (cells <= 0)
        return 0;
    while (*text) {
        Letter letter = letter_at(text);
        if (used + letter.cells > room ||
            !append(line, size, at, letter.is_bad ? "?" : text, letter.is_bad ? 1 : letter.n_bytes))
            break;
        used += letter.cells;
        text += letter.n_bytes;
    }
    if (is_cut && append(line, size, at, ellipsis, sizeof(ellipsis) - 1))
        used++;
    return used;
}

void cells_put_column(char *line, size_t size, size_t *at, const char *text, int cells)
{
    const int wanted = cells < 0 ? -cells : cells, width = cells_width(text);
    for (int i = width; cells < 0 && i < wanted; i++)
        (void)append(line, size, at, " ", 1); /* no blank if the line is full */
    for (int i = cells_put(line, size, at, text, wanted); cells > 0 && i < wanted; i++)
        (void)append(line, size, at, " ", 1); /* no blank if the line is full */
}

const char *cells_break(const char *text, int cells)
{
    const char *at = text, *word = NULL;
    int used = 0;
    while (*at) {
        Letter letter = letter_at(at);
        if (used + letter.cells > cells)
            return word && word > text ? word : at > text ? at : at + letter.n_bytes;
        if (*at == ' ')
            word = at;
        used += letter.cells;
        at += letter.n_bytes;
    }
    return at;
}
