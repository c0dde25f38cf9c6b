/* SPDX-License-Identifier: Apache-2.0 */
/* encoding.h - a recipe with its opened model: it encodes pictures and captions, and has an identity.
 *
 * Units: as encoder.h. Threads: one.
 * Ownership: encoding_open() fills an Encoding that encoding_clear() empties; the Recipe is borrowed.
 * Errors:    as encoder_open() and tokenizer_open(); -EINVAL a recipe without a model.
 */
#pragma once

#include "encoders/networks/encoder.h"
#include "encoders/pictures/picture-decode.h"
#include "encoders/tokenizer/tokenizer.h"
#include "protocol/recipe.h"

typedef struct Encoding {
    const Recipe *recipe;
    PictureRecipe picture;
    Device *device; /* NULL: nothing is encoded, and the next three pointers are NULL, too */
    Encoder *encoder;
    Tokenizer *tokenizer;
    TokenizerScratch *scratch;
    EncoderShape shape;
    Hash weights, merges;
    Hash numerics; /* hash of the results for canned pictures and a canned caption */
    Hash identity;
    Hash before; /* the identity by the rules before RECIPE_SAMPLE_RULES */
} Encoding;

typedef struct EncodingOptions {
    /* False: pictures and captions are only checked. The networks are not loaded; a model, if any, is inspected. */
    bool networks;
    DeviceKind device;
    int threads; /* 0: the recipe's number */
} EncodingOptions;

/* Returns, by name, the values whose hash is the identity; the caller frees them. */
json_t *encoding_terms(const Encoding *encoding);
int encoding_open(const Recipe *recipe, const EncodingOptions *options, Encoding *ret, Error *err);
void encoding_clear(Encoding *encoding);

/* Writes the text embedding of the empty caption, n_tokens x text_dim halves. */
int encoding_empty_text(Encoding *encoding, uint16_t *ret, Error *err);
