/* SPDX-License-Identifier: Apache-2.0 */
/* printable.c - see printable.h. */
#include "base/printable.h"

#include <string.h>

void printable_make_bytes(char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i], next = i + 1 < n ? (unsigned char)text[i + 1] : 0;
        if (c == '\n' || c == '\r')
            text[i] = ' ';
        else if ((c < ' ' && c != '\t') || c == 127)
            text[i] = '?';
        else if (c == 0xc2 && next >= 0x80 && next < 0xa0) /* U+0080 to U+009F */
            text[i] = text[i + 1] = '?';
    }
}

void printable_make(char *text) { printable_make_bytes(text, strlen(text)); }

void printable_end(char *text)
{
    size_t n = strlen(text), n_more = 0; /* bytes behind the first one of the last character */
    while (n_more < n && ((unsigned char)text[n - n_more - 1] & 0xc0) == 0x80)
        n_more++;
    if (n_more == n)
        return;
    char *first = text + n - n_more - 1;
    const unsigned char c = (unsigned char)*first;
    if (n_more < (c >= 0xf0 ? 3U : c >= 0xe0 ? 2U : c >= 0xc0 ? 1U : 0U))
        *first = '\0';
}
