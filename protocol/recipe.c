/* SPDX-License-Identifier: Apache-2.0 */
/* recipe.c - see recipe.h. */
#include "protocol/recipe.h"

#include "base/file.h"
#include "base/json/json.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

static const char *const resamples[] = {"bilinear", "bicubic"};
/* A tokenizer's name may include the version of its rules; without a version, the newest rules are used. */
static const char *const tokenizers[] = {"open_clip/2", "diffusers/1", "open_clip", "diffusers"};
static const char *const choices[] = {"reject", "empty"};
static const char *const missing[] = {"reject", "keep"};
static const char *const key_ends[] = {"first-dot", "last-dot"};
static const char *const kinds[] = {"str", "int64", "float64"};

const char *recipe_kind_name(RecipeKind kind)
{
    assert(kind < ELEMENTSOF(kinds));
    return kinds[kind];
}

static char *take_text(JsonReader *r, const char *key, const char *fallback, size_t max)
{
    const char *text = fallback;
    json_get_string(r, key, JSON_OPTIONAL, &text);
    if (text && (!*text || strlen(text) > max))
        json_refuse(r, key, "a text of %zu bytes: it has 1 to %zu", strlen(text), max);
    return text ? memory_text(text) : NULL;
}

static int take_int(JsonReader *r, const char *key, int64_t min, int64_t max, int64_t fallback)
{
    int64_t value = fallback;
    json_get_int(r, key, JSON_OPTIONAL, min, max, &value);
    return (int)value;
}

static int take_choice(JsonReader *r, const char *key, const char *const *names, size_t n)
{
    int choice = 0;
    json_get_choice(r, key, JSON_OPTIONAL, names, n, &choice);
    return choice;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Stores the keys of an object, which are names of columns, in sorted order. Returns their number. */
static size_t column_names(JsonReader *parent, const char *key, JsonReader *r,
                           const char *names[RECIPE_COLUMNS_MAX])
{
    size_t n = 0;
    const char *name;
    json_t *value;
    if (!r->object)
        return 0;
    if (json_object_size(r->object) > RECIPE_COLUMNS_MAX) {
        json_refuse(parent, key, "names %zu columns, at most %d are possible",
                    json_object_size(r->object), RECIPE_COLUMNS_MAX);
        r->r = parent->r; /* so that no column is also reported as an unknown key */
        return 0;
    }
    json_object_foreach (r->object, name, value) {
        if (!*name || strlen(name) > RECIPE_NAME_MAX)
            json_refuse(parent, key, "\"%.40s\": a column's name has 1 to %d bytes", name,
                        RECIPE_NAME_MAX);
        else
            names[n++] = name;
    }
    r->r = parent->r;
    qsort(names, n, sizeof(names[0]), compare_names);
    return n;
}

static void parse_filters(JsonReader *root, Recipe *recipe)
{
    const char *names[RECIPE_COLUMNS_MAX];
    JsonReader r = json_get_object(root, "filters", JSON_OPTIONAL);
    size_t n = column_names(root, "filters", &r, names);
    for (size_t i = 0; i < n && r.r == 0; i++) {
        RecipeFilter *f = &recipe->filters[recipe->n_filters++];
        JsonReader c = json_get_object(&r, names[i], JSON_REQUIRED);
        memcpy(f->column, names[i], strlen(names[i]) + 1);
        f->min = -INFINITY;
        f->max = INFINITY;
        bool bounded = json_get_double(&c, "min", JSON_OPTIONAL, -1e300, 1e300, &f->min);
        bounded |= json_get_double(&c, "max", JSON_OPTIONAL, -1e300, 1e300, &f->max);
        f->keep_missing = take_choice(&c, "missing", missing, ELEMENTSOF(missing)) == 1;
        if (c.r == 0 && !bounded)
            json_refuse(&r, names[i], "has neither min nor max");
        else if (c.r == 0 && f->min > f->max)
            json_refuse(&c, "min", "%g is greater than max %g", f->min, f->max);
        json_close(&c);
    }
    json_close(&r);
}

static void parse_keep(JsonReader *root, Recipe *recipe)
{
    static const char *const usual[] = {"caption", "key"};
    const char *names[RECIPE_COLUMNS_MAX];
    JsonReader r = json_get_object(root, "keep", JSON_OPTIONAL);
    size_t n = column_names(root, "keep", &r, names);
    for (size_t i = 0; i < n && r.r == 0; i++) {
        RecipeKeep *k = &recipe->keep[recipe->n_keep++];
        int kind = 0;
        json_get_choice(&r, names[i], JSON_REQUIRED, kinds, ELEMENTSOF(kinds), &kind);
        memcpy(k->column, names[i], strlen(names[i]) + 1);
        k->kind = (RecipeKind)kind;
        if (strcmp(names[i], "latents") == 0 || strcmp(names[i], "text") == 0)
            json_refuse(&r, names[i], "is a column of what is made");
        else if (kind != RECIPE_TEXT &&
                 (strcmp(names[i], "caption") == 0 || strcmp(names[i], "key") == 0))
            json_refuse(&r, names[i], "is a text: \"str\"");
    }
    for (size_t i = 0; !r.object && i < ELEMENTSOF(usual); i++)
        memcpy(recipe->keep[recipe->n_keep++].column, usual[i], strlen(usual[i]) + 1);
    json_close(&r);
}

static void parse_columns(JsonReader *root, Recipe *recipe)
{
    JsonReader r = json_get_object(root, "columns", JSON_OPTIONAL);
    recipe->image = take_text(&r, "image", "jpg", RECIPE_NAME_MAX);
    recipe->caption = take_text(&r, "caption", "caption", RECIPE_NAME_MAX);
    json_close(&r);
}

/* ---- members of tars ---- */

const RecipeMembers recipe_default_members = {.image = {{"jpg", "jpeg", "png", "webp"}, 4},
                                              .caption = {{"txt", "json"}, 2}};

bool recipe_member_is_json(const char *name)
{
    const char *dot = strrchr(name, '.');
    return strcasecmp(dot ? dot + 1 : name, "json") == 0;
}

const char *recipe_json_member(const RecipeMembers *members)
{
    for (size_t i = 0; i < members->caption.n; i++)
        if (recipe_member_is_json(members->caption.names[i]))
            return members->caption.names[i];
    return "json";
}

static bool has_name(const RecipeNames *names, const char *name)
{
    for (size_t i = 0; i < names->n; i++)
        if (strcasecmp(names->names[i], name) == 0)
            return true;
    return false;
}

static bool same_names(const RecipeNames *a, const RecipeNames *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++)
        same = strcmp(a->names[i], b->names[i]) == 0;
    return same;
}

