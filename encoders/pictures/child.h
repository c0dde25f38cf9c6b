/* SPDX-License-Identifier: Apache-2.0 */
/* child.h - starts, uses and ends one child process of pictures.h.
 *
 * Ownership: child_close() frees what child_open() made; it also accepts a Child that is all zeros except for its
 *            descriptors, which are negative. The shared memory outlives the process: child_restart() reuses it.
 * Units:     bytes, microseconds.
 * Errors:    -ECHILD: the process does not start; -errno.
 * Threads:   the thread that opened it; when that thread ends, the process is killed.
 */
#pragma once

#include "encoders/pictures/child-message.h"

typedef struct Child {
    const char *program; /* borrowed */
    PictureRecipe recipe;
    pid_t pid; /* 0: no process */
    int socket, memory_fd;
    uint8_t *memory;
    int filter; /* result of child_filter() in the process */
} Child;

int child_open(const char *program, const PictureRecipe *recipe, Child *ret, Error *err);
void child_close(Child *child);

/* Kills the process, waits for its end, and writes how it ended: "signal 11", "exit status 3". */
void child_kill(Child *child, char *ret_how, size_t n_bytes);
/* Starts a process, where none is running, and waits until it is ready. */
int child_restart(Child *child, Error *err);

/* Copies a file into its place and requests its decoding. -EPIPE: the process has ended; its earlier answers can still
 * be received. */
int child_request(Child *child, uint32_t place, const void *data, size_t n_bytes);
/* Frees the shared memory of a large file. */
void child_forget(Child *child, uint32_t place, size_t n_bytes);

/* Receives a packet without waiting. Returns its full length, which may exceed n_bytes; 0 after the process has ended;
 * -EAGAIN if there is no packet. */
ssize_t child_receive(Child *child, void *packet, size_t n_bytes);
