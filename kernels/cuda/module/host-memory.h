/* SPDX-License-Identifier: Apache-2.0 */
/* host-memory.h - memory of the host in large pages that are all present, so that page-locking it is cheap.
 *
 * cudaMallocHost() took 0.64 s a GiB on a machine with an H100, nearly all of it for pages of 4 KiB that one thread
 * made and pinned: 9 s for the copy of sd2-base's state. There are 512 times fewer huge pages, and several threads make
 * them.
 *
 * Ownership: host_memory_new() gives the caller the memory; host_memory_free() accepts NULL.
 * Units:     bytes.
 * Errors:    -ENOMEM, or the errno of mmap().
 * Threads:   any. Pages come from the NUMA nodes that the caller's policy names.
 */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Allocates zeroed memory that begins at a page. */
int host_memory_new(size_t n_bytes, void **ret);
void host_memory_free(void *memory);

#ifdef __cplusplus
}
#endif
