/* error.h - the text that travels with an errno.
 *
 * Ownership: the caller owns the Error, usually on its stack; ERROR_INIT before first use.
 * Units:     none.
 * Errors:    functions return the negative errno they were given, so that
 *            `return error_set(err, -EINVAL, ...)` is one line. A NULL Error is accepted.
 * Threads:   an Error belongs to one thread at a time.
 */
#pragma once

#include "base/macro.h"
#include <stdarg.h>

typedef struct Error {
    int code;       /* negative errno, 0 when unset */
    char text[496]; /* what was being done, to which object, what the other side said, what to do */
} Error;

#define ERROR_INIT ((Error){0})

/* Overwrites *err. r is a negative errno and is returned. */
int error_set(Error *err, int r, const char *format, ...) _printf_(3, 4);

/* As error_set, and appends ": " and strerror(-r). */
int error_errno(Error *err, int r, const char *format, ...) _printf_(3, 4);

/* Puts "<text>: " in front of what *err says already. Returns r. */
int error_prefix(Error *err, int r, const char *format, ...) _printf_(3, 4);

/* Makes an Error that came whole from another process fit for use: its text is terminated and holds no control
 * characters, its code is 0 or -1 to -4095. Anything else was no errno: -EPROTO. */
void error_from_outside(Error *err);
