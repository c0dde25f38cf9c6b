/* store.c - see store.h. */
#include "tests/sim/store.h"

#include <stdio.h>
#include <stdlib.h>

void store_lose(Store *store, uint64_t now_usec)
{
    if (store->out)
        return;
    store->out = true;
    store->out_usec = now_usec;
    store->n_outs++;
}

int store_put(Store *store, const Manifest *manifest)
{
    if (store->out)
        return -1;
    if (store->n == store->size) {
        store->size = MAX(2 * store->size, 64);
        store->manifests = sim_more(store->manifests, (size_t)store->size * sizeof(Manifest));
    }
    store->manifests[store->n] = *manifest;
    return store->n++;
}

void store_clear(Store *store) { free(store->manifests); }

const char *store_uri(int manifest, char ret[STORE_URI_BYTES])
{
    (void)snprintf(ret, STORE_URI_BYTES, "file:///store/%d/manifest.json", manifest);
    return ret;
}

int store_find(const Store *store, const char *uri)
{
    int manifest;
    if (!*uri)
        return -1;
    int n = sscanf(uri, "file:///store/%d/", &manifest);
    assert(n == 1 && manifest >= 0 && manifest < store->n); /* nobody else makes URIs */
    return manifest;
}

bool store_history_is_whole(const Store *store, int manifest, int64_t *ret_step)
{
    while (manifest >= 0) {
        const Manifest *m = &store->manifests[manifest];
        int64_t before = m->parent >= 0 ? store->manifests[m->parent].last : 0;
        *ret_step = m->first;
        if (m->first != before + 1 || m->last < before)
            return false;
        manifest = m->parent;
    }
    return true;
}
