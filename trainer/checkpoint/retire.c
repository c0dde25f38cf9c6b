/* SPDX-License-Identifier: Apache-2.0 */
/* retire.c - removes checkpoints that are no longer needed, in a safe order.
 *
 * The history is read from the newest committed manifest, not from the listing: a manifest that was written and never
 * committed, or invalidated later, is not in it. A manifest whose step lies beyond the newest commit's stays until a
 * commit reaches that step: if the record of the commits was lost or is out of date, that manifest is the committed
 * one.
 *
 * A checkpoint's manifest is removed first, so that an interrupted removal leaves a folder without a manifest, which
 * the next retirement removes; the objects of a folder are removed together. Decisions depend on names and on the sizes
 * in the listing; only manifests of checkpoints that may count as whole are read.
 *
 * Fault points: checkpoint.retire.manifest (each), checkpoint.retire.object (before the objects of
 * a folder, and before the metrics).
 */
#include "manifest/manifest-internal.h"
#include "trainer/checkpoint/metrics.h"
#include "trainer/checkpoint/owner.h"

#include "base/fault.h"
#include "base/log.h"

#include <string.h>

typedef struct Retire {
    Store *store;
    const CheckpointOwner *owner;
    const Manifest *latest;
    Retention retention;
    Catalogue catalogue;
    bool *keep; /* [catalogue.n_folders]: whether each folder is kept */
    MetricsKept *kept;
    size_t removed;
} Retire;

/* Returns whether a newer generation of this owner has written anything. Then the newer generation decides what is
 * kept. */
static bool is_over(const Catalogue *c, const CheckpointOwner *owner, int64_t generation)
{
    const int64_t number = checkpoint_owner_number(owner);
    for (size_t i = 0; i < c->n_folders; i++)
        if (c->folders[i].name.owner == number && c->folders[i].name.generation > generation)
            return true;
    for (size_t i = 0; i < c->objects.n_objects; i++) {
        CheckpointName name;
        int64_t first;
        if (metrics_key_parse(c->objects.objects[i].key, &name, &first) == 0 &&
            name.owner == number && name.generation > generation)
            return true;
    }
    return false;
}

/* Returns whether the folder's manifest can be read and every object exists with its size. */
static bool is_whole(const Retire *t, const char *folder)
{
    _cleanup_(manifest_freep) Manifest *m = NULL;
    Error err = ERROR_INIT;
    if (manifest_read(t->store, folder, NULL, &m, &err) < 0) {
        log_warning("checkpoint %s does not count: %s", folder, err.text);
        return false;
    }
    for (size_t i = 0; i < m->n_objects; i++) {
        char key[CHECKPOINT_FOLDER_MAX + OBJECT_KEY_MAX];
        (void)snprintf(key, sizeof(key), "%s/%s", folder, m->objects[i].key);
        const StoreObject *o = catalogue_find(&t->catalogue, key);
        if (!o || o->n_bytes != m->objects[i].n_bytes) {
            log_warning("checkpoint %s does not count: %s is %s", folder, m->objects[i].key,
                        o ? "of another size" : "missing");
            return false;
        }
    }
    return true;
}

static size_t find_folder(const Retire *t, const char *folder)
{
    for (size_t i = 0; i < t->catalogue.n_folders; i++) {
        char name[CHECKPOINT_FOLDER_MAX];
        checkpoint_name_format(&t->catalogue.folders[i].name, name);
        if (strcmp(name, folder) == 0)
            return i;
    }
    return SIZE_MAX;
}

/* Returns the folder of the history's k-th newest checkpoint; k = 0 is the newest. */
static void history_at(const Retire *t, size_t k, char folder[CHECKPOINT_FOLDER_MAX])
{
    if (k == 0)
        checkpoint_name_format(&t->latest->name, folder);
    else
        memcpy(folder, t->latest->committed[t->latest->n_committed - k], CHECKPOINT_FOLDER_MAX);
}

