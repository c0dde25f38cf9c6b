/* SPDX-License-Identifier: Apache-2.0 */
/* model-copy.c - see model-copy.h. Networks that are emitted but never measured serve as the lists of tensors. */
#include "encoders/networks/model-copy.h"

#include "encoders/networks/clip-text.h"
#include "encoders/networks/vae.h"

struct ModelCopy {
    Store *store;
    Tape *encoder, *decoder, *text;
};

ModelCopy *model_copy_free(ModelCopy *c)
{
    if (!c)
        return NULL;
    (void)tape_free(c->encoder);
    (void)tape_free(c->decoder);
    (void)tape_free(c->text);
    free(c);
    return NULL;
}

static int emit_vae(ModelCopy *c, const VaeConfig *config, Error *err)
{
    const int factor = vae_config_factor(config);
    const VaeShape shape = {.n = 1, .height = factor, .width = factor};
    VaeValues values;
    int r = vae_encoder_emit(c->encoder, config, &shape, &values, err);
    if (r == 0)
        r = vae_decoder_emit(c->decoder, config, &shape, &values, err);
    if (r == 0)
        r = c->encoder->r < 0 ? c->encoder->r : c->decoder->r;
    return r;
}

int model_copy_open(Store *model, const VaeConfig *vae, const ClipTextConfig *text, ModelCopy **ret,
                    Error *err)
{
    ClipTextValues values;
    _cleanup_(model_copy_freep) ModelCopy *c = calloc(1, sizeof(*c));
    if (!c)
        return error_set(err, -ENOMEM, "out of memory");
    c->store = model;
    if (tape_new(&c->encoder) < 0 || tape_new(&c->decoder) < 0 || tape_new(&c->text) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    int r = emit_vae(c, vae, err);
    if (r == 0)
        r = clip_text_emit(c->text, text, 1, &values, err);
    if (r == 0)
        r = c->text->r;
    if (r < 0)
        return error_errno(err, r, "listing the tensors of %.200s", store_uri(model));
    *ret = TAKE_PTR(c);
    return 0;
}

static size_t lists_of(const ModelCopy *c, ModelKind kind, const ParameterList *ret[2])
{
    ret[0] = kind == MODEL_VAE ? c->encoder->parameters : c->text->parameters;
    ret[1] = c->decoder->parameters;
    return kind == MODEL_VAE ? 2 : 1;
}

uint64_t model_copy_bytes(const ModelCopy *c, ModelKind kind)
{
    const ParameterList *lists[2];
    const size_t n = lists_of(c, kind, lists);
    uint64_t elements = 0;
    for (size_t i = 0; i < n; i++)
        elements += (uint64_t)lists[i]->n_elements;
    return elements * sizeof(float);
}

int model_copy_write(const ModelCopy *c, ModelKind kind, const ModelSink *sink, Error *err)
{
    const ParameterList *lists[2];
    const size_t n = lists_of(c, kind, lists);
    return model_part_copy(c->store, kind, lists, n, sink, err);
}
