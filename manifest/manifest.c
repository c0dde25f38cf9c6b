/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.c - reads manifest.json and checks all of its content before anything uses it.
 *
 * After manifest_parse() the manifest has these properties: the hash that it records is the hash of its content; its
 * objects cover weights, moments and (when active) EMA exactly; its metrics are contiguous from the history's first
 * step up to its own step; its state digest follows from the chunk hashes and the scalars. The restore checks
 * whether the objects' content has the hashes of the manifest.
 */
#include "manifest/manifest-internal.h"

#include "base/json/json.h"

#include <math.h>
#include <string.h>

/* the name of a checkpoint's folder has ten digits for the step */
#define STEP_MAX INT64_C(9999999999)

/* ---- values ---- */

/* Parses exactly 8 lower-case hexadecimal digits at text. */
static bool parse_hex32(const char *text, uint32_t *ret)
{
    uint32_t value = 0;
    for (int i = 0; i < 8; i++) {
        const char *digits = "0123456789abcdef";
        const char *digit = text[i] ? strchr(digits, text[i]) : NULL;
        if (!digit)
            return false;
        value = value << 4 | (uint32_t)(digit - digits);
    }
    *ret = value;
    return true;
}

static void get_hex32(JsonReader *r, const char *key, uint32_t *ret)
{
    const char *text;
    if (json_get_string(r, key, JSON_REQUIRED, &text) &&
        (strlen(text) != 8 || !parse_hex32(text, ret)))
        json_refuse(r, key, "%.40s is not 8 hexadecimal digits", text);
}

static void get_double(JsonReader *r, const char *key, double *ret)
{
    const char *text;
    if (!json_get_string(r, key, JSON_REQUIRED, &text))
        return;
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value) || value <= 0)
        json_refuse(r, key, "%.40s is not a positive number", text);
    else
        *ret = value;
}

static void get_count(JsonReader *r, const char *key, int64_t max, int64_t *ret)
{
    (void)json_get_int(r, key, JSON_REQUIRED, 0, max, ret); /* the reader keeps the error */
}

/* Allocates as calloc() does. If memory runs out, that becomes the reader's error. */
static void *reserve(JsonReader *r, size_t n, size_t size)
{
    void *p = calloc(n + 1, size);
    if (!p)
        json_out_of_memory(r);
    return p;
}

/* ---- sections ---- */

/* Reads an optional text that is only for people. A text longer than this version ever writes comes
 * from a newer version, and is ignored. */
static void get_terms(JsonReader *r, const char *key, char *ret, size_t size)
{
    const char *text;
    if (json_get_string(r, key, JSON_OPTIONAL, &text) && strlen(text) < size)
        (void)snprintf(ret, size, "%s", text);
}

static void read_facts(JsonReader *r, CheckpointFacts *f)
{
    (void)json_get_text(r, "job", JSON_REQUIRED, f->job, sizeof(f->job)); /* r keeps the error */
    (void)json_get_text(r, "submission", JSON_REQUIRED, f->submission, sizeof(f->submission));
    json_get_hash(r, "job_identity", &f->job_identity);
    json_get_hash(r, "dataset_digest", &f->dataset_digest);
    get_terms(r, "job_terms", f->job_terms, sizeof(f->job_terms));
    get_terms(r, "dataset_terms", f->dataset_terms, sizeof(f->dataset_terms));
    /* r keeps the error */
    (void)json_get_text(r, "numerics", JSON_REQUIRED, f->numerics, sizeof(f->numerics));
    json_get_hash(r, "canned_grain", &f->canned_grain);

    JsonReader a = json_get_object(r, "algorithms", JSON_REQUIRED);
    int64_t digest = 0;
    get_count(&a, "order", INT32_MAX, &f->order_algorithm);
    get_count(&a, "reduction", INT32_MAX, &f->reduction_algorithm);
    get_count(&a, "digest", INT32_MAX, &digest);
    if (a.r == 0 && digest != MANIFEST_DIGEST_ALGORITHM)
        json_refuse(&a, "digest", "%lld is not known, this program computes %d", (long long)digest,
                    MANIFEST_DIGEST_ALGORITHM);
    (void)json_close(&a); /* passes a's error on to r */
}

