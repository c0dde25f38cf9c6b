/* SPDX-License-Identifier: Apache-2.0 */
/* list.c - see list.h, and checkpoint_list() in checkpoint.h. */
#include "trainer/checkpoint/list.h"

#include <string.h>

enum { STORE_OBJECTS_MAX = 4 << 20 };

/* Finds the checkpoint's folder that the key lies in; *ret_rest is the key inside the folder. -EINVAL: the key is not
 * in a checkpoint's folder. */
static int folder_of(const char *key, CheckpointName *ret, const char **ret_rest)
{
    char folder[CHECKPOINT_FOLDER_MAX];
    size_t n = strcspn(key, "/");
    if (key[n] != '/' || n >= sizeof(folder))
        return -EINVAL;
    memcpy(folder, key, n);
    folder[n] = '\0';
    *ret_rest = key + n + 1;
    return checkpoint_name_parse(folder, ret);
}

int catalogue_read(Store *store, Catalogue *ret, Error *err)
{
    Catalogue c = {0};
    int r = store_list(store, "", STORE_OBJECTS_MAX, &c.objects, err);
    if (r < 0)
        return r;
    c.folders = calloc(c.objects.n_objects + 1, sizeof(*c.folders));
    if (!c.folders) {
        catalogue_clear(&c);
        return error_set(err, -ENOMEM, "%s: out of memory", store_uri(store));
    }

    for (size_t i = 0; i < c.objects.n_objects; i++) {
        CheckpointName name;
        const char *rest;
        if (folder_of(c.objects.objects[i].key, &name, &rest) < 0)
            continue;
        CatalogueFolder *f = c.n_folders > 0 ? &c.folders[c.n_folders - 1] : NULL;
        if (!f || !checkpoint_name_equal(&f->name, &name)) {
            f = &c.folders[c.n_folders++];
            *f = (CatalogueFolder){.name = name, .first = i};
        }
        f->n++;
        if (strcmp(rest, "manifest.json") == 0) {
            f->has_manifest = true;
            f->manifest = i;
        }
    }
    *ret = c;
    return 0;
}

void catalogue_clear(Catalogue *c)
{
    store_list_clear(&c->objects);
    free(c->folders);
    *c = (Catalogue){0};
}

static int compare_object_key(const void *key, const void *object)
{
    return strcmp(key, ((const StoreObject *)object)->key);
}

const StoreObject *catalogue_find(const Catalogue *c, const char *key)
{
    if (c->objects.n_objects == 0)
        return NULL;
    return bsearch(key, c->objects.objects, c->objects.n_objects, sizeof(*c->objects.objects),
                   compare_object_key);
}

/* ---- checkpoint_list ---- */

static int compare_checkpoints(const void *a, const void *b)
{
    const CatalogueFolder *x = a, *y = b;
    if (x->name.step != y->name.step)
        return x->name.step > y->name.step ? -1 : 1;
    if (x->name.owner != y->name.owner)
        return x->name.owner > y->name.owner ? -1 : 1;
    if (x->name.generation != y->name.generation)
        return x->name.generation > y->name.generation ? -1 : 1;
    return x->name.attempt < y->name.attempt ? -1 : x->name.attempt > y->name.attempt;
}

void catalogue_sort_newest_first(Catalogue *c)
{
    if (c->n_folders > 0)
        qsort(c->folders, c->n_folders, sizeof(*c->folders), compare_checkpoints);
}

static int fill_list(Catalogue *c, StoreList *list)
{
    catalogue_sort_newest_first(c);
    list->objects = calloc(c->n_folders + 1, sizeof(*list->objects));
    if (!list->objects)
        return -ENOMEM;
    for (size_t i = 0; i < c->n_folders; i++) {
        const CatalogueFolder *f = &c->folders[i];
        if (!f->has_manifest)
            continue;
        char folder[CHECKPOINT_FOLDER_MAX];
        checkpoint_name_format(&f->name, folder);
        char *key = strdup(folder);
        if (!key)
            return -ENOMEM;
        const StoreObject *manifest = &c->objects.objects[f->manifest];
        list->objects[list->n_objects++] = (StoreObject){.key = key,
                                                         .n_bytes = manifest->n_bytes,
                                                         .modified_usec = manifest->modified_usec};
    }
    return 0;
}

int checkpoint_list(Store *store, StoreList *ret, Error *err)
{
    Catalogue c = {0};
    int r = catalogue_read(store, &c, err);
    if (r < 0)
        return r;
    StoreList list = {0};
    r = fill_list(&c, &list);
    catalogue_clear(&c);
    if (r < 0) {
        store_list_clear(&list);
        return error_set(err, r, "%s: out of memory listing checkpoints", store_uri(store));
    }
    *ret = list;
    return 0;
}
