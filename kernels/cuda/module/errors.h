/* SPDX-License-Identifier: Apache-2.0 */
/* errors.h - maps an error of CUDA's runtime to an errno of kernels.h, which says whose fault the error is.
 *
 * If the GPU is broken, the leader takes the node out of service. If the driver is too old, the leader does this only
 * for one job. If the program is at fault, the node gets a strike (trainer/session/device-exit.h). A cudaError_t may
 * have any of these three causes.
 *
 * Ownership: none. Units: cudaError_t. Errors: none. Threads: any.
 */
#pragma once

#include "base/error.h"

#include <driver_types.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the errno for an error of a CUDA call within device_open(): -ENODEV, -EPROTO, -ENOTSUP, -EAGAIN or -EIO. */
int cuda_errno_of_open(cudaError_t code);
/* Returns the errno for the first error of an open device: -EFAULT if the program is wrong (a trap, an illegal address,
 * an impossible launch), otherwise -EIO. */
int cuda_errno_of_failure(cudaError_t code);

/* Checks that this module computes on a GPU of that name and compute capability. kernels: the runtime's result for one
 * of the module's kernels on that GPU. -ENOTSUP: the GPU is a part of a card (MIG), or the module has no kernels for
 * it. */
int cuda_gpu_check(const char *name, int major, int minor, cudaError_t kernels, Error *err);

/* Describes the device nodes that CUDA needs but that are missing or cannot be opened, and what to do about them: ";
 * /dev/nvidia-uvm: No such file or directory (nvidia-modprobe ...)", or "" if no node is missing. dev: "/dev". Returns
 * the number of such nodes. */
int cuda_nodes_missing(const char *dev, char *ret, size_t size);

#ifdef __cplusplus
}
#endif
