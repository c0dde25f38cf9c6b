/* SPDX-License-Identifier: Apache-2.0 */
/* loss.c - see loss.h. */
#include "trainer/evaluate/loss.h"

#include "base/memory.h"
#include "protocol/exit-code.h"
#include "protocol/paths.h"
#include "trainer/session/device-exit.h"
#include "trainer/session/device.h"
#include "trainer/state/device-patience.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { READ_AHEAD_BYTES = 64 << 20, GRAIN_SEC = 600 };

typedef struct Measure {
    const LossRequest *request;
    Session *session; /* job, device, network and data; it joins no world */
    float *weights;   /* device memory */
    double *loss;     /* device memory: the loss of one grain */
} Measure;

/* ---- the job that the checkpoint is of ---- */

/* The keys of the followed job that its loss depends on. The manifest has them, in the job file's words. */
static const char *const keys[] = {"data.latents",
                                   "data.text",
                                   "data.latent_scale",
                                   "data.shuffle_window",
                                   "train.grain",
                                   "train.seed",
                                   "train.prediction",
                                   "train.noise_schedule.beta_start",
                                   "train.noise_schedule.beta_end",
                                   "train.noise_schedule.steps"};

/* Sets a value by its path, "train.noise_schedule.steps". */
static void set(json_t *file, const char *path, json_t *value)
{
    char name[64];
    const char *dot;
    for (; (dot = strchr(path, '.')); path = dot + 1) {
        (void)snprintf(name, sizeof(name), "%.*s", (int)(dot - path), path);
        json_t *inner = json_object_get(file, name);
        if (!inner) {
            inner = json_object();
            json_object_set_new(file, name, inner);
        }
        file = inner;
    }
    json_object_set(file, path, value);
}

static void set_text(json_t *file, const char *path, const char *text)
{
    _cleanup_json_ json_t *value = json_string(text);
    set(file, path, value);
}

static void set_int(json_t *file, const char *path, int64_t number)
{
    _cleanup_json_ json_t *value = json_integer((json_int_t)number);
    set(file, path, value);
}

static json_t *streams_of(const Job *job)
{
    json_t *streams = json_array();
    for (size_t i = 0; i < job->data.n_streams; i++)
        json_array_append_new(streams, json_pack("{s:s, s:f}", "uri", job->data.streams[i].uri,
                                                 "proportion", job->data.streams[i].proportion));
    return streams;
}

/* Makes a job that computes what the checkpoint's job does, on the data of the evaluation, one grain a step. */
static json_t *file_of(const LossRequest *request, json_t *terms)
{
    const Job *eval = request->job;
    json_t *file = json_object();
    _cleanup_json_ json_t *streams = streams_of(eval), *none = json_real(0);
    for (size_t i = 0; i < ELEMENTSOF(keys); i++)
        if (json_object_get(terms, keys[i]))
            set(file, keys[i], json_object_get(terms, keys[i]));
    const bool cuda = eval->train.device == JOB_DEVICE_CUDA;
    const json_t *precision = json_object_get(terms, "train.precision");
    const int folder = (int)(strrchr(request->manifest, '/') - request->manifest);
    _cleanup_free_ char *config = memory_format("%.*s/unet/config.json", folder, request->manifest);
    set_text(file, "name", eval->name);
    set_text(file, "model.config", config);
    set_text(file, "model.init", "random");
    set(file, "data.streams", streams);
    set_text(file, "train.device", cuda ? "cuda" : "cpu");
    set_text(file, "train.precision",
             cuda && json_is_string(precision) ? json_string_value(precision) : "fp32");
    set_int(file, "train.threads", eval->train.threads);
    set(file, "train.caption_drop", none);
    set(file, "train.global_batch", json_object_get(terms, "train.grain"));
    set_int(file, "train.steps", eval->loss.positions);
    set_int(file, "world.min", 1);
    set_int(file, "world.max", 1);
    set_text(file, "checkpoint.uri", eval->checkpoint.uri);
    return file;
}

static int read_terms(const LossRequest *request, const Manifest *manifest, Job **ret, Error *err)
{
    _cleanup_json_ json_t *terms = job_terms_parse(manifest_facts(manifest)->job_terms);
    if (!json_object_get(terms, "train.grain"))
        return error_set(err, -EPROTONOSUPPORT,
                         "%s names no terms of its job: an older version wrote it",
                         request->manifest);
    _cleanup_json_ json_t *file = file_of(request, terms);
    _cleanup_free_ char *text = json_dumps(file, JSON_COMPACT | JSON_REAL_PRECISION(17));
    return job_parse(request->manifest, text, strlen(text), ret, err);
}

/* ---- the parts ---- */

/* After a failure the device may still compute: then session_free() keeps it, and its memory stays, too. */
static void measure_close(Measure *m)
{
    Session *s = m->session;
    if (s && s->device && device_is_idle(s->device)) {
        device_release(s->device, m->weights);
        device_release(s->device, m->loss);
    }
    m->session = session_free(s);
}

static int open_data(Measure *m, Error *err)
{
    Session *s = m->session;
    const LossRequest *request = m->request;
    int r = manifest_read_uri(request->manifest, request->hash, &s->resume_store, &s->resume, err);
    if (r < 0)
        return error_set_exit(err, r, exit_code_of_store(r));
    r = read_terms(request, s->resume, &s->job, err);
    if (r == 0)
        r = paths_check_job(s->job, request->manifest, getenv(PATHS_READ_VARIABLE), NULL, err);
    if (r < 0)
        return error_set_exit(err, r, EXIT_NEVER_RETRY);
    r = dataset_open(s->job, &s->dataset, err);
    if (r < 0)
        (void)error_prefix(err, r, "loss.streams"); /* r is returned below */
    if (r == 0)
        r = unet_config_read(s->job->model.config_uri, store_get_uri, &s->config, err);
    if (r < 0)
        return error_set_exit(err, r, exit_code_of_store(r));
    r = shapes_check(s->job, &s->config, dataset_shape(s->dataset), (int)s->job->train.grain, err);
    return error_set_exit(err, r, EXIT_NEVER_RETRY);
}

