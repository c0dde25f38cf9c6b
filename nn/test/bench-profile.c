/* SPDX-License-Identifier: Apache-2.0 */
/* bench-profile.c - profiles a training step on one device: microseconds, bytes and floating-point operations of each
 * operation of the tape, and of each launch of the operation.
 *
 *     bench-profile cuda bf16|f32 sd2-512|sd2-256|small [graph]
 *
 * sd2-512: sd2-base at 512^2, 32 samples a grain; sd2-256: at 256^2, 128; small: a network for the emulator. A step is
 * one grain, as in trainer/session/grain.c, and the state's update. The weights are those of a new job and the samples
 * are draws of N(0, 1), since the time of a GPU's matrix products depends on their operands.
 *
 * One JSON object is printed. usec of a launch is the median of the rounds. Whole steps are timed separately, without
 * the timing of launches, which makes each launch longer. ops/gpu_profile.py computes the shortest possible times.
 *
 * graph: the step is also recorded as one graph, and both are timed: the graph, and the step launch by launch. If the
 * step cannot be recorded, the object gives the reason. */
#include "base/clock.h"
#include "base/json/json.h"
#include "base/memory.h"
#include "nn/network.h"
#include "nn/test/testing-sd2.h"
#include "nn/test/testing-work.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    LAUNCHES_MAX = 1 << 15,
    ROWS_MAX = 4096,
    SCHEDULE_STEPS = 1000,
    TIMEOUT_USEC = 120000000,
    PIECE_ELEMENTS = 1 << 20
};

static const UnetConfig small_config = {
    .in_channels = 4,
    .out_channels = 4,
    .n_levels = 2,
    .block_out_channels = {32, 64},
    .down_attention = {true, false},
    .up_attention = {false, true},
    .layers_per_block = 1,
    .heads = {1, 2},
    .cross_attention_dim = 16,
    .norm_num_groups = 4,
    .norm_eps = 1e-5,
    .flip_sin_to_cos = true,
    .use_linear_projection = true,
};

typedef struct Scale {
    const char *name;
    const UnetConfig *config;
    NetworkShape shape;
    int rounds;
} Scale;

static const Scale scales[] = {
    {"sd2-512", &sd2_base, {32, 64, 64, SD2_TEXT_TOKENS, true}, 7},
    {"sd2-256", &sd2_base, {128, 32, 32, SD2_TEXT_TOKENS, true}, 7},
    {"small", &small_config, {1, 8, 8, 7, true}, 1},
};

/* Consecutive launches: one operation of the tape, or another part of a step. */
typedef struct Row {
    const char *name; /* NULL: the launches belong to `operation` of the tape */
    size_t operation;
    TapePhase phase;
    double bytes;
    size_t end; /* index after the row's last launch; the next row's launches begin there */
} Row;

typedef struct Profile {
    Device *device;
    const Scale *scale;
    Network *network;
    Tape *tape;
    int64_t n_latents, n_text;
    float *x0, *noise, *x_t, *target, *text32, *signal, *sigma, *weights, *m, *v, *ema;
    void *input, *context, *prediction, *dprediction, *workspace;
    int32_t *timesteps, *sums, *exponents;
    int64_t *positions;
    uint32_t *maxima, *fresh;
    double *loss, *squares;
    StatePlan *plan;
    Row rows[ROWS_MAX];
    size_t n_rows;
    bool timed;
} Profile;

static void check(int r, const Error *err)
{
    if (r >= 0)
        return;
    (void)fprintf(stderr, "bench-profile: %s\n", err->text);
    exit(EXIT_FAILURE);
}

/* ---- memory ---- */

static void *memory_of(Device *device, size_t n_bytes)
{
    void *memory;
    Error err = ERROR_INIT;
    check(device_allocate(device, n_bytes, &memory, &err), &err);
    return memory;
}

static void fill_weights(Profile *p)
{
    const ParameterList *list = network_parameters(p->network);
    float *piece = memory_given(malloc(PIECE_ELEMENTS * sizeof(*piece)));
    for (int64_t at = 0; at < list->n_elements; at += PIECE_ELEMENTS) {
        const int64_t end = MIN(at + PIECE_ELEMENTS, list->n_elements);
        parameters_initialise_range(list, 1, at, end, piece);
        device_upload(p->device, p->weights + at, piece, (size_t)(end - at) * sizeof(*piece));
    }
    free(piece);
}

