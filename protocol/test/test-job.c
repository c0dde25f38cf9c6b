/* SPDX-License-Identifier: Apache-2.0 */
/* test-job.c - defaults, every refusal with its text, and what changes a job's identity. */
#include "base/test/testing.h"
#include "protocol/exit-code.h"
#include "protocol/job.h"

#include <string.h>

static const char *const good =
    "{\"name\": \"demo\", \"world\": {\"min\": 1, \"max\": 3}, \"model\": {\"config\": "
    "\"unet.json\"},"
    " \"data\": {\"streams\": [{\"uri\": \"/data\"}], \"empty_text\": \"/data/empty.npy\"},"
    " \"train\": {\"global_batch\": 32, \"grain\": 4, \"steps\": 100},"
    " \"checkpoint\": {\"uri\": \"/ckpt\"}}";

/* Returns the text `good` with the first occurrence of `from` replaced by `to`; the caller frees it. */
static char *with(const char *from, const char *to)
{
    const char *at = strstr(good, from);
    assert_non_null(at);
    char *text;
    assert_true(asprintf(&text, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from)) > 0);
    return text;
}

static Job *parse(const char *text)
{
    Error err = ERROR_INIT;
    Job *job = NULL;
    int r = job_parse("job.json", text, strlen(text), &job, &err);
    if (r < 0)
        fail_msg("%s", err.text);
    return job;
}

static void defaults_are_the_recipe(void **state)
{
    (void)state;
    _cleanup_(job_freep) Job *job = parse(good);
    assert_string_equal(job->name, "demo");
    assert_int_equal(job->train.n_grains, 8);
    assert_int_equal(job->train.seed, 17);
    assert_true(job->train.optimizer.lr == 1e-4 && job->train.optimizer.beta2 == 0.999);
    assert_int_equal(job->train.optimizer.warmup_steps, 10000);
    assert_false(job->train.ema.enabled);
    assert_true(job->train.caption_drop == 0.1);
    assert_true(job->train.noise_schedule.beta_end == 0.012);
    assert_int_equal(job->train.noise_schedule.steps, 1000);
    assert_int_equal(job->train.device, JOB_DEVICE_CPU);
    assert_int_equal(job->train.precision, PRECISION_FP32);
    assert_int_equal(job->train.zero_stage, 1);
    assert_string_equal(job->data.latents, "latents");
    assert_string_equal(job->data.text, "text");
    assert_false(job->data.names_latents || job->data.names_text);
    assert_int_equal(job->checkpoint.keep_last, 3);
    assert_false(job->checkpoint.blocking);
    assert_null(job->checkpoint.local_dir);
    assert_true(job->checkpoint.local_bytes == INT64_C(64) << 30);
    assert_int_equal(job->recovery.max_failures_at_same_step, 3);
    assert_int_equal(job->recovery.store_patience_sec, 3600);
    assert_int_equal(job->model.init, INIT_RANDOM);
}

