/* SPDX-License-Identifier: Apache-2.0 */
/* module-path.h - makes the names of a network's modules while the network is emitted.
 *
 * Units: bytes. Threads: any.
 * Ownership: a ModulePath is a value.
 * Errors:    none: a path that is too long gives a parameter name that is too long, which the list of parameters
 *            refuses.
 */
#pragma once

#include "nn/parameters.h"

#include <stdarg.h>
#include <stdio.h>

typedef struct ModulePath {
    char text[PARAMETER_NAME_MAX];
} ModulePath;

_printf_(1, 2) static inline ModulePath module_path(const char *format, ...)
{
    ModulePath path;
    va_list ap;
    va_start(ap, format);
    (void)vsnprintf(path.text, sizeof(path.text), format, ap);
    va_end(ap);
    return path;
}
