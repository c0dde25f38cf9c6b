/* SPDX-License-Identifier: Apache-2.0 */
/* bench-update.c - measures the time and the error of the exact reduction, on a real network's gradients:
 *
 *     bench-update [GRAINS [ZERO_STAGE [RANKS [WIDTH]]]]
 *
 * Each rank computes its grains of 8 samples of noise, with a mid-size U-Net with random weights. Then it makes steps
 * with the grains' gradients, with each reduction in turn, so that all reductions run under the same conditions. WIDTH
 * is the first level's channels: 64 makes 18 million parameters, 160 make 112 million. Prints one JSON line per figure;
 * the values are medians of rank 0. */

#include "base/clock.h"
#include "nn/network.h"
#include "trainer/comm/test/testing-world.h"
#include "trainer/state/exponent.h"
#include "trainer/state/update.h"

#include <math.h>

enum { ROUNDS = 21, KINDS = 3, SEED = 17 };

static const char *const kind_names[KINDS] = {"exact", "exact64", "float"};
static const Reduction kinds[KINDS] = {REDUCTION_EXACT, REDUCTION_EXACT64, REDUCTION_FLOAT};

static UnetConfig config = {.in_channels = 4,
                            .out_channels = 4,
                            .n_levels = 3,
                            .block_out_channels = {64, 128, 256},
                            .heads = {4, 8, 8},
                            .down_attention = {true, true, false},
                            .up_attention = {false, true, true},
                            .layers_per_block = 2,
                            .cross_attention_dim = 256,
                            .norm_num_groups = 32,
                            .norm_eps = 1e-5f,
                            .flip_sin_to_cos = true,
                            .use_linear_projection = true};
static const NetworkShape shape = {
    .grain = 8, .height = 32, .width = 32, .text_tokens = 77, .backward = true};

typedef struct Options {
    int64_t n_grains;
    int zero_stage;
} Options;

/* A network with the memory that one grain needs. */
typedef struct Grain {
    Device *device;
    Network *network;
    const ParameterList *parameters;
    int64_t n_latents, n_text;
    void *weights, *latents, *text, *timesteps, *target, *prediction, *dprediction, *workspace,
        *loss;
} Grain;

static void grain_open(Grain *g)
{
    Error err = ERROR_INIT;
    const DeviceOptions options = {.kind = DEVICE_CPU, .threads = 1, .type = DATA_F32};
    int r = device_open(&options, &g->device, &err);
    if (r == 0)
        r = network_new(g->device, &config, &shape, &g->network, &err);
    world_check(r == 0, "%s", err.text);
    g->parameters = network_parameters(g->network);
    g->n_latents = (int64_t)shape.grain * shape.height * shape.width * config.in_channels;
    g->n_text = (int64_t)shape.grain * shape.text_tokens * config.cross_attention_dim;
    const struct {
        void **memory;
        size_t n_bytes;
    } wanted[] = {{&g->weights, (size_t)g->parameters->n_elements * sizeof(float)},
                  {&g->latents, (size_t)g->n_latents * sizeof(float)},
                  {&g->text, (size_t)g->n_text * sizeof(float)},
                  {&g->timesteps, (size_t)shape.grain * sizeof(int32_t)},
                  {&g->target, (size_t)g->n_latents * sizeof(float)},
                  {&g->prediction, (size_t)g->n_latents * sizeof(float)},
                  {&g->dprediction, (size_t)g->n_latents * sizeof(float)},
                  {&g->workspace, mse_loss_workspace_bytes(g->device, g->n_latents)},
                  {&g->loss, sizeof(double)}};
    for (size_t i = 0; i < ELEMENTSOF(wanted); i++) {
        r = device_allocate(g->device, wanted[i].n_bytes, wanted[i].memory, &err);
        world_check(r == 0, "%s", err.text);
    }
    parameters_initialise(g->parameters, SEED, g->weights);
    network_set_weights(g->network, g->weights);
}

static void grain_close(Grain *g)
{
    void *const memory[] = {g->weights, g->latents,    g->text,        g->timesteps, g->target,
                            g->loss,    g->prediction, g->dprediction, g->workspace};
    for (size_t i = 0; i < ELEMENTSOF(memory); i++)
        device_release(g->device, memory[i]);
    g->network = network_free(g->network);
    g->device = device_free(g->device);
}

