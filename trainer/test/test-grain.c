/* SPDX-License-Identifier: Apache-2.0 */
/* test-grain.c - the draws depend only on (seed, purpose, position); a grain's gradients depend only
 * on its samples, their positions and the weights. */
#include "trainer/session/grain.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/test/testing.h"
#include "store/store.h"
#include "trainer/state/device-patience.h"
#include "trainer/test/testing-job.h"

#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_USEC (60 * USEC_PER_SEC)
enum { LATENTS = 4 * 8 * 8, TEXT = 7 * 16 };

static TestingJob files;

typedef struct Bench {
    Job *job;
    Dataset *dataset;
    Device *device;
    Network *network;
    GrainWork *work;
    float *weights, *gradients;
    double *loss;
    size_t n_bytes; /* size of `weights`, and also of `gradients` */
} Bench;

static Bench bench_open_of(const char *train, int grain)
{
    Bench b = {0};
    Error err = ERROR_INIT;
    UnetConfig config;
    const DeviceOptions options = {.kind = DEVICE_CPU, .threads = 1, .type = DATA_F32};
    const NetworkShape shape = {
        .grain = grain, .height = 8, .width = 8, .text_tokens = 7, .backward = true};
    _cleanup_free_ char *text = testing_job_text(&files, "none", train);
    b.job = testing_job_parse(text);
    b.job->train.grain = grain;
    if (dataset_open(b.job, &b.dataset, &err) < 0 || device_open(&options, &b.device, &err) < 0 ||
        unet_config_read(b.job->model.config_uri, store_get_uri, &config, &err) < 0 ||
        network_new(b.device, &config, &shape, &b.network, &err) < 0 ||
        grain_work_new(b.device, b.network, b.job, dataset_shape(b.dataset),
                       dataset_empty_text(b.dataset), &b.work, &err) < 0)
        fail_msg("%s", err.text);
    b.n_bytes = (size_t)network_parameters(b.network)->n_elements * sizeof(float);
    assert_int_equal(device_allocate(b.device, b.n_bytes, (void **)&b.weights, &err), 0);
    assert_int_equal(device_allocate(b.device, b.n_bytes, (void **)&b.gradients, &err), 0);
    assert_int_equal(device_allocate(b.device, sizeof(double), (void **)&b.loss, &err), 0);
    float *weights = malloc(b.n_bytes);
    assert_non_null(weights);
    parameters_initialise(network_parameters(b.network), b.job->train.seed, weights);
    device_upload(b.device, b.weights, weights, b.n_bytes);
    free(weights);
    network_set_weights(b.network, b.weights);
    return b;
}

static Bench bench_open(const char *train) { return bench_open_of(train, 1); }

static void bench_close(Bench *b)
{
    device_release(b->device, b->weights);
    device_release(b->device, b->gradients);
    device_release(b->device, b->loss);
    (void)grain_work_free(b->work);
    (void)network_free(b->network);
    (void)device_free(b->device);
    (void)dataset_free(b->dataset);
    (void)job_free(b->job);
}

static LoaderGrain grain_of(int64_t position, const float *latents, const float *text)
{
    return (LoaderGrain){.first_position = position, .latents = latents, .text = text};
}

static void submit(Bench *b, const LoaderGrain *grain, float *gradients, double *loss)
{
    Error err = ERROR_INIT;
    const GradientSink plain = {.kind = SINK_PLAIN, .to = gradients};
    if (grain_work_submit(b->work, grain, &plain, loss, WAIT_USEC, &err) < 0)
        fail_msg("%s", err.text);
}

static void await(Bench *b, int n_behind)
{
    Error err = ERROR_INIT;
    if (grain_work_await(b->work, n_behind, WAIT_USEC, &err) < 0)
        fail_msg("%s", err.text);
}

/* Returns the hash of the loss and all gradients. */
static Hash hash_of(Bench *b, const float *gradients, const double *device_loss)
{
    double loss;
    float *host = malloc(b->n_bytes);
    assert_non_null(host);
    device_download(b->device, host, gradients, b->n_bytes);
    device_download(b->device, &loss, device_loss, sizeof(loss));
    assert_true(loss > 0 && loss < 100);
    Hash hash = hash_bytes(host, b->n_bytes);
    hash.low ^= hash64_bytes(&loss, sizeof(loss), 0);
    free(host);
    return hash;
}

static Hash compute(Bench *b, int64_t position, const float *latents, const float *text)
{
    const LoaderGrain grain = grain_of(position, latents, text);
    submit(b, &grain, b->gradients, b->loss);
    await(b, 0);
    return hash_of(b, b->gradients, b->loss);
}

