/* SPDX-License-Identifier: Apache-2.0 */
/* environment.c - see environment.h. */
#include "kernels/cuda/module/environment.h"

#include "base/log.h"
#include "base/memory.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const prefixes[] = {"CUBLAS_", "CUBLASLT_", "CUDNN_", "NVRTC_"};

static const char *const names[] = {
    "NVIDIA_TF32_OVERRIDE",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    /* The next variables select other machine code than the code that was compiled, tested and hashed. */
    "CUDA_FORCE_JIT",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_DISABLE_JIT",
    "CUDA_DISABLE_PTX_JIT",
    /* The next variables reduce the number of multiprocessors, so that libraries choose other algorithms. */
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING",
};

/* The variables of the libraries' own logs, which help to explain a call that a library refuses. */
static const char *const logs[] = {
    "CUDNN_LOGLEVEL_DBG", "CUDNN_LOGDEST_DBG",  "CUDNN_LOGINFO_DBG", "CUDNN_LOGWARN_DBG",
    "CUDNN_LOGERR_DBG",   "CUBLASLT_LOG_LEVEL", "CUBLASLT_LOG_MASK", "CUBLASLT_LOG_FILE",
};

static bool is_log(const char *entry, size_t name_length)
{
    for (size_t i = 0; i < ELEMENTSOF(logs); i++)
        if (strlen(logs[i]) == name_length && memcmp(entry, logs[i], name_length) == 0)
            return true;
    return false;
}

static bool must_go(const char *entry, size_t name_length)
{
    for (size_t i = 0; i < ELEMENTSOF(prefixes); i++)
        if (strncmp(entry, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    for (size_t i = 0; i < ELEMENTSOF(names); i++)
        if (strlen(names[i]) == name_length && memcmp(entry, names[i], name_length) == 0)
            return true;
    return false;
}

void cuda_environment_clear(void)
{
    static atomic_bool told_once;
    /* Each call finds the kept variables, but only the first call logs them. */
    const bool told = atomic_exchange(&told_once, true);
    /* unsetenv() moves the later entries forward. */
    for (size_t i = 0; environ && environ[i];) {
        const size_t length = strcspn(environ[i], "=");
        if (is_log(environ[i], length)) {
            if (!told)
                log_warning("the environment's %.300s is kept: a library's log, which is slow and "
                            "changes no bit",
                            environ[i]);
            i++;
            continue;
        }
        if (length == 0 || !must_go(environ[i], length)) {
            i++;
            continue;
        }
        log_warning("the environment's %.300s is removed: it changes bits or the GPU", environ[i]);
        char *name = memory_bytes(environ[i], length);
        int r = unsetenv(name);
        assert(r == 0); /* the name is not empty and has no '=' */
        free(name);
    }
}
