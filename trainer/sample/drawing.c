/* SPDX-License-Identifier: Apache-2.0 */
/* drawing.c - see drawing.h. */
#include "trainer/sample/drawing.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"
#include "encoders/codec.h"
#include "encoders/hashed-text.h"
#include "nn/ddim.h"
#include "protocol/exit-code.h"
#include "trainer/sample/grid.h"
#include "trainer/sample/model.h"

#include <math.h>
#include <string.h>

struct Drawing {
    DrawingNeeds needs;
    Decoder *decoder; /* NULL: the codec is used */
    Network *network;
    NoiseSchedule *schedule;
    float *weights; /* device memory */
    float *text;    /* embedding of each sample's caption */
    /* embedding of the empty caption that the model computed; NULL: the dataset's embedding is used */
    float *empty;
    float *latents;        /* NHWC */
    GridNotes notes;       /* of the samples */
    int64_t n_done, n_all; /* steps */
};

static size_t text_elements(const DatasetShape *data)
{
    return (size_t)data->text_tokens * (size_t)data->text_dim;
}

static size_t latent_elements(const DatasetShape *data)
{
    return (size_t)data->height * (size_t)data->width * (size_t)data->channels;
}

/* ---- captions ---- */

/* Gives the samples the first n texts of s->text in turn. */
static void repeat_texts(Drawing *s, int n)
{
    const size_t each = text_elements(dataset_shape(s->needs.data));
    for (int i = n; i < s->needs.grid->samples; i++)
        memcpy(s->text + (size_t)i * each, s->text + (size_t)(i % n) * each, each * sizeof(float));
}

/* Returns the sample whose caption a cell shows. The sample's stream is the stream that training uses at the position
 * `cell`, so that each stream has its share; a stream's samples are used from the first one on. taken: how many samples
 * of each stream earlier cells have, {0} for the first cell. */
static OrderSample sample_of_cell(const Drawing *s, int cell, int64_t taken[ORDER_STREAMS_MAX])
{
    const Order *order = dataset_order(s->needs.data);
    const int stream = order_at(order, cell).stream;
    return (OrderSample){.stream = stream,
                         .sample = taken[stream]++ % order->streams[stream].n_samples};
}

static int read_texts(Drawing *s, Error *err)
{
    const size_t each = text_elements(dataset_shape(s->needs.data));
    int64_t taken[ORDER_STREAMS_MAX] = {0};
    int r = 0;
    for (int i = 0; r == 0 && i < s->needs.grid->samples; i++) {
        _cleanup_free_ char *caption = NULL;
        r = dataset_read(s->needs.data, sample_of_cell(s, i, taken), NULL,
                         s->text + (size_t)i * each, &caption, err);
        if (r == 0)
            grid_notes_add(&s->notes, caption);
    }
    return r;
}

static int hash_captions(Drawing *s, Error *err)
{
    const JobGrid *o = s->needs.grid;
    const DatasetShape *data = dataset_shape(s->needs.data);
    _cleanup_(hashed_text_freep) HashedText *hashed = NULL;
    if (data->text_tokens != HASHED_TEXT_TOKENS)
        return error_set(err, -EINVAL,
                         "captions: the data have %d text tokens, not the hashed embedding's %d",
                         data->text_tokens, HASHED_TEXT_TOKENS);
    int r = hashed_text_new(data->text_dim, &hashed, err);
    if (r < 0)
        return r;
    for (int i = 0; i < o->n_captions; i++)
        hashed_text_embed(hashed, o->captions[i], s->text + (size_t)i * text_elements(data));
    repeat_texts(s, o->n_captions);
    return 0;
}

static int encode_captions(Drawing *s, const SampleModel *model, Error *err)
{
    const JobGrid *o = s->needs.grid;
    s->empty = malloc(text_elements(model->data) * sizeof(float));
    if (!s->empty)
        return error_set(err, -ENOMEM, "out of memory for the empty caption");
    int r = exit_errno_of_named(
        sample_model_captions(model, o->captions, o->n_captions, s->text, s->empty, err));
    if (r == 0)
        repeat_texts(s, o->n_captions);
    return r;
}

/* ---- opening ---- */

