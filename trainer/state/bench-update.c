/* bench-update.c - what the exact reduction costs and how exact it is:
 * bench-update [PARAMETERS [GRAINS [ZERO_STAGE [RANKS]]]].
 *
 * The ranks take steps with given gradients, one after the other with each reduction, so that they
 * see the same machine. Prints one JSON line a figure; medians of rank 0. */

#include "base/clock.h"
#include "base/exactmath.h"
#include "base/philox.h"
#include "trainer/comm/test_world.h"
#include "trainer/state/update.h"

#include <math.h>

enum { ROUNDS = 21, TENSOR_ELEMENTS = 100003, KINDS = 3 };

static const char *const kind_names[KINDS] = {"exact", "exact64", "float"};
static const Reduction kinds[KINDS] = {REDUCTION_EXACT, REDUCTION_EXACT64, REDUCTION_FLOAT};

typedef struct Options {
    int64_t n_elements, n_grains;
    int zero_stage;
} Options;

static ParameterList make_parameters(int64_t n_elements)
{
    size_t n = (size_t)DIV_ROUND_UP(n_elements, (int64_t)TENSOR_ELEMENTS);
    ParameterList list = {calloc(n, sizeof(Parameter)), n, n_elements};
    assert(list.items);
    for (size_t i = 0; i < n; i++) {
        int64_t offset = (int64_t)i * TENSOR_ELEMENTS;
        list.items[i].offset = offset;
        list.items[i].n_elements = MIN((int64_t)TENSOR_ELEMENTS, n_elements - offset);
    }
    return list;
}

