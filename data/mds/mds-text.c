/* SPDX-License-Identifier: Apache-2.0 */
/* mds-text.c - see mds-text.h. */
#include "data/mds/mds-text.h"

#include <stdarg.h>
#include <string.h>

int mds_text_add(MdsText *text, const void *data, size_t n)
{
    if (text->n + n > text->room) {
        size_t room = MAX(2 * text->room, text->n + n + 256);
        char *grown = realloc(text->data, room);
        if (!grown)
            return -ENOMEM;
        text->data = grown;
        text->room = room;
    }
    if (n > 0)
        memcpy(text->data + text->n, data, n);
    text->n += n;
    return 0;
}

int mds_text_format(MdsText *text, const char *format, ...)
{
    char buffer[1024];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(buffer, sizeof(buffer), format, ap);
    va_end(ap);
    assert(n >= 0 && (size_t)n < sizeof(buffer)); /* callers pass names of bounded length */
    return mds_text_add(text, buffer, (size_t)n);
}

/* Returns the code point at *p and moves *p behind it; invalid UTF-8 gives U+FFFD. */
static uint32_t next_code_point(const char **p)
{
    const uint8_t *s = (const uint8_t *)*p;
    int n = s[0] < 0x80 ? 1 : s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : s[0] >= 0xc2 ? 2 : 0;
    uint32_t code = n == 1 ? s[0] : n > 1 ? s[0] & (0x7fU >> n) : 0;
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            n = 0;
        else
            code = code << 6 | (s[i] & 0x3f);
    }
    *p += MAX(n, 1);
    return n > 0 ? code : 0xfffd;
}

int mds_text_string(MdsText *text, const char *s)
{
    static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    int r = mds_text_add(text, "\"", 1);
    while (r == 0 && *s) {
        uint32_t code = next_code_point(&s);
        const char *at = code < 0x80 ? strchr(escaped, (int)code) : NULL;
        if (at)
            r = mds_text_format(text, "\\%c", letters[at - escaped]);
        else if (code >= 0x20 && code < 0x7f)
            r = mds_text_format(text, "%c", (int)code);
        else if (code < 0x10000)
            r = mds_text_format(text, "\\u%04x", code);
        else
            r = mds_text_format(text, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                                0xdc00 + ((code - 0x10000) & 0x3ff));
    }
    return r < 0 ? r : mds_text_add(text, "\"", 1);
}
