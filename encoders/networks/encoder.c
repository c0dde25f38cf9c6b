/* SPDX-License-Identifier: Apache-2.0 */
/* encoder.c - see encoder.h: two tapes of one batch, and the transfer of their input and output. */
#include "encoders/networks/encoder.h"

#include "base/number/half.h"
#include "encoders/networks/clip-text.h"
#include "encoders/networks/model-part.h"
#include "encoders/networks/vae.h"

#include <string.h>

enum { BATCH_MAX = 1 << 12, SIDE_MAX = 1 << 14 };

struct Encoder {
    Device *device;
    EncoderShape shape;
    int batch;
    Hash weights_hash;
    VaeConfig vae_config;
    ClipTextConfig text_config;
    ModelPart vae, text;
    VaeValues vae_values;
    ClipTextValues text_values;
    /* Device memory. wide: the input or the output of a network as fp32. */
    float *wide;
    void *pixels, *moments; /* device memory, in the compute type; NULL: no VAE is loaded */
    void *hidden;
    int32_t *ids;
    float *host; /* host memory: one sample's pixels, or all results of one network */
};

Encoder *encoder_free(Encoder *e)
{
    if (!e)
        return NULL;
    model_part_close(&e->vae);
    model_part_close(&e->text);
    void *const memory[] = {e->wide, e->pixels, e->moments, e->hidden, e->ids};
    for (size_t i = 0; i < ELEMENTSOF(memory); i++)
        if (memory[i])
            device_release(e->device, memory[i]);
    free(e->host);
    free(e);
    return NULL;
}

const EncoderShape *encoder_shape(const Encoder *e) { return &e->shape; }

Hash encoder_weights_hash(const Encoder *e) { return e->weights_hash; }

/* ---- sizes ---- */

static size_t pixel_elements(const Encoder *e)
{
    return (size_t)e->shape.side * (size_t)e->shape.side * 3;
}

static size_t latent_elements(const Encoder *e)
{
    return (size_t)e->shape.latent_channels * (size_t)e->shape.latent_side *
           (size_t)e->shape.latent_side;
}

static size_t text_elements(const Encoder *e)
{
    return (size_t)e->shape.n_tokens * (size_t)e->shape.text_dim;
}

/* ---- opening ---- */

static int read_configs(Encoder *e, Store *store, Error *err)
{
    size_t n_bytes;
    int r = 0;
    if (e->shape.side > 0) {
        _cleanup_free_ char *source = NULL, *text = NULL;
        r = model_part_config(store, MODEL_VAE, &source, &text, &n_bytes, err);
        if (r == 0)
            r = vae_config_parse(source, text, n_bytes, &e->vae_config, err);
    }
    _cleanup_free_ char *source = NULL, *text = NULL;
    if (r == 0)
        r = model_part_config(store, MODEL_TEXT_ENCODER, &source, &text, &n_bytes, err);
    if (r == 0)
        r = clip_text_config_parse(source, text, n_bytes, &e->text_config, err);
    return r;
}

static int fill_shape(Encoder *e, const char *model, Error *err)
{
    EncoderShape *s = &e->shape;
    if (s->side > 0) {
        const int factor = vae_config_factor(&e->vae_config);
        if (s->side % factor != 0)
            return error_set(err, -EINVAL,
                             "side: %d is not a multiple of %d, which the VAE of %.200s needs",
                             s->side, factor, model);
        s->latent_channels = e->vae_config.latent_channels;
        s->latent_side = s->side / factor;
        s->scaling_factor = e->vae_config.scaling_factor;
    }
    s->n_tokens = e->text_config.max_position_embeddings;
    s->text_dim = e->text_config.hidden_size;
    s->vocabulary = e->text_config.vocab_size;
    return 0;
}

