/* SPDX-License-Identifier: Apache-2.0 */
/* module.c - the only exported symbol of libsdtrain-shadow.so. With SDTRAIN_CUDA_MODULE naming this library, whole
 * programs run on a shadow device. */
#include "base/fault.h"
#include "kernels/test/shadow/shadow.h"

__attribute__((visibility("default"))) KernelsEntry sdtrain_kernels_backend;

const KernelsBackend *sdtrain_kernels_backend(const KernelsHost *host)
{
    log_lend(host->log);
    fault_lend(host->fault);
    return &shadow_backend;
}