static void read_layout(JsonReader *r, ChunkLayout *layout)
{
    JsonReader l = json_get_object(r, "layout", JSON_REQUIRED);
    (void)json_get_int(&l, "n_elements", JSON_REQUIRED, 1, INT64_C(1) << 40, &layout->n_elements);
    (void)json_get_int(&l, "chunk_elements", JSON_REQUIRED, 1, 1 << 30, &layout->chunk_elements);
    if (l.r == 0) {
        layout->n_chunks = DIV_ROUND_UP(layout->n_elements, layout->chunk_elements);
        if (layout->n_chunks > MANIFEST_CHUNKS_MAX)
            json_refuse(&l, "chunk_elements", "%lld makes %lld chunks, at most %d are allowed",
                        (long long)layout->chunk_elements, (long long)layout->n_chunks,
                        MANIFEST_CHUNKS_MAX);
    }
    (void)json_close(&l); /* passes l's error on to r */
}

static void read_maxima(JsonReader *r, Manifest *m)
{
    json_t *array;
    if (!json_get_array(r, "maxima", JSON_REQUIRED, MANIFEST_TENSORS_MAX, &array))
        return;
    m->n_tensors = (int64_t)json_array_size(array);
    m->scalars.maxima = reserve(r, (size_t)m->n_tensors * MAXIMA_WINDOW, sizeof(uint32_t));
    for (size_t t = 0; m->scalars.maxima && t < json_array_size(array); t++) {
        const char *text = json_string_value(json_array_get(array, t));
        bool good = text && strlen(text) == 8 * MAXIMA_WINDOW;
        for (size_t k = 0; good && k < MAXIMA_WINDOW; k++)
            good = parse_hex32(text + 8 * k, &m->scalars.maxima[t * MAXIMA_WINDOW + k]);
        if (!good) {
            json_refuse(r, "maxima", "element %zu is not %d hexadecimal digits", t,
                        8 * MAXIMA_WINDOW);
            return;
        }
    }
}

static void read_scalars(JsonReader *r, Manifest *m)
{
    TrainScalars *s = &m->scalars;
    JsonReader o = json_get_object(r, "scalars", JSON_REQUIRED);
    get_count(&o, "step", INT64_MAX, &s->step);
    get_count(&o, "position", INT64_MAX, &s->position);
    get_count(&o, "adam_t", STEP_MAX, &s->adam_t);
    get_double(&o, "loss_scale", &s->loss_scale);
    get_count(&o, "loss_scale_steps", INT64_MAX, &s->loss_scale_steps);
    get_count(&o, "n_maxima", MAXIMA_WINDOW, &s->n_maxima);
    get_count(&o, "n_accepted", STEP_MAX, &s->n_accepted);
    /* a window of n_maxima steps would begin before step 1 */
    if (o.r == 0 && s->n_maxima > s->n_accepted)
        json_refuse(&o, "n_maxima", "%lld of %lld accepted steps", (long long)s->n_maxima,
                    (long long)s->n_accepted);
    read_maxima(&o, m);
    (void)json_close(&o); /* passes o's error on to r */
}

static void read_object(JsonReader *r, json_t *array, size_t i, ObjectRecord *o)
{
    JsonReader e = json_get_element(r, "objects", array, i);
    int kind = 0;
    (void)json_get_text(&e, "key", JSON_REQUIRED, o->key, sizeof(o->key)); /* e keeps the error */
    (void)json_get_choice(&e, "kind", JSON_REQUIRED, object_kind_name, OBJECT_PLANS,
                          &kind); /* the plans are not in this list, but under the key "plans" */
    get_count(&e, "part", INT64_MAX, &o->part);
    get_count(&e, "first", INT64_MAX, &o->first);
    get_count(&e, "count", INT64_MAX, &o->count);
    int64_t n_bytes = 0;
    get_count(&e, "bytes", INT64_MAX, &n_bytes);
    json_get_hash(&e, "xxh3_128", &o->hash);
    get_hex32(&e, "crc32c", &o->crc);
    o->kind = (ObjectKind)kind;
    if (object_has_header(o->kind))
        json_get_hash(&e, "header_xxh3_128", &o->header);
    o->n_bytes = (uint64_t)n_bytes;
    (void)json_close(&e); /* passes e's error on to r */
}

