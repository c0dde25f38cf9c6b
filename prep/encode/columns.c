/* SPDX-License-Identifier: Apache-2.0 */
/* columns.c - see columns.h. */
#include "prep/encode/columns.h"

#include <math.h>
#include <string.h>

/* A shard, including the columns that are kept, is built in memory, and must stay below the 4 GiB that offsets
 * reach. */
enum { SHARD_BYTES_MAX = 1 << 30, KEPT_BYTES_MAX = 1 << 20 };

int columns_init(const Recipe *recipe, const EncoderShape *shape, Columns *ret, Error *err)
{
    MdsColumn columns[RECIPE_COLUMNS_MAX + 2];
    char encoding[64];
    size_t n = recipe->n_keep;
    *ret = (Columns){.n_latents = (size_t)shape->latent_channels * (size_t)shape->latent_side *
                                  (size_t)shape->latent_side,
                     .n_text = (size_t)shape->n_tokens * (size_t)shape->text_dim};
    (void)snprintf(encoding, sizeof(encoding), "ndarray:float16:%d,%d,%d", shape->latent_channels,
                   shape->latent_side, shape->latent_side);
    int r = mds_column_init("latents", encoding, &columns[n], err);
    (void)snprintf(encoding, sizeof(encoding), "ndarray:float16:%d,%d", shape->n_tokens,
                   shape->text_dim);
    if (r == 0)
        r = mds_column_init("text", encoding, &columns[n + 1], err);
    for (size_t i = 0; r == 0 && i < n; i++)
        r = mds_column_init(recipe->keep[i].column, recipe_kind_name(recipe->keep[i].kind),
                            &columns[i], err);
    if (r == 0)
        r = mds_schema_init(columns, n + 2, &ret->schema, err);
    if (r < 0)
        return r;
    if (2 * (ret->n_latents + ret->n_text) * (size_t)recipe->shard_samples > SHARD_BYTES_MAX)
        return error_set(
            err, -EINVAL,
            "shard_samples: %d samples of %zu bytes make a shard of more than %d bytes",
            recipe->shard_samples, 2 * (ret->n_latents + ret->n_text), SHARD_BYTES_MAX);
    ret->latents = (size_t)mds_schema_find(&ret->schema, "latents", NULL);
    ret->text = (size_t)mds_schema_find(&ret->schema, "text", NULL);
    for (size_t i = 0; i < n; i++)
        ret->keep[i] = (size_t)mds_schema_find(&ret->schema, recipe->keep[i].column, NULL);
    return 0;
}

/* Returns the largest size of a kept text: all kept texts of a shard may together take as many bytes as latents and
 * text may. */
size_t columns_kept_max(const Recipe *recipe)
{
    size_t n_values = (size_t)recipe->shard_samples * MAX(recipe->n_keep, (size_t)1);
    return MIN((size_t)KEPT_BYTES_MAX, SHARD_BYTES_MAX / n_values);
}

static int keep_bytes(Kept *kept, const void *data, size_t n_bytes)
{
    char *copy = malloc(n_bytes + 1);
    if (!copy)
        return -ENOMEM;
    if (n_bytes > 0)
        memcpy(copy, data, n_bytes);
    kept->fields[kept->n++] = (MdsField){copy, n_bytes};
    return 0;
}

/* Keeps a value as text. A value that is not a string is written as JSON. */
static int keep_text(Kept *kept, const json_t *value)
{
    if (!value || json_is_null(value))
        return keep_bytes(kept, "", 0);
    if (json_is_string(value))
        return keep_bytes(kept, json_string_value(value), json_string_length(value));
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS);
    int r = text ? keep_bytes(kept, text, strlen(text)) : -ENOMEM;
    free(text);
    return r;
}

static bool whole_number(const json_t *value, int64_t *ret)
{
    double number = json_real_value(value);
    if (json_is_integer(value)) {
        *ret = json_integer_value(value);
        return true;
    }
    if (!json_is_real(value) || !(fabs(number) < 0x1p53) || number != floor(number))
        return false;
    *ret = (int64_t)number;
    return true;
}

int kept_take(const Recipe *recipe, const RawSample *sample, Kept *ret, const char **ret_column)
{
    int r = 0;
    *ret = (Kept){0};
    for (size_t i = 0; r == 0 && i < recipe->n_keep; i++) {
        const RecipeKeep *k = &recipe->keep[i];
        const json_t *value = json_object_get(sample->fields, k->column);
        int64_t whole = 0;
        double number = json_is_number(value) ? json_number_value(value) : NAN;
        if (strcmp(k->column, "caption") == 0)
            r = keep_bytes(ret, sample->caption, sample->n_caption);
        else if (strcmp(k->column, "key") == 0)
            r = keep_bytes(ret, sample->key, strlen(sample->key));
        else if (k->kind == RECIPE_TEXT)
            r = keep_text(ret, value);
        else if (k->kind == RECIPE_NUMBER)
            r = keep_bytes(ret, &number, sizeof(number));
        else if (whole_number(value, &whole))
            r = keep_bytes(ret, &whole, sizeof(whole));
        else
            r = -ENODATA;
        if (r == 0 && ret->fields[i].n_bytes > columns_kept_max(recipe))
            r = -EFBIG;
        if (r == -ENODATA || r == -EFBIG)
            *ret_column = k->column;
    }
    if (r < 0)
        kept_clear(ret);
    return r;
}

void kept_clear(Kept *kept)
{
    for (size_t i = 0; i < kept->n; i++)
        free((void *)(uintptr_t)kept->fields[i].data);
    *kept = (Kept){0};
}

const RecipeFilter *columns_filter(const Recipe *recipe, const RawSample *sample, char *why,
                                   size_t size)
{
    for (size_t i = 0; i < recipe->n_filters; i++) {
        const RecipeFilter *f = &recipe->filters[i];
        const json_t *value = json_object_get(sample->fields, f->column);
        double number = json_is_number(value) ? json_number_value(value) : NAN;
        if (isnan(number)) {
            if (f->keep_missing)
                continue;
            (void)snprintf(why, size, "%s is missing", f->column);
            return f;
        }
        if (number >= f->min && number <= f->max)
            continue;
        (void)snprintf(why, size, "%s is %.17g", f->column, number);
        return f;
    }
    return NULL;
}
