/* SPDX-License-Identifier: Apache-2.0 */
/* child.h - one child process of pictures.h: started, spoken to, ended.
 *
 * Ownership: child_open() makes what child_close() takes back; a Child that is all 0 but for its descriptors, which are
 *            negative, may be closed as well. The shared memory outlives the process: child_restart() has it again.
 * Units:     bytes, microseconds.
 * Errors:    -ECHILD: the process does not come up; -errno.
 * Threads:   the one that opened it, with whose end the process ends.
 */
#pragma once

#include "encoders/pictures/child-message.h"

typedef struct Child {
    const char *program; /* borrowed */
    PictureRecipe recipe;
    pid_t pid; /* 0: none */
    int socket, memory_fd;
    uint8_t *memory;
    int filter; /* child_filter()'s, of the process */
} Child;

int child_open(const char *program, const PictureRecipe *recipe, Child *ret, Error *err);
void child_close(Child *child);

/* Kills the process, waits for its end, and writes how it ended: "signal 11", "exit status 3". */
void child_kill(Child *child, char *ret_how, size_t n_bytes);
/* Starts a process where none is, and waits until it is ready. */
int child_restart(Child *child, Error *err);

/* Copies a file into its place and asks. -EPIPE: the process is gone; what it said before is still to be heard. */
int child_request(Child *child, uint32_t place, const void *data, size_t n_bytes);
/* Gives back what a large file took. */
void child_forget(Child *child, uint32_t place, size_t n_bytes);

/* The end of a packet as it came: its true length, or 0 at the end; -EAGAIN: none is there. */
ssize_t child_receive(Child *child, void *packet, size_t n_bytes);
