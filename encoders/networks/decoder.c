/* SPDX-License-Identifier: Apache-2.0 */
/* decoder.c - see decoder.h: one tape for a batch, and the transfer of its input and output. */
#include "encoders/networks/decoder.h"

#include "base/number/bits.h"
#include "base/number/half.h"
#include "encoders/networks/model-part.h"
#include "encoders/networks/vae.h"

#include <math.h>

enum { BATCH_MAX = 1 << 12, LATENT_SIDE_MAX = 1 << 11 };

struct Decoder {
    Device *device;
    DecoderShape shape;
    int batch;
    VaeConfig config;
    ModelPart vae;
    VaeValues values;
    float *wide;    /* device memory: the input or the output as fp32 */
    void *in, *out; /* device memory: the input and the output in the compute type */
    float *host;    /* host memory: the latents or the pixels of a batch */
};

Decoder *decoder_free(Decoder *d)
{
    if (!d)
        return NULL;
    model_part_close(&d->vae);
    void *const memory[] = {d->wide, d->in, d->out};
    for (size_t i = 0; i < ELEMENTSOF(memory); i++)
        if (memory[i])
            device_release(d->device, memory[i]);
    free(d->host);
    free(d);
    return NULL;
}

const DecoderShape *decoder_shape(const Decoder *d) { return &d->shape; }

static size_t latent_elements(const Decoder *d)
{
    return (size_t)d->shape.latent_channels * (size_t)d->shape.latent_height *
           (size_t)d->shape.latent_width;
}

static size_t pixel_elements(const Decoder *d)
{
    return (size_t)d->shape.height * (size_t)d->shape.width * 3;
}

/* ---- opening ---- */

static int read_config(Decoder *d, Store *store, Error *err)
{
    _cleanup_free_ char *source = NULL, *text = NULL;
    size_t n_bytes;
    int r = model_part_config(store, MODEL_VAE, &source, &text, &n_bytes, err);
    if (r == 0)
        r = vae_config_parse(source, text, n_bytes, &d->config, err);
    if (r < 0)
        return r;
    DecoderShape *s = &d->shape;
    s->latent_channels = d->config.latent_channels;
    s->factor = vae_config_factor(&d->config);
    s->height = s->latent_height * s->factor;
    s->width = s->latent_width * s->factor;
    s->scaling_factor = d->config.scaling_factor;
    return 0;
}

static int plan(Decoder *d, Error *err)
{
    const VaeShape shape = {.n = d->batch, .height = d->shape.height, .width = d->shape.width};
    d->vae.device = d->device;
    int r = tape_new(&d->vae.tape);
    if (r == 0)
        r = vae_decoder_emit(d->vae.tape, &d->config, &shape, &d->values, err);
    if (r == 0)
        r = tape_measure(d->vae.tape, d->device, false, err);
    return r < 0 ? error_prefix(err, r, "VAE's decoder") : 0;
}

/* Loads the decoder of the VAE. The same file holds the encoder's tensors: they are listed so that the file is not
 * refused because of them. */
static int load(Decoder *d, Store *store, Error *err)
{
    _cleanup_(tape_freep) Tape *encoder = NULL;
    _cleanup_(hasher_freep) Hasher *hasher = NULL;
    VaeValues values;
    const int factor = d->shape.factor;
    int r = tape_new(&encoder);
    if (r == 0)
        r = vae_encoder_emit(encoder, &d->config, &(VaeShape){1, factor, factor}, &values, err);
    if (r == 0)
        r = encoder->r;
    if (r == 0)
        r = hasher_new(&hasher);
    if (r < 0)
        return error_errno(err, r, "listing the tensors of the VAE's encoder");
    return model_part_load(&d->vae, store, MODEL_VAE, encoder->parameters, hasher, err);
}

static int take(Decoder *d, size_t n_elements, size_t element_bytes, void **ret, Error *err)
{
    int r = device_allocate(d->device, n_elements * element_bytes, ret, err);
    return r < 0 ? error_prefix(err, r, "decoder's buffers") : 0;
}

static int take_buffers(Decoder *d, Error *err)
{
    const size_t element = data_type_bytes(device_type(d->device));
    const size_t latents = (size_t)d->batch * latent_elements(d);
    const size_t pixels = (size_t)d->batch * pixel_elements(d), most = MAX(latents, pixels);
    void *wide;
    int r = take(d, most, sizeof(float), &wide, err);
    if (r < 0)
        return r;
    d->wide = wide;
    r = take(d, latents, element, &d->in, err);
    if (r == 0)
        r = take(d, pixels, element, &d->out, err);
    if (r < 0)
        return r;
    d->host = malloc(most * sizeof(float));
    return d->host ? 0 : error_set(err, -ENOMEM, "decoder's buffers: out of memory");
}

