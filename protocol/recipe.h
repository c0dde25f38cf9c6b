/* SPDX-License-Identifier: Apache-2.0 */
/* recipe.h - the recipe, a user's file that describes how pictures and captions become samples, parsed and checked,
 * with all defaults.
 *
 * The stored sample is a function of the recipe, the model's weights, the device's numerics, the raw bytes and the
 * sample's place. Two datasets may be joined only if all of these are equal. So the recipe has a canonical form,
 * without the values that cannot change a byte (the model's location, batch, threads, limits for giving up).
 *
 * Ownership: recipe_parse() gives the caller a Recipe; recipe_free() accepts NULL. Strings belong to the Recipe.
 * Units:     pixels, samples. 0 of min_side and max_aspect: any.
 * Errors:    -EINVAL with "<source>: <path.to.key>: <what is wrong with which value>". Unknown keys are errors.
 * Threads:   immutable after parsing; any.
 * Source:    docs/reference/recipe.md.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "base/number/hash.h"

#include <jansson.h>

enum {
    RECIPE_TEXT_MAX = 1 << 20,
    RECIPE_COLUMNS_MAX = 32,
    RECIPE_NAME_MAX = 95, /* bytes of a column's name */
    RECIPE_SHARD_SAMPLES = 512,
};

typedef enum RecipeResample { RECIPE_BILINEAR, RECIPE_BICUBIC } RecipeResample;
typedef enum RecipeTokenizer { RECIPE_OPEN_CLIP, RECIPE_DIFFUSERS } RecipeTokenizer;
typedef enum RecipeKind { RECIPE_TEXT, RECIPE_INTEGER, RECIPE_NUMBER } RecipeKind;

typedef struct RecipeFilter {
    char column[RECIPE_NAME_MAX + 1];
    double min, max;   /* infinite: no bound */
    bool keep_missing; /* a sample without this value is kept */
} RecipeFilter;

typedef struct RecipeKeep {
    char column[RECIPE_NAME_MAX + 1];
    RecipeKind kind;
} RecipeKeep;

enum { RECIPE_MEMBERS_MAX = 16, RECIPE_MEMBER_MAX = 31 };

/* A list of endings of tar members' names, without the key and its dot: "jpg", "input.jpg". */
typedef struct RecipeNames {
    char names[RECIPE_MEMBERS_MAX][RECIPE_MEMBER_MAX + 1];
    size_t n;
} RecipeNames;

/* Which members of a tar belong to a sample. */
typedef struct RecipeMembers {
    RecipeNames image; /* exactly one member of a sample has an ending in this list */
    /* The first existing member is used. A member whose name ends in json is a JSON object with the caption. */
    RecipeNames caption;
    bool key_ends_last; /* the key ends at the last dot of the file name, not at the first */
} RecipeMembers;
/* The members of a recipe that lacks the key `members`. */
extern const RecipeMembers recipe_default_members;
/* Returns the name of the sample's member that is parsed as JSON: the caption, the filters and the columns need values
 * of it. */
const char *recipe_json_member(const RecipeMembers *members);
bool recipe_member_is_json(const char *name);
/* Tells whether the members are equal to recipe_default_members. */
bool recipe_members_are_usual(const RecipeMembers *members);

typedef struct Recipe {
    char *model; /* a diffusers folder; NULL: not given */
    int side;
    RecipeResample resample;
    int min_side;
    double max_aspect;
    int64_t max_pixels;
    RecipeTokenizer tokenizer;
    bool empty_for_missing; /* a sample without a caption gets the empty caption */
    char *image, *caption;  /* columns of an MDS dataset; caption is also a key in JSON members */
    RecipeMembers members;  /* members of tars */
    RecipeFilter filters[RECIPE_COLUMNS_MAX]; /* sorted by name; keep is sorted, too */
    size_t n_filters;
    RecipeKeep keep[RECIPE_COLUMNS_MAX];
    size_t n_keep;
    int64_t seed;
    int shard_samples;
    double max_rejected;      /* largest share of rejected samples in each 10,000 samples */
    double max_damaged_units; /* largest share of damaged units among all units */
    int batch, threads;       /* threads 0: one thread per processor */
} Recipe;

int recipe_parse(const char *source, const char *text, size_t n_bytes, Recipe **ret, Error *err);
int recipe_read_file(const char *path, Recipe **ret, Error *err);
Recipe *recipe_free(Recipe *recipe);
DEFINE_CLEANUP(Recipe, recipe_free)

/* Returns the canonical form, which the caller frees. It has every key that may change a byte, even with its default
 * value, except `members` and `key_ends_at`, which were added later and are omitted at their defaults. */
json_t *recipe_canonical(const Recipe *recipe);
/* Version of the rules by which samples are read from a tar or a shard. In version 1 a tar without an end counted as
 * complete, a .json with NaN was ignored, and later members of a key formed another sample. */
enum { RECIPE_SAMPLE_RULES = 2 };
/* Returns the hash of the canonical form and of all other facts that decide the samples' bytes. rules is
 * RECIPE_SAMPLE_RULES, or an older version. */
Hash recipe_identity(const Recipe *recipe, int rules, Hash weights, Hash merges, Hash numerics);
/* Returns the encoding of a kept column: "str", "int64" or "float64". */
const char *recipe_kind_name(RecipeKind kind);
