/* SPDX-License-Identifier: Apache-2.0 */
/* file-internal.h - the inside of a file:// store, shared by its sources.
 *
 * Ownership: as each field says.
 * Units:     bytes.
 * Errors:    as store.h.
 * Threads:   any; what is marked "lock" under it.
 */
#pragma once

#include "base/memory.h"
#include "store/backend.h"

#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

enum {
    DEFERRED_MAX = 256, /* descriptors kept open; a put beyond them is synced at once */
    KNOWN_MAX = 64,     /* folders whose way is on the disk; more are synced again */
    TEMPORARY_BYTES = sizeof(STORE_TEMPORARY "XXXXXX-") - 1, /* before the object's name */
};

typedef struct FileDeferred {
    int fd;       /* of an object, or of a folder on the way to one */
    char *folder; /* whose names are new, owned; NULL: fd's own are */
} FileDeferred;

/* A folder whose name, and those above it, are on the disk. */
typedef struct KnownFolder {
    dev_t device;
    ino_t inode;
    bool deferred; /* not before the flush */
} KnownFolder;

typedef struct FileStore {
    Store store;
    char *folder; /* owned */
    pthread_mutex_t lock;
    FileDeferred deferred[DEFERRED_MAX]; /* lock */
    size_t n_deferred;                   /* lock */
    KnownFolder known[KNOWN_MAX];        /* lock */
    size_t n_known, next_known;          /* lock */
} FileStore;

static inline FileStore *file_store(Store *store) { return (FileStore *)store; }

static inline void file_path(const FileStore *files, const char *key, char path[static PATH_MAX])
{
    int n = snprintf(path, PATH_MAX, "%s%s%s", files->folder, *key ? "/" : "", key);
    assert(n < PATH_MAX); /* store_open() bounds the folder, key_check() the key */
}

/* Words for a call on the object that failed; what has no such path is -ENOENT. */
int file_refuse(const Store *store, const char *key, int r, const char *what, Error *err);

/* -errno; the folder's names are on the disk. */
int file_sync_folder(const char *folder);
/* A folder was removed, or is new: another one may have had its number. */
void file_forget_folder(FileStore *files, const struct stat *st);
int file_put(Store *store, const char *key, const struct iovec *parts, size_t n_parts,
             StorePutFlags flags, Error *err);
int file_flush(Store *store, Error *err);
