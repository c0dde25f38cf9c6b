/* SPDX-License-Identifier: Apache-2.0 */
/* test-memory-plan.c - the plan counts the copy that a save makes, in each case in which a save makes a copy. */
#include "base/test/testing.h"
#include "data/dataset.h"
#include "store/store.h"
#include "trainer/plan/memory-plan.h"
#include "trainer/test/testing-job.h"

#include <string.h>

static TestingJob files;

static MemoryPlan plan_of(JobDevice device, bool blocking, bool ema, int zero_stage, int world_size)
{
    Error err = ERROR_INIT;
    UnetConfig config;
    MemoryPlan plan = {0};
    Dataset *dataset;
    Job *job = testing_job_parse(files.text);
    job->train.device = device;
    job->train.zero_stage = zero_stage;
    job->train.ema.enabled = ema;
    job->checkpoint.blocking = blocking;
    if (dataset_open(job, &dataset, &err) < 0 ||
        unet_config_read(job->model.config_uri, store_get_uri, &config, &err) < 0 ||
        memory_plan_worlds(job, &config, dataset_shape(dataset), NULL, &world_size, 1, &plan,
                           &err) < 0)
        fail_msg("%s", err.text);
    dataset = dataset_free(dataset);
    job = job_free(job);
    return plan;
}

static uint64_t copy_of(JobDevice device, bool blocking, bool ema, int zero_stage, int world_size)
{
    return plan_of(device, blocking, ema, zero_stage, world_size).bytes[MEMORY_SNAPSHOT];
}

/* A blocking save makes copies if the host cannot read device memory. */
static void a_save_copies_where_the_host_cannot_read(void **state)
{
    (void)state;
    for (int ema = 0; ema <= 1; ema++)
        for (int zero_stage = 0; zero_stage <= 2; zero_stage++)
            for (int world_size = 1; world_size <= 3; world_size++) {
                const uint64_t copied = copy_of(JOB_DEVICE_CPU, false, ema, zero_stage, world_size);
                assert_true(copied > copy_of(JOB_DEVICE_CPU, true, ema, zero_stage, world_size));
                for (int blocking = 0; blocking <= 1; blocking++)
                    assert_int_equal(copy_of(JOB_DEVICE_CUDA, blocking, ema, zero_stage,
                                             world_size),
                                     copied);
            }
}

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)

/* Each of three comms has 4 MiB or, if that is more, 4 KiB for each rank. */
static void peers_blocks_have_room(void **state)
{
    (void)state;
    static const struct {
        int world_size;
        uint64_t n_bytes;
    } cases[] = {
        {1, 0}, {2, 12 * MIB}, {1024, 12 * MIB}, {1025, 12 * MIB + 3 * 4096}, {16384, 192 * MIB}};
    for (size_t i = 0; i < ELEMENTSOF(cases); i++)
        assert_int_equal(
            plan_of(JOB_DEVICE_CPU, false, false, 0, cases[i].world_size).bytes[MEMORY_EXCHANGE],
            cases[i].n_bytes);
}

/* Returns the bytes for data and libraries of a rank whose stream is in a remote store. */
static uint64_t far_bytes(const StreamSize *size, bool compressed, const char *cache)
{
    Error err = ERROR_INIT;
    UnetConfig config;
    MemoryPlan plan;
    const int one = 1;
    const DatasetShape shape = {
        .channels = 4, .height = 8, .width = 8, .text_tokens = 7, .text_dim = 32};
    const MemoryData data = {.compressed = compressed, .n_samples = 100, .sizes = size};
    Job *job = testing_job_parse(files.text);
    free(job->data.streams[0].uri);
    job->data.streams[0].uri = strdup("s3://bucket/data");
    if (cache)
        job->data.cache_dir = strdup(cache);
    if (unet_config_read(job->model.config_uri, store_get_uri, &config, &err) < 0 ||
        memory_plan_worlds(job, &config, &shape, &data, &one, 1, &plan, &err) < 0)
        fail_msg("%s", err.text);
    job = job_free(job);
    return plan.bytes[MEMORY_DATA] + plan.bytes[MEMORY_LIBRARIES];
}

