/* SPDX-License-Identifier: Apache-2.0 */
/* driver.c - a libcuda.so.1 that runs nothing. cuDNN's engines for attention load a kernel when a plan is made, even
 * for a GPU that is absent. This library accepts the kernel, and every launch fails. It defines only the functions that
 * cuDNN uses. */
#include <stddef.h>

enum { SUCCESS = 0, ERROR_NO_DEVICE = 100 }; /* values of CUresult */

static char object; /* every handle of a library or a kernel points to this object */

#define GIVES_OBJECT(name)                                                                         \
    int name(void **ret);                                                                          \
    int name(void **ret)                                                                           \
    {                                                                                              \
        *ret = &object;                                                                            \
        return SUCCESS;                                                                            \
    }
GIVES_OBJECT(cuLibraryLoadData)
GIVES_OBJECT(cuLibraryGetKernel)
GIVES_OBJECT(cuKernelGetFunction)

#define GIVES(name, value)                                                                         \
    int name(int *ret);                                                                            \
    int name(int *ret)                                                                             \
    {                                                                                              \
        *ret = value;                                                                              \
        return SUCCESS;                                                                            \
    }
GIVES(cuKernelGetAttribute, 0)
GIVES(cuFuncGetAttribute, 0)
GIVES(cuOccupancyMaxPotentialClusterSize, 8) /* as on every sm_90 */
GIVES(cuOccupancyMaxActiveClusters, 16)
GIVES(cuOccupancyMaxActiveBlocksPerMultiprocessor, 1)

#define GIVES_CODE(name, code)                                                                     \
    int name(void);                                                                                \
    int name(void) { return code; }
#define TAKES(name) GIVES_CODE(name, SUCCESS)
TAKES(cuLibraryUnload)
TAKES(cuKernelSetAttribute)
TAKES(cuFuncSetAttribute)

#define FAILS(name) GIVES_CODE(name, ERROR_NO_DEVICE)
FAILS(cuInit)
FAILS(cuDriverGetVersion)
FAILS(cuGetErrorName)
FAILS(cuGetErrorString)
FAILS(cuDeviceGet)
FAILS(cuDeviceGetCount)
FAILS(cuDeviceGetAttribute)
FAILS(cuDevicePrimaryCtxRetain)
FAILS(cuDevicePrimaryCtxRelease)
FAILS(cuDevicePrimaryCtxReset)
FAILS(cuCtxGetCurrent)
FAILS(cuCtxGetDevice)
FAILS(cuCtxGetLimit)
FAILS(cuCtxPushCurrent)
FAILS(cuCtxPopCurrent)
FAILS(cuStreamGetCtx)
FAILS(cuStreamSynchronize)
FAILS(cuLibraryLoadFromFile)
FAILS(cuModuleLoadData)
FAILS(cuModuleLoadDataEx)
FAILS(cuModuleLoadFatBinary)
FAILS(cuModuleGetFunction)
FAILS(cuModuleGetGlobal_v2)
FAILS(cuModuleUnload)
FAILS(cuLinkCreate)
FAILS(cuLinkCreate_v2)
FAILS(cuLinkAddData)
FAILS(cuLinkAddData_v2)
FAILS(cuLinkAddFile_v2)
FAILS(cuLinkComplete)
FAILS(cuLinkDestroy)
FAILS(cuMemcpyDtoH_v2)
FAILS(cuTensorMapEncodeTiled)
FAILS(cuLaunchKernel)
FAILS(cuLaunchKernelEx)
FAILS(cuLaunchCooperativeKernel)
