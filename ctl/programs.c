/* SPDX-License-Identifier: Apache-2.0 */
/* programs.c - see programs.h. */
#include "ctl/programs.h"

#include "base/cleanup.h"

#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

enum { ARGUMENTS_MAX = 16 };

int programs_folder(char ret[PATH_MAX], Error *err)
{
    ssize_t n = readlink("/proc/self/exe", ret, PATH_MAX - 1);
    if (n < 0)
        return error_errno(err, -errno, "cannot find this program's folder");
    ret[n] = '\0';
    *strrchr(ret, '/') = '\0';
    return 0;
}

int programs_run_trainer(const char *const *arguments, Error *err)
{
    char folder[PATH_MAX], program[PATH_MAX + 16];
    char *argv[ARGUMENTS_MAX] = {program};
    int n = 1, status;
    pid_t pid;
    int r = programs_folder(folder, err);
    if (r < 0)
        return r;
    (void)snprintf(program, sizeof(program), "%s/sdtrainer", folder);
    for (; *arguments; arguments++) {
        assert(n < ARGUMENTS_MAX - 1);
        argv[n++] = (char *)*arguments; /* posix_spawn() does not write to them */
    }
    r = posix_spawn(&pid, program, NULL, NULL, argv, environ);
    if (r != 0)
        return error_errno(err, -r, "cannot run %s", program);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return error_errno(err, -errno, "cannot wait for %s", program);
    if (WIFSIGNALED(status))
        return error_set(err, -EIO, "%s %s was ended by signal %d", program, argv[1],
                         WTERMSIG(status));
    return WEXITSTATUS(status);
}
