/* SPDX-License-Identifier: Apache-2.0 */
/* search.c - see search.h. */
#include "trainer/checkpoint/search.h"

#include "manifest/manifest-internal.h"
#include "trainer/checkpoint/list.h"

#include <string.h>

struct CheckpointSearch {
    Store *store;
    const CheckpointFacts *own;
    Catalogue catalogue; /* folders newest first */
    size_t next;         /* index of the folder to check next */
    CheckpointPassed *passed;
    size_t n_passed;  /* may be more than `passed` holds */
    size_t n_foreign; /* how many of n_passed are of another job */
};

int checkpoint_search_new(Store *store, const CheckpointFacts *own, CheckpointSearch **ret,
                          Error *err)
{
    _cleanup_(checkpoint_search_freep) CheckpointSearch *s = calloc(1, sizeof(*s));
    if (s)
        s->passed = calloc(CHECKPOINT_PASSED_MAX, sizeof(*s->passed));
    if (!s || !s->passed)
        return error_set(err, -ENOMEM, "%s: out of memory", store_uri(store));
    s->store = store;
    s->own = own;
    int r = catalogue_read(store, &s->catalogue, err);
    if (r < 0)
        return r;
    catalogue_sort_newest_first(&s->catalogue);
    *ret = TAKE_PTR(s);
    return 0;
}

CheckpointSearch *checkpoint_search_free(CheckpointSearch *s)
{
    if (s) {
        catalogue_clear(&s->catalogue);
        free(s->passed);
        free(s);
    }
    return NULL;
}

/* Returns whether the error concerns only this manifest; then another manifest may be good. A bad sector gives -EIO
 * each time. */
static bool is_of_one(int r) { return r == -EBADMSG || r == -ENOENT || r == -EIO || r == -EFBIG; }

/* Checks that an object exists with its size. A listing may lag behind: an object that is not in it, or has another
 * size there, is looked up by its name. */
static int check_object(const CheckpointSearch *s, const char *folder, const ObjectRecord *o,
                        Error *err)
{
    char key[CHECKPOINT_FOLDER_MAX + OBJECT_KEY_MAX];
    (void)snprintf(key, sizeof(key), "%s/%s", folder, o->key);
    const StoreObject *listed = catalogue_find(&s->catalogue, key);
    if (listed && listed->n_bytes == o->n_bytes)
        return 0;
    uint64_t n_bytes;
    int r = store_head(s->store, key, &n_bytes, err);
    if (r < 0 || n_bytes == o->n_bytes)
        return r;
    return error_set(err, -EBADMSG, "%s/%s has %llu bytes, the manifest says %llu",
                     store_uri(s->store), key, (unsigned long long)n_bytes,
                     (unsigned long long)o->n_bytes);
}

static int read_candidate(CheckpointSearch *s, const char *folder, Manifest **ret, Error *err)
{
    _cleanup_(manifest_freep) Manifest *m = NULL;
    int r = manifest_read(s->store, folder, NULL, &m, err);
    if (r == 0 && (r = manifest_check_facts(m, s->own, err)) < 0)
        s->n_foreign++;
    for (size_t i = 0; r == 0 && i < m->n_objects; i++)
        r = check_object(s, folder, &m->objects[i], err);
    if (r == 0)
        *ret = TAKE_PTR(m);
    return r;
}

static void pass_over(CheckpointSearch *s, size_t index, const Error *why)
{
    if (s->n_passed < CHECKPOINT_PASSED_MAX) {
        CheckpointPassed *p = &s->passed[s->n_passed];
        checkpoint_name_format(&s->catalogue.folders[index].name, p->folder);
        p->why = *why;
    }
    s->n_passed++;
}

int checkpoint_search_next(CheckpointSearch *s, Manifest **ret, Error *err)
{
    while (s->next < s->catalogue.n_folders) {
        const size_t index = s->next++;
        const CatalogueFolder *f = &s->catalogue.folders[index];
        if (!f->has_manifest)
            continue; /* the save never finished */
        char folder[CHECKPOINT_FOLDER_MAX];
        checkpoint_name_format(&f->name, folder);
        Error why = ERROR_INIT;
        int r = read_candidate(s, folder, ret, &why);
        if (r == 0)
            return 1;
        if (!is_of_one(r))
            return error_set(err, r, "%s", why.text);
        pass_over(s, index, &why);
    }
    return 0;
}

void checkpoint_search_reject(CheckpointSearch *s, const Error *why)
{
    assert(s->next > 0);
    pass_over(s, s->next - 1, why);
}

size_t checkpoint_search_passed(const CheckpointSearch *s, const CheckpointPassed **ret)
{
    *ret = s->passed;
    return s->n_passed;
}

int checkpoint_search_failed(const CheckpointSearch *s, Error *err)
{
    char list[sizeof(err->text)] = "";
    const size_t n = MIN(s->n_passed, (size_t)CHECKPOINT_PASSED_MAX);
    for (size_t i = 0, used = 0; i < n && used < sizeof(list); i++)
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s: %s", i ? "; " : "",
                                 s->passed[i].folder, s->passed[i].why.text);
    const int code = s->n_foreign == s->n_passed ? -EINVAL : -EBADMSG;
    return error_set(err, code, "none of the %zu checkpoints in %s can be gone on from: %s",
                     s->n_passed, store_uri(s->store), list);
}

int64_t checkpoint_search_generation(const CheckpointSearch *s)
{
    int64_t highest = 0;
    for (size_t i = 0; i < s->catalogue.n_folders; i++)
        highest = MAX(highest, s->catalogue.folders[i].name.generation);
    for (size_t i = 0; i < s->catalogue.objects.n_objects; i++) {
        CheckpointName name;
        int64_t first;
        if (metrics_key_parse(s->catalogue.objects.objects[i].key, &name, &first) == 0)
            highest = MAX(highest, name.generation);
    }
    return highest;
}