static void draws_are_pinned(void **unused)
{
    (void)unused;
    /* If these numbers change, every job's bits change. */
    static const int64_t positions[] = {0, 1, 2, 1000000000000};
    static const int32_t timesteps[] = {811, 754, 963, 568};
    for (size_t i = 0; i < ELEMENTSOF(positions); i++)
        assert_int_equal(draw_timestep(17, positions[i], 1000), timesteps[i]);
    assert_int_not_equal(draw_timestep(18, 0, 1000), draw_timestep(17, 0, 1000));
    static const int64_t dropped[] = {3, 7, 17, 22, 24};
    for (int64_t i = 0, k = 0; i <= 24; i++) {
        assert_int_equal(draw_caption_drop(17, i, 0.1), i == dropped[k]);
        k += i == dropped[k];
    }
}

/* The noise that `sdtrainer order` prints for a position is the noise that a step adds to the position's sample. */
static void noise_is_that_of_its_position(void **state)
{
    (void)state;
    enum { N = 3, EACH = 10, SEED = 7 };
    const DeviceOptions options = {.kind = DEVICE_CPU, .threads = 1, .type = DATA_F32};
    const int64_t positions[N] = {4, 1 << 20, 5};
    float wanted[N][EACH], found[EACH + 1];
    Error err = ERROR_INIT;
    Device *device;
    void *noise, *places;
    assert_int_equal(device_open(&options, &device, &err), 0);
    assert_int_equal(device_allocate(device, sizeof(wanted), &noise, &err), 0);
    assert_int_equal(device_allocate(device, sizeof(positions), &places, &err), 0);
    device_upload(device, places, positions, sizeof(positions));
    normal_noise(device, hash64_bytes("noise", strlen("noise"), SEED), N, EACH, places, noise);
    device_download(device, wanted, noise, sizeof(wanted));
    for (int i = 0; i < N; i++) {
        found[EACH] = 123;
        assert_int_equal(draw_noise(device, SEED, positions[i], EACH, found, &err), 0);
        assert_memory_equal(found, wanted[i], sizeof(wanted[i]));
        assert_true(found[EACH] == 123);
    }
    device_release(device, noise);
    device_release(device, places);
    device = device_free(device);
}

static void timesteps_are_uniform(void **unused)
{
    (void)unused;
    enum { DRAWS = 100000, BINS = 10 };
    int count[BINS] = {0};
    for (int64_t i = 0; i < DRAWS; i++) {
        int32_t t = draw_timestep(5, i, BINS);
        assert_in_range(t, 0, BINS - 1);
        count[t]++;
    }
    for (int i = 0; i < BINS; i++) /* the bound is five standard deviations */
        assert_in_range(count[i], DRAWS / BINS - 475, DRAWS / BINS + 475);
}

static void captions_drop_as_often_as_told(void **unused)
{
    (void)unused;
    int dropped = 0;
    for (int64_t i = 0; i < 100000; i++) {
        assert_false(draw_caption_drop(5, i, 0));
        assert_true(draw_caption_drop(5, i, 1));
        dropped += draw_caption_drop(5, i, 0.1);
    }
    assert_in_range(dropped, 10000 - 475, 10000 + 475);
}

static void gradients_are_a_function_of_the_sample(void **unused)
{
    (void)unused;
    Bench b = bench_open(", \"caption_drop\": 0.5");
    float latents[LATENTS], text[TEXT], other[TEXT];
    Error err = ERROR_INIT;
    const OrderSample first = {.stream = 0, .sample = 0}, second = {.stream = 0, .sample = 1};
    assert_int_equal(dataset_read(b.dataset, first, latents, text, NULL, &err), 0);
    assert_int_equal(dataset_read(b.dataset, second, NULL, other, NULL, &err), 0);

    /* a position whose caption is kept, and a position whose caption is dropped */
    int64_t kept = 0, dropped = 0;
    while (draw_caption_drop(b.job->train.seed, kept, 0.5))
        kept++;
    while (!draw_caption_drop(b.job->train.seed, dropped, 0.5))
        dropped++;
    const Hash one = compute(&b, kept, latents, text);
    /* another position has other draws */
    assert_false(hash_equal(compute(&b, kept + 1, latents, text), one));
    assert_false(hash_equal(compute(&b, kept, latents, other), one));
    assert_true(hash_equal(compute(&b, dropped, latents, other),
                           /* a dropped caption has no effect */
                           compute(&b, dropped, latents, text)));
    latents[LATENTS - 1] += 1;
    assert_false(hash_equal(compute(&b, kept, latents, text), one));
    latents[LATENTS - 1] -= 1;
    (void)compute(&b, kept + 7, latents, other);
    /* earlier grains have no effect */
    assert_true(hash_equal(compute(&b, kept, latents, text), one));

    Bench v = bench_open(", \"caption_drop\": 0.5, \"prediction\": \"v_prediction\"");
    assert_false(hash_equal(compute(&v, kept, latents, text), one));
    bench_close(&v);
    bench_close(&b);
}