static void bad_files_are_refused_by_key_and_value(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *error;
    } cases[] = {
        {"\"grain\": 4", "\"grain\": 5",
         "job.json: train.grain: 5 does not divide train.global_batch 32"},
        {"\"min\": 1", "\"min\": 4", "job.json: world.min: 4 is greater than world.max 3"},
        {"\"max\": 3", "\"max\": 9",
         "job.json: world.max: 9 ranks are more than the 8 grains of a step (global_batch 32 / "
         "grain 4)"},
        {"\"steps\": 100", "\"steps\": \"many\"",
         "job.json: train.steps: expected an integer, got \"many\""},
        {"\"steps\": 100", "\"steps\": 0", "job.json: train.steps: 0 is not in 1..1099511627776"},
        {"\"steps\": 100", "\"steps\": 1, \"lr\": 1", "job.json: train.lr: unknown key"},
        {"\"uri\": \"/ckpt\"", "\"uri\": \"/ckpt\", \"local_dir\": \"nvme\"",
         "job.json: checkpoint.local_dir: \"nvme\" is not an absolute path"},
        {"\"uri\": \"/ckpt\"", "\"uri\": \"/ckpt\", \"local_bytes\": 5",
         "job.json: checkpoint.local_bytes: 5 is less than 1048576"},
        {"\"uri\": \"/ckpt\"", "\"uri\": \"/ckpt\", \"blocking\": 1",
         "job.json: checkpoint.blocking: expected true or false, got 1"},
        {"\"demo\"", "\"De mo\"",
         "job.json: name: \"De mo\" must be lower-case letters, digits and inner '-'"},
        {"[{\"uri\": \"/data\"}]", "[]", "job.json: data.streams: no stream is given"},
        {"{\"uri\": \"/data\"}", "{\"uri\": \"/data\", \"weight\": 1}",
         "job.json: data.streams[0].weight: unknown key"},
        {"\"steps\": 100", "\"steps\": 1, \"optimizer\": {\"betas\": [0.9, 1.5]}",
         "job.json: train.optimizer.betas: expected two numbers in [0, 1)"},
        {"\"steps\": 100", "\"steps\": 1, \"precision\": \"bf16\"",
         "job.json: train.precision: bf16 needs train.device \"cuda\"; only fp32 is possible on "
         "CPUs"},
        {"\"steps\": 100", "\"steps\": 1, \"device\": \"cpu\", \"precision\": \"bf16\"",
         "job.json: train.precision: bf16 needs train.device \"cuda\"; only fp32 is possible on "
         "CPUs"},
        {"\"steps\": 100", "\"steps\": 1, \"device\": \"cuda\", \"precision\": \"fp16\"",
         "job.json: train.precision: fp16 needs a loss scale, which is not there yet; fp32 and "
         "bf16 "
         "need none"},
        {"\"steps\": 100", "\"steps\": 1, \"precision\": \"fp16\"",
         "job.json: train.precision: fp16 needs a loss scale, which is not there yet; fp32 and "
         "bf16 "
         "need none"},
        {"\"steps\": 100", "\"steps\": 1, \"device\": \"cuda\", \"reduction\": \"float\"",
         "job.json: train.reduction: \"float\" is for CPUs only; train.device \"cuda\" needs "
         "exact "
         "or exact64"},
        {"\"steps\": 100", "\"steps\": 1, \"device\": \"gpu\"",
         "job.json: train.device: gpu is not one of cpu, cuda"},
        {"\"steps\": 100", "\"steps\": 1, \"plans\": \"/p.json\"",
         "job.json: train.plans: only what computes in bf16 (train.precision) has plans"},
        {"\"steps\": 100", "\"steps\": 1, \"device\": \"cuda\", \"plans\": \"/p.json\"",
         "job.json: train.plans: only what computes in bf16 (train.precision) has plans"},
        {"\"steps\": 100",
         "\"steps\": 1, \"device\": \"cuda\", \"precision\": \"bf16\", \"plans\": 1",
         "job.json: train.plans: expected a string, got 1"},
        {"\"steps\": 100", "\"steps\": 1, \"plans\": \"auto\"",
         "job.json: train.plans: only what computes in bf16 (train.precision) has plans"},
        {"\"steps\": 100",
         "\"steps\": 1, \"device\": \"cuda\", \"precision\": \"bf16\", \"plan_sec\": 0",
         "job.json: train.plan_sec: 0 is not in 1..3600"},
        {"\"steps\": 100", "\"steps\": 1, \"device\": \"CUDA\"",
         "job.json: train.device: CUDA is not one of cpu, cuda"},
        {"\"steps\": 100", "\"steps\": 1, \"device\": \"\"",
         "job.json: train.device:  is not one of cpu, cuda"},
        {"\"steps\": 100", "\"steps\": 1, \"device\": 7",
         "job.json: train.device: expected a string, got 7"},
        {"\"steps\": 100", "\"steps\": 1, \"device\": {\"kind\": \"cuda\"}",
         "job.json: train.device: expected a string, got {\"kind\":\"cuda\"}"},
        {"\"steps\": 100", "\"steps\": 1, \"reduction\": \"fast\"",
         "job.json: train.reduction: fast is not one of exact, exact64, float"},
        {"\"checkpoint\": {\"uri\": \"/ckpt\"}", "\"checkpoint\": {}",
         "job.json: checkpoint.uri: missing"},
        {"\"steps\": 100", "\"steps\": 1, \"noise_schedule\": {\"kind\": \"cosine\"}",
         "job.json: train.noise_schedule.kind: cosine is not one of scaled_linear"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        _cleanup_free_ char *text = with(cases[i].from, cases[i].to);
        Error err = ERROR_INIT;
        Job *job = NULL;
        assert_int_equal(job_parse("job.json", text, strlen(text), &job, &err), -EINVAL);
        assert_null(job);
        if (strstr(cases[i].error, "unknown key")) /* a suggestion follows, which test-base tests */
            err.text[strlen(cases[i].error)] = '\0';
        assert_string_equal(err.text, cases[i].error);
    }
}