static void check_segment(JsonReader *e, const MetricsSegment *s, int64_t expected)
{
    CheckpointName name = {0};
    int64_t first = 0;
    if (metrics_key_parse(s->key, &name, &first) < 0 || first != s->first || name.step != s->last)
        json_refuse(e, "key", "%s does not name steps %lld to %lld", s->key, (long long)s->first,
                    (long long)s->last);
    else if (s->last < s->first || s->first != expected)
        json_refuse(e, "first", "steps %lld to %lld do not follow step %lld", (long long)s->first,
                    (long long)s->last, (long long)expected - 1);
    else if (s->n_lines > s->last - s->first + 1)
        json_refuse(e, "lines", "%lld for steps %lld to %lld", (long long)s->n_lines,
                    (long long)s->first, (long long)s->last);
}

/* Reads one metrics segment. Returns the step after the segment's last step. */
static int64_t read_segment(JsonReader *r, json_t *array, size_t i, int64_t expected,
                            MetricsSegment *s)
{
    JsonReader e = json_get_element(r, "metrics", array, i);
    int64_t n_bytes = 0;
    (void)json_get_text(&e, "key", JSON_REQUIRED, s->key, sizeof(s->key)); /* e keeps the error */
    get_count(&e, "first", INT64_MAX, &s->first);
    get_count(&e, "last", INT64_MAX - 1, &s->last);
    get_count(&e, "lines", INT64_MAX, &s->n_lines);
    get_count(&e, "level", METRICS_LEVEL_MAX, &s->level);
    get_count(&e, "bytes", INT64_MAX, &n_bytes);
    json_get_hash(&e, "xxh3_128", &s->hash);
    get_hex32(&e, "crc32c", &s->crc);
    s->n_bytes = (uint64_t)n_bytes;
    if (e.r == 0)
        check_segment(&e, s, expected);
    (void)json_close(&e); /* passes e's error on to r */
    return s->last + 1;
}

static void read_segments(JsonReader *r, Manifest *m)
{
    json_t *array;
    get_count(r, "metrics_first", INT64_C(10000000000), &m->metrics_first);
    if (!json_get_array(r, "metrics", JSON_REQUIRED, MANIFEST_SEGMENTS_MAX, &array))
        return;
    m->segments = reserve(r, json_array_size(array), sizeof(*m->segments));
    int64_t next = m->metrics_first;
    for (size_t i = 0; r->r == 0 && i < json_array_size(array); i++)
        next = read_segment(r, array, i, next, &m->segments[m->n_segments++]);
    if (r->r == 0 && next - 1 != m->scalars.step)
        json_refuse(r, "metrics", "from step %lld on they end at step %lld, the state is of %lld",
                    (long long)m->metrics_first, (long long)next - 1, (long long)m->scalars.step);
}

static void read_chunks(JsonReader *r, Manifest *m)
{
    json_t *array;
    if (!json_get_array(r, "chunks", JSON_REQUIRED, MANIFEST_OBJECTS_MAX, &array))
        return;
    if ((int64_t)json_array_size(array) != m->layout.n_chunks) {
        json_refuse(r, "chunks", "%zu hashes for %lld chunks", json_array_size(array),
                    (long long)m->layout.n_chunks);
        return;
    }
    m->chunks = reserve(r, json_array_size(array), sizeof(*m->chunks));
    for (size_t i = 0; m->chunks && i < json_array_size(array); i++) {
        const char *text = json_string_value(json_array_get(array, i));
        if (!text || hash_parse(text, &m->chunks[i]) < 0) {
            json_refuse(r, "chunks", "element %zu is not a hash", i);
            return;
        }
    }
}

