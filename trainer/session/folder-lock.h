/* SPDX-License-Identifier: Apache-2.0 */
/* folder-lock.h - lets one `sdtrainer run` at a time into a checkpoint folder on a file system.
 *
 * The lock is flock(2) of <folder>/owner/lock. The lock belongs to the file, whatever path opens it, and ends with its
 * process: a run that was killed can be started again without --take-over. The lock works between hosts if the file
 * system supports this (NFS does). If not, and on S3, only the owner objects decide, and the operator must request that
 * a run takes over.
 *
 * Ownership: folder_lock_take() gives the caller a descriptor; closing it, or the process's end, ends
 *            the lock.
 * Errors:    -CHECKPOINT_NOT_OWNER: another process holds the lock, and the text names that process; -EOPNOTSUPP: the
 *            file system has no locks; -errno of the file system.
 * Threads:   any.
 */
#pragma once

#include "trainer/checkpoint/checkpoint.h"

/* make: create the folder of owners if it is missing. Otherwise a missing folder is -ENOENT: no run has written there,
 * so there is nothing to lock yet. */
int folder_lock_take(const char *uri, bool make, Error *err);
