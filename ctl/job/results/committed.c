/* SPDX-License-Identifier: Apache-2.0 */
/* committed.c - see committed.h. */
#include "ctl/job/results/committed.h"

#include "base/json/json.h"
#include "protocol/manifest-limits.h"

#include <math.h>
#include <string.h>

enum { SEGMENT_BYTES_MAX = 256 << 20, LINE_BYTES_MAX = 4096 };

static int check_hash(const char *store, const char *key, Hash expected, Hash found, Error *err)
{
    char a[HASH_TEXT_BYTES], b[HASH_TEXT_BYTES];
    if (hash_equal(expected, found))
        return 0;
    return error_set(err, -EBADMSG, "%s/%s: its hash is %s, expected %s", store, key,
                     hash_format(found, a), hash_format(expected, b));
}

typedef struct Gather {
    Store *store;
    CommittedMetrics m;
    size_t room;
    int64_t next; /* the first step that neither has a line nor counts as lost yet */
} Gather;

static double get_real(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Counts the steps from g->next to `step` - 1 as lost, because they have no line. */
static void add_lost(Gather *g, int64_t step)
{
    if (step <= g->next)
        return;
    if (g->m.n_lost == 0)
        g->m.first_lost = g->next;
    g->m.last_lost = step - 1;
    g->m.n_lost += step - g->next;
    g->next = step;
}

static int add_line(Gather *g, const char *source, int64_t last, const char *text, size_t n_bytes,
                    Error *err)
{
    _cleanup_json_ json_t *object = NULL;
    if (n_bytes > LINE_BYTES_MAX)
        return error_set(err, -EBADMSG, "%s: a line of %zu bytes, one has at most %d", source,
                         n_bytes, LINE_BYTES_MAX);
    int r = json_parse(source, text, n_bytes, &object, err);
    if (r < 0)
        return r;
    int64_t step = -1;
    JsonReader j = json_open(source, object, JSON_ANY_KEYS, err);
    json_get_int(&j, "step", JSON_REQUIRED, 0, INT64_MAX - 1, &step);
    r = json_close(&j);
    if (r < 0)
        return r;
    if (step < g->next || step > last)
        return error_set(err, -EBADMSG, "%s: step: %lld is not one of %lld to %lld", source,
                         (long long)step, (long long)g->next, (long long)last);
    add_lost(g, step);
    if (g->m.n_lines == g->room) {
        size_t room = MAX(2 * g->room, (size_t)1024);
        MetricsLine *grown = reallocarray(g->m.lines, room, sizeof(*grown));
        if (!grown)
            return error_set(err, -ENOMEM, "out of memory for %zu metrics", room);
        g->m.lines = grown;
        g->room = room;
    }
    g->m.lines[g->m.n_lines++] = (MetricsLine){.step = step,
                                               .loss = get_real(object, "loss"),
                                               .lr = get_real(object, "lr"),
                                               .grad_norm = get_real(object, "grad_norm")};
    g->next = step + 1;
    return 0;
}

static int read_segment(Gather *g, const MetricsSegment *segment, Error *err)
{
    _cleanup_free_ char *text = NULL;
    size_t n_bytes;
    int r = store_get(g->store, segment->key, SEGMENT_BYTES_MAX, &text, &n_bytes, err);
    if (r == 0)
        r = check_hash(store_uri(g->store), segment->key, segment->hash, hash_bytes(text, n_bytes),
                       err);
    for (char *line = text; r == 0 && *line;) {
        size_t n = strcspn(line, "\n");
        r = add_line(g, segment->key, segment->last, line, n, err);
        line += n + (line[n] == '\n');
    }
    return r;
}

static int add_segment(Gather *g, const MetricsSegment *segment, Error *err)
{
    Error why = ERROR_INIT;
    int r = read_segment(g, segment, &why);
    if (r == -EHOSTUNREACH || r == -ENOMEM) {
        *err = why;
        return r;
    }
    if (r < 0 && !g->m.why[0])
        (void)snprintf(g->m.why, sizeof(g->m.why), "%s", why.text);
    add_lost(g, segment->last + 1);
    g->m.saved[g->m.n_saved++] = segment->last;
    return 0;
}

static void add_saved(CommittedMetrics *m, int64_t step)
{
    bool known = step == 0;
    for (size_t i = 0; i < m->n_saved && !known; i++)
        known = m->saved[i] == step;
    if (!known)
        m->saved[m->n_saved++] = step;
}

/* Adds the step times. A manifest of an earlier version has none. An error needs no report, because a damaged manifest
 * fails the check of its hash. */
static void add_times(CommittedMetrics *m, const Manifest *manifest)
{
    StepTimes times = {0};
    (void)step_times_parse(manifest_step_times(manifest), &times);
    for (size_t i = 0; i < m->n_lines; i++)
        m->lines[i].sec = step_times_sec(&times, m->lines[i].step);
}

static int gather(Gather *g, const Manifest *manifest, Error *err)
{
    const MetricsSegment *segments;
    const size_t n = manifest_segments(manifest, &segments);
    char folders[MANIFEST_COMMITTED_MAX][CHECKPOINT_FOLDER_MAX];
    const size_t n_folders = manifest_committed(manifest, folders, MANIFEST_COMMITTED_MAX);
    g->m.saved = calloc(n + n_folders + 1, sizeof(*g->m.saved));
    int r = g->m.saved ? 0 : error_set(err, -ENOMEM, "out of memory");
    g->next = n > 0 ? segments[0].first : 0;
    for (size_t i = 0; r == 0 && i < n; i++)
        r = add_segment(g, &segments[i], err);
    for (size_t i = 0; r == 0 && i < n_folders; i++) {
        CheckpointName name = {0};
        r = checkpoint_name_parse(folders[i], &name);
        assert(r == 0); /* manifest_parse() accepts only valid names */
        add_saved(&g->m, name.step);
    }
    if (r == 0) {
        add_saved(&g->m, manifest_step(manifest));
        add_times(&g->m, manifest);
    }
    return r;
}

int committed_metrics(Store *store, const Manifest *manifest, CommittedMetrics *ret, Error *err)
{
    Gather g = {.store = store};
    int r = gather(&g, manifest, err);
    if (r < 0) {
        free(g.m.lines);
        free(g.m.saved);
        return r;
    }
    *ret = g.m;
    return 0;
}
