/* SPDX-License-Identifier: Apache-2.0 */
/* test-unet.c - compares the network with diffusers in float64 (tests/golden/make-unet.py): prediction, loss, every
 * gradient, ten optimizer steps, DDIM. Also tests the guarantees of the tape. */
#include "base/file.h"
#include "base/json/json.h"
#include "base/test/testing.h"
#include "kernels/test/testing-copy.h"
#include "nn/ddim.h"
#include "nn/network.h"
#include "nn/schedule.h"
#include "nn/tape.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { FILE_MAX = 16 << 20 };

/* Tolerances for the device that bench_open() opened. In bf16 a gradient is the result of some 50 roundings to 8 bits:
 * all gradients together are close, but a gradient that is small compared with the others may be off by `of_each`. */
static double tolerance, of_each;

/* A gradient that is smaller than this part of the largest gradient consists only of rounding errors: it would be zero
 * in exact arithmetic. */
static const double negligible = 1e-7;

/* ---- golden files: the safetensors format is a length, a JSON header, and the tensors ---- */

typedef struct Golden {
    char *file;
    json_t *header;
    const char *tensors;
    UnetConfig config;
    json_t *settings;
    int n, h, w, tokens, steps;
} Golden;

static json_t *tensor_entry(const Golden *g, const char *name)
{
    json_t *entry = json_object_get(g->header, name);
    if (!entry)
        fail_msg("no tensor %s", name);
    return entry;
}

static const void *tensor(const Golden *g, const char *name)
{
    json_t *span = json_object_get(tensor_entry(g, name), "data_offsets");
    return g->tensors + json_integer_value(json_array_get(span, 0));
}

static int dimension(const Golden *g, const char *name, size_t i)
{
    json_t *shape = json_object_get(tensor_entry(g, name), "shape");
    return (int)json_integer_value(json_array_get(shape, i));
}

static double setting(const Golden *g, const char *key)
{
    json_t *value = json_object_get(g->settings, key);
    assert_non_null(value);
    return json_number_value(value);
}

static bool v_prediction(const Golden *g)
{
    const char *text = json_string_value(json_object_get(g->settings, "prediction"));
    return strcmp(text, "v_prediction") == 0;
}

