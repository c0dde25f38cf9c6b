/* SPDX-License-Identifier: Apache-2.0 */
/* job.c - see job.h. Parses job files, checks rules across keys, and hashes the values that may change a bit. */
#include "protocol/job.h"

#include "base/file.h"
#include "base/json/json-build.h"
#include "base/json/json.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

static char *take_string(JsonReader *r, const char *key, JsonNeed need, const char *fallback)
{
    const char *text = fallback;
    json_get_string(r, key, need, &text);
    if (!text || r->r < 0)
        return NULL;
    if (!*text)
        json_refuse(r, key, "is empty");
    if (strlen(text) > 500)
        json_refuse(r, key, "%.40s... is longer than 500 bytes", text);
    return memory_text(text);
}

static int take_int(JsonReader *r, const char *key, JsonNeed need, int64_t min, int64_t max,
                    int64_t fallback)
{
    int64_t v = fallback;
    json_get_int(r, key, need, min, max, &v);
    return (int)v;
}

static void check_name(JsonReader *r, const char *key, const char *name)
{
    if (r->r < 0)
        return;
    size_t n = strlen(name);
    bool good = n > 0 && name[0] != '-' && name[n - 1] != '-';
    for (size_t i = 0; i < n; i++)
        good = good && ((name[i] >= 'a' && name[i] <= 'z') || (name[i] >= '0' && name[i] <= '9') ||
                        name[i] == '-');
    if (!good)
        json_refuse(r, key, "\"%s\" must be lower-case letters, digits and inner '-'", name);
}

/* A program of others expects equal numbers of ranks on all nodes, as torchrun gives them. */
static void parse_per_node(JsonReader *r, Job *job)
{
    job->world.per_node = take_int(r, "per_node", JSON_OPTIONAL, 1, JOB_PER_NODE_MAX, 1);
    if (r->r == 0 && job->world.min % job->world.per_node != 0)
        json_refuse(r, "min", "%d is not a multiple of world.per_node %d", job->world.min,
                    job->world.per_node);
    if (r->r == 0 && job->world.max % job->world.per_node != 0)
        json_refuse(r, "max", "%d is not a multiple of world.per_node %d", job->world.max,
                    job->world.per_node);
}

static void parse_world(JsonReader *root, Job *job)
{
    JsonReader r = json_get_object(root, "world", JSON_REQUIRED);
    job->world.min = take_int(&r, "min", JSON_REQUIRED, 1, 16384, 0);
    job->world.max = take_int(&r, "max", JSON_REQUIRED, 1, 16384, 0);
    if (r.r == 0 && job->world.min > job->world.max)
        json_refuse(&r, "min", "%d is greater than world.max %d", job->world.min, job->world.max);
    if (job_is_program(job))
        parse_per_node(&r, job);
    json_close(&r);
}

static void parse_model(JsonReader *root, Job *job)
{
    JsonReader r = json_get_object(root, "model", JSON_REQUIRED);
    job->model.config_uri = take_string(&r, "config", JSON_REQUIRED, NULL);

    json_t *init = NULL;
    if (json_get_any(&r, "init", JSON_OPTIONAL, &init) && json_is_object(init)) {
        JsonReader c = json_get_object(&r, "init", JSON_REQUIRED);
        job->model.init = INIT_CHECKPOINT;
        job->model.init_uri = take_string(&c, "checkpoint", JSON_REQUIRED, NULL);
        json_get_bool(&c, "optimizer", JSON_OPTIONAL, &job->model.init_optimizer);
        json_close(&c);
    } else {
        char *text = take_string(&r, "init", JSON_OPTIONAL, "random");
        if (text && strcmp(text, "random") != 0) {
            job->model.init = INIT_SAFETENSORS;
            job->model.init_uri = TAKE_PTR(text);
        }
        free(text);
    }
    json_close(&r);
}

