/* SPDX-License-Identifier: Apache-2.0 */
/* secrets.c - see secrets.h. */
#include "exec/resources/secrets.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "base/memory.h"

#include <string.h>
#include <sys/stat.h>

enum { FILE_MAX = 1 << 20 };

static int read_private(const char *path, char **ret, Error *err)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return error_errno(err, -errno, "exec.secrets: %s", path);
    if (st.st_mode & 0007)
        return error_set(err, -EACCES, "%s: others may read or write it (mode %04o); chmod o= %s",
                         path, (unsigned)st.st_mode & 07777, path);
    return file_read(path, FILE_MAX, ret, NULL, err);
}

/* Returns the line "NAME=VALUE" of this name, or NULL. The text's lines end with NUL. */
static const char *find(const char *text, size_t n, const char *name)
{
    for (const char *at = text; at < text + n; at += strlen(at) + 1)
        if (*at != '#' && strncmp(at, name, strlen(name)) == 0 && at[strlen(name)] == '=')
            return at;
    return NULL;
}

static int check_lines(const char *path, char *text, size_t n, Error *err)
{
    int number = 1;
    for (char *at = text; at < text + n; at += strlen(at) + 1, number++) {
        at[strcspn(at, "\n")] = '\0';
        if (*at && *at != '#' && !strchr(at, '='))
            return error_set(err, -EINVAL, "%s:%d: not a line NAME=VALUE", path, number);
    }
    return 0;
}

int exec_secrets_read(const char *path, char *const *names, char ***ret, Error *err)
{
    char *text = NULL;
    size_t n_names = 0;
    while (names && names[n_names])
        n_names++;
    *ret = NULL;
    if (n_names == 0)
        return 0;
    if (!path)
        return error_set(err, -ENOENT, "exec.secrets: this node keeps no secrets");
    int r = read_private(path, &text, err);
    if (r < 0)
        return r;
    const size_t n = strlen(text);
    r = check_lines(path, text, n, err);
    char **list = memory_zeroed(n_names + 1, sizeof(*list));
    for (size_t i = 0; r == 0 && i < n_names; i++) {
        const char *line = find(text, n, names[i]);
        if (line)
            list[i] = memory_text(line);
        else
            r = error_set(err, -ENOENT, "exec.secrets: %s is not in %s", names[i], path);
    }
    explicit_bzero(text, n);
    free(text);
    if (r == 0)
        *ret = list;
    else
        exec_secrets_free(list);
    return r;
}

void exec_secrets_free(char **list)
{
    for (char **one = list; one && *one; one++) {
        explicit_bzero(*one, strlen(*one));
        free(*one);
    }
    free(list);
}
