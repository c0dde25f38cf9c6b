/* SPDX-License-Identifier: Apache-2.0 */
/* sample.c - `sdtrainer sample`: a grid of images drawn by DDIM from the newest checkpoint's EMA
 * weights.
 *
 * Latents are decoded by the VAE of a model folder or, without one, by codec.h: then this verb shows whether a run
 * learns, on data that sdprep made with that codec. */
#include "trainer/sample/sample.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "data/dataset.h"
#include "encoders/codec.h"
#include "encoders/hashed-text.h"
#include "nn/ddim.h"
#include "protocol/exit-code.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/sample/grid.h"
#include "trainer/sample/model.h"
#include "trainer/sample/sample-options.h"

#include <math.h>
#include <string.h>

enum { GRAIN = 4, RESTORES_MAX = 5 };
#define PROGRESS_USEC (10 * USEC_PER_SEC)

typedef struct Sampling {
    const SampleOptions *options;
    const Job *job;
    Dataset *dataset;
    Device *device;
    Decoder *decoder; /* NULL: the codec is used */
    Network *network;
    NoiseSchedule *schedule;
    float *weights; /* device memory */
    float *text;    /* embedding of each sample's caption */
    /* embedding of the empty caption that the model computed; NULL: the dataset's embedding is used */
    float *empty;
    float *latents;        /* NHWC */
    GridNotes notes, real; /* notes: for the file of --out; real: for the file of --pictures */
    uint64_t begin_usec, told_usec;
} Sampling;

static void sampler_close(Sampling *s)
{
    (void)network_free(s->network);
    if (s->weights)
        device_release(s->device, s->weights);
    (void)decoder_free(s->decoder);
    (void)device_free(s->device);
    (void)noise_schedule_free(s->schedule);
    (void)dataset_free(s->dataset);
    free(s->text);
    free(s->empty);
    free(s->latents);
    grid_notes_clear(&s->notes);
    grid_notes_clear(&s->real);
}

static size_t text_elements(const DatasetShape *data)
{
    return (size_t)data->text_tokens * (size_t)data->text_dim;
}

static size_t latent_elements(const DatasetShape *data)
{
    return (size_t)data->height * (size_t)data->width * (size_t)data->channels;
}

/* ---- weights ---- */

/* Finds the newest checkpoint's folder. */
static int find_newest(Store *store, const char *uri, char ret[CHECKPOINT_FOLDER_MAX], Error *err)
{
    StoreList list = {0};
    int r = checkpoint_list(store, &list, err);
    if (r == 0 && list.n_objects == 0)
        r = error_set(err, -ENOENT, "%s holds no checkpoint yet", uri);
    if (r == 0)
        (void)snprintf(ret, CHECKPOINT_FOLDER_MAX, "%s", list.objects[0].key);
    store_list_clear(&list);
    return r;
}

static int restore(Sampling *s, Store *store, const Manifest *manifest, Error *err)
{
    int r = fault("sample.restore");
    if (r == 0)
        r = checkpoint_restore_weights(store, manifest, manifest_has_ema(manifest),
                                       network_parameters(s->network), s->device, s->weights, err);
    s->notes.ema = manifest_has_ema(manifest);
    s->notes.step = manifest_step(manifest);
    if (r == 0)
        log_info("sampling with the %s of step %lld",
                 manifest_has_ema(manifest) ? "EMA weights" : "weights",
                 (long long)manifest_step(manifest));
    return r;
}

/* Restores the newest checkpoint. A running job removes old checkpoints, and may remove the checkpoint that is being
 * read; then a newer checkpoint is tried. */
