/* SPDX-License-Identifier: Apache-2.0 */
/* entity.h - HTML's entities, as Python's html.unescape() and ftfy read them.
 *
 * They differ. html.unescape() knows "&amp" without its end and the longest name that something begins with, "&notit;"
 * being "\u00acit;". ftfy wants the end, at most 24 letters and digits, and knows "&EACUTE;", which HTML does not.
 *
 * Ownership: the caller's buffers.
 * Units:     code points.
 * Errors:    -ENOMEM.
 * Threads:   any; pure.
 */
#pragma once

#include "encoders/tokenizer/unicode.h"

/* U+0080 to U+009F as windows-1252 has them; all others, and those that it lacks, are themselves. */
uint32_t code_of_c1(uint32_t code);
/* Appends n code points to `to`, html.unescape()d. A number may be of any length; Python raises beyond 4,300 digits. */
_must_check_ int entities_unescape(CodePoints *to, const uint32_t *from, size_t n);
/* Appends them as ftfy's unescape_html() leaves them. */
_must_check_ int entities_fix(CodePoints *to, const uint32_t *from, size_t n);