static void parse_streams(JsonReader *r, Job *job)
{
    json_t *streams = NULL;
    if (!json_get_array(r, "streams", JSON_REQUIRED, JOB_STREAMS_MAX, &streams))
        return;
    if (json_array_size(streams) == 0)
        json_refuse(r, "streams", "no stream is given");

    for (size_t i = 0; i < json_array_size(streams) && r->r == 0; i++) {
        JsonReader s = json_get_element(r, "streams", streams, i);
        JobStream *stream = &job->data.streams[i];
        job->data.n_streams = i + 1;
        stream->uri = take_string(&s, "uri", JSON_REQUIRED, NULL);
        stream->proportion = 1.0;
        json_get_double(&s, "proportion", JSON_OPTIONAL, 1e-9, 1e9, &stream->proportion);
        json_close(&s);
    }
}

/* Reads the name of a column. The default name is the key itself. */
static char *take_column(JsonReader *r, const char *key, bool *ret_named)
{
    char *name = take_string(r, key, JSON_OPTIONAL, NULL);
    *ret_named = name != NULL;
    return name || r->r < 0 ? name : memory_text(key);
}

static void parse_data(JsonReader *root, Job *job)
{
    JsonReader r = json_get_object(root, "data", JSON_REQUIRED);
    parse_streams(&r, job);
    job->data.latents = take_column(&r, "latents", &job->data.names_latents);
    job->data.text = take_column(&r, "text", &job->data.names_text);
    job->data.latent_scale = 1.0;
    json_get_double(&r, "latent_scale", JSON_OPTIONAL, 1e-6, 1e6, &job->data.latent_scale);
    job->data.empty_text_uri = take_string(&r, "empty_text", JSON_OPTIONAL, NULL);
    job->data.shuffle_window = 1 << 18;
    json_get_int(&r, "shuffle_window", JSON_OPTIONAL, 1, INT64_C(1) << 40,
                 &job->data.shuffle_window);
    job->data.cache_dir = take_string(&r, "cache_dir", JSON_OPTIONAL, NULL);
    job->data.cache_bytes = INT64_C(64) << 30;
    json_get_int(&r, "cache_bytes", JSON_OPTIONAL, 1 << 20, INT64_MAX, &job->data.cache_bytes);
    job->data.read_ahead = JOB_READ_AHEAD;
    json_get_int(&r, "read_ahead", JSON_OPTIONAL, 1, JOB_READ_AHEAD_MAX, &job->data.read_ahead);
    job->data.read_ahead_bytes = JOB_READ_AHEAD_BYTES;
    json_get_int(&r, "read_ahead_bytes", JSON_OPTIONAL, 1 << 20, INT64_C(1) << 40,
                 &job->data.read_ahead_bytes);
    json_close(&r);
}

static void parse_optimizer(JsonReader *train, Job *job)
{
    JsonReader r = json_get_object(train, "optimizer", JSON_OPTIONAL);
    job->train.optimizer.lr = 1e-4;
    json_get_double(&r, "lr", JSON_OPTIONAL, 0, 10, &job->train.optimizer.lr);
    job->train.optimizer.beta1 = 0.9;
    job->train.optimizer.beta2 = 0.999;

    json_t *betas = NULL;
    if (json_get_array(&r, "betas", JSON_OPTIONAL, 2, &betas)) {
        double beta[2] = {-1, -1};
        for (size_t i = 0; i < 2; i++)
            beta[i] = json_number_value(json_array_get(betas, i));
        if (json_array_size(betas) != 2 || !json_is_number(json_array_get(betas, 0)) ||
            !json_is_number(json_array_get(betas, 1)) || !(beta[0] >= 0 && beta[0] < 1) ||
            !(beta[1] >= 0 && beta[1] < 1))
            json_refuse(&r, "betas", "expected two numbers in [0, 1)");
        job->train.optimizer.beta1 = beta[0];
        job->train.optimizer.beta2 = beta[1];
    }
    job->train.optimizer.eps = 1e-8;
    json_get_double(&r, "eps", JSON_OPTIONAL, 1e-30, 1, &job->train.optimizer.eps);
    job->train.optimizer.weight_decay = 0.01;
    json_get_double(&r, "weight_decay", JSON_OPTIONAL, 0, 10, &job->train.optimizer.weight_decay);
    job->train.optimizer.warmup_steps = 10000;
    json_get_int(&r, "warmup_steps", JSON_OPTIONAL, 0, INT64_C(1) << 40,
                 &job->train.optimizer.warmup_steps);
    job->train.optimizer.clip_norm = 1.0;
    json_get_double(&r, "clip_norm", JSON_OPTIONAL, 0, 1e9, &job->train.optimizer.clip_norm);
    json_close(&r);
}