static int read_captions(Drawing *s, const SampleModel *model, Error *err)
{
    const JobGrid *o = s->needs.grid;
    for (int i = 0; o->n_captions > 0 && i < o->samples; i++)
        grid_notes_add(&s->notes, o->captions[i % o->n_captions]);
    if (o->n_captions > 0)
        return model->uri ? encode_captions(s, model, err) : hash_captions(s, err);
    if (model->uri)
        sample_model_compare(model);
    return read_texts(s, err);
}

/* Opens the decoder, and reads the captions before the network is opened: the text encoder and the network are not
 * needed at the same time. */
static int open_model(Drawing *s, Error *err)
{
    const JobGrid *o = s->needs.grid;
    const Job *job = s->needs.job;
    const DatasetShape *data = dataset_shape(s->needs.data);
    EncoderFacts facts;
    SampleModel model = {.uri = o->model,
                         .device = s->needs.model_device,
                         .job = job,
                         .data = data};
    if (!o->model && data->channels != CODEC_CHANNELS)
        return error_set(err, -EINVAL, "latents of %d channels cannot be shown: the codec has %d",
                         data->channels, CODEC_CHANNELS);
    s->latents = malloc((size_t)o->samples * latent_elements(data) * sizeof(float));
    s->text = malloc((size_t)o->samples * text_elements(data) * sizeof(float));
    if (!s->latents || !s->text)
        return error_set(err, -ENOMEM, "out of memory for %d samples", o->samples);
    int r = encoder_facts_find(job, &facts, err);
    if (r > 0)
        model.facts = &facts;
    if (r > 0 && !o->model)
        log_warning(
            "by " ENCODER_FACTS_NAME " the data were made by a VAE and a text encoder, not "
            "by the codec and the hashed words that serve without a model (--model, grid.model): the "
            "pictures show little");
    if (r >= 0 && o->model)
        r = exit_errno_of_named(sample_model_decoder(&model, &s->decoder, err));
    return r < 0 ? r : read_captions(s, &model, err);
}

static int open_network(Drawing *s, Error *err)
{
    const DrawingNeeds *n = &s->needs;
    const DatasetShape *data = dataset_shape(n->data);
    const NetworkShape shape = {.grain = MIN(n->grid->samples, n->grain),
                                .height = data->height,
                                .width = data->width,
                                .text_tokens = data->text_tokens};
    int r = network_new(n->device, n->config, &shape, &s->network, err);
    if (r == 0)
        r = noise_schedule_new(n->job->train.noise_schedule.beta_start,
                               n->job->train.noise_schedule.beta_end,
                               n->job->train.noise_schedule.steps, &s->schedule, err);
    if (r < 0)
        return r;
    return device_allocate(n->device,
                           (size_t)network_parameters(s->network)->n_elements * sizeof(float),
                           (void **)&s->weights, err);
}

