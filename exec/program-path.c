/* SPDX-License-Identifier: Apache-2.0 */
/* program-path.c - see program-path.h. */
#include "exec/program-path.h"

#include "base/cleanup.h"
#include "base/file.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int exec_check_folder(const char *folder, Error *err)
{
    struct stat st;
    if (stat(folder, &st) < 0)
        return error_errno(err, -errno, "exec.dir: %s", folder);
    if (!S_ISDIR(st.st_mode))
        return error_set(err, -ENOTDIR, "exec.dir: %s is not a folder", folder);
    if (access(folder, X_OK) < 0)
        return error_errno(err, -errno, "exec.dir: cannot enter %s", folder);
    return 0;
}

/* Looks at the first line of a file: it must be a binary, or a script whose interpreter is there. */
static int check_format(const char *program, Error *err)
{
    char line[PATH_MAX] = "";
    int r = file_read_line(program, line, sizeof(line));
    if (r < 0) /* a program that may be executed need not be readable */
        return r == -EACCES ? 0 : error_errno(err, r, "exec.command: %s", program);
    if (strncmp(line, "\177ELF", 4) == 0)
        return 0;
    if (strncmp(line, "#!", 2) != 0)
        return error_set(err, -ENOEXEC,
                         "exec.command: %s is neither a program nor a script: its first line does "
                         "not begin with #!",
                         program);
    char *interpreter = line + 2 + strspn(line + 2, " \t");
    interpreter[strcspn(interpreter, " \t")] = '\0';
    if (access(interpreter, X_OK) < 0)
        return error_errno(err, -errno, "exec.command: %s: its interpreter %s", program,
                           interpreter);
    return 0;
}

static int check_program(const char *program, Error *err)
{
    struct stat st;
    if (stat(program, &st) < 0)
        return error_errno(err, -errno, "exec.command: %s", program);
    if (S_ISDIR(st.st_mode))
        return error_set(err, -EISDIR, "exec.command: %s is a folder", program);
    if (!S_ISREG(st.st_mode))
        return error_set(err, -EINVAL, "exec.command: %s is not a file", program);
    if (access(program, X_OK) < 0)
        return error_errno(err, -errno, "exec.command: cannot execute %s", program);
    return check_format(program, err);
}

int exec_find_program(const char *folder, const char *name, const char *path, char ret[PATH_MAX],
                      Error *err)
{
    if (strchr(name, '/')) {
        const bool absolute = *name == '/';
        if (snprintf(ret, PATH_MAX, "%s%s%s", absolute ? "" : folder, absolute ? "" : "/", name) >=
            PATH_MAX)
            return error_set(err, -ENAMETOOLONG, "exec.command: %.100s... is too long", name);
        return check_program(ret, err);
    }
    for (const char *at = path; *at;) {
        const size_t n = strcspn(at, ":");
        struct stat st;
        if (n > 0 && snprintf(ret, PATH_MAX, "%.*s/%s", (int)n, at, name) < PATH_MAX &&
            stat(ret, &st) == 0 && S_ISREG(st.st_mode) && access(ret, X_OK) == 0)
            return check_format(ret, err);
        at += n + (at[n] == ':');
    }
    return error_set(err, -ENOENT, "exec.command: %s is in no folder of PATH (%s)", name, path);
}
