/* SPDX-License-Identifier: Apache-2.0 */
/* error.h - an error text that is returned together with an errno.
 *
 * Ownership: the caller owns the Error, usually on its stack; ERROR_INIT before first use.
 * Units:     none.
 * Errors:    each function returns the negative errno that it was given, so that
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
    char text[492]; /* names the action, its object, the peer's answer and the remedy */
    int exit;       /* the exit code that tells whose fault the failure is; 0: none was set */
} Error;

#define ERROR_INIT ((Error){0})

/* Overwrites *err with the text and r, a negative errno, and no exit code; returns r. */
int error_set(Error *err, int r, const char *format, ...) _printf_(3, 4);

/* Works like error_set() and appends ": " and strerror(-r). */
int error_errno(Error *err, int r, const char *format, ...) _printf_(3, 4);

/* Puts "<text>: " in front of the text that *err holds already, and keeps its exit code; returns r. */
int error_prefix(Error *err, int r, const char *format, ...) _printf_(3, 4);

/* Sets the exit code with which the process should end because of *err, unless one is set already: the function nearest
 * to the failure knows most about it, so a caller further up does not replace its exit code. Returns r. Does nothing if
 * r >= 0, which is not a failure. */
int error_set_exit(Error *err, int r, int exit);

/* Must be called on an Error that another process sent as bytes. Ends the text with a NUL and replaces control
 * characters. A code outside -4095..0, which is not an errno, becomes -EPROTO. The exit code, which was meant for the
 * other process, is cleared. */
void error_from_outside(Error *err);

#ifdef __cplusplus
}
#endif