static void read_committed(JsonReader *r, Manifest *m)
{
    json_t *array;
    if (!json_get_array(r, "committed", JSON_REQUIRED, MANIFEST_COMMITTED_MAX, &array))
        return;
    m->committed = reserve(r, json_array_size(array), sizeof(*m->committed));
    for (size_t i = 0; m->committed && i < json_array_size(array); i++) {
        CheckpointName name;
        const char *text = json_string_value(json_array_get(array, i));
        if (!text || checkpoint_name_parse(text, &name) < 0 || name.step > m->name.step) {
            json_refuse(r, "committed", "%.60s is not an earlier checkpoint",
                        text ? text : "(no string)");
            return;
        }
        checkpoint_name_format(&name, m->committed[m->n_committed++]);
    }
}

/* ---- do the objects cover the state? ---- */

/* Checks the objects of one set of weights: the config, the index (if there are several weight
 * files) and the weight files. Returns the index of the next record after the set. */
static size_t check_set(JsonReader *r, const Manifest *m, size_t at, ObjectKind config)
{
    const ObjectKind index = config + OBJECT_INDEX - OBJECT_CONFIG;
    const ObjectKind weights = config + OBJECT_WEIGHTS - OBJECT_CONFIG;
    int64_t n_files = 0;
    for (size_t i = 0; i < m->n_objects; i++)
        n_files += m->objects[i].kind == weights;

    int64_t first = 0;
    for (int64_t i = n_files > 1 ? -2 : -1; i < n_files; i++, at++) {
        const ObjectKind kind = i >= 0 ? weights : i == -1 && n_files > 1 ? index : config;
        const int64_t part = MAX(i, 0);
        char key[OBJECT_KEY_MAX];
        object_key(kind, part, n_files, key);
        const ObjectRecord *o = &m->objects[at];
        if (at >= m->n_objects || o->kind != kind || o->part != part || strcmp(o->key, key) != 0) {
            json_refuse(r, "objects", "element %zu should be %s", at, key);
            return at;
        }
        if (kind == weights
                ? o->first != first || o->count < 1 || o->count > m->layout.n_elements - first ||
                      o->n_bytes <= (uint64_t)o->count * sizeof(float)
                : o->first != 0 || o->count != 0) {
            json_refuse(r, "objects", "the range or size of %s is wrong", key);
            return at;
        }
        first += o->count;
    }
    if (r->r == 0 && (n_files == 0 || first != m->layout.n_elements))
        json_refuse(r, "objects", "the files of kind %s hold %lld of %lld elements",
                    object_kind_name[weights], (long long)first, (long long)m->layout.n_elements);
    return at;
}

static void check_moments(JsonReader *r, const Manifest *m, size_t at)
{
    for (int64_t c = 0; c < m->layout.n_chunks; c++, at++) {
        char key[OBJECT_KEY_MAX];
        object_key(OBJECT_MOMENTS, c, 1, key);
        const ObjectRecord *o = &m->objects[at];
        const int64_t count = chunk_length(&m->layout, c);
        if (at >= m->n_objects || o->kind != OBJECT_MOMENTS || o->part != c ||
            strcmp(o->key, key) != 0) {
            json_refuse(r, "objects", "element %zu should be %s", at, key);
            return;
        }
        if (o->first != chunk_begin(&m->layout, c) || o->count != count ||
            o->n_bytes != (uint64_t)count * 2 * sizeof(float)) {
            json_refuse(r, "objects", "the range or size of %s is wrong", key);
            return;
        }
    }
    if (at != m->n_objects)
        json_refuse(r, "objects", "%s is not part of a checkpoint", m->objects[at].key);
}

