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
    FILE_SYNC = 1 << 1,      /* the bytes and the name are on the disk when the call returns */
} FileFlags;

/* The buffer has a NUL after its last byte, so that text can be used as a string. */
int file_read(const char *path, size_t max_bytes, char **ret, size_t *ret_bytes, Error *err);

/* Through a temporary name in the same folder, which is removed on failure. */
int file_write(const char *path, const void *data, size_t n_bytes, FileFlags flags, Error *err);

/* mkdir -p. */
int folder_make(const char *path, Error *err);
/* The same, but what is new of the last folder is for its owner and his group alone: who may open a file may lock it.
 */
int folder_make_private(const char *path, Error *err);

/* rm -rf; a missing path is success. Does not follow links. */
int folder_remove(const char *path, Error *err);

/* The whole buffer, whatever the kernel takes at once; -errno. */
int fd_write_all(int fd, const void *data, size_t n_bytes);
/* The same, from offset on. */
int fd_write_at(int fd, const void *data, size_t n_bytes, uint64_t offset);
/* Makes an empty file n_bytes long: -ENOSPC, -EDQUOT or -EFBIG if there is no room for them. Where file
 * systems can, the room is its own from now on; of tmpfs and such it is known only that it is there. */
int fd_reserve(int fd, uint64_t n_bytes);
/* n_bytes at offset; -EIO on early end. */
int fd_read_all(int fd, void *data, size_t n_bytes, uint64_t offset);
