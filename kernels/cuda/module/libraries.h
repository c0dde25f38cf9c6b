/* SPDX-License-Identifier: Apache-2.0 */
/* libraries.h - opens cuDNN and cuBLASLt, and NVRTC for cuDNN's engines that compile at run time.
 *
 * A machine may have several copies of these libraries, of several versions, and a mixture of versions computes other
 * bits than any one version. So all are taken from one place, by full path. The first of these places that has them is
 * used:
 *     SDTRAIN_CUDA_LIBRARIES   folders, colon-separated; if it is set, no other place is searched
 *     the system               the libraries that the loader finds by name
 *     the toolkit              /usr/local/cuda/lib64
 *     a Python's wheels        site-packages/nvidia of VIRTUAL_ENV, of each python3 on the PATH; dist-packages/nvidia
 *                              of /usr/local and /usr
 * A path that depends on the current folder, which others may write to, is never used.
 *
 * Ownership: static; the libraries are never closed.
 * Units:     versions as the vendor counts them: cuDNN 9.19.0 is 91900, cuBLASLt 13.1.0 is 130100, NVRTC 13.0 is 13000.
 * Errors:    see cuda_libraries_open().
 * Threads:   any. Functions of the libraries (forward.h) may be called after cuda_libraries_open() has returned 0.
 */
#pragma once

#include "base/error.h"

#include <limits.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CudaLibraries {
    int cudnn_version;
    size_t cublaslt_version;
    int nvrtc_version; /* 0: no NVRTC; engines that compile at run time then fail */
    char cudnn_folder[PATH_MAX], cublaslt_folder[PATH_MAX];
} CudaLibraries;

/* Opens the libraries once in a process, and logs versions and folders; later calls return the same libraries. -ENODEV:
 * no place has them all. -EPROTO: all libraries found have a version that this module was not compiled for (another
 * major, or an older minor than its headers). The text names each place and what is missing there. */
int cuda_libraries_open(const CudaLibraries **ret, Error *err);
/* Searches as the first call of cuda_libraries_open() does, but at each call. toolkit: the folder of the toolkit. For
 * tests. */
int cuda_libraries_find(const char *toolkit, CudaLibraries *ret, Error *err);

#ifdef __cplusplus
}
#endif
