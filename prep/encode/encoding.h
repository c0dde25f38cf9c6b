/* SPDX-License-Identifier: Apache-2.0 */
/* encoding.h - a recipe with its model opened: what makes samples of pictures and captions, and its identity.
 *
 * Ownership: encoding_open() fills an Encoding that encoding_clear() empties; the Recipe is borrowed.
 * Units:     as encoder.h.
 * Errors:    as encoder_open() and tokenizer_open(); -EINVAL a recipe without a model.
 * Threads:   one.
 */
#pragma once

#include "encoders/networks/encoder.h"
#include "encoders/pictures/picture-decode.h"
#include "encoders/tokenizer/tokenizer.h"
#include "protocol/recipe.h"

typedef struct Encoding {
    const Recipe *recipe;
    PictureRecipe picture;
    Device *device; /* NULL, as what follows: pictures and captions are only looked at */
    Encoder *encoder;
    Tokenizer *tokenizer;
    TokenizerScratch *scratch;
    EncoderShape shape;
    Hash weights, merges;
    Hash numerics; /* of what canned pictures and a canned caption become */
    Hash identity;
    Hash before; /* the identity by the rules before RECIPE_SAMPLE_RULES */
} Encoding;

typedef struct EncodingOptions {
    bool
        networks; /* false: for a check without them, for which a model is only looked at if there is one */
    DeviceKind device;
    int threads; /* 0: as the recipe says */
} EncodingOptions;

/* The values that the identity is the hash of, by name; the caller's. */
json_t *encoding_terms(const Encoding *encoding);
int encoding_open(const Recipe *recipe, const EncodingOptions *options, Encoding *ret, Error *err);
void encoding_clear(Encoding *encoding);

/* The text embedding of the empty caption, n_tokens x text_dim halves. */
int encoding_empty_text(Encoding *encoding, uint16_t *ret, Error *err);
