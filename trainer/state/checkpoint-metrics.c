/* checkpoint-metrics.c - the committed segments of a history become one file. */
#include "trainer/state/manifest.h"

#include <string.h>

enum { METRICS_BYTES_MAX = 1 << 30 };

static int read_segment(Store *store, const MetricsSegment *s, char *to, Error *err)
{
    int r = store_get_range(store, s->key, 0, (size_t)s->n_bytes, to, err);
    if (r < 0)
        return r;
    Hash found = hash_bytes(to, (size_t)s->n_bytes);
    char want[HASH_TEXT_BYTES], got[HASH_TEXT_BYTES];
    if (!hash_equal(found, s->hash))
        return error_set(err, -EBADMSG, "%s/%s: hash %s, the manifest says %s", store_uri(store),
                         s->key, hash_format(found, got), hash_format(s->hash, want));
    return 0;
}

/* Success when the object under key holds exactly these bytes. */
static int compare_published(Store *store, const char *key, const char *text, size_t n_bytes,
                             Error *err)
{
    _cleanup_free_ char *there = NULL;
    size_t n_there;
    int r = store_get(store, key, METRICS_BYTES_MAX, &there, &n_there, err);
    if (r < 0)
        return r;
    if (n_there != n_bytes || memcmp(there, text, n_bytes) != 0)
        return error_set(err, -EEXIST, "%s/%s exists already and differs", store_uri(store), key);
    return 0;
}

int checkpoint_publish_metrics(Store *store, const Manifest *m, const char *key, Error *err)
{
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < m->n_segments; i++)
        if (__builtin_add_overflow(n_bytes, m->segments[i].n_bytes, &n_bytes) ||
            n_bytes > METRICS_BYTES_MAX)
            return error_set(err, -E2BIG, "%s/%s: more than %d bytes of metrics", store_uri(store),
                             key, METRICS_BYTES_MAX);

    _cleanup_free_ char *text = malloc((size_t)n_bytes + 1);
    if (!text)
        return error_set(err, -ENOMEM, "%s: out of memory", key);
    size_t at = 0;
    for (size_t i = 0; i < m->n_segments; i++) {
        int r = read_segment(store, &m->segments[i], text + at, err);
        if (r < 0)
            return r;
        at += (size_t)m->segments[i].n_bytes;
    }
    int r = store_put(store, key, &(struct iovec){text, at}, 1, STORE_IF_ABSENT, err);
    return r == -EEXIST ? compare_published(store, key, text, at, err) : r;
}
