/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-recipe.c - the recipe's parser on any bytes; an accepted recipe is accepted again in its canonical form. */
#include "base/json/json.h"
#include "protocol/recipe.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    Error err = ERROR_INIT;
    Recipe *recipe = NULL, *again = NULL;
    if (recipe_parse("fuzz", (const char *)data, n, &recipe, &err) < 0) {
        assert(!recipe && *err.text);
        return 0;
    }
    json_t *canonical = recipe_canonical(recipe);
    char *text = json_dumps(canonical, JSON_REAL_PRECISION(17));
    assert(text);
    int r = recipe_parse("canonical", text, strlen(text), &again, &err);
    assert(r == 0);
    Hash zero = {0};
    assert(hash_equal(recipe_identity(recipe, RECIPE_SAMPLE_RULES, zero, zero, zero),
                      recipe_identity(again, RECIPE_SAMPLE_RULES, zero, zero, zero)));
    free(text);
    json_decref(canonical);
    (void)recipe_free(recipe);
    (void)recipe_free(again);
    return 0;
}
