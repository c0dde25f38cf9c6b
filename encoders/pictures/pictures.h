/* SPDX-License-Identifier: Apache-2.0 */
/* pictures.h - runs picture_decode() in child processes, since a picture may crash the decoder, hang it, or take it
 * over.
 *
 * A child is this program started again (/proc/self/exe), so that it shares no memory, threads, credentials or
 * descriptors with its parent, except for one socket and one piece of shared memory. It has limits of memory and files,
 * and may use few system calls (child-confine.h; not in builds with a sanitizer). It is killed when the thread that
 * started it ends. Its answers are checked like those of an untrusted process.
 *
 * If a child dies of a picture, or does not answer within `patience_usec`, the picture is given to another child once.
 * After a second failure its answer is -ENOTRECOVERABLE, which is not a verdict about the picture: the machine may have
 * failed.
 *
 * Answers are returned in the order of the questions. At most pictures_room() questions may have answers that
 * were not taken.
 *
 * Folder:    defaults of the headers here: Threads: any.
 * Ownership: pictures_open() gives the caller a Pictures; pictures_free() accepts NULL, and ends the children. The
 *            bytes of a question are borrowed until its answer is taken.
 * Units:     bytes, pixels; microseconds.
 * Errors:    as picture-decode.h. -ECHILD: a child does not start, and a retry cannot help; -errno.
 * Threads:   the thread that called pictures_open(), which must not end before pictures_free().
 */
#pragma once

#include "base/cleanup.h"
#include "encoders/pictures/picture-decode.h"

#include <sys/types.h>

enum {
    PICTURES_CHILDREN_MAX = 64,
    PICTURES_PER_CHILD = 8,
    PICTURES_CHILD_BYTES = 256 << 20, /* a child's memory, without the memory for pixels */
    PICTURES_CHILD_PIXEL_BYTES = 12,  /* bytes added for each of max_pixels: coefficients and RGB */
};

typedef struct Pictures Pictures;

typedef struct PicturesOptions {
    PictureRecipe recipe;
    int n_children;
    uint64_t patience_usec; /* longest time without an answer; 0: a minute */
    const char *program;    /* the children's program; NULL: this program; set only in tests */
} PicturesOptions;

/* To be called first in main(). In a child it decodes pictures and does not return. In other processes it sets SIGCHLD,
 * if it was ignored, to its default. */
void pictures_child(int argc, char **argv);

/* Starts the children and waits until each is ready. */
int pictures_open(const PicturesOptions *options, Pictures **ret, Error *err);
Pictures *pictures_free(Pictures *pictures);
DEFINE_CLEANUP(Pictures, pictures_free)

/* Returns 0 if the kernel kills a child that makes other system calls than decoding needs. Otherwise returns the -errno
 * of child_filter(): only limits confine the children, and the user must be informed. */
int pictures_filter(const Pictures *pictures);

/* Returns the largest number of pictures that may be requested before an answer must be taken. */
int pictures_room(const Pictures *pictures);
/* For tests: returns the number of requested pictures whose answers have not been taken yet. */
int pictures_requested(const Pictures *pictures);

/* Gives a picture to a child. -EAGAIN: an answer must be taken first; never returned if pictures_requested() is 0. */
int pictures_request(Pictures *pictures, const void *data, size_t n_bytes, Error *err);

/* Waits for the answer to the oldest request. Returns the result of picture_decode() in the child, or
 * -ENOTRECOVERABLE. */
int pictures_take(Pictures *pictures, uint8_t *ret_rgb, Error *err);

/* For tests: returns the process id of a child. */
pid_t pictures_child_pid(const Pictures *pictures, int child);
