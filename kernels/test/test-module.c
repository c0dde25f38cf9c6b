/* SPDX-License-Identifier: Apache-2.0 */
/* test-module.c - tests how the shared object with the CUDA backend is found, opened and refused. Each case runs in a
 * separate process, because an open module stays open. */
#include "base/fault.h"
#include "base/log.h"
#include "base/test/testing.h"
#include "kernels/kernels.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct Answer { /* the answer of the child process */
    int r[2];           /* results of two calls: the second finds an open module, or tries again */
    Error err;
    char log[512];
} Answer;

static const DeviceOptions options = {.kind = DEVICE_CUDA, .index = 3, .threads = 1};

/* Runs in the child. The log goes to a pipe, which has room for all of it. */
static void ask(Answer *answer)
{
    int log[2];
    Device *device = NULL;
    if (pipe2(log, O_CLOEXEC | O_NONBLOCK) < 0 || dup2(log[1], STDERR_FILENO) < 0)
        _exit(2);
    log_open("test-module");
    if (fault_open(&answer->err) < 0)
        _exit(2);
    for (int i = 0; i < 2; i++) {
        answer->err = ERROR_INIT;
        answer->r[i] = device_open(&options, &device, &answer->err);
    }
    ssize_t n = read(log[0], answer->log, sizeof(answer->log) - 1);
    answer->log[MAX(n, (ssize_t)0)] = '\0';
}

/* Opens a CUDA device with the module at path (NULL: the default places) in a separate process. */
static Answer answer_with(const char *path, const char *faults)
{
    int pair[2];
    Answer answer = {0};
    assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (path ? setenv("SDTRAIN_CUDA_MODULE", path, 1) : unsetenv("SDTRAIN_CUDA_MODULE"))
            _exit(2);
        if (setenv("SDTRAIN_FAULT", faults, 1) < 0)
            _exit(2);
        ask(&answer);
        _exit(write(pair[1], &answer, sizeof(answer)) == sizeof(answer) ? 0 : 2);
    }
    assert_int_equal(close(pair[1]), 0);
    ssize_t n = read(pair[0], &answer, sizeof(answer));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(n, sizeof(answer));
    assert_int_equal(close(pair[0]), 0);
    return answer;
}

static void test_opens_and_lends(void **state)
{
    (void)state;
    Answer answer = answer_with(MODULE_GOOD, "");
    assert_int_equal(answer.r[0], -ENOTSUP);
    assert_int_equal(answer.r[1], -ENOTSUP);
    assert_string_equal(answer.err.text, "the stub has no GPU 3");
    assert_non_null(strstr(answer.log, "warning test-module: the stub was asked"));

    answer = answer_with(MODULE_GOOD, "module.stub=eio@2");
    assert_int_equal(answer.r[0], -ENOTSUP);
    assert_int_equal(answer.r[1], -EIO);
}

static void test_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        int r;
        const char *says[3];
    } cases[] = {
        {MODULE_OTHER_VERSION,
         -EPROTO,
         {MODULE_OTHER_VERSION, "another version", "0123456789abcdef"}},
        {MODULE_NO_ENTRY,
         -EPROTO,
         {MODULE_NO_ENTRY, "sdtrain_kernels_backend", "not a CUDA module"}},
        {MODULE_TEXT, -ENODEV, {MODULE_TEXT, "no CUDA module", "invalid ELF header"}},
        {"/nowhere/libsdtrain-cuda.so",
         -ENODEV,
         {"/nowhere/libsdtrain-cuda.so", "No such file", ""}},
        {MODULE_PIPE, -ENODEV, {MODULE_PIPE, "no CUDA module", "not a regular file"}},
        {"libsdtrain-cuda.so", -ENODEV, {"SDTRAIN_CUDA_MODULE=libsdtrain-cuda.so", "absolute", ""}},
        {NULL,
         -ENODEV,
         {"/bin/libsdtrain-cuda.so", "/../lib/sdtrain/libsdtrain-cuda.so", "No such file"}},
    };
    assert_true(mkfifo(MODULE_PIPE, 0600) == 0 || errno == EEXIST);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Answer answer = answer_with(cases[i].path, "");
        assert_int_equal(answer.r[0], cases[i].r);
        assert_int_equal(answer.r[1], cases[i].r);
        for (size_t k = 0; k < ELEMENTSOF(cases[i].says); k++)
            if (!strstr(answer.err.text, cases[i].says[k]))
                fail_msg("\"%s\" does not say \"%s\"", answer.err.text, cases[i].says[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opens_and_lends),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
