/* SPDX-License-Identifier: Apache-2.0 */
/* numa.h - keeps a thread, and the memory that it asks for, near a GPU.
 *
 * A host of several NUMA nodes has each GPU at one of them. A copy from page-locked memory of another node crosses the
 * link between the processors, and is slower.
 *
 * A choice that was made outside counts: processors are only taken from those that the thread may use (taskset, a
 * cgroup's cpuset), memory of other nodes is used where the node's is full, and a policy that the process has already
 * (numactl) stays.
 *
 * Ownership: none.
 * Units:     none.
 * Errors:    none: what cannot be done is logged, and the thread stays as it is.
 * Threads:   binds the calling thread, and those that it makes afterwards.
 */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* Binds the calling thread to the NUMA node of the GPU at a PCI address (0000:3b:00), and logs one line where it did
 * or could not. sysfs: "/sys". Returns the node; -1 where the host has one node or the GPU is at none, and where
 * nothing was bound. */
int cuda_numa_bind(const char *sysfs, const char *pci_address);

#ifdef __cplusplus
}
#endif
