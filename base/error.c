/* SPDX-License-Identifier: Apache-2.0 */
/* error.c - see error.h. */
#include "base/error.h"

#include "base/text/printable.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

_printf_(3, 0) static void error_vset(Error *err, int r, const char *format, va_list ap)
    _printf_(3, 0);
static void error_vset(Error *err, int r, const char *format, va_list ap)
{
    assert(r < 0);

    err->code = r;
    err->exit = 0;
    (void)vsnprintf(err->text, sizeof(err->text), format, ap); /* a text that is too long is cut */
    printable_end(err->text);
    printable_make(err->text); /* the text may quote keys, values and peers' messages */
}

int error_set(Error *err, int r, const char *format, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, format);
        error_vset(err, r, format, ap);
        va_end(ap);
    }
    return r;
}

static void append(Error *err, const char *words)
{
    size_t used = strlen(err->text);
    /* A text that is too long is cut. */
    (void)snprintf(err->text + used, sizeof(err->text) - used, ": %s", words);
    printable_end(err->text);
}

int error_errno(Error *err, int r, const char *format, ...)
{
    if (err) {
        char reason[128];
        va_list ap;
        va_start(ap, format);
        error_vset(err, r, format, ap);
        va_end(ap);
        append(err, strerror_r(-r, reason, sizeof(reason)));
    }
    return r;
}

int error_prefix(Error *err, int r, const char *format, ...)
{
    if (err) {
        Error inner = *err;
        va_list ap;
        va_start(ap, format);
        error_vset(err, r, format, ap);
        va_end(ap);
        append(err, inner.text);
        err->exit = inner.exit;
    }
    return r;
}

int error_set_exit(Error *err, int r, int exit)
{
    if (err && r < 0 && err->exit == 0)
        err->exit = exit;
    return r;
}

void error_from_outside(Error *err)
{
    static const int errno_max = 4095;
    err->text[sizeof(err->text) - 1] = '\0';
    printable_make(err->text);
    if (err->code > 0 || err->code < -errno_max)
        err->code = -EPROTO;
    err->exit = 0;
}
