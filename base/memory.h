/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h - small allocations, which end the process when memory has run out.
 *
 * A program without a few more bytes has no good way on: an event, record, line or header would be lost without a
 * word. So it writes one line and aborts, as jansson (json.c) and gRPC do, and its next life reads etcd. Buffers of
 * data, objects and checkpoints are large: they use malloc(), and their failure is -ENOMEM.
 *
 * Ownership: the caller frees with free().
 * Units:     bytes. A size that a file, record or peer names must be bounded before it is asked for here.
 * Errors:    none: a call that returns has its memory.
 * Threads:   any.
 */
#pragma once

#include "base/macro.h"

/* n elements of `size` bytes each, all 0. */
void *memory_zeroed(size_t n, size_t size);
#define memory_new(Type) ((Type *)memory_zeroed(1, sizeof(Type)))
/* Takes what another library allocated, which is NULL only without memory. */
void *memory_given(void *p);
/* Works as reallocarray(): the first elements stay, new ones hold anything. */
void *memory_resize(void *p, size_t n, size_t size);
/* Makes an array of n elements fit for one more; *room is how many fit, 0 for an array that is NULL. Works as
 * memory_resize(). */
void *memory_grow(void *array, size_t n, size_t *room, size_t size);
char *memory_text(const char *text);
/* Copies n bytes and ends them with a NUL. */
char *memory_bytes(const void *bytes, size_t n);
char *memory_format(const char *format, ...) _printf_(1, 2);
