/* SPDX-License-Identifier: Apache-2.0 */
/* encoding.c - see encoding.h. */
#include "prep/encode/encoding.h"

#include "base/json/json.h"
#include "base/log.h"
#include "encoders/networks/model-tokenizer.h"
#include "prep/encode/canned-pictures.h"
#include "store/store.h"

#include <string.h>

/* A caption with unusual characters. Encoding.numerics includes its embedding, and so depends on its token ids. */
static const char canned_caption[] = "A photo of two caf\xc3\xa9s, 12 o'clock";

static int open_tokenizer(Encoding *e, Error *err)
{
    _cleanup_(store_freep) Store *store = NULL;
    TokenizerRules rules =
        e->recipe->tokenizer == RECIPE_OPEN_CLIP ? TOKENIZER_OPEN_CLIP : TOKENIZER_DIFFUSERS;
    int r = store_open(e->recipe->model, &store, err);
    return r < 0 ? r
                 : model_tokenizer_open(store, rules, e->shape.vocabulary, e->shape.n_tokens,
                                        &e->tokenizer, err);
}

/* Hashes the networks' results for a fixed picture and caption, and the decoders' results for fixed pictures: two
 * machines with the same hash, with these weights, make the same samples. */
static int measure_numerics(Encoding *e, Error *err)
{
    const EncoderShape *s = &e->shape;
    size_t n_pixels = (size_t)s->side * (size_t)s->side * 3;
    size_t n_latents = (size_t)s->latent_channels * (size_t)s->latent_side * (size_t)s->latent_side;
    size_t n_text = (size_t)s->n_tokens * (size_t)s->text_dim;
    _cleanup_free_ uint8_t *pixels = malloc(n_pixels);
    _cleanup_free_ int32_t *ids = malloc(sizeof(int32_t) * (size_t)s->n_tokens);
    _cleanup_free_ uint16_t *values = malloc(2 * (n_latents + n_text));
    Hash parts[2]; /* hashes of the networks' and of the decoders' results */
    if (!pixels || !ids || !values)
        return error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < n_pixels; i++)
        pixels[i] = (uint8_t)(i * 2654435761U >> 7 ^ i / 97);
    int r =
        tokenizer_encode(e->tokenizer, &e->scratch, canned_caption, strlen(canned_caption), ids);
    if (r < 0)
        return error_errno(err, r, "the tokenizer of %s", e->recipe->model);
    r = encoder_run(e->encoder, 1, pixels, ids, values, values + n_latents, err);
    if (r < 0)
        return error_prefix(err, r, "a canned picture and caption");
    parts[0] = hash_bytes(values, 2 * (n_latents + n_text));
    r = canned_pictures_hash(&parts[1], err);
    if (r == 0)
        e->numerics = hash_bytes(parts, sizeof(parts));
    return r;
}

static int open_model(Encoding *e, const EncodingOptions *options, Error *err)
{
    const Recipe *recipe = e->recipe;
    if (!recipe->model)
        return error_set(err, -EINVAL, "the recipe has no model: a diffusers folder is needed");
    int threads = options->threads ? options->threads : recipe->threads;
    if (threads == 0)
        threads = (int)CLAMP(sysconf(_SC_NPROCESSORS_ONLN), 1, 1024);
    DeviceOptions device = {.kind = options->device, .threads = threads, .type = DATA_F32};
    EncoderOptions model = {recipe->model, recipe->side, recipe->batch};
    int r = device_open(&device, &e->device, err);
    if (r == 0)
        r = encoder_open(e->device, &model, &e->encoder, err);
    if (r < 0)
        return r;
    e->shape = *encoder_shape(e->encoder);
    e->weights = encoder_weights_hash(e->encoder);
    r = open_tokenizer(e, err);
    if (r < 0)
        return r;
    e->merges = tokenizer_hash(e->tokenizer);
    r = measure_numerics(e, err);
    if (r < 0)
        return r;
    e->identity = recipe_identity(recipe, RECIPE_SAMPLE_RULES, e->weights, e->merges, e->numerics);
    e->before =
        recipe_identity(recipe, RECIPE_SAMPLE_RULES - 1, e->weights, e->merges, e->numerics);
    return 0;
}

/* Refuses a model that open_model() would refuse, without loading the networks. If the store does not answer, logs only
 * a warning, since the store may answer later. */
static int look_at_model(Encoding *e, Error *err)
{
    const Recipe *recipe = e->recipe;
    const EncoderOptions model = {recipe->model, recipe->side, recipe->batch};
    int r = encoder_look(&model, &e->shape, err);
    if (r == 0)
        r = open_tokenizer(e, err);
    if (r == -EHOSTUNREACH) {
        log_warning("the model was not looked at, its store does not answer: %s", err->text);
        return 0;
    }
    return r < 0 ? error_prefix(err, r, "model") : 0;
}

json_t *encoding_terms(const Encoding *e)
{
    json_t *terms = json_object();
    json_object_set_new(terms, "recipe", recipe_canonical(e->recipe));
    json_object_set_new(terms, "weights", json_hash(e->weights));
    json_object_set_new(terms, "merges", json_hash(e->merges));
    json_object_set_new(terms, "numerics", json_hash(e->numerics));
    json_object_set_new(terms, "sample_rules", json_integer(RECIPE_SAMPLE_RULES));
    return terms;
}

int encoding_open(const Recipe *recipe, const EncodingOptions *options, Encoding *ret, Error *err)
{
    *ret = (Encoding){.recipe = recipe,
                      .picture = {.side = recipe->side,
                                  .resample = recipe->resample == RECIPE_BICUBIC ? PICTURE_BICUBIC
                                                                                 : PICTURE_BILINEAR,
                                  .max_pixels = recipe->max_pixels,
                                  .max_aspect = recipe->max_aspect,
                                  .min_side = recipe->min_side}};
    int r = picture_recipe_check(&ret->picture, err);
    if (r == 0 && options->networks)
        r = open_model(ret, options, err);
    else if (r == 0 && recipe->model)
        r = look_at_model(ret, err);
    if (r < 0)
        encoding_clear(ret);
    return r;
}

void encoding_clear(Encoding *e)
{
    tokenizer_scratch_free(e->scratch);
    tokenizer_free(e->tokenizer);
    encoder_free(e->encoder);
    device_free(e->device);
    *e = (Encoding){0};
}

int encoding_empty_text(Encoding *e, uint16_t *ret, Error *err)
{
    _cleanup_free_ int32_t *ids = malloc(sizeof(int32_t) * (size_t)e->shape.n_tokens);
    if (!ids)
        return error_set(err, -ENOMEM, "out of memory");
    int r = tokenizer_encode(e->tokenizer, &e->scratch, "", 0, ids);
    if (r < 0)
        return error_errno(err, r, "the empty caption");
    return encoder_run(e->encoder, 1, NULL, ids, NULL, ret, err);
}