static double loss_of(Bench *b, int64_t position, const float *latents, const float *text)
{
    double loss;
    (void)compute(b, position, latents, text);
    device_download(b->device, &loss, b->loss, sizeof(loss));
    return loss;
}

/* Each sample of a grain has its own latents, text, timestep, noise and caption: up to rounding, the loss of the grain
 * is the mean of the losses that its samples have alone. */
static void samples_of_a_grain_are_apart(void **unused)
{
    (void)unused;
    enum { GRAIN = 3 };
    static const char train[] = ", \"caption_drop\": 0.5";
    Bench together = bench_open_of(train, GRAIN), alone = bench_open(train);
    float latents[GRAIN][LATENTS], text[GRAIN][TEXT];
    Error err = ERROR_INIT;
    double mean = 0;
    /* the captions of first and first + 2 are kept, the caption between them is dropped */
    int64_t first = 0;
    while (draw_caption_drop(alone.job->train.seed, first, 0.5) ||
           !draw_caption_drop(alone.job->train.seed, first + 1, 0.5) ||
           draw_caption_drop(alone.job->train.seed, first + 2, 0.5))
        first++;
    for (int i = 0; i < GRAIN; i++) {
        const OrderSample sample = {.stream = 0, .sample = 5 * i};
        assert_int_equal(dataset_read(alone.dataset, sample, latents[i], text[i], NULL, &err), 0);
        mean += loss_of(&alone, first + i, latents[i], text[i]) / GRAIN;
    }
    const double loss = loss_of(&together, first, latents[0], text[0]);
    assert_true(fabs(loss - mean) < 1e-6 * mean);
    /* each sample has an effect, except for the dropped caption */
    for (int i = 0; i < GRAIN; i++) {
        text[i][TEXT - 1] += 1;
        const bool differs = loss_of(&together, first, latents[0], text[0]) != loss;
        assert_int_equal(differs, i != 1);
        text[i][TEXT - 1] -= 1;
        latents[i][LATENTS - 1] += 1;
        assert_true(loss_of(&together, first, latents[0], text[0]) != loss);
        latents[i][LATENTS - 1] -= 1;
    }
    bench_close(&alone);
    bench_close(&together);
}

/* There is no wait between the grains, and the loader's memory is reused when grain_work_submit() returns. */
static void grains_under_way_do_not_disturb_each_other(void **unused)
{
    (void)unused;
    enum { GRAINS = 7 };
    Bench b = bench_open("");
    float latents[GRAINS][LATENTS], text[GRAINS][TEXT], lent_latents[LATENTS], lent_text[TEXT];
    float *gradients[GRAINS];
    double *losses;
    Hash alone[GRAINS];
    Error err = ERROR_INIT;
    assert_int_equal(device_allocate(b.device, sizeof(double) * GRAINS, (void **)&losses, &err), 0);
    for (int i = 0; i < GRAINS; i++) {
        const OrderSample sample = {.stream = 0, .sample = i};
        assert_int_equal(dataset_read(b.dataset, sample, latents[i], text[i], NULL, &err), 0);
        assert_int_equal(device_allocate(b.device, b.n_bytes, (void **)&gradients[i], &err), 0);
        alone[i] = compute(&b, i, latents[i], text[i]);
    }
    for (int i = 0; i < GRAINS; i++) {
        const LoaderGrain lent = grain_of(i, lent_latents, lent_text);
        memcpy(lent_latents, latents[i], sizeof(lent_latents));
        memcpy(lent_text, text[i], sizeof(lent_text));
        submit(&b, &lent, gradients[i], &losses[i]);
        memset(lent_latents, 0xa5, sizeof(lent_latents));
        memset(lent_text, 0xa5, sizeof(lent_text));
    }
    await(&b, 1);
    await(&b, 0);
    for (int i = 0; i < GRAINS; i++) {
        assert_true(hash_equal(hash_of(&b, gradients[i], &losses[i]), alone[i]));
        device_release(b.device, gradients[i]);
    }
    device_release(b.device, losses);
    bench_close(&b);
}

