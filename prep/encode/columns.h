/* SPDX-License-Identifier: Apache-2.0 */
/* columns.h - the columns of the new dataset: latents, text, and the columns that a recipe keeps; and the recipe's
 * filters.
 *
 * Ownership: a Kept owns its payloads; kept_clear() frees them.
 * Units:     bytes.
 * Errors:    -EINVAL shapes that no column can have; -ENOMEM.
 */
#pragma once

#include "data/mds/mds.h"
#include "encoders/networks/encoder.h"
#include "prep/raw/raw-sample.h"
#include "protocol/recipe.h"

typedef struct Columns {
    MdsSchema schema;
    size_t latents, text, keep[RECIPE_COLUMNS_MAX]; /* column numbers in the schema */
    size_t n_latents, n_text;                       /* number of halves in one sample */
} Columns;

int columns_init(const Recipe *recipe, const EncoderShape *shape, Columns *ret, Error *err);

typedef struct Kept { /* payloads of the kept columns, in the recipe's order */
    MdsField fields[RECIPE_COLUMNS_MAX];
    size_t n;
} Kept;
/* Copies the values of the kept columns. Returns 0; or with *ret_column: -ENODATA, the sample has no value for a
 * column of whole numbers; -EFBIG, a text has more than columns_kept_max() bytes. In other columns, a missing text is
 * kept as "", and a missing number as NaN. */
int kept_take(const Recipe *recipe, const RawSample *sample, Kept *ret, const char **ret_column);
void kept_clear(Kept *kept);
/* Returns the largest size of a kept payload in bytes. */
size_t columns_kept_max(const Recipe *recipe);

/* Returns the first filter that rejects the sample, and writes the reason to why; NULL: no filter rejects it. */
const RecipeFilter *columns_filter(const Recipe *recipe, const RawSample *sample, char *why,
                                   size_t size);
