/* SPDX-License-Identifier: Apache-2.0 */
/* module-stub.c - replaces libsdtrain-cuda.so in test-module: a correct module, one of another version
 * (STUB_INTERFACE), or one without its symbol (STUB_NO_ENTRY). */
#include "kernels/backend.h"

#ifndef STUB_INTERFACE
#define STUB_INTERFACE KERNELS_INTERFACE
#endif

static KernelsHost stub_host;

/* Uses the host's functions and refuses to open a device: there is no GPU. */
static int stub_open(const DeviceOptions *options, Device **ret, Error *err)
{
    (void)ret; /* no device is made */
    stub_host.log(LOG_LEVEL_WARNING, "the stub was asked");
    int r = stub_host.fault("module.stub");
    err->code = r < 0 ? r : -ENOTSUP;
    (void)snprintf(err->text, sizeof(err->text), "the stub has no GPU %d%s%s", options->index,
                   options->pci_address ? " at " : "",
                   options->pci_address ? options->pci_address : "");
    return err->code;
}

#ifdef STUB_NO_ENTRY
#define sdtrain_kernels_backend another_name
#endif
const KernelsBackend *sdtrain_kernels_backend(const KernelsHost *host);
__attribute__((visibility("default"))) const KernelsBackend *
sdtrain_kernels_backend(const KernelsHost *host)
{
    static const KernelsBackend backend = {.interface = STUB_INTERFACE, .open = stub_open};
    stub_host = *host;
    return &backend;
}
