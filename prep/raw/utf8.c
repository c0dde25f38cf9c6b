/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.c - see utf8.h. */
#include "prep/raw/utf8.h"

#include <stdlib.h>
#include <string.h>

/* Returns the length of the code point at s, where n bytes are available; 0: it is invalid or incomplete. */
static size_t code_point(const uint8_t *s, size_t n)
{
    size_t length = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (length == 0 || length > n || s[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return length;
}

size_t utf8_prefix(const char *text, size_t n_bytes)
{
    const uint8_t *s = (const uint8_t *)text;
    size_t at = 0;
    for (size_t n; at < n_bytes && (n = code_point(s + at, n_bytes - at)) > 0;)
        at += n;
    return at;
}

char *utf8_make(const char *text, size_t n_bytes)
{
    char *made = malloc(3 * n_bytes + 1);
    size_t n_made = 0;
    for (size_t at = 0; made && at < n_bytes;) {
        size_t n = text[at] ? code_point((const uint8_t *)text + at, n_bytes - at) : 0;
        memcpy(made + n_made, n ? text + at : "\xef\xbf\xbd", n ? n : 3);
        n_made += n ? n : 3;
        at += MAX(n, (size_t)1);
    }
    if (made)
        made[n_made] = '\0';
    return made;
}