static Golden golden_open(const char *name)
{
    Golden g = {0};
    Error err = ERROR_INIT;
    char path[512];
    const char *source = getenv("SDTRAIN_SOURCE");
    size_t n_bytes;
    (void)snprintf(path, sizeof(path), "%s/tests/golden/unet-%s.safetensors", source ? source : ".",
                   name);
    if (file_read(path, FILE_MAX, &g.file, &n_bytes, &err) < 0)
        fail_msg("%s", err.text);

    uint64_t header_bytes;
    memcpy(&header_bytes, g.file, sizeof(header_bytes));
    assert_true(header_bytes < n_bytes);
    assert_int_equal(json_parse(path, g.file + 8, header_bytes, &g.header, &err), 0);
    g.tensors = g.file + 8 + header_bytes;
    json_t *metadata = json_object_get(g.header, "__metadata__");
    const char *config = json_string_value(json_object_get(metadata, "config"));
    const char *settings = json_string_value(json_object_get(metadata, "settings"));
    assert_true(config && settings);
    if (unet_config_parse(path, config, strlen(config), &g.config, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(json_parse(path, settings, strlen(settings), &g.settings, &err), 0);
    g.steps = dimension(&g, "x0", 0);
    g.n = dimension(&g, "x0", 1);
    g.h = dimension(&g, "x0", 2);
    g.w = dimension(&g, "x0", 3);
    g.tokens = dimension(&g, "text", 2);
    return g;
}

static void golden_close(Golden *g)
{
    free(g->file);
    json_decref(g->header);
    json_decref(g->settings);
}

/* Returns all tensors named "group/NAME" in one flat buffer. */
static float *golden_flat(const Golden *g, const char *group, const ParameterList *list)
{
    float *flat = calloc((size_t)list->n_elements, sizeof(float));
    assert_non_null(flat);
    for (size_t i = 0; i < list->n_items; i++) {
        const Parameter *p = &list->items[i];
        char name[PARAMETER_NAME_MAX + 16];
        (void)snprintf(name, sizeof(name), "%s/%s", group, p->name);
        for (int d = 0; d < p->n_dims; d++)
            assert_int_equal(dimension(g, name, (size_t)d), p->dims[d]);
        memcpy(flat + p->offset, tensor(g, name), (size_t)p->n_elements * sizeof(float));
    }
    return flat;
}

static double norm_of(const float *a, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)a[i];
    return sqrt(sum);
}

/* ||a - b|| / ||b|| */
static double relative_error(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(sum) / norm_of(b, n);
}

static void assert_within(const char *what, const float *a, const float *b, int64_t n, double most)
{
    double error = relative_error(a, b, n);
    if (!(error < most))
        fail_msg("%s: relative error %g", what, error);
}

static void assert_close(const char *what, const float *a, const float *b, int64_t n)
{
    assert_within(what, a, b, n, tolerance);
}

/* ---- a network with what a training step needs ---- */

typedef struct Bench {
    Device *device;
    Network *network;
    const ParameterList *list;
    NoiseSchedule *schedule;
    int64_t n_latents, n_text, n_parameters;
    float *weights, *gradients; /* this field and all fields below point to device memory */
    float *x0, *noise, *noised, *wide, *target; /* fp32 */
    void *x, *text, *prediction, *dprediction, *workspace;
    float *alpha, *sigma;
    int32_t *timesteps;
    double *loss;
    StatePlan *plan; /* plan of a state with all parameters, in one chunk */
} Bench;

static void *allocate(Device *device, size_t n_bytes)
{
    void *memory;
    Error err = ERROR_INIT;
    if (device_allocate(device, n_bytes, &memory, &err) < 0)
        fail_msg("%s", err.text);
    return memory;
}

static Bench bench_open(const UnetConfig *config, const NetworkShape *shape)
{
    Bench b = {0};
    Error err = ERROR_INIT;
    DeviceOptions options = {.kind = DEVICE_CPU, .threads = 2, .type = DATA_F32};
    if (device_open(&options, &b.device, &err) < 0 ||
        network_new(b.device, config, shape, &b.network, &err) < 0 ||
        noise_schedule_new(0.00085, 0.012, 1000, &b.schedule, &err) < 0)
        fail_msg("%s", err.text);
    const bool wide = device_type(b.device) == DATA_F32;
    tolerance = wide ? 1e-4 : 3e-2;
    of_each = wide ? 1e-4 : 0.3;
    b.list = network_parameters(b.network);
    b.n_parameters = b.list->n_elements;
    if (parameter_list_plan(b.list, b.device, (StatePlanShape){.n_ranks = 1, .n_shards = 1},
                            &b.plan, &err) < 0)
        fail_msg("%s", err.text);
    int64_t pixels = (int64_t)shape->grain * shape->height * shape->width;
    b.n_latents = pixels * config->in_channels;
    b.n_text = (int64_t)shape->grain * shape->text_tokens * config->cross_attention_dim;

    size_t latent_bytes = (size_t)b.n_latents * sizeof(float);
    b.weights = allocate(b.device, (size_t)b.n_parameters * sizeof(float));
    b.gradients = allocate(b.device, (size_t)b.n_parameters * sizeof(float));
    b.x0 = allocate(b.device, latent_bytes);
    b.noise = allocate(b.device, latent_bytes);
    b.noised = allocate(b.device, latent_bytes);
    b.wide = allocate(b.device, MAX(latent_bytes, (size_t)b.n_text * sizeof(float)));
    b.target = allocate(b.device, latent_bytes);
    b.x = allocate(b.device, latent_bytes);
    b.prediction = allocate(b.device, latent_bytes);
    b.dprediction = allocate(b.device, latent_bytes);
    b.text = allocate(b.device, (size_t)b.n_text * sizeof(float));
    b.timesteps = allocate(b.device, (size_t)shape->grain * sizeof(int32_t));
    b.workspace = allocate(b.device, MAX(mse_loss_workspace_bytes(b.device, b.n_latents), 1));
    b.loss = allocate(b.device, sizeof(double));
    b.alpha = allocate(b.device, 1000 * sizeof(float));
    b.sigma = allocate(b.device, 1000 * sizeof(float));
    device_upload(b.device, b.alpha, b.schedule->signal, 1000 * sizeof(float));
    device_upload(b.device, b.sigma, b.schedule->noise, 1000 * sizeof(float));
    return b;
}

static void bench_close(Bench *b)
{
    void *const memory[] = {b->weights,    b->gradients,   b->x0,     b->noise,
                            b->noised,     b->wide,        b->target, b->x,
                            b->prediction, b->dprediction, b->text,   b->timesteps,
                            b->loss,       b->workspace,   b->alpha,  b->sigma};
    for (size_t i = 0; i < ELEMENTSOF(memory); i++)
        device_release(b->device, memory[i]);
    (void)state_plan_free(b->plan);
    (void)network_free(b->network);
    (void)noise_schedule_free(b->schedule);
    (void)device_free(b->device);
}

static Bench bench_golden(const Golden *g, bool backward)
{
    NetworkShape shape = {.grain = g->n,
                          .height = g->h,
                          .width = g->w,
                          .text_tokens = g->tokens,
                          .backward = backward};
    return bench_open(&g->config, &shape);
}

static void set_weights(Bench *b, const float *weights)
{
    device_upload(b->device, b->weights, weights, (size_t)b->n_parameters * sizeof(float));
    network_set_weights(b->network, b->weights);
}

/* Loads the noised latents, the target and the text of step i (from 0). */
static void load_step(Bench *b, const Golden *g, int i)
{
    const float *x0 = tensor(g, "x0"), *noise = tensor(g, "noise"), *text = tensor(g, "text");
    const int32_t *timesteps = tensor(g, "timesteps");
    size_t latent_bytes = (size_t)b->n_latents * sizeof(float);
    device_upload(b->device, b->x0, x0 + i * b->n_latents, latent_bytes);
    device_upload(b->device, b->noise, noise + i * b->n_latents, latent_bytes);
    device_upload(b->device, b->wide, text + i * b->n_text, (size_t)b->n_text * sizeof(float));
    cast_from_f32(b->device, b->n_text, b->wide, b->text);
    device_upload(b->device, b->timesteps, timesteps + i * g->n, (size_t)g->n * sizeof(int32_t));
    diffuse(b->device, g->n, b->n_latents / g->n, b->x0, b->noise, b->timesteps, b->alpha, b->sigma,
            v_prediction(g), b->noised, b->target);
    cast_from_f32(b->device, b->n_latents, b->noised, b->x);
}

static double forward_backward(Bench *b, NetworkGradientReady on_ready, void *userdata)
{
    const GradientSink plain = {.kind = SINK_PLAIN, .to = b->gradients};
    double loss;
    network_forward(b->network, b->x, b->timesteps, b->text, b->prediction);
    mse_loss(b->device, b->n_latents, b->prediction, b->target, 1.0f, b->loss, b->dprediction,
             b->workspace);
    network_backward(b->network, b->dprediction, &plain, on_ready, userdata);
    device_download(b->device, &loss, b->loss, sizeof(loss));
    return loss;
}

static float *download(Bench *b, const void *from, int64_t n)
{
    float *to = calloc((size_t)n, sizeof(float));
    assert_non_null(to);
    device_download(b->device, to, from, (size_t)n * sizeof(float));
    return to;
}

/* ---- tests over every golden file ---- */

static const char *const golden_names[] = {"two-levels", "three-levels", "one-level", "odd-sides"};
static size_t n_goldens = ELEMENTSOF(golden_names);

static void check_gradients(const Bench *b, const float *found, const float *wanted)
{
    double largest = 0;
    size_t n_excluded = 0;
    for (size_t i = 0; i < b->list->n_items; i++) {
        const Parameter *p = &b->list->items[i];
        largest = fmax(largest, norm_of(wanted + p->offset, p->n_elements));
    }
    double worst = 0;
    for (size_t i = 0; i < b->list->n_items; i++) {
        const Parameter *p = &b->list->items[i];
        if (norm_of(wanted + p->offset, p->n_elements) < negligible * largest) {
            print_message("  excluded: %s\n", p->name);
            n_excluded++;
            assert_true(norm_of(found + p->offset, p->n_elements) < tolerance / 10 * largest);
            continue;
        }
        assert_within(p->name, found + p->offset, wanted + p->offset, p->n_elements, of_each);
        worst = fmax(worst, relative_error(found + p->offset, wanted + p->offset, p->n_elements));
    }
    print_message("  %zu gradients, worst relative error %.2g, of all %.2g\n",
                  b->list->n_items - n_excluded, worst,
                  relative_error(found, wanted, b->n_parameters));
    assert_close("all gradients", found, wanted, b->n_parameters);
    assert_true(n_excluded * 20 <= b->list->n_items);
}

static void gradients_are_diffusers(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_goldens; i++) {
        print_message("%s\n", golden_names[i]);
        _cleanup_(golden_close) Golden g = golden_open(golden_names[i]);
        _cleanup_(bench_close) Bench b = bench_golden(&g, true);
        _cleanup_free_ float *weights = golden_flat(&g, "weights", b.list);
        _cleanup_free_ float *wanted = golden_flat(&g, "gradients", b.list);
        set_weights(&b, weights);
        load_step(&b, &g, 0);
        double loss = forward_backward(&b, NULL, NULL);

        cast_to_f32(b.device, b.n_latents, b.prediction, b.wide);
        _cleanup_free_ float *prediction = download(&b, b.wide, b.n_latents);
        assert_close("prediction", prediction, tensor(&g, "prediction"), b.n_latents);
        double wanted_loss = (double)((const float *)tensor(&g, "losses"))[0];
        assert_true(fabs(loss / wanted_loss - 1) < tolerance / 10);
        _cleanup_free_ float *gradients = download(&b, b.gradients, b.n_parameters);
        check_gradients(&b, gradients, wanted);
    }
}