static void parse_ema(JsonReader *train, Job *job)
{
    json_t *ema = NULL;
    job->train.ema.enabled = json_get_any(train, "ema", JSON_OPTIONAL, &ema);
    if (!job->train.ema.enabled)
        return;
    JsonReader r = json_get_object(train, "ema", JSON_OPTIONAL);
    job->train.ema.decay = 0.9999;
    json_get_double(&r, "decay", JSON_OPTIONAL, 0, 1, &job->train.ema.decay);
    json_get_int(&r, "start_step", JSON_OPTIONAL, 0, INT64_C(1) << 40, &job->train.ema.start_step);
    json_close(&r);
}

static void parse_noise_schedule(JsonReader *train, Job *job)
{
    static const char *const kinds[] = {"scaled_linear"};
    int kind = 0;
    int64_t steps = 1000;
    JsonReader r = json_get_object(train, "noise_schedule", JSON_OPTIONAL);
    json_get_choice(&r, "kind", JSON_OPTIONAL, kinds, ELEMENTSOF(kinds), &kind);
    job->train.noise_schedule.beta_start = 0.00085;
    job->train.noise_schedule.beta_end = 0.012;
    json_get_double(&r, "beta_start", JSON_OPTIONAL, 1e-9, 0.999,
                    &job->train.noise_schedule.beta_start);
    json_get_double(&r, "beta_end", JSON_OPTIONAL, 1e-9, 0.999,
                    &job->train.noise_schedule.beta_end);
    json_get_int(&r, "steps", JSON_OPTIONAL, 2, 100000, &steps);
    job->train.noise_schedule.steps = (int)steps;
    if (r.r == 0 && job->train.noise_schedule.beta_start > job->train.noise_schedule.beta_end)
        json_refuse(&r, "beta_start", "%g is greater than beta_end %g",
                    job->train.noise_schedule.beta_start, job->train.noise_schedule.beta_end);
    json_close(&r);
}

static void parse_train_kinds(JsonReader *r, Job *job)
{
    static const char *const devices[] = {"cpu", "cuda"};
    static const char *const precisions[] = {"fp32", "bf16", "fp16"};
    static const char *const reductions[] = {"exact", "exact64", "float"};
    static const char *const predictions[] = {"epsilon", "v_prediction"};
    int device = JOB_DEVICE_CPU;
    int precision = PRECISION_FP32, reduction = REDUCTION_EXACT, prediction = PREDICTION_EPSILON;
    json_get_choice(r, "device", JSON_OPTIONAL, devices, ELEMENTSOF(devices), &device);
    json_get_choice(r, "precision", JSON_OPTIONAL, precisions, ELEMENTSOF(precisions), &precision);
    json_get_choice(r, "reduction", JSON_OPTIONAL, reductions, ELEMENTSOF(reductions), &reduction);
    json_get_choice(r, "prediction", JSON_OPTIONAL, predictions, ELEMENTSOF(predictions),
                    &prediction);
    job->train.device = (JobDevice)device;
    job->train.precision = (Precision)precision;
    job->train.reduction = (Reduction)reduction;
    job->train.prediction = (Prediction)prediction;
}

/* Parses train.plans: the word "auto" or "installed", or the URI of a plan set. A file called auto is written as
 * "./auto". */
static void parse_plans(JsonReader *r, Job *job)
{
    const bool has_plans = job->train.precision == PRECISION_BF16;
    char *plans = take_string(r, "plans", JSON_OPTIONAL, NULL);
    job->train.plan_sec = take_int(r, "plan_sec", JSON_OPTIONAL, 1, 3600, 60);
    if (plans && !has_plans)
        json_refuse(r, "plans", "only what computes in bf16 (train.precision) has plans");
    if (plans ? strcmp(plans, "auto") == 0 : has_plans)
        job->train.plans = JOB_PLANS_AUTO;
    else if (plans && strcmp(plans, "installed") != 0)
        job->train.plans = JOB_PLANS_SET;
    if (job->train.plans == JOB_PLANS_SET)
        job->train.plans_uri = TAKE_PTR(plans);
    free(plans);
}

