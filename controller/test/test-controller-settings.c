/* SPDX-License-Identifier: Apache-2.0 */
/* test-controller-settings.c - the settings of sdcontroller, and how it refuses bad ones. */
#include "base/cleanup.h"
#include "base/file.h"
#include "base/test/testing.h"

#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>

enum { TEXT_BYTES = 4096 };

static const char *program(char ret[512])
{
    const char *bin = getenv("SDTRAIN_BIN");
    (void)snprintf(ret, 512, "%s/sdcontroller", bin ? bin : "build/dev/bin");
    return ret;
}

/* Runs the program to its end; its output goes to ret. Returns its exit code. */
static int run_program(char *const arguments[], char ret[TEXT_BYTES])
{
    int pipe_fds[2];
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)dup2(pipe_fds[1], STDOUT_FILENO);
        (void)dup2(pipe_fds[1], STDERR_FILENO);
        (void)unsetenv("SDTRAIN_ETCD");
        (void)execv(arguments[0], arguments);
        _exit(127);
    }
    close(pipe_fds[1]);
    size_t used = 0;
    ssize_t n;
    while ((n = read(pipe_fds[0], ret + used, TEXT_BYTES - 1 - used)) > 0)
        used += (size_t)n;
    ret[used] = '\0';
    close(pipe_fds[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void bad_settings_name_file_key_and_value(_unused_ void **state)
{
    static const struct {
        const char *file, *option, *value, *words;
        int code;
    } cases[] = {
        {"{}", "--lease-sec", "5", "the settings are good", 0},
        {"{\"lease_sec\": 5, \"leese\": 1}", NULL, NULL, "leese: unknown key", 2},
        {"{\"lease_sec\": 0}", NULL, NULL, "lease_sec: 0 is not in 1..600", 2},
        {"{\"max_jobs\": \"x\"}", NULL, NULL, "max_jobs: expected an integer, got \"x\"", 2},
        {"{", NULL, NULL, "line 1", 2},
        {"{}", "--lease-sec", "x", "command line: lease_sec: x is not a whole number", 2},
        {"{}", "--cluster", "A B", "cluster: \"A B\" is not a name", 2},
        {"{}", "--nonsense", "1", "try sdcontroller --help", 2},
        {"{}", "--etcd", "", "etcd: missing", 2},
        {"{\"admit\": \"n1,gpu-*, n7@0123ab\"}", NULL, NULL, "the settings are good", 0},
        {"{\"admit\": \"\"}", NULL, NULL, "admit: empty; say open", 2},
        {"{\"admit\": \"n1;n2\"}", NULL, NULL, "admit: ';': names of nodes", 2},
        {"{\"admit\": \"n1,open\"}", NULL, NULL, "admit: \"open\" stands alone", 2},
        {"{\"prices\": \"p5-spot=3.5, p5*=12.29,*=0\"}", NULL, NULL, "the settings are good", 0},
        {"{\"prices\": \"p5=1,p4\"}", NULL, NULL, "prices: \"p4\" is not CLASS=DOLLARS", 2},
        {"{}", "--prices", "p5=1000.5", "prices: \"p5=1000.5\" is not", 2},
        {"{\"admit\": \"n1@\"}", NULL, NULL, "admit: \"n1@\" is not NAME@MACHINE-ID", 2},
    };
    char path[512], file[64] = "/tmp/sdcontroller-test-XXXXXX", text[TEXT_BYTES];
    _cleanup_fd_ int fd = mkstemp(file);
    assert_true(fd >= 0);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Error err = ERROR_INIT;
        assert_int_equal(file_write(file, cases[i].file, strlen(cases[i].file), 0, &err), 0);
        char *arguments[] = {(char *)program(path),
                             "--check-config",
                             "--etcd",
                             "127.0.0.1:1",
                             "--config",
                             file,
                             (char *)cases[i].option,
                             (char *)cases[i].value,
                             NULL};
        assert_int_equal(run_program(arguments, text), cases[i].code);
        if (!strstr(text, cases[i].words))
            fail_msg("expected \"%s\" in \"%s\"", cases[i].words, text);
        if (cases[i].code != 0 && !cases[i].option && !strstr(text, file))
            fail_msg("no file name in \"%s\"", text);
    }
    assert_int_equal(unlink(file), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_settings_name_file_key_and_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
