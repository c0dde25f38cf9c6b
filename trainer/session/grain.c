/* SPDX-License-Identifier: Apache-2.0 */
/* grain.c - see grain.h.
 *
 * Grain k uses set k mod 2 of the buffers. The host writes a set's staging memory again when the copy of grain k - 2 to
 * the device is done; the input lane writes the set's device memory again when grain k - 2 is computed. */
#include "trainer/session/grain.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/number/exactmath.h"
#include "base/number/philox.h"
#include "nn/comparison.h"
#include "nn/finite.h"
#include "trainer/session/start-times.h"
#include "trainer/state/device-patience.h"
#include "trainer/state/device-staging.h"

#include <math.h>
#include <string.h>

enum { SETS = 2 };

/* The samples of a grain, on the host and on the device. */
typedef struct SampleSet {
    float *latents, *text; /* host memory; dropped captions are replaced by the empty text */
    int32_t *timesteps;    /* host memory */
    int64_t *positions;    /* host memory */
    float *x0, *device_text;
    int32_t *device_timesteps;
    int64_t *device_positions;
    Fence staged; /* fence of LANE_IN; once it is reached, the host's part may be written again */
    /* fence of LANE_COMPUTE; once it is reached, the device's part may be written again */
    Fence computed;
} SampleSet;

struct GrainWork {
    Device *device;
    Network *network;
    const Job *job;
    DatasetShape shape;
    const float *empty_text; /* host memory */
    NoiseSchedule *schedule;
    int64_t latent_elements, text_elements; /* number of elements in one sample */

    SampleSet sets[SETS];
    int64_t n_submitted;
    bool is_cut; /* see grain_work_is_cut() */

    /* device memory */
    float *noise, *x_t, *target, *signal, *sigma;
    void *input, *context, *prediction, *dprediction, *workspace;
};

/* Makes a key for each purpose, so that draws for different purposes never share a Philox block. */
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

typedef struct Buffer {
    void **at;
    size_t n_bytes;
    bool host;
} Buffer;

static int allocate_buffers(GrainWork *w, const Buffer *buffers, size_t n, Error *err)
{
    int r = 0;
    for (size_t i = 0; i < n && r == 0; i++)
        r = buffers[i].host
                ? device_host_allocate(w->device, buffers[i].n_bytes, buffers[i].at, err)
                : device_allocate(w->device, buffers[i].n_bytes, buffers[i].at, err);
    return r;
}

static int allocate_set(GrainWork *w, SampleSet *set, Error *err)
{
    const size_t n = (size_t)w->job->train.grain;
    const size_t latents = n * (size_t)w->latent_elements * sizeof(float);
    const size_t text = n * (size_t)w->text_elements * sizeof(float);
    const Buffer buffers[] = {
        {(void **)&set->latents, latents, true},
        {(void **)&set->text, text, true},
        {(void **)&set->timesteps, n * sizeof(int32_t), true},
        {(void **)&set->positions, n * sizeof(int64_t), true},
        {(void **)&set->x0, latents, false},
        {(void **)&set->device_text, text, false},
        {(void **)&set->device_timesteps, n * sizeof(int32_t), false},
        {(void **)&set->device_positions, n * sizeof(int64_t), false},
    };
    return allocate_buffers(w, buffers, ELEMENTSOF(buffers), err);
}

static int allocate_device(GrainWork *w, Error *err)
{
    const int64_t n = w->job->train.grain, latents = n * w->latent_elements;
    const size_t type = data_type_bytes(device_type(w->device));
    const size_t schedule = (size_t)w->schedule->n_steps * sizeof(float);
    const Buffer buffers[] = {
        {(void **)&w->noise, (size_t)latents * sizeof(float), false},
        {(void **)&w->x_t, (size_t)latents * sizeof(float), false},
        {(void **)&w->target, (size_t)latents * sizeof(float), false},
        {(void **)&w->signal, schedule, false},
        {(void **)&w->sigma, schedule, false},
        {&w->input, (size_t)latents * type, false},
        {&w->context, (size_t)(n * w->text_elements) * type, false},
        {&w->prediction, (size_t)latents * type, false},
        {&w->dprediction, (size_t)latents * type, false},
        {&w->workspace, mse_loss_workspace_bytes(w->device, latents), false},
    };
    int r = allocate_buffers(w, buffers, ELEMENTSOF(buffers), err);
    for (int i = 0; i < SETS && r == 0; i++)
        r = allocate_set(w, &w->sets[i], err);
    if (r < 0)
        return r;
    _cleanup_(device_staging_freep) DeviceStaging *staging = NULL;
    static const char what[] = "sending the noise schedule";
    r = device_staging_new(w->device, &staging, err);
    if (r == 0)
        r = device_staging_upload(staging, w->signal, w->schedule->signal, schedule, what, err);
    return r < 0
               ? r
               : device_staging_upload(staging, w->sigma, w->schedule->noise, schedule, what, err);
}

