/* SPDX-License-Identifier: Apache-2.0 */
/* open.c - opens a device of either kind, CPU or CUDA. */
#include "kernels/backend.h"
#include "kernels/module.h"

int device_open(const DeviceOptions *options, Device **ret, Error *err)
{
    const KernelsBackend *backend = &cpu_backend;
    if (options->kind == DEVICE_CUDA) {
        int r = kernels_module_open(&backend, err);
        if (r < 0)
            return r;
    }
    return backend->open(options, ret, err);
}