static void parse_train(JsonReader *root, Job *job)
{
    JsonReader r = json_get_object(root, "train", JSON_REQUIRED);
    int64_t seed = 17;
    json_get_int(&r, "global_batch", JSON_REQUIRED, 1, INT64_C(1) << 24, &job->train.global_batch);
    json_get_int(&r, "grain", JSON_REQUIRED, 1, 4096, &job->train.grain);
    json_get_int(&r, "steps", JSON_REQUIRED, 1, INT64_C(1) << 40, &job->train.steps);
    json_get_int(&r, "seed", JSON_OPTIONAL, 0, INT64_MAX, &seed);
    job->train.seed = (uint64_t)seed;
    parse_train_kinds(&r, job);
    parse_plans(&r, job);
    job->train.zero_stage = take_int(&r, "zero_stage", JSON_OPTIONAL, 0, 2, 1);
    job->train.threads = take_int(&r, "threads", JSON_OPTIONAL, 1, 256, 1);
    parse_optimizer(&r, job);
    parse_ema(&r, job);
    job->train.caption_drop = 0.1;
    json_get_double(&r, "caption_drop", JSON_OPTIONAL, 0, 1, &job->train.caption_drop);
    json_get_bool(&r, "stop_if_diverging", JSON_OPTIONAL, &job->train.stop_if_diverging);
    parse_noise_schedule(&r, job);

    if (r.r == 0 && job->train.global_batch % job->train.grain != 0)
        json_refuse(&r, "grain", "%lld does not divide train.global_batch %lld",
                    (long long)job->train.grain, (long long)job->train.global_batch);
    if (r.r == 0) {
        job->train.n_grains = job->train.global_batch / job->train.grain;
        if (job->train.n_grains > 1 << 16)
            json_refuse(&r, "grain", "%lld makes %lld grains of global_batch, more than 65536",
                        (long long)job->train.grain, (long long)job->train.n_grains);
    }
    json_close(&r);
}

static void parse_checkpoint(JsonReader *root, Job *job)
{
    JsonReader r = json_get_object(root, "checkpoint", JSON_REQUIRED);
    job->checkpoint.uri = take_string(&r, "uri", JSON_REQUIRED, NULL);
    job->checkpoint.every_steps = 1000;
    job->checkpoint.keep_last = 3;
    json_get_int(&r, "every_steps", JSON_OPTIONAL, 1, INT64_C(1) << 40,
                 &job->checkpoint.every_steps);
    json_get_int(&r, "keep_last", JSON_OPTIONAL, 2, 16, &job->checkpoint.keep_last);
    json_get_int(&r, "keep_every", JSON_OPTIONAL, 0, INT64_C(1) << 40, &job->checkpoint.keep_every);
    json_get_bool(&r, "blocking", JSON_OPTIONAL, &job->checkpoint.blocking);
    job->checkpoint.local_dir = take_string(&r, "local_dir", JSON_OPTIONAL, NULL);
    if (job->checkpoint.local_dir && *job->checkpoint.local_dir != '/')
        json_refuse(&r, "local_dir", "\"%s\" is not an absolute path", job->checkpoint.local_dir);
    job->checkpoint.local_bytes = INT64_C(64) << 30;
    json_get_int(&r, "local_bytes", JSON_OPTIONAL, 1 << 20, INT64_MAX,
                 &job->checkpoint.local_bytes);
    json_close(&r);
}

static void parse_recovery(JsonReader *root, Job *job)
{
    JsonReader r = json_get_object(root, "recovery", JSON_OPTIONAL);
    job->recovery.max_failures_at_same_step =
        take_int(&r, "max_failures_at_same_step", JSON_OPTIONAL, 1, 1000, 3);
    job->recovery.grow_interval_sec =
        take_int(&r, "grow_interval_s", JSON_OPTIONAL, 0, 1000000, 600);
    job->recovery.store_patience_sec =
        take_int(&r, "store_patience_s", JSON_OPTIONAL, 0, 1000000, 3600);
    if (job->kind == JOB_EXEC) /* a verdict is the progress of an evaluation */
        job->recovery.progress_sec =
            take_int(&r, "progress_s", JSON_OPTIONAL, 1, 1000000, EXEC_PROGRESS_SEC);
    json_close(&r);
}

