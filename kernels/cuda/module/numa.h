/* SPDX-License-Identifier: Apache-2.0 */
/* numa.h - keeps a thread, and the memory that it allocates, near a GPU.
 *
 * On a host of several NUMA nodes each GPU belongs to one node. A copy from page-locked memory of another node crosses
 * the link between the processors, and is slower.
 *
 * Choices made outside the program are respected: only processors that the thread may already use (taskset, a cgroup's
 * cpuset) are chosen, memory of other nodes is used when the node's memory is full, and an existing memory policy of
 * the process (numactl) stays.
 *
 * Ownership: none.
 * Errors:    none: a failure is logged, and the thread stays as it is.
 * Threads:   binds the calling thread, and the threads that it starts afterwards.
 */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* Binds the calling thread to the NUMA node of the GPU at a PCI address (0000:3b:00), and logs one line if it succeeds
 * or fails. sysfs: "/sys". Returns the node, or -1 if the host has one node, the GPU has no node, or nothing was
 * bound. */
int cuda_numa_bind(const char *sysfs, const char *pci_address);

#ifdef __cplusplus
}
#endif