static bool same_identity(const char *from, const char *to)
{
    _cleanup_free_ char *text = with(from, to);
    _cleanup_(job_freep) Job *a = parse(good);
    _cleanup_(job_freep) Job *b = parse(text);
    return hash_equal(a->identity, b->identity);
}

static void identity_covers_what_changes_bits_and_nothing_else(void **state)
{
    (void)state;
    assert_true(same_identity("\"demo\"", "\"other\""));
    assert_true(same_identity("\"min\": 1", "\"min\": 2"));
    assert_true(same_identity("\"steps\": 100", "\"steps\": 200"));
    assert_true(same_identity("\"steps\": 100", "\"steps\": 100, \"zero_stage\": 2"));
    assert_true(same_identity("\"/ckpt\"", "\"/elsewhere\""));
    assert_true(same_identity("\"/ckpt\"", "\"/ckpt\", \"local_dir\": \"/nvme\""));
    assert_true(same_identity("\"/ckpt\"", "\"/ckpt\", \"blocking\": true"));
    assert_true(same_identity("\"steps\": 100", "\"steps\": 100, \"seed\": 17"));
    assert_false(same_identity("\"steps\": 100", "\"steps\": 100, \"seed\": 18"));
    assert_false(same_identity("\"grain\": 4", "\"grain\": 8"));
    assert_true(same_identity("\"steps\": 100", "\"steps\": 100, \"threads\": 2"));
    assert_false(same_identity("\"steps\": 100",
                               "\"steps\": 100, \"optimizer\": {\"lr\": 0.00010000000001}"));
    assert_false(same_identity("\"steps\": 100", "\"steps\": 100, \"ema\": {}"));
    assert_true(same_identity("\"steps\": 100",
                              "\"steps\": 100, \"device\": \"cpu\", \"precision\": \"fp32\""));
    assert_true(
        same_identity("\"steps\": 100", "\"steps\": 100, \"device\": null")); /* null is unset */
    assert_false(same_identity("\"steps\": 100", "\"steps\": 100, \"device\": \"cuda\""));
}

/* The identity of a job without newer keys never changes: checkpoints store it, and else the job could not resume. */
static void identity_of_a_job_without_newer_keys_stays(void **state)
{
    (void)state;
    char text[HASH_TEXT_BYTES];
    _cleanup_(job_freep) Job *job = parse(good);
    assert_string_equal(hash_format(job->identity, text), "5f56ea44c2c70620abe47235ebd16ed2");
}

/* A job file may omit names that encoder.json gives. Its identity equals that of a job file with these names. */
static void names_of_the_data_may_be_left_out(void **state)
{
    (void)state;
    _cleanup_free_ char *bare = with(", \"empty_text\": \"/data/empty.npy\"", "");
    _cleanup_free_ char *named =
        with("\"empty_text\"", "\"latents\": \"a\", \"text\": \"b\", \"empty_text\"");
    _cleanup_(job_freep) Job *a = parse(bare);
    _cleanup_(job_freep) Job *b = parse(named);
    assert_null(a->data.empty_text_uri);
    assert_true(b->data.names_latents && b->data.names_text);
    assert_false(hash_equal(a->identity, b->identity));
    assert_true(hash_equal(job_identity(a, "a", "b"), b->identity));
    assert_true(hash_equal(job_identity(b, "latents", "text"), a->identity));
}

