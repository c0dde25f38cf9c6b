/* SPDX-License-Identifier: Apache-2.0 */
/* module.c - the one symbol of libsdtrain-cuda.so, and its table. */
#include "kernels/cuda/module.h"

#include "kernels/cuda/operations.h"

#define CUDA_MEMBER(name) .name = cuda_##name,

const KernelsBackend cuda_backend = {.interface = KERNELS_INTERFACE,
                                     .open = cuda_device_open,
                                     KERNELS_DEVICE_OPERATIONS(CUDA_MEMBER)
                                         KERNELS_COMPUTE_OPERATIONS(CUDA_MEMBER)};

KernelsHost cuda_host;

KernelsEntry sdtrain_kernels_backend;

__attribute__((visibility("default"))) const KernelsBackend *
sdtrain_kernels_backend(const KernelsHost *host)
{
    cuda_host = *host;
    return &cuda_backend;
}
