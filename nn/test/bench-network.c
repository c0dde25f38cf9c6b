/* SPDX-License-Identifier: Apache-2.0 */
/* bench-network.c - milliseconds of one training step of a U-Net: forward, loss, backward, clip, AdamW, packing.
 * ops/bench-torch.py measures the same in PyTorch; both print one line of JSON.
 *
 *     bench-network [--channels 64,128,256] [--heads 4,8,8] [--side 32] [--grain 8] [--tokens 77]
 *                   [--text-dim 256] [--layers 2] [--threads 2] [--steps 20] [--profile] [--paced]
 *
 * With --profile a table of all operations follows, by time. With --paced the program prints "ready"; then each step
 * waits for a line on standard input and prints its milliseconds, so that two programs can take turns. */
#include "base/clock.h"
#include "nn/network.h"
#include "nn/tape.h"

#include <getopt.h>
#include <math.h>
#include <string.h>
#include <sys/resource.h>

enum { STEPS_MAX = 10000, WARM_UP = 3 };

typedef struct Options {
    UnetConfig config;
    NetworkShape shape;
    int threads, steps;
    bool profile, paced;
} Options;

typedef struct Step {
    Device *device;
    Network *network;
    int64_t n_parameters, n_latents, n_text;
    float *weights, *gradients, *m, *v, *target;
    void *latents, *text, *prediction, *dprediction, *workspace;
    int32_t *timesteps;
    double *loss, *squares;
    StatePlan *plan; /* the state in one chunk */
} Step;

/* Parses comma-separated counts. Returns how many there are, or -EINVAL. */
static int parse_counts(const char *text, int ret[UNET_LEVELS_MAX])
{
    int n = 0;
    for (;;) {
        char *end;
        long value = strtol(text, &end, 10);
        if (end == text || value < 1 || value > 1 << 20 || n == UNET_LEVELS_MAX)
            return -EINVAL;
        ret[n++] = (int)value;
        if (*end == '\0')
            return n;
        if (*end != ',')
            return -EINVAL;
        text = end + 1;
    }
}

static int parse_options(int argc, char **argv, Options *o)
{
    static const struct option names[] = {
        {"channels", required_argument, NULL, 'c'}, {"heads", required_argument, NULL, 'h'},
        {"side", required_argument, NULL, 's'},     {"grain", required_argument, NULL, 'g'},
        {"tokens", required_argument, NULL, 't'},   {"text-dim", required_argument, NULL, 'd'},
        {"layers", required_argument, NULL, 'l'},   {"threads", required_argument, NULL, 'j'},
        {"steps", required_argument, NULL, 'n'},    {"profile", no_argument, NULL, 'p'},
        {"paced", no_argument, NULL, 'w'},          {NULL, 0, NULL, 0}};
    int n_heads = 3, option, one[UNET_LEVELS_MAX];
    while ((option = getopt_long(argc, argv, "", names, NULL)) >= 0) {
        if (option == 'p' || option == 'w') {
            o->profile |= option == 'p';
            o->paced |= option == 'w';
            continue;
        }
        int n = option == '?' ? -EINVAL : parse_counts(optarg, one);
        if (n < 0)
            return n;
        int *const singles[] = {['s'] = &o->shape.height,
                                ['g'] = &o->shape.grain,
                                ['t'] = &o->shape.text_tokens,
                                ['d'] = &o->config.cross_attention_dim,
                                ['l'] = &o->config.layers_per_block,
                                ['j'] = &o->threads,
                                ['n'] = &o->steps};
        if (option == 'c') {
            o->config.n_levels = n;
            memcpy(o->config.block_out_channels, one, sizeof(one));
        } else if (option == 'h') {
            n_heads = n;
            memcpy(o->config.heads, one, sizeof(one));
        } else {
            *singles[option] = one[0];
        }
    }
    int n_levels = o->config.n_levels;
    for (int i = 0; i < n_levels; i++) {
        o->config.down_attention[i] = i + 1 < n_levels;
        o->config.up_attention[i] = i > 0;
        if (o->config.heads[i] < 1 || o->config.block_out_channels[i] % o->config.heads[i] != 0 ||
            o->config.block_out_channels[i] % o->config.norm_num_groups != 0)
            return -EINVAL;
    }
    o->shape.width = o->shape.height;
    return n_heads == n_levels && o->steps <= STEPS_MAX && optind == argc ? 0 : -EINVAL;
}