/* Normal draws whose scale varies over three decades within a tensor. */
static void fill(const ParameterList *list, int64_t grain, float *g)
{
    for (int64_t i = 0; i < list->n_elements; i += 2) {
        Philox random = philox4x32(11, (uint64_t)grain, (uint64_t)i);
        float pair[2];
        exact_normal_pair(random.word[0], random.word[1], pair);
        double scale = exact_exp(-7.0 * (double)(i % 1021) / 1021);
        g[i] = (float)((double)pair[0] * scale);
        if (i + 1 < list->n_elements)
            g[i + 1] = (float)((double)pair[1] * scale);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print(const char *figure, const Options *options, int ranks, const char *unit,
                  double *values, size_t n)
{
    qsort(values, n, sizeof(*values), compare);
    (void)printf("{\"figure\":\"%s\",\"parameters\":%lld,\"grains\":%lld,\"zero_stage\":%d,"
                 "\"ranks\":%d,\"value\":%.4g,\"unit\":\"%s\",\"runs\":%zu,\"min\":%.4g,"
                 "\"max\":%.4g}\n",
                 figure, (long long)options->n_elements, (long long)options->n_grains,
                 options->zero_stage, ranks, values[n / 2], unit, n, values[0], values[n - 1]);
    (void)fflush(stdout);
}

/* One step with given gradients; its time in milliseconds without the redone pass. */
static double step(Update *update, const TrainState *state, const Options *options,
                   const float *gradients)
{
    Error err = ERROR_INIT;
    int64_t first, n, share;
    grain_share(options->n_grains, state->rank, state->world_size, &first, &n, &share);
    UpdateVerdict verdict = UPDATE_REDO;
    UpdateResult result;
    uint64_t begin = 0;
    update_begin(update);
    while (verdict == UPDATE_REDO) {
        begin = clock_boottime_usec();
        for (int64_t i = 0; i < share; i++) {
            int r = update_add_grain(update, first + i, i < n ? gradients : NULL, 1, &err);
            world_check(r == 0, "%s", err.text);
        }
        int r = update_decide(update, &verdict, &result, &err);
        world_check(r == 0 && verdict != UPDATE_NON_FINITE, "%s", err.text);
    }
    uint32_t word;
    int r = update_apply(update, 0, &word, &result, &err);
    world_check(r == 0, "%s", err.text);
    return (double)(clock_boottime_usec() - begin) / 1000;
}

/* |sum of integers - sum| / |sum| of each gradient, in double. */
static void measure_error(const ParameterList *list, const Options *options)
{
    size_t n = (size_t)MIN(list->n_elements, INT64_C(1000000));
    ParameterList part = *list;
    part.n_elements = (int64_t)n;
    Error err = ERROR_INIT;
    const DeviceOptions device_options = {.kind = DEVICE_CPU, .threads = 1, .type = DATA_F32};
    Device *device = NULL;
    int r = device_open(&device_options, &device, &err);
    world_check(r == 0, "%s", err.text);
    float *g = malloc((n + 1) * sizeof(*g));
    double *sum = calloc(n, sizeof(*sum));
    int32_t *counted = calloc(n, sizeof(*counted));
    int headroom = 2, exponent = 0;
    while ((INT64_C(1) << (headroom - 2)) < options->n_grains)
        headroom++;
    for (int64_t grain = 0; grain < options->n_grains; grain++) {
        fill(&part, grain, g);
        uint32_t bits = 0;
        absolute_max(device, (int64_t)n, g, &bits);
        if (grain == 0)
            exponent = 31 - headroom - ((int)(bits >> 23) - 126);
        quantise_add(device, (int64_t)n, g, exponent, counted);
        for (size_t i = 0; i < n; i++)
            sum[i] += (double)g[i];
    }
    double *error = calloc(n, sizeof(*error)), squares = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        double difference = ldexp((double)counted[i], -exponent) - sum[i];
        squares += difference * difference;
        all += sum[i] * sum[i];
        error[i] = fabs(difference / sum[i]);
    }
    double total = sqrt(squares / all);
    print("gradient_error_median", options, 1, "relative", error, n);
    print("gradient_error_norm", options, 1, "relative", &total, 1);
    free(error);
    free(counted);
    free(sum);
    free(g);
    device = device_free(device);
}

static int run(World *world, Comm *comm, void *arg)
{
    const Options *options = arg;
    Error err = ERROR_INIT;
    ParameterList list = make_parameters(options->n_elements);
    const DeviceOptions device_options = {.kind = DEVICE_CPU, .threads = 1, .type = DATA_F32};
    Device *device = NULL;
    int r = device_open(&device_options, &device, &err);
    world_check(r == 0, "%s", err.text);
    Job jobs[KINDS] = {0};
    TrainState *states[KINDS] = {0};
    Update *updates[KINDS] = {0};
    for (int k = 0; k < KINDS; k++) {
        jobs[k].train.n_grains = options->n_grains;
        jobs[k].train.reduction = kinds[k];
        jobs[k].train.optimizer.lr = 1e-4;
        jobs[k].train.optimizer.beta1 = 0.9;
        jobs[k].train.optimizer.beta2 = 0.999;
        jobs[k].train.optimizer.eps = 1e-8;
        r = train_state_new(device, &list, world->rank, world->size, options->zero_stage, false,
                            &states[k], &err);
        if (r == 0)
            r = update_new(states[k], comm, &jobs[k], &updates[k], &err);
        world_check(r == 0, "%s", err.text);
    }
    float *gradients = malloc((size_t)(options->n_elements + 1) * sizeof(float));
    fill(&list, world->rank, gradients);

    double total[KINDS][ROUNDS], comm_part[KINDS][ROUNDS];
    for (int round = -2; round < ROUNDS; round++) { /* two rounds warm up */
        for (int k = 0; k < KINDS; k++) {
            double msec = step(updates[k], states[k], options, gradients);
            if (round >= 0) {
                total[k][round] = msec;
                comm_part[k][round] = (double)update_comm_usec(updates[k]) / 1000;
            }
        }
    }
    for (int k = 0; k < KINDS && world->rank == 0; k++) {
        char figure[64];
        (void)snprintf(figure, sizeof(figure), "update_%s", kind_names[k]);
        print(figure, options, world->size, "ms", total[k], ROUNDS);
        (void)snprintf(figure, sizeof(figure), "update_%s_comm", kind_names[k]);
        print(figure, options, world->size, "ms", comm_part[k], ROUNDS);
    }
    if (world->rank == 0)
        measure_error(&list, options);
    for (int k = 0; k < KINDS; k++) {
        updates[k] = update_free(updates[k]);
        states[k] = train_state_free(states[k]);
    }
    free(gradients);
    free(list.items);
    device = device_free(device);
    return 0;
}

int main(int argc, char **argv)
{
    Options options = {
        .n_elements = argc > 1 ? atoll(argv[1]) : 4000000,
        .n_grains = argc > 2 ? atoll(argv[2]) : 4,
        .zero_stage = argc > 3 ? atoi(argv[3]) : 1,
    };
    World world = {.size = argc > 4 ? atoi(argv[4]) : 2, .run = run, .arg = &options};
    if (options.n_elements < 1 || world.size < 1 || world.size > WORLD_MAX ||
        options.n_grains < world.size || options.zero_stage < 0 || options.zero_stage > 2) {
        (void)fprintf(stderr, "usage: bench-update [PARAMETERS [GRAINS [ZERO_STAGE [RANKS]]]]\n");
        return 2;
    }
    return world_run(&world, 600) == 0 ? 0 : 1;
}