/* Emits and measures both networks, so that the memory of both is known before any memory is allocated. */
static int plan(Encoder *e, Error *err)
{
    int r = 0;
    e->vae.device = e->text.device = e->device;
    if (e->shape.side > 0) {
        const VaeShape shape = {.n = e->batch, .height = e->shape.side, .width = e->shape.side};
        r = tape_new(&e->vae.tape);
        if (r == 0)
            r = vae_encoder_emit(e->vae.tape, &e->vae_config, &shape, &e->vae_values, err);
        if (r == 0)
            r = tape_measure(e->vae.tape, e->device, false, err);
        if (r < 0)
            return error_prefix(err, r, "VAE");
    }
    r = tape_new(&e->text.tape);
    if (r == 0)
        r = clip_text_emit(e->text.tape, &e->text_config, e->batch, &e->text_values, err);
    if (r == 0)
        r = tape_measure(e->text.tape, e->device, false, err);
    return r < 0 ? error_prefix(err, r, "text encoder") : 0;
}

static int take(Encoder *e, size_t n_elements, size_t element_bytes, void *ret, Error *err)
{
    void *memory;
    int r = device_allocate(e->device, MAX(n_elements, 1) * element_bytes, &memory, err);
    if (r == 0)
        memcpy(ret, &memory, sizeof(memory));
    return r;
}

static int take_buffers(Encoder *e, Error *err)
{
    const size_t batch = (size_t)e->batch, element = data_type_bytes(device_type(e->device));
    const size_t pixels = batch * pixel_elements(e), moments = 2 * batch * latent_elements(e);
    const size_t text = batch * text_elements(e);
    int r = take(e, MAX(MAX(pixels, moments), text), sizeof(float), &e->wide, err);
    if (r == 0 && e->shape.side > 0)
        r = take(e, pixels, element, &e->pixels, err);
    if (r == 0 && e->shape.side > 0)
        r = take(e, moments, element, &e->moments, err);
    if (r == 0)
        r = take(e, text, element, &e->hidden, err);
    if (r == 0)
        r = take(e, batch * (size_t)e->shape.n_tokens, sizeof(int32_t), &e->ids, err);
    if (r < 0)
        return error_prefix(err, r, "encoder's buffers");
    e->host = malloc(MAX(MAX(pixel_elements(e), moments), text) * sizeof(float));
    if (!e->host)
        return error_set(err, -ENOMEM, "encoder's buffers: out of memory");
    return 0;
}

static void hash_vae_config(Hasher *hasher, const VaeConfig *c)
{
    char text[512];
    int n =
        snprintf(text, sizeof(text),
                 "vae latent_channels=%d layers_per_block=%d norm_num_groups=%d "
                 "scaling_factor=%.17g block_out_channels=",
                 c->latent_channels, c->layers_per_block, c->norm_num_groups, c->scaling_factor);
    hasher_update(hasher, text, (size_t)n);
    for (int i = 0; i < c->n_levels; i++) {
        n = snprintf(text, sizeof(text), "%d,", c->block_out_channels[i]);
        hasher_update(hasher, text, (size_t)n);
    }
}

static void hash_text_config(Hasher *hasher, const ClipTextConfig *c)
{
    char text[512];
    int n =
        snprintf(text, sizeof(text),
                 "text vocab_size=%d max_position_embeddings=%d hidden_size=%d "
                 "intermediate_size=%d num_hidden_layers=%d num_attention_heads=%d "
                 "layer_norm_eps=%.17g",
                 c->vocab_size, c->max_position_embeddings, c->hidden_size, c->intermediate_size,
                 c->num_hidden_layers, c->num_attention_heads, c->layer_norm_eps);
    hasher_update(hasher, text, (size_t)n);
}

typedef int (*EmitVae)(Tape *tape, const VaeConfig *config, const VaeShape *shape, VaeValues *ret,
                       Error *err);

/* Makes a tape that serves only as a list of tensors. */
static int list_vae(const Encoder *e, EmitVae emit, const char *what, Tape **ret, Error *err)
{
    _cleanup_(tape_freep) Tape *tape = NULL;
    VaeValues values;
    const int factor = vae_config_factor(&e->vae_config);
    int r = tape_new(&tape);
    if (r == 0)
        r = emit(tape, &e->vae_config, &(VaeShape){1, factor, factor}, &values, err);
    if (r == 0)
        r = tape->r;
    if (r < 0)
        return error_errno(err, r, "listing the tensors of the VAE's %s", what);
    *ret = TAKE_PTR(tape);
    return 0;
}

/* Loads the encoder of the VAE. The same file holds the decoder's tensors: they are listed so that the file is not
 * refused because of them. */