int grain_work_new(Device *device, Network *network, const Job *job, const DatasetShape *shape,
                   const float *empty_text, GrainWork **ret, Error *err)
{
    /* shapes_check() has checked that the job, the network and the data, which give the sizes below, fit each other. */
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
    const bool idle = device_is_idle(w->device);
    void *buffers[] = {w->noise, w->x_t,     w->target,     w->signal,      w->sigma,
                       w->input, w->context, w->prediction, w->dprediction, w->workspace};
    for (size_t i = 0; idle && i < ELEMENTSOF(buffers); i++)
        device_release(w->device, buffers[i]);
    for (int i = 0; idle && i < SETS; i++) {
        const SampleSet *set = &w->sets[i];
        void *host[] = {set->latents, set->text, set->timesteps, set->positions};
        void *device[] = {set->x0, set->device_text, set->device_timesteps, set->device_positions};
        for (size_t k = 0; k < ELEMENTSOF(host); k++) {
            device_host_release(w->device, host[k]);
            device_release(w->device, device[k]);
        }
    }
    (void)noise_schedule_free(w->schedule);
    free(w);
    return NULL;
}

/* ---- a grain ---- */

static void draw(const GrainWork *w, const LoaderGrain *grain, SampleSet *set)
{
    const Job *job = w->job;
    const size_t text_bytes = (size_t)w->text_elements * sizeof(float);

    memcpy(set->latents, grain->latents,
           (size_t)(job->train.grain * w->latent_elements) * sizeof(float));
    for (int64_t i = 0; i < job->train.grain; i++) {
        int64_t position = grain->first_position + i;
        set->positions[i] = position;
        set->timesteps[i] = draw_timestep(job->train.seed, position, w->schedule->n_steps);
        bool drop =
            w->empty_text && draw_caption_drop(job->train.seed, position, job->train.caption_drop);
        memcpy(set->text + i * w->text_elements,
               drop ? w->empty_text : grain->text + i * w->text_elements, text_bytes);
    }
}

/* Sends the staged samples to the device, after the computation of the grain before the last one, which reads the same
 * buffers. */
static void send_samples(GrainWork *w, SampleSet *set)
{
    Device *d = w->device;
    const size_t n = (size_t)w->job->train.grain;
    device_wait(d, LANE_IN, set->computed);
    device_send(d, LANE_IN, set->x0, set->latents, n * (size_t)w->latent_elements * sizeof(float));
    device_send(d, LANE_IN, set->device_text, set->text,
                n * (size_t)w->text_elements * sizeof(float));
    device_send(d, LANE_IN, set->device_timesteps, set->timesteps, n * sizeof(int32_t));
    device_send(d, LANE_IN, set->device_positions, set->positions, n * sizeof(int64_t));
    set->staged = device_fence(d, LANE_IN);
}

static int64_t latents_of(const GrainWork *w) { return w->job->train.grain * w->latent_elements; }

static int64_t text_of(const GrainWork *w) { return w->job->train.grain * w->text_elements; }

static void put_input(GrainWork *w, SampleSet *set)
{
    Device *d = w->device;
    const int n = (int)w->job->train.grain;
    normal_noise(d, draw_key(w->job->train.seed, "noise"), n, w->latent_elements,
                 set->device_positions, w->noise);
    diffuse(d, n, w->latent_elements, set->x0, w->noise, set->device_timesteps, w->signal, w->sigma,
            w->job->train.prediction == PREDICTION_V, w->x_t, w->target);
    cast_from_f32(d, latents_of(w), w->x_t, w->input);
    cast_from_f32(d, text_of(w), set->device_text, w->context);
}

