/* SPDX-License-Identifier: Apache-2.0 */
/* file-internal.h - the inside of a file:// store, shared by its sources.
 *
 * Ownership: as each field says. Units: bytes. Errors: as in store.h.
 * Threads:   any; `lock` guards the fields that say so.
 */
#pragma once

#include "base/memory.h"
#include "store/backend.h"

#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

enum {
    /* The largest number of descriptors that are kept open; further puts are synced at once. */
    DEFERRED_MAX = 256,
    KNOWN_MAX = 64, /* how many synced folders are remembered; other folders are synced again */
    TEMPORARY_BYTES = sizeof(STORE_TEMPORARY "XXXXXX-") - 1, /* bytes before the object's name */
};

typedef struct FileDeferred {
    int fd;       /* descriptor of an object, or of a folder in an object's path */
    char *folder; /* owned: the folder that has the new name; NULL: fd is itself a folder */
} FileDeferred;

/* A folder whose path is on the disk: its own name and the names of all folders above it. */
typedef struct KnownFolder {
    dev_t device;
    ino_t inode;
    bool deferred; /* true: the path is on the disk only after the next flush */
} KnownFolder;

typedef struct FileStore {
    Store store;
    char *folder; /* path of the store's folder; owned by the store */
    pthread_mutex_t lock;
    FileDeferred deferred[DEFERRED_MAX]; /* guarded by lock */
    size_t n_deferred;                   /* guarded by lock */
    KnownFolder known[KNOWN_MAX];        /* guarded by lock */
    size_t n_known, next_known;          /* guarded by lock */
} FileStore;

static inline FileStore *file_store(Store *store) { return (FileStore *)store; }

static inline void file_path(const FileStore *files, const char *key, char path[static PATH_MAX])
{
    int n = snprintf(path, PATH_MAX, "%s%s%s", files->folder, *key ? "/" : "", key);
    assert(n < PATH_MAX); /* store_open() bounds the folder, key_check() the key */
}

/* Sets the error for a failed call on an object, and returns its code. -ENOENT and -ENOTDIR become -ENOENT. */
int file_refuse(const Store *store, const char *key, int r, const char *what, Error *err);

/* Flushes the folder's entries to the disk (fsync). Returns 0 or -errno. */
int file_sync_folder(const char *folder);
/* Forgets a folder that was removed or is new, since a new folder may reuse the inode number of a removed folder. */
void file_forget_folder(FileStore *files, const struct stat *st);
int file_put(Store *store, const char *key, const struct iovec *parts, size_t n_parts,
             StorePutFlags flags, Error *err);
int file_flush(Store *store, Error *err);
