/* SPDX-License-Identifier: Apache-2.0 */
/* module.c - the only exported symbol of libsdtrain-cuda.so, and its table. */
#include "kernels/cuda/module/module.h"

#include "base/fault.h"
#include "kernels/cuda/kernels/operations.h"

#define CUDA_MEMBER(name) .name = cuda_##name,

const KernelsBackend cuda_backend = {.interface = KERNELS_INTERFACE,
                                     .open = cuda_device_open,
                                     KERNELS_DEVICE_OPERATIONS(CUDA_MEMBER)
                                         KERNELS_COMPUTE_OPERATIONS(CUDA_MEMBER)};

__attribute__((visibility("default"))) KernelsEntry sdtrain_kernels_backend;

const KernelsBackend *sdtrain_kernels_backend(const KernelsHost *host)
{
    log_lend(host->log);
    fault_lend(host->fault);
    return &cuda_backend;
}