bool recipe_members_are_usual(const RecipeMembers *members)
{
    return !members->key_ends_last && same_names(&members->image, &recipe_default_members.image) &&
           same_names(&members->caption, &recipe_default_members.caption);
}

/* Returns the fault of the next name in a list, or NULL if there is none. */
static const char *name_fault(const char *name, const RecipeNames *before, bool key_ends_last)
{
    if (!name || !*name || strlen(name) > RECIPE_MEMBER_MAX)
        return "has 1 to 31 bytes";
    if (*name == '.')
        return "is written without the dot behind the key";
    if (strchr(name, '/') || name[strlen(name) - 1] == '.')
        return "cannot stand behind a key";
    if (key_ends_last && strchr(name, '.'))
        return "has a dot, and keys end at the last one (key_ends_at)";
    return has_name(before, name) ? "is named twice" : NULL;
}

static void parse_names(JsonReader *r, const char *key, const RecipeNames *usual,
                        bool key_ends_last, RecipeNames *ret)
{
    json_t *array = NULL;
    if (!r->object || !json_get_array(r, key, JSON_OPTIONAL, RECIPE_MEMBERS_MAX, &array)) {
        *ret = *usual;
        return;
    }
    if (json_array_size(array) == 0)
        json_refuse(r, key, "is empty");
    for (size_t i = 0; i < json_array_size(array) && r->r == 0; i++) {
        const char *name = json_string_value(json_array_get(array, i));
        const char *fault = name_fault(name, ret, key_ends_last);
        if (fault)
            json_refuse(r, key, "element %zu, \"%.40s\", %s", i, name ? name : "", fault);
        else
            memcpy(ret->names[ret->n++], name, strlen(name) + 1);
    }
}

