/* SPDX-License-Identifier: Apache-2.0 */
/* cleanup.h - scope-bound ownership: _cleanup_(fn), TAKE_PTR, TAKE_FD.
 *
 * Ownership: a variable marked _cleanup_ owns its pointer or descriptor until TAKE_PTR or TAKE_FD moves it out.
 * Units:     none.
 */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(f) __attribute__((cleanup(f)))

#define TAKE_PTR(p)                                                                                \
    ({                                                                                             \
        __typeof__(p) *_pp = &(p);                                                                 \
        __typeof__(p) _taken = *_pp;                                                               \
        *_pp = NULL;                                                                               \
        _taken;                                                                                    \
    })

#define TAKE_FD(fd)                                                                                \
    ({                                                                                             \
        int *_pfd = &(fd);                                                                         \
        int _taken_fd = *_pfd;                                                                     \
        *_pfd = -EBADF;                                                                            \
        _taken_fd;                                                                                 \
    })

/* Defines type_freep(Type **), for _cleanup_(type_freep), from a `Type *type_free(Type *)`. */
#define DEFINE_CLEANUP(Type, free_function)                                                        \
    static inline void free_function##p(Type **p) { (void)free_function(*p); }

static inline void freep(void *p) { free(*(void **)p); }

/* Closes fd unless it is negative, and keeps errno. Returns -EBADF, so that `fd = fd_close(fd)` marks fd as closed. */
static inline int fd_close(int fd)
{
    if (fd >= 0) {
        int saved = errno;
        (void)close(fd); /* a failed close cannot be repaired; written data was synced before */
        errno = saved;
    }
    return -EBADF;
}

static inline void fd_closep(int *fd) { *fd = fd_close(*fd); }

static inline void file_closep(FILE **f)
{
    if (*f)
        (void)fclose(*f); /* only for files that were read; a writer checks fclose() itself */
}

static inline void dir_closep(DIR **dir)
{
    if (*dir)
        (void)closedir(*dir); /* the folder was only read, so a failure loses nothing */
}

#define _cleanup_free_ _cleanup_(freep)
#define _cleanup_fd_ _cleanup_(fd_closep)
#define _cleanup_file_ _cleanup_(file_closep)
#define _cleanup_dir_ _cleanup_(dir_closep)