static void canned_grains_tell_machines_apart(void **unused)
{
    (void)unused;
    Bench b = bench_open("");
    Error err = ERROR_INIT;
    const int64_t n = network_parameters(b.network)->n_elements;
    Hash one, again, other;
    assert_int_equal(canned_grain(b.work, &one, &err), 0);
    assert_int_equal(canned_grain(b.work, &again, &err), 0);
    assert_true(hash_equal(one, again));

    uint32_t bits; /* one wrong bit in one weight, as from a machine that computes wrongly */
    device_download(b.device, &bits, &b.weights[n / 2], sizeof(bits));
    bits ^= 1u << 10; /* the lowest bits may be lost in rounding */
    device_upload(b.device, &b.weights[n / 2], &bits, sizeof(bits));
    network_set_weights(b.network, b.weights);
    assert_int_equal(canned_grain(b.work, &other, &err), 0);
    assert_false(hash_equal(one, other));
    bench_close(&b);
}

/* A sink, and its device memory. */
typedef struct Bowl {
    GradientSink sink;
    void *to;
    uint32_t *maxima;
    size_t n_bytes, maxima_bytes;
} Bowl;

static Bowl bowl_open(const Bench *b, SinkKind kind, int bits, const int32_t *exponents)
{
    Bowl bowl = {.n_bytes = b->n_bytes * (bits == 64 ? 2 : 1),
                 .maxima_bytes = network_parameters(b->network)->n_items * sizeof(uint32_t)};
    Error err = ERROR_INIT;
    if (device_allocate(b->device, bowl.n_bytes, &bowl.to, &err) < 0 ||
        device_allocate(b->device, bowl.maxima_bytes, (void **)&bowl.maxima, &err) < 0)
        fail_msg("%s", err.text);
    bowl.sink = (GradientSink){
        .kind = kind, .bits = bits, .to = bowl.to, .exponents = exponents, .maxima = bowl.maxima};
    return bowl;
}

static void bowl_close(const Bench *b, Bowl *bowl)
{
    device_release(b->device, bowl->to);
    device_release(b->device, bowl->maxima);
}

static void assert_same_bytes(const Bench *b, const void *x, const void *y, size_t n_bytes)
{
    void *found = malloc(n_bytes), *wanted = malloc(n_bytes);
    assert_true(found && wanted);
    device_download(b->device, found, x, n_bytes);
    device_download(b->device, wanted, y, n_bytes);
    assert_memory_equal(found, wanted, n_bytes);
    free(found);
    free(wanted);
}

/* Computes two grains in two ways: the tape adds their gradients to the sink of `found`, and state_count() adds their
 * plain gradients to the sink of `wanted`. Both sinks must then have the same bytes. */
static void check_sink(Bench *b, StatePlan *plan, SinkKind kind, int bits, const int32_t *exponents)
{
    Bowl found = bowl_open(b, kind, bits, exponents), wanted = bowl_open(b, kind, bits, exponents);
    float latents[LATENTS], text[TEXT];
    Error err = ERROR_INIT;
    for (int i = 0; i < 2; i++) {
        const OrderSample sample = {.stream = 0, .sample = i};
        const LoaderGrain grain = grain_of(i, latents, text);
        assert_int_equal(dataset_read(b->dataset, sample, latents, text, NULL, &err), 0);
        submit(b, &grain, b->gradients, b->loss);
        state_count(plan, b->gradients, 0, network_parameters(b->network)->n_elements,
                    &wanted.sink);
        assert_int_equal(grain_work_submit(b->work, &grain, &found.sink, b->loss, WAIT_USEC, &err),
                         0);
    }
    assert_same_bytes(b, found.to, wanted.to, found.n_bytes);
    assert_same_bytes(b, found.maxima, wanted.maxima, found.maxima_bytes);
    bowl_close(b, &found);
    bowl_close(b, &wanted);
}

