/* SPDX-License-Identifier: Apache-2.0 */
/* manifest-write.c - writes the text of manifest.json; manifest.c reads it. */
#include "manifest/manifest-internal.h"

#include "base/json/json.h"

#include <string.h>

/* Numbers that must be read back exactly are written as hexadecimal text: hashes, doubles, bit
 * patterns. */

static json_t *double_json(double x)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "%a", x);
    return json_string(text);
}

static json_t *crc_json(uint32_t crc)
{
    char text[9];
    (void)snprintf(text, sizeof(text), "%08x", crc);
    return json_string(text);
}

/* Returns an array with one string for each tensor: the maxima of the tensor's window, with 8
 * digits for each maximum. */
static json_t *maxima_json(const Manifest *m)
{
    json_t *array = json_array();
    for (int64_t t = 0; array && t < m->n_tensors; t++) {
        char text[8 * MAXIMA_WINDOW + 1];
        for (int k = 0; k < MAXIMA_WINDOW; k++)
            (void)snprintf(text + 8 * k, 9, "%08x", m->scalars.maxima[t * MAXIMA_WINDOW + k]);
        if (json_array_append_new(array, json_string(text)) < 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *scalars_json(const Manifest *m)
{
    const TrainScalars *s = &m->scalars;
    return json_pack("{s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:o}", "step", (json_int_t)s->step,
                     "position", (json_int_t)s->position, "adam_t", (json_int_t)s->adam_t,
                     "loss_scale", double_json(s->loss_scale), "loss_scale_steps",
                     (json_int_t)s->loss_scale_steps, "n_maxima", (json_int_t)s->n_maxima,
                     "n_accepted", (json_int_t)s->n_accepted, "maxima", maxima_json(m));
}

static json_t *object_json(const ObjectRecord *o)
{
    json_t *json = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:o}", "key", o->key, "kind",
                             object_kind_name[o->kind], "part", (json_int_t)o->part, "first",
                             (json_int_t)o->first, "count", (json_int_t)o->count, "bytes",
                             (json_int_t)o->n_bytes, "xxh3_128", json_hash(o->hash), "crc32c",
                             crc_json(o->crc));
    if (json && object_has_header(o->kind) &&
        json_object_set_new(json, "header_xxh3_128", json_hash(o->header)) < 0) {
        json_decref(json);
        return NULL;
    }
    return json;
}

/* Returns how many objects are listed under "objects". The plans, which are the last object, are not listed there. */
static size_t n_listed(const Manifest *m)
{
    const bool has_plans = m->objects[m->n_objects - 1].kind == OBJECT_PLANS;
    return m->n_objects - has_plans;
}

/* Returns the object under the key "plans". Version 0.2.0 ignores that key when it reads a manifest. */
static json_t *plans_json(const Manifest *m)
{
    const ObjectRecord *o = &m->objects[n_listed(m)];
    return json_pack("{s:s, s:I, s:o, s:o}", "key", o->key, "bytes", (json_int_t)o->n_bytes,
                     "xxh3_128", json_hash(o->hash), "crc32c", crc_json(o->crc));
}

static json_t *segment_json(const MetricsSegment *s)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "key", s->key, "first",
                     (json_int_t)s->first, "last", (json_int_t)s->last, "lines",
                     (json_int_t)s->n_lines, "level", (json_int_t)s->level, "bytes",
                     (json_int_t)s->n_bytes, "xxh3_128", json_hash(s->hash), "crc32c",
                     crc_json(s->crc));
}

typedef json_t *(*ItemJson)(const Manifest *m, size_t i);

static json_t *object_item(const Manifest *m, size_t i) { return object_json(&m->objects[i]); }
static json_t *segment_item(const Manifest *m, size_t i) { return segment_json(&m->segments[i]); }
static json_t *chunk_item(const Manifest *m, size_t i) { return json_hash(m->chunks[i]); }
static json_t *committed_item(const Manifest *m, size_t i) { return json_string(m->committed[i]); }

