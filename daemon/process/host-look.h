/* SPDX-License-Identifier: Apache-2.0 */
/* host-look.h - tries the unit of a host (host.h) without a rank: what does a program find there?
 *
 * Ownership: the caller's buffer. Units: milliseconds.
 * Errors:    -ETIMEDOUT: the unit has not answered in time; -EPERM: it runs as another user; -ENODATA: it has ended
 *            without an answer; -errno of the connection.
 * Threads:   any; blocks.
 */
#pragma once

#include "base/error.h"

#include <sys/types.h>

enum { HOST_LOOK_MSEC = 5000, HOST_LOOK_MAX = 4096 };

/* Starts the host's program once with this environment, and receives what the program prints until it ends. */
int host_look(const char *path, uid_t user, char *const *environment, char ret[HOST_LOOK_MAX],
              Error *err);
