/* SPDX-License-Identifier: Apache-2.0 */
/* programs.c - see programs.h. */
#include "ctl/programs.h"

#include "base/cleanup.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int programs_folder(char ret[PATH_MAX], Error *err)
{
    ssize_t n = readlink("/proc/self/exe", ret, PATH_MAX - 1);
    if (n < 0)
        return error_errno(err, -errno, "cannot find this program's folder");
    ret[n] = '\0';
    *strrchr(ret, '/') = '\0';
    return 0;
}

/* Executes the program in the child process. The child is killed when sdctl ends, because then its result is not
 * needed. */
_noreturn_ static void become(char *const argv[], pid_t parent)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent)
        (void)execv(argv[0], argv); /* sdctl reports exit code 127 as an error */
    _exit(127);
}

int programs_run_trainer(const char *const *arguments, Error *err)
{
    char folder[PATH_MAX], program[PATH_MAX + 16];
    char *argv[PROGRAMS_ARGUMENTS_MAX + 2] = {program};
    int n = 1, status;
    int r = programs_folder(folder, err);
    if (r < 0)
        return r;
    (void)snprintf(program, sizeof(program), "%s/sdtrainer", folder);
    for (; *arguments; arguments++) {
        assert(n <= PROGRAMS_ARGUMENTS_MAX);
        argv[n++] = (char *)*arguments; /* execv() does not write to the arguments */
    }
    if (access(program, X_OK) < 0)
        return error_errno(err, -errno, "cannot run %s", program);
    const pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        return error_errno(err, -errno, "cannot run %s", program);
    if (pid == 0)
        become(argv, parent);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return error_errno(err, -errno, "cannot wait for %s", program);
    if (WIFSIGNALED(status))
        return error_set(err, -EIO, "%s %s was ended by signal %d", program, argv[1],
                         WTERMSIG(status));
    if (WEXITSTATUS(status) == 127)
        return error_set(err, -ENOEXEC, "cannot run %s", program);
    return WEXITSTATUS(status);
}