static int restore_newest(Sampling *s, Error *err)
{
    const char *uri = s->job->checkpoint.uri;
    char before[CHECKPOINT_FOLDER_MAX] = "", folder[CHECKPOINT_FOLDER_MAX] = "";
    _cleanup_(store_freep) Store *store = NULL;
    int r = store_open(uri, &store, err);
    if (r == 0)
        r = find_newest(store, uri, folder, err);
    for (int i = 0; r == 0; i++) {
        _cleanup_(manifest_freep) Manifest *manifest = NULL;
        Error newer = ERROR_INIT;
        r = manifest_read(store, folder, NULL, &manifest, err);
        if (r == 0)
            r = restore(s, store, manifest, err);
        if (r == 0 || i == RESTORES_MAX)
            break;
        (void)snprintf(before, sizeof(before), "%s", folder);
        if (find_newest(store, uri, folder, &newer) < 0 || strcmp(before, folder) == 0)
            break;
        log_info("%s; %s is newer", err->text, folder);
        r = 0;
    }
    return r;
}

static int load_weights(Sampling *s, Error *err)
{
    const size_t n = (size_t)network_parameters(s->network)->n_elements;
    int r = device_allocate(s->device, n * sizeof(float), (void **)&s->weights, err);
    if (r == 0 && s->options->from) {
        _cleanup_(store_freep) Store *store = NULL;
        _cleanup_(manifest_freep) Manifest *manifest = NULL;
        r = manifest_read_uri(s->options->from, NULL, &store, &manifest, err);
        if (r == 0)
            r = restore(s, store, manifest, err);
    } else if (r == 0) {
        r = restore_newest(s, err);
    }
    if (r == 0)
        network_set_weights(s->network, s->weights);
    return r;
}

/* ---- captions ---- */

/* Gives the samples the first n texts of s->text in turn. */
static void repeat_texts(Sampling *s, int n)
{
    const size_t each = text_elements(dataset_shape(s->dataset));
    for (int i = n; i < s->options->samples; i++)
        memcpy(s->text + (size_t)i * each, s->text + (size_t)(i % n) * each, each * sizeof(float));
}

/* Returns the sample whose caption a cell shows. The sample's stream is the stream that training uses at the position
 * `cell`, so that each stream has its share; a stream's samples are used from the first one on. taken: how many samples
 * of each stream earlier cells have, {0} for the first cell. */
static OrderSample sample_of_cell(const Sampling *s, int cell, int64_t taken[ORDER_STREAMS_MAX])
{
    const Order *order = dataset_order(s->dataset);
    const int stream = order_at(order, cell).stream;
    return (OrderSample){.stream = stream,
                         .sample = taken[stream]++ % order->streams[stream].n_samples};
}

static int read_texts(Sampling *s, Error *err)
{
    const size_t each = text_elements(dataset_shape(s->dataset));
    int64_t taken[ORDER_STREAMS_MAX] = {0};
    int r = 0;
    for (int i = 0; r == 0 && i < s->options->samples; i++) {
        _cleanup_free_ char *caption = NULL;
        r = dataset_read(s->dataset, sample_of_cell(s, i, taken), NULL, s->text + (size_t)i * each,
                         &caption, err);
        if (r == 0)
            grid_notes_add(&s->notes, caption);
    }
    return r;
}

static int hash_captions(Sampling *s, Error *err)
{
    const SampleOptions *o = s->options;
    const DatasetShape *data = dataset_shape(s->dataset);
    _cleanup_(hashed_text_freep) HashedText *hashed = NULL;
    if (data->text_tokens != HASHED_TEXT_TOKENS)
        return error_set(err, -EINVAL,
                         "--caption: the data have %d text tokens, not the hashed embedding's %d",
                         data->text_tokens, HASHED_TEXT_TOKENS);
    int r = hashed_text_new(data->text_dim, &hashed, err);
    if (r < 0)
        return r;
    for (int i = 0; i < o->n_captions; i++)
        hashed_text_embed(hashed, o->captions[i], s->text + (size_t)i * text_elements(data));
    repeat_texts(s, o->n_captions);
    return 0;
}

static int encode_captions(Sampling *s, const SampleModel *model, Error *err)
{
    const SampleOptions *o = s->options;
    s->empty = malloc(text_elements(model->data) * sizeof(float));
    if (!s->empty)
        return error_set(err, -ENOMEM, "out of memory for the empty caption");
    int r = sample_model_captions(model, o->captions, o->n_captions, s->text, s->empty, err);
    if (r == 0)
        repeat_texts(s, o->n_captions);
    return r;
}

