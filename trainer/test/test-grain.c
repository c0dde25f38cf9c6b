/* SPDX-License-Identifier: Apache-2.0 */
/* test-grain.c - the draws are those of (seed, purpose, position) alone; a grain's gradients depend
 * on its samples, their positions and the weights, and on nothing else. */
#include "trainer/grain.h"

#include "base/test/testing.h"
#include "store/store.h"
#include "trainer/test/testing-job.h"

#include <string.h>

enum { LATENTS = 4 * 8 * 8, TEXT = 7 * 16 };

static TestingJob files;

typedef struct Bench {
    Job *job;
    Dataset *dataset;
    Device *device;
    Network *network;
    GrainWork *work;
    float *weights, *gradients;
    size_t n_bytes; /* of either */
} Bench;

static Bench bench_open(const char *train)
{
    Bench b = {0};
    Error err = ERROR_INIT;
    UnetConfig config;
    const DeviceOptions options = {.kind = DEVICE_CPU, .threads = 1, .type = DATA_F32};
    const NetworkShape shape = {
        .grain = 1, .height = 8, .width = 8, .text_tokens = 7, .backward = true};
    _cleanup_free_ char *text = testing_job_text(&files, "none", train);
    b.job = testing_job_parse(text);
    if (dataset_open(b.job, &b.dataset, &err) < 0 || device_open(&options, &b.device, &err) < 0 ||
        unet_config_read(b.job->model.config_uri, store_get_uri, &config, &err) < 0 ||
        network_new(b.device, &config, &shape, &b.network, &err) < 0 ||
        grain_work_new(b.device, b.network, b.job, dataset_shape(b.dataset),
                       dataset_empty_text(b.dataset), &b.work, &err) < 0)
        fail_msg("%s", err.text);
    b.n_bytes = (size_t)network_parameters(b.network)->n_elements * sizeof(float);
    assert_int_equal(device_allocate(b.device, b.n_bytes, (void **)&b.weights, &err), 0);
    assert_int_equal(device_allocate(b.device, b.n_bytes, (void **)&b.gradients, &err), 0);
    parameters_initialise(network_parameters(b.network), b.job->train.seed, b.weights);
    network_set_weights(b.network, b.weights);
    return b;
}

static void bench_close(Bench *b)
{
    device_release(b->device, b->weights);
    device_release(b->device, b->gradients);
    (void)grain_work_free(b->work);
    (void)network_free(b->network);
    (void)device_free(b->device);
    (void)dataset_free(b->dataset);
    (void)job_free(b->job);
}

/* Of the loss and all gradients. */
static Hash compute(Bench *b, int64_t position, const float *latents, const float *text)
{
    Error err = ERROR_INIT;
    double loss;
    const LoaderGrain grain = {.first_position = position, .latents = latents, .text = text};
    if (grain_work_compute(b->work, &grain, b->gradients, &loss, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(loss > 0 && loss < 100);
    Hash hash = hash_bytes(b->gradients, b->n_bytes);
    hash.low ^= hash64_bytes(&loss, sizeof(loss), 0);
    return hash;
}

static void draws_are_pinned(void **unused)
{
    (void)unused;
    /* A change here changes every job's bits. */
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
    for (int i = 0; i < BINS; i++) /* five standard deviations */
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

    int64_t kept = 0, dropped = 0; /* positions */
    while (draw_caption_drop(b.job->train.seed, kept, 0.5))
        kept++;
    while (!draw_caption_drop(b.job->train.seed, dropped, 0.5))
        dropped++;
    const Hash one = compute(&b, kept, latents, text);
    assert_false(hash_equal(compute(&b, kept + 1, latents, text), one)); /* other draws */
    assert_false(hash_equal(compute(&b, kept, latents, other), one));
    assert_true(hash_equal(compute(&b, dropped, latents, other),
                           compute(&b, dropped, latents, text))); /* nobody sees the caption */
    latents[LATENTS - 1] += 1;
    assert_false(hash_equal(compute(&b, kept, latents, text), one));
    latents[LATENTS - 1] -= 1;
    (void)compute(&b, kept + 7, latents, other);
    assert_true(hash_equal(compute(&b, kept, latents, text), one)); /* whatever came before */

    Bench v = bench_open(", \"caption_drop\": 0.5, \"prediction\": \"v_prediction\"");
    assert_false(hash_equal(compute(&v, kept, latents, text), one));
    bench_close(&v);
    bench_close(&b);
}

static void canned_grains_tell_machines_apart(void **unused)
{
    (void)unused;
    Bench b = bench_open("");
    Error err = ERROR_INIT;
    const int64_t n = network_parameters(b.network)->n_elements;
    Hash one, again, other;
    assert_int_equal(canned_grain(b.work, b.gradients, n, &one, &err), 0);
    assert_int_equal(canned_grain(b.work, b.gradients, n, &again, &err), 0);
    assert_true(hash_equal(one, again));

    uint32_t bits; /* one wrong bit in one weight, as a machine that computes wrongly makes them */
    memcpy(&bits, &b.weights[n / 2], sizeof(bits));
    bits ^= 1;
    memcpy(&b.weights[n / 2], &bits, sizeof(bits));
    network_set_weights(b.network, b.weights);
    assert_int_equal(canned_grain(b.work, b.gradients, n, &other, &err), 0);
    assert_false(hash_equal(one, other));
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_are_pinned),
        cmocka_unit_test(timesteps_are_uniform),
        cmocka_unit_test(captions_drop_as_often_as_told),
        cmocka_unit_test(gradients_are_a_function_of_the_sample),
        cmocka_unit_test(canned_grains_tell_machines_apart),
    };
    testing_job_open(&files);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    testing_job_close(&files);
    return failed;
}
