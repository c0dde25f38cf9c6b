/* SPDX-License-Identifier: Apache-2.0 */
/* recipe.h - how pictures and captions become samples: the file that a person writes, checked, with all defaults.
 *
 * The stored sample is a function of the recipe, the model's weights, the device's numerics, the raw bytes and the
 * sample's place. Two datasets may be joined only where all of these are the same, so the recipe has a canonical
 * form, and what may change no byte (where the model lies, batch, threads, when to give up) is not in it.
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
    bool keep_missing; /* a sample without the value is taken */
} RecipeFilter;

typedef struct RecipeKeep {
    char column[RECIPE_NAME_MAX + 1];
    RecipeKind kind;
} RecipeKeep;

enum { RECIPE_MEMBERS_MAX = 16, RECIPE_MEMBER_MAX = 31 };

/* The parts of names of a tar's members that stand behind the key and its dot: "jpg", "input.jpg". */
typedef struct RecipeNames {
    char names[RECIPE_MEMBERS_MAX][RECIPE_MEMBER_MAX + 1];
    size_t n;
} RecipeNames;

/* The members of a tar that are a sample's. */
typedef struct RecipeMembers {
    RecipeNames image; /* a sample has one of them */
    RecipeNames
        caption; /* the first that is there; one that ends with json is an object that holds it */
    bool
        key_ends_last; /* the key goes up to the last dot of a name's last part, not to the first */
} RecipeMembers;
/* The members of a recipe that names none. */
extern const RecipeMembers recipe_default_members;
/* The member that is read as .json: for its caption, filters and columns. */
const char *recipe_json_member(const RecipeMembers *members);
bool recipe_member_is_json(const char *name);
/* Whether they are recipe_default_members. */
bool recipe_members_are_usual(const RecipeMembers *members);

typedef struct Recipe {
    char *model; /* a diffusers folder; NULL: none is named */
    int side;
    RecipeResample resample;
    int min_side;
    double max_aspect;
    int64_t max_pixels;
    RecipeTokenizer tokenizer;
    bool empty_for_missing; /* a sample without a caption has the empty one */
    char *image, *caption;  /* columns of an MDS dataset; the latter also a key of .json */
    RecipeMembers members;  /* of tars */
    RecipeFilter filters[RECIPE_COLUMNS_MAX]; /* sorted by name, as keep */
    size_t n_filters;
    RecipeKeep keep[RECIPE_COLUMNS_MAX];
    size_t n_keep;
    int64_t seed;
    int shard_samples;
    double max_rejected;      /* of each 10,000 samples */
    double max_damaged_units; /* of all */
    int batch, threads;       /* threads 0: as many as there are processors */
} Recipe;

int recipe_parse(const char *source, const char *text, size_t n_bytes, Recipe **ret, Error *err);
int recipe_read_file(const char *path, Recipe **ret, Error *err);
Recipe *recipe_free(Recipe *recipe);
DEFINE_CLEANUP(Recipe, recipe_free)

/* The canonical form, the caller's: every key that may change a byte, also where the default holds, but for `members`
 * and `key_ends_at`, which came later. */
json_t *recipe_canonical(const Recipe *recipe);
/* The rules by which a tar or a shard gives samples. 1: a tar without an end was whole, a .json with NaN was none, and
 * a key's later members were a sample of their own. */
enum { RECIPE_SAMPLE_RULES = 2 };
/* Hash of the canonical form and of what else decides on bytes. rules: RECIPE_SAMPLE_RULES, or what it was. */
Hash recipe_identity(const Recipe *recipe, int rules, Hash weights, Hash merges, Hash numerics);
/* "str", "int64", "float64": the encoding of a column that is kept. */
const char *recipe_kind_name(RecipeKind kind);
