/* SPDX-License-Identifier: Apache-2.0 */
/* mds-text.h - a growing text, with JSON strings in the form of Python's json.dumps().
 *
 * Errors: -ENOMEM. Threads: one.
 * Ownership: a MdsText begins as zeros; its owner frees data.
 * Units:     bytes; data has no NUL at its end.
 */
#pragma once

#include "base/cleanup.h"
#include "base/macro.h"

typedef struct MdsText {
    char *data;
    size_t n, room;
} MdsText;

int mds_text_add(MdsText *text, const void *data, size_t n);
/* Appends formatted text of at most 1 KiB. */
int mds_text_format(MdsText *text, const char *format, ...) _printf_(2, 3);
/* Appends s in quotes, in ASCII only; invalid UTF-8 gives U+FFFD. */
int mds_text_string(MdsText *text, const char *s);
