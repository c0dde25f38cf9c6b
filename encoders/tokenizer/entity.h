/* SPDX-License-Identifier: Apache-2.0 */
/* entity.h - HTML's entities, as Python's html.unescape() and ftfy read them.
 *
 * The two differ. html.unescape() accepts "&amp" without its end, and the longest known name at the beginning of a
 * word: "&notit;" gives "\u00acit;". ftfy requires the end, accepts at most 24 letters and digits, and knows
 * "&EACUTE;", which HTML does not.
 *
 * Errors: -ENOMEM. Threads: any; pure.
 * Ownership: the caller's buffers.
 */
#pragma once

#include "encoders/tokenizer/unicode.h"

/* Converts U+0080 to U+009F as bytes of windows-1252; other code points, and bytes that are not assigned, are returned
 * unchanged. */
uint32_t code_of_c1(uint32_t code);
/* Appends to `to` the result of html.unescape() for n code points. A number may have any length; Python raises an error
 * beyond 4,300 digits. */
_must_check_ int entities_unescape(CodePoints *to, const uint32_t *from, size_t n);
/* Appends to `to` the result of ftfy's unescape_html() for n code points. */
_must_check_ int entities_fix(CodePoints *to, const uint32_t *from, size_t n);
