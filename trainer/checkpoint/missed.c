/* SPDX-License-Identifier: Apache-2.0 */
/* missed.c - segments of metrics that the store has refused although it accepted the checkpoint itself.
 *
 * The manifest lists such segments under their keys, so they are put under these keys as soon as the store accepts
 * them: with the next save, and at the end of the process. The segments are then complete for older manifests, too. If
 * a save fails or is refused, its lines are also in the next save's segment; so only segments that the newest commit
 * lists are put.
 *
 * Fault points: checkpoint.missed (each try).
 */
#include "trainer/checkpoint/metrics.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"
#include "manifest/manifest-internal.h"

#include <string.h>

enum { MISSED_BYTES_MAX = 64 << 20 }; /* room for at least 200,000 steps */

typedef struct MissedSegment {
    MetricsSegment segment;
    char *text; /* owned */
} MissedSegment;

struct MetricsMissed {
    MissedSegment *list; /* oldest first */
    size_t n, room;
    uint64_t n_bytes; /* size of all texts together */
};

MetricsMissed *metrics_missed_new(void) { return memory_new(MetricsMissed); }

static void forget_first(MetricsMissed *m)
{
    m->n_bytes -= m->list[0].segment.n_bytes;
    free(m->list[0].text);
    memmove(m->list, m->list + 1, --m->n * sizeof(*m->list));
}

MetricsMissed *metrics_missed_free(MetricsMissed *m)
{
    if (!m)
        return NULL;
    while (m->n > 0)
        forget_first(m);
    free(m->list);
    free(m);
    return NULL;
}

void metrics_missed_add(MetricsMissed *m, const MetricsSegment *s, const char *text)
{
    m->list = memory_grow(m->list, m->n, &m->room, sizeof(*m->list));
    m->list[m->n++] = (MissedSegment){.segment = *s, .text = memory_text(text)};
    m->n_bytes += s->n_bytes;
    while (m->n_bytes > MISSED_BYTES_MAX) {
        const MetricsSegment *first = &m->list[0].segment;
        log_warning("metrics of steps %lld to %lld are lost: more than %d bytes wait for the store",
                    (long long)first->first, (long long)first->last, MISSED_BYTES_MAX);
        forget_first(m);
    }
}

static bool is_listed(const Manifest *latest, const MetricsSegment *s)
{
    for (size_t i = 0; latest && i < latest->n_segments; i++)
        if (strcmp(latest->segments[i].key, s->key) == 0)
            return true;
    return false;
}

int64_t metrics_missed_steps(const MetricsMissed *m, const Manifest *latest)
{
    int64_t n = 0;
    for (size_t i = 0; i < m->n; i++)
        if (is_listed(latest, &m->list[i].segment))
            n += m->list[i].segment.n_lines;
    return n;
}

static int put_again(Store *store, const MissedSegment *m, Error *err)
{
    struct iovec part = {m->text, (size_t)m->segment.n_bytes};
    int r = fault("checkpoint.missed");
    if (r < 0)
        return error_errno(err, r, "cannot write %s", m->segment.key);
    r = store_put(store, m->segment.key, &part, 1, STORE_IF_ABSENT, err);
    /* -EEXIST: an earlier put of this segment succeeded, but its answer was lost; no other save uses this key */
    return r == -EEXIST ? 0 : r;
}

int metrics_missed_put(MetricsMissed *m, Store *store, const Manifest *latest, Error *err)
{
    while (m->n > 0) {
        const MetricsSegment *s = &m->list[0].segment;
        if (is_listed(latest, s)) {
            int r = put_again(store, &m->list[0], err);
            if (r < 0)
                return r;
            log_info("metrics of steps %lld to %lld are there now", (long long)s->first,
                     (long long)s->last);
        }
        forget_first(m);
    }
    return 0;
}