static void read_objects(JsonReader *r, Manifest *m)
{
    json_t *array;
    if (!json_get_array(r, "objects", JSON_REQUIRED, MANIFEST_OBJECTS_MAX, &array))
        return;
    m->objects = reserve(r, json_array_size(array), sizeof(*m->objects));
    for (size_t i = 0; r->r == 0 && i < json_array_size(array); i++)
        read_object(r, array, i, &m->objects[m->n_objects++]);

    size_t at = 0;
    if (r->r == 0)
        at = check_set(r, m, at, OBJECT_CONFIG);
    if (r->r == 0 && m->ema)
        at = check_set(r, m, at, OBJECT_EMA_CONFIG);
    if (r->r == 0)
        check_moments(r, m, at);
}

/* Reads the record of the plans, which is under the key "plans" and becomes the last object. A
 * checkpoint has plans if its device has plans. */
static void read_plans(JsonReader *r, Manifest *m)
{
    JsonReader e = json_get_object(r, "plans", JSON_OPTIONAL);
    if (e.object) {
        ObjectRecord *o = &m->objects[m->n_objects++]; /* read_objects() allocated the space */
        char key[OBJECT_KEY_MAX];
        int64_t n_bytes = 0;
        o->kind = OBJECT_PLANS;
        object_key(OBJECT_PLANS, 0, 1, key);
        if (json_get_text(&e, "key", JSON_REQUIRED, o->key, sizeof(o->key)) &&
            strcmp(o->key, key) != 0)
            json_refuse(&e, "key", "%s should be %s", o->key, key);
        (void)json_get_int(&e, "bytes", JSON_REQUIRED, 1, MANIFEST_PLANS_BYTES_MAX,
                           &n_bytes); /* the reader keeps the error */
        json_get_hash(&e, "xxh3_128", &o->hash);
        get_hex32(&e, "crc32c", &o->crc);
        o->n_bytes = (uint64_t)n_bytes;
    }
    (void)json_close(&e); /* passes e's error on to r */
}

/* ---- the whole ---- */

Hash manifest_state_digest(const Manifest *m)
{
    return state_digest(&m->scalars, (size_t)m->n_tensors, &m->layout, m->ema, m->chunks);
}

static void check_digest(JsonReader *r, const Manifest *m)
{
    Hash computed = manifest_state_digest(m);
    char recorded_text[HASH_TEXT_BYTES], computed_text[HASH_TEXT_BYTES];
    if (!hash_equal(computed, m->digest))
        json_refuse(r, "digest", "%s, but chunks and scalars give %s",
                    hash_format(m->digest, recorded_text), hash_format(computed, computed_text));
}

/* Checks the text against the hash that the text contains. This is the only check of the text if no
 * record in etcd has the hash: after the record was lost, and in a listing. */
static void check_seal(JsonReader *r, const json_t *root)
{
    Hash recorded = {0}, computed;
    char a[HASH_TEXT_BYTES], b[HASH_TEXT_BYTES];
    json_get_hash(r, "hash", &recorded);
    if (r->r < 0)
        return;
    if (manifest_seal(root, &computed) < 0)
        json_out_of_memory(r);
    else if (!hash_equal(computed, recorded))
        json_refuse(r, "hash", "%s, but the rest of it gives %s", hash_format(recorded, a),
                    hash_format(computed, b));
}

