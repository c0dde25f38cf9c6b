/* committed.c - see committed.h. */
#include "ctl/job/committed.h"

#include "protocol/manifest-limits.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { SEGMENT_BYTES_MAX = 256 << 20, LINE_BYTES_MAX = 4096 };

/* ".../<folder>/manifest.json" into the store's URI and the folder. */
static int split_uri(const char *uri, char *store, size_t size, Committed *c)
{
    static const char name[] = "/manifest.json";
    size_t n = strlen(uri);
    if (n < sizeof(name) || strcmp(uri + n - (sizeof(name) - 1), name) != 0 || n >= size)
        return -EINVAL;
    memcpy(store, uri, n + 1);
    store[n - (sizeof(name) - 1)] = '\0';
    char *slash = strrchr(store, '/');
    if (!slash || strlen(slash + 1) >= sizeof(c->folder))
        return -EINVAL;
    (void)snprintf(c->folder, sizeof(c->folder), "%s", slash + 1);
    *slash = '\0';
    return 0;
}

static int check_hash(const char *store, const char *key, Hash expected, Hash found, Error *err)
{
    char a[HASH_TEXT_BYTES], b[HASH_TEXT_BYTES];
    if (hash_equal(expected, found))
        return 0;
    return error_set(err, -EBADMSG, "%s/%s: its hash is %s, expected %s", store, key,
                     hash_format(found, a), hash_format(expected, b));
}

int committed_open(const CheckpointCommit *commit, Committed *ret, Error *err)
{
    char uri[RECORD_URI_MAX + 1], key[256];
    _cleanup_free_ char *text = NULL;
    size_t n_bytes;
    *ret = (Committed){0};
    if (split_uri(commit->uri, uri, sizeof(uri), ret) < 0)
        return error_set(err, -EINVAL, "checkpoint %s: expected .../<folder>/manifest.json",
                         commit->uri);
    (void)snprintf(key, sizeof(key), "%s/manifest.json", ret->folder);
    int r = store_open(uri, &ret->store, err);
    if (r == 0)
        r = store_get(ret->store, key, MANIFEST_BYTES_MAX, &text, &n_bytes, err);
    if (r == -EFBIG)
        r = error_set(err, -EBADMSG, "%s: larger than the %d bytes that a manifest may have",
                      commit->uri, MANIFEST_BYTES_MAX);
    if (r == 0)
        r = check_hash(uri, key, commit->hash, hash_bytes(text, n_bytes), err);
    if (r == 0)
        r = json_parse_bounded(commit->uri, text, n_bytes, MANIFEST_VALUES_MAX, &ret->manifest,
                               err);
    if (r < 0)
        committed_close(ret);
    return r;
}

void committed_close(Committed *c)
{
    json_decref(c->manifest);
    c->manifest = NULL;
    c->store = store_free(c->store);
}

/* The members that every listed object has. */
static void read_object(JsonReader *e, const char *folder, CommittedObject *ret)
{
    const char *key = "", *hash = "";
    int64_t n_bytes = 0;
    *ret = (CommittedObject){.n_bytes = 0};
    json_get_string(e, "key", JSON_REQUIRED, &key);
    json_get_int(e, "bytes", JSON_REQUIRED, 0, INT64_MAX, &n_bytes);
    json_get_string(e, "xxh3_128", JSON_REQUIRED, &hash);
    if (e->r < 0)
        return;
    ret->n_bytes = (uint64_t)n_bytes;
    if (snprintf(ret->key, sizeof(ret->key), "%s%s%s", folder, *folder ? "/" : "", key) >=
        (int)sizeof(ret->key))
        json_refuse(e, "key", "\"%.40s...\" is too long", key);
    else if (hash_parse(hash, &ret->hash) < 0)
        json_refuse(e, "xxh3_128", "\"%.40s\" is not a hash", hash);
}

