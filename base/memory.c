/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - see memory.h. */
#include "base/memory.h"

#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *given(void *p, size_t n_bytes)
{
    if (!p) {
        log_error("out of memory: no %zu bytes; ending", n_bytes);
        abort();
    }
    return p;
}

void *memory_zeroed(size_t n, size_t size)
{
    return given(calloc(MAX(n, (size_t)1), size), n * size);
}

void *memory_resize(void *p, size_t n, size_t size)
{
    return given(reallocarray(p, n, size), n * size);
}

void *memory_grow(void *array, size_t n, size_t *room, size_t size)
{
    assert(n <= *room);
    if (n < *room)
        return array;
    *room = MAX(2 * *room, (size_t)16);
    return memory_resize(array, *room, size);
}

void *memory_given(void *p) { return given(p, 1); }

char *memory_text(const char *text) { return memory_bytes(text, strlen(text)); }

char *memory_bytes(const void *bytes, size_t n)
{
    char *copy = memory_resize(NULL, n + 1, 1);
    memcpy(copy, bytes, n);
    copy[n] = '\0';
    return copy;
}

char *memory_format(const char *format, ...)
{
    char *text = NULL;
    va_list ap;
    va_start(ap, format);
    int n = vasprintf(&text, format, ap);
    va_end(ap);
    return given(n < 0 ? NULL : text, strlen(format));
}

void memory_free_texts(char **list)
{
    for (char **one = list; one && *one; one++)
        free(*one);
    free(list);
}
