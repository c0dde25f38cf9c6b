/* SPDX-License-Identifier: Apache-2.0 */
/* merge.c - merges the segments of a history, so that their list stays short, and finds the objects that are needed.
 *
 * Segments have levels, as in a log-structured merge tree: 16 segments of one level become one segment of the next
 * level, in a new object. There is at most one merge per save, which is enough: on average one is due in 15 saves.
 * A large segment is not merged again: 1e9 steps that are saved every 1,000 steps give about 4,000 segments.
 */
#include "trainer/checkpoint/metrics.h"

#include "base/log.h"
#include "manifest/manifest-internal.h"

#include <string.h>

enum {
    /* a larger segment is not merged: 16 segments must fit into memory */
    MERGE_BYTES_MAX = 8 << 20,
    /* how often an object is read if reads fail or give a wrong hash: the object may be right in the store */
    READ_TRIES = 2,
};

bool metrics_find_merge(const MetricsSegment *segments, size_t n, size_t *ret_first)
{
    size_t run = 0;
    for (size_t i = 0; i < n; i++) {
        const MetricsSegment *s = &segments[i];
        const bool can = s->n_bytes <= MERGE_BYTES_MAX && s->level < METRICS_LEVEL_MAX;
        run = !can ? 0 : run > 0 && s->level == s[-1].level ? run + 1 : 1;
        if (run == METRICS_FAN_IN) {
            *ret_first = i + 1 - METRICS_FAN_IN;
            return true;
        }
    }
    return false;
}

static int read_once(Store *store, const MetricsSegment *s, char *to, Error *err)
{
    char want[HASH_TEXT_BYTES], got[HASH_TEXT_BYTES];
    uint64_t n_bytes;
    int r = store_get_range(store, s->key, 0, (size_t)s->n_bytes, to, err);
    if (r == -EIO && store_head(store, s->key, &n_bytes, NULL) == 0 && n_bytes < s->n_bytes)
        return -EBADMSG; /* the object is truncated, which a second read does not change */
    if (r < 0)
        return r;
    Hash found = hash_bytes(to, (size_t)s->n_bytes);
    if (hash_equal(found, s->hash))
        return 0;
    return error_set(err, -EBADMSG, "%s/%s: hash %s, the manifest says %s", store_uri(store),
                     s->key, hash_format(found, got), hash_format(s->hash, want));
}

int metrics_read_segment(Store *store, const MetricsSegment *s, char *to, Error *err)
{
    int r = -EBADMSG;
    if (s->n_bytes == 0)
        return 0; /* all segments that this segment was merged from are lost */
    for (int try = 0; r < 0 && r != -ENOENT && r != -EHOSTUNREACH && try < READ_TRIES; try++)
        r = read_once(store, s, to, err);
    return r;
}

bool metrics_is_lost(int r) { return r == -ENOENT || r == -EBADMSG; }

void metrics_add_gap(MetricsGap *gap, const MetricsSegment *s, int64_t n_steps)
{
    if (n_steps > 0 && gap->n_steps == 0)
        gap->first = s->first;
    if (n_steps > 0)
        gap->last = s->last;
    gap->n_steps += n_steps;
}

int metrics_merge(Store *store, const MetricsSegment *parts, MetricsSegment *ret, char **ret_text,
                  Error *err)
{
    const MetricsSegment *last = &parts[METRICS_FAN_IN - 1];
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < METRICS_FAN_IN; i++)
        n_bytes += parts[i].n_bytes;
    _cleanup_free_ char *text = malloc((size_t)n_bytes + 1);
    if (!text)
        return error_set(err, -ENOMEM, "metrics: out of memory");

    MetricsSegment merged = {.first = parts[0].first, .last = last->last, .level = last->level + 1};
    for (size_t i = 0; i < METRICS_FAN_IN; i++) {
        Error why = ERROR_INIT;
        int r = metrics_read_segment(store, &parts[i], text + merged.n_bytes, &why);
        if (metrics_is_lost(r)) {
            log_warning("metrics of steps %lld to %lld are lost: %s", (long long)parts[i].first,
                        (long long)parts[i].last, why.text);
            continue;
        }
        if (r < 0) {
            if (err)
                *err = why;
            return r;
        }
        merged.n_bytes += parts[i].n_bytes;
        merged.n_lines += parts[i].n_lines;
    }
    *ret = merged;
    *ret_text = TAKE_PTR(text);
    return 0;
}

/* ---- segments that exist ---- */

static int compare_segment_key(const void *key, const void *object)
{
    return strcmp(key, ((const StoreObject *)object)->key);
}

int metrics_look(Store *store, const Manifest *m, MetricsGap *ret, Error *err)
{
    StoreList list = {0};
    int r = store_list(store, "metrics/", 64 * MANIFEST_SEGMENTS_MAX, &list, err);
    if (r < 0 && r != -ENOTDIR) /* if a file has the folder's name, there are no segments */
        return r;
    *ret = (MetricsGap){0};
    for (size_t i = 0; i < m->n_segments; i++) {
        const MetricsSegment *s = &m->segments[i];
        const StoreObject *o = list.n_objects > 0
                                   ? bsearch(s->key, list.objects, list.n_objects,
                                             sizeof(*list.objects), compare_segment_key)
                                   : NULL;
        const bool whole = o && o->n_bytes == s->n_bytes;
        metrics_add_gap(ret, s, s->last - s->first + 1 - (whole ? s->n_lines : 0));
    }
    store_list_clear(&list);
    return 0;
}

/* ---- segments that are needed ---- */

