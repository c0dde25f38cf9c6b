/* SPDX-License-Identifier: Apache-2.0 */
/* bench-device.c - measures a device's memory bandwidth, and how well the element-wise operations of a training step
 * use it.
 *
 *     bench-device copies      cpu|cuda f32|bf16 sd2|small
 *     bench-device elementwise cpu|cuda f32|bf16 sd2|small
 *     bench-device list        cpu|cuda f32|bf16 sd2|small      computes nothing, and needs no memory
 *
 * sd2: sd2-base at 512^2, 32 samples a grain. small: a network that the emulator of a GPU's kernels runs in a second.
 * One JSON object is printed. The calls are those of the network's own tape, so none is missing; equal calls are
 * measured once. Bytes are the fewest that an operation can move: it reads each input once, writes each output once,
 * and also reads each output that it adds to. The memory that a call works on changes from call to call, so that a
 * cache holds little of it. ops/gpu summarises the output. */
#include "base/clock.h"
#include "base/memory.h"
#include "nn/test/testing-sd2.h"
#include "nn/test/testing-work.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MAX = 5, CALLS_MAX = 1000, SCHEDULE_STEPS = 1000, TIMEOUT_USEC = 60000000 };

static const UnetConfig small_config = {
    .in_channels = 4,
    .out_channels = 4,
    .n_levels = 2,
    .block_out_channels = {32, 64},
    .down_attention = {true, false},
    .up_attention = {false, true},
    .layers_per_block = 1,
    .heads = {2, 4},
    .cross_attention_dim = 24,
    .norm_num_groups = 8,
    .norm_eps = 1e-5,
    .flip_sin_to_cos = true,
    .use_linear_projection = true,
};

typedef struct Scale {
    const char *name;
    const UnetConfig *config;
    int side, grain, tokens;
    int rounds;
    double round_usec; /* a round is as many calls as fit into this time */
    size_t copy_bytes;
    int n_shifts; /* the arena moves between this many positions, shift_bytes apart */
    size_t shift_bytes;
    int64_t chunk_elements; /* elements of a chunk of the state */
} Scale;

static const Scale scales[] = {
    {"sd2", &sd2_base, 64, 32, SD2_TEXT_TOKENS, 5, 20000, (size_t)1 << 30, 16, (size_t)32 << 20,
     4 << 20},
    {"small", &small_config, 8, 2, 7, 1, 0, (size_t)1 << 20, 2, 4096, 4096},
};

/* The parts of an operation's work: in each grain or, for PART_PACK, in each step. */
typedef enum Part {
    PART_FORWARD,
    PART_BACKWARD,
    PART_RESIDUAL,
    PART_TIME,
    PART_TAKE,
    PART_PACK
} Part;

static const char *const part_names[] = {"forward",       "backward",      "residual gradient",
                                         "time gradient", "gradient_take", "pack"};

typedef struct Bench Bench;

/* A group of equal calls, which differ only in the memory that they work on. */
typedef struct Call {
    char name[64], shape[96];
    double bytes; /* bytes that one call moves */
    int per_grain, per_step;
    void (*run)(Bench *bench, const struct Call *call);
    Part part;
    const size_t *operations; /* indices in the tape; per_grain or per_step is their number */
} Call;

/* The sizes and the device memory of a grain, as in trainer/session/grain.c. */
typedef struct Grain {
    int64_t latents, text; /* numbers of elements */
    float *x0, *noise, *x_t, *target, *text32, *signal, *sigma;
    void *input, *context, *prediction, *dprediction, *workspace;
    int32_t *timesteps;
    int64_t *positions;
    double *loss;
} Grain;

struct Bench {
    Device *device;
    const Scale *scale;
    Tape *tape;
    UnetValues values;
    Call calls[CALLS_MAX];
    size_t n_calls;
    uint64_t n_run; /* number of calls so far; selects the memory of the next call */
    char *arena;
    Grain grain;
    StatePlan *plan;
    float *weights, *m, *v, *ema;
    int32_t *sums, *exponents;
    uint32_t *maxima, *fresh;
    double *squares;
};

