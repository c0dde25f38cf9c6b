/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.h - checks whether bytes are UTF-8, and turns any bytes into UTF-8.
 *
 * Folder:    defaults of the headers here: Threads: one.
 * Ownership: the caller frees the text that utf8_make() returns.
 * Units:     bytes. Overlong forms, surrogates and code points beyond U+10FFFF are not UTF-8; U+0000 is.
 * Errors:    utf8_make(): NULL if memory is short.
 * Threads:   any.
 */
#pragma once

#include "base/macro.h"

/* Returns the length of the longest prefix of text that is UTF-8. */
size_t utf8_prefix(const char *text, size_t n_bytes);
/* Returns a copy in which U+FFFD replaces each byte that is not a part of UTF-8, and also U+0000, so that it is a C
 * string. */
char *utf8_make(const char *text, size_t n_bytes);
