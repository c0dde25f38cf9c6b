/* SPDX-License-Identifier: Apache-2.0 */
/* encoder-facts.c - see encoder-facts.h. */
#include "data/encoder-facts.h"

#include "base/json/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "protocol/exit-code.h"

#include <string.h>

enum { DIM_MAX = 1 << 16 };

static void get_dims(JsonReader *r, size_t n, int *const dims[])
{
    json_t *array = NULL;
    if (!json_get_array(r, "shape", JSON_REQUIRED, n, &array))
        return;
    if (json_array_size(array) != n)
        json_refuse(r, "shape", "expected %zu numbers, got %zu", n, json_array_size(array));
    for (size_t i = 0; i < n && r->r == 0; i++) {
        const json_t *dim = json_array_get(array, i);
        const json_int_t v = json_integer_value(dim);
        if (!json_is_integer(dim) || v < 1 || v > DIM_MAX)
            json_refuse(r, "shape", "element %zu is not a number in 1..%d", i, DIM_MAX);
        else
            *dims[i] = (int)v;
    }
}

static void get_column(JsonReader *root, const char *key, char name[MDS_NAME_MAX + 1], size_t n,
                       int *const dims[])
{
    JsonReader r = json_get_object(root, key, JSON_REQUIRED);
    if (json_get_text(&r, "column", JSON_REQUIRED, name, MDS_NAME_MAX + 1) && !*name)
        json_refuse(&r, "column", "is empty");
    get_dims(&r, n, dims);
    json_close(&r);
}

/* Reads the name of a file. The file must be in the dataset's own folder, which the node's configuration allows to be
 * read. */
static void get_file(JsonReader *r, const char *key, char ret[ENCODER_FILE_MAX + 1])
{
    if (json_get_text(r, key, JSON_REQUIRED, ret, ENCODER_FILE_MAX + 1) &&
        (!*ret || *ret == '.' || strchr(ret, '/')))
        json_refuse(r, key, "\"%s\" is not a file of this folder", ret);
}

/* Reads the hash that encoder.json notes for another file of its folder. An older version of sdprep wrote no
 * hashes. */
static void get_noted(JsonReader *files, const char *name, NotedHash *ret)
{
    if (!files->object || !json_object_get(files->object, name))
        return;
    json_get_hash(files, name, &ret->hash);
    ret->when = "when " ENCODER_FACTS_NAME " was written";
}

/* Reports whether the recipe names diffusers' rules. Training does not need the recipe: a file without a recipe counts
 * as made by open_clip's rules. */
static bool has_diffusers_rules(const json_t *root)
{
    const char *name =
        json_string_value(json_object_get(json_object_get(root, "recipe"), "tokenizer"));
    return name && strncmp(name, "diffusers", strlen("diffusers")) == 0;
}

int encoder_facts_parse(const char *source, const char *text, size_t n_bytes, EncoderFacts *ret,
                        Error *err)
{
    _cleanup_json_ json_t *json = NULL;
    EncoderFacts facts = {.hash = hash_bytes(text, n_bytes)};
    DatasetShape *s = &facts.shape;
    int64_t version = 0;
    if (n_bytes > ENCODER_FACTS_MAX)
        return error_set(err, -EINVAL, "%s: more than %d bytes", source, ENCODER_FACTS_MAX);
    int r = json_parse_bounded(source, text, n_bytes, ENCODER_FACTS_VALUES_MAX, &json, err);
    if (r < 0)
        return r;
    JsonReader root = json_open(source, json, JSON_ANY_KEYS, err);
    if (json_get_int(&root, "version", JSON_REQUIRED, 1, INT64_MAX, &version) &&
        version > ENCODER_FACTS_VERSION)
        json_refuse(&root, "version",
                    "of version %lld, which a newer sdtrain wrote; this one reads version %d",
                    (long long)version, ENCODER_FACTS_VERSION);
    json_get_hash(&root, "weights", &facts.weights);
    json_get_hash(&root, "merges", &facts.merges);
    json_get_double(&root, "scaling_factor", JSON_REQUIRED, 1e-6, 1e6, &facts.scaling_factor);
    get_column(&root, "latents", facts.latents, 3,
               (int *const[]){&s->channels, &s->height, &s->width});
    get_column(&root, "text", facts.text, 2, (int *const[]){&s->text_tokens, &s->text_dim});
    get_file(&root, "empty_text", facts.empty_text);
    JsonReader files = json_get_object(&root, "files", JSON_OPTIONAL);
    get_noted(&files, facts.empty_text, &facts.empty_text_hash);
    get_noted(&files, "index.json", &facts.index);
    json_close(&files);
    facts.diffusers_rules = has_diffusers_rules(json);
    r = json_close(&root);
    if (r < 0)
        return r;
    *ret = facts;
    return 0;
}

int encoder_facts_read(Store *store, EncoderFacts *ret, Error *err)
{
    _cleanup_free_ char *text = NULL;
    _cleanup_free_ char *source = memory_format("%s/" ENCODER_FACTS_NAME, store_uri(store));
    Error why = ERROR_INIT;
    size_t n_bytes;
    int r = store_get(store, ENCODER_FACTS_NAME, ENCODER_FACTS_MAX, &text, &n_bytes, &why);
    if (r == -ENOENT)
        return 0;
    if (r == -EACCES) { /* S3 returns -EACCES for a missing key if listing is not allowed */
        log_warning("%s; it is taken for one that is not there", why.text);
        return 0;
    }
    if (r < 0)
        return error_set(err, exit_errno_of_named(r), "%s", why.text);
    r = encoder_facts_parse(source, text, n_bytes, ret, err);
    return r < 0 ? r : 1;
}

int encoder_facts_find(const Job *job, EncoderFacts *ret, Error *err)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < job->data.n_streams; i++) {
        _cleanup_(store_freep) Store *store = NULL;
        r = store_open(job->data.streams[i].uri, &store, err);
        if (r == 0)
            r = encoder_facts_read(store, ret, err);
    }
    return r;
}
