/* SPDX-License-Identifier: Apache-2.0 */
/* columns.h - the columns of what is made: latents, text, and those that a recipe keeps; and the recipe's filters.
 *
 * Ownership: a Kept owns its payloads; kept_clear() frees them.
 * Units:     bytes.
 * Errors:    -EINVAL shapes that no column has; -ENOMEM.
 * Threads:   any.
 */
#pragma once

#include "data/mds/mds.h"
#include "encoders/networks/encoder.h"
#include "prep/raw/raw-sample.h"
#include "protocol/recipe.h"

typedef struct Columns {
    MdsSchema schema;
    size_t latents, text, keep[RECIPE_COLUMNS_MAX]; /* places in the schema */
    size_t n_latents, n_text;                       /* halves of a sample */
} Columns;

int columns_init(const Recipe *recipe, const EncoderShape *shape, Columns *ret, Error *err);

typedef struct Kept { /* payloads of the columns that the recipe keeps, in its order */
    MdsField fields[RECIPE_COLUMNS_MAX];
    size_t n;
} Kept;
/* 0; with *ret_column -ENODATA: a whole number that the sample does not have, or -EFBIG: a text of more than
 * columns_kept_max(). A text that is missing is empty, a number NaN. */
int kept_take(const Recipe *recipe, const RawSample *sample, Kept *ret, const char **ret_column);
void kept_clear(Kept *kept);
/* Bytes of a payload. */
size_t columns_kept_max(const Recipe *recipe);

/* The first filter that rejects the sample; NULL: none. Says why. */
const RecipeFilter *columns_filter(const Recipe *recipe, const RawSample *sample, char *why,
                                   size_t size);