static int load_vae(Encoder *e, Store *store, Hasher *hasher, Error *err)
{
    _cleanup_(tape_freep) Tape *decoder = NULL;
    int r = list_vae(e, vae_decoder_emit, "decoder", &decoder, err);
    if (r < 0)
        return r;
    hash_vae_config(hasher, &e->vae_config);
    return model_part_load(&e->vae, store, MODEL_VAE, decoder->parameters, hasher, err);
}

static int load(Encoder *e, Store *store, Error *err)
{
    _cleanup_(hasher_freep) Hasher *hasher = NULL;
    int r = hasher_new(&hasher);
    if (r < 0)
        return error_errno(err, r, "hash of the weights");
    if (e->shape.side > 0)
        r = load_vae(e, store, hasher, err);
    if (r < 0)
        return r;
    hash_text_config(hasher, &e->text_config);
    r = model_part_load(&e->text, store, MODEL_TEXT_ENCODER, NULL, hasher, err);
    e->weights_hash = hasher_digest(hasher);
    return r;
}

/* ---- checking without loading ---- */

static int look_at_vae(const Encoder *e, Store *store, Error *err)
{
    _cleanup_(tape_freep) Tape *encoder = NULL, *decoder = NULL;
    int r = list_vae(e, vae_encoder_emit, "encoder", &encoder, err);
    if (r == 0)
        r = list_vae(e, vae_decoder_emit, "decoder", &decoder, err);
    return r < 0 ? r
                 : model_part_look(store, MODEL_VAE, encoder->parameters, decoder->parameters, err);
}

static int look_at_text(const Encoder *e, Store *store, Error *err)
{
    _cleanup_(tape_freep) Tape *tape = NULL;
    ClipTextValues values;
    int r = tape_new(&tape);
    if (r == 0)
        r = clip_text_emit(tape, &e->text_config, 1, &values, err);
    if (r == 0)
        r = tape->r;
    if (r < 0)
        return error_errno(err, r, "listing the tensors of the text encoder");
    return model_part_look(store, MODEL_TEXT_ENCODER, tape->parameters, NULL, err);
}

static int check_options(const EncoderOptions *options, Error *err)
{
    if (options->batch < 1 || options->batch > BATCH_MAX)
        return error_set(err, -EINVAL, "batch: %d is not in 1..%d", options->batch, BATCH_MAX);
    if (options->side < 0 || options->side > SIDE_MAX)
        return error_set(err, -EINVAL, "side: %d is not in 1..%d", options->side, SIDE_MAX);
    return 0;
}

int encoder_look(const EncoderOptions *options, EncoderShape *ret, Error *err)
{
    Encoder e = {.shape.side = options->side};
    _cleanup_(store_freep) Store *store = NULL;
    int r = check_options(options, err);
    if (r == 0)
        r = store_open(options->model, &store, err);
    if (r == 0)
        r = read_configs(&e, store, err);
    if (r == 0)
        r = fill_shape(&e, options->model, err);
    if (r == 0 && options->side > 0)
        r = look_at_vae(&e, store, err);
    if (r == 0)
        r = look_at_text(&e, store, err);
    if (r == 0)
        *ret = e.shape;
    return r;
}

int encoder_open(Device *device, const EncoderOptions *options, Encoder **ret, Error *err)
{
    int r = check_options(options, err);
    if (r < 0)
        return r;
    _cleanup_(encoder_freep) Encoder *e = calloc(1, sizeof(*e));
    if (!e)
        return error_set(err, -ENOMEM, "encoder: out of memory");
    e->device = device;
    e->batch = options->batch;
    e->shape.side = options->side;

    _cleanup_(store_freep) Store *store = NULL;
    r = store_open(options->model, &store, err);
    if (r == 0)
        r = read_configs(e, store, err);
    if (r == 0)
        r = fill_shape(e, options->model, err);
    if (r == 0)
        r = plan(e, err);
    if (r == 0)
        r = load(e, store, err);
    if (r == 0)
        r = take_buffers(e, err);
    if (r == 0)
        *ret = TAKE_PTR(e);
    return r;
}

/* ---- running ---- */

