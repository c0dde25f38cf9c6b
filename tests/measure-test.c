/* SPDX-License-Identifier: Apache-2.0 */
/* measure-test.c - runs a test and writes down how long it took.
 *
 *   measure-test NAME COMMAND [ARGUMENT...]
 *
 * With SDTRAIN_TEST_TIMES=FILE one line is appended to FILE: name, wall seconds, seconds of the processor in user
 * mode, seconds in the kernel. The processor times include processes that the test waited for, and exclude servers
 * that outlive the test. The exit status is the test's. The test finds the process id of ctest in SDTRAIN_CTEST_PID.
 * Without SDTRAIN_TEST_TIMES, measure-test replaces itself by the test with execvp().
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds_of(struct timeval t) { return (double)t.tv_sec + (double)t.tv_usec * 1e-6; }

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int become(char **command)
{
    (void)execvp(command[0], command);
    (void)fprintf(stderr, "measure-test: %s: %s\n", command[0], strerror(errno));
    return 127;
}

/* The line is written by one write(), so tests that end at the same time do not mix their lines. */
static void append_line(const char *path, const char *name, double wall, const struct rusage *used)
{
    FILE *file = fopen(path, "ae");
    if (!file || fprintf(file, "%s %.2f %.2f %.2f\n", name, wall, seconds_of(used->ru_utime),
                         seconds_of(used->ru_stime)) < 0)
        (void)fprintf(stderr, "measure-test: %s: %s\n", path, strerror(errno));
    if (file)
        (void)fclose(file);
}

int main(int n, char **words)
{
    const char *path = getenv("SDTRAIN_TEST_TIMES");
    if (n < 3) {
        (void)fprintf(stderr, "usage: measure-test NAME COMMAND [ARGUMENT...]\n");
        return 2;
    }
    if (!path || !*path)
        return become(words + 2);

    char ctest[16];
    (void)snprintf(ctest, sizeof(ctest), "%d", (int)getppid());
    (void)setenv("SDTRAIN_CTEST_PID", ctest, 1);
    (void)unsetenv("SDTRAIN_TEST_TIMES"); /* a ctest that the test runs is not measured */
    const double began = now();
    const pid_t child = fork();
    if (child < 0) {
        (void)fprintf(stderr, "measure-test: fork: %s\n", strerror(errno));
        return 127;
    }
    if (child == 0) {
        /* The test ends with measure-test, which ctest kills when the test has run out of time. */
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        return become(words + 2);
    }
    int status = 0;
    struct rusage used;
    while (wait4(child, &status, 0, &used) < 0)
        if (errno != EINTR)
            return 127;
    append_line(path, words[1], now() - began, &used);
    if (WIFSIGNALED(status)) { /* ends by the test's signal, so that ctest reports that signal */
        const struct rlimit none = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)signal(WTERMSIG(status), SIG_DFL);
        (void)raise(WTERMSIG(status));
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 127;
}