static void put_forward(GrainWork *w, SampleSet *set)
{
    network_forward(w->network, w->input, set->device_timesteps, w->context, w->prediction);
}

static void put_loss(GrainWork *w, double *loss)
{
    mse_loss(w->device, latents_of(w), w->prediction, w->target, 1.0f, loss, w->dprediction,
             w->workspace);
}

/* sink: NULL for no backward pass. */
static void put_grain(GrainWork *w, SampleSet *set, const GradientSink *sink, double *loss)
{
    Device *d = w->device;
    device_wait(d, LANE_COMPUTE, set->staged);
    put_input(w, set);
    put_forward(w, set);
    put_loss(w, loss);
    if (sink)
        network_backward(w->network, w->dprediction, sink, NULL, NULL);
    set->computed = device_fence(d, LANE_COMPUTE);
}

static int submit(GrainWork *w, const LoaderGrain *grain, bool poisoned, const GradientSink *sink,
                  double *loss, uint64_t timeout_usec, Error *err)
{
    SampleSet *set = &w->sets[w->n_submitted % SETS];
    int r = device_await(w->device, set->staged, timeout_usec, err);
    if (r < 0)
        return error_prefix(err, r, "staging a grain's samples");
    draw(w, grain, set);
    if (poisoned)
        set->latents[0] = NAN;
    send_samples(w, set);
    put_grain(w, set, sink, loss);
    w->n_submitted++;
    return 0;
}

int grain_work_submit(GrainWork *w, const LoaderGrain *grain, const GradientSink *sink,
                      double *loss, uint64_t timeout_usec, Error *err)
{
    bool poisoned = fault("loop.nan") < 0; /* simulates a bad sample or a flipped bit */
    return submit(w, grain, poisoned, sink, loss, timeout_usec, err);
}

int grain_work_measure(GrainWork *w, const LoaderGrain *grain, double *loss, uint64_t timeout_usec,
                       Error *err)
{
    return submit(w, grain, false, NULL, loss, timeout_usec, err);
}

int grain_work_await(GrainWork *w, int n_behind, uint64_t timeout_usec, Error *err)
{
    assert(n_behind >= 0 && n_behind < SETS);
    if (w->n_submitted <= n_behind)
        return 0;
    const SampleSet *set = &w->sets[(w->n_submitted - 1 - n_behind) % SETS];
    int r = device_await(w->device, set->computed, timeout_usec, err);
    return r < 0 ? error_prefix(err, r, "computing a grain") : 0;
}

/* ---- a grain that is not finite ---- */

/* Checks each part of the grain, and stops at the first part that is not finite. */
static void look_at_grain(GrainWork *w, SampleSet *set, TapeFinite *f, const float *weights)
{
    const DataType type = device_type(w->device);
    const int64_t latents = latents_of(w), text = text_of(w);
    const GradientSink sink = tape_finite_sink(f);
    device_wait(w->device, LANE_COMPUTE, set->staged);
    if (!tape_finite_look(f, "the latents of its samples", DATA_F32, latents, set->x0) ||
        !tape_finite_look(f, "the text of its samples", DATA_F32, text, set->device_text) ||
        !tape_finite_look_at_weights(f, weights))
        return;
    put_input(w, set);
    if (!tape_finite_look(f, "the noised latents", type, latents, w->input) ||
        !tape_finite_look(f, "the target", DATA_F32, latents, w->target) ||
        !tape_finite_look(f, "the text, as the network takes it", type, text, w->context))
        return;
    tape_finite_watch(f);
    put_forward(w, set);
    if (!*tape_finite_text(f)) {
        put_loss(w, tape_finite_loss(f));
        if (tape_finite_look_at_loss(f) &&
            tape_finite_look(f, "the gradient of the loss", type, latents, w->dprediction))
            network_backward(w->network, w->dprediction, &sink, NULL, NULL);
    }
    tape_finite_end(f);
}

