/* SPDX-License-Identifier: Apache-2.0 */
/* printable.c - see printable.h. */
#include "base/text/printable.h"

#include <string.h>

/* Returns the length of the UTF-8 character at p; 0 if the bytes there are not a valid character. As in JSON,
 * surrogates and overlong encodings are invalid. */
static size_t character_at(const unsigned char *p, size_t n, uint32_t *ret_code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = p[0] < 0x80 ? 1 : p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : p[0] >= 0xc0 ? 2 : 0;
    uint32_t code = length <= 1 ? p[0] : p[0] & (0x7fU >> length);
    for (size_t i = 1; i < length; i++) {
        if (i >= n || (p[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (p[i] & 0x3fU);
    }
    bool is_surrogate = code >= 0xd800 && code < 0xe000;
    *ret_code = code;
    return p[0] >= 0xf8 || code < least[length] || is_surrogate || code > 0x10ffff ? 0 : length;
}

/* Tells whether the character is a C1 control, or changes the direction of the text beside it: "exe.gpj" may then be
 * shown as "jpg.exe". */
static bool is_steering(uint32_t code)
{
    return (code >= 0x80 && code < 0xa0) || code == 0x61c || code == 0x200e || code == 0x200f ||
           (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x206f);
}

void printable_make_bytes(char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t code;
        size_t length = character_at((unsigned char *)text + i, n - i, &code);
        if (length == 0) { /* a terminal may read a bare byte as a C1 control */
            code = (unsigned char)text[i];
            length = 1;
        }
        const bool is_end = code == '\n' || code == '\r' || code == 0x2028 || code == 0x2029;
        if (is_end || (code < ' ' && code != '\t') || code == 127 || is_steering(code))
            memset(text + i, is_end ? ' ' : '?', length);
        i += length;
    }
}

void printable_make(char *text) { printable_make_bytes(text, strlen(text)); }

void printable_end(char *text)
{
    /* n_more: how many bytes the last character has after its first byte. */
    size_t n = strlen(text), n_more = 0;
    while (n_more < n && ((unsigned char)text[n - n_more - 1] & 0xc0) == 0x80)
        n_more++;
    if (n_more == n)
        return;
    char *first = text + n - n_more - 1;
    const unsigned char c = (unsigned char)*first;
    if (c <= 0xf4 && n_more < (c >= 0xf0 ? 3U : c >= 0xe0 ? 2U : c >= 0xc0 ? 1U : 0U))
        *first = '\0';
}

void printable_repair_bytes(char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t code;
        size_t length = character_at((const unsigned char *)text + i, n - i, &code);
        if (length == 0)
            text[i] = '?';
        i += MAX(length, (size_t)1);
    }
}

void printable_repair(char *text)
{
    printable_end(text);
    printable_repair_bytes(text, strlen(text));
}

static const char left_out[] = "...";

/* Finds the longest word with a '/', except words that contain `kept`. Returns its length; 0: there is no such word. */
static size_t longest_path(const char *text, const char *kept, char **ret)
{
    static const char ends[] = " \t\"'<>|,;";
    size_t best = 0;
    for (const char *word = text; *word;) {
        word += strspn(word, ends);
        size_t n = strcspn(word, ends);
        bool stays = *kept && memmem(word, n, kept, strlen(kept));
        if (n > best && !stays && memchr(word, '/', n)) {
            best = n;
            *ret = (char *)word;
        }
        word += n;
    }
    return best;
}

static bool is_inside(char c) { return ((unsigned char)c & 0xc0) == 0x80; }

void printable_shorten_paths(char *text, size_t n, const char *kept)
{
    enum { HEAD = 16, TAIL = 32, DOTS = sizeof(left_out) - 1 };
    for (size_t all; (all = strlen(text)) > n;) {
        char *path = text;
        size_t length = longest_path(text, kept, &path);
        if (length <= HEAD + TAIL + DOTS)
            return;
        size_t stays = length - MIN(length - HEAD - TAIL, all - n + DOTS), head = stays / 3;
        char *from = path + MAX(head, (size_t)HEAD),
             *to = path + length - (stays - (size_t)(from - path));
        char *before = memmem(path, length, left_out, DOTS);
        if (before && (before < path + HEAD / 2 || before + TAIL / 2 > path + length))
            before =
                NULL; /* these dots belong to the path: a path is shortened only in the middle */
        from = before ? MIN(from, before) : from;
        to = before ? MAX(to, before + DOTS) : to;
        while (from > path && is_inside(*from))
            from--;
        while (is_inside(*to))
            to++;
        memcpy(from, left_out, DOTS);
        memmove(from + DOTS, to, strlen(to) + 1);
    }
}