static void fill_schedule(const Profile *p)
{
    float schedule[SCHEDULE_STEPS];
    int32_t *timesteps = memory_given(calloc((size_t)p->scale->shape.grain, sizeof(*timesteps)));
    for (int i = 0; i < SCHEDULE_STEPS; i++)
        schedule[i] = 0.7f; /* as much signal as noise */
    device_upload(p->device, p->signal, schedule, sizeof(schedule));
    device_upload(p->device, p->sigma, schedule, sizeof(schedule));
    for (int i = 0; i < p->scale->shape.grain; i++)
        timesteps[i] = i * SCHEDULE_STEPS / p->scale->shape.grain;
    device_upload(p->device, p->timesteps, timesteps,
                  (size_t)p->scale->shape.grain * sizeof(*timesteps));
    free(timesteps);
}

static void allocate(Profile *p)
{
    const ParameterList *list = network_parameters(p->network);
    const size_t grain = (size_t)p->scale->shape.grain, n = (size_t)list->n_elements;
    const size_t latents = (size_t)p->n_latents * sizeof(float);
    const size_t text = (size_t)p->n_text * sizeof(float), state = n * sizeof(float);
    const StatePlanShape cut = {.chunk_elements = 4 << 20, .n_ranks = 1, .n_shards = 1};
    Error err = ERROR_INIT;
    const struct {
        void *at;
        size_t n_bytes;
    } buffers[] = {
        {&p->x0, latents},
        {&p->noise, latents},
        {&p->x_t, latents},
        {&p->target, latents},
        {&p->text32, text},
        {&p->signal, SCHEDULE_STEPS * sizeof(float)},
        {&p->sigma, SCHEDULE_STEPS * sizeof(float)},
        {&p->weights, state},
        {&p->m, state},
        {&p->v, state},
        {&p->ema, state},
        {&p->sums, n * sizeof(*p->sums)},
        {&p->input, latents},
        {&p->context, text},
        {&p->prediction, latents},
        {&p->dprediction, latents},
        {&p->workspace, mse_loss_workspace_bytes(p->device, p->n_latents)},
        {&p->timesteps, grain * sizeof(*p->timesteps)},
        {&p->positions, grain * sizeof(*p->positions)},
        {&p->exponents, list->n_items * sizeof(*p->exponents)},
        {&p->maxima, list->n_items * sizeof(*p->maxima)},
        {&p->fresh, sizeof(*p->fresh)},
        {&p->loss, sizeof(*p->loss)},
        {&p->squares, DIV_ROUND_UP(n, (size_t)cut.chunk_elements) * sizeof(*p->squares)},
    };
    for (size_t i = 0; i < ELEMENTSOF(buffers); i++)
        *(void **)buffers[i].at = memory_of(p->device, buffers[i].n_bytes);
    check(parameter_list_plan(list, p->device, cut, &p->plan, &err), &err);
    normal_noise(p->device, 3, 1, p->n_latents, p->positions, p->x0);
    normal_noise(p->device, 4, 1, p->n_text, p->positions, p->text32);
    fill_weights(p);
    fill_schedule(p);
}

static void open_profile(Profile *p, DataType type)
{
    const NetworkShape *shape = &p->scale->shape;
    const DeviceOptions options = {.kind = DEVICE_CUDA, .threads = 2, .type = type};
    Error err = ERROR_INIT;
    check(device_open(&options, &p->device, &err), &err);
    check(network_new(p->device, p->scale->config, shape, &p->network, &err), &err);
    p->tape = network_tape(p->network);
    p->n_latents =
        (int64_t)shape->grain * shape->height * shape->width * p->scale->config->in_channels;
    p->n_text = (int64_t)shape->grain * shape->text_tokens * p->scale->config->cross_attention_dim;
    allocate(p);
}

/* ---- a step ---- */

static void end_row(Profile *p, Row row)
{
    if (!p->timed)
        return;
    assert(p->n_rows < ROWS_MAX);
    row.end = device_timed_launches(p->device);
    p->rows[p->n_rows++] = row;
}

static bool observe(const Tape *tape, TapePhase phase, size_t operation, void *userdata)
{
    const Operation *op = &tape->operations[operation];
    end_row(userdata,
            (Row){.operation = operation, .phase = phase, .bytes = phase_bytes(tape, op, phase)});
    return true;
}

