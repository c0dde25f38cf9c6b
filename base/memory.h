/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h - small allocations, which end the process when memory is exhausted.
 *
 * A program that cannot allocate a few bytes cannot continue well: it would silently lose an event, record, line or
 * header. So it logs one line and aborts, as jansson (json.c) and gRPC do; after its restart it reads its state from
 * etcd. Buffers for data, objects and checkpoints are large: they use malloc(), and a failure is -ENOMEM.
 *
 * Ownership: the caller frees with free().
 * Units:     bytes. A size that a file, record or peer gives must be checked against a bound before it is used here.
 * Errors:    none: a call that returns has allocated its memory.
 */
#pragma once

#include "base/macro.h"

/* Allocates n elements of `size` bytes each, all 0. */
void *memory_zeroed(size_t n, size_t size);
#define memory_new(Type) ((Type *)memory_zeroed(1, sizeof(Type)))
/* Returns p, the result of another library's allocation; ends the process if p is NULL. */
void *memory_given(void *p);
/* Works like reallocarray(): keeps the old elements; new elements are not initialized. */
void *memory_resize(void *p, size_t n, size_t size);
/* Makes room for one more element in an array of n elements. *room is the number of elements that fit; 0 for a NULL
 * array. Returns the array, which may have moved. */
void *memory_grow(void *array, size_t n, size_t *room, size_t size);
char *memory_text(const char *text);
/* Copies n bytes and ends them with a NUL. */
char *memory_bytes(const void *bytes, size_t n);
char *memory_format(const char *format, ...) _printf_(1, 2);
/* Frees a list of texts that ends with NULL, and its texts; accepts NULL. */
void memory_free_texts(char **list);