/* Makes step `step` (from 1). Its learning rate is lr * min(1, step / warmup). After step ema_start the EMA is set to
 * the master weights; from the next step on the EMA moves. */
static void optimizer_step(Bench *b, const Golden *g, int step, double norm, float *m, float *v,
                           float *ema)
{
    double clip = fmin(1.0, setting(g, "clip_norm") / (norm + 1e-6));
    double warm = fmin(1.0, step / setting(g, "warmup_steps"));
    AdamW adamw = {.lr = (float)(setting(g, "lr") * warm),
                   .beta1 = (float)setting(g, "beta1"),
                   .beta2 = (float)setting(g, "beta2"),
                   .eps = (float)setting(g, "eps"),
                   .weight_decay = (float)setting(g, "weight_decay"),
                   .gradient_scale = (float)clip,
                   .correction1 = (float)(1.0 - pow(setting(g, "beta1"), step)),
                   .correction2 = (float)(1.0 - pow(setting(g, "beta2"), step))};
    const GradientSums sums = {.data = b->gradients, .type = SUM_F32};
    int start = (int)setting(g, "ema_start");
    state_update(b->plan, &adamw, (float)setting(g, "ema_decay"), &sums, b->weights, m, v,
                 step > start ? ema : NULL);
    if (step == start) {
        _cleanup_free_ float *master = download(b, b->weights, b->n_parameters);
        device_upload(b->device, ema, master, (size_t)b->n_parameters * sizeof(float));
    }
    network_set_weights(b->network, b->weights);
}

