/* SPDX-License-Identifier: Apache-2.0 */
/* grain.c - see grain.h. */
#include "trainer/grain.h"

#include "base/exactmath.h"
#include "base/philox.h"

#include <string.h>

struct GrainWork {
    Device *device;
    Network *network;
    const Job *job;
    DatasetShape shape;
    const float *empty_text; /* host */
    NoiseSchedule *schedule;
    int64_t latent_elements, text_elements; /* of one sample */

    float *text_host; /* [grain][tokens][dim], captions dropped */
    int32_t *timesteps_host;
    int64_t *positions_host;

    /* device */
    float *x0, *noise, *x_t, *target, *text, *signal, *sigma;
    int32_t *timesteps;
    int64_t *positions;
    void *input, *context, *prediction, *dprediction, *workspace;
    double *loss;
};

/* Draws of different purposes never share a block. */
static uint64_t draw_key(uint64_t seed, const char *purpose)
{
    return hash64_bytes(purpose, strlen(purpose), seed);
}

int32_t draw_timestep(uint64_t seed, int64_t position, int n_steps)
{
    Philox block = philox4x32(draw_key(seed, "timestep"), (uint64_t)position, 0);
    return (int32_t)(((uint64_t)block.word[0] * (uint64_t)n_steps) >> 32);
}

bool draw_caption_drop(uint64_t seed, int64_t position, double probability)
{
    Philox block = philox4x32(draw_key(seed, "caption-drop"), (uint64_t)position, 0);
    return (double)block.word[0] * 0x1p-32 < probability;
}

int draw_noise(Device *device, uint64_t seed, int64_t position, int64_t n, float *ret, Error *err)
{
    void *noise = NULL, *positions = NULL;
    int r = device_allocate(device, (size_t)n * sizeof(float), &noise, err);
    if (r == 0)
        r = device_allocate(device, sizeof(position), &positions, err);
    if (r == 0) {
        device_upload(device, positions, &position, sizeof(position));
        normal_noise(device, draw_key(seed, "noise"), 1, n, positions, noise);
        device_download(device, ret, noise, (size_t)n * sizeof(float));
        r = device_synchronise(device, err);
    }
    device_release(device, noise);
    device_release(device, positions);
    return r;
}

static int allocate_device(GrainWork *w, Error *err)
{
    const int64_t n = w->job->train.grain, latents = n * w->latent_elements,
                  text = n * w->text_elements;
    const size_t type = data_type_bytes(device_type(w->device));
    const size_t schedule = (size_t)w->schedule->n_steps * sizeof(float);
    const struct {
        void **at;
        size_t n_bytes;
    } buffers[] = {
        {(void **)&w->x0, (size_t)latents * sizeof(float)},
        {(void **)&w->noise, (size_t)latents * sizeof(float)},
        {(void **)&w->x_t, (size_t)latents * sizeof(float)},
        {(void **)&w->target, (size_t)latents * sizeof(float)},
        {(void **)&w->text, (size_t)text * sizeof(float)},
        {(void **)&w->signal, schedule},
        {(void **)&w->sigma, schedule},
        {(void **)&w->timesteps, (size_t)n * sizeof(int32_t)},
        {(void **)&w->positions, (size_t)n * sizeof(int64_t)},
        {&w->input, (size_t)latents * type},
        {&w->context, (size_t)text * type},
        {&w->prediction, (size_t)latents * type},
        {&w->dprediction, (size_t)latents * type},
        {&w->workspace, mse_loss_workspace_bytes(w->device, latents)},
        {(void **)&w->loss, sizeof(double)},
    };
    for (size_t i = 0; i < ELEMENTSOF(buffers); i++) {
        int r = device_allocate(w->device, buffers[i].n_bytes, buffers[i].at, err);
        if (r < 0)
            return r;
    }
    device_upload(w->device, w->signal, w->schedule->signal, schedule);
    device_upload(w->device, w->sigma, w->schedule->noise, schedule);
    return 0;
}