/* Refuses combinations of device, precision and reduction that no node can compute. */
static void check_device(JsonReader *root, const Job *job)
{
    const bool gpu = job->train.device == JOB_DEVICE_CUDA;
    if (job->train.precision == PRECISION_FP16)
        json_refuse(root, "train.precision",
                    "fp16 needs a loss scale, which is not there yet; fp32 and bf16 need none");
    if (job->train.precision == PRECISION_BF16 && !gpu)
        json_refuse(root, "train.precision",
                    "bf16 needs train.device \"cuda\"; only fp32 is possible on CPUs");
    if (job->train.reduction == REDUCTION_FLOAT && gpu)
        json_refuse(root, "train.reduction",
                    "\"float\" is for CPUs only; train.device \"cuda\" needs exact or exact64");
}

static void check_across(JsonReader *root, const Job *job)
{
    if (root->r < 0)
        return;
    if (job->world.max > job->train.n_grains)
        json_refuse(
            root, "world.max",
            "%d ranks are more than the %lld grains of a step (global_batch %lld / grain %lld)",
            job->world.max, (long long)job->train.n_grains, (long long)job->train.global_batch,
            (long long)job->train.grain);
    check_device(root, job);
}

static json_t *train_json(const Job *job)
{
    JsonBuild b = json_build();
    json_add_int(&b, "global_batch", job->train.global_batch);
    json_add_int(&b, "grain", job->train.grain);
    json_add_int(&b, "seed", (int64_t)job->train.seed);
    json_add_int(&b, "precision", (int)job->train.precision);
    json_add_int(&b, "reduction", (int)job->train.reduction);
    json_add_int(&b, "prediction", (int)job->train.prediction);
    json_add_real(&b, "caption_drop", job->train.caption_drop);
    json_add(&b, "noise",
             json_pack("{s:f, s:f, s:i}", "start", job->train.noise_schedule.beta_start, "end",
                       job->train.noise_schedule.beta_end, "steps",
                       job->train.noise_schedule.steps));
    return json_build_end(&b);
}

static json_t *optimizer_json(const Job *job)
{
    JsonBuild b = json_build();
    json_add_real(&b, "lr", job->train.optimizer.lr);
    json_add_real(&b, "beta1", job->train.optimizer.beta1);
    json_add_real(&b, "beta2", job->train.optimizer.beta2);
    json_add_real(&b, "eps", job->train.optimizer.eps);
    json_add_real(&b, "weight_decay", job->train.optimizer.weight_decay);
    json_add_int(&b, "warmup", job->train.optimizer.warmup_steps);
    json_add_real(&b, "clip", job->train.optimizer.clip_norm);
    return json_build_end(&b);
}

/* Makes the canonical JSON of all values that may change a bit, including defaults. */
static json_t *identity_json(const Job *job, const char *latents, const char *text)
{
    _cleanup_json_ json_t *streams = json_array();
    for (size_t i = 0; i < job->data.n_streams; i++)
        json_array_append_new(streams,
                              json_pack("{s:f}", "proportion", job->data.streams[i].proportion));

    JsonBuild b = json_build();
    json_add(&b, "model",
             json_pack("{s:i, s:b}", "init", (int)job->model.init, "optimizer",
                       (int)job->model.init_optimizer));
    json_add(&b, "data",
             json_pack("{s:O, s:s, s:s, s:f, s:I}", "streams", streams, "latents", latents, "text",
                       text, "latent_scale", job->data.latent_scale, "shuffle_window",
                       (json_int_t)job->data.shuffle_window));
    json_add(&b, "train", train_json(job));
    json_add(&b, "optimizer", optimizer_json(job));
    json_add(&b, "ema",
             json_pack("{s:b, s:f, s:I}", "enabled", (int)job->train.ema.enabled, "decay",
                       job->train.ema.decay, "start", (json_int_t)job->train.ema.start_step));
    return json_build_end(&b);
}

