/* SPDX-License-Identifier: Apache-2.0 */
/* store.c - see store.h. */
#include "tests/sim/store.h"

#include "tests/sim/checker.h"
#include "tests/sim/universe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void store_lose(ModelStore *store, uint64_t now_usec)
{
    if (store->out)
        return;
    store->out = true;
    store->out_usec = now_usec;
    store->n_outs++;
}

int store_put(ModelStore *store, const ModelManifest *manifest)
{
    if (store->out)
        return -1;
    if (store->n == store->size) {
        store->size = MAX(2 * store->size, 64);
        store->manifests = sim_more(store->manifests, (size_t)store->size * sizeof(ModelManifest));
    }
    store->manifests[store->n] = *manifest;
    return store->n++;
}

static bool is_in(const ModelManifest *m, const char *submission)
{
    return !m->removed && strcmp(m->submission, submission) == 0;
}

int store_search(const ModelStore *store, const char *submission)
{
    int newest = -1;
    for (int i = 0; i < store->n; i++) {
        const ModelManifest *m = &store->manifests[i];
        if (is_in(m, submission) && !m->corrupt &&
            (newest < 0 || m->last >= store->manifests[newest].last))
            newest = i;
    }
    return newest;
}

/* A newer generation has written: then it decides what stays. */
static bool is_over(const ModelStore *store, int latest)
{
    const ModelManifest *m = &store->manifests[latest];
    for (int i = 0; i < store->n; i++)
        if (is_in(&store->manifests[i], m->submission) &&
            store->manifests[i].generation > m->generation)
            return true;
    return false;
}

void store_retire(Universe *u, int latest)
{
    ModelStore *store = &u->store;
    const ModelManifest *m = &store->manifests[latest];
    int kept[STORE_KEEP_LAST], n_kept = 0;
    if (store->out || is_over(store, latest))
        return;
    for (int i = latest; i >= 0 && n_kept < STORE_KEEP_LAST; i = store->manifests[i].parent)
        if (!store->manifests[i].removed)
            kept[n_kept++] = i;
    for (int i = 0; i < store->n; i++) {
        bool keep =
            !is_in(&store->manifests[i], m->submission) || store->manifests[i].last > m->last;
        for (int k = 0; k < n_kept; k++)
            keep |= kept[k] == i;
        if (keep)
            continue;
        checker_manifest_goes(u, i, latest);
        store->manifests[i].removed = true;
    }
}

void store_clear(ModelStore *store) { free(store->manifests); }

const char *store_uri(int manifest, char ret[STORE_URI_BYTES])
{
    (void)snprintf(ret, STORE_URI_BYTES, "file:///store/%d/manifest.json", manifest);
    return ret;
}

int store_find(const ModelStore *store, const char *uri)
{
    int manifest;
    if (!*uri)
        return -1;
    int n = sscanf(uri, "file:///store/%d/", &manifest);
    assert(n == 1 && manifest >= 0 && manifest < store->n); /* nobody else makes URIs */
    return manifest;
}

bool store_history_is_whole(const ModelStore *store, int manifest, int64_t *ret_step)
{
    while (manifest >= 0) {
        const ModelManifest *m = &store->manifests[manifest];
        int64_t before = m->parent >= 0 ? store->manifests[m->parent].last : 0;
        *ret_step = m->first;
        if (m->first != before + 1 || m->last < before)
            return false;
        manifest = m->parent;
    }
    return true;
}
