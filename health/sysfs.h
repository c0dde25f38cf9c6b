/* SPDX-License-Identifier: Apache-2.0 */
/* sysfs.h - reads the small files of /sys and /proc: a line, a number, or the names in a folder.
 *
 * Ownership: results are copied into the caller's buffers.
 * Units:     those of the file that is read.
 * Errors:    -errno of open and read, -EINVAL for a line that is not a number. There is no text, since absent
 *            files are normal.
 * Threads:   any.
 */
#pragma once

#include "base/macro.h"

enum { SYSFS_LINE_MAX = 256, SYSFS_NAME_MAX = 64 };

/* Reads the first line, without its newline, of the file whose path printf would make of format. */
int sysfs_read_line(char ret[SYSFS_LINE_MAX], const char *format, ...) _printf_(2, 3);
/* Parses the whole number below 2^64 at the beginning of the line; with "0x" it is hexadecimal. */
int sysfs_parse_number(const char *line, uint64_t *ret);
int sysfs_read_number(uint64_t *ret, const char *format, ...) _printf_(2, 3);

typedef char SysfsName[SYSFS_NAME_MAX];

/* Lists at most max names of the folder, sorted; an absent folder has none. */
size_t sysfs_list(const char *folder, SysfsName *ret, size_t max);
