/* SPDX-License-Identifier: Apache-2.0 */
/* text-buffer.c - see text-buffer.h. */
#include "controller/core/state/text-buffer.h"

Text text_begin(char *buffer, size_t size)
{
    assert(size > 0);
    buffer[0] = '\0';
    return (Text){.buffer = buffer, .size = size};
}

void text_add(Text *t, const char *words)
{
    assert(t->used < t->size);
    while (*words && t->used + 1 < t->size)
        t->buffer[t->used++] = *words++;
    t->buffer[t->used] = '\0';
}

void text_add_int(Text *t, int64_t value)
{
    char digits[24];
    size_t i = sizeof(digits);
    uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
    digits[--i] = '\0';
    do
        digits[--i] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (value < 0)
        digits[--i] = '-';
    assert(i < sizeof(digits) - 1);
    text_add(t, &digits[i]);
}

void text_add_hex(Text *t, uint64_t value)
{
    char digits[17];
    size_t i = sizeof(digits);
    digits[--i] = '\0';
    do
        digits[--i] = "0123456789abcdef"[value & 15];
    while (value >>= 4);
    text_add(t, &digits[i]);
}

void text_copy(char *ret, size_t size, const char *words)
{
    Text t = text_begin(ret, size);
    text_add(&t, words);
}

int text_compare(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return (unsigned char)*a - (unsigned char)*b;
}

bool text_equal(const char *a, const char *b) { return text_compare(a, b) == 0; }

bool text_contains(const char *words, const char *needle, size_t n)
{
    for (; *words; words++) {
        size_t i = 0;
        while (i < n && words[i] && words[i] == needle[i])
            i++;
        if (i == n)
            return true;
    }
    return n == 0;
}

bool text_has_word(const char *words, const char *word)
{
    for (bool begins = true; *words; begins = *words++ == ' ') {
        size_t i = 0;
        while (begins && word[i] && words[i] == word[i])
            i++;
        if (begins && !word[i] && (!words[i] || words[i] == ' '))
            return true;
    }
    return false;
}

size_t text_folder(const char *uri)
{
    size_t n = 0;
    for (size_t i = 0; uri[i]; i++)
        if (uri[i] == '/')
            n = i + 1;
    return n;
}
