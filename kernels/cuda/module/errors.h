/* SPDX-License-Identifier: Apache-2.0 */
/* errors.h - whose fault an error of CUDA's runtime is, as an errno of kernels.h.
 *
 * The leader takes a node out of service for a broken GPU; for a driver that is too old it does so for one job only.
 * For a program that went wrong the node gets a strike (trainer/session/device-exit.h). A cudaError_t may stand for any
 * of these.
 *
 * Ownership: none.
 * Units:     cudaError_t.
 * Errors:    none.
 * Threads:   any.
 */
#pragma once

#include "base/error.h"

#include <driver_types.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the errno of an error that a call of device_open() met: -ENODEV, -EPROTO, -ENOTSUP, -EAGAIN or -EIO. */
int cuda_errno_of_open(cudaError_t code);
/* Returns the errno of the first error of an open device: -EFAULT where the program is wrong (a trap, an illegal
 * address, a launch that cannot be), else -EIO. */
int cuda_errno_of_failure(cudaError_t code);

/* Checks that this module computes on a GPU of that name and compute capability; kernels: what the runtime reported of
 * one of its kernels there. -ENOTSUP: the GPU is a part of a card (MIG), or the module has no kernels for it. */
int cuda_gpu_check(const char *name, int major, int minor, cudaError_t kernels, Error *err);

/* Writes what to do about device nodes that CUDA needs and that are not there, or may not be opened:
 * "; /dev/nvidia-uvm: No such file or directory (nvidia-modprobe ...)"; "" where nothing is wrong. dev: "/dev". Returns
 * how many there are. */
int cuda_nodes_missing(const char *dev, char *ret, size_t size);

#ifdef __cplusplus
}
#endif