static void check_tensors(Bench *b, const Golden *g, const char *group, const float *found)
{
    _cleanup_free_ float *wanted = golden_flat(g, group, b->list);
    _cleanup_free_ float *host = download(b, found, b->n_parameters);
    for (size_t i = 0; i < b->list->n_items; i++) {
        const Parameter *p = &b->list->items[i];
        assert_close(p->name, host + p->offset, wanted + p->offset, p->n_elements);
    }
}

static void ten_optimizer_steps_are_torchs(void **state)
{
    (void)state;
    for (size_t i = 0; i < ELEMENTSOF(golden_names); i++) {
        _cleanup_(golden_close) Golden g = golden_open(golden_names[i]);
        _cleanup_(bench_close) Bench b = bench_golden(&g, true);
        _cleanup_free_ float *weights = golden_flat(&g, "weights", b.list);
        const float *losses = tensor(&g, "losses"), *norms = tensor(&g, "norms");
        size_t bytes = (size_t)b.n_parameters * sizeof(float);
        float *m = allocate(b.device, bytes), *v = allocate(b.device, bytes);
        float *ema = allocate(b.device, bytes);
        double *sum = allocate(b.device, sizeof(*sum)), norm;
        int n_clipped = 0;

        set_weights(&b, weights);
        for (int step = 1; step <= g.steps; step++) {
            load_step(&b, &g, step - 1);
            double loss = forward_backward(&b, NULL, NULL);
            const GradientSums sums = {.data = b.gradients, .type = SUM_F32};
            state_squares(b.plan, &sums, sum);
            device_download(b.device, &norm, sum, sizeof(norm));
            norm = sqrt(norm);
            assert_true(fabs(loss / (double)losses[step - 1] - 1) < tolerance);
            assert_true(fabs(norm / (double)norms[step - 1] - 1) < tolerance);
            n_clipped += norm > setting(&g, "clip_norm");
            optimizer_step(&b, &g, step, norm, m, v, ema);
        }
        print_message("%s: %d of %d steps clipped\n", golden_names[i], n_clipped, g.steps);
        check_tensors(&b, &g, "final", b.weights);
        check_tensors(&b, &g, "ema", ema);
        device_release(b.device, m);
        device_release(b.device, v);
        device_release(b.device, ema);
        device_release(b.device, sum);
    }
}