int grain_work_explain(GrainWork *w, const LoaderGrain *grain, const float *weights,
                       uint64_t until_usec, char *text, size_t size, Error *err)
{
    _cleanup_(tape_finite_freep) TapeFinite *f = NULL;
    SampleSet *set = &w->sets[w->n_submitted % SETS];
    const uint64_t now = clock_monotonic_usec();
    int r = tape_finite_new(network_tape(w->network), until_usec, &f, err);
    if (r == 0)
        r = device_await(w->device, set->staged, now < until_usec ? until_usec - now : 0, err);
    if (r < 0)
        return r;
    draw(w, grain, set);
    send_samples(w, set);
    look_at_grain(w, set, f, weights);
    w->is_cut = tape_finite_hangs(f);
    (void)snprintf(text, size, "%s",
                   *tape_finite_text(f) ? tape_finite_text(f)
                                        : "all of it is finite this time: the device wavers");
    return 0;
}

bool grain_work_is_cut(const GrainWork *w) { return w->is_cut; }

/* Writes n draws of N(0, 1); element i comes from counter i / 4. */
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

/* The input and memory of the canned grain: synthetic samples, and device memory for two passes. */
typedef struct Canned {
    LoaderGrain grain;
    float *latents, *text;
    float *gradients; /* device memory: flat */
    /* Device memory, [2][tensors]: maxima of the plain gradients, and of the second pass. */
    uint32_t *maxima;
    double *losses;             /* device memory: [2] */
    StatePlan *plan;            /* plan of a state with all parameters, in one chunk */
    TapeComparison *comparison; /* NULL on a CPU, which uses no library and no plan */
    DeviceStaging *staging;
} Canned;

static void canned_close(const GrainWork *w, Canned *c)
{
    /* Keeps, until the process ends, objects that a hanging device may use; volatile, since no code reads `kept`. */
    static _unused_ void *volatile kept[2];
    c->staging = device_staging_free(c->staging);
    kept[0] = c->plan;
    kept[1] = c->comparison;
    if (device_is_idle(w->device)) {
        kept[0] = kept[1] = NULL;
        c->plan = state_plan_free(c->plan);
        c->comparison = tape_comparison_free(c->comparison);
        device_release(w->device, c->gradients);
        device_release(w->device, c->maxima);
        device_release(w->device, c->losses);
    }
    free(c->latents);
    free(c->text);
}

static int canned_open(const GrainWork *w, const ParameterList *list, Canned *c, Error *err)
{
    const int64_t n = w->job->train.grain;
    c->latents = calloc((size_t)(n * w->latent_elements), sizeof(float));
    c->text = calloc((size_t)(n * w->text_elements), sizeof(float));
    if (!c->latents || !c->text)
        return error_set(err, -ENOMEM, "out of memory");
    fill_normal(c->latents, n * w->latent_elements, 1);
    fill_normal(c->text, n * w->text_elements, 2);
    c->grain = (LoaderGrain){.latents = c->latents, .text = c->text};
    int r = device_allocate(w->device, (size_t)list->n_elements * sizeof(float),
                            (void **)&c->gradients, err);
    if (r == 0)
        r = device_allocate(w->device, 2 * list->n_items * sizeof(*c->maxima), (void **)&c->maxima,
                            err);
    if (r == 0)
        r = device_allocate(w->device, 2 * sizeof(*c->losses), (void **)&c->losses, err);
    if (r == 0 && device_kind(w->device) == DEVICE_CUDA)
        r = tape_comparison_new(network_tape(w->network), &c->comparison, err);
    if (r == 0)
        r = device_staging_new(w->device, &c->staging, err);
    const StatePlanShape whole = {.n_ranks = 1, .n_shards = 1};
    return r == 0 ? parameter_list_plan(list, w->device, whole, &c->plan, err) : r;
}

