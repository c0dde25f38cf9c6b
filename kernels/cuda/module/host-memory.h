/* SPDX-License-Identifier: Apache-2.0 */
/* host-memory.h - memory of the host in large pages, present from the start: what page-locking it costs is then little.
 *
 * cudaMallocHost() took 0.64 s a GiB on a machine with an H100, nearly all of it for pages of 4 KiB that one thread
 * made and pinned: 9 s for the copy of sd2-base's state. Huge pages are 512 times fewer, and several threads make
 * them.
 *
 * Ownership: host_memory_new() gives the caller the memory; host_memory_free() accepts NULL.
 * Units:     bytes.
 * Errors:    -ENOMEM, or what mmap() says.
 * Threads:   any. Pages come from the NUMA nodes that the caller's policy names.
 */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Zeroed, and at the beginning of a page. */
int host_memory_new(size_t n_bytes, void **ret);
void host_memory_free(void *memory);

#ifdef __cplusplus
}
#endif
