/* SPDX-License-Identifier: Apache-2.0 */
/* sample-verb.c - `sdtrainer sample`: a grid of images drawn by DDIM from the newest checkpoint's
 * EMA weights.
 *
 * Latents become pictures through codec.h, which stands in for the VAE: this verb shows whether a
 * run learns, on data that sdprep made with that codec. */
#include "base/log.h"
#include "encoders/codec.h"
#include "encoders/hashed-text.h"
#include "protocol/exit-code.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/data/dataset.h"
#include "trainer/nn/ddim.h"
#include "trainer/run.h"

#include <getopt.h>
#include <math.h>
#include <png.h>
#include <string.h>

enum { GRAIN = 4, GAP = 4, SAMPLES_MAX = 400 };

typedef struct SampleOptions {
    const char *job, *out, *from, *caption;
    int samples, steps;
    double guidance;
    uint64_t seed;
} SampleOptions;

static void help(void)
{
    printf("usage: sdtrainer sample --job FILE --out GRID.png [OPTIONS]\n\n"
           "Draws images from the newest checkpoint under the job's checkpoint.uri: its EMA "
           "weights once the EMA has\n"
           "started, else its weights. Captions are the dataset's first ones.\n\n"
           "  --samples N      how many (16)\n"
           "  --steps N        DDIM steps (25)\n"
           "  --guidance G     classifier-free guidance (3)\n"
           "  --seed N         of the starting noise (1)\n"
           "  --caption TEXT   one caption for all instead (hashed embedding, as sdprep "
           "openclipart makes it)\n"
           "  --from MANIFEST  another checkpoint\n");
}

