/* SPDX-License-Identifier: Apache-2.0 */
/* test-grain-orders.c - grains that are submitted without a wait between them have the CPU's gradients and losses, in
 * each order of a device's lanes. A lane that overtakes another one would give a grain the samples of its
 * neighbours. */
#include "base/test/testing.h"
#include "kernels/test/shadow/testing-orders.h"
#include "store/store.h"
#include "trainer/session/grain.h"
#include "trainer/test/testing-job.h"

#include <string.h>

#define WAIT_USEC (60 * USEC_PER_SEC)
enum { LATENTS = 4 * 8 * 8, TEXT = 7 * 16, GRAINS = 5 };

static TestingJob files;

typedef struct Grains {
    uint64_t hashes[GRAINS]; /* hashes of the gradients and the loss of each grain */
} Grains;

typedef struct Bench {
    Device *device;
    Network *network;
    GrainWork *work;
    size_t n_bytes;              /* size of all weights, and of one grain's gradients */
    float *weights, *gradients;  /* device memory; gradients of all grains */
    double *losses;              /* device memory */
    float *host_weights, *found; /* host memory */
} Bench;

static void bench_open(const Job *job, const Dataset *dataset, Bench *b)
{
    Error err = ERROR_INIT;
    UnetConfig config;
    const DeviceOptions options = {.kind = DEVICE_CPU, .threads = 1, .type = DATA_F32};
    const NetworkShape shape = {
        .grain = 1, .height = 8, .width = 8, .text_tokens = 7, .backward = true};
    if (device_open(&options, &b->device, &err) < 0 ||
        unet_config_read(job->model.config_uri, store_get_uri, &config, &err) < 0 ||
        network_new(b->device, &config, &shape, &b->network, &err) < 0 ||
        grain_work_new(b->device, b->network, job, dataset_shape(dataset),
                       dataset_empty_text(dataset), &b->work, &err) < 0)
        fail_msg("%s", err.text);
    b->n_bytes = (size_t)network_parameters(b->network)->n_elements * sizeof(float);
    if (device_allocate(b->device, b->n_bytes, (void **)&b->weights, &err) < 0 ||
        device_allocate(b->device, GRAINS * b->n_bytes, (void **)&b->gradients, &err) < 0 ||
        device_allocate(b->device, GRAINS * sizeof(double), (void **)&b->losses, &err) < 0)
        fail_msg("%s", err.text);
    b->host_weights = malloc(b->n_bytes);
    b->found = malloc(b->n_bytes);
    assert_true(b->host_weights && b->found);
    parameters_initialise(network_parameters(b->network), job->train.seed, b->host_weights);
    device_upload(b->device, b->weights, b->host_weights, b->n_bytes);
    network_set_weights(b->network, b->weights);
}

static void bench_close(Bench *b)
{
    device_release(b->device, b->weights);
    device_release(b->device, b->gradients);
    device_release(b->device, b->losses);
    b->work = grain_work_free(b->work);
    b->network = network_free(b->network);
    b->device = device_free(b->device);
    free(b->host_weights);
    free(b->found);
}

/* Between the grains there are no waits except those of the library. */
static void compute(const Job *job, Dataset *dataset, Grains *ret)
{
    Bench b;
    Error err = ERROR_INIT;
    bench_open(job, dataset, &b);
    for (int i = 0; i < GRAINS; i++) {
        float latents[LATENTS], text[TEXT];
        const OrderSample sample = {.stream = 0, .sample = i};
        const LoaderGrain grain = {.first_position = i, .latents = latents, .text = text};
        const GradientSink plain = {.kind = SINK_PLAIN,
                                    .to = b.gradients + i * (b.n_bytes / sizeof(float))};
        assert_int_equal(dataset_read(dataset, sample, latents, text, NULL, &err), 0);
        if (grain_work_submit(b.work, &grain, &plain, &b.losses[i], WAIT_USEC, &err) < 0)
            fail_msg("%s", err.text);
        memset(latents, 0xa5, sizeof(latents));
        memset(text, 0xa5, sizeof(text));
    }
    assert_int_equal(grain_work_await(b.work, 0, WAIT_USEC, &err), 0);
    for (int i = 0; i < GRAINS; i++) {
        double loss;
        device_download(b.device, b.found, b.gradients + i * (b.n_bytes / sizeof(float)),
                        b.n_bytes);
        device_download(b.device, &loss, &b.losses[i], sizeof(loss));
        ret->hashes[i] = hash64_bytes(b.found, b.n_bytes, hash64_bytes(&loss, sizeof(loss), 0));
    }
    bench_close(&b);
}

static void each_order_of_lanes_gives_a_grain_its_samples(_unused_ void **state)
{
    Error err = ERROR_INIT;
    _cleanup_free_ char *text = testing_job_text(&files, "none", "");
    Job *job = testing_job_parse(text);
    Dataset *dataset;
    Grains wanted, found;
    if (dataset_open(job, &dataset, &err) < 0)
        fail_msg("%s", err.text);
    testing_orders_end();
    compute(job, dataset, &wanted);
    for (unsigned order = 0; order < TESTING_ORDERS; order++) {
        testing_orders_use(order);
        compute(job, dataset, &found);
        for (int i = 0; i < GRAINS; i++)
            if (found.hashes[i] != wanted.hashes[i])
                fail_msg("%s: grain %d", getenv("SDTRAIN_TEST_DEVICE"), i);
    }
    testing_orders_end();
    dataset = dataset_free(dataset);
    job = job_free(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_order_of_lanes_gives_a_grain_its_samples),
    };
    testing_job_open(&files);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    testing_job_close(&files);
    return failed;
}