static int parse_root(const char *source, json_t *root, Manifest *m, Error *err)
{
    /* a newer version may write further keys */
    JsonReader r = json_open(source, root, JSON_ANY_KEYS, err);
    int64_t version = 0;
    get_count(&r, "v", INT64_MAX, &version);
    if (r.r == 0 && version != MANIFEST_VERSION)
        return error_set(
            err, -EPROTONOSUPPORT,
            "%s: v: of version %lld, which %s sdtrain wrote; this is sdtrain " SDTRAIN_VERSION
            ", which reads version %d: use the one that wrote it",
            source, (long long)version, version > MANIFEST_VERSION ? "a newer" : "an older",
            MANIFEST_VERSION);

    get_count(&r, "step", STEP_MAX, &m->name.step);
    get_count(&r, "owner", 999999, &m->name.owner);
    get_count(&r, "generation", INT64_C(999999999999), &m->name.generation);
    get_hex32(&r, "attempt", &m->name.attempt);
    json_get_hash(&r, "digest", &m->digest);
    (void)json_get_bool(&r, "ema", JSON_REQUIRED, &m->ema); /* the reader keeps the error */
    read_facts(&r, &m->facts);
    m->facts.generation = m->name.generation;
    read_layout(&r, &m->layout);
    read_scalars(&r, m);
    if (r.r == 0 && m->scalars.step != m->name.step)
        json_refuse(&r, "step", "%lld, but the scalars are of step %lld", (long long)m->name.step,
                    (long long)m->scalars.step);
    if (r.r == 0)
        read_objects(&r, m);
    if (r.r == 0)
        read_plans(&r, m);
    if (r.r == 0)
        read_chunks(&r, m);
    if (r.r == 0)
        read_segments(&r, m);
    if (r.r == 0)
        read_committed(&r, m);
    (void)json_get_text(&r, "divergence", JSON_OPTIONAL, m->divergence,
                        sizeof(m->divergence)); /* the reader keeps the error */
    (void)json_get_text(&r, "step_times", JSON_OPTIONAL, m->step_times,
                        sizeof(m->step_times)); /* the reader keeps the error */
    (void)json_get_text(&r, "plan_changes", JSON_OPTIONAL, m->plan_changes,
                        sizeof(m->plan_changes)); /* the reader keeps the error */
    if (r.r == 0)
        check_digest(&r, m);
    if (r.r == 0)
        check_seal(&r, root);
    return json_close(&r);
}

int manifest_parse(const char *source, const char *text, size_t n_bytes, Manifest **ret, Error *err)
{
    Error local = ERROR_INIT;
    if (!err)
        err = &local;

    if (n_bytes > MANIFEST_BYTES_MAX)
        return error_set(err, -EBADMSG, "%s: %zu bytes, a manifest has at most %d", source, n_bytes,
                         MANIFEST_BYTES_MAX);
    _cleanup_json_ json_t *root = NULL;
    _cleanup_(manifest_freep) Manifest *m = calloc(1, sizeof(*m));
    if (!m)
        return error_set(err, -ENOMEM, "%s: out of memory", source);
    int r = json_parse_bounded(source, text, n_bytes, MANIFEST_VALUES_MAX, &root, err);
    if (r == 0)
        r = parse_root(source, root, m, err);
    /* json.h returns -EINVAL for a bad text; here the text is a damaged checkpoint */
    if (r == -EINVAL)
        r = err->code = -EBADMSG;
    if (r < 0)
        return r;
    *ret = TAKE_PTR(m);
    return 0;
}

Manifest *manifest_free(Manifest *m)
{
    if (!m)
        return NULL;
    free(m->scalars.maxima);
    free(m->objects);
    free(m->chunks);
    free(m->segments);
    free(m->committed);
    free(m);
    return NULL;
}

int manifest_read(Store *store, const char *folder, const Hash *expected, Manifest **ret,
                  Error *err)
{
    CheckpointName name;
    if (checkpoint_name_parse(folder, &name) < 0)
        return error_set(err, -EINVAL, "%s/%.80s is not a checkpoint's folder", store_uri(store),
                         folder);

    char key[CHECKPOINT_FOLDER_MAX + 16], source[CHECKPOINT_URI_MAX];
    (void)snprintf(key, sizeof(key), "%s/manifest.json", folder);
    (void)snprintf(source, sizeof(source), "%s/%s", store_uri(store), key);
    _cleanup_free_ char *text = NULL;
    size_t n_bytes;
    int r = store_get(store, key, MANIFEST_BYTES_MAX, &text, &n_bytes, err);
    if (r == -EFBIG)
        return error_set(err, -EBADMSG, "%s: larger than the %d bytes that a manifest may have",
                         source, MANIFEST_BYTES_MAX);
    if (r < 0)
        return r;

    Hash hash = hash_bytes(text, n_bytes);
    if (expected && !hash_equal(hash, *expected)) {
        char want[HASH_TEXT_BYTES], got[HASH_TEXT_BYTES];
        return error_set(err, -EBADMSG, "%s: hash %s, expected %s", source, hash_format(hash, got),
                         hash_format(*expected, want));
    }

    _cleanup_(manifest_freep) Manifest *m = NULL;
    r = manifest_parse(source, text, n_bytes, &m, err);
    if (r < 0)
        return r;
    if (!checkpoint_name_equal(&m->name, &name))
        return error_set(err, -EBADMSG,
                         "%s: it is the manifest of step %lld, owner %lld, generation %lld, "
                         "attempt %08x",
                         source, (long long)m->name.step, (long long)m->name.owner,
                         (long long)m->name.generation, m->name.attempt);
    m->hash = hash;
    *ret = TAKE_PTR(m);
    return 0;
}