static bool parse(int argc, char **argv, SampleOptions *o, int *ret_exit)
{
    static const struct option options[] = {
        {"job", required_argument, NULL, 'j'},      {"out", required_argument, NULL, 'o'},
        {"samples", required_argument, NULL, 'n'},  {"steps", required_argument, NULL, 's'},
        {"guidance", required_argument, NULL, 'g'}, {"seed", required_argument, NULL, 'S'},
        {"caption", required_argument, NULL, 'c'},  {"from", required_argument, NULL, 'f'},
        {"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0}};
    *o = (SampleOptions){.samples = 16, .steps = 25, .guidance = 3, .seed = 1};
    *ret_exit = 2;
    for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        switch (c) {
        case 'j':
            o->job = optarg;
            break;
        case 'o':
            o->out = optarg;
            break;
        case 'n':
            o->samples = atoi(optarg);
            break;
        case 's':
            o->steps = atoi(optarg);
            break;
        case 'g':
            o->guidance = atof(optarg);
            break;
        case 'S':
            o->seed = strtoull(optarg, NULL, 10);
            break;
        case 'c':
            o->caption = optarg;
            break;
        case 'f':
            o->from = optarg;
            break;
        case 'h':
            help();
            *ret_exit = 0;
            return false;
        default:
            return false;
        }
    }
    if (!o->job || !o->out || o->samples < 1 || o->samples > SAMPLES_MAX || o->steps < 1) {
        fprintf(stderr,
                "sdtrainer sample: --job FILE and --out FILE are needed; --samples 1..%d, --steps "
                "1 or more\n",
                SAMPLES_MAX);
        return false;
    }
    return true;
}

static int open_checkpoint(const SampleOptions *o, const Job *job, Store **ret_store,
                           Manifest **ret, Error *err)
{
    if (o->from)
        return manifest_read_uri(o->from, NULL, ret_store, ret, err);

    StoreList list = {0};
    int r = store_open(job->checkpoint.uri, ret_store, err);
    if (r == 0)
        r = checkpoint_list(*ret_store, &list, err);
    if (r == 0 && list.n_objects == 0)
        r = error_set(err, -ENOENT, "%s holds no checkpoint yet", job->checkpoint.uri);
    if (r == 0)
        r = manifest_read(*ret_store, list.objects[0].key, NULL, ret, err);
    store_list_clear(&list);
    return r;
}

typedef struct Sampling {
    const Job *job;
    Dataset *dataset;
    Device *device;
    Network *network;
    NoiseSchedule *schedule;
    float *weights; /* device */
} Sampling;

static void sampler_close(Sampling *s)
{
    (void)network_free(s->network);
    if (s->weights)
        device_release(s->device, s->weights);
    (void)device_free(s->device);
    (void)noise_schedule_free(s->schedule);
    (void)dataset_free(s->dataset);
}

static int load_weights(Sampling *s, const SampleOptions *o, Error *err)
{
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(manifest_freep) Manifest *manifest = NULL;
    const ParameterList *list = network_parameters(s->network);
    int r = open_checkpoint(o, s->job, &store, &manifest, err);
    if (r == 0)
        r = device_allocate(s->device, (size_t)list->n_elements * sizeof(float),
                            (void **)&s->weights, err);
    if (r == 0)
        r = checkpoint_restore_weights(store, manifest, manifest_has_ema(manifest), list, s->device,
                                       s->weights, err);
    if (r < 0)
        return r;
    network_set_weights(s->network, s->weights);
    log_info("sampling with the %s of step %lld",
             manifest_has_ema(manifest) ? "EMA weights" : "weights",
             (long long)manifest_step(manifest));
    return 0;
}

static int sampler_open(Sampling *s, const SampleOptions *o, Error *err)
{
    UnetConfig config;
    DeviceOptions device = {.kind = DEVICE_CPU, .threads = s->job->train.threads, .type = DATA_F32};
    int r = dataset_open(s->job, &s->dataset, err);
    if (r == 0)
        r = unet_config_read(s->job->model.config_uri, store_get_uri, &config, err);
    if (r < 0)
        return r;
    const DatasetShape *data = dataset_shape(s->dataset);
    r = shapes_check(s->job, &config, data, GRAIN, err);
    if (r == 0)
        r = device_open(&device, &s->device, err);
    if (r < 0)
        return r;
    NetworkShape shape = {.grain = GRAIN,
                          .height = data->height,
                          .width = data->width,
                          .text_tokens = data->text_tokens};
    r = network_new(s->device, &config, &shape, &s->network, err);
    if (r == 0)
        r = noise_schedule_new(s->job->train.noise_schedule.beta_start,
                               s->job->train.noise_schedule.beta_end,
                               s->job->train.noise_schedule.steps, &s->schedule, err);
    return r < 0 ? r : load_weights(s, o, err);
}

static int fill_text(Sampling *s, const SampleOptions *o, float *text, Error *err)
{
    const DatasetShape *data = dataset_shape(s->dataset);
    const size_t each = (size_t)data->text_tokens * (size_t)data->text_dim;
    if (!o->caption) {
        int64_t n = dataset_order(s->dataset)->streams[0].n_samples;
        for (int i = 0; i < o->samples; i++) {
            int r = dataset_read(s->dataset, (OrderSample){.sample = i % n}, NULL,
                                 text + (size_t)i * each, NULL, err);
            if (r < 0)
                return r;
        }
        return 0;
    }
    _cleanup_(hashed_text_freep) HashedText *hashed = NULL;
    if (data->text_tokens != HASHED_TEXT_TOKENS)
        return error_set(err, -EINVAL,
                         "--caption: the data have %d text tokens, not the hashed embedding's %d",
                         data->text_tokens, HASHED_TEXT_TOKENS);
    int r = hashed_text_new(data->text_dim, &hashed, err);
    if (r < 0)
        return r;
    hashed_text_embed(hashed, o->caption, text);
    for (int i = 1; i < o->samples; i++)
        memcpy(text + (size_t)i * each, text, each * sizeof(float));
    return 0;
}

/* One sample's latents (NHWC) decoded into its cell of the grid. */
static void paint(const DatasetShape *data, const float *latents, uint8_t *grid, int grid_width,
                  int x0, int y0, float *planes, float *pixels)
{
    const int n = data->height * data->width, height = data->height * CODEC_BLOCK,
              width = data->width * CODEC_BLOCK;
    for (int p = 0; p < n; p++)
        for (int c = 0; c < CODEC_CHANNELS; c++)
            planes[c * n + p] = latents[p * CODEC_CHANNELS + c];
    codec_decode(planes, height, width, pixels);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < 3; c++) {
                float v = (pixels[(c * height + y) * width + x] + 1.0f) * 127.5f;
                grid[((y0 + y) * grid_width + x0 + x) * 3 + c] =
                    (uint8_t)lrintf(CLAMP(v, 0.0f, 255.0f));
            }
}