static json_t *array_json(const Manifest *m, size_t n, ItemJson item)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < n; i++)
        if (json_array_append_new(array, item(m, i)) < 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static int set(json_t *root, const char *key, json_t *value)
{
    return json_object_set_new(root, key, value) < 0 ? -ENOMEM : 0;
}

int manifest_seal(const json_t *root, Hash *ret)
{
    _cleanup_json_ json_t *rest = json_copy((json_t *)(uintptr_t)root); /* json_copy() only reads */
    if (!rest)
        return -ENOMEM;
    (void)json_object_del(rest, "hash"); /* the key may be absent */
    _cleanup_free_ char *text = json_dumps(rest, JSON_COMPACT | JSON_SORT_KEYS);
    if (!text)
        return -ENOMEM;
    *ret = hash_bytes(text, strlen(text));
    return 0;
}

static int set_seal(json_t *root)
{
    Hash seal;
    int r = manifest_seal(root, &seal);
    return r < 0 ? r : set(root, "hash", json_hash(seal));
}

/* Asserts the conditions that manifest_parse() checks: manifest_parse() would refuse a manifest
 * that breaks one of these conditions, so no later world could restore from that checkpoint. */
static void assert_consistent(const Manifest *m)
{
    assert(m->scalars.step == m->name.step && m->facts.generation == m->name.generation);
    assert(m->scalars.n_maxima <= MIN(m->scalars.n_accepted, (int64_t)MAXIMA_WINDOW));
    assert(m->n_segments <= MANIFEST_SEGMENTS_MAX && m->n_committed <= MANIFEST_COMMITTED_MAX);
    int64_t next = m->metrics_first;
    for (size_t i = 0; i < m->n_segments; i++) {
        const MetricsSegment *s = &m->segments[i];
        assert(s->key[0] && s->first == next && s->last >= s->first);
        assert(s->n_lines >= 0 && s->n_lines <= s->last - s->first + 1);
        next = s->last + 1;
    }
    assert(next == m->scalars.step + 1);
    assert(m->n_objects > 0);
    for (size_t i = 0; i < m->n_objects; i++)
        assert(m->objects[i].key[0] && (i == 0 || m->objects[i].kind >= m->objects[i - 1].kind));
    assert(hash_equal(m->digest, manifest_state_digest(m)));
}

int manifest_format(const Manifest *m, char **ret)
{
    assert_consistent(m);
    const CheckpointFacts *f = &m->facts;
    char attempt[9];
    (void)snprintf(attempt, sizeof(attempt), "%08x", m->name.attempt);

    _cleanup_json_ json_t *root = json_object();
    int r = root ? 0 : -ENOMEM;
    r = r ?: set(root, "v", json_integer(MANIFEST_VERSION));
    r = r ?: set(root, "job", json_string(f->job));
    r = r ?: set(root, "step", json_integer(m->name.step));
    r = r ?: set(root, "submission", json_string(f->submission));
    r = r ?: set(root, "owner", json_integer(m->name.owner));
    r = r ?: set(root, "generation", json_integer(m->name.generation));
    r = r ?: set(root, "attempt", json_string(attempt));
    r = r ?: set(root, "digest", json_hash(m->digest));
    r = r ?: set(root, "job_identity", json_hash(f->job_identity));
    r = r ?: set(root, "dataset_digest", json_hash(f->dataset_digest));
    if (r == 0 && f->job_terms[0])
        r = set(root, "job_terms", json_string(f->job_terms));
    if (r == 0 && f->dataset_terms[0])
        r = set(root, "dataset_terms", json_string(f->dataset_terms));
    r = r
            ?: set(root, "algorithms",
                   json_pack("{s:I, s:I, s:i}", "order", (json_int_t)f->order_algorithm,
                             "reduction", (json_int_t)f->reduction_algorithm, "digest",
                             MANIFEST_DIGEST_ALGORITHM));
    r = r ?: set(root, "numerics", json_string(f->numerics));
    r = r ?: set(root, "canned_grain", json_hash(f->canned_grain));
    r = r
            ?: set(root, "layout",
                   json_pack("{s:I, s:I}", "n_elements", (json_int_t)m->layout.n_elements,
                             "chunk_elements", (json_int_t)m->layout.chunk_elements));
    r = r ?: set(root, "ema", json_boolean(m->ema));
    r = r ?: set(root, "scalars", scalars_json(m));
    r = r ?: set(root, "objects", array_json(m, n_listed(m), object_item));
    if (r == 0 && n_listed(m) < m->n_objects)
        r = set(root, "plans", plans_json(m));
    r = r ?: set(root, "chunks", array_json(m, (size_t)m->layout.n_chunks, chunk_item));
    r = r ?: set(root, "metrics_first", json_integer(m->metrics_first));
    r = r ?: set(root, "metrics", array_json(m, m->n_segments, segment_item));
    r = r ?: set(root, "committed", array_json(m, m->n_committed, committed_item));
    if (r == 0 && m->divergence[0])
        r = set(root, "divergence", json_string(m->divergence));
    if (r == 0 && m->step_times[0])
        r = set(root, "step_times", json_string(m->step_times));
    if (r == 0 && m->plan_changes[0])
        r = set(root, "plan_changes", json_string(m->plan_changes));
    r = r ?: set_seal(root);
    if (r < 0)
        return r;
    char *text = json_dumps(root, JSON_INDENT(1));
    if (!text)
        return -ENOMEM;
    *ret = text;
    return 0;
}