/* Computes the gradients of a grain's mean loss. Returns the milliseconds that this took. */
static double grain_compute(Grain *g, int64_t grain, float *gradients)
{
    uint64_t begin = clock_boottime_usec();
    const GradientSink plain = {.kind = SINK_PLAIN, .to = gradients};
    int32_t *timesteps = g->timesteps;
    for (int i = 0; i < shape.grain; i++)
        timesteps[i] = (int32_t)((grain * shape.grain + i) * 997 + 13) % 1000;
    normal_noise(g->device, 1, 1, g->n_latents, &grain, g->target);
    normal_noise(g->device, 2, 1, g->n_latents, &grain, g->latents);
    normal_noise(g->device, 3, 1, g->n_text, &grain, g->text);
    network_forward(g->network, g->latents, g->timesteps, g->text, g->prediction);
    mse_loss(g->device, g->n_latents, g->prediction, g->target, 1.0f, g->loss, g->dprediction,
             g->workspace);
    network_backward(g->network, g->dprediction, &plain, NULL, NULL);
    return (double)(clock_boottime_usec() - begin) / 1000;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print(const char *figure, const char *unit, double *values, size_t n)
{
    qsort(values, n, sizeof(*values), compare);
    (void)printf("{\"figure\":\"%s\",\"value\":%.4g,\"unit\":\"%s\",\"runs\":%zu,\"min\":%.4g,"
                 "\"max\":%.4g}\n",
                 figure, values[n / 2], unit, n, values[0], values[n - 1]);
    (void)fflush(stdout);
}

/* ---- time ---- */

/* Makes one step with the given gradients. Returns the milliseconds of the step, not counting a first pass that is
 * redone. */
static double step(Update *update, StatePlan *plan, Comm *comm, const float *gradients,
                   int64_t n_elements, int64_t first, int64_t n, int64_t share)
{
    Error err = ERROR_INIT;
    UpdateVerdict verdict = UPDATE_REDO;
    UpdateResult result;
    uint64_t begin = 0;
    int r = world_barrier(comm, &err); /* the time does not include waiting for the other ranks */
    world_check(r == 0, "%s", err.text);
    update_begin(update);
    while (verdict == UPDATE_REDO) {
        begin = clock_boottime_usec();
        for (int64_t i = 0; i < share; i++) {
            if (i < n) {
                GradientSink sink;
                update_sink(update, first + i, &sink);
                state_count(plan, gradients + i * n_elements, 0, n_elements, &sink);
            }
            r = update_add_grain(update, i < n ? first + i : -1, i < n, &err);
            world_check(r == 0, "%s", err.text);
        }
        r = update_collect(update, &err);
        world_check(r == 0, "%s", err.text);
        r = update_decide(update, &verdict, &result, &err);
        world_check(r == 0 && verdict != UPDATE_NON_FINITE, "%s", err.text);
    }
    uint32_t word;
    r = update_apply(update, 0, &word, &result, &err);
    world_check(r == 0, "%s", err.text);
    return (double)(clock_boottime_usec() - begin) / 1000;
}

static void measure_time(Grain *grain, Comm *comm, const Options *options, int rank, int world)
{
    Error err = ERROR_INIT;
    Job jobs[KINDS] = {0};
    TrainState *states[KINDS] = {0};
    Update *updates[KINDS] = {0};
    _cleanup_(state_plan_freep) StatePlan *plan = NULL;
    int r = parameter_list_plan(grain->parameters, grain->device,
                                (StatePlanShape){.n_ranks = 1, .n_shards = 1}, &plan, &err);
    world_check(r == 0, "%s", err.text);
    for (int k = 0; k < KINDS; k++) {
        jobs[k].train.n_grains = options->n_grains;
        jobs[k].train.reduction = kinds[k];
        jobs[k].train.optimizer.lr = 1e-4;
        jobs[k].train.optimizer.beta1 = 0.9;
        jobs[k].train.optimizer.beta2 = 0.999;
        jobs[k].train.optimizer.eps = 1e-8;
        r = train_state_new(grain->device, grain->parameters, rank, world, options->zero_stage,
                            false, &states[k], &err);
        if (r == 0)
            r = update_new(states[k], comm, NULL, &jobs[k], &updates[k], &err);
        world_check(r == 0, "%s", err.text);
    }
    int64_t first, n, share, n_elements = grain->parameters->n_elements;
    grain_share(options->n_grains, rank, world, &first, &n, &share);
    float *gradients = malloc((size_t)(n * n_elements) * sizeof(float));
    double *grain_msec = calloc((size_t)n + 1, sizeof(double));
    world_check(gradients && grain_msec, "out of memory");
    (void)grain_compute(grain, first, gradients); /* warm-up */
    for (int64_t i = 0; i < n; i++)
        grain_msec[i] = grain_compute(grain, first + i, gradients + i * n_elements);

    double total[KINDS][ROUNDS], comm_part[KINDS][ROUNDS];
    for (int round = -2; round < ROUNDS; round++) { /* two rounds are a warm-up */
        for (int k = 0; k < KINDS; k++) {
            double msec = step(updates[k], plan, comm, gradients, n_elements, first, n, share);
            if (round >= 0) {
                total[k][round] = msec;
                comm_part[k][round] = (double)update_comm_usec(updates[k]) / 1000;
            }
        }
    }
    if (rank == 0)
        print("grain", "ms", grain_msec, (size_t)n);
    double difference[ROUNDS];
    for (int round = 0; round < ROUNDS; round++)
        difference[round] = total[0][round] - total[KINDS - 1][round];
    if (rank == 0)
        print("update_exact_minus_float", "ms", difference, ROUNDS);
    for (int k = 0; k < KINDS; k++) {
        char figure[64];
        (void)snprintf(figure, sizeof(figure), "update_%s", kind_names[k]);
        if (rank == 0)
            print(figure, "ms", total[k], ROUNDS);
        (void)snprintf(figure, sizeof(figure), "update_%s_comm", kind_names[k]);
        if (rank == 0)
            print(figure, "ms", comm_part[k], ROUNDS);
        updates[k] = update_free(updates[k]);
        states[k] = train_state_free(states[k]);
    }
    free(grain_msec);
    free(gradients);
}

/* ---- error ---- */

/* Computes |sum - true sum| / |true sum| of one tensor over the grains, for a sum of integers and for a sum of floats.
 * The true sum is in double. */
static void tensor_error(Device *device, const float *const *gradients, int64_t n_grains,
                         int64_t offset, int64_t n, double *ret_exact, double *ret_float)
{
    double *sum = calloc((size_t)n, sizeof(*sum));
    float *floats = calloc((size_t)n, sizeof(*floats));
    int32_t *counted = calloc((size_t)n, sizeof(*counted));
    world_check(sum && floats && counted, "out of memory");
    uint32_t maximum = 0;
    const GradientForm form = {DATA_F32, GRADIENT_AS_STATE, (int)n, 1, 1};
    const GradientPlace place = {.n = n, .n_tensors = 1};
    const GradientSink maxima = {.kind = SINK_MAXIMA, .maxima = &maximum};
    for (int64_t k = 0; k < n_grains; k++)
        gradient_take(device, &form, gradients[k] + offset, &place, &maxima);
    const int32_t exponent = exponent_choose(maximum, n_grains, SUM_32);
    const GradientSink count = {
        .kind = SINK_COUNT, .bits = 32, .to = counted, .exponents = &exponent, .maxima = &maximum};
    for (int64_t k = 0; k < n_grains; k++) {
        const float *g = gradients[k] + offset;
        gradient_take(device, &form, g, &place, &count);
        for (int64_t i = 0; i < n; i++) {
            sum[i] += (double)g[i];
            floats[i] += g[i];
        }
    }
    double squares = 0, of_exact = 0, of_float = 0;
    for (int64_t i = 0; i < n; i++) {
        squares += sum[i] * sum[i];
        of_exact += pow(ldexp((double)counted[i], -exponent) - sum[i], 2);
        of_float += pow((double)floats[i] - sum[i], 2);
    }
    *ret_exact = squares > 0 ? sqrt(of_exact / squares) : 0;
    *ret_float = squares > 0 ? sqrt(of_float / squares) : 0;
    free(counted);
    free(floats);
    free(sum);
}

/* Measures the errors of all tensors, over every grain of the step, whichever rank owns it. */
static void measure_error(Grain *grain, const Options *options)
{
    const ParameterList *list = grain->parameters;
    float **gradients = calloc((size_t)options->n_grains, sizeof(*gradients));
    double *exact = calloc(list->n_items, sizeof(double));
    double *floats = calloc(list->n_items, sizeof(double));
    world_check(gradients && exact && floats, "out of memory");
    for (int64_t k = 0; k < options->n_grains; k++) {
        gradients[k] = malloc((size_t)list->n_elements * sizeof(float));
        world_check(gradients[k], "out of memory");
        (void)grain_compute(grain, k, gradients[k]);
    }
    for (size_t i = 0; i < list->n_items; i++)
        tensor_error(grain->device, (const float *const *)gradients, options->n_grains,
                     list->items[i].offset, list->items[i].n_elements, &exact[i], &floats[i]);
    print("gradient_error_exact", "relative", exact, list->n_items);
    print("gradient_error_float", "relative", floats, list->n_items);
    for (int64_t k = 0; k < options->n_grains; k++)
        free(gradients[k]);
    free(floats);
    free(exact);
    free(gradients);
}

static int run(World *world, Comm *comm, void *arg)
{
    const Options *options = arg;
    Grain grain = {0};
    grain_open(&grain);
    measure_time(&grain, comm, options, world->rank, world->size);
    if (world->rank == 0)
        measure_error(&grain, options);
    grain_close(&grain);
    return 0;
}

int main(int argc, char **argv)
{
    Options options = {
        .n_grains = argc > 1 ? atoll(argv[1]) : 8,
        .zero_stage = argc > 2 ? atoi(argv[2]) : 1,
    };
    World world = {.size = argc > 3 ? atoi(argv[3]) : 2,
                   .run = run,
                   .arg = &options,
                   .timeout_usec = 300 * USEC_PER_SEC};
    for (int level = 0; argc > 4 && level < config.n_levels; level++)
        config.block_out_channels[level] = atoi(argv[4]) << level;
    if (world.size < 1 || world.size > WORLD_MAX || options.n_grains < world.size ||
        options.n_grains > 256 || options.zero_stage < 0 || options.zero_stage > 2) {
        (void)fprintf(stderr, "usage: bench-update [GRAINS [ZERO_STAGE [RANKS [WIDTH]]]]\n");
        return 2;
    }
    return world_run(&world, 600) == 0 ? 0 : 1;
}
