/* SPDX-License-Identifier: Apache-2.0 */
/* local.h - copies of a checkpoint's objects on a disk of this node, so that a restore can read from this disk the
 * objects that the node's ranks have written.
 *
 * A copy is never trusted. The reader compares a copy's size and hash with the manifest's, drops a copy that differs,
 * and reads the object from the store. So copies are not synced, and a copy that fails only causes a log line.
 *
 * A copy's path is <dir>/<hash of the store's URI, 16 digits>/<checkpoint's folder>/<object>. The node's ranks share a
 * store's copies and together stay below max_bytes; they count the bytes under a lock.
 *
 * Ownership: checkpoint_local_new() gives the caller a CheckpointLocal; free() accepts NULL.
 * Units:     bytes. A key is the store's: <folder>/<object>.
 * Errors:    -ENOSPC: the disk is full, or max_bytes would be exceeded; -errno of file operations.
 * Threads:   any thread of any process; one put at a time.
 */
#pragma once

#include "trainer/checkpoint/checkpoint.h"

int checkpoint_local_new(const char *dir, uint64_t max_bytes, const char *store_uri,
                         CheckpointLocal **ret, Error *err);
CheckpointLocal *checkpoint_local_free(CheckpointLocal *local);
DEFINE_CLEANUP(CheckpointLocal, checkpoint_local_free)

/* ---- for a restore ---- */

/* Returns 1 if there is a copy of that size, 0 if there is none, -EBADMSG if the copy has another size. local may be
 * NULL. */
int checkpoint_local_has(const CheckpointLocal *local, const char *key, uint64_t n_bytes);
int checkpoint_local_read(const CheckpointLocal *local, const char *key, uint64_t offset,
                          size_t n_bytes, void *to, Error *err);
void checkpoint_local_drop(const CheckpointLocal *local, const char *key);

/* A copy that is being written. local_file_close() with keep gives the file its final name. */
typedef struct LocalFile {
    int fd;
    char *path; /* owned */
} LocalFile;
#define LOCAL_FILE_INIT ((LocalFile){.fd = -EBADF})
int local_file_open(const CheckpointLocal *local, const char *key, LocalFile *ret, Error *err);
int local_file_write(LocalFile *file, const void *data, size_t n_bytes, Error *err);
/* Accepts LOCAL_FILE_INIT. Without keep the copy is removed. */
int local_file_close(LocalFile *file, bool keep, Error *err);

/* ---- for a save ---- */

/* Removes all checkpoints except those in keep, and reserves n_bytes for the puts that follow. checkpoint_local_end()
 * ends the reservation. */
int checkpoint_local_begin(CheckpointLocal *local, const char (*keep)[CHECKPOINT_FOLDER_MAX],
                           size_t n_keep, uint64_t n_bytes, Error *err);
int checkpoint_local_put(CheckpointLocal *local, const char *key, const struct iovec *parts,
                         size_t n_parts, Error *err);
/* Called when all ranks have restored `latest`. Removes all checkpoints except `latest` and the checkpoint that was
 * committed before it. A save would do this, too, but the store may refuse all saves. */
void checkpoint_local_tidy(const CheckpointLocal *local, const Manifest *latest);
/* Releases the rest of the reservation of checkpoint_local_begin(). If `success` is false, also removes the copies in
 * the last folder of its `keep`: the copies of the failed save. */
void checkpoint_local_end(CheckpointLocal *local, bool success);
/* Removes the copies of a checkpoint whose save has failed. */
void checkpoint_local_forget(const CheckpointLocal *local, const char *folder);
/* Removes all copies of this store's objects: the job is finished, and there will be no restore. */
void checkpoint_local_clear(const CheckpointLocal *local);