static int allocate(Step *s, int64_t n_floats, void *ret, Error *err)
{
    return device_allocate(s->device, (size_t)n_floats * sizeof(float), (void **)ret, err);
}

static int step_open(Step *s, const Options *o, Error *err)
{
    DeviceOptions device = {.kind = DEVICE_CPU, .threads = o->threads, .type = DATA_F32};
    int r = device_open(&device, &s->device, err);
    if (r < 0)
        return r;
    r = network_new(s->device, &o->config, &o->shape, &s->network, err);
    if (r < 0)
        return r;
    int64_t pixels = (int64_t)o->shape.grain * o->shape.height * o->shape.width;
    s->n_parameters = network_parameters(s->network)->n_elements;
    s->n_latents = pixels * o->config.in_channels;
    s->n_text = (int64_t)o->shape.grain * o->shape.text_tokens * o->config.cross_attention_dim;
    struct {
        void *memory;
        int64_t n_floats;
    } wanted[] = {{&s->weights, s->n_parameters},
                  {&s->gradients, s->n_parameters},
                  {&s->m, s->n_parameters},
                  {&s->v, s->n_parameters},
                  {&s->target, s->n_latents},
                  {&s->latents, s->n_latents},
                  {&s->prediction, s->n_latents},
                  {&s->dprediction, s->n_latents},
                  {&s->text, s->n_text},
                  {&s->timesteps, o->shape.grain},
                  {&s->workspace,
                   (int64_t)mse_loss_workspace_bytes(s->device, s->n_latents) / 4 + 16},
                  {&s->loss, 2},
                  {&s->squares, 2}};
    for (size_t i = 0; i < ELEMENTSOF(wanted); i++) {
        r = allocate(s, wanted[i].n_floats, wanted[i].memory, err);
        if (r < 0)
            return r;
    }
    return parameter_list_plan(network_parameters(s->network), s->device,
                               (StatePlanShape){.n_ranks = 1, .n_shards = 1}, &s->plan, err);
}

static void step_close(Step *s)
{
    void *const memory[] = {s->weights,     s->gradients,  s->m,      s->v,         s->target,
                            s->latents,     s->prediction, s->text,   s->timesteps, s->workspace,
                            s->dprediction, s->loss,       s->squares};
    for (size_t i = 0; i < ELEMENTSOF(memory); i++)
        if (memory[i])
            device_release(s->device, memory[i]);
    (void)state_plan_free(s->plan);
    (void)network_free(s->network);
    (void)device_free(s->device);
}

/* Sets weights as at the start of a training, and noise in the latents, the target and the text. */
static int step_fill(Step *s, const Options *o)
{
    _cleanup_free_ float *weights = calloc((size_t)s->n_parameters, sizeof(float));
    _cleanup_free_ int32_t *timesteps = calloc((size_t)o->shape.grain, sizeof(int32_t));
    if (!weights || !timesteps)
        return -ENOMEM;
    parameters_initialise(network_parameters(s->network), 17, weights);
    device_upload(s->device, s->weights, weights, (size_t)s->n_parameters * sizeof(float));
    for (int i = 0; i < o->shape.grain; i++)
        timesteps[i] = (i * 997 + 13) % 1000;
    device_upload(s->device, s->timesteps, timesteps, (size_t)o->shape.grain * sizeof(int32_t));
    static const int64_t position = 0;
    normal_noise(s->device, 1, 1, s->n_latents, &position, s->target);
    normal_noise(s->device, 2, 1, s->n_latents, &position, s->latents);
    normal_noise(s->device, 3, 1, s->n_text, &position, s->text);
    network_set_weights(s->network, s->weights);
    return 0;
}