int drawing_new(const DrawingNeeds *needs, Drawing **ret, Error *err)
{
    _cleanup_(drawing_freep) Drawing *s = memory_new(Drawing);
    s->needs = *needs;
    int r = open_model(s, err);
    if (r == 0)
        r = open_network(s, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(s);
    return 0;
}

Drawing *drawing_free(Drawing *s)
{
    if (!s)
        return NULL;
    (void)network_free(s->network);
    if (s->weights)
        device_release(s->needs.device, s->weights);
    (void)decoder_free(s->decoder);
    (void)noise_schedule_free(s->schedule);
    free(s->text);
    free(s->empty);
    free(s->latents);
    grid_notes_clear(&s->notes);
    free(s);
    return NULL;
}

const ParameterList *drawing_parameters(const Drawing *s) { return network_parameters(s->network); }

float *drawing_weights(Drawing *s) { return s->weights; }

/* ---- drawing ---- */

static int report(void *context, Error *err)
{
    Drawing *s = context;
    return s->needs.progress(s->needs.userdata, ++s->n_done, s->n_all, err);
}

/* Converts the latents of one picture from NHWC to planes. */
static void to_planes(const DatasetShape *data, const float *latents, float *ret)
{
    const int n = data->height * data->width;
    for (int p = 0; p < n; p++)
        for (int c = 0; c < data->channels; c++)
            ret[c * n + p] = latents[p * data->channels + c];
}

/* Decodes one picture with the codec, from planes of floats into RGB bytes. */
static void show_codec(const float *planes, int height, int width, float *pixels, uint8_t *ret)
{
    codec_decode(planes, height, width, pixels);
    for (int p = 0; p < height * width; p++)
        for (int c = 0; c < 3; c++) {
            float v = (pixels[c * height * width + p] + 1.0f) * 127.5f;
            ret[3 * p + c] = (uint8_t)lrintf(CLAMP(v, 0.0f, 255.0f));
        }
}

/* Decodes s->latents into the PNG of a grid. */
static int make_grid(Drawing *s, const GridNotes *notes, char **ret, size_t *ret_bytes, Error *err)
{
    const JobGrid *o = s->needs.grid;
    const DatasetShape *data = dataset_shape(s->needs.data);
    const int factor = s->decoder ? decoder_shape(s->decoder)->factor : CODEC_BLOCK;
    const int height = data->height * factor, width = data->width * factor;
    const size_t each = (size_t)height * (size_t)width * 3;
    _cleanup_free_ uint8_t *pictures = malloc((size_t)o->samples * each);
    _cleanup_free_ float *planes = malloc(latent_elements(data) * sizeof(float));
    _cleanup_free_ float *pixels = malloc(each * sizeof(float));
    if (!pictures || !planes || !pixels)
        return error_set(err, -ENOMEM, "out of memory for %d pictures", o->samples);
    for (int i = 0; i < o->samples; i++) {
        uint8_t *picture = pictures + (size_t)i * each;
        to_planes(data, s->latents + (size_t)i * latent_elements(data), planes);
        int r = s->decoder ? decoder_run(s->decoder, 1, planes, picture, err) : 0;
        if (r < 0)
            return error_prefix(err, r, "sample %d", i);
        if (!s->decoder)
            show_codec(planes, height, width, pixels, picture);
        r = report(s, err);
        if (r < 0)
            return r;
    }
    return grid_encode(notes, o->samples, height, width, pictures, ret, ret_bytes, err);
}

int drawing_show_data(Drawing *s, char **ret, size_t *ret_bytes, Error *err)
{
    const int samples = s->needs.grid->samples;
    const size_t each = latent_elements(dataset_shape(s->needs.data));
    int64_t taken[ORDER_STREAMS_MAX] = {0};
    _cleanup_(grid_notes_clear) GridNotes notes = {.real = true};
    (void)stpcpy(notes.job, s->needs.job->name);
    s->n_done = 0;
    s->n_all = samples;
    for (int i = 0; i < samples; i++) {
        _cleanup_free_ char *caption = NULL;
        int r = dataset_read(s->needs.data, sample_of_cell(s, i, taken),
                             s->latents + (size_t)i * each, NULL, &caption, err);
        if (r < 0)
            return r;
        grid_notes_add(&notes, caption);
    }
    return make_grid(s, &notes, ret, ret_bytes, err);
}

static int check_latents(Drawing *s, Error *err)
{
    const size_t each = latent_elements(dataset_shape(s->needs.data));
    if (fault("drawing.latents") < 0)
        s->latents[0] = NAN;
    for (int i = 0; i < s->needs.grid->samples; i++)
        for (size_t k = 0; k < each; k++)
            if (!isfinite(s->latents[(size_t)i * each + k]))
                return error_set(err, -EDOM, "sample %d: the network drew what is not finite", i);
    return 0;
}

int drawing_run(Drawing *s, int64_t step, bool of_ema, char **ret, size_t *ret_bytes, Error *err)
{
    const JobGrid *o = s->needs.grid;
    const float *empty = s->empty ? s->empty : dataset_empty_text(s->needs.data);
    const DdimOptions ddim = {.steps = o->steps,
                              .guidance = empty ? o->guidance : 1,
                              .v_prediction = s->needs.job->train.prediction == PREDICTION_V,
                              .seed = o->seed,
                              .progress = report,
                              .context = s};
    (void)stpcpy(s->notes.job, s->needs.job->name);
    s->notes.step = step;
    s->notes.ema = of_ema;
    s->notes.seed = o->seed;
    s->n_done = 0;
    s->n_all = DIV_ROUND_UP(o->samples, network_shape(s->network)->grain) * o->steps + o->samples;
    network_set_weights(s->network, s->weights);
    int r =
        ddim_sample(s->network, s->schedule, &ddim, o->samples, s->text, empty, s->latents, err);
    if (r == 0)
        r = check_latents(s, err);
    return r < 0 ? r : make_grid(s, &s->notes, ret, ret_bytes, err);
}
