/* SPDX-License-Identifier: Apache-2.0 */
/* text-buffer.h - the few string operations that the core needs, without the C library.
 *
 * Errors: none. Threads: any.
 * Ownership: a Text writes into the caller's buffer and keeps it terminated. Text that does not fit is cut.
 * Units:     bytes, with the terminating NUL.
 */
#pragma once

#include "base/macro.h"

typedef struct Text {
    char *buffer;
    size_t size, used;
} Text;

Text text_begin(char *buffer, size_t size);
void text_add(Text *t, const char *words);
void text_add_int(Text *t, int64_t value);
void text_add_hex(Text *t, uint64_t value);
void text_copy(char *ret, size_t size, const char *words);
bool text_equal(const char *a, const char *b);
int text_compare(const char *a, const char *b);
/* True when the first n bytes of needle occur in words; n is at most the needle's length. */
bool text_contains(const char *words, const char *needle, size_t n);
/* True when `words`, which are separated by single blanks, have the word. */
bool text_has_word(const char *words, const char *word);
/* Returns the length of a URI's folder, up to and including the last '/'; 0: the URI has no folder. */
size_t text_folder(const char *uri);
