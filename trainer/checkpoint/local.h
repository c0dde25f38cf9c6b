/* local.h - copies of a checkpoint's objects on a disk of this node, so that a restore
 * reads from there what the node's ranks wrote.
 *
 * They are never believed: whoever reads one compares its size and hash with the manifest's, drops
 * it when they differ, and takes the object from the store. So nothing here is synced, and nothing
 * that goes wrong with a copy is more than a log line.
 *
 * <dir>/<16 digits, of the store's URI>/<checkpoint's folder>/<object>, shared by the node's ranks,
 * which keep together below max_bytes; a lock is held while they count.
 *
 * Ownership: checkpoint_local_new() gives the caller a CheckpointLocal; free() accepts NULL.
 * Units:     bytes. A key is the store's: <folder>/<object>.
 * Errors:    -ENOSPC a full disk, or max_bytes; -errno of the file.
 * Threads:   any, and any process; one put at a time.
 */
#pragma once

#include "trainer/checkpoint/checkpoint.h"

int checkpoint_local_new(const char *dir, uint64_t max_bytes, const char *store_uri,
                         CheckpointLocal **ret, Error *err);
CheckpointLocal *checkpoint_local_free(CheckpointLocal *local);
DEFINE_CLEANUP(CheckpointLocal, checkpoint_local_free)

/* ---- of a restore ---- */

/* 1: a file of that size is there; 0: none; -EBADMSG: one of another size. local may be NULL. */
int checkpoint_local_has(const CheckpointLocal *local, const char *key, uint64_t n_bytes);
int checkpoint_local_read(const CheckpointLocal *local, const char *key, uint64_t offset,
                          size_t n_bytes, void *to, Error *err);
void checkpoint_local_drop(const CheckpointLocal *local, const char *key);

/* A copy that is being written; it has its name once it is closed with keep. */
typedef struct LocalFile {
    int fd;
    char *path; /* owned */
} LocalFile;
#define LOCAL_FILE_INIT ((LocalFile){.fd = -EBADF})
int local_file_open(const CheckpointLocal *local, const char *key, LocalFile *ret, Error *err);
int local_file_write(LocalFile *file, const void *data, size_t n_bytes, Error *err);
/* Accepts one that is not open. */
int local_file_close(LocalFile *file, bool keep, Error *err);

/* ---- of a save ---- */

/* Removes all checkpoints but those in keep, and sets n_bytes aside for what will be put. Then
 * end() must be called. */
int checkpoint_local_begin(CheckpointLocal *local, const char (*keep)[CHECKPOINT_FOLDER_MAX],
                           size_t n_keep, uint64_t n_bytes, Error *err);
int checkpoint_local_put(CheckpointLocal *local, const char *key, const struct iovec *parts,
                         size_t n_parts, Error *err);
/* Gives back what was set aside. Without success the last folder of keep goes. */
void checkpoint_local_end(CheckpointLocal *local, bool success);
/* A checkpoint that was not written after all. */
void checkpoint_local_forget(const CheckpointLocal *local, const char *folder);
/* The job is done: nobody will restore. */
void checkpoint_local_clear(const CheckpointLocal *local);
