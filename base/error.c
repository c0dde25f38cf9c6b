/* SPDX-License-Identifier: Apache-2.0 */
/* error.c - see error.h. */
#include "base/error.h"

#include "base/printable.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { WHOLE_BYTES = 2048 };

/* Long paths lose their middle rather than the text its end, which says what is wrong. */
static void keep(Error *err, int r, char *whole)
{
    assert(r < 0);
    printable_make(whole); /* keys, values and peers' words are in it */
    printable_shorten_paths(whole, sizeof(err->text) - 1);
    err->code = r;
    (void)snprintf(err->text, sizeof(err->text), "%s", whole); /* truncation is fine */
    printable_end(err->text);
}

/* The text, and what follows it; NULL: nothing. */
_printf_(4, 0) static void error_vset(Error *err, int r, const char *more, const char *format,
                                      va_list ap)
{
    char whole[WHOLE_BYTES];
    (void)vsnprintf(whole, sizeof(whole), format, ap); /* likewise */
    size_t used = strlen(whole);
    if (more)
        (void)snprintf(whole + used, sizeof(whole) - used, ": %s", more);
    keep(err, r, whole);
}

int error_set(Error *err, int r, const char *format, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, format);
        error_vset(err, r, NULL, format, ap);
        va_end(ap);
    }
    return r;
}

int error_errno(Error *err, int r, const char *format, ...)
{
    if (err) {
        char reason[128];
        va_list ap;
        va_start(ap, format);
        error_vset(err, r, strerror_r(-r, reason, sizeof(reason)), format, ap);
        va_end(ap);
    }
    return r;
}

int error_prefix(Error *err, int r, const char *format, ...)
{
    if (err) {
        Error inner = *err;
        va_list ap;
        va_start(ap, format);
        error_vset(err, r, inner.text, format, ap);
        va_end(ap);
    }
    return r;
}

void error_from_outside(Error *err)
{
    static const int errno_max = 4095;
    err->text[sizeof(err->text) - 1] = '\0';
    printable_make(err->text);
    if (err->code > 0 || err->code < -errno_max)
        err->code = -EPROTO;
}