int committed_objects(const Committed *c, const char *kind, CommittedObject **ret, size_t *ret_n,
                      Error *err)
{
    json_t *array = NULL;
    JsonReader root = json_open(c->folder, c->manifest, JSON_ANY_KEYS, err);
    (void)json_get_array(&root, "objects", JSON_REQUIRED, MANIFEST_OBJECTS_MAX, &array);
    _cleanup_free_ CommittedObject *objects =
        calloc(MAX(json_array_size(array), (size_t)1), sizeof(*objects));
    size_t n = 0;
    if (!objects)
        return error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < json_array_size(array); i++) {
        const char *found = "";
        JsonReader e = json_get_element(&root, "objects", array, i);
        if (json_get_string(&e, "kind", JSON_REQUIRED, &found) && strcmp(found, kind) == 0)
            read_object(&e, c->folder, &objects[n++]);
        (void)json_close(&e); /* passed on to root */
    }
    int r = json_close(&root);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(objects);
    *ret_n = n;
    return 0;
}

/* ---- metrics ---- */

typedef struct Gather {
    const Committed *committed;
    CommittedMetrics m;
    size_t room;
    int64_t next; /* the step that no line or gap was about yet */
} Gather;

static double get_real(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Steps from g->next to before `step` have no line. */
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

static int read_segment(Gather *g, const CommittedObject *segment, int64_t last, Error *err)
{
    const Committed *c = g->committed;
    _cleanup_free_ char *text = NULL;
    size_t n_bytes;
    int r = store_get(c->store, segment->key, SEGMENT_BYTES_MAX, &text, &n_bytes, err);
    if (r == 0)
        r = check_hash(store_uri(c->store), segment->key, segment->hash, hash_bytes(text, n_bytes),
                       err);
    for (char *line = text; r == 0 && *line;) {
        size_t n = strcspn(line, "\n");
        r = add_line(g, segment->key, last, line, n, err);
        line += n + (line[n] == '\n');
    }
    return r;
}

static int add_segment(Gather *g, JsonReader *list, json_t *array, size_t i, Error *err)
{
    CommittedObject segment;
    int64_t first = 0, last = 0;
    JsonReader e = json_get_element(list, "metrics", array, i);
    read_object(&e, "", &segment);
    json_get_int(&e, "first", JSON_REQUIRED, 0, INT64_MAX - 1, &first);
    json_get_int(&e, "last", JSON_REQUIRED, first, INT64_MAX - 1, &last);
    int r = json_close(&e);
    if (r < 0)
        return r;
    if (i == 0)
        g->next = first;
    Error why = ERROR_INIT;
    r = read_segment(g, &segment, last, &why);
    if (r == -EHOSTUNREACH || r == -ENOMEM) {
        *err = why;
        return r;
    }
    if (r < 0 && !g->m.why[0])
        (void)snprintf(g->m.why, sizeof(g->m.why), "%s", why.text);
    add_lost(g, last + 1);
    g->m.saved[g->m.n_saved++] = last;
    return 0;
}

/* "step-<number>-..." */
static void add_saved(CommittedMetrics *m, const char *folder)
{
    int64_t step = 0;
    if (!folder || sscanf(folder, "step-%" SCNd64, &step) != 1 || step == 0)
        return;
    for (size_t i = 0; i < m->n_saved; i++)
        if (m->saved[i] == step)
            return;
    m->saved[m->n_saved++] = step;
}

static int gather(Gather *g, Error *err)
{
    const Committed *c = g->committed;
    json_t *segments = NULL, *folders = NULL;
    JsonReader root = json_open(c->folder, c->manifest, JSON_ANY_KEYS, err);
    (void)json_get_array(&root, "metrics", JSON_REQUIRED, MANIFEST_SEGMENTS_MAX, &segments);
    (void)json_get_array(&root, "committed", JSON_REQUIRED, MANIFEST_COMMITTED_MAX, &folders);
    const size_t n_folders = json_array_size(folders);
    g->m.saved = calloc(json_array_size(segments) + n_folders + 1, sizeof(*g->m.saved));
    int r = g->m.saved ? root.r : error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; r == 0 && i < json_array_size(segments); i++)
        r = add_segment(g, &root, segments, i, err);
    for (size_t i = 0; r == 0 && i < n_folders; i++)
        add_saved(&g->m, json_string_value(json_array_get(folders, i)));
    if (r == 0)
        add_saved(&g->m, c->folder);
    return r == 0 ? json_close(&root) : r;
}

int committed_metrics(const Committed *c, CommittedMetrics *ret, Error *err)
{
    Gather g = {.committed = c};
    int r = gather(&g, err);
    if (r < 0) {
        free(g.m.lines);
        free(g.m.saved);
        return r;
    }
    *ret = g.m;
    return 0;
}
