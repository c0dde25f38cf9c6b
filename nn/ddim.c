/* SPDX-License-Identifier: Apache-2.0 */
/* ddim.c - see ddim.h. The network runs on the device. The update between two runs of the network is a few arithmetic
 * operations per element and happens on the host. */
#include "nn/ddim.h"

#include <math.h>
#include <string.h>

typedef struct Sampler {
    Network *network;
    Device *device;
    const NoiseSchedule *schedule;
    const DdimOptions *options;
    int64_t n_each, n_text; /* elements of one sample's latents and text */
    int grain;
    /* device memory */
    void *x, *text, *empty_text, *prediction; /* data of one grain, in the compute type */
    float *staging;                           /* latents or texts of one grain, in fp32 */
    int32_t *timesteps;
    int64_t *positions;
    /* host memory, one grain */
    float *latents, *conditional, *unconditional, *host_text;
    int32_t *host_timesteps;
    int64_t *host_positions;
} Sampler;

static void sampler_close(Sampler *s)
{
    void *const device_memory[] = {s->x,       s->text,      s->empty_text, s->prediction,
                                   s->staging, s->timesteps, s->positions};
    for (size_t i = 0; i < ELEMENTSOF(device_memory); i++)
        if (device_memory[i])
            device_release(s->device, device_memory[i]);
    free(s->latents);
    free(s->conditional);
    free(s->unconditional);
    free(s->host_text);
    free(s->host_timesteps);
    free(s->host_positions);
}

static int sampler_open(Sampler *s, Error *err)
{
    size_t each = data_type_bytes(device_type(s->device));
    size_t n_latents = (size_t)(s->grain * s->n_each), n_texts = (size_t)(s->grain * s->n_text);
    struct {
        void **memory;
        size_t bytes;
    } wanted[] = {
        {&s->x, n_latents * each},
        {&s->prediction, n_latents * each},
        {&s->text, n_texts * each},
        {&s->empty_text, n_texts * each},
        {(void **)&s->staging, MAX(n_latents, n_texts) * sizeof(float)},
        {(void **)&s->timesteps, (size_t)s->grain * sizeof(int32_t)},
        {(void **)&s->positions, (size_t)s->grain * sizeof(int64_t)},
    };
    for (size_t i = 0; i < ELEMENTSOF(wanted); i++) {
        int r = device_allocate(s->device, wanted[i].bytes, wanted[i].memory, err);
        if (r < 0)
            return error_prefix(err, r, "sampling");
    }
    s->latents = calloc(n_latents, sizeof(float));
    s->conditional = calloc(n_latents, sizeof(float));
    s->unconditional = calloc(n_latents, sizeof(float));
    s->host_text = calloc(n_texts, sizeof(float));
    s->host_timesteps = calloc((size_t)s->grain, sizeof(*s->host_timesteps));
    s->host_positions = calloc((size_t)s->grain, sizeof(*s->host_positions));
    if (!s->latents || !s->conditional || !s->unconditional || !s->host_text ||
        !s->host_timesteps || !s->host_positions)
        return error_errno(err, -ENOMEM, "sampling");
    return 0;
}

static void upload(Sampler *s, const float *from, int64_t n, void *to)
{
    device_upload(s->device, s->staging, from, (size_t)n * sizeof(float));
    cast_from_f32(s->device, n, s->staging, to);
}

static void predict(Sampler *s, const void *text, float *ret)
{
    int64_t n = s->grain * s->n_each;
    network_forward(s->network, s->x, s->timesteps, text, s->prediction);
    cast_to_f32(s->device, n, s->prediction, s->staging);
    device_download(s->device, ret, s->staging, (size_t)n * sizeof(float));
}

/* Moves the latents from the noise level alpha_bar[t] to the noise level alpha_bar[to]. */
static void update(Sampler *s, int t, int to)
{
    double a = sqrt(s->schedule->alpha_bar[t]), b = sqrt(1.0 - s->schedule->alpha_bar[t]);
    double a_to = sqrt(s->schedule->alpha_bar[to]), b_to = sqrt(1.0 - s->schedule->alpha_bar[to]);
    double guidance = s->options->guidance;

    for (int64_t i = 0; i < s->grain * s->n_each; i++) {
        double x = (double)s->latents[i], p = (double)s->conditional[i];
        if (guidance != 1.0)
            p = (double)s->unconditional[i] + guidance * (p - (double)s->unconditional[i]);
        double x0 = s->options->v_prediction ? a * x - b * p : (x - b * p) / a;
        double noise = s->options->v_prediction ? a * p + b * x : p;
        s->latents[i] = (float)(a_to * x0 + b_to * noise);
    }
}

