/* SPDX-License-Identifier: Apache-2.0 */
/* errors.c - see errors.h. */
#include "kernels/cuda/module/errors.h"

#include "base/macro.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int cuda_errno_of_open(cudaError_t code)
{
    switch (code) {
    case cudaErrorMemoryAllocation: /* other programs use the memory */
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceAlreadyInUse: /* another program uses the whole GPU */
    case cudaErrorMpsServerNotReady:
    case cudaErrorMpsMaxClientsReached:
    case cudaErrorMpsMaxConnectionsReached:
        return -EAGAIN;
    case cudaErrorSystemDriverMismatch: /* the driver's kernel module and library differ */
        return -EPROTO;
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorNoKernelImageForDevice: /* the GPU has another architecture */
    case cudaErrorUnsupportedExecAffinity:
    case cudaErrorNotSupported:
        return -ENOTSUP;
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorHardwareStackError:
        return -EIO;
    default:
        return -ENODEV;
    }
}

int cuda_errno_of_failure(cudaError_t code)
{
    switch (code) {
    /* errors of a running kernel */
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorTensorMemoryLeak:
    /* errors in the arguments of a call */
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidDevicePointer:
    case cudaErrorInvalidMemcpyDirection:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidKernelImage:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorIllegalState:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorInvalidClusterSize:
    case cudaErrorCooperativeLaunchTooLarge:
        return -EFAULT;
    default:
        return -EIO;
    }
}

int cuda_gpu_check(const char *name, int major, int minor, cudaError_t kernels, Error *err)
{
    if (strstr(name, " MIG "))
        return error_set(err, -ENOTSUP,
                         "GPU %s is a part of a card: a job needs whole ones (nvidia-smi -mig 0)",
                         name);
    switch (kernels) {
    case cudaSuccess:
        return 0;
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
        return error_set(err, -ENOTSUP,
                         "GPU %s has compute capability %d.%d, for which this module has no "
                         "kernels",
                         name, major, minor);
    default:
        return error_set(err, cuda_errno_of_open(kernels),
                         "GPU %s takes no kernel: CUDA's error %d", name, (int)kernels);
    }
}

int cuda_nodes_missing(const char *dev, char *ret, size_t size)
{
    static const struct {
        const char *name, *remedy;
    } nodes[] = {
        {"nvidiactl", "is the driver loaded?"},
        /* The driver's library makes /dev/nvidia-uvm with a privileged program, which NoNewPrivileges= forbids. */
        {"nvidia-uvm", "nvidia-modprobe -u -c 0, as root, makes it"},
    };
    size_t used = 0;
    int n_missing = 0;
    *ret = '\0';
    for (size_t i = 0; i < ELEMENTSOF(nodes); i++) {
        char path[256];
        (void)snprintf(path, sizeof(path), "%s/%s", dev, nodes[i].name);
        if (access(path, R_OK | W_OK) == 0)
            continue;
        int n = snprintf(ret + used, size - used, "; %s: %s (%s)", path, strerror(errno),
                         nodes[i].remedy);
        used = MIN(used + (size_t)MAX(n, 0), size - 1);
        n_missing++;
    }
    return n_missing;
}