static void put_step(Profile *p)
{
    Device *d = p->device;
    const int n = p->scale->shape.grain;
    const double latents = (double)p->n_latents, text = (double)p->n_text;
    const double state = (double)p->tape->parameters->n_elements;
    const double element = (double)data_type_bytes(device_type(d));
    const GradientSink sink = {.kind = SINK_COUNT,
                               .bits = 32,
                               .to = p->sums,
                               .exponents = p->exponents,
                               .maxima = p->maxima,
                               .fresh = p->fresh};
    const GradientSums sums = {.data = p->sums,
                               .type = SUM_I32,
                               .exponents = p->exponents,
                               .scale = 1e-9};
    const AdamW adamw = {.lr = 1e-6f,
                         .eps = 1e-8f,
                         .beta1 = 0.9,
                         .beta2 = 0.999,
                         .gradient_scale = 1,
                         .correction1 = 1,
                         .correction2 = 1};
    network_set_weights(p->network, p->weights);
    normal_noise(d, 5, n, p->n_latents / n, p->positions, p->noise);
    end_row(p, (Row){.name = "normal_noise", .bytes = 4 * latents});
    diffuse(d, n, p->n_latents / n, p->x0, p->noise, p->timesteps, p->signal, p->sigma, true,
            p->x_t, p->target);
    end_row(p, (Row){.name = "diffuse", .bytes = 16 * latents});
    cast_from_f32(d, p->n_latents, p->x_t, p->input);
    cast_from_f32(d, p->n_text, p->text32, p->context);
    end_row(p, (Row){.name = "cast_from_f32", .bytes = (4 + element) * (latents + text)});
    network_forward(p->network, p->input, p->timesteps, p->context, p->prediction);
    mse_loss(d, p->n_latents, p->prediction, p->target, 1.0f, p->loss, p->dprediction,
             p->workspace);
    end_row(p, (Row){.name = "mse_loss", .bytes = (4 + 2 * element) * latents});
    network_backward(p->network, p->dprediction, &sink, NULL, NULL);
    state_squares(p->plan, &sums, p->squares);
    end_row(p, (Row){.name = "state_squares", .bytes = 4 * state});
    state_update(p->plan, &adamw, 0.9999, &sums, p->weights, p->m, p->v, p->ema);
    end_row(p, (Row){.name = "state_update", .bytes = 36 * state});
}

static double step_usec(Profile *p)
{
    Error err = ERROR_INIT;
    const uint64_t began = clock_monotonic_usec();
    put_step(p);
    check(device_await(p->device, device_fence(p->device, LANE_COMPUTE), TIMEOUT_USEC, &err), &err);
    return (double)MAX(clock_monotonic_usec() - began, (uint64_t)1);
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof(*values), compare_double);
    return values[n / 2];
}

/* ---- the profile ---- */

/* Times the launches of a step. Each launch gets the median time of the rounds; all rounds have the same launches. */
static const DeviceLaunch *measure(Profile *p, DeviceLaunch **ret, size_t *ret_n)
{
    const int rounds = p->scale->rounds;
    double *usec[16];
    Error err = ERROR_INIT;
    const DeviceLaunch *launches = NULL;
    size_t n = 0;
    assert(rounds <= (int)ELEMENTSOF(usec));
    for (int round = 0; round < rounds; round++) {
        check(device_time_launches(p->device, LAUNCHES_MAX, &err), &err);
        p->timed = true;
        p->n_rows = 0;
        (void)step_usec(p);
        p->timed = false;
        check(device_read_launches(p->device, &launches, &err), &err);
        assert(round == 0 || n == device_timed_launches(p->device));
        n = device_timed_launches(p->device);
        usec[round] = memory_given(calloc(n + 1, sizeof(double)));
        for (size_t i = 0; i < n; i++)
            usec[round][i] = launches[i].usec;
    }
    *ret = memory_given(calloc(n + 1, sizeof(**ret)));
    for (size_t i = 0; i < n; i++) {
        double of[16];
        for (int round = 0; round < rounds; round++)
            of[round] = usec[round][i];
        (*ret)[i] = launches[i];
        (*ret)[i].usec = median(of, rounds);
    }
    for (int round = 0; round < rounds; round++)
        free(usec[round]);
    check(device_time_launches(p->device, 0, &err), &err);
    *ret_n = n;
    return *ret;
}