/* The tensors of joined layers have their own exponents and maxima. */
static void every_sink_takes_what_plain_gradients_are(void **unused)
{
    (void)unused;
    Bench b = bench_open("");
    const ParameterList *list = network_parameters(b.network);
    const StatePlanShape whole = {.n_ranks = 1, .n_shards = 1};
    const size_t bytes = list->n_items * sizeof(int32_t);
    int32_t *exponents = malloc(bytes);
    void *on_device;
    StatePlan *plan;
    Error err = ERROR_INIT;
    assert_non_null(exponents);
    for (size_t t = 0; t < list->n_items; t++)
        exponents[t] = 18 + (int32_t)(t * 5 % 11);
    assert_int_equal(device_allocate(b.device, bytes, &on_device, &err), 0);
    device_upload(b.device, on_device, exponents, bytes);
    assert_int_equal(parameter_list_plan(list, b.device, whole, &plan, &err), 0);
    check_sink(&b, plan, SINK_MAXIMA, 0, NULL);
    check_sink(&b, plan, SINK_COUNT, 32, on_device);
    check_sink(&b, plan, SINK_COUNT, 64, on_device);
    check_sink(&b, plan, SINK_ADD, 0, NULL);
    plan = state_plan_free(plan);
    device_release(b.device, on_device);
    free(exponents);
    bench_close(&b);
}

/* ---- a planted bug ---- */

/* if true, the wrapper below gives a sink a wrong tensor index */
static bool planted;

void __real_gradient_take(Device *device, const GradientForm *form, const void *gradient,
                          const GradientPlace *place, const GradientSink *sink);
void __wrap_gradient_take(Device *device, const GradientForm *form, const void *gradient,
                          const GradientPlace *place, const GradientSink *sink);

/* Wraps the calls of the tape to the kernels (ld --wrap). */
void __wrap_gradient_take(Device *device, const GradientForm *form, const void *gradient,
                          const GradientPlace *place, const GradientSink *sink)
{
    GradientPlace wrong = *place;
    wrong.tensor -= planted && place->tensor == 5;
    __real_gradient_take(device, form, gradient, &wrong, sink);
}

static void a_canned_grain_that_differs_the_second_time_is_an_error(void **unused)
{
    (void)unused;
    Bench b = bench_open("");
    Error err = ERROR_INIT;
    Hash hash;
    assert_int_equal(canned_grain(b.work, &hash, &err), 0);
    planted = true;
    assert_int_equal(canned_grain(b.work, &hash, &err), -EXDEV);
    assert_non_null(strstr(err.text, "the canned grain: "));
    assert_non_null(strstr(err.text, "the largest gradient has the bits"));
    planted = false;
    assert_int_equal(canned_grain(b.work, &hash, &err), 0);
    bench_close(&b);
}

/* Frees the work of a device that hangs. The shadow device aborts if memory that a lane uses is released. Runs in its
 * own process, which keeps all other memory until it ends. */
static void hang(bool canned)
{
    static const float latents[LATENTS], text[TEXT];
    Bench b = bench_open("");
    Error err = ERROR_INIT;
    const LoaderGrain grain = grain_of(0, latents, text);
    Hash hash;
    device_patience_most_usec = 2 * USEC_PER_SEC;
    if (setenv("SDTRAIN_FAULT", "shadow.hang=eio@100", 1) < 0 || fault_open(&err) < 0)
        _exit(1);
    if (!canned)
        submit(&b, &grain, b.gradients, b.loss);
    if ((canned ? canned_grain(b.work, &hash, &err)
                : grain_work_await(b.work, 0, DEVICE_TIMEOUT_USEC, &err)) != -ETIMEDOUT)
        _exit(2);
    (void)grain_work_free(b.work);
    _exit(0);
}

static void what_a_device_that_hangs_uses_is_kept(void **unused)
{
    (void)unused;
    if (!getenv("SDTRAIN_TEST_DEVICE"))
        skip(); /* a CPU does not hang */
    for (int canned = 0; canned <= 1; canned++) {
        int status;
        fflush(NULL);
        const pid_t pid = fork();
        if (pid == 0)
            hang(canned);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_are_pinned),
        cmocka_unit_test(noise_is_that_of_its_position),
        cmocka_unit_test(timesteps_are_uniform),
        cmocka_unit_test(captions_drop_as_often_as_told),
        cmocka_unit_test(gradients_are_a_function_of_the_sample),
        cmocka_unit_test(samples_of_a_grain_are_apart),
        cmocka_unit_test(grains_under_way_do_not_disturb_each_other),
        cmocka_unit_test(every_sink_takes_what_plain_gradients_are),
        cmocka_unit_test(canned_grains_tell_machines_apart),
        cmocka_unit_test(a_canned_grain_that_differs_the_second_time_is_an_error),
        cmocka_unit_test(what_a_device_that_hangs_uses_is_kept),
    };
    testing_job_open(&files);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    testing_job_close(&files);
    return failed;
}