/* Rounds a value to half precision once; -EDOM if the result is not finite. */
static int to_half(int sample, const char *what, float value, uint16_t *ret, Error *err)
{
    *ret = half_from_float(value);
    if ((*ret & 0x7c00) != 0x7c00)
        return 0;
    return error_set(err, -EDOM, "sample %d: %s holds %g, which is not finite as a half", sample,
                     what, (double)value);
}

/* Uploads pixels as v / 127.5 - 1 for each byte v, rounded once. */
static void stage_pixels(Encoder *e, int n, const uint8_t *pixels)
{
    const size_t each = pixel_elements(e);
    float value[256];
    for (int i = 0; i < 256; i++)
        value[i] = (float)(i / 127.5 - 1.0);
    const bool cast = device_type(e->device) != DATA_F32;
    float *to = cast ? e->wide : e->pixels;
    for (int i = 0; i < e->batch; i++) {
        for (size_t k = 0; k < each; k++)
            e->host[k] = value[i < n ? pixels[(size_t)i * each + k] : 0];
        device_upload(e->device, to + (size_t)i * each, e->host, each * sizeof(float));
    }
    if (cast)
        cast_from_f32(e->device, (int64_t)((size_t)e->batch * each), e->wide, e->pixels);
}

/* Copies a network's result to e->host, as fp32. */
static void fetch(Encoder *e, size_t n_elements, const void *from)
{
    const bool cast = device_type(e->device) != DATA_F32;
    if (cast)
        cast_to_f32(e->device, (int64_t)n_elements, from, e->wide);
    device_download(e->device, e->host, cast ? e->wide : from, n_elements * sizeof(float));
}

static int run_vae(Encoder *e, int n, const uint8_t *pixels, uint16_t *latents, Error *err)
{
    const size_t c = (size_t)e->shape.latent_channels, each = latent_elements(e), area = each / c;
    const float scale = (float)e->shape.scaling_factor;
    stage_pixels(e, n, pixels);
    tape_bind(e->vae.tape, e->vae_values.in, e->pixels);
    tape_bind_output(e->vae.tape, e->vae_values.out, e->moments);
    tape_forward(e->vae.tape);
    fetch(e, (size_t)e->batch * 2 * each, e->moments);
    int r = device_synchronise(e->device, err);
    for (int i = 0; i < n; i++)
        for (size_t k = 0; r == 0 && k < each; k++) {
            const size_t channel = k / area, pixel = k % area;
            const float mean = e->host[((size_t)i * area + pixel) * 2 * c + channel];
            r = to_half(i, "the latent", mean * scale, &latents[(size_t)i * each + k], err);
        }
    return r;
}

static int run_text(Encoder *e, int n, const int32_t *ids, uint16_t *text, Error *err)
{
    const size_t n_tokens = (size_t)e->shape.n_tokens, each = text_elements(e);
    for (size_t i = 0; i < (size_t)n * n_tokens; i++)
        if (ids[i] < 0 || ids[i] >= e->shape.vocabulary)
            return error_set(err, -EINVAL, "sample %zu: id %d is not in 0..%d", i / n_tokens,
                             ids[i], e->shape.vocabulary - 1);
    const size_t id_bytes = n_tokens * sizeof(*ids);
    device_clear(e->device, e->ids, (size_t)e->batch * id_bytes);
    device_upload(e->device, e->ids, ids, (size_t)n * id_bytes);
    tape_bind(e->text.tape, e->text_values.ids, e->ids);
    tape_bind_output(e->text.tape, e->text_values.out, e->hidden);
    tape_forward(e->text.tape);
    fetch(e, (size_t)e->batch * each, e->hidden);
    int r = device_synchronise(e->device, err);
    for (size_t k = 0; r == 0 && k < (size_t)n * each; k++)
        r = to_half((int)(k / each), "the caption's text", e->host[k], &text[k], err);
    return r;
}

int encoder_run(Encoder *e, int n, const uint8_t *pixels, const int32_t *ids, uint16_t *latents,
                uint16_t *text, Error *err)
{
    assert(n >= 1 && n <= e->batch);
    assert((pixels == NULL) == (latents == NULL) && (ids == NULL) == (text == NULL));
    assert(!pixels || e->shape.side > 0);
    int r = pixels ? run_vae(e, n, pixels, latents, err) : 0;
    if (r == 0 && ids)
        r = run_text(e, n, ids, text, err);
    return r;
}
