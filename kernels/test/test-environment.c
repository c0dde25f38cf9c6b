/* SPDX-License-Identifier: Apache-2.0 */
/* test-environment.c - tests which variables are removed when a CUDA device is opened, which are kept, and what is
 * logged, in a program that opens the emulator's module. This module removes variables with the same code as the real
 * module. */
#include "base/log.h"
#include "base/test/testing.h"
#include "kernels/kernels.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const removed[] = {
    "NVIDIA_TF32_OVERRIDE",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUBLASLT_LOG_LEVELS",
    "CUBLASLT_WORKSPACE_SIZE",
    "CUDNN_LOG",
    "CUDNN_USE_EX2_EMULATION",
    "NVRTC_APPEND_FLAGS",
    "CUDA_FORCE_PTX_JIT",
    "CUDNN_FRONTEND_ANY",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUBLAS_",
    "CUDA_DISABLE_PTX_JIT",
};
static const char *const kept[] = {
    "CUDA_LAUNCH_BLOCKING", "CUDA_CACHE_PATH", "CUDA_VISIBLE_DEVICES_OF_ANOTHER",
    "MY_CUDNN_HOME",        "NVIDIA_TF32",     "CUBLASX",
    "SDTRAIN_CUDA_SYNC",
};

/* Variables of a library's log, which are kept and reported. The libraries are not opened here. */
static const char *const logs[] = {
    "CUDNN_LOGLEVEL_DBG", "CUDNN_LOGDEST_DBG",  "CUDNN_LOGINFO_DBG", "CUDNN_LOGWARN_DBG",
    "CUDNN_LOGERR_DBG",   "CUBLASLT_LOG_LEVEL", "CUBLASLT_LOG_MASK", "CUBLASLT_LOG_FILE",
};

/* Opens a device twice with all variables set, and stores the log. */
static void open_devices(char *log, size_t size)
{
    int to[2];
    Error err = ERROR_INIT;
    const DeviceOptions options = {.kind = DEVICE_CUDA, .type = DATA_F32, .threads = 1};
    if (pipe2(to, O_CLOEXEC | O_NONBLOCK) < 0 || dup2(to[1], STDERR_FILENO) < 0)
        _exit(2);
    for (size_t i = 0; i < ELEMENTSOF(removed); i++)
        if (setenv(removed[i], "removed value", 1) < 0)
            _exit(2);
    for (size_t i = 0; i < ELEMENTSOF(kept); i++)
        if (setenv(kept[i], "kept value", 1) < 0)
            _exit(2);
    for (size_t i = 0; i < ELEMENTSOF(logs); i++)
        if (setenv(logs[i], "kept value", 1) < 0)
            _exit(2);
    if (setenv("SDTRAIN_CUDA_MODULE", MODULE, 1) < 0)
        _exit(2);
    log_open("test-environment");
    for (int i = 0; i < 2; i++) {
        Device *device = NULL;
        if (device_open(&options, &device, &err) < 0)
            _exit(3);
        (void)device_free(device);
    }
    ssize_t n = read(to[0], log, size - 1);
    log[MAX(n, (ssize_t)0)] = '\0';
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, part)); p += strlen(part))
        n++;
    return n;
}

/* Runs in the child. Returns 0, or a number that identifies the failed check. */
static int look(void)
{
    static char log[16384];
    char said[128];
    open_devices(log, sizeof(log));
    for (size_t i = 0; i < ELEMENTSOF(removed); i++) {
        if (getenv(removed[i]))
            return 10 + (int)i;
        (void)snprintf(said, sizeof(said),
                       "warning test-environment: the environment's %s=removed value ", removed[i]);
        if (count(log, said) != 1)
            return 40 + (int)i;
    }
    for (size_t i = 0; i < ELEMENTSOF(kept); i++) {
        const char *value = getenv(kept[i]);
        if (!value || strcmp(value, "kept value") != 0)
            return 70 + (int)i;
    }
    for (size_t i = 0; i < ELEMENTSOF(logs); i++) {
        const char *value = getenv(logs[i]);
        (void)snprintf(said, sizeof(said),
                       "warning test-environment: the environment's %s=kept value is kept",
                       logs[i]);
        if (!value || strcmp(value, "kept value") != 0 || count(log, said) != 1)
            return 80 + (int)i;
    }
    return count(log, "the environment's") == ELEMENTSOF(removed) + ELEMENTSOF(logs) ? 0 : 99;
}

static void test_environment(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(look());
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_environment)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
