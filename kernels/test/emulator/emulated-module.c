/* SPDX-License-Identifier: Apache-2.0 */
/* emulated-module.c - the only exported symbol of libsdtrain-emulated.so. With SDTRAIN_CUDA_MODULE naming this
 * library, whole programs run on the CUDA kernels without a GPU. SDTRAIN_EMULATED=SEED sets the seed for the order of
 * threads. */
#include "base/fault.h"
#include "kernels/backend.h"
#include "kernels/test/emulator/emulated.h"

#include <stdlib.h>

__attribute__((visibility("default"))) KernelsEntry sdtrain_kernels_backend;

const KernelsBackend *sdtrain_kernels_backend(const KernelsHost *host)
{
    const char *seed = getenv("SDTRAIN_EMULATED");
    log_lend(host->log);
    fault_lend(host->fault);
    emulated_device_seed(seed ? strtoull(seed, NULL, 10) : 0);
    return emulated_backend();
}