static void gpu_jobs_choose_a_precision(void **state)
{
    (void)state;
    _cleanup_free_ char *plain = with("\"steps\": 100", "\"steps\": 100, \"device\": \"cuda\"");
    _cleanup_free_ char *half =
        with("\"steps\": 100", "\"steps\": 100, \"device\": \"cuda\", \"precision\": \"bf16\", "
                               "\"reduction\": \"exact64\"");
    _cleanup_free_ char *wide =
        with("\"steps\": 100", "\"steps\": 100, \"device\": \"cuda\", \"reduction\": \"exact64\"");
    _cleanup_(job_freep) Job *a = parse(plain);
    _cleanup_(job_freep) Job *b = parse(half);
    _cleanup_(job_freep) Job *c = parse(wide);
    assert_int_equal(a->train.device, JOB_DEVICE_CUDA);
    assert_int_equal(a->train.precision, PRECISION_FP32);
    assert_int_equal(b->train.precision, PRECISION_BF16);
    assert_int_equal(b->train.reduction, REDUCTION_EXACT64);
    assert_false(hash_equal(b->identity, c->identity)); /* only the precision differs */

    /* The URI of a plan set does not change the identity; the plans themselves are part of the numerics. */
    _cleanup_free_ char *planned =
        with("\"steps\": 100", "\"steps\": 100, \"device\": \"cuda\", \"precision\": \"bf16\", "
                               "\"reduction\": \"exact64\", \"plans\": \"s3://b/p.json\"");
    _cleanup_(job_freep) Job *d = parse(planned);
    assert_null(b->train.plans_uri);
    assert_int_equal(d->train.plans, JOB_PLANS_SET);
    assert_string_equal(d->train.plans_uri, "s3://b/p.json");
    assert_true(hash_equal(d->identity, b->identity));

    static const struct {
        const char *text;
        JobPlans plans;
        const char *uri;
        int sec;
    } words[] = {
        {"", JOB_PLANS_AUTO, NULL, 60},
        {", \"plans\": \"auto\", \"plan_sec\": 7", JOB_PLANS_AUTO, NULL, 7},
        {", \"plans\": \"installed\"", JOB_PLANS_INSTALLED, NULL, 60},
        {", \"plans\": \"./auto\"", JOB_PLANS_SET, "./auto", 60},
    };
    for (size_t i = 0; i < ELEMENTSOF(words); i++) {
        char more[160];
        (void)snprintf(more, sizeof(more),
                       "\"steps\": 100, \"device\": \"cuda\", \"precision\": \"bf16\", "
                       "\"reduction\": \"exact64\"%s",
                       words[i].text);
        _cleanup_free_ char *text = with("\"steps\": 100", more);
        _cleanup_(job_freep) Job *job = parse(text);
        assert_int_equal(job->train.plans, words[i].plans);
        assert_int_equal(job->train.plan_sec, words[i].sec);
        if (words[i].uri)
            assert_string_equal(job->train.plans_uri, words[i].uri);
        else
            assert_null(job->train.plans_uri);
        assert_true(hash_equal(job->identity, b->identity));
    }
    assert_int_equal(a->train.plans, JOB_PLANS_INSTALLED); /* fp32 has no plans */
}

static void model_init_takes_its_three_forms(void **state)
{
    (void)state;
    _cleanup_free_ char *file =
        with("\"unet.json\"", "\"unet.json\", \"init\": \"/w.safetensors\"");
    _cleanup_(job_freep) Job *a = parse(file);
    assert_int_equal(a->model.init, INIT_SAFETENSORS);
    assert_string_equal(a->model.init_uri, "/w.safetensors");
    _cleanup_free_ char *run = with(
        "\"unet.json\"",
        "\"unet.json\", \"init\": {\"checkpoint\": \"/c/manifest.json\", \"optimizer\": true}");
    _cleanup_(job_freep) Job *b = parse(run);
    assert_int_equal(b->model.init, INIT_CHECKPOINT);
    assert_true(b->model.init_optimizer);
}

static void exit_codes_have_classes(void **state)
{
    (void)state;
    assert_string_equal(exit_code_class(81), "peer-lost");
    assert_string_equal(exit_code_class(-9), "signal");
    assert_string_equal(exit_code_class(3), "exit");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_the_recipe),
        cmocka_unit_test(bad_files_are_refused_by_key_and_value),
        cmocka_unit_test(identity_covers_what_changes_bits_and_nothing_else),
        cmocka_unit_test(identity_of_a_job_without_newer_keys_stays),
        cmocka_unit_test(names_of_the_data_may_be_left_out),
        cmocka_unit_test(gpu_jobs_choose_a_precision),
        cmocka_unit_test(model_init_takes_its_three_forms),
        cmocka_unit_test(exit_codes_have_classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
