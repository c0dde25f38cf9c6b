/* SPDX-License-Identifier: Apache-2.0 */
/* version.c - the version that a fake library reports: that of its headers, or FAKE_VERSION. */
#include "kernels/cuda/module/forward.h"

#ifdef FAKE_CUDNN
#ifndef FAKE_VERSION
#define FAKE_VERSION CUDNN_VERSION
#endif
size_t cudnnGetVersion(void) { return FAKE_VERSION; }
#else
#ifndef FAKE_VERSION
#define FAKE_VERSION CUBLAS_VERSION
#endif
size_t cublasLtGetVersion(void) { return FAKE_VERSION; }
#endif
