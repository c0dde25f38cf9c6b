/* committed.c - see committed.h. */
#include "ctl/committed.h"

#include <math.h>
#include <string.h>

enum {
    MANIFEST_BYTES_MAX = 256 << 20,
    SEGMENT_BYTES_MAX = 256 << 20,
    LIST_MAX = 1 << 20,
};

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
    if (r == 0)
        r = check_hash(uri, key, commit->hash, hash_bytes(text, n_bytes), err);
    if (r == 0)
        r = json_parse(commit->uri, text, n_bytes, &ret->manifest, err);
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
    (void)json_get_array(&root, "objects", JSON_REQUIRED, LIST_MAX, &array);
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

typedef struct Lines {
    MetricsLine *lines;
    size_t n, room;
} Lines;

static double get_real(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static int add_line(Lines *l, const char *source, const char *text, size_t n_bytes, Error *err)
{
    _cleanup_json_ json_t *object = NULL;
    int r = json_parse(source, text, n_bytes, &object, err);
    if (r < 0)
        return r;
    int64_t step = -1;
    JsonReader j = json_open(source, object, JSON_ANY_KEYS, err);
    json_get_int(&j, "step", JSON_REQUIRED, 0, INT64_MAX, &step);
    r = json_close(&j);
    if (r < 0)
        return r;
    if (l->n > 0 && step != l->lines[l->n - 1].step + 1)
        return error_set(err, -EBADMSG, "%s: step: %lld does not follow %lld", source,
                         (long long)step, (long long)l->lines[l->n - 1].step);
    if (l->n == l->room) {
        size_t room = MAX(2 * l->room, (size_t)1024);
        MetricsLine *grown = reallocarray(l->lines, room, sizeof(*grown));
        if (!grown)
            return error_set(err, -ENOMEM, "out of memory for %zu metrics", room);
        l->lines = grown;
        l->room = room;
    }
    l->lines[l->n++] = (MetricsLine){.step = step,
                                     .loss = get_real(object, "loss"),
                                     .lr = get_real(object, "lr"),
                                     .grad_norm = get_real(object, "grad_norm")};
    return 0;
}

static int add_segment(const Committed *c, const CommittedObject *segment, Lines *l, Error *err)
{
    _cleanup_free_ char *text = NULL;
    size_t n_bytes;
    int r = store_get(c->store, segment->key, SEGMENT_BYTES_MAX, &text, &n_bytes, err);
    if (r == 0)
        r = check_hash(store_uri(c->store), segment->key, segment->hash, hash_bytes(text, n_bytes),
                       err);
    for (char *line = text; r == 0 && *line;) {
        size_t n = strcspn(line, "\n");
        r = add_line(l, segment->key, line, n, err);
        line += n + (line[n] == '\n');
    }
    return r;
}

int committed_metrics(const Committed *c, MetricsLine **ret, size_t *ret_n, int64_t **ret_saved,
                      size_t *ret_n_saved, Error *err)
{
    json_t *array = NULL;
    Lines l = {0};
    JsonReader root = json_open(c->folder, c->manifest, JSON_ANY_KEYS, err);
    (void)json_get_array(&root, "metrics", JSON_REQUIRED, LIST_MAX, &array);
    const size_t n = json_array_size(array);
    _cleanup_free_ int64_t *saved = calloc(MAX(n, (size_t)1), sizeof(*saved));
    int r = saved ? root.r : error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; r == 0 && i < n; i++) {
        CommittedObject segment;
        JsonReader e = json_get_element(&root, "metrics", array, i);
        read_object(&e, "", &segment);
        r = json_close(&e);
        if (r == 0)
            r = add_segment(c, &segment, &l, err);
        if (r == 0)
            saved[i] = l.n > 0 ? l.lines[l.n - 1].step : 0;
    }
    if (r == 0)
        r = json_close(&root);
    if (r < 0) {
        free(l.lines);
        return r;
    }
    *ret = l.lines;
    *ret_n = l.n;
    *ret_saved = TAKE_PTR(saved);
    *ret_n_saved = n;
    return 0;
}
