/* SPDX-License-Identifier: Apache-2.0 */
/* file.h - whole files and folders: read, write so that a reader sees all or nothing, make, remove.
 *
 * Ownership: file_read gives the caller a buffer to free().
 * Units:     bytes.
 * Errors:    0 or -errno, with the path in the text. -EEXIST from file_write when FILE_EXCLUSIVE
 *            finds one; -EFBIG from file_read beyond max_bytes.
 * Threads:   any.
 */
#pragma once

#include "base/error.h"

typedef enum FileFlags {
    FILE_EXCLUSIVE = 1 << 0, /* fail with -EEXIST instead of replacing */
    FILE_SYNC = 1 << 1,      /* return only once the bytes and the name are on the disk */
} FileFlags;

/* Reads a whole file; the buffer has a NUL after its last byte, so that text is a string. */
int file_read(const char *path, size_t max_bytes, char **ret, size_t *ret_bytes, Error *err);

/* Reads the first line of a file, without its end, and no more of it than fits; -errno. It is one read, as files of the
 * kernel want it. */
int file_read_line(const char *path, char *ret, size_t size);
/* Works as file_read_line() on an open file that nobody has read from. */
int fd_read_line(int fd, char *ret, size_t size);

/* Writes a temporary file in the same folder, then renames it; a failure removes it. */
int file_write(const char *path, const void *data, size_t n_bytes, FileFlags flags, Error *err);

/* Works as mkdir -p. */
int folder_make(const char *path, Error *err);
/* Works as folder_make(), but a last folder that is new has mode 0750: whoever may open a file in it may lock it. */
int folder_make_private(const char *path, Error *err);

/* Works as rm -rf: a missing path is success, links are not followed. */
int folder_remove(const char *path, Error *err);

/* Writes the whole buffer, in as many calls as the kernel needs; -errno. */
int fd_write_all(int fd, const void *data, size_t n_bytes);
/* Writes the whole buffer at offset; -errno. */
int fd_write_at(int fd, const void *data, size_t n_bytes, uint64_t offset);
/* Makes an empty file n_bytes long: -ENOSPC, -EDQUOT or -EFBIG if there is no room for them. A file system that can
 * (fallocate) reserves the room; on others (tmpfs) the call only finds that the room is there. */
int fd_reserve(int fd, uint64_t n_bytes);
/* Reads n_bytes at offset; -EIO if the file ends before. */
int fd_read_all(int fd, void *data, size_t n_bytes, uint64_t offset);
