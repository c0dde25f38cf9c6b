/* SPDX-License-Identifier: Apache-2.0 */
/* encoder-json.c - see encoder-json.h. */
#include "prep/encode/encoder-json.h"

#include "base/json/json.h"
#include "base/memory.h"
#include "prep/encode/folder.h"

#include <string.h>

static void set(json_t *object, const char *key, json_t *value)
{
    (void)json_object_set_new(object, key, value); /* jansson ends the process if memory is short */
}

Hash encoder_json_identity(const Encoding *e, char *const *named, size_t n_named)
{
    char text[HASH_TEXT_BYTES];
    if (n_named == 0)
        return e->identity;
    _cleanup_json_ json_t *keys = json_array();
    for (size_t i = 0; i < n_named; i++)
        (void)json_array_append_new(keys, json_string(named[i])); /* cannot fail, as in set() */
    _cleanup_free_ char *list = memory_given(json_dumps(keys, JSON_COMPACT));
    _cleanup_free_ char *all =
        memory_format("%s\nwithout %s\n", hash_format(e->identity, text), list);
    return hash_bytes(all, strlen(all));
}

static json_t *shape(const char *column, const int *dims, size_t n_dims)
{
    json_t *object = json_object(), *array = json_array();
    for (size_t i = 0; i < n_dims; i++)
        (void)json_array_append_new(array, json_integer(dims[i])); /* cannot fail, as in set() */
    set(object, "column", json_string(column));
    set(object, "shape", array);
    return object;
}

char *encoder_json_format(const Encoding *e, const EncoderTotals *totals, char *const *named,
                          size_t n_named)
{
    const EncoderShape *s = &e->shape;
    const int latents[] = {s->latent_channels, s->latent_side, s->latent_side};
    const int text[] = {s->n_tokens, s->text_dim};
    _cleanup_json_ json_t *root = json_object();
    json_t *rejected = json_object(), *keys = json_array(), *files = json_object();
    if (!hash_equal(totals->input_json, (Hash){0}))
        set(files, FOLDER_INPUT_KEY, json_hash(totals->input_json));
    set(files, "empty.npy", json_hash(totals->empty_text));
    set(files, "index.json", json_hash(totals->index));
    for (size_t i = 0; i < totals->reasons.n; i++)
        set(rejected, totals->reasons.counts[i].reason, json_integer(totals->reasons.counts[i].n));
    for (size_t i = 0; i < n_named; i++)
        (void)json_array_append_new(keys, json_string(named[i])); /* cannot fail, as in set() */
    set(root, "version", json_integer(1));
    set(root, "identity", json_hash(encoder_json_identity(e, named, n_named)));
    set(root, "recipe", recipe_canonical(e->recipe));
    set(root, "weights", json_hash(e->weights));
    set(root, "merges", json_hash(e->merges));
    set(root, "numerics", json_hash(e->numerics));
    set(root, "scaling_factor", json_real(s->scaling_factor));
    set(root, "latents", shape("latents", latents, ELEMENTSOF(latents)));
    set(root, "text", shape("text", text, ELEMENTSOF(text)));
    set(root, "empty_text", json_string("empty.npy"));
    set(root, "files", files);
    set(root, "input", input_totals_json(&totals->input));
    set(root, "raw_samples", json_integer(totals->n_raw));
    set(root, "samples", json_integer(totals->n_samples));
    set(root, "rejected", rejected);
    set(root, "named", keys);
    _cleanup_free_ char *dumped =
        memory_given(json_dumps(root, JSON_SORT_KEYS | JSON_INDENT(2) | JSON_REAL_PRECISION(17)));
    return memory_format("%s\n", dumped);
}
