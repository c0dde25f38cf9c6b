/* SPDX-License-Identifier: Apache-2.0 */
/* forward.c - see forward.h. */
#include "kernels/cuda/module/forward.h"

#include <dlfcn.h>

typedef struct Forwards {
#define FORWARD_MEMBER(type, none, name, parameters, arguments) __typeof__(name) *name;
    FORWARD_CUDNN(FORWARD_MEMBER)
    FORWARD_CUBLASLT(FORWARD_MEMBER)
} Forwards;

static Forwards forwards; /* either all are NULL or none */

#define FORWARD_DEFINE(type, none, name, parameters, arguments)                                    \
    type name parameters                                                                           \
    {                                                                                              \
        if (!forwards.name)                                                                        \
            return none;                                                                           \
        return forwards.name arguments;                                                            \
    }
FORWARD_CUDNN(FORWARD_DEFINE)
FORWARD_CUBLASLT(FORWARD_DEFINE)

const char *forward_fill(void *cudnn, void *cublaslt)
{
    Forwards found;
#define FORWARD_FIND(library, function)                                                            \
    found.function = (__typeof__(found.function))dlsym(library, #function);                        \
    if (!found.function)                                                                           \
        return #function;
#define FORWARD_FIND_CUDNN(type, none, name, parameters, arguments) FORWARD_FIND(cudnn, name)
#define FORWARD_FIND_CUBLASLT(type, none, name, parameters, arguments) FORWARD_FIND(cublaslt, name)
    FORWARD_CUDNN(FORWARD_FIND_CUDNN)
    FORWARD_CUBLASLT(FORWARD_FIND_CUBLASLT)
    forwards = found;
    return NULL;
}