static void ddim_draws_diffusers_latents(void **state)
{
    (void)state;
    for (size_t i = 0; i < ELEMENTSOF(golden_names); i++) {
        _cleanup_(golden_close) Golden g = golden_open(golden_names[i]);
        Error err = ERROR_INIT;
        DdimOptions options = {.steps = (int)setting(&g, "ddim_steps"),
                               .guidance = setting(&g, "ddim_guidance"),
                               .v_prediction = v_prediction(&g),
                               .seed = (uint64_t)setting(&g, "ddim_seed")};
        /* DDIM runs first in grains of two samples (if n is odd, the last grain has one), then in one grain */
        for (int grain = 2; grain <= g.n; grain += MAX(g.n - 2, 1)) {
            NetworkShape shape = {.grain = grain,
                                  .height = g.h,
                                  .width = g.w,
                                  .text_tokens = g.tokens};
            _cleanup_(bench_close) Bench b = bench_open(&g.config, &shape);
            _cleanup_free_ float *weights = golden_flat(&g, "weights", b.list);
            int64_t n_each = (int64_t)g.h * g.w * g.config.in_channels;
            _cleanup_free_ float *latents = calloc((size_t)(g.n * n_each), sizeof(float));
            assert_non_null(latents);
            set_weights(&b, weights);
            assert_int_equal(ddim_sample(b.network, b.schedule, &options, g.n, tensor(&g, "text"),
                                         tensor(&g, "empty_text"), latents, &err),
                             0);
            assert_close("ddim", latents, tensor(&g, "ddim"), g.n * n_each);

            DdimOptions bad = options;
            bad.steps = 1000;
            assert_int_equal(ddim_sample(b.network, b.schedule, &bad, g.n, tensor(&g, "text"),
                                         tensor(&g, "empty_text"), latents, &err),
                             -EINVAL);
            assert_int_equal(ddim_sample(b.network, b.schedule, &options, g.n, tensor(&g, "text"),
                                         NULL, latents, &err),
                             -EINVAL);
        }
    }
}

/* ---- guarantees of the tape ---- */

static void runs_repeat_their_bits(void **state)
{
    (void)state;
    _cleanup_(golden_close) Golden g = golden_open("three-levels");
    _cleanup_(bench_close) Bench b = bench_golden(&g, true);
    _cleanup_(bench_close) Bench other = bench_golden(&g, true);
    _cleanup_free_ float *weights = golden_flat(&g, "weights", b.list);
    size_t bytes = (size_t)b.n_parameters * sizeof(float);
    set_weights(&b, weights);
    set_weights(&other, weights);
    load_step(&b, &g, 0);
    load_step(&other, &g, 0);
    (void)forward_backward(&b, NULL, NULL);
    _cleanup_free_ float *first = download(&b, b.gradients, b.n_parameters);

    load_step(&b, &g, 1); /* changes the numbers in the whole arena */
    (void)forward_backward(&b, NULL, NULL);
    load_step(&b, &g, 0);
    (void)forward_backward(&b, NULL, NULL);
    _cleanup_free_ float *again = download(&b, b.gradients, b.n_parameters);
    assert_memory_equal(first, again, bytes);

    (void)forward_backward(&other, NULL, NULL);
    _cleanup_free_ float *elsewhere = download(&other, other.gradients, b.n_parameters);
    assert_memory_equal(first, elsewhere, bytes);
}