static void print_row(const Profile *p, const Row *row, const DeviceLaunch *launches, size_t begin)
{
    static const char *const phases[] = {"pack", "forward", "backward"};
    char text[320];
    const Operation *op = row->name ? NULL : &p->tape->operations[row->operation];
    double usec = 0;
    if (op)
        tape_describe(p->tape, row->operation, text, sizeof(text));
    for (size_t i = begin; i < row->end; i++)
        usec += launches[i].usec;
    printf("\n{\"operation\":\"%s\",\"kind\":\"%s\",\"pass\":\"%s\",\"usec\":%.3f,\"bytes\":%.0f,"
           "\"flop\":%.0f,\"launches\":[",
           op ? text : row->name, op ? op->kind->name : row->name, op ? phases[row->phase] : "step",
           usec, row->bytes, op ? phase_flop(p->tape, op, row->phase) : 0);
    for (size_t i = begin; i < row->end; i++) {
        const DeviceLaunch *l = &launches[i];
        printf("%s{\"name\":\"%s\",\"usec\":%.3f", i > begin ? "," : "", l->name, l->usec);
        if (l->bytes > 0)
            printf(",\"bytes\":%.0f,\"flop\":%.0f", l->bytes, l->flop);
        printf("}");
    }
    printf("]}");
}

static void print_profile(Profile *p)
{
    double steps[16];
    DeviceLaunch *launches;
    size_t n, begin = 0;
    const int rounds = p->scale->rounds;
    p->tape->observer = observe;
    p->tape->observer_userdata = p;
    /* warm-up: a GPU's clocks rise, and libraries load their kernels */
    for (int i = 0; i < rounds; i++)
        (void)step_usec(p);
    for (int i = 0; i < rounds; i++)
        steps[i] = step_usec(p);
    measure(p, &launches, &n);
    printf(",\"scale\":\"%s\",\"grain\":%d,\"step_usec\":%.3f,\"launches\":%zu,\"operations\":[",
           p->scale->name, p->scale->shape.grain, median(steps, rounds), n);
    for (size_t i = 0; i < p->n_rows; i++) {
        printf("%s", i ? "," : "");
        print_row(p, &p->rows[i], launches, begin);
        begin = p->rows[i].end;
    }
    printf("]");
    assert(begin == n); /* every launch belongs to a row */
    free(launches);
}

/* ---- one graph ---- */

static void put_profile(void *userdata) { put_step(userdata); }

static void print_graph(Profile *p)
{
    double steps[16], usec = 0;
    size_t n_nodes = 0;
    const int rounds = p->scale->rounds;
    Error err = ERROR_INIT;
    for (int i = 0; i < 2 * rounds; i++) /* the first half is a warm-up */
        steps[i % rounds] = step_usec(p);
    printf(",\"scale\":\"%s\",\"grain\":%d,\"step_usec\":%.3f,\"graph\":", p->scale->name,
           p->scale->shape.grain, median(steps, rounds));
    int r = device_time_graph(p->device, put_profile, p, rounds, &usec, &n_nodes, &err);
    if (r < 0) {
        _cleanup_json_ json_t *text = json_string(err.text);
        _cleanup_free_ char *quoted = text ? json_dumps(text, JSON_ENCODE_ANY) : NULL;
        printf("{\"refused\":%s}", quoted ? quoted : "\"\"");
    } else {
        printf("{\"nodes\":%zu,\"step_usec\":%.3f}", n_nodes, usec);
    }
}

static void close_profile(Profile *p)
{
    void *const memory[] = {p->x0,        p->noise, p->x_t,       p->target,     p->text32,
                            p->signal,    p->sigma, p->weights,   p->m,          p->v,
                            p->ema,       p->sums,  p->input,     p->context,    p->prediction,
                            p->workspace, p->fresh, p->timesteps, p->positions,  p->exponents,
                            p->maxima,    p->loss,  p->squares,   p->dprediction};
    for (size_t i = 0; i < ELEMENTSOF(memory); i++)
        device_release(p->device, memory[i]);
    p->plan = state_plan_free(p->plan);
    p->network = network_free(p->network);
    p->device = device_free(p->device);
}

int main(int argc, char **argv)
{
    static Profile p;
    const bool graph = argc == 5 && strcmp(argv[4], "graph") == 0;
    for (size_t i = 0; (argc == 4 || graph) && i < ELEMENTSOF(scales); i++)
        if (strcmp(argv[3], scales[i].name) == 0)
            p.scale = &scales[i];
    if (!p.scale || strcmp(argv[1], "cuda") != 0) {
        (void)fprintf(stderr, "usage: bench-profile cuda bf16|f32 sd2-512|sd2-256|small [graph]\n");
        return 2;
    }
    open_profile(&p, strcmp(argv[2], "bf16") == 0 ? DATA_BF16 : DATA_F32);
    _cleanup_free_ char *numerics = NULL;
    if (device_numerics(p.device, &numerics) < 0)
        return EXIT_FAILURE;
    printf("{\"numerics\":%s", numerics);
    (graph ? print_graph : print_profile)(&p);
    printf("}\n");
    close_profile(&p);
    return 0;
}
