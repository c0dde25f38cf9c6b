/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c - joins the committed segments of a history into one file.
 *
 * A file that was published before is not discarded: it may hold the lines of a lost segment. The file and the segments
 * are joined line by line. If they differ about a step, or have no step in common, the file belongs to another history:
 * it stays, and this history's metrics get another name.
 */
#include "trainer/checkpoint/metrics.h"

#include "base/log.h"
#include "manifest/manifest-internal.h"

#include <string.h>

enum { METRICS_BYTES_MAX = 1 << 30 };

typedef struct Publish {
    Store *store;
    const Manifest *manifest;
    const char *key;
    char *old; /* the object that the key had before, owned; NULL: the object cannot be read */
    size_t n_old;
    char *text; /* owned */
    size_t n_bytes;
    MetricsGap gap;
} Publish;

static void publish_clear(Publish *p)
{
    free(p->old);
    free(p->text);
}

static int read_old(Publish *p, Error *err)
{
    Error why = ERROR_INIT;
    int r = store_get(p->store, p->key, METRICS_BYTES_MAX, &p->old, &p->n_old, &why);
    if (r < 0 && !metrics_is_lost(r) && err)
        *err = why;
    return metrics_is_lost(r) ? 0 : r;
}

static int gather_segments(Publish *p, Error *err)
{
    for (size_t i = 0; i < p->manifest->n_segments; i++) {
        const MetricsSegment *s = &p->manifest->segments[i];
        Error why = ERROR_INIT;
        int r = metrics_read_segment(p->store, s, p->text + p->n_bytes, &why);
        if (r == -EHOSTUNREACH || r == -ENOMEM) {
            if (err)
                *err = why;
            return r;
        }
        if (r < 0)
            log_warning("metrics of steps %lld to %lld %s: %s", (long long)s->first,
                        (long long)s->last, metrics_is_lost(r) ? "are lost" : "cannot be read now",
                        why.text);
        metrics_add_gap(&p->gap, s, s->last - s->first + 1 - (r == 0 ? s->n_lines : 0));
        p->n_bytes += r == 0 ? (size_t)s->n_bytes : 0;
    }
    return 0;
}

static int gather(Publish *p, Error *err)
{
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < p->manifest->n_segments; i++)
        if (__builtin_add_overflow(n_bytes, p->manifest->segments[i].n_bytes, &n_bytes) ||
            n_bytes > METRICS_BYTES_MAX)
            return error_set(err, -E2BIG, "%s/%s: more than %d bytes of metrics",
                             store_uri(p->store), p->key, METRICS_BYTES_MAX);
    p->text = malloc((size_t)n_bytes + 1);
    if (!p->text)
        return error_set(err, -ENOMEM, "%s: out of memory", p->key);
    return gather_segments(p, err);
}

/* ---- joining with the file that was published before ---- */

typedef struct Lines {
    const char *text;
    size_t n_bytes; /* number of bytes from the current line on */
    size_t n;       /* length of the current line; 0: there is none */
    int64_t step;
} Lines;

/* Goes to the next line. Returns false if the text is not metrics. The step is the first number of a line. */
static bool next_line(Lines *l)
{
    const int64_t before = l->n > 0 ? l->step : -1;
    l->text += l->n;
    l->n_bytes -= l->n;
    l->n = 0;
    if (l->n_bytes == 0)
        return true;
    const char *end = memchr(l->text, '\n', l->n_bytes);
    if (!end)
        return false;
    l->n = (size_t)(end - l->text) + 1;
    l->step = 0;
    size_t i = strcspn(l->text, "0123456789\n");
    const size_t first = i;
    for (; l->text[i] >= '0' && l->text[i] <= '9' && i - first < 18; i++)
        l->step = 10 * l->step + (l->text[i] - '0');
    return i > first && l->step > before;
}

static void copy_line(Lines *from, char *to, size_t *at)
{
    memcpy(to + *at, from->text, from->n);
    *at += from->n;
}

/* Joins the new and the old text in `to`; *ret_bytes: size of the result. *ret_filled: how many of this history's steps
 * only the old text had. Returns false if the texts belong to two histories. */
static bool unite(const Publish *p, char *to, size_t *ret_bytes, int64_t *ret_filled)
{
    Lines ours = {.text = p->text, .n_bytes = p->n_bytes};
    Lines old = {.text = p->old, .n_bytes = p->n_old};
    bool good = next_line(&ours) && next_line(&old), common = p->n_bytes == 0 || p->n_old == 0;
    *ret_bytes = 0;
    *ret_filled = 0;
    while (good && (ours.n > 0 || old.n > 0)) {
        const bool has_both = ours.n > 0 && old.n > 0 && ours.step == old.step;
        const bool takes_ours = ours.n > 0 && (old.n == 0 || ours.step <= old.step);
        copy_line(takes_ours ? &ours : &old, to, ret_bytes);
        if (has_both) {
            common = true;
            good = ours.n == old.n && memcmp(ours.text, old.text, ours.n) == 0 &&
                   next_line(&ours) && next_line(&old);
        } else {
            *ret_filled += !takes_ours && old.step >= p->manifest->metrics_first &&
                           old.step <= p->manifest->name.step;
            good = next_line(takes_ours ? &ours : &old);
        }
    }
    return good && common;
}

static int put(const Publish *p, const char *key, StorePutFlags flags, Error *err)
{
    return store_put(p->store, key, &(struct iovec){p->text, p->n_bytes}, 1, flags, err);
}

/* Writes the metrics under another key, beside a file of another history, which may still be wanted. */
static int put_beside(const Publish *p, Error *err)
{
    char folder[CHECKPOINT_FOLDER_MAX], key[CHECKPOINT_FOLDER_MAX + 16];
    checkpoint_name_format(&p->manifest->name, folder);
    (void)snprintf(key, sizeof(key), "metrics-%s.jsonl", folder);
    log_warning("%s/%s has other metrics than this history and stays; this one's go to %s",
                store_uri(p->store), p->key, key);
    return put(p, key, 0, err);
}

static int put_over(Publish *p, Error *err)
{
    int64_t n_filled;
    size_t n_bytes;
    _cleanup_free_ char *both = p->old ? malloc(p->n_bytes + p->n_old + 1) : NULL;
    if (p->old && !both)
        return error_set(err, -ENOMEM, "%s: out of memory", p->key);
    if (!both || !unite(p, both, &n_bytes, &n_filled))
        return put_beside(p, err);
    p->gap.n_steps -= MIN(n_filled, p->gap.n_steps);
    if (n_bytes == p->n_old)
        return 0; /* the old file has all of these lines */
    free(p->text);
    p->text = TAKE_PTR(both);
    p->n_bytes = n_bytes;
    return put(p, p->key, 0, err);
}

int checkpoint_publish_metrics(Store *store, const Manifest *manifest, const char *key,
                               MetricsGap *ret_gap, Error *err)
{
    _cleanup_(publish_clear) Publish p = {.store = store, .manifest = manifest, .key = key};
    *ret_gap = (MetricsGap){0};
    int r = gather(&p, err);
    if (r == 0)
        r = put(&p, key, STORE_IF_ABSENT, err);
    if (r == -EEXIST) {
        r = read_old(&p, err);
        if (r == 0)
            r = put_over(&p, err);
    }
    *ret_gap = p.gap;
    return r;
}