static void check(int r, const Error *err)
{
    if (r >= 0)
        return;
    (void)fprintf(stderr, "bench-device: %s\n", err->text);
    exit(EXIT_FAILURE);
}

static void *device_memory(const Bench *b, size_t n_bytes)
{
    void *memory;
    Error err = ERROR_INIT;
    check(device_allocate(b->device, n_bytes, &memory, &err), &err);
    return memory;
}

/* ---- time ---- */

typedef void (*Run)(Bench *bench, const void *what);

/* Returns the microseconds that n calls on the lane take. */
static double timed(Bench *b, Lane lane, Run run, const void *what, int n)
{
    Error err = ERROR_INIT;
    const uint64_t began = clock_monotonic_usec();
    for (int i = 0; i < n; i++)
        run(b, what);
    check(device_await(b->device, device_fence(b->device, lane), TIMEOUT_USEC, &err), &err);
    return (double)MAX(clock_monotonic_usec() - began, (uint64_t)1);
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Returns the microseconds of one call: the median of the rounds, after one or two calls that are not counted. */
static double measure(Bench *b, Lane lane, Run run, const void *what)
{
    double usec[ROUNDS_MAX], one = timed(b, lane, run, what, 1);
    if (b->scale->round_usec > 0)
        one = timed(b, lane, run, what, 1);
    const int n = (int)CLAMP(b->scale->round_usec / one, 1.0, 1000.0), rounds = b->scale->rounds;
    for (int i = 0; i < rounds; i++)
        usec[i] = timed(b, lane, run, what, n) / n;
    qsort(usec, (size_t)rounds, sizeof(*usec), compare_double);
    return usec[rounds / 2];
}

/* ---- copies ---- */

typedef struct Copies {
    size_t n_bytes;
    void *a, *b, *host[2];
} Copies;

static void run_copy(Bench *b, const void *what)
{
    const Copies *c = what;
    device_copy(b->device, c->a, c->b, c->n_bytes);
}

static void run_send(Bench *b, const void *what)
{
    const Copies *c = what;
    device_send(b->device, LANE_IN, c->a, c->host[0], c->n_bytes);
}

static void run_fetch(Bench *b, const void *what)
{
    const Copies *c = what;
    device_fetch(b->device, LANE_OUT, c->host[1], c->b, c->n_bytes);
}

static void run_both(Bench *b, const void *what)
{
    run_send(b, what);
    run_fetch(b, what);
    device_wait(b->device, LANE_OUT, device_fence(b->device, LANE_IN));
}

/* Returns the bytes of device memory that a copy reads and writes, per second. */
static double copy_rate(Bench *b)
{
    Copies c = {.n_bytes = b->scale->copy_bytes};
    c.a = device_memory(b, c.n_bytes);
    c.b = device_memory(b, c.n_bytes);
    const double usec = measure(b, LANE_COMPUTE, run_copy, &c);
    device_release(b->device, c.a);
    device_release(b->device, c.b);
    return 2e6 * (double)c.n_bytes / usec;
}

static void print_copies(Bench *b)
{
    Error err = ERROR_INIT;
    Copies c = {.n_bytes = b->scale->copy_bytes};
    c.a = device_memory(b, c.n_bytes);
    c.b = device_memory(b, c.n_bytes);
    for (int i = 0; i < 2; i++)
        check(device_host_allocate(b->device, c.n_bytes, &c.host[i], &err), &err);
    const double n = 1e6 * (double)c.n_bytes;
    printf(",\"bytes\":%zu,\"device_to_device\":%.4g", c.n_bytes,
           2 * n / measure(b, LANE_COMPUTE, run_copy, &c));
    printf(",\"host_to_device\":%.4g", n / measure(b, LANE_IN, run_send, &c));
    printf(",\"device_to_host\":%.4g", n / measure(b, LANE_OUT, run_fetch, &c));
    printf(",\"both_ways\":%.4g", 2 * n / measure(b, LANE_OUT, run_both, &c));
    for (int i = 0; i < 2; i++)
        device_host_release(b->device, c.host[i]);
    device_release(b->device, c.a);
    device_release(b->device, c.b);
}

/* ---- calls of the tape ---- */

static double part_bytes(const Tape *tape, const Operation *op, Part part)
{
    switch (part) {
    case PART_FORWARD:
        return forward_bytes(tape, op);
    case PART_BACKWARD:
        return backward_bytes(tape, op);
    case PART_RESIDUAL:
        return 3 * value_bytes(tape, op->out);
    case PART_TIME:
        return value_bytes(tape, op->out) + value_bytes(tape, op->in[IN_SECOND]);
    case PART_TAKE:
        return take_bytes(op);
    case PART_PACK:
        break;
    }
    return pack_bytes(op);
}

/* Returns whether the operation has this element-wise part. */
static bool has_part(const Tape *tape, const Operation *op, Part part)
{
    switch (part) {
    case PART_FORWARD:
        return !is_matrix(op);
    case PART_BACKWARD:
        return !is_matrix(op) && op->runs_backward;
    case PART_RESIDUAL:
        return op->in[IN_RESIDUAL] != NO_VALUE && op->accumulate[IN_RESIDUAL];
    case PART_TIME:
        return strcmp(op->kind->name, "conv") == 0 && has_gradient(tape, op->in[IN_SECOND]);
    case PART_TAKE:
        return is_matrix(op) && op->layer.n_elements > 0;
    case PART_PACK:
        return op->packed_bytes > 0;
    }
    return false;
}

static void run_part(const Tape *tape, const Operation *op, Part part)
{
    const Value *out = &tape->values[op->out];
    switch (part) {
    case PART_FORWARD:
        op->kind->forward(tape, op);
        break;
    case PART_BACKWARD:
        op->kind->backward(tape, op);
        break;
    case PART_RESIDUAL:
        accumulate(tape->device, value_elements(out), tape_gradient(tape, op->out),
                   tape_gradient(tape, op->in[IN_RESIDUAL]));
        break;
    case PART_TIME:
        spatial_sum(tape->device, out->n, (int64_t)out->h * out->w, out->c,
                    tape_gradient(tape, op->out), tape_gradient(tape, op->in[IN_SECOND]));
        break;
    case PART_TAKE:
        tape_take_gradients(tape, op);
        break;
    case PART_PACK:
        op->kind->pack(tape, op);
        break;
    }
}

static void run_tape(Bench *b, const Call *call)
{
    const uint64_t n = (uint64_t)MAX(call->per_grain, call->per_step), i = b->n_run++;
    b->tape->arena = b->arena + (i / n % (uint64_t)b->scale->n_shifts) * b->scale->shift_bytes;
    run_part(b->tape, &b->tape->operations[call->operations[i % n]], call->part);
    b->tape->arena = b->arena;
}

/* Like tape_describe(), but without the kind and the parameter's name. */
static void describe(const Tape *tape, size_t i, Part part, char *text, size_t size)
{
    const Operation *op = &tape->operations[i];
    char whole[320];
    tape_describe(tape, i, whole, sizeof(whole));
    size_t length = strlen(whole);
    if (op->layer.n_elements > 0)
        length -= strlen(tape->parameters->items[op->layer.first_parameter].name) + 1;
    const size_t kind = strlen(op->kind->name) + 1;
    const bool adds = part == PART_BACKWARD && (op->accumulate[IN_X] || op->accumulate[IN_SECOND]);
    (void)snprintf(text, size, "%.*s%s", (int)(length - kind), whole + kind, adds ? " adds" : "");
}

static Call *add_call(Bench *b, const Call *call)
{
    for (size_t i = 0; i < b->n_calls; i++)
        if (strcmp(b->calls[i].name, call->name) == 0 &&
            strcmp(b->calls[i].shape, call->shape) == 0)
            return &b->calls[i];
    assert(b->n_calls < CALLS_MAX);
    b->calls[b->n_calls] = *call;
    return &b->calls[b->n_calls++];
}

static void add_part(Bench *b, size_t i, Part part)
{
    const Operation *op = &b->tape->operations[i];
    Call call = {.bytes = part_bytes(b->tape, op, part), .run = run_tape, .part = part};
    if (is_matrix(op))
        (void)snprintf(call.name, sizeof(call.name), "%s", part_names[part]);
    else
        (void)snprintf(call.name, sizeof(call.name), "%s %s", op->kind->name, part_names[part]);
    describe(b->tape, i, part, call.shape, sizeof(call.shape));
    Call *sum = add_call(b, &call);
    int *n = part == PART_PACK ? &sum->per_step : &sum->per_grain;
    size_t *operations = (size_t *)(uintptr_t)sum->operations; /* allocated by this function */
    operations = memory_given(realloc(operations, (size_t)(*n + 1) * sizeof(size_t)));
    operations[(*n)++] = i;
    sum->operations = operations;
}

/* ---- the other calls of a step ---- */

static void run_noise(Bench *b, const Call *call)
{
    (void)call; /* not needed: this call has no list of operations */
    normal_noise(b->device, 1, b->scale->grain, b->grain.latents / b->scale->grain,
                 b->grain.positions, b->grain.noise);
}

static void run_diffuse(Bench *b, const Call *call)
{
    const Grain *g = &b->grain;
    (void)call; /* not needed: this call has no list of operations */
    diffuse(b->device, b->scale->grain, g->latents / b->scale->grain, g->x0, g->noise, g->timesteps,
            g->signal, g->sigma, true, g->x_t, g->target);
}

static void run_cast_latents(Bench *b, const Call *call)
{
    (void)call; /* not needed: this call has no list of operations */
    cast_from_f32(b->device, b->grain.latents, b->grain.x_t, b->grain.input);
}

static void run_cast_text(Bench *b, const Call *call)
{
    (void)call; /* not needed: this call has no list of operations */
    cast_from_f32(b->device, b->grain.text, b->grain.text32, b->grain.context);
}

static void run_loss(Bench *b, const Call *call)
{
    const Grain *g = &b->grain;
    (void)call; /* not needed: this call has no list of operations */
    mse_loss(b->device, g->latents, g->prediction, g->target, 1.0f, g->loss, g->dprediction,
             g->workspace);
}

static GradientSink counting(const Bench *b)
{
    return (GradientSink){.kind = SINK_COUNT,
                          .bits = 32,
                          .to = b->sums,
                          .exponents = b->exponents,
                          .maxima = b->maxima,
                          .fresh = b->fresh};
}

static GradientSums summed(const Bench *b)
{
    return (
        GradientSums){.data = b->sums, .type = SUM_I32, .exponents = b->exponents, .scale = 1e-9};
}

static void run_state_count(Bench *b, const Call *call)
{
    const GradientSink sink = counting(b);
    (void)call; /* not needed: this call has no list of operations */
    state_count(b->plan, b->m, 0, b->tape->parameters->n_elements, &sink);
}

static void run_state_squares(Bench *b, const Call *call)
{
    const GradientSums sums = summed(b);
    (void)call; /* not needed: this call has no list of operations */
    state_squares(b->plan, &sums, b->squares);
}

static void run_state_update(Bench *b, const Call *call)
{
    const GradientSums sums = summed(b);
    const AdamW adamw = {.lr = 1e-6f,
                         .eps = 1e-8f,
                         .beta1 = 0.9,
                         .beta2 = 0.999,
                         .gradient_scale = 1,
                         .correction1 = 1,
                         .correction2 = 1};
    (void)call; /* not needed: this call has no list of operations */
    state_update(b->plan, &adamw, 0.9999, &sums, b->weights, b->m, b->v, b->ema);
}

static void add_others(Bench *b)
{
    const double element = (double)b->tape->element_bytes;
    const double latents = (double)b->grain.latents, text = (double)b->grain.text;
    const double state = (double)b->tape->parameters->n_elements;
    const Call calls[] = {
        {"normal_noise", "", 4 * latents, 1, 0, run_noise, 0, NULL},
        {"diffuse", "", 16 * latents, 1, 0, run_diffuse, 0, NULL},
        {"cast_from_f32", "latents", (4 + element) * latents, 1, 0, run_cast_latents, 0, NULL},
        {"cast_from_f32", "text", (4 + element) * text, 1, 0, run_cast_text, 0, NULL},
        {"mse_loss", "", (4 + 2 * element) * latents, 1, 0, run_loss, 0, NULL},
        {"state_count", "none in a step with ZeRO 0 or 1", 12 * state, 0, 0, run_state_count, 0,
         NULL},
        {"state_squares", "", 4 * state, 0, 1, run_state_squares, 0, NULL},
        {"state_update", "", 36 * state, 0, 1, run_state_update, 0, NULL},
    };
    for (size_t i = 0; i < ELEMENTSOF(calls); i++)
        (void)add_call(b, &calls[i]);
}

/* ---- the bench ---- */

static void plan(Bench *b)
{
    Error err = ERROR_INIT;
    const Scale *s = b->scale;
    const UnetShape shape = {s->grain, s->side, s->side, s->tokens};
    check(tape_new(&b->tape), &err);
    check(unet_emit(b->tape, s->config, &shape, &b->values, &err), &err);
    check(tape_measure(b->tape, b->device, true, &err), &err);
    b->grain.latents = (int64_t)s->grain * s->side * s->side * s->config->in_channels;
    b->grain.text = (int64_t)s->grain * s->tokens * s->config->cross_attention_dim;
    for (size_t i = 0; i < b->tape->n_operations; i++)
        for (Part part = PART_FORWARD; part <= PART_PACK; part++)
            if (has_part(b->tape, &b->tape->operations[i], part))
                add_part(b, i, part);
    add_others(b);
}

/* Fills memory with draws of N(0, 1). Read as pairs of bf16, these are plausible values, too. */
static void fill(const Bench *b, void *memory, size_t n_bytes)
{
    normal_noise(b->device, 3, 1, (int64_t)(n_bytes / sizeof(float)), b->grain.positions, memory);
}

static void allocate_grain(Bench *b)
{
    Grain *g = &b->grain;
    const size_t latents = (size_t)g->latents * sizeof(float),
                 text = (size_t)g->text * sizeof(float);
    const size_t schedule = SCHEDULE_STEPS * sizeof(float), n = (size_t)b->scale->grain;
    const struct {
        void **at;
        size_t n_bytes;
    } buffers[] = {{(void **)&g->positions, n * sizeof(int64_t)},
                   {(void **)&g->timesteps, n * sizeof(int32_t)},
                   {(void **)&g->loss, sizeof(double)},
                   {(void **)&g->x0, latents},
                   {(void **)&g->noise, latents},
                   {(void **)&g->x_t, latents},
                   {(void **)&g->target, latents},
                   {(void **)&g->text32, text},
                   {(void **)&g->signal, schedule},
                   {(void **)&g->sigma, schedule},
                   {&g->input, latents},
                   {&g->context, text},
                   {&g->prediction, latents},
                   {&g->dprediction, latents},
                   {&g->workspace, mse_loss_workspace_bytes(b->device, g->latents)}};
    for (size_t i = 0; i < ELEMENTSOF(buffers); i++)
        *buffers[i].at = device_memory(b, buffers[i].n_bytes);
    fill(b, g->x0, latents);
    fill(b, g->text32, text);
    fill(b, g->prediction, latents);
    tape_bind(b->tape, b->values.latents, g->input);
    tape_bind(b->tape, b->values.timesteps, g->timesteps);
    tape_bind(b->tape, b->values.text, g->context);
    tape_bind_output(b->tape, b->values.prediction, g->prediction);
    tape_bind_gradient(b->tape, b->values.prediction, g->dprediction);
}

static void allocate(Bench *b)
{
    Error err = ERROR_INIT;
    Tape *tape = b->tape;
    const size_t n = (size_t)tape->parameters->n_elements, n_tensors = tape->parameters->n_items;
    const int64_t chunk = b->scale->chunk_elements;
    const StatePlanShape cut = {.chunk_elements = chunk, .n_ranks = 1, .n_shards = 1};

    allocate_grain(b);
    tape->arena_bytes += (size_t)b->scale->n_shifts * b->scale->shift_bytes;
    check(tape_allocate(tape, &err), &err);
    b->arena = tape->arena;
    fill(b, tape->arena, tape->arena_bytes);
    fill(b, tape->workspace, tape->workspace_bytes);
    float **const floats[] = {&b->weights, &b->m, &b->v, &b->ema, (float **)&b->sums};
    for (size_t i = 0; i < ELEMENTSOF(floats); i++)
        *floats[i] = device_memory(b, n * sizeof(float));
    fill(b, b->weights, n * sizeof(float));
    fill(b, b->m, n * sizeof(float));
    b->exponents = device_memory(b, n_tensors * sizeof(*b->exponents));
    b->maxima = device_memory(b, n_tensors * sizeof(*b->maxima));
    b->fresh = device_memory(b, sizeof(*b->fresh));
    b->squares = device_memory(b, DIV_ROUND_UP(n, (size_t)chunk) * sizeof(*b->squares));
    check(parameter_list_plan(tape->parameters, b->device, cut, &b->plan, &err), &err);
    tape->weights = b->weights;
    tape->sink = counting(b);
}

static void release(Bench *b)
{
    const Grain *g = &b->grain;
    void *const memory[] = {g->positions, g->timesteps, g->loss,       g->x0,          g->noise,
                            g->x_t,       g->target,    g->text32,     g->signal,      g->sigma,
                            g->input,     g->context,   g->prediction, g->dprediction, g->workspace,
                            b->weights,   b->m,         b->v,          b->ema,         b->sums,
                            b->exponents, b->maxima,    b->fresh,      b->squares};
    for (size_t i = 0; i < ELEMENTSOF(memory); i++)
        device_release(b->device, memory[i]);
    for (size_t i = 0; i < b->n_calls; i++)
        free((void *)(uintptr_t)b->calls[i].operations);
    b->plan = state_plan_free(b->plan);
    b->tape = tape_free(b->tape);
    b->device = device_free(b->device);
}

static void run_call(Bench *b, const void *what)
{
    const Call *call = what;
    call->run(b, call);
}

static void print_calls(Bench *b, bool measured)
{
    printf(",\"grain\":%d,\"side\":%d,\"operations\":%zu,\"parameters\":%" PRId64 ",\"calls\":[",
           b->scale->grain, b->scale->side, b->tape->n_operations, b->tape->parameters->n_elements);
    for (size_t i = 0; i < b->n_calls; i++) {
        const Call *c = &b->calls[i];
        printf(
            "%s\n{\"name\":\"%s\",\"shape\":\"%s\",\"per_grain\":%d,\"per_step\":%d,\"bytes\":%.0f",
            i ? "," : "", c->name, c->shape, c->per_grain, c->per_step, c->bytes);
        if (measured)
            printf(",\"usec\":%.3f", measure(b, LANE_COMPUTE, run_call, c));
        printf("}");
        (void)fflush(stdout);
    }
    printf("]");
}

static const Scale *scale_named(const char *name)
{
    for (size_t i = 0; i < ELEMENTSOF(scales); i++)
        if (strcmp(scales[i].name, name) == 0)
            return &scales[i];
    return NULL;
}

int main(int argc, char **argv)
{
    static Bench b;
    Error err = ERROR_INIT;
    b.scale = argc == 5 ? scale_named(argv[4]) : NULL;
    if (!b.scale) {
        (void)fprintf(stderr,
                      "usage: bench-device copies|elementwise|list cpu|cuda f32|bf16 sd2|small\n");
        return 2;
    }
    const DeviceOptions options = {.kind = strcmp(argv[2], "cuda") == 0 ? DEVICE_CUDA : DEVICE_CPU,
                                   .threads = 2,
                                   .type = strcmp(argv[3], "bf16") == 0 ? DATA_BF16 : DATA_F32};
    check(device_open(&options, &b.device, &err), &err);
    _cleanup_free_ char *numerics = NULL;
    if (device_numerics(b.device, &numerics) < 0)
        return EXIT_FAILURE;
    printf("{\"numerics\":%s", numerics);
    if (strcmp(argv[1], "copies") == 0) {
        print_copies(&b);
    } else {
        const bool measured = strcmp(argv[1], "elementwise") == 0;
        if (measured)
            printf(",\"copy\":%.4g", copy_rate(&b));
        plan(&b);
        if (measured)
            allocate(&b);
        print_calls(&b, measured);
    }
    printf("}\n");
    check(device_synchronise(b.device, &err), &err);
    release(&b);
    return 0;
}
