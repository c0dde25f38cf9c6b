/* SPDX-License-Identifier: Apache-2.0 */
/* testing-shelf.h - the storage of the server in testing-objects.c: objects, and unfinished uploads.
 *
 * Ownership: the shelf owns all names and bytes; shelf_put() takes over `data`.
 * Units:     bytes; *_usec since 1970.
 * Errors:    too many objects or uploads end the process.
 * Threads:   under the lock of testing-objects.c.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ShelfObject {
    char *name, *data, mark[64];
    size_t n_bytes;
    unsigned version;
} ShelfObject;

typedef struct ShelfUpload {
    char *name, mark[64];
    unsigned id;
    uint64_t begun_usec;
    ShelfObject *parts;
    size_t n_parts;
} ShelfUpload;

typedef struct Shelf {
    ShelfObject objects[4096];
    ShelfUpload uploads[1200];
    size_t n_objects, n_uploads;
    unsigned serial; /* the newest number used: versions of objects and parts, and ids of uploads */
} Shelf;

extern Shelf shelf;

/* Ends the process with this message unless good is true. */
void shelf_check(bool good, const char *what);
ShelfObject *shelf_find(const char *name); /* NULL: no such object */
void shelf_take(ShelfObject *object);
/* Stores an object; replaces an object of the same name. */
void shelf_put(const char *name, const char *mark, char *data, size_t n_bytes);
ShelfUpload *shelf_begin_upload(const char *name, const char *mark, uint64_t begun_usec);
void shelf_drop_upload(ShelfUpload *upload);
