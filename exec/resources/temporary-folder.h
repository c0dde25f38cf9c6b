/* SPDX-License-Identifier: Apache-2.0 */
/* temporary-folder.h - folders that are in use as long as a process holds them: the one for temporary files (TMPDIR)
 * that the ranks of one world on one node share, and the one of `try`.
 *
 * Libraries put locks into TMPDIR that the ranks of a node must find under one name: mosaicml-streaming guards its
 * shared memory by them. A folder is held by a shared flock(), which ends with the process, however that dies. A
 * process that comes or goes removes each folder of its user with that prefix that nobody holds.
 *
 * Ownership: the caller closes the descriptor, by temporary_folder_leave().
 * Units:     none.
 * Errors:    -errno with a text; -EPERM: the folder is another user's; -EAGAIN: others removed the folder again and
 *            again while it was made.
 * Threads:   any.
 */
#pragma once

#include "base/error.h"

/* Makes the folder `<base>/<prefix><name>` if it is not there, and holds it. Writes its path into ret. Returns a
 * descriptor. */
int temporary_folder_enter(const char *base, const char *prefix, const char *name, char *ret,
                           size_t size, Error *err);
/* Ends the hold, and removes the folders of `base` that nobody holds any more. Negative descriptors are allowed: then
 * it only removes. A folder that cannot be removed is logged and stays. Returns -EBADF, for the caller's variable. */
int temporary_folder_leave(const char *base, const char *prefix, int fd);
