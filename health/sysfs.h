/* sysfs.h - the small files of /sys and /proc: a line, a number, a folder's names.
 *
 * Ownership: results are copied into the caller's buffers.
 * Units:     as the file says.
 * Errors:    -errno of open and read; -EINVAL for what is not a number; no text: absence is
 *            ordinary there.
 * Threads:   any.
 */
#pragma once

#include "base/macro.h"

enum { SYSFS_LINE_MAX = 256, SYSFS_NAME_MAX = 64 };

/* The first line without its newline; path is printf's. */
int sysfs_read_line(char ret[SYSFS_LINE_MAX], const char *format, ...) _printf_(2, 3);
/* The number that the line begins with; "0x" is hexadecimal. Whole, below 2^64. */
int sysfs_parse_number(const char *line, uint64_t *ret);
int sysfs_read_number(uint64_t *ret, const char *format, ...) _printf_(2, 3);

typedef char SysfsName[SYSFS_NAME_MAX];

/* Names in the folder, sorted; beyond max they are left out. An absent folder has none. */
size_t sysfs_list(const char *folder, SysfsName *ret, size_t max);