static bool is_kept_step(const Retire *t, int64_t step)
{
    const Retention *retention = &t->retention;
    bool kept = retention->keep_every > 0 && step % retention->keep_every == 0;
    for (size_t i = 0; i < retention->n_held; i++)
        kept = kept || retention->held[i] == step;
    return kept;
}

static void decide(Retire *t)
{
    const size_t n_history = t->latest->n_committed + 1;
    int64_t whole = 0, oldest_step = t->latest->name.step;
    for (size_t k = 0; k < n_history; k++) {
        char folder[CHECKPOINT_FOLDER_MAX];
        history_at(t, k, folder);
        CheckpointName name;
        int r = checkpoint_name_parse(folder, &name);
        assert(r == 0); /* manifest_parse() has checked all names */
        oldest_step = name.step;
        size_t i = find_folder(t, folder);
        if (i == SIZE_MAX || !t->catalogue.folders[i].has_manifest)
            continue; /* the checkpoint was removed before, perhaps only in part */
        t->keep[i] = whole < t->retention.keep_last || is_kept_step(t, name.step);
        if (whole < t->retention.keep_last && is_whole(t, folder))
            whole++;
    }
    /* The history's list is bounded: folders older than the list are judged only by their step. */
    for (size_t i = 0; i < t->catalogue.n_folders; i++) {
        const CatalogueFolder *f = &t->catalogue.folders[i];
        if (!checkpoint_owner_holds(t->owner, f->name.owner))
            t->keep[i] = true; /* a checkpoint of another writer, complete or not */
        if (f->has_manifest && (f->name.step > t->latest->name.step ||
                                (f->name.step < oldest_step && is_kept_step(t, f->name.step))))
            t->keep[i] = true;
    }
}

/* ---- removal ---- */

static bool is_plan_set(const char *key)
{
    return strncmp(key, CHECKPOINT_PLAN_SETS, strlen(CHECKPOINT_PLAN_SETS)) == 0;
}

static int remove_manifest(Retire *t, const CatalogueFolder *f, Error *err)
{
    const char *key = t->catalogue.objects.objects[f->manifest].key;
    int r = fault("checkpoint.retire.manifest");
    if (r < 0)
        return error_errno(err, r, "cannot remove %s", key);
    r = store_delete(t->store, key, err);
    if (r == 0)
        t->removed++;
    return r;
}

/* Removes the objects with these n keys. */
static int remove_keys(Retire *t, const char **keys, size_t n, Error *err)
{
    if (n == 0)
        return 0;
    int r = fault("checkpoint.retire.object");
    if (r < 0)
        return error_errno(err, r, "cannot remove %s", keys[0]);
    r = store_delete_many(t->store, keys, n, err);
    if (r == 0)
        t->removed += n;
    return r;
}

/* Removes all objects of the folder except its manifest. keys: room for all keys of the catalogue. */
static int remove_folder(Retire *t, const CatalogueFolder *f, const char **keys, Error *err)
{
    size_t n = 0;
    for (size_t i = f->first; i < f->first + f->n; i++)
        if (!f->has_manifest || i != f->manifest)
            keys[n++] = t->catalogue.objects.objects[i].key;
    return remove_keys(t, keys, n, err);
}

static int remove_segments(Retire *t, const char **keys, Error *err)
{
    _cleanup_(metrics_kept_freep) MetricsKept *own = NULL;
    if (!t->kept && metrics_kept_new(&own) < 0)
        return error_set(err, -ENOMEM, "retention: out of memory");
    size_t n = metrics_unlisted(t->kept ?: own, t->store, &t->catalogue, t->latest, t->keep, keys);
    size_t n_own = 0;
    for (size_t i = 0; i < n; i++) {
        CheckpointName name;
        int64_t first;
        if (metrics_key_parse(keys[i], &name, &first) == 0 &&
            checkpoint_owner_holds(t->owner, name.owner))
            keys[n_own++] = keys[i];
    }
    return remove_keys(t, keys, n_own, err);
}

