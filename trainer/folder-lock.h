/* folder-lock.h - one `sdtrainer run` at a time in a checkpoint folder on a file system.
 *
 * The lock is flock(2) of <folder>/owner/lock: of the file, whatever path leads to it, and gone with
 * its process, so that a run that was killed can be started again without a word. Between hosts it
 * holds where the file system keeps it (NFS does); where it does not, and on S3, the owner objects
 * alone decide, and taking over is the operator's word.
 *
 * Ownership: folder_lock_take() gives the caller a descriptor; closing it, or the process's end, ends
 *            the lock.
 * Units:     none.
 * Errors:    -CHECKPOINT_NOT_OWNER: held, by whom the text names; -EOPNOTSUPP: there are no locks;
 *            -errno of the file system.
 * Threads:   any.
 */
#pragma once

#include "trainer/checkpoint/checkpoint.h"

/* make: the folder of owners too; else -ENOENT without one: nobody has written there, and nothing is to be locked
 * yet. */
int folder_lock_take(const char *uri, bool make, Error *err);
