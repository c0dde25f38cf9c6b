/* SPDX-License-Identifier: Apache-2.0 */
/* stubs.c - a libcudnn (FAKE_CUDNN) or libcublasLt (FAKE_CUBLASLT) in which each function of forward.h only returns
 * that the library is not initialised. A function that another source of the same library defines replaces the stub of
 * that name. */
#include "kernels/cuda/module/forward.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

#ifdef FAKE_CUDNN
#define FAKE_FUNCTIONS FORWARD_CUDNN
#else
#define FAKE_FUNCTIONS FORWARD_CUBLASLT
#endif

#define FAKE_STUB(type, none, name, parameters, arguments)                                         \
    __attribute__((weak)) type name parameters { return none; }
FAKE_FUNCTIONS(FAKE_STUB)
