/* SPDX-License-Identifier: Apache-2.0 */
/* testing-shelf.c - see testing-shelf.h. */
#include "store/s3/test/testing-shelf.h"

#include "base/macro.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Shelf shelf;

void shelf_check(bool good, const char *what)
{
    if (!good) {
        (void)fprintf(stderr, "testing-objects: %s\n", what);
        abort();
    }
}

ShelfObject *shelf_find(const char *name)
{
    for (size_t i = 0; i < shelf.n_objects; i++)
        if (strcmp(shelf.objects[i].name, name) == 0)
            return &shelf.objects[i];
    return NULL;
}

void shelf_take(ShelfObject *object)
{
    free(object->name);
    free(object->data);
    *object = shelf.objects[--shelf.n_objects];
}

void shelf_put(const char *name, const char *mark, char *data, size_t n_bytes)
{
    ShelfObject *object = shelf_find(name);
    if (object)
        shelf_take(object);
    shelf_check(shelf.n_objects < ELEMENTSOF(shelf.objects), "too many objects");
    object = &shelf.objects[shelf.n_objects++];
    *object = (ShelfObject){.name = strdup(name),
                            .data = data,
                            .n_bytes = n_bytes,
                            .version = ++shelf.serial};
    (void)snprintf(object->mark, sizeof(object->mark), "%s", mark);
}

void shelf_drop_upload(ShelfUpload *upload)
{
    free(upload->name);
    for (size_t i = 0; i < upload->n_parts; i++)
        free(upload->parts[i].data);
    free(upload->parts);
    *upload = shelf.uploads[--shelf.n_uploads];
}

ShelfUpload *shelf_begin_upload(const char *name, const char *mark, uint64_t begun_usec)
{
    shelf_check(shelf.n_uploads < ELEMENTSOF(shelf.uploads), "too many uploads");
    ShelfUpload *upload = &shelf.uploads[shelf.n_uploads++];
    *upload = (ShelfUpload){.name = strdup(name), .id = ++shelf.serial, .begun_usec = begun_usec};
    (void)snprintf(upload->mark, sizeof(upload->mark), "%s", mark);
    return upload;
}