static int open_network(Measure *m, Error *err)
{
    Session *s = m->session;
    const DatasetShape *data = dataset_shape(s->dataset);
    ChannelAssign assign = {.world_size = 1};
    const SessionAssignment a = {.assign = &assign, .alone = !m->request->gpu};
    (void)snprintf(assign.gpu, sizeof(assign.gpu), "%s", m->request->gpu ?: "");
    const NetworkShape shape = {.grain = (int)s->job->train.grain,
                                .height = data->height,
                                .width = data->width,
                                .text_tokens = data->text_tokens};
    int r = session_open_device(s, &a, &shape, err);
    if (r < 0)
        return r;
    r = network_new(s->device, &s->config, &shape, &s->network, err);
    if (r == 0)
        r = grain_work_new(s->device, s->network, s->job, data, NULL, &s->work, err);
    if (r == 0)
        r = device_allocate(s->device,
                            (size_t)network_parameters(s->network)->n_elements * sizeof(float),
                            (void **)&m->weights, err);
    if (r == 0)
        r = device_allocate(s->device, sizeof(*m->loss), (void **)&m->loss, err);
    return error_set_exit(err, r, r == -ENOMEM ? EXIT_RETRY : device_exit_code(r));
}

/* ---- measuring ---- */

static int measure_grain(Measure *m, Loader *loader, int64_t grain, double *ret, Error *err)
{
    Session *s = m->session;
    LoaderGrain samples;
    int r = loader_get(loader, grain, 0, GRAIN_SEC * USEC_PER_SEC, &samples, err);
    if (r < 0)
        return error_set_exit(err, r, exit_code_of_store(r));
    r = grain_work_measure(s->work, &samples, m->loss, GRAIN_SEC * USEC_PER_SEC, err);
    loader_release(loader, grain);
    if (r == 0) {
        device_download(s->device, ret, m->loss, sizeof(*ret));
        r = device_synchronise(s->device, err);
    }
    if (r < 0)
        return error_set_exit(err, r, device_exit_code(r));
    if (!isfinite(*ret))
        return error_set_exit(
            err,
            error_set(err, -EDOM, "the loss of positions %lld to %lld is %g",
                      (long long)samples.first_position,
                      (long long)(samples.first_position + s->job->train.grain - 1), *ret),
            EXIT_NON_FINITE);
    return 0;
}

/* Adds the mean loss of the weights, or of the EMA weights. done: how many measurements there were before, of n. */
static int measure(Measure *m, bool of_ema, int done, int n, EvalResults *ret, Error *err)
{
    Session *s = m->session;
    const int64_t grain = s->job->train.grain;
    const int64_t n_grains = (m->request->job->loss.positions + grain - 1) / grain;
    _cleanup_(loader_freep) Loader *loader = NULL;
    double sum = 0;
    int r = checkpoint_restore_weights(s->resume_store, s->resume, of_ema,
                                       network_parameters(s->network), s->device, m->weights, err);
    if (r == 0)
        r = loader_new(s->dataset, s->job, 0, 0, 1, READ_AHEAD_BYTES, &loader, err);
    if (r < 0)
        return error_set_exit(err, r, exit_code_of_store(r));
    network_set_weights(s->network, m->weights);
    for (int64_t i = 0; i < n_grains; i++) {
        double loss;
        r = measure_grain(m, loader, i, &loss, err);
        if (r < 0)
            return r;
        sum += loss;
        r = m->request->progress(m->request->userdata, (done * n_grains + i + 1) * grain,
                                 n * n_grains * grain, sum / (double)(i + 1), err);
        if (r < 0)
            return r;
    }
    return eval_results_add_number(ret, of_ema ? "ema_loss" : "loss", sum / (double)n_grains);
}

static int measure_all(Measure *m, EvalResults *ret, Error *err)
{
    const LossOf of = m->request->job->loss.of;
    const bool has_ema = manifest_has_ema(m->session->resume);
    if (of == LOSS_OF_EMA && !has_ema)
        return error_set_exit(err,
                              error_set(err, -EINVAL, "%s has no EMA weights (loss.weights)",
                                        m->request->manifest),
                              EXIT_NEVER_RETRY);
    const bool both = of == LOSS_OF_BOTH && has_ema;
    int r = 0;
    if (of != LOSS_OF_EMA)
        r = measure(m, false, 0, both ? 2 : 1, ret, err);
    if (r == 0 && (both || of == LOSS_OF_EMA))
        r = measure(m, true, both, both ? 2 : 1, ret, err);
    return r;
}

int loss_measure(const LossRequest *request, EvalResults *ret, Error *err)
{
    _cleanup_(measure_close) Measure m = {.request = request};
    m.session = calloc(1, sizeof(*m.session));
    if (!m.session)
        return error_set(err, -ENOMEM, "out of memory");
    m.session->world_size = 1;
    m.session->link = request->link;
    m.session->folder_lock = -EBADF;
    int r = open_data(&m, err);
    if (r == 0)
        r = open_network(&m, err);
    return r < 0 ? r : measure_all(&m, ret, err);
}