static void parse_members(JsonReader *root, Recipe *recipe)
{
    const RecipeMembers *usual = &recipe_default_members;
    RecipeMembers *m = &recipe->members;
    size_t n_json = 0;
    m->key_ends_last = take_choice(root, "key_ends_at", key_ends, ELEMENTSOF(key_ends)) == 1;
    JsonReader r = json_get_object(root, "members", JSON_OPTIONAL);
    parse_names(&r, "image", &usual->image, m->key_ends_last, &m->image);
    parse_names(&r, "caption", &usual->caption, m->key_ends_last, &m->caption);
    for (size_t i = 0; i < m->caption.n; i++) {
        n_json += recipe_member_is_json(m->caption.names[i]);
        if (has_name(&m->image, m->caption.names[i]))
            json_refuse(&r, "caption", "%s is a picture's already", m->caption.names[i]);
    }
    if (n_json > 1)
        json_refuse(&r, "caption", "names %zu members that are .json: one is read", n_json);
    json_close(&r);
}

static void parse_pictures(JsonReader *r, Recipe *recipe)
{
    recipe->side = take_int(r, "side", 8, 4096, 256);
    if (recipe->side % 8 != 0)
        json_refuse(r, "side", "%d is not a multiple of 8", recipe->side);
    recipe->resample = (RecipeResample)take_choice(r, "resample", resamples, ELEMENTSOF(resamples));
    recipe->min_side = take_int(r, "min_side", 0, 1 << 16, 0);
    json_get_double(r, "max_aspect", JSON_OPTIONAL, 0, 1e6, &recipe->max_aspect);
    if (recipe->max_aspect != 0 && recipe->max_aspect < 1)
        json_refuse(r, "max_aspect", "%g: longer by shorter side is 1 or more; 0: any",
                    recipe->max_aspect);
    recipe->max_pixels = 1 << 25;
    json_get_int(r, "max_pixels", JSON_OPTIONAL, 64, 1 << 26, &recipe->max_pixels);
}

int recipe_parse(const char *source, const char *text, size_t n_bytes, Recipe **ret, Error *err)
{
    _cleanup_json_ json_t *json = NULL;
    _cleanup_(recipe_freep) Recipe *recipe = memory_new(Recipe);
    if (n_bytes > RECIPE_TEXT_MAX)
        return error_set(err, -EINVAL, "%s: more than %d bytes", source, RECIPE_TEXT_MAX);
    int r = json_parse_bounded(source, text, n_bytes, 4096, &json, err);
    if (r < 0)
        return r;
    JsonReader root = json_open(source, json, JSON_KNOWN_KEYS, err);
    recipe->model = take_text(&root, "model", NULL, 1000);
    parse_pictures(&root, recipe);
    recipe->tokenizer =
        (RecipeTokenizer)(take_choice(&root, "tokenizer", tokenizers, ELEMENTSOF(tokenizers)) % 2);
    recipe->empty_for_missing =
        take_choice(&root, "missing_caption", choices, ELEMENTSOF(choices)) == 1;
    parse_columns(&root, recipe);
    parse_members(&root, recipe);
    parse_filters(&root, recipe);
    parse_keep(&root, recipe);
    json_get_int(&root, "seed", JSON_OPTIONAL, 0, INT64_MAX, &recipe->seed);
    recipe->shard_samples = take_int(&root, "shard_samples", 1, 1 << 16, RECIPE_SHARD_SAMPLES);
    recipe->max_rejected = 0.05;
    json_get_double(&root, "max_rejected", JSON_OPTIONAL, 0, 1, &recipe->max_rejected);
    recipe->max_damaged_units = 0.01;
    json_get_double(&root, "max_damaged_units", JSON_OPTIONAL, 0, 1, &recipe->max_damaged_units);
    recipe->batch = take_int(&root, "batch", 1, 1024, 8);
    recipe->threads = take_int(&root, "threads", 0, 1024, 0);
    r = json_close(&root);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(recipe);
    return 0;
}