/* ---- opening ---- */

static int read_captions(Sampling *s, const SampleModel *model, Error *err)
{
    const SampleOptions *o = s->options;
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
static int open_model(Sampling *s, Error *err)
{
    const SampleOptions *o = s->options;
    const DatasetShape *data = dataset_shape(s->dataset);
    EncoderFacts facts;
    SampleModel model = {.uri = o->model, .device = s->device, .job = s->job, .data = data};
    if (!o->model && data->channels != CODEC_CHANNELS)
        return error_set(err, -EINVAL, "latents of %d channels cannot be shown: the codec has %d",
                         data->channels, CODEC_CHANNELS);
    s->latents = malloc((size_t)o->samples * latent_elements(data) * sizeof(float));
    s->text = malloc((size_t)o->samples * text_elements(data) * sizeof(float));
    if (!s->latents || !s->text)
        return error_set(err, -ENOMEM, "out of memory for %d samples", o->samples);
    int r = encoder_facts_find(s->job, &facts, err);
    if (r > 0)
        model.facts = &facts;
    if (r > 0 && !o->model)
        log_warning("by " ENCODER_FACTS_NAME " the data were made by a VAE and a text encoder, not "
                    "by the codec and the hashed words that serve without --model FOLDER: the "
                    "pictures show little");
    if (r >= 0 && o->model)
        r = sample_model_decoder(&model, &s->decoder, err);
    return r < 0 ? r : read_captions(s, &model, err);
}

static int open_network(Sampling *s, const UnetConfig *config, Error *err)
{
    const DatasetShape *data = dataset_shape(s->dataset);
    const NetworkShape shape = {.grain = MIN(s->options->samples, (int)GRAIN),
                                .height = data->height,
                                .width = data->width,
                                .text_tokens = data->text_tokens};
    int r = network_new(s->device, config, &shape, &s->network, err);
    if (r == 0)
        r = noise_schedule_new(s->job->train.noise_schedule.beta_start,
                               s->job->train.noise_schedule.beta_end,
                               s->job->train.noise_schedule.steps, &s->schedule, err);
    return r < 0 ? r : load_weights(s, err);
}

static int sampler_open(Sampling *s, Error *err)
{
    UnetConfig config;
    DeviceOptions device = {.kind = DEVICE_CPU, .threads = s->job->train.threads, .type = DATA_F32};
    int r = dataset_open(s->job, &s->dataset, err);
    if (r == 0)
        r = unet_config_read(s->job->model.config_uri, store_get_uri, &config, err);
    if (r == 0)
        r = shapes_check(s->job, &config, dataset_shape(s->dataset), GRAIN, err);
    if (r == 0)
        r = device_open(&device, &s->device, err);
    if (r == 0)
        r = open_model(s, err);
    return r < 0 ? r : open_network(s, &config, err);
}

/* ---- drawing ---- */

/* Logs the progress every ten seconds. */
static void log_progress(Sampling *s, const char *what, int64_t done, int64_t all)
{
    const uint64_t now = clock_boottime_usec();
    if (now - s->told_usec < PROGRESS_USEC || done == all)
        return;
    const double spent = (double)(now - s->begin_usec) / USEC_PER_SEC;
    log_info("%lld of %lld %s; %.0f s to go", (long long)done, (long long)all, what,
             spent / (double)done * (double)(all - done));
    s->told_usec = now;
}

static void begin(Sampling *s) { s->begin_usec = s->told_usec = clock_boottime_usec(); }

static void report_steps(void *context, int64_t done, int64_t all)
{
    (void)fault("sample.step"); /* for tests that stop the program here */
    log_progress(context, "steps are drawn", done, all);
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

/* Decodes s->latents, and writes the grid of pictures. */
static int write_pictures(Sampling *s, const char *path, const GridNotes *notes, Error *err)
{
    const SampleOptions *o = s->options;
    const DatasetShape *data = dataset_shape(s->dataset);
    const int factor = s->decoder ? decoder_shape(s->decoder)->factor : CODEC_BLOCK;
    const int height = data->height * factor, width = data->width * factor;
    const size_t each = (size_t)height * (size_t)width * 3;
    _cleanup_free_ uint8_t *pictures = malloc((size_t)o->samples * each);
    _cleanup_free_ float *planes = malloc(latent_elements(data) * sizeof(float));
    _cleanup_free_ float *pixels = malloc(each * sizeof(float));
    if (!pictures || !planes || !pixels)
        return error_set(err, -ENOMEM, "out of memory for %d pictures", o->samples);
    begin(s);
    for (int i = 0; i < o->samples; i++) {
        uint8_t *picture = pictures + (size_t)i * each;
        to_planes(data, s->latents + (size_t)i * latent_elements(data), planes);
        int r = s->decoder ? decoder_run(s->decoder, 1, planes, picture, err) : 0;
        if (r < 0)
            return error_prefix(err, r, "sample %d", i);
        if (!s->decoder)
            show_codec(planes, height, width, pixels, picture);
        log_progress(s, "pictures are decoded", i + 1, o->samples);
    }
    return grid_write(path, notes, o->samples, height, width, pictures, err);
}

/* Writes the data's own pictures, through the same decoder: the best that a fully trained network could draw. */
static int write_real(Sampling *s, Error *err)
{
    const size_t each = latent_elements(dataset_shape(s->dataset));
    int64_t taken[ORDER_STREAMS_MAX] = {0};
    for (int i = 0; i < s->options->samples; i++) {
        _cleanup_free_ char *caption = NULL;
        int r = dataset_read(s->dataset, sample_of_cell(s, i, taken), s->latents + (size_t)i * each,
                             NULL, &caption, err);
        if (r < 0)
            return r;
        grid_notes_add(&s->real, caption);
    }
    return write_pictures(s, s->options->pictures, &s->real, err);
}

static int sample(Sampling *s, Error *err)
{
    const SampleOptions *o = s->options;
    int r = sampler_open(s, err);
    if (r == 0 && o->pictures)
        r = write_real(s, err);
    if (r < 0)
        return r;
    const float *empty = s->empty ? s->empty : dataset_empty_text(s->dataset);
    DdimOptions ddim = {.steps = o->steps,
                        .guidance = empty ? o->guidance : 1,
                        .v_prediction = s->job->train.prediction == PREDICTION_V,
                        .seed = o->seed,
                        .progress = report_steps,
                        .context = s};
    begin(s);
    r = ddim_sample(s->network, s->schedule, &ddim, o->samples, s->text, empty, s->latents, err);
    return r < 0 ? r : write_pictures(s, o->out, &s->notes, err);
}

int verb_sample(int argc, char **argv)
{
    SampleOptions o;
    int code;
    if (!sample_options_parse(argc, argv, &o, &code))
        return code;

    Error err = ERROR_INIT;
    _cleanup_(job_freep) Job *job = NULL;
    int r = grid_check("--out", o.out, &err);
    if (r == 0 && o.pictures)
        r = grid_check("--pictures", o.pictures, &err);
    if (r == 0)
        r = job_read_file(o.job, &job, &err);
    if (r == 0) {
        Sampling s = {.options = &o, .job = job, .notes = {.seed = o.seed}, .real = {.real = true}};
        (void)stpcpy(s.notes.job, job->name);
        (void)stpcpy(s.real.job, job->name);
        r = sample(&s, &err);
        sampler_close(&s);
    }
    if (r < 0) {
        log_error("%s", err.text);
        return r == -EINVAL ? EXIT_NEVER_RETRY : EXIT_DATA_CORRUPT;
    }
    printf("%d samples in %s\n", o.samples, o.out);
    if (o.pictures)
        printf("%d pictures of the data in %s\n", o.samples, o.pictures);
    return 0;
}
