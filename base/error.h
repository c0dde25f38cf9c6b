/* SPDX-License-Identifier: Apache-2.0 */
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

#ifdef __cplusplus
extern "C" {
#endif

typedef struct Error {
    int code;       /* negative errno, 0 when unset */
    char text[492]; /* names the action, its object, the other side's answer and the remedy */
    int exit;       /* the exit code that tells others whose fault it is; 0: nobody has said */
} Error;

#define ERROR_INIT ((Error){0})

/* Overwrites *err with the text and r, a negative errno, and no exit code; returns r. */
int error_set(Error *err, int r, const char *format, ...) _printf_(3, 4);

/* Works as error_set() and appends ": " and strerror(-r). */
int error_errno(Error *err, int r, const char *format, ...) _printf_(3, 4);

/* Puts "<text>: " in front of the text that *err holds already, whose exit code stays; returns r. */
int error_prefix(Error *err, int r, const char *format, ...) _printf_(3, 4);

/* Says with which exit code a process should end because of *err. The code that was said first stays: nearest to the
 * failure most is known of it, and callers add what holds where nobody has said more. Returns r; for r >= 0, which is
 * no failure, it does nothing. */
int error_set_exit(Error *err, int r, int exit);

/* Makes an Error that another process sent as bytes safe to use: ends its text, replaces control characters, and
 * turns a code that is not an errno (neither 0 nor -1 to -4095) into -EPROTO. Its exit code was that process's: it
 * goes. */
void error_from_outside(Error *err);

#ifdef __cplusplus
}
#endif