char *job_canonical(const Job *job, const char *latents, const char *text)
{
    _cleanup_json_ json_t *json = identity_json(job, latents, text);
    /* CPU jobs keep the identity that they had before the key train.device existed */
    if (job->train.device != JOB_DEVICE_CPU)
        json_object_set_new(json_object_get(json, "train"), "device",
                            json_integer((json_int_t)job->train.device));
    char *canonical = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    assert(canonical); /* cannot fail: all numbers are finite, and all texts come from JSON */
    return canonical;
}

Hash job_identity(const Job *job, const char *latents, const char *text)
{
    _cleanup_free_ char *canonical = job_canonical(job, latents, text);
    return hash_bytes(canonical, strlen(canonical));
}

/* Refuses the keys of another kind of job by name: "unknown key" would not explain them. */
static void refuse_others(JsonReader *r, const char *const *keys, size_t n, const char *kind)
{
    json_t *value;
    for (size_t i = 0; i < n; i++)
        if (json_get_any(r, keys[i], JSON_OPTIONAL, &value))
            json_refuse(r, keys[i], "a job of kind \"%s\" has no such key", kind);
}

static void parse_registered(JsonReader *root, Job *job)
{
    JsonReader r = json_get_object(root, "checkpoint", JSON_OPTIONAL);
    job->checkpoint.uri = take_string(&r, "uri", JSON_OPTIONAL, NULL);
    json_get_int(&r, "keep_last", JSON_OPTIONAL, 2, 16, &job->checkpoint.keep_last);
    json_close(&r);
}

static void parse_exec_job(JsonReader *r, Job *job)
{
    static const char *const others[] = {"model", "data", "train", "of", "loss", "grid"};
    refuse_others(r, others, ELEMENTSOF(others), "exec");
    job_exec_parse(r, &job->exec);
    parse_registered(r, job);
}

static void parse_followed(JsonReader *root, Job *job)
{
    bool newest = false;
    JsonReader r = json_get_object(root, "of", JSON_REQUIRED);
    if (json_get_text(&r, "job", JSON_REQUIRED, job->of.job, sizeof(job->of.job)))
        check_name(&r, "job", job->of.job);
    if (r.r == 0 && strcmp(job->of.job, job->name) == 0)
        json_refuse(&r, "job", "\"%s\" is this job itself", job->of.job);
    job->of.every_steps = 1;
    const bool named =
        json_get_int(&r, "every_steps", JSON_OPTIONAL, 1, INT64_C(1) << 40, &job->of.every_steps);
    json_get_bool(&r, "newest", JSON_OPTIONAL, &newest);
    if (r.r == 0 && newest && named)
        json_refuse(&r, "newest", "of.every_steps is given, too: choose one");
    if (newest)
        job->of.every_steps = 0;
    json_close(&r);
}

/* Reads the keys that the evaluations by sdtrainer itself have in common. all: the name of EVAL_OF_ANY; "": it is the
 * default without a name. */
static void parse_measured(JsonReader *r, JsonReader *root, const char *all, Job *job)
{
    const char *const of[] = {all, "weights", "ema"};
    static const char *const devices[] = {"cpu", "cuda"};
    const size_t unnamed = *all ? 0 : 1;
    int which = 0, device = JOB_DEVICE_CPU;
    parse_streams(r, job);
    if (json_get_choice(r, "weights", JSON_OPTIONAL, of + unnamed, ELEMENTSOF(of) - unnamed,
                        &which))
        which += (int)unnamed;
    json_get_choice(r, "device", JSON_OPTIONAL, devices, ELEMENTSOF(devices), &device);
    job->eval.of = (EvalOf)which;
    job->train.device = (JobDevice)device;
    job->train.threads = take_int(r, "threads", JSON_OPTIONAL, 1, 256, 1);
    if (r->r == 0 && job->world.max != 1)
        json_refuse(root, "world.max", "%d: one rank evaluates by itself", job->world.max);
}