int grain_work_new(Device *device, Network *network, const Job *job, const DatasetShape *shape,
                   const float *empty_text, GrainWork **ret, Error *err)
{
    /* shapes_check() has been asked: every buffer below has the size of one of the three. */
    const UnetConfig *config = network_config(network);
    assert(config->in_channels == shape->channels && config->out_channels == shape->channels);
    assert(config->cross_attention_dim == shape->text_dim);
    _cleanup_(grain_work_freep) GrainWork *w = calloc(1, sizeof(*w));
    if (!w)
        return error_set(err, -ENOMEM, "out of memory");
    w->device = device;
    w->network = network;
    w->job = job;
    w->shape = *shape;
    w->empty_text = empty_text;
    w->latent_elements = (int64_t)shape->channels * shape->height * shape->width;
    w->text_elements = (int64_t)shape->text_tokens * shape->text_dim;

    int r =
        noise_schedule_new(job->train.noise_schedule.beta_start, job->train.noise_schedule.beta_end,
                           job->train.noise_schedule.steps, &w->schedule, err);
    if (r < 0)
        return r;
    size_t n = (size_t)job->train.grain;
    w->text_host = calloc(n * (size_t)w->text_elements, sizeof(float));
    w->timesteps_host = calloc(n, sizeof(int32_t));
    w->positions_host = calloc(n, sizeof(int64_t));
    if (!w->text_host || !w->timesteps_host || !w->positions_host)
        return error_set(err, -ENOMEM, "out of memory for a grain's %zu samples", n);
    r = allocate_device(w, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(w);
    return 0;
}

GrainWork *grain_work_free(GrainWork *w)
{
    if (!w)
        return NULL;
    void *buffers[] = {w->x0,      w->noise,      w->x_t,         w->target,    w->text,
                       w->signal,  w->sigma,      w->timesteps,   w->positions, w->input,
                       w->context, w->prediction, w->dprediction, w->workspace, w->loss};
    for (size_t i = 0; i < ELEMENTSOF(buffers); i++)
        if (buffers[i])
            device_release(w->device, buffers[i]);
    (void)noise_schedule_free(w->schedule);
    free(w->text_host);
    free(w->timesteps_host);
    free(w->positions_host);
    free(w);
    return NULL;
}

static void draw(GrainWork *w, const LoaderGrain *grain)
{
    const Job *job = w->job;
    const size_t text_bytes = (size_t)w->text_elements * sizeof(float);

    for (int64_t i = 0; i < job->train.grain; i++) {
        int64_t position = grain->first_position + i;
        w->positions_host[i] = position;
        w->timesteps_host[i] = draw_timestep(job->train.seed, position, w->schedule->n_steps);
        bool drop =
            w->empty_text && draw_caption_drop(job->train.seed, position, job->train.caption_drop);
        memcpy(w->text_host + i * w->text_elements,
               drop ? w->empty_text : grain->text + i * w->text_elements, text_bytes);
    }
}

int grain_work_compute(GrainWork *w, const LoaderGrain *grain, float *gradients, double *ret_loss,
                       Error *err)
{
    Device *d = w->device;
    const int n = (int)w->job->train.grain;
    const int64_t latents = n * w->latent_elements, text = n * w->text_elements;

    draw(w, grain);
    device_upload(d, w->x0, grain->latents, (size_t)latents * sizeof(float));
    device_upload(d, w->text, w->text_host, (size_t)text * sizeof(float));
    device_upload(d, w->timesteps, w->timesteps_host, (size_t)n * sizeof(int32_t));
    device_upload(d, w->positions, w->positions_host, (size_t)n * sizeof(int64_t));

    normal_noise(d, draw_key(w->job->train.seed, "noise"), n, w->latent_elements, w->positions,
                 w->noise);
    diffuse(d, n, w->latent_elements, w->x0, w->noise, w->timesteps, w->signal, w->sigma,
            w->job->train.prediction == PREDICTION_V, w->x_t, w->target);
    cast_from_f32(d, latents, w->x_t, w->input);
    cast_from_f32(d, text, w->text, w->context);

    network_forward(w->network, w->input, w->timesteps, w->context, w->prediction);
    mse_loss(d, latents, w->prediction, w->target, 1.0f, w->loss, w->dprediction, w->workspace);
    network_backward(w->network, w->dprediction, gradients, NULL, NULL);

    device_download(d, ret_loss, w->loss, sizeof(*ret_loss));
    return device_synchronise(d, err);
}

/* n draws of N(0, 1) at counter block / 4. */
static void fill_normal(float *to, int64_t n, uint64_t key)
{
    for (int64_t i = 0; i < n; i += 4) {
        Philox block = philox4x32(key, 0, (uint64_t)(i / 4));
        float z[4];
        exact_normal_pair(block.word[0], block.word[1], z);
        exact_normal_pair(block.word[2], block.word[3], z + 2);
        memcpy(to + i, z, (size_t)MIN(n - i, 4) * sizeof(float));
    }
}

int canned_grain(GrainWork *w, float *gradients, int64_t n_gradients, Hash *ret, Error *err)
{
    const int64_t n = w->job->train.grain;
    _cleanup_free_ float *latents = calloc((size_t)(n * w->latent_elements), sizeof(float));
    _cleanup_free_ float *text = calloc((size_t)(n * w->text_elements), sizeof(float));
    _cleanup_(hasher_freep) Hasher *hasher = NULL;
    if (!latents || !text || hasher_new(&hasher) < 0)
        return error_set(err, -ENOMEM, "out of memory for the canned grain");
    fill_normal(latents, n * w->latent_elements, 1);
    fill_normal(text, n * w->text_elements, 2);

    LoaderGrain grain = {.latents = latents, .text = text};
    double loss;
    int r = grain_work_compute(w, &grain, gradients, &loss, err);
    if (r < 0)
        return r;

    _cleanup_free_ float *piece = malloc((size_t)MIN(n_gradients, 1 << 20) * sizeof(float));
    if (!piece)
        return error_set(err, -ENOMEM, "out of memory for the canned grain");
    for (int64_t i = 0; i < n_gradients; i += 1 << 20) {
        size_t bytes = (size_t)MIN(n_gradients - i, 1 << 20) * sizeof(float);
        device_download(w->device, piece, gradients + i, bytes);
        hasher_update(hasher, piece, bytes);
    }
    hasher_update(hasher, &loss, sizeof(loss));
    *ret = hasher_digest(hasher);
    return 0;
}