static int write_grid(const SampleOptions *o, const DatasetShape *data, const float *latents,
                      Error *err)
{
    const int columns = (int)ceil(sqrt((double)o->samples)),
              rows = DIV_ROUND_UP(o->samples, columns);
    const int height = data->height * CODEC_BLOCK, width = data->width * CODEC_BLOCK;
    const int grid_width = columns * (width + GAP) + GAP, grid_height = rows * (height + GAP) + GAP;
    const size_t each = (size_t)(data->height * data->width * CODEC_CHANNELS);
    _cleanup_free_ uint8_t *grid = malloc((size_t)grid_width * (size_t)grid_height * 3);
    _cleanup_free_ float *planes = malloc(each * sizeof(float));
    _cleanup_free_ float *pixels = malloc((size_t)height * (size_t)width * 3 * sizeof(float));
    if (!grid || !planes || !pixels)
        return error_set(err, -ENOMEM, "out of memory for the grid");
    memset(grid, 200, (size_t)grid_width * (size_t)grid_height * 3);
    for (int i = 0; i < o->samples; i++)
        paint(data, latents + (size_t)i * each, grid, grid_width, GAP + i % columns * (width + GAP),
              GAP + i / columns * (height + GAP), planes, pixels);

    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)grid_width,
                       .height = (png_uint_32)grid_height,
                       .format = PNG_FORMAT_RGB};
    if (!png_image_write_to_file(&image, o->out, 0, grid, 0, NULL))
        return error_set(err, -EIO, "%s: %s", o->out, image.message);
    return 0;
}

static int sample(Sampling *s, const SampleOptions *o, Error *err)
{
    int r = sampler_open(s, o, err);
    if (r < 0)
        return r;
    const DatasetShape *data = dataset_shape(s->dataset);
    if (data->channels != CODEC_CHANNELS)
        return error_set(err, -EINVAL, "latents of %d channels cannot be shown: the codec has %d",
                         data->channels, CODEC_CHANNELS);
    const size_t latents_each = (size_t)(data->height * data->width * data->channels);
    const size_t text_each = (size_t)data->text_tokens * (size_t)data->text_dim;
    _cleanup_free_ float *latents = malloc((size_t)o->samples * latents_each * sizeof(float));
    _cleanup_free_ float *text = malloc((size_t)o->samples * text_each * sizeof(float));
    if (!latents || !text)
        return error_set(err, -ENOMEM, "out of memory for %d samples", o->samples);
    r = fill_text(s, o, text, err);
    if (r < 0)
        return r;
    const float *empty = dataset_empty_text(s->dataset);
    DdimOptions ddim = {.steps = o->steps,
                        .guidance = empty ? o->guidance : 1,
                        .v_prediction = s->job->train.prediction == PREDICTION_V,
                        .seed = o->seed};
    r = ddim_sample(s->network, s->schedule, &ddim, o->samples, text, empty, latents, err);
    return r < 0 ? r : write_grid(o, data, latents, err);
}

int verb_sample(int argc, char **argv)
{
    SampleOptions o;
    int code;
    if (!parse(argc, argv, &o, &code))
        return code;

    Error err = ERROR_INIT;
    _cleanup_(job_freep) Job *job = NULL;
    int r = job_read_file(o.job, &job, &err);
    if (r == 0) {
        Sampling s = {.job = job};
        r = sample(&s, &o, &err);
        sampler_close(&s);
    }
    if (r < 0) {
        log_error("%s", err.text);
        return r == -EINVAL ? EXIT_NEVER_RETRY : EXIT_DATA_CORRUPT;
    }
    printf("%d samples in %s\n", o.samples, o.out);
    return 0;
}