static void parse_loss(JsonReader *root, Job *job)
{
    JsonReader r = json_get_object(root, "loss", JSON_REQUIRED);
    parse_measured(&r, root, "both", job);
    job->eval.positions = 1024;
    json_get_int(&r, "positions", JSON_OPTIONAL, 1, INT64_C(1) << 40, &job->eval.positions);
    json_close(&r);
}

static void parse_captions(JsonReader *r, JobGrid *grid)
{
    grid->captions = json_get_texts(r, "captions", JSON_OPTIONAL, JOB_PICTURES_MAX);
    for (char **one = grid->captions; one && *one; one++, grid->n_captions++)
        if (strlen(*one) > JOB_CAPTION_MAX)
            json_refuse(r, "captions", "\"%.40s...\" is longer than %d bytes", *one,
                        JOB_CAPTION_MAX);
}

static void parse_grid(JsonReader *root, Job *job)
{
    JobGrid *grid = &job->eval.grid;
    int64_t seed = 1;
    JsonReader r = json_get_object(root, "grid", JSON_REQUIRED);
    parse_measured(&r, root, "", job);
    job->data.empty_text_uri = take_string(&r, "empty_text", JSON_OPTIONAL, NULL);
    grid->uri = take_string(&r, "uri", JSON_REQUIRED, NULL);
    grid->model = take_string(&r, "model", JSON_OPTIONAL, NULL);
    parse_captions(&r, grid);
    grid->samples =
        take_int(&r, "samples", JSON_OPTIONAL, 1, JOB_PICTURES_MAX, MAX(16, grid->n_captions));
    grid->steps = take_int(&r, "steps", JSON_OPTIONAL, 1, 10000, 25);
    grid->guidance = 3;
    json_get_double(&r, "guidance", JSON_OPTIONAL, 0, 1000, &grid->guidance);
    json_get_int(&r, "seed", JSON_OPTIONAL, 0, INT64_MAX, &seed);
    grid->seed = (uint64_t)seed;
    if (r.r == 0 && grid->samples < grid->n_captions)
        json_refuse(&r, "samples", "%d are fewer than the %d captions", grid->samples,
                    grid->n_captions);
    json_close(&r);
}

/* An evaluation registers nothing: its checkpoint.uri bounds what it loads, since nodes write the records of the
 * followed job, and loading a chosen file may run code. */
static void parse_eval_job(JsonReader *r, Job *job)
{
    static const char *const others[] = {"model", "data", "train"};
    static const char *const works[] = {
        [EVAL_PROGRAM] = "exec", [EVAL_LOSS] = "loss", [EVAL_GRID] = "grid"};
    json_t *any = NULL;
    int found = -1;
    refuse_others(r, others, ELEMENTSOF(others), "eval");
    parse_followed(r, job);
    for (int i = ELEMENTSOF(works) - 1; i >= 0; i--) {
        if (!json_get_any(r, works[i], JSON_OPTIONAL, &any))
            continue;
        if (found >= 0)
            json_refuse(r, works[found], "%s is given, too: choose one", works[i]);
        found = i;
    }
    job->eval.work = found < 0 ? EVAL_PROGRAM : (EvalWork)found;
    if (job->eval.work == EVAL_LOSS)
        parse_loss(r, job);
    else if (job->eval.work == EVAL_GRID)
        parse_grid(r, job);
    else
        job_exec_parse(r, &job->exec);
    JsonReader c = json_get_object(r, "checkpoint", JSON_REQUIRED);
    job->checkpoint.uri = take_string(&c, "uri", JSON_REQUIRED, NULL);
    json_close(&c);
}

static void parse_train_job(JsonReader *r, Job *job)
{
    static const char *const others[] = {"exec", "of", "loss", "grid"};
    refuse_others(r, others, ELEMENTSOF(others), "train");
    parse_model(r, job);
    parse_data(r, job);
    parse_train(r, job);
    parse_checkpoint(r, job);
    check_across(r, job);
}

static const char *const kinds[] = {"train", "exec", "eval"};

const char *job_kind_name(JobKind kind) { return kinds[kind]; }

