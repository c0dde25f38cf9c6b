/* SPDX-License-Identifier: Apache-2.0 */
/* testing-job.c - see testing-job.h. */
#include "trainer/test/testing-job.h"

#include "base/file.h"
#include "base/number/exactmath.h"
#include "base/number/half.h"
#include "base/number/philox.h"
#include "base/test/testing.h"
#include "data/mds/mds-writer.h"
#include "data/mds/npy.h"

#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 24, LATENTS = 4 * 8 * 8, TOKENS = 7, DIM = 16 };

static const char config[] =
    "{\"_class_name\": \"UNet2DConditionModel\", \"sample_size\": 8, \"in_channels\": 4,"
    " \"out_channels\": 4, \"block_out_channels\": [8, 16],"
    " \"down_block_types\": [\"CrossAttnDownBlock2D\", \"DownBlock2D\"],"
    " \"up_block_types\": [\"UpBlock2D\", \"CrossAttnUpBlock2D\"], \"layers_per_block\": 1,"
    " \"attention_head_dim\": [1, 2], \"cross_attention_dim\": 16, \"norm_num_groups\": 4,"
    " \"use_linear_projection\": true}";

static void check(int r, const Error *err)
{
    if (r < 0)
        fail_msg("%s", err->text);
}

/* Fills in N(0, 1) as float16; key selects the array. */
static void fill(uint16_t *to, size_t n, uint64_t key)
{
    for (size_t i = 0; i < n; i += 4) {
        Philox block = philox4x32(4711, key, i / 4);
        float z[4];
        exact_normal_pair(block.word[0], block.word[1], z);
        exact_normal_pair(block.word[2], block.word[3], z + 2);
        for (size_t k = 0; k < 4 && i + k < n; k++)
            to[i + k] = half_from_float(z[k]);
    }
}

static void write_dataset(const char *folder)
{
    Error err = ERROR_INIT;
    MdsColumn columns[2];
    MdsSchema schema;
    Store *store = NULL;
    MdsWriter *writer = NULL;
    static const char *const hashes[] = {"xxh3_64"};
    const MdsWriterOptions options = {.hashes = hashes, .n_hashes = 1, .size_limit = 6000};
    check(mds_column_init("latents", "ndarray:float16:4,8,8", &columns[0], &err), &err);
    check(mds_column_init("text", "ndarray:float16:7,16", &columns[1], &err), &err);
    check(mds_schema_init(columns, 2, &schema, &err), &err);
    check(store_open(folder, &store, &err), &err);
    check(mds_writer_new(store, &schema, &options, &writer, &err), &err);
    for (uint64_t i = 0; i < SAMPLES; i++) {
        uint16_t latents[LATENTS], text[TOKENS * DIM];
        fill(latents, LATENTS, 2 * i);
        fill(text, TOKENS * DIM, 2 * i + 1);
        const MdsField fields[] = {{latents, sizeof(latents)}, {text, sizeof(text)}};
        check(mds_writer_add(writer, fields, &err), &err);
    }
    check(mds_writer_finish(writer, &err), &err);
    (void)mds_writer_free(writer);
    (void)store_free(store);
}

static void write_empty_text(const char *path)
{
    Error err = ERROR_INIT;
    uint16_t values[TOKENS * DIM];
    fill(values, TOKENS * DIM, 1000);
    const MdsArray array = {.number = MDS_FLOAT16,
                            .n_dims = 2,
                            .dims = {TOKENS, DIM},
                            .values = values,
                            .n_bytes = sizeof(values)};
    char *file = NULL;
    size_t n;
    assert_int_equal(npy_format(&array, &file, &n), 0);
    check(file_write(path, file, n, 0, &err), &err);
    free(file);
}

void testing_job_open(TestingJob *ret)
{
    Error err = ERROR_INIT;
    char path[128];
    (void)snprintf(ret->folder, sizeof(ret->folder), "/tmp/sdtrain-job-XXXXXX");
    assert_non_null(mkdtemp(ret->folder));
    (void)snprintf(path, sizeof(path), "%s/data", ret->folder);
    check(folder_make(path, &err), &err);
    write_dataset(path);
    (void)snprintf(path, sizeof(path), "%s/empty.npy", ret->folder);
    write_empty_text(path);
    (void)snprintf(path, sizeof(path), "%s/config.json", ret->folder);
    check(file_write(path, config, strlen(config), 0, &err), &err);
    ret->text = testing_job_text(ret, "checkpoints", "");
}

void testing_job_close(TestingJob *job)
{
    /* files that remain in /tmp are not a failure of the test */
    (void)folder_remove(job->folder, NULL);
    free(job->text);
}

char *testing_job_text(const TestingJob *job, const char *name, const char *train)
{
    return testing_job_text_of(job, name, train, 12, 100);
}

char *testing_job_text_of(const TestingJob *job, const char *name, const char *train, int steps,
                          int every)
{
    /* If a test runs on the shadow device, a job that does not choose a device runs there, too. */
    const char *device = getenv("SDTRAIN_TEST_DEVICE") && !strstr(train, "\"device\"")
                             ? ", \"device\": \"cuda\""
                             : "";
    char *text = NULL;
    const char *f = job->folder;
    int n = asprintf(
        &text,
        "{\"name\": \"testing\", \"world\": {\"min\": 1, \"max\": 4},"
        " \"model\": {\"config\": \"%s/config.json\"},"
        " \"data\": {\"streams\": [{\"uri\": \"%s/data\"}], \"empty_text\": \"%s/empty.npy\"},"
        " \"train\": {\"global_batch\": 4, \"grain\": 1, \"steps\": %d,"
        "  \"optimizer\": {\"lr\": 1e-3, \"warmup_steps\": 2}%s%s},"
        " \"checkpoint\": {\"uri\": \"%s/%s\", \"every_steps\": %d}}",
        f, f, f, steps, train, device, f, name, every);
    assert_true(n > 0);
    return text;
}

Job *testing_job_parse(const char *text)
{
    Error err = ERROR_INIT;
    Job *job = NULL;
    check(job_parse("test", text, strlen(text), &job, &err), &err);
    return job;
}