/* Removes the plan sets that ranks used before the first commit: a manifest has the set now. */
static int remove_plan_sets(Retire *t, const char **keys, Error *err)
{
    const StoreList *all = &t->catalogue.objects;
    size_t n = 0;
    for (size_t i = 0; i < all->n_objects; i++)
        if (is_plan_set(all->objects[i].key))
            keys[n++] = all->objects[i].key;
    return remove_keys(t, keys, n, err);
}

static int remove_all(Retire *t, Error *err)
{
    const Catalogue *c = &t->catalogue;
    _cleanup_free_ const char **keys = calloc(c->objects.n_objects + 1, sizeof(*keys));
    int r = keys ? 0 : error_set(err, -ENOMEM, "retention: out of memory");
    for (size_t i = 0; r == 0 && i < c->n_folders; i++)
        if (!t->keep[i] && c->folders[i].has_manifest)
            r = remove_manifest(t, &c->folders[i], err);
    for (size_t i = 0; r == 0 && i < c->n_folders; i++)
        if (!t->keep[i])
            r = remove_folder(t, &c->folders[i], keys, err);
    if (r == 0)
        r = remove_segments(t, keys, err);
    return r < 0 ? r : remove_plan_sets(t, keys, err);
}

int checkpoint_retire(Store *store, CheckpointOwner *owner, const Manifest *latest,
                      const Retention *retention, MetricsKept *kept, size_t *ret_removed,
                      Error *err)
{
    Retire t = {
        .store = store, .owner = owner, .kept = kept, .latest = latest, .retention = *retention};
    t.retention.keep_last = CLAMP(retention->keep_last, 2, MANIFEST_COMMITTED_MAX);
    int r = checkpoint_owner_look(owner, err);
    if (r == 0)
        r = catalogue_read(store, &t.catalogue, err);
    if (r < 0)
        return r;
    t.keep = calloc(t.catalogue.n_folders + 1, sizeof(*t.keep));
    if (!t.keep)
        r = error_set(err, -ENOMEM, "retention: out of memory");
    if (r == 0 && !is_over(&t.catalogue, owner, latest->name.generation)) {
        decide(&t);
        r = remove_all(&t, err);
    }
    if (ret_removed)
        *ret_removed = t.removed;
    free(t.keep);
    catalogue_clear(&t.catalogue);
    return r;
}

/* ---- unfinished objects ---- */

typedef struct Sweeper {
    const CheckpointOwner *owner;
    int64_t generation;
} Sweeper;

/* key: an unfinished object, or an empty folder, whose key ends in '/'. Returns true if only writers of jobs use such a
 * key. If the key names an owner, the owner must also be of this history, and the generation must not be newer than
 * this one. Everything else below the URI belongs to others. */
static bool may_sweep(void *context, const char *key)
{
    const Sweeper *s = context;
    CheckpointName name;
    int64_t number;
    char folder[CHECKPOINT_FOLDER_MAX];
    if (strncmp(key, ".put-probe-", 11) == 0) /* s3:// probes a server with such objects */
        return true;
    if (strcmp(key, "metrics.jsonl") == 0 || strcmp(key, "metrics/") == 0 ||
        owner_key_parse(key, &number) == 0 || is_plan_set(key))
        return true;
    (void)snprintf(folder, sizeof(folder), "%.*s", (int)strcspn(key, "/"), key);
    if (checkpoint_name_parse(folder, &name) < 0 && metrics_key_parse(key, &name, &number) < 0)
        return false;
    return checkpoint_owner_holds(s->owner, name.owner) &&
           (name.owner != checkpoint_owner_number(s->owner) || name.generation <= s->generation);
}

int checkpoint_sweep(Store *store, CheckpointOwner *owner, int64_t generation, size_t *ret_removed,
                     Error *err)
{
    Sweeper s = {.owner = owner, .generation = generation};
    Catalogue c;
    int r = checkpoint_owner_look(owner, err);
    if (r == 0)
        r = catalogue_read(store, &c, err);
    if (r < 0)
        return r;
    const bool over = is_over(&c, owner, generation);
    catalogue_clear(&c);
    return over ? 0 : store_sweep(store, 0, may_sweep, &s, ret_removed, err);
}