/* Hashes all gradients, then the loss. */
static int canned_hash(const Canned *c, int64_t n, Hash *ret, Error *err)
{
    static const char what[] = "fetching its gradients";
    _cleanup_(hasher_freep) Hasher *hasher = NULL;
    _cleanup_free_ float *piece = malloc((size_t)MIN(n, 1 << 20) * sizeof(float));
    double loss;
    if (!piece || hasher_new(&hasher) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    int r = 0;
    for (int64_t i = 0; r == 0 && i < n; i += 1 << 20) {
        size_t bytes = (size_t)MIN(n - i, 1 << 20) * sizeof(float);
        r = device_staging_download(c->staging, piece, c->gradients + i, bytes, what, err);
        if (r == 0)
            hasher_update(hasher, piece, bytes);
    }
    if (r == 0)
        r = device_staging_download(c->staging, &loss, c->losses, sizeof(loss), what, err);
    if (r < 0)
        return r;
    hasher_update(hasher, &loss, sizeof(loss));
    *ret = hasher_digest(hasher);
    return 0;
}

/* Compares the two passes. Plain gradients have the same numbers that the kernels give to the sinks of a step.
 * Comparing the results of all operations, if possible, shows more than comparing only the loss and the maxima. */
static int canned_compare(const ParameterList *list, const Canned *c, Error *err)
{
    static const char what[] = "fetching its maxima";
    const size_t n = list->n_items;
    _cleanup_free_ uint32_t *maxima = calloc(2 * n, sizeof(*maxima));
    double losses[2];
    if (!maxima)
        return error_set(err, -ENOMEM, "out of memory");
    int r =
        device_staging_download(c->staging, maxima, c->maxima, 2 * n * sizeof(*maxima), what, err);
    if (r == 0)
        r = device_staging_download(c->staging, losses, c->losses, sizeof(losses), what, err);
    if (r == 0 && c->comparison)
        r = tape_comparison_report(c->comparison, TAPE_FORWARD, err);
    if (r < 0)
        return r;
    if (memcmp(&losses[0], &losses[1], sizeof(losses[0])) != 0)
        return error_set(err, -EXDEV, "the loss is %.17g, and %.17g when it is computed again",
                         losses[0], losses[1]);
    r = c->comparison ? tape_comparison_report(c->comparison, TAPE_BACKWARD, err) : 0;
    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++)
        if (maxima[i] != maxima[n + i])
            return error_set(err, -EXDEV,
                             "%s: the largest gradient has the bits %08x, and %08x when it is "
                             "computed again",
                             list->items[i].name, maxima[i], maxima[n + i]);
    return 0;
}

/* Computes the canned grain in one of the two passes (0 or 1). */
static int canned_pass(GrainWork *w, const Canned *c, int pass, const GradientSink *sink,
                       Error *err)
{
    if (c->comparison)
        tape_comparison_watch(c->comparison, pass);
    int r = submit(w, &c->grain, false, sink, &c->losses[pass], DEVICE_TIMEOUT_USEC, err);
    if (c->comparison)
        tape_comparison_end(c->comparison);
    return r;
}

/* Computes the grain once with plain gradients, and once with only maxima. */
static int canned_compute(GrainWork *w, const ParameterList *list, const Canned *c, Error *err)
{
    const GradientSink plain = {.kind = SINK_PLAIN, .to = c->gradients};
    const GradientSink of_plain = {.kind = SINK_MAXIMA, .maxima = c->maxima};
    const GradientSink again = {.kind = SINK_MAXIMA, .maxima = c->maxima + list->n_items};
    int r = canned_pass(w, c, 0, &plain, err);
    if (r < 0)
        return r;
    state_count(c->plan, c->gradients, 0, list->n_elements, &of_plain);
    r = canned_pass(w, c, 1, &again, err);
    /* this wait has a deadline; the downloads that follow would wait without a limit */
    return r == 0 ? grain_work_await(w, 0, DEVICE_TIMEOUT_USEC, err) : r;
}

int canned_grain(GrainWork *w, Hash *ret, Error *err)
{
    const ParameterList *list = network_parameters(w->network);
    Canned c = {0};
    int r = canned_open(w, list, &c, err);
    if (r == 0)
        r = canned_compute(w, list, &c, err);
    if (r == 0)
        r = canned_hash(&c, list->n_elements, ret, err);
    if (r == 0)
        r = canned_compare(list, &c, err);
    canned_close(w, &c);
    start_part("canned grain");
    return r < 0 ? error_prefix(err, r, "the canned grain") : 0;
}