static void step_run(Step *s, int step)
{
    network_forward(s->network, s->latents, s->timesteps, s->text, s->prediction);
    mse_loss(s->device, s->n_latents, s->prediction, s->target, 1.0f, s->loss, s->dprediction,
             s->workspace);
    const GradientSink plain = {.kind = SINK_PLAIN, .to = s->gradients};
    const GradientSums sums = {.data = s->gradients, .type = SUM_F32};
    network_backward(s->network, s->dprediction, &plain, NULL, NULL);
    state_squares(s->plan, &sums, s->squares);
    double squares;
    device_download(s->device, &squares, s->squares, sizeof(squares));
    AdamW adamw = {.lr = 1e-4f,
                   .beta1 = 0.9f,
                   .beta2 = 0.999f,
                   .eps = 1e-8f,
                   .weight_decay = 0.01f,
                   .gradient_scale = (float)fmin(1.0, 1.0 / (sqrt(squares) + 1e-6)),
                   .correction1 = (float)(1.0 - pow(0.9, step)),
                   .correction2 = (float)(1.0 - pow(0.999, step))};
    state_update(s->plan, &adamw, 0, &sums, s->weights, s->m, s->v, NULL);
    network_set_weights(s->network, s->weights);
}

/* Returns the CPU time of the process, which is more reliable than elapsed time on a busy machine. */
static double cpu_msec(void)
{
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u); /* cannot fail for RUSAGE_SELF */
    return 1e3 * (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-3 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

typedef struct Row {
    uint64_t usec;
    char text[320];
} Row;

static int compare_row(const void *a, const void *b)
{
    const Row *x = a, *y = b;
    return x->usec > y->usec ? -1 : x->usec < y->usec;
}

typedef struct Profile {
    uint64_t last_usec;
    uint64_t (*usec)[3]; /* microseconds of every operation, indexed by phase */
} Profile;

/* Adds the time since the previous step of the tape to this step's time. The time is right, because the device has
 * finished the step. */
static bool profile_step(const Tape *tape, TapePhase phase, size_t operation, void *userdata)
{
    Profile *p = userdata;
    (void)device_synchronise(tape->device, NULL); /* an error is sticky; run() sees it */
    uint64_t now = clock_boottime_usec();
    p->usec[operation][phase] += now - p->last_usec;
    p->last_usec = now;
    return true;
}

static void profile_run(Step *s, Profile *p)
{
    const GradientSink plain = {.kind = SINK_PLAIN, .to = s->gradients};
    p->last_usec = clock_boottime_usec();
    network_forward(s->network, s->latents, s->timesteps, s->text, s->prediction);
    mse_loss(s->device, s->n_latents, s->prediction, s->target, 1.0f, s->loss, s->dprediction,
             s->workspace);
    p->last_usec = clock_boottime_usec();
    network_backward(s->network, s->dprediction, &plain, NULL, NULL);
    p->last_usec = clock_boottime_usec();
    network_set_weights(s->network, s->weights);
}

static void format_row(Row *row, const uint64_t usec[3], int steps, const char *text)
{
    row->usec = usec[TAPE_PACK] + usec[TAPE_FORWARD] + usec[TAPE_BACKWARD];
    (void)snprintf(row->text, sizeof(row->text), "%8.3f %8.3f %8.3f  %s",
                   1e-3 * (double)usec[TAPE_PACK] / steps,
                   1e-3 * (double)usec[TAPE_FORWARD] / steps,
                   1e-3 * (double)usec[TAPE_BACKWARD] / steps, text);
}

/* Prints the sums by kind, after the rows of all operations. */
static void print_kinds(const Tape *tape, const Profile *p, int steps)
{
    for (size_t i = 0; i < tape->n_operations; i++) {
        const OperationKind *kind = tape->operations[i].kind;
        uint64_t sums[3] = {0};
        bool is_first = true;
        for (size_t j = 0; j < tape->n_operations; j++) {
            if (tape->operations[j].kind != kind)
                continue;
            is_first &= j >= i;
            for (int phase = 0; phase < 3; phase++)
                sums[phase] += p->usec[j][phase];
        }
        Row row;
        format_row(&row, sums, steps, kind->name);
        if (is_first)
            printf("%s, all\n", row.text);
    }
}

static int print_profile(Step *s, int steps)
{
    Tape *tape = network_tape(s->network);
    _cleanup_free_ Row *rows = calloc(tape->n_operations, sizeof(*rows));
    _cleanup_free_ uint64_t(*usec)[3] = calloc(tape->n_operations, sizeof(*usec));
    if (!rows || !usec)
        return -ENOMEM;
    Profile profile = {.usec = usec};
    tape->observer = profile_step;
    tape->observer_userdata = &profile;
    for (int i = 0; i < steps; i++)
        profile_run(s, &profile);
    tape->observer = NULL;

    for (size_t i = 0; i < tape->n_operations; i++) {
        char text[256];
        tape_describe(tape, i, text, sizeof(text));
        format_row(&rows[i], usec[i], steps, text);
    }
    qsort(rows, tape->n_operations, sizeof(*rows), compare_row);
    printf(" pack ms   fwd ms   bwd ms\n");
    for (size_t i = 0; i < tape->n_operations; i++)
        printf("%s\n", rows[i].text);
    print_kinds(tape, &profile, steps);
    return 0;
}

/* Runs one step and returns its milliseconds. With --paced the step waits for a line on standard input. */
static double timed_step(Step *s, const Options *o, int step)
{
    if (o->paced)
        while (getchar() != '\n' && !feof(stdin))
            continue;
    uint64_t start = clock_boottime_usec();
    step_run(s, step);
    double msec = 1e-3 * (double)(clock_boottime_usec() - start);
    if (o->paced) {
        printf("%.3f\n", msec);
        (void)fflush(stdout);
    }
    return msec;
}

static int run(const Options *o, Error *err)
{
    _cleanup_(step_close) Step s = {0};
    uint64_t start = clock_boottime_usec();
    int r = step_open(&s, o, err);
    if (r < 0)
        return r;
    double new_msec = 1e-3 * (double)(clock_boottime_usec() - start);
    _cleanup_free_ double *msec = calloc((size_t)o->steps, sizeof(double));
    if (!msec || step_fill(&s, o) < 0)
        return error_errno(err, -ENOMEM, "benchmark");

    for (int i = 1; i <= WARM_UP; i++)
        step_run(&s, i);
    if (o->paced)
        (void)puts("ready");
    (void)fflush(stdout);
    double cpu = cpu_msec();
    for (int i = 0; i < o->steps; i++)
        msec[i] = timed_step(&s, o, WARM_UP + 1 + i);
    cpu = (cpu_msec() - cpu) / o->steps;
    qsort(msec, (size_t)o->steps, sizeof(double), compare_double);
    double loss;
    device_download(s.device, &loss, s.loss, sizeof(loss));
    printf("{\"figure\": \"training_step\", \"value\": %.3f, \"unit\": \"ms\", \"min\": %.3f, "
           "\"max\": %.3f, \"cpu_ms\": %.3f, \"runs\": %d, \"threads\": %d, \"parameters\": %lld, "
           "\"new_ms\": %.1f, "
           "\"arena_mib\": %.1f, \"loss\": %.6f}\n",
           msec[o->steps / 2], msec[0], msec[o->steps - 1], cpu, o->steps, o->threads,
           (long long)s.n_parameters, new_msec, (double)network_arena_bytes(s.network) / (1 << 20),
           loss);
    return o->profile ? print_profile(&s, o->steps) : 0;
}

int main(int argc, char **argv)
{
    Options o = {.config = {.in_channels = 4,
                            .out_channels = 4,
                            .n_levels = 3,
                            .block_out_channels = {64, 128, 256},
                            .layers_per_block = 2,
                            .heads = {4, 8, 8},
                            .cross_attention_dim = 256,
                            .norm_num_groups = 32,
                            .norm_eps = 1e-5,
                            .flip_sin_to_cos = true,
                            .use_linear_projection = true},
                 .shape = {.grain = 8, .height = 32, .text_tokens = 77, .backward = true},
                 .threads = 2,
                 .steps = 20};
    Error err = ERROR_INIT;
    if (parse_options(argc, argv, &o) < 0) {
        fprintf(stderr, "bench-network: bad option; see the head of bench-network.c\n");
        return 2;
    }
    int r = run(&o, &err);
    if (r < 0) {
        fprintf(stderr, "bench-network: %s\n", err.text);
        return 1;
    }
    return 0;
}
