/* SPDX-License-Identifier: Apache-2.0 */
/* file.h - whole files and folders: read, write (a reader sees all or nothing), make, remove.
 *
 * Ownership: file_read gives the caller a buffer to free().
 * Units:     bytes.
 * Errors:    0 or -errno, with the path in the text. -EEXIST from file_write when the file exists and FILE_EXCLUSIVE is
 *            set; -EFBIG from file_read beyond max_bytes.
 */
#pragma once

#include "base/error.h"

typedef enum FileFlags {
    FILE_EXCLUSIVE = 1 << 0, /* fail with -EEXIST instead of replacing a file */
    FILE_SYNC = 1 << 1,      /* return only once the bytes and the name are on the disk */
} FileFlags;

/* Reads a whole file; the buffer has a NUL after its last byte, so that text is a string. */
int file_read(const char *path, size_t max_bytes, char **ret, size_t *ret_bytes, Error *err);

/* Reads the first line of a file without its newline; a line of more than size - 1 bytes is cut. Returns 0 or -errno.
 * The call makes a single read(), as files of the kernel (/proc, /sys) require. */
int file_read_line(const char *path, char *ret, size_t size);
/* Works like file_read_line(), on a file that is open at its beginning. */
int fd_read_line(int fd, char *ret, size_t size);

/* Writes a temporary file in the same folder and renames it to path; removes the temporary file after a failure. */
int file_write(const char *path, const void *data, size_t n_bytes, FileFlags flags, Error *err);

/* Works like mkdir -p. */
int folder_make(const char *path, Error *err);
/* Works like folder_make(), but creates the last folder with mode 0750, so that users outside its group cannot open its
 * files: a user who can open a file can also lock it. */
int folder_make_private(const char *path, Error *err);

/* Works like rm -rf: a missing path is success, links are not followed. */
int folder_remove(const char *path, Error *err);

/* Writes the whole buffer, in as many write() calls as the kernel needs. Returns 0 or -errno. */
int fd_write_all(int fd, const void *data, size_t n_bytes);
/* Writes the whole buffer at offset. Returns 0 or -errno. */
int fd_write_at(int fd, const void *data, size_t n_bytes, uint64_t offset);
/* Extends an empty file to n_bytes; -ENOSPC, -EDQUOT or -EFBIG if there is no room. Where the file system supports
 * fallocate(), the room is reserved; elsewhere (tmpfs) the call only checks that there is room now. */
int fd_reserve(int fd, uint64_t n_bytes);
/* Reads n_bytes at offset; -EIO if the file ends earlier. */
int fd_read_all(int fd, void *data, size_t n_bytes, uint64_t offset);