typedef struct KeptFolder {
    CheckpointName name;
    uint64_t *keys; /* hashes of the keys that the folder's manifest lists; owned */
    size_t n_keys;
    bool stays; /* the last check found the folder among the folders that are kept */
} KeptFolder;

struct MetricsKept {
    KeptFolder *folders;
    size_t n, room;
};

int metrics_kept_new(MetricsKept **ret)
{
    MetricsKept *k = calloc(1, sizeof(*k));
    if (!k)
        return -ENOMEM;
    *ret = k;
    return 0;
}

MetricsKept *metrics_kept_free(MetricsKept *k)
{
    if (!k)
        return NULL;
    for (size_t i = 0; i < k->n; i++)
        free(k->folders[i].keys);
    free(k->folders);
    free(k);
    return NULL;
}

static uint64_t key_hash(const char *key) { return hash64_bytes(key, strlen(key), 0); }

static int read_kept(MetricsKept *k, Store *store, const CheckpointName *name, Error *err)
{
    if (k->n == k->room) {
        size_t room = MAX(2 * k->room, (size_t)16);
        KeptFolder *folders = reallocarray(k->folders, room, sizeof(*folders));
        if (!folders)
            return error_set(err, -ENOMEM, "out of memory");
        k->folders = folders;
        k->room = room;
    }
    char folder[CHECKPOINT_FOLDER_MAX];
    checkpoint_name_format(name, folder);
    _cleanup_(manifest_freep) Manifest *m = NULL;
    int r = manifest_read(store, folder, NULL, &m, err);
    if (r < 0)
        return r;
    uint64_t *keys = calloc(m->n_segments + 1, sizeof(*keys));
    if (!keys)
        return error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < m->n_segments; i++)
        keys[i] = key_hash(m->segments[i].key);
    k->folders[k->n++] = (KeptFolder){.name = *name, .keys = keys, .n_keys = m->n_segments};
    return 0;
}

static KeptFolder *find_kept(const MetricsKept *k, const CheckpointName *name)
{
    for (size_t i = 0; i < k->n; i++)
        if (checkpoint_name_equal(&k->folders[i].name, name))
            return &k->folders[i];
    return NULL;
}

static void forget_gone(MetricsKept *k)
{
    size_t n = 0;
    for (size_t i = 0; i < k->n; i++) {
        if (k->folders[i].stays)
            k->folders[n++] = k->folders[i];
        else
            free(k->folders[i].keys);
    }
    k->n = n;
}

/* Reads the manifests that are kept and that may list a segment that ends at `from` or later. Returns the largest step
 * of a manifest that cannot be read now, or -1. */
static int64_t read_all_kept(MetricsKept *k, Store *store, const Catalogue *c,
                             const Manifest *latest, const bool *keep, int64_t from)
{
    int64_t unread = -1;
    for (size_t i = 0; i < k->n; i++)
        k->folders[i].stays = false;
    for (size_t i = 0; i < c->n_folders; i++) {
        const CheckpointName *name = &c->folders[i].name;
        Error err = ERROR_INIT;
        if (!keep[i] || !c->folders[i].has_manifest || checkpoint_name_equal(name, &latest->name))
            continue;
        KeptFolder *f = find_kept(k, name);
        int r = !f && name->step >= from ? read_kept(k, store, name, &err) : 0;
        if (r == -EBADMSG) /* the read may have been wrong although the object is right */
            r = read_kept(k, store, name, &err);
        if (r < 0)
            log_warning("which metrics the checkpoint of step %lld lists is not known: %s",
                        (long long)name->step, err.text);
        /* with -EBADMSG or -ENOENT the list is lost for ever */
        if (r < 0 && r != -EBADMSG && r != -ENOENT)
            unread = MAX(unread, name->step);
        f = f ?: find_kept(k, name);
        if (f)
            f->stays = true;
    }
    forget_gone(k);
    return unread;
}

static bool is_listed(const Manifest *m, const char *key)
{
    for (size_t i = 0; i < m->n_segments; i++)
        if (strcmp(m->segments[i].key, key) == 0)
            return true;
    return false;
}

static bool is_kept(const MetricsKept *k, const char *key)
{
    const uint64_t hash = key_hash(key);
    for (size_t i = 0; i < k->n; i++)
        for (size_t j = 0; j < k->folders[i].n_keys; j++)
            if (k->folders[i].keys[j] == hash)
                return true;
    return false;
}

static int64_t last_step(const char *key)
{
    CheckpointName name = {0};
    int64_t first;
    int r = metrics_key_parse(key, &name, &first);
    assert(r == 0); /* the caller has checked that this is the key of a segment */
    return name.step;
}

size_t metrics_unlisted(MetricsKept *k, Store *store, const Catalogue *c, const Manifest *latest,
                        const bool *keep, const char **keys)
{
    size_t n_candidates = 0, n = 0;
    int64_t from = INT64_MAX;
    for (size_t i = 0; i < c->objects.n_objects; i++) {
        const char *key = c->objects.objects[i].key;
        CheckpointName name;
        int64_t first;
        if (metrics_key_parse(key, &name, &first) < 0 || is_listed(latest, key))
            continue;
        from = MIN(from, name.step);
        keys[n_candidates++] = key;
    }
    if (n_candidates == 0)
        return 0;
    const int64_t unread = read_all_kept(k, store, c, latest, keep, from);
    for (size_t i = 0; i < n_candidates; i++)
        if (last_step(keys[i]) > unread && !is_kept(k, keys[i]))
            keys[n++] = keys[i];
    return n;
}