int manifest_read_uri(const char *uri, const Hash *expected, Store **ret_store, Manifest **ret,
                      Error *err)
{
    _cleanup_free_ char *copy = strdup(uri);
    if (!copy)
        return error_set(err, -ENOMEM, "%s: out of memory", uri);

    char *file = strrchr(copy, '/');
    if (file)
        *file = '\0';
    char *folder = strrchr(copy, '/');
    if (!file || !folder || strcmp(file + 1, "manifest.json") != 0)
        return error_set(err, -EINVAL, "%s: expected .../step-.../manifest.json", uri);
    *folder = '\0';

    _cleanup_(store_freep) Store *store = NULL;
    int r = store_open(copy, &store, err);
    if (r < 0)
        return r;
    r = manifest_read(store, folder + 1, expected, ret, err);
    if (r < 0)
        return r;
    *ret_store = TAKE_PTR(store);
    return 0;
}

/* ---- what other modules may read ---- */

const CheckpointFacts *manifest_facts(const Manifest *m) { return &m->facts; }
int64_t manifest_step(const Manifest *m) { return m->name.step; }
Hash manifest_digest(const Manifest *m) { return m->digest; }
Hash manifest_hash(const Manifest *m) { return m->hash; }
void manifest_folder(const Manifest *m, char ret[CHECKPOINT_FOLDER_MAX])
{
    checkpoint_name_format(&m->name, ret);
}

size_t manifest_committed(const Manifest *m, char (*ret)[CHECKPOINT_FOLDER_MAX], size_t n)
{
    for (size_t i = 0; i < MIN(n, m->n_committed); i++)
        memcpy(ret[i], m->committed[i], CHECKPOINT_FOLDER_MAX);
    return m->n_committed;
}

size_t manifest_objects(const Manifest *m, const ObjectRecord **ret)
{
    *ret = m->objects;
    return m->n_objects;
}

size_t manifest_segments(const Manifest *m, const MetricsSegment **ret)
{
    *ret = m->segments;
    return m->n_segments;
}

bool manifest_has_ema(const Manifest *m) { return m->ema; }

const char *manifest_divergence(const Manifest *m) { return m->divergence; }

const char *manifest_step_times(const Manifest *m) { return m->step_times; }

const char *manifest_plan_changes(const Manifest *m) { return m->plan_changes; }

void plan_changes_add(char text[PLAN_CHANGES_TEXT_MAX], int64_t step, const char *before,
                      const char *after)
{
    char added[128], kept[PLAN_CHANGES_TEXT_MAX];
    const int n = snprintf(added, sizeof(added), "%lld %s %s", (long long)step, before, after);
    assert(n > 0 && (size_t)n < sizeof(added));
    (void)snprintf(kept, sizeof(kept), "%s", text);
    const char *from = kept;
    while (*from && strlen(from) + 2 + (size_t)n >= PLAN_CHANGES_TEXT_MAX) {
        const char *next = strstr(from, "; ");
        from = next ? next + 2 : "";
    }
    (void)snprintf(text, PLAN_CHANGES_TEXT_MAX, "%s%s%s", from, *from ? "; " : "", added);
}
