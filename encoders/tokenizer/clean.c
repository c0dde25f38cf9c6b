/* SPDX-License-Identifier: Apache-2.0 */
/* clean.c - passes a caption line by line through ftfy's fixes, in ftfy's order, then as a whole through
 * html.unescape(). */
#include "encoders/tokenizer/clean.h"

#include "encoders/tokenizer/entity.h"

#include <string.h>

/* MAPPED_MAX: map_one() replaces a code point by at most so many code points. */
enum { ESCAPE = 0x1B, LIGATURE_MAX = 3, MAPPED_MAX = 3 };

static const struct {
    uint32_t code;
    uint32_t to[LIGATURE_MAX];
} ligatures[] = {
    {0x132, {'I', 'J'}},       {0x133, {'i', 'j'}},       {0x149, {0x2BC, 'n'}},
    {0x1C4, {'D', 0x17D}},     {0x1C5, {'D', 0x17E}},     {0x1C6, {'d', 0x17E}},
    {0x1C7, {'L', 'J'}},       {0x1C8, {'L', 'j'}},       {0x1C9, {'l', 'j'}},
    {0x1CA, {'N', 'J'}},       {0x1CB, {'N', 'j'}},       {0x1CC, {'n', 'j'}},
    {0x1F1, {'D', 'Z'}},       {0x1F2, {'D', 'z'}},       {0x1F3, {'d', 'z'}},
    {0xFB00, {'f', 'f'}},      {0xFB01, {'f', 'i'}},      {0xFB02, {'f', 'l'}},
    {0xFB03, {'f', 'f', 'i'}}, {0xFB04, {'f', 'f', 'l'}}, {0xFB05, {0x17F, 't'}},
    {0xFB06, {'s', 't'}},
};

void cleaning_free(Cleaning *cleaning)
{
    codes_free(&cleaning->out);
    codes_free(&cleaning->line);
    codes_free(&cleaning->mapped);
    codes_free(&cleaning->scratch);
    mojibake_free(&cleaning->mojibake);
}

static uint32_t straighten(uint32_t code)
{
    if (code == 0x2BC || (code >= 0x2018 && code <= 0x201B))
        return '\'';
    if (code >= 0x201C && code <= 0x201F)
        return '"';
    return code;
}

/* Adds the result of ftfy's mapping of one code point: C1 controls, ligatures, widths, quotes and line breaks. */
static void map_one(CodePoints *to, uint32_t code)
{
    uint32_t narrow[2];
    code = code_of_c1(code);
    if (code == 0x3000)
        code = ' ';
    size_t n = code_narrow(code, narrow);
    for (size_t i = 0; i < n; i++)
        codes_add(to, narrow[i]);
    if (n)
        return;
    if ((code >= 0x132 && code <= 0x1F3) || (code >= 0xFB00 && code <= 0xFB06))
        for (size_t i = 0; i < ELEMENTSOF(ligatures); i++)
            if (ligatures[i].code == code) {
                for (size_t j = 0; j < LIGATURE_MAX && ligatures[i].to[j]; j++)
                    codes_add(to, straighten(ligatures[i].to[j]));
                return;
            }
    if (code == '\r' || code == 0x2028 || code == 0x2029)
        code = '\n';
    codes_add(to, straighten(code));
}

static int map_line(CodePoints *to, const CodePoints *from)
{
    to->n = 0;
    int r = codes_reserve(to, MAPPED_MAX * from->n + 1);
    if (r < 0)
        return r;
    for (size_t i = 0; i < from->n; i++)
        if (from->at[i] != '\r' || i + 1 == from->n || from->at[i + 1] != '\n')
            map_one(to, from->at[i]);
    return 0;
}

/* Returns the length of a terminal's escape sequence, "ESC [ digits and semicolons, a letter"; 0: there is no
 * sequence. */
static size_t escape_length(const uint32_t *from, size_t n)
{
    if (n < 3 || from[0] != ESCAPE || from[1] != '[')
        return 0;
    size_t i = 2;
    while (i < n && (from[i] == ';' || (code_flags(from[i]) & CODE_DECIMAL)))
        i++;
    if (i == n || !((from[i] >= 'a' && from[i] <= 'z') || (from[i] >= 'A' && from[i] <= 'Z')))
        return 0;
    return i + 1;
}

static bool is_control(uint32_t code)
{
    return code < 0x09 || code == 0x0B || (code >= 0x0E && code < 0x20) || code == 0x7F ||
           (code >= 0x206A && code <= 0x206F) || code == 0xFEFF ||
           (code >= 0xFFF9 && code <= 0xFFFC);
}

static void remove_controls(CodePoints *codes)
{
    size_t n = 0;
    for (size_t i = 0; i < codes->n;) {
        size_t length = escape_length(codes->at + i, codes->n - i);
        if (!length && !is_control(codes->at[i]))
            codes->at[n++] = codes->at[i];
        i += length ? length : 1;
    }
    codes->n = n;
}

/* Fixes a line of n code points and appends it to out. */
static int fix_line(Cleaning *cleaning, const uint32_t *from, size_t n, bool entities)
{
    CodePoints *line = &cleaning->line, *mapped = &cleaning->mapped, *scratch = &cleaning->scratch;
    int r = codes_copy(line, from, n);
    for (int round = 0; r >= 0 && round < CLEAN_ROUNDS; round++) {
        scratch->n = 0;
        r = entities ? entities_fix(scratch, line->at, line->n)
                     : codes_copy(scratch, line->at, line->n);
        if (r >= 0)
            r = mojibake_repair(&cleaning->mojibake, scratch);
        if (r >= 0)
            r = map_line(mapped, scratch);
        if (r < 0)
            return r;
        remove_controls(mapped);
        r = codes_compose(mapped, scratch);
        bool same = mapped->n == line->n &&
                    (!line->n || memcmp(mapped->at, line->at, line->n * sizeof(*line->at)) == 0);
        CodePoints before = *line;
        *line = *mapped;
        *mapped = before;
        if (same)
            break;
    }
    if (r < 0)
        return r;
    r = codes_reserve(&cleaning->out, line->n + 1);
    if (r < 0)
        return r;
    if (line->n)
        memcpy(cleaning->out.at + cleaning->out.n, line->at, line->n * sizeof(*line->at));
    cleaning->out.n += line->n;
    return 0;
}

int clean_caption(Cleaning *cleaning, CodePoints *text)
{
    CodePoints *out = &cleaning->out;
    bool entities = true;
    out->n = 0;
    mojibake_begin(&cleaning->mojibake, text->n);
    for (size_t at = 0; at < text->n;) {
        size_t end = at;
        while (end < text->n && end - at < CLEAN_LINE_MAX && text->at[end] != '\n') {
            entities = entities && text->at[end] != '<';
            end++;
        }
        end += end < text->n && end - at < CLEAN_LINE_MAX;
        int r = fix_line(cleaning, text->at + at, end - at, entities);
        if (r < 0)
            return r;
        at = end;
    }
    text->n = 0;
    int r = entities_unescape(text, out->at, out->n);
    if (r < 0)
        return r;
    out->n = 0;
    r = entities_unescape(out, text->at, text->n);
    if (r < 0)
        return r;
    CodePoints before = *text;
    *text = *out;
    *out = before;
    return 0;
}
