/* SPDX-License-Identifier: Apache-2.0 */
/* model.c - see model.h. */
#include "trainer/sample/model.h"

#include "base/log.h"
#include "base/number/half.h"
#include "encoders/networks/encoder.h"
#include "encoders/networks/model-fit.h"
#include "encoders/networks/model-tokenizer.h"

#include <string.h>

enum { TEXTS_AT_ONCE = 8 };

static ModelWanted wanted(const SampleModel *m)
{
    return (ModelWanted){.network = m->job->model.config_uri,
                         .latent_channels = m->data->channels,
                         .n_tokens = m->data->text_tokens,
                         .text_dim = m->data->text_dim,
                         .latent_scale = m->job->data.latent_scale,
                         .stored_scale = m->facts ? m->facts->scaling_factor : 0};
}

int sample_model_decoder(const SampleModel *m, Decoder **ret, Error *err)
{
    const DecoderOptions options = {.model = m->uri,
                                    .latent_height = m->data->height,
                                    .latent_width = m->data->width,
                                    .batch = 1};
    const ModelWanted w = wanted(m);
    _cleanup_(store_freep) Store *store = NULL;
    VaeConfig config;
    int r = store_open(m->uri, &store, err);
    if (r == 0)
        r = model_fit_vae(store, &w, &config, err);
    return r < 0 ? r : decoder_open(m->device, &options, ret, err);
}

/* ---- weights ---- */

static void compare(const SampleModel *m, const char *what, Hash found, Hash wanted)
{
    char here[HASH_TEXT_BYTES], there[HASH_TEXT_BYTES];
    if (!hash_equal(found, wanted))
        log_warning("%s has other %s (%s) than what made the data by " ENCODER_FACTS_NAME
                    " (%s): pictures and captions may be wrong",
                    m->uri, what, hash_format(found, here), hash_format(wanted, there));
}

/* Opens the text encoder. encoder_weights_hash() also covers the VAE's encoder. So, if m->facts has a hash to compare
 * with, the VAE's encoder is opened, too, for the smallest picture: the hash does not depend on the picture's size. */
static int open_encoder(const SampleModel *m, Store *store, int batch, Encoder **ret, Error *err)
{
    const ModelWanted w = wanted(m);
    VaeConfig vae;
    EncoderOptions options = {.model = m->uri, .batch = batch};
    if (m->facts) {
        int r = model_fit_vae(store, &w, &vae, err);
        if (r < 0)
            return r;
        options.side = vae_config_factor(&vae);
    }
    int r = encoder_open(m->device, &options, ret, err);
    if (r == 0 && m->facts)
        compare(m, "weights", encoder_weights_hash(*ret), m->facts->weights);
    return r;
}

void sample_model_compare(const SampleModel *m)
{
    Error err = ERROR_INIT;
    _cleanup_(encoder_freep) Encoder *encoder = NULL;
    _cleanup_(store_freep) Store *store = NULL;
    if (!m->facts)
        return;
    int r = store_open(m->uri, &store, &err);
    if (r == 0)
        r = open_encoder(m, store, 1, &encoder, &err);
    if (r < 0) /* not an error: only the decoder is needed */
        log_warning("nobody knows whether %s made the data: %s", m->uri, err.text);
}

/* ---- captions ---- */

typedef struct Captions {
    Encoder *encoder;
    Tokenizer *tokenizer;
    TokenizerScratch *scratch;
    int32_t *ids;    /* tokens of TEXTS_AT_ONCE captions */
    uint16_t *texts; /* embeddings of TEXTS_AT_ONCE captions */
} Captions;

static void captions_close(Captions *c)
{
    (void)tokenizer_scratch_free(c->scratch);
    (void)tokenizer_free(c->tokenizer);
    (void)encoder_free(c->encoder);
    free(c->ids);
    free(c->texts);
}

static int captions_open(const SampleModel *m, Captions *c, Error *err)
{
    const TokenizerRules rules =
        m->facts && m->facts->diffusers_rules ? TOKENIZER_DIFFUSERS : TOKENIZER_OPEN_CLIP;
    const ModelWanted w = wanted(m);
    _cleanup_(store_freep) Store *store = NULL;
    ClipTextConfig config;
    int r = store_open(m->uri, &store, err);
    if (r == 0)
        r = model_fit_text(store, &w, &config, err);
    if (r == 0)
        r = open_encoder(m, store, TEXTS_AT_ONCE, &c->encoder, err);
    if (r < 0)
        return r;
    const EncoderShape *s = encoder_shape(c->encoder);
    r = model_tokenizer_open(store, rules, s->vocabulary, s->n_tokens, &c->tokenizer, err);
    if (r < 0)
        return r;
    if (m->facts)
        compare(m, "merges", tokenizer_hash(c->tokenizer), m->facts->merges);
    c->ids = calloc((size_t)TEXTS_AT_ONCE * (size_t)s->n_tokens, sizeof(*c->ids));
    c->texts =
        calloc((size_t)TEXTS_AT_ONCE * (size_t)(s->n_tokens * s->text_dim), sizeof(*c->texts));
    return c->ids && c->texts ? 0 : error_set(err, -ENOMEM, "out of memory for captions");
}

static int tokenize(Captions *c, int number, const char *caption, int32_t *ret, Error *err)
{
    int r = tokenizer_encode(c->tokenizer, &c->scratch, caption, strlen(caption), ret);
    if (r == -EILSEQ)
        return error_set(err, r, "caption %d is not UTF-8", number);
    return r < 0 ? error_errno(err, r, "caption %d", number) : 0;
}

/* Returns caption i. The empty caption comes last, as number n. */
static const char *caption_at(char *const *captions, int n, int i)
{
    return i < n ? captions[i] : "";
}

int sample_model_captions(const SampleModel *m, char *const *captions, int n, float *ret,
                          float *ret_empty, Error *err)
{
    _cleanup_(captions_close) Captions c = {0};
    const size_t each = (size_t)m->data->text_tokens * (size_t)m->data->text_dim;
    int r = captions_open(m, &c, err);
    for (int first = 0; r == 0 && first <= n; first += TEXTS_AT_ONCE) {
        const int n_now = MIN(n + 1 - first, (int)TEXTS_AT_ONCE);
        for (int i = 0; r == 0 && i < n_now; i++)
            r = tokenize(&c, first + i + 1, caption_at(captions, n, first + i),
                         c.ids + (ptrdiff_t)i * m->data->text_tokens, err);
        if (r == 0)
            r = encoder_run(c.encoder, n_now, NULL, c.ids, NULL, c.texts, err);
        for (int i = 0; r == 0 && i < n_now; i++)
            /* cannot fail: encoder_run() returns finite numbers */
            (void)half_expand(c.texts + (size_t)i * each, each,
                              first + i < n ? ret + (size_t)(first + i) * each : ret_empty);
    }
    return r;
}