static int job_fill(const char *source, json_t *json, Job *job, Error *err)
{
    int kind = 0;
    JsonReader r = json_open(source, json, JSON_KNOWN_KEYS, err);
    if (json_get_text(&r, "name", JSON_REQUIRED, job->name, sizeof(job->name)))
        check_name(&r, "name", job->name);
    job->priority = take_int(&r, "priority", JSON_OPTIONAL, -JOB_PRIORITY_MAX, JOB_PRIORITY_MAX, 0);
    json_get_choice(&r, "kind", JSON_OPTIONAL, kinds, ELEMENTSOF(kinds), &kind);
    job->kind = (JobKind)kind;
    parse_world(&r, job);
    if (job->kind == JOB_EXEC)
        parse_exec_job(&r, job);
    else if (job->kind == JOB_EVAL)
        parse_eval_job(&r, job);
    else
        parse_train_job(&r, job);
    parse_recovery(&r, job);
    int q = json_close(&r);
    if (q == 0 && job->kind == JOB_TRAIN)
        job->identity = job_identity(job, job->data.latents, job->data.text);
    return q;
}

int job_parse_any(const char *source, const char *text, size_t n_bytes, Job **ret, Error *err)
{
    if (n_bytes > JOB_TEXT_MAX)
        return error_set(err, -EINVAL,
                         "%s: %zu bytes are more than the %d that a job file may have", source,
                         n_bytes, JOB_TEXT_MAX);
    _cleanup_json_ json_t *json = NULL;
    int r = json_parse(source, text, n_bytes, &json, err);
    if (r < 0)
        return r;

    _cleanup_(job_freep) Job *job = memory_new(Job);
    r = job_fill(source, json, job, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(job);
    return 0;
}

int job_parse(const char *source, const char *text, size_t n_bytes, Job **ret, Error *err)
{
    _cleanup_(job_freep) Job *job = NULL;
    int r = job_parse_any(source, text, n_bytes, &job, err);
    if (r < 0)
        return r;
    if (job->kind != JOB_TRAIN)
        return error_set(err, -EINVAL,
                         "%s: kind: \"%s\": only jobs that sdtrain trains itself (\"train\") have "
                         "what is needed here",
                         source, job_kind_name(job->kind));
    *ret = TAKE_PTR(job);
    return 0;
}

Job *job_free(Job *job)
{
    if (!job)
        return NULL;
    job_exec_clear(&job->exec);
    free(job->model.config_uri);
    free(job->model.init_uri);
    for (size_t i = 0; i < job->data.n_streams; i++)
        free(job->data.streams[i].uri);
    free(job->data.latents);
    free(job->data.text);
    free(job->data.empty_text_uri);
    free(job->data.cache_dir);
    free(job->train.plans_uri);
    free(job->checkpoint.uri);
    free(job->checkpoint.local_dir);
    free(job->eval.grid.uri);
    free(job->eval.grid.model);
    memory_free_texts(job->eval.grid.captions);
    free(job);
    return NULL;
}

/* Returns the path of a file:// URI, and any other URI as it is: "/a" and "file:///a" are one place. */
static const char *without_scheme(const char *uri)
{
    static const char file[] = "file://";
    return strncmp(uri, file, sizeof(file) - 1) == 0 ? uri + sizeof(file) - 1 : uri;
}

bool job_exec_may_register(const Job *job, const char *uri)
{
    const char *below = job->checkpoint.uri ? without_scheme(job->checkpoint.uri) : NULL;
    uri = without_scheme(uri);
    size_t n = below ? strlen(below) : 0;
    while (n > 0 && below[n - 1] == '/')
        n--;
    if (n == 0 || strncmp(uri, below, n) != 0 || uri[n] != '/')
        return false;
    for (const char *at = uri + n; (at = strstr(at, "/..")); at += 3)
        if (at[3] == '/' || at[3] == '\0')
            return false;
    return true;
}

int job_read_file(const char *path, Job **ret, Error *err)
{
    _cleanup_free_ char *text = NULL;
    size_t n_bytes;
    int r = file_read(path, JOB_TEXT_MAX, &text, &n_bytes, err);
    if (r < 0)
        return r;
    return job_parse(path, text, n_bytes, ret, err);
}
