/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.h - whether bytes are UTF-8, and bytes that are made so.
 *
 * Ownership: utf8_make() gives the caller a text to free.
 * Units:     bytes. Overlong forms, surrogates and code points beyond U+10FFFF are not UTF-8; U+0000 is.
 * Errors:    utf8_make(): NULL without memory.
 * Threads:   any.
 */
#pragma once

#include "base/macro.h"

/* How many bytes from the front are UTF-8. */
size_t utf8_prefix(const char *text, size_t n_bytes);
/* Each byte that is not a part of UTF-8 becomes U+FFFD; U+0000 too, so that the result is a C string. */
char *utf8_make(const char *text, size_t n_bytes);