/* A plan never counts more data than the job's stream has. */
static void small_data_need_little(void **state)
{
    (void)state;
    const StreamSize tiny = {.n_samples = 100, .n_bytes = MIB}, large = {100, 2 * GIB}, none = {0};
    for (int compressed = 0; compressed <= 1; compressed++) {
        const uint64_t most = far_bytes(NULL, compressed, NULL);
        assert_in_range(most, GIB + 320 * MIB, GIB + 400 * MIB);
        assert_int_equal(far_bytes(&none, compressed, NULL), most);
        assert_int_equal(far_bytes(&large, compressed, NULL), most);
        assert_in_range(far_bytes(&tiny, compressed, NULL), 48 * MIB, 64 * MIB);
        assert_in_range(far_bytes(&tiny, compressed, "/tmp/cache"), 48 * MIB, 60 * MIB);
        assert_in_range(far_bytes(&large, compressed, "/tmp/cache"), 128 * MIB, 200 * MIB);
        /* The requested samples touch two passes, and the store's second tries need as much again. */
        const StreamSize twice = {.n_samples = 100, .n_bytes = 2 * MIB};
        assert_int_equal(far_bytes(&twice, compressed, "/tmp/cache") -
                             far_bytes(&tiny, compressed, "/tmp/cache"),
                         4 * MIB);
    }
    /* Each shard is in memory once, and once more while it arrives. */
    const StreamSize medium = {.n_samples = 1 << 20, .n_bytes = 100 * MIB};
    assert_in_range(far_bytes(&medium, true, NULL), (200 + 64 + 32 + 16 + 200) * MIB, 600 * MIB);
}

/* If there is too little memory, the error has the need of each use, and settings that a job may change. */
static void too_little_says_what_needs_less(void **state)
{
    (void)state;
    MemoryPlan plan = {.n_parameters = 7, .world_size = 2, .grain = 8, .workspace_bytes = 4 * GIB};
    Error err = ERROR_INIT;
    plan.bytes[MEMORY_WEIGHTS] = 5 * GIB;
    plan.bytes[MEMORY_EMA] = 3 * GIB;
    plan.bytes[MEMORY_ACTIVATIONS] = 20 * GIB;
    plan.bytes[MEMORY_SNAPSHOT] = 6 * GIB;
    assert_int_equal(memory_check(&plan, 34 * GIB, false, &err), 0);
    assert_int_equal(memory_check(&plan, 28 * GIB, true, &err), 0);
    assert_int_equal(memory_check(&plan, 33 * GIB, false, &err), -E2BIG);
    assert_string_equal(err.text,
                        "train.grain, model.config: one of 2 ranks needs at least 34.00 GiB for 7 "
                        "parameters: master weights 5.00, EMA 3.00, activations and workspace "
                        "20.00, copy that a save makes 6.00; this machine has 33.00 GiB, swap "
                        "included; train.grain 4 frees 8.00; no train.ema frees 3.00; 4.00 are "
                        "workspace");
    assert_int_equal(memory_check(&plan, 27 * GIB, true, &err), -E2BIG);
    assert_string_equal(err.text,
                        "train.grain, model.config: one of 2 ranks needs at least 28.00 GiB for 7 "
                        "parameters: master weights 5.00, EMA 3.00, activations and workspace "
                        "20.00; this GPU has 27.00 GiB; train.grain 4 frees 8.00; no train.ema "
                        "frees 3.00; 4.00 are workspace");

    plan.grain = 1;
    plan.bytes[MEMORY_EMA] = 0;
    (void)error_set(&err, -ENOMEM, "GPU X has no memory for 9 bytes: 1 of 2 are free");
    assert_int_equal(memory_short(&plan, true, -ENOMEM, &err), -ENOMEM);
    assert_string_equal(err.text, "GPU X has no memory for 9 bytes: 1 of 2 are free; one of 2 "
                                  "ranks needs 25.00 GiB in all; 4.00 are workspace");
    assert_int_equal(memory_short(&plan, true, -ENOMEM, NULL), -ENOMEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_save_copies_where_the_host_cannot_read),
                                       cmocka_unit_test(peers_blocks_have_room),
                                       cmocka_unit_test(too_little_says_what_needs_less),
                                       cmocka_unit_test(small_data_need_little)};
    testing_job_open(&files);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    testing_job_close(&files);
    return failed;
}