static void set_timesteps(Sampler *s, int t)
{
    int32_t *all = s->host_timesteps;
    for (int i = 0; i < s->grain; i++)
        all[i] = t;
    device_upload(s->device, s->timesteps, all, (size_t)s->grain * sizeof(*all));
}

/* Samples one grain, from noise to latents. s->text must already hold the grain's texts. */
static int sample_grain(Sampler *s, int64_t first_position, Error *err)
{
    int64_t n = s->grain * s->n_each;
    for (int i = 0; i < s->grain; i++)
        s->host_positions[i] = first_position + i;
    device_upload(s->device, s->positions, s->host_positions,
                  (size_t)s->grain * sizeof(*s->host_positions));
    normal_noise(s->device, s->options->seed, s->grain, s->n_each, s->positions, s->staging);
    device_download(s->device, s->latents, s->staging, (size_t)n * sizeof(float));

    int stride = s->schedule->n_steps / s->options->steps;
    for (int i = s->options->steps - 1; i >= 0; i--) {
        int t = i * stride + 1;
        set_timesteps(s, t);
        upload(s, s->latents, n, s->x);
        predict(s, s->text, s->conditional);
        if (s->options->guidance != 1.0)
            predict(s, s->empty_text, s->unconditional);
        update(s, t, MAX(t - stride, 0));
        int r = s->options->progress ? s->options->progress(s->options->context, err) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

/* The last grain may have fewer samples: its empty places repeat the last text, and their latents are not copied to the
 * caller. */
static int sample_all(Sampler *s, int64_t n_samples, const float *text, float *latents, Error *err)
{
    int r = 0;
    for (int64_t first = 0; r == 0 && first < n_samples; first += s->grain) {
        int64_t n = MIN(n_samples - first, (int64_t)s->grain);
        for (int64_t i = 0; i < s->grain; i++)
            memcpy(s->host_text + i * s->n_text, text + (first + MIN(i, n - 1)) * s->n_text,
                   (size_t)s->n_text * sizeof(float));
        upload(s, s->host_text, s->grain * s->n_text, s->text);
        r = sample_grain(s, first, err);
        memcpy(latents + first * s->n_each, s->latents, (size_t)(n * s->n_each) * sizeof(float));
    }
    return r;
}

int ddim_sample(Network *network, const NoiseSchedule *schedule, const DdimOptions *options,
                int64_t n_samples, const float *text, const float *empty_text, float *latents,
                Error *err)
{
    const UnetConfig *config = network_config(network);
    const NetworkShape *shape = network_shape(network);
    if (options->steps < 1 || options->steps >= schedule->n_steps)
        return error_set(err, -EINVAL, "sampling: %d steps, not in 1..%d", options->steps,
                         schedule->n_steps - 1);
    if (config->in_channels != config->out_channels)
        return error_set(err, -EINVAL, "sampling: the network turns %d channels into %d",
                         config->in_channels, config->out_channels);
    if (!empty_text && options->guidance != 1.0)
        return error_set(err, -EINVAL, "sampling: guidance %g needs the empty text",
                         options->guidance);

    _cleanup_(sampler_close)
        Sampler s = {.network = network,
                     .device = network_device(network),
                     .schedule = schedule,
                     .options = options,
                     .n_each = (int64_t)shape->height * shape->width * config->in_channels,
                     .n_text = (int64_t)shape->text_tokens * config->cross_attention_dim,
                     .grain = shape->grain};
    int r = sampler_open(&s, err);
    if (r < 0)
        return r;
    if (empty_text) {
        for (int i = 0; i < s.grain; i++)
            memcpy(s.host_text + i * s.n_text, empty_text, (size_t)s.n_text * sizeof(float));
        upload(&s, s.host_text, s.grain * s.n_text, s.empty_text);
    }
    r = sample_all(&s, n_samples, text, latents, err);
    return r < 0 ? r : device_synchronise(s.device, err);
}