int decoder_open(Device *device, const DecoderOptions *options, Decoder **ret, Error *err)
{
    const int sides[] = {options->latent_height, options->latent_width};
    if (options->batch < 1 || options->batch > BATCH_MAX)
        return error_set(err, -EINVAL, "batch: %d is not in 1..%d", options->batch, BATCH_MAX);
    for (size_t i = 0; i < ELEMENTSOF(sides); i++)
        if (sides[i] < 1 || sides[i] > LATENT_SIDE_MAX)
            return error_set(err, -EINVAL, "a latent's side: %d is not in 1..%d", sides[i],
                             LATENT_SIDE_MAX);
    _cleanup_(decoder_freep) Decoder *d = calloc(1, sizeof(*d));
    if (!d)
        return error_set(err, -ENOMEM, "decoder: out of memory");
    d->device = device;
    d->batch = options->batch;
    d->shape.latent_height = options->latent_height;
    d->shape.latent_width = options->latent_width;

    _cleanup_(store_freep) Store *store = NULL;
    int r = store_open(options->model, &store, err);
    if (r == 0)
        r = read_config(d, store, err);
    if (r == 0)
        r = plan(d, err);
    if (r == 0)
        r = load(d, store, err);
    if (r == 0)
        r = take_buffers(d, err);
    if (r == 0)
        *ret = TAKE_PTR(d);
    return r;
}

/* ---- running ---- */

static bool is_finite(float x) { return (float_bits(x) & 0x7f800000) != 0x7f800000; }

/* Uploads n latents, given either as floats or as halves. */
static int stage_latents(Decoder *d, int n, const float *floats, const uint16_t *halves, Error *err)
{
    const size_t c = (size_t)d->shape.latent_channels, each = latent_elements(d), area = each / c;
    const float scale = (float)d->shape.scaling_factor;
    for (size_t i = 0; i < (size_t)d->batch * each; i++) {
        const size_t sample = i / each, channel = i % each / area, pixel = i % area;
        float value = 0;
        if (sample < (size_t)n)
            value = floats ? floats[i] : half_to_float(halves[i]);
        if (!is_finite(value))
            return error_set(err, -EDOM, "picture %zu: a latent is %g", sample, (double)value);
        d->host[(sample * area + pixel) * c + channel] = value / scale;
    }
    const bool cast = device_type(d->device) != DATA_F32;
    const size_t n_elements = (size_t)d->batch * each;
    device_upload(d->device, cast ? d->wide : d->in, d->host, n_elements * sizeof(float));
    if (cast)
        cast_from_f32(d->device, (int64_t)n_elements, d->wide, d->in);
    return 0;
}

static int fetch_pixels(Decoder *d, int n, uint8_t *pixels, Error *err)
{
    const size_t each = pixel_elements(d), n_elements = (size_t)n * each;
    const bool cast = device_type(d->device) != DATA_F32;
    if (cast)
        cast_to_f32(d->device, (int64_t)n_elements, d->out, d->wide);
    device_download(d->device, d->host, cast ? d->wide : d->out, n_elements * sizeof(float));
    int r = device_synchronise(d->device, err);
    for (size_t i = 0; r == 0 && i < n_elements; i++) {
        const float value = d->host[i] / 2 + 0.5f;
        if (!is_finite(value))
            return error_set(err, -EDOM, "picture %zu: a pixel is %g", i / each, (double)value);
        pixels[i] = (uint8_t)lrintf(CLAMP(value, 0.0f, 1.0f) * 255);
    }
    return r;
}

static int run(Decoder *d, int n, const float *floats, const uint16_t *halves, uint8_t *pixels,
               Error *err)
{
    assert(n >= 1 && n <= d->batch);
    int r = stage_latents(d, n, floats, halves, err);
    if (r < 0)
        return r;
    tape_bind(d->vae.tape, d->values.in, d->in);
    tape_bind_output(d->vae.tape, d->values.out, d->out);
    tape_forward(d->vae.tape);
    return fetch_pixels(d, n, pixels, err);
}

int decoder_run(Decoder *d, int n, const float *latents, uint8_t *pixels, Error *err)
{
    return run(d, n, latents, NULL, pixels, err);
}

int decoder_run_halves(Decoder *d, int n, const uint16_t *latents, uint8_t *pixels, Error *err)
{
    return run(d, n, NULL, latents, pixels, err);
}
