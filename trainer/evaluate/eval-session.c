/* SPDX-License-Identifier: Apache-2.0 */
/* eval-session.c - see eval-session.h. */
#include "trainer/evaluate/eval-session.h"

#include "base/memory.h"
#include "protocol/exit-code.h"
#include "protocol/paths.h"
#include "trainer/session/device.h"

#include <stdlib.h>
#include <string.h>

/* ---- the job that the checkpoint is of ---- */

/* The keys of the followed job that its evaluation depends on. The manifest has them, in the job file's words. */
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

/* Returns the share of captions that the checkpoint's job drops, if its pictures are guided away from the empty caption
 * of the data: then the data must have one. */
static json_t *drop_of(const Job *eval, json_t *terms)
{
    const bool is_guided = eval->eval.work == EVAL_GRID && eval->eval.grid.guidance != 1 &&
                           !(eval->eval.grid.model && eval->eval.grid.captions);
    json_t *dropped = json_object_get(terms, "train.caption_drop");
    return is_guided && json_is_number(dropped) ? json_real(json_number_value(dropped))
                                                : json_real(0);
}

static json_t *file_of(const EvalRequest *request, json_t *terms)
{
    const Job *eval = request->job;
    json_t *file = json_object();
    _cleanup_json_ json_t *streams = streams_of(eval), *drop = drop_of(eval, terms);
    for (size_t i = 0; i < ELEMENTSOF(keys); i++)
        if (json_object_get(terms, keys[i]))
            set(file, keys[i], json_object_get(terms, keys[i]));
    const bool cuda = eval->train.device == JOB_DEVICE_CUDA;
    const json_t *precision = json_object_get(terms, "train.precision");
    const int folder = (int)(strrchr(request->manifest, '/') - request->manifest);
    _cleanup_free_ char *config = memory_format("%.*s/unet/config.json", folder, request->manifest);
    set_text(file, "name", eval->of.job);
    set_text(file, "model.config", config);
    set_text(file, "model.init", "random");
    set(file, "data.streams", streams);
    if (eval->data.empty_text_uri)
        set_text(file, "data.empty_text", eval->data.empty_text_uri);
    set_text(file, "train.device", cuda ? "cuda" : "cpu");
    set_text(file, "train.precision",
             cuda && json_is_string(precision) ? json_string_value(precision) : "fp32");
    set_int(file, "train.threads", eval->train.threads);
    set(file, "train.caption_drop", drop);
    set(file, "train.global_batch", json_object_get(terms, "train.grain"));
    set_int(file, "train.steps", MAX(eval->eval.positions, INT64_C(1)));
    set_int(file, "world.min", 1);
    set_int(file, "world.max", 1);
    set_text(file, "checkpoint.uri", eval->checkpoint.uri);
    return file;
}

static int read_terms(const EvalRequest *request, const Manifest *manifest, Job **ret, Error *err)
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

/* key: the key of the job file. */
static int check_path(const char *key, const char *uri, bool write, Error *err)
{
    int r = uri ? paths_check_uri(uri, write, getenv(PATHS_READ_VARIABLE),
                                  getenv(PATHS_WRITE_VARIABLE), err)
                : 0;
    return r < 0 ? error_prefix(err, r, "%s", key) : 0;
}

/* An evaluation reads below checkpoint.uri, and writes nothing there. */
static int check_paths(const EvalRequest *request, Error *err)
{
    const Job *job = request->job;
    const bool draws = job->eval.work == EVAL_GRID;
    int r = check_path("checkpoint.uri", request->manifest, false, err);
    for (size_t i = 0; r == 0 && i < job->data.n_streams; i++)
        r = check_path(draws ? "grid.streams" : "loss.streams", job->data.streams[i].uri, false,
                       err);
    if (r == 0)
        r = check_path("grid.empty_text", job->data.empty_text_uri, false, err);
    if (r == 0)
        r = check_path("grid.model", job->eval.grid.model, false, err);
    return r < 0 ? r : check_path("grid.uri", job->eval.grid.uri, true, err);
}

static int open_parts(Session *s, const EvalRequest *request, Error *err)
{
    int r = check_paths(request, err);
    if (r < 0)
        return error_set_exit(err, r, EXIT_NEVER_RETRY);
    r = manifest_read_uri(request->manifest, request->hash, &s->resume_store, &s->resume, err);
    if (r < 0)
        return error_set_exit(err, r, exit_code_of_store(r));
    r = read_terms(request, s->resume, &s->job, err);
    if (r < 0)
        return error_set_exit(err, r, EXIT_NEVER_RETRY);
    r = dataset_open(s->job, &s->dataset, err);
    if (r < 0) /* r is returned below */
        (void)error_prefix(err, r, "%s",
                           request->job->eval.work == EVAL_GRID ? "grid.streams" : "loss.streams");
    if (r == 0)
        r = unet_config_read(s->job->model.config_uri, store_get_uri, &s->config, err);
    if (r < 0)
        return error_set_exit(err, r, exit_code_of_store(r));
    r = shapes_check(s->job, &s->config, dataset_shape(s->dataset), (int)s->job->train.grain, err);
    return error_set_exit(err, r, EXIT_NEVER_RETRY);
}

int eval_session_open(const EvalRequest *request, Session **ret, Error *err)
{
    Session *s = *ret = calloc(1, sizeof(*s));
    if (!s)
        return error_set(err, -ENOMEM, "out of memory");
    s->world_size = 1;
    s->link = request->link;
    s->folder_lock = -EBADF;
    return open_parts(s, request, err);
}

int eval_session_open_device(Session *s, const EvalRequest *request, int grain, Error *err)
{
    const DatasetShape *data = dataset_shape(s->dataset);
    ChannelAssign assign = {.world_size = 1};
    const SessionAssignment a = {.assign = &assign, .alone = !request->gpu};
    (void)snprintf(assign.gpu, sizeof(assign.gpu), "%s", request->gpu ?: "");
    const NetworkShape shape = {.grain = grain,
                                .height = data->height,
                                .width = data->width,
                                .text_tokens = data->text_tokens};
    return session_open_device(s, &a, &shape, err);
}

int eval_session_of_ema(const Session *s, const EvalRequest *request, bool any, bool *ret,
                        Error *err)
{
    const Job *job = request->job;
    *ret = job->eval.of == EVAL_OF_EMA || (job->eval.of == EVAL_OF_ANY && any);
    if (job->eval.of != EVAL_OF_EMA || manifest_has_ema(s->resume))
        return 0;
    return error_set_exit(err,
                          error_set(err, -EINVAL, "%s has no EMA weights (%s.weights)",
                                    request->manifest,
                                    job->eval.work == EVAL_GRID ? "grid" : "loss"),
                          EXIT_NEVER_RETRY);
}