static void inference_gives_the_training_bits_in_less_memory(void **state)
{
    (void)state;
    _cleanup_(golden_close) Golden g = golden_open("three-levels");
    _cleanup_(bench_close) Bench training = bench_golden(&g, true);
    _cleanup_(bench_close) Bench inference = bench_golden(&g, false);
    _cleanup_free_ float *weights = golden_flat(&g, "weights", training.list);
    Bench *both[] = {&training, &inference};
    float *prediction[2];
    for (int i = 0; i < 2; i++) {
        set_weights(both[i], weights);
        load_step(both[i], &g, 0);
        network_forward(both[i]->network, both[i]->x, both[i]->timesteps, both[i]->text,
                        both[i]->prediction);
        prediction[i] = download(both[i], both[i]->prediction, both[i]->n_latents);
    }
    assert_memory_equal(prediction[0], prediction[1], (size_t)training.n_latents * sizeof(float));
    free(prediction[0]);
    free(prediction[1]);
    const Tape *large = network_tape(training.network), *small = network_tape(inference.network);
    assert_true(small->arena_bytes * 4 < large->arena_bytes);
    print_message("arena: training %zu bytes, inference %zu\n", large->arena_bytes,
                  small->arena_bytes);
}

typedef struct Coverage {
    unsigned char *times;
    int64_t n;
    Bench *bench;
    float *seen; /* the gradients as they were when reported */
} Coverage;

static void count_ready(int64_t offset, int64_t n_elements, void *userdata)
{
    Coverage *c = userdata;
    assert_true(offset >= 0 && n_elements > 0 && offset + n_elements <= c->n);
    for (int64_t i = offset; i < offset + n_elements; i++)
        c->times[i]++;
    device_download(c->bench->device, c->seen + offset, c->bench->gradients + offset,
                    (size_t)n_elements * sizeof(float));
}

static void every_gradient_is_told_once_and_final(void **state)
{
    (void)state;
    for (size_t i = 0; i < ELEMENTSOF(golden_names); i++) {
        _cleanup_(golden_close) Golden g = golden_open(golden_names[i]);
        _cleanup_(bench_close) Bench b = bench_golden(&g, true);
        _cleanup_free_ float *weights = golden_flat(&g, "weights", b.list);
        _cleanup_free_ unsigned char *times = calloc((size_t)b.n_parameters, 1);
        _cleanup_free_ float *seen = calloc((size_t)b.n_parameters, sizeof(float));
        assert_true(times && seen);
        Coverage c = {.times = times, .n = b.n_parameters, .bench = &b, .seen = seen};
        set_weights(&b, weights);
        load_step(&b, &g, 0);
        (void)forward_backward(&b, count_ready, &c);
        for (int64_t j = 0; j < b.n_parameters; j++)
            assert_int_equal(times[j], 1);
        _cleanup_free_ float *gradients = download(&b, b.gradients, b.n_parameters);
        assert_memory_equal(gradients, seen, (size_t)b.n_parameters * sizeof(float));
    }
}

/* In the plan of a real network, no two buffers that are alive at the same time overlap. */
static void the_plan_of_a_network_never_overlaps(void **state)
{
    (void)state;
    for (size_t i = 0; i < ELEMENTSOF(golden_names); i++) {
        _cleanup_(golden_close) Golden g = golden_open(golden_names[i]);
        _cleanup_(bench_close) Bench b = bench_golden(&g, true);
        const Tape *t = network_tape(b.network);
        size_t sum = 0;
        for (size_t j = 0; j < t->n_buffers; j++) {
            const PlannedBuffer *x = &t->buffers[j];
            sum += x->bytes;
            assert_true(x->bytes > 0 && x->first <= x->last);
            assert_true(x->offset + x->bytes <= t->arena_bytes);
            for (size_t k = 0; k < j; k++) {
                const PlannedBuffer *y = &t->buffers[k];
                assert_true(x->last < y->first || y->last < x->first ||
                            x->offset + x->bytes <= y->offset || y->offset + y->bytes <= x->offset);
            }
        }
        print_message("%s: %zu operations, %zu buffers of %zu bytes in %zu\n", golden_names[i],
                      t->n_operations, t->n_buffers, sum, t->arena_bytes);
        assert_true(t->arena_bytes < sum);
    }
}

static int time_of(const Tape *tape, TapePhase phase, size_t operation)
{
    int n = (int)tape->n_operations, i = (int)operation;
    return phase == TAPE_FORWARD ? i : 2 * n - 1 - i;
}

typedef struct Poison {
    Device *device;
    /* keep: as large as the arena; nans: as large as the larger of arena and workspace */
    char *keep, *nans;
} Poison;

static void poison_all(const Poison *poison, void *memory, size_t n_bytes)
{
    device_upload(poison->device, memory, poison->nans, n_bytes);
}

/* Fills all memory that no later step may read with NaNs: the whole workspace, and the arena except the buffers that
 * were written and are used again. */