int recipe_read_file(const char *path, Recipe **ret, Error *err)
{
    _cleanup_free_ char *text = NULL;
    size_t n_bytes;
    int r = file_read(path, RECIPE_TEXT_MAX, &text, &n_bytes, err);
    return r < 0 ? r : recipe_parse(path, text, n_bytes, ret, err);
}

Recipe *recipe_free(Recipe *recipe)
{
    if (!recipe)
        return NULL;
    free(recipe->model);
    free(recipe->image);
    free(recipe->caption);
    free(recipe);
    return NULL;
}

/* ---- the canonical form: all that may change a byte ---- */

static void set(json_t *object, const char *key, json_t *value)
{
    /* This call cannot fail: without memory jansson ends the process. */
    (void)json_object_set_new(object, key, value);
}

static json_t *names_json(const RecipeNames *names)
{
    json_t *array = json_array();
    /* This cannot fail: without memory jansson ends the process. */
    for (size_t i = 0; i < names->n; i++)
        (void)json_array_append_new(array, json_string(names->names[i]));
    return array;
}

/* Adds the members, unless they are the default members. So a recipe with the default members keeps the identity that
 * it had before the keys `members` and `key_ends_at` existed. */
static void set_members(json_t *root, const RecipeMembers *m)
{
    if (recipe_members_are_usual(m))
        return;
    json_t *members = json_object();
    set(members, "image", names_json(&m->image));
    set(members, "caption", names_json(&m->caption));
    set(root, "members", members);
    set(root, "key_ends_at", json_string(key_ends[m->key_ends_last]));
}

json_t *recipe_canonical(const Recipe *recipe)
{
    json_t *root = json_object(), *columns = json_object(), *filters = json_object(),
           *keep = json_object();
    set(root, "side", json_integer(recipe->side));
    set(root, "resample", json_string(resamples[recipe->resample]));
    set(root, "min_side", json_integer(recipe->min_side));
    set(root, "max_aspect", json_real(recipe->max_aspect));
    set(root, "max_pixels", json_integer(recipe->max_pixels));
    set(root, "tokenizer", json_string(tokenizers[recipe->tokenizer]));
    set(root, "missing_caption", json_string(choices[recipe->empty_for_missing]));
    set(columns, "image", json_string(recipe->image));
    set(columns, "caption", json_string(recipe->caption));
    set(root, "columns", columns);
    for (size_t i = 0; i < recipe->n_filters; i++) {
        const RecipeFilter *f = &recipe->filters[i];
        json_t *filter = json_object();
        if (isfinite(f->min))
            set(filter, "min", json_real(f->min));
        if (isfinite(f->max))
            set(filter, "max", json_real(f->max));
        set(filter, "missing", json_string(missing[f->keep_missing]));
        set(filters, f->column, filter);
    }
    set(root, "filters", filters);
    for (size_t i = 0; i < recipe->n_keep; i++)
        set(keep, recipe->keep[i].column, json_string(kinds[recipe->keep[i].kind]));
    set(root, "keep", keep);
    set_members(root, &recipe->members);
    set(root, "seed", json_integer(recipe->seed));
    set(root, "shard_samples", json_integer(recipe->shard_samples));
    return root;
}

Hash recipe_identity(const Recipe *recipe, int rules, Hash weights, Hash merges, Hash numerics)
{
    char samples[32] = ""; /* the text has no number for version 1 of the rules */
    if (rules > 1)
        (void)snprintf(samples, sizeof(samples), "samples %d\n", rules);
    char w[HASH_TEXT_BYTES], m[HASH_TEXT_BYTES], n[HASH_TEXT_BYTES];
    _cleanup_json_ json_t *canonical = recipe_canonical(recipe);
    _cleanup_free_ char *text = memory_given(
        json_dumps(canonical, JSON_SORT_KEYS | JSON_COMPACT | JSON_REAL_PRECISION(17)));
    _cleanup_free_ char *all =
        memory_format("sdtrain encoding 1\n%s%s\nweights %s\nmerges %s\nnumerics %s\n", samples,
                      text, hash_format(weights, w), hash_format(merges, m),
                      hash_format(numerics, n));
    return hash_bytes(all, strlen(all));
}
