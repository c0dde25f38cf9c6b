/* SPDX-License-Identifier: Apache-2.0 */
/* pictures.h - picture_decode() in child processes, which a picture may crash, hang or take over.
 *
 * A child is this program anew (/proc/self/exe), so that it shares no memory, threads, credentials or descriptors with
 * its parent: it has one socket, one piece of shared memory, bounds of its memory and files, and few calls into the
 * kernel (child-confine.h; not in builds with a sanitizer). It dies with the thread that started it. Its answers are
 * checked as a stranger's.
 *
 * A picture that a child dies of, or is silent about for `patience_usec`, is given to another child once. Then its
 * answer is -ENOTRECOVERABLE, which says nothing of the picture: it may have been the machine.
 *
 * Answers come in the order of the questions. At most pictures_room() of them are under way.
 *
 * Ownership: pictures_open() gives the caller a Pictures; pictures_free() accepts NULL, and ends the children. Bytes
 *            that were asked about are borrowed until their answer is taken.
 * Units:     bytes, pixels; microseconds.
 * Errors:    as picture-decode.h. -ECHILD: a child does not start, and never will; -errno.
 * Threads:   the one that called pictures_open(), which must live until pictures_free().
 */
#pragma once

#include "base/cleanup.h"
#include "encoders/pictures/picture-decode.h"

#include <sys/types.h>

enum {
    PICTURES_CHILDREN_MAX = 64,
    PICTURES_PER_CHILD = 8,
    PICTURES_CHILD_BYTES = 256 << 20, /* beside PICTURES_CHILD_PIXEL_BYTES for each of max_pixels */
    PICTURES_CHILD_PIXEL_BYTES = 12,  /* a progressive CMYK: coefficients and RGB */
};

typedef struct Pictures Pictures;

typedef struct PicturesOptions {
    PictureRecipe recipe;
    int n_children;
    uint64_t patience_usec; /* 0: a minute. A watchdog, not a rule: no verdict comes from it */
    const char *program;    /* NULL: this one. For tests */
} PicturesOptions;

/* To be called first in main(): in a child it decodes, and does not return. Elsewhere SIGCHLD is no longer ignored. */
void pictures_child(int argc, char **argv);

/* Starts the children and waits until each is ready. */
int pictures_open(const PicturesOptions *options, Pictures **ret, Error *err);
Pictures *pictures_free(Pictures *pictures);
DEFINE_CLEANUP(Pictures, pictures_free)

/* 0: the kernel ends a child that requests more from it than decoding needs. -errno, child_filter()'s: it does not, and
 * only limits confine the children, which people must be told. */
int pictures_filter(const Pictures *pictures);

/* How many questions fit. */
int pictures_room(const Pictures *pictures);
/* How many have no answer taken yet. */
int pictures_requested(const Pictures *pictures);

/* Gives a picture to a child. -EAGAIN: an answer has to be taken first; never while nothing is asked. */
int pictures_request(Pictures *pictures, const void *data, size_t n_bytes, Error *err);

/* Waits for the answer to the oldest question: as picture_decode(), or -ENOTRECOVERABLE. */
int pictures_take(Pictures *pictures, uint8_t *ret_rgb, Error *err);

/* For tests. */
pid_t pictures_child_pid(const Pictures *pictures, int child);