static bool poison_the_dead(const Tape *tape, TapePhase phase, size_t operation, void *userdata)
{
    const Poison *poison = userdata;
    if (phase == TAPE_PACK)
        return true;
    int now = time_of(tape, phase, operation);
    device_download(poison->device, poison->keep, tape->arena, tape->arena_bytes);
    poison_all(poison, tape->arena, tape->arena_bytes);
    poison_all(poison, tape->workspace, tape->workspace_bytes);
    for (size_t i = 0; i < tape->n_buffers; i++) {
        const PlannedBuffer *b = &tape->buffers[i];
        if (b->first <= now && b->last > now)
            device_upload(poison->device, tape->arena + b->offset, poison->keep + b->offset,
                          b->bytes);
    }
    return true;
}

/* Tests that every read is declared, that every first writer overwrites, and that no kernel reads beyond its operands:
 * otherwise a NaN would get into the gradients. */
static void no_step_reads_dead_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < ELEMENTSOF(golden_names); i++) {
        _cleanup_(golden_close) Golden g = golden_open(golden_names[i]);
        _cleanup_(bench_close) Bench b = bench_golden(&g, true);
        _cleanup_free_ float *weights = golden_flat(&g, "weights", b.list);
        Tape *tape = network_tape(b.network);
        const size_t n_nans = MAX(tape->arena_bytes, tape->workspace_bytes);
        _cleanup_free_ char *keep = malloc(tape->arena_bytes), *nans = malloc(n_nans);
        assert_true(keep && nans);
        memset(nans, 0xff, n_nans);
        Poison poison = {.device = b.device, .keep = keep, .nans = nans};
        set_weights(&b, weights);
        load_step(&b, &g, 0);
        (void)forward_backward(&b, NULL, NULL);
        _cleanup_free_ float *plain = download(&b, b.gradients, b.n_parameters);

        poison_all(&poison, tape->arena, tape->arena_bytes);
        tape->observer = poison_the_dead;
        tape->observer_userdata = &poison;
        (void)forward_backward(&b, NULL, NULL);
        _cleanup_free_ float *poisoned = download(&b, b.gradients, b.n_parameters);
        assert_memory_equal(plain, poisoned, (size_t)b.n_parameters * sizeof(float));
    }
}

static void bad_shapes_are_refused(void **state)
{
    (void)state;
    _cleanup_(golden_close) Golden g = golden_open("two-levels");
    Error err = ERROR_INIT;
    Device *device;
    Network *network = NULL;
    DeviceOptions options = {.kind = DEVICE_CPU, .threads = 1, .type = DATA_F32};
    assert_int_equal(device_open(&options, &device, &err), 0);
    NetworkShape shape = {.grain = 1, .height = 8, .width = 0, .text_tokens = 3};
    assert_int_equal(network_new(device, &g.config, &shape, &network, &err), -EINVAL);
    assert_null(network);
    assert_non_null(strstr(err.text, "8x0"));
    (void)device_free(device);
}

/* `test-unet brief` tests only the gradients of one network, for tools that are slow. */
int main(int argc, char **argv)
{
    const struct CMUnitTest brief[] = {cmocka_unit_test(gradients_are_diffusers)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_diffusers),
        cmocka_unit_test(ten_optimizer_steps_are_torchs),
        cmocka_unit_test(ddim_draws_diffusers_latents),
        cmocka_unit_test(runs_repeat_their_bits),
        cmocka_unit_test(inference_gives_the_training_bits_in_less_memory),
        cmocka_unit_test(every_gradient_is_told_once_and_final),
        cmocka_unit_test(the_plan_of_a_network_never_overlaps),
        cmocka_unit_test(no_step_reads_dead_memory),
        cmocka_unit_test(bad_shapes_are_refused),
    };
    /* Only these tests run in bf16: the others read values as fp32, or do not depend on the type. */
    const struct CMUnitTest narrow[] = {
        cmocka_unit_test(gradients_are_diffusers),
        cmocka_unit_test(ten_optimizer_steps_are_torchs),
    };
    const char *device = getenv("SDTRAIN_TEST_DEVICE");
    if (argc == 2 && strcmp(argv[1], "brief") == 0) {
        n_goldens = 1;
        return cmocka_run_group_tests(brief, NULL, NULL);
    }
    return device && strstr(device, "-bf16") ? cmocka_run_group_tests(narrow, NULL, NULL)
                                             : cmocka_run_group_tests(tests, NULL, NULL);
}
