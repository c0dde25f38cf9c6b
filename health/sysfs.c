/* SPDX-License-Identifier: Apache-2.0 */
/* sysfs.c - see sysfs.h. */
#include "health/sysfs.h"

#include "base/cleanup.h"
#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>

int sysfs_read_line(char ret[SYSFS_LINE_MAX], const char *format, ...)
{
    char path[PATH_MAX];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(path, sizeof(path), format, ap);
    va_end(ap);
    return n < 0 || (size_t)n >= sizeof(path) ? -ENAMETOOLONG
                                              : file_read_line(path, ret, SYSFS_LINE_MAX);
}

int sysfs_parse_number(const char *line, uint64_t *ret)
{
    char *end;
    if (line[0] < '0' || line[0] > '9')
        return -EINVAL;
    errno = 0;
    uint64_t value = strtoull(line, &end, strncmp(line, "0x", 2) == 0 ? 16 : 10);
    if (errno || end == line)
        return -EINVAL;
    *ret = value;
    return 0;
}

int sysfs_read_number(uint64_t *ret, const char *format, ...)
{
    char path[PATH_MAX], line[SYSFS_LINE_MAX];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(path, sizeof(path), format, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof(path))
        return -ENAMETOOLONG;
    int r = file_read_line(path, line, sizeof(line));
    return r < 0 ? r : sysfs_parse_number(line, ret);
}

static int compare(const void *a, const void *b) { return strcmp(a, b); }

size_t sysfs_list(const char *folder, SysfsName *ret, size_t max)
{
    DIR *dir = opendir(folder);
    size_t n = 0;
    if (!dir)
        return 0;
    for (struct dirent *e; n < max && (e = readdir(dir));)
        if (e->d_name[0] != '.' && strlen(e->d_name) < SYSFS_NAME_MAX)
            memcpy(ret[n++], e->d_name, strlen(e->d_name) + 1);
    (void)closedir(dir); /* cannot fail: the folder was only read */
    qsort(ret, n, SYSFS_NAME_MAX, compare);
    return n;
}
