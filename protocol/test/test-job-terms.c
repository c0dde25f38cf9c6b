/* SPDX-License-Identifier: Apache-2.0 */
/* test-job-terms.c - the text beside an identity has exactly the facts that the identity covers; the differences of two
 * texts are reported with the job file's keys and words. */
#include "protocol/job-terms.h"

#include "base/json/json.h"
#include "base/test/testing.h"

#include <string.h>

#define CONFIG "{\"layers\": 2}"
static const float empty[] = {1, 2, 3};

#define JOB_TEXT(MODEL, DATA, TRAIN)                                                               \
    "{\"name\": \"terms\", \"world\": {\"min\": 1, \"max\": 4}, \"model\": {\"config\": "          \
    "\"/u\"" MODEL                                                                                 \
    "}, \"data\": {\"streams\": [{\"uri\": \"/d\"}, {\"uri\": \"/e\", \"proportion\": 3}], "       \
    "\"empty_text\": \"/d/empty.npy\"" DATA "}, \"train\": {\"global_batch\": 4, \"grain\": 1, "   \
    "\"steps\": 40" TRAIN "}, \"checkpoint\": {\"uri\": \"/c\"}}"

static Job *job_of(const char *text)
{
    Error err = ERROR_INIT;
    Job *job;
    if (job_parse("job", text, strlen(text), &job, &err) < 0)
        fail_msg("%s", err.text);
    return job;
}

static JobNamed named_of(const Job *job)
{
    return (JobNamed){.latents = job->data.latents,
                      .text = job->data.text,
                      .config = CONFIG,
                      .empty = empty,
                      .empty_bytes = sizeof(empty)};
}

static char *text_of(const Job *job)
{
    const JobNamed named = named_of(job);
    char *text = job_terms_format(job, &named);
    assert_non_null(text);
    return text;
}

/* Each row changes a key of the file and has the reported difference; NULL: the identity does not change. */
static const struct {
    const char *job, *says;
} rows[] = {
    {JOB_TEXT(", \"init\": \"/w.safetensors\"", "", ""),
     "model.init was \"random\", is \"safetensors\""},
    {JOB_TEXT(", \"init\": {\"checkpoint\": \"/m\", \"optimizer\": true}", "", ""),
     "model.init was \"random\", is \"checkpoint\"; model.init.optimizer was false, is true"},
    {JOB_TEXT("", ", \"latents\": \"l2\"", ""), "data.latents was \"latents\", is \"l2\""},
    {JOB_TEXT("", ", \"text\": \"t2\"", ""), "data.text was \"text\", is \"t2\""},
    {JOB_TEXT("", ", \"latent_scale\": 0.5", ""), "data.latent_scale was 1.0, is 0.5"},
    {JOB_TEXT("", ", \"shuffle_window\": 9", ""), "data.shuffle_window was 262144, is 9"},
    {JOB_TEXT("", "", ", \"seed\": 18"), "train.seed was 17, is 18"},
    {JOB_TEXT("", "", ", \"device\": \"cuda\""), "train.device was \"cpu\", is \"cuda\""},
    {JOB_TEXT("", "", ", \"device\": \"cuda\", \"precision\": \"bf16\""),
     "train.device was \"cpu\", is \"cuda\"; train.precision was \"fp32\", is \"bf16\""},
    {JOB_TEXT("", "", ", \"reduction\": \"exact64\""),
     "train.reduction was \"exact\", is \"exact64\""},
    {JOB_TEXT("", "", ", \"prediction\": \"v_prediction\""),
     "train.prediction was \"epsilon\", is \"v_prediction\""},
    {JOB_TEXT("", "", ", \"caption_drop\": 0.25"), "train.caption_drop was 0.1, is 0.25"},
    {JOB_TEXT("", "", ", \"noise_schedule\": {\"beta_start\": 0.001}"),
     "train.noise_schedule.beta_start was 0.00085, is 0.001"},
    {JOB_TEXT("", "", ", \"noise_schedule\": {\"beta_end\": 0.5}"),
     "train.noise_schedule.beta_end was 0.012, is 0.5"},
    {JOB_TEXT("", "", ", \"noise_schedule\": {\"steps\": 9}"),
     "train.noise_schedule.steps was 1000, is 9"},
    {JOB_TEXT("", "", ", \"optimizer\": {\"lr\": 0.5}"), "train.optimizer.lr was 0.0001, is 0.5"},
    {JOB_TEXT("", "", ", \"optimizer\": {\"betas\": [0.5, 0.25]}"),
     "train.optimizer.betas[0] was 0.9, is 0.5; train.optimizer.betas[1] was 0.999, is 0.25"},
    {JOB_TEXT("", "", ", \"optimizer\": {\"eps\": 0.5}"), "train.optimizer.eps was 1e-8, is 0.5"},
    {JOB_TEXT("", "", ", \"optimizer\": {\"weight_decay\": 0}"),
     "train.optimizer.weight_decay was 0.01, is 0.0"},
    {JOB_TEXT("", "", ", \"optimizer\": {\"warmup_steps\": 3}"),
     "train.optimizer.warmup_steps was 10000, is 3"},
    {JOB_TEXT("", "", ", \"optimizer\": {\"clip_norm\": 0}"),
     "train.optimizer.clip_norm was 1.0, is 0.0"},
    {JOB_TEXT("", "", ", \"ema\": {\"start_step\": 2}"),
     "train.ema was false, is true; train.ema.decay was 0.0, is 0.9999; train.ema.start_step was "
     "0, is 2"},
    {JOB_TEXT("", "", ", \"zero_stage\": 2, \"threads\": 3"), NULL},
};

static void what_differs_is_told_by_the_keys_of_the_job_file(void **state)
{
    (void)state;
    _cleanup_(job_freep) Job *plain = job_of(JOB_TEXT("", "", ""));
    _cleanup_free_ char *was = text_of(plain);
    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        char differences[300];
        _cleanup_(job_freep) Job *job = job_of(rows[i].job);
        _cleanup_free_ char *is = text_of(job);
        /* The returned number is not needed. */
        (void)job_terms_diff(was, is, differences, sizeof(differences));
        assert_string_equal(differences, rows[i].says ?: "");
        assert_int_equal(hash_equal(plain->identity, job->identity), !rows[i].says);
    }
}

/* All terms are shown under keys of the job file, not under the canonical text's own names. */
static void each_term_has_a_key_of_the_job_file(void **state)
{
    (void)state;
    _cleanup_(job_freep) Job *job = job_of(JOB_TEXT("", "", ", \"device\": \"cuda\", \"ema\": {}"));
    _cleanup_free_ char *text = text_of(job);
    _cleanup_json_ json_t *terms = job_terms_parse(text);
    const char *key;
    json_t *value;
    json_object_foreach (terms, key, value)
        if ((strncmp(key, "model.", 6) != 0 && strncmp(key, "data.", 5) != 0 &&
             strncmp(key, "train.", 6) != 0) ||
            strstr(key, ".noise.") || strcmp(key, "model.optimizer") == 0)
            fail_msg("%s is not a key of a job file", key);
    assert_int_equal(json_object_size(terms), 31);
}

/* Without the two hashes of named files, the text is exactly what the job file's identity hashes. */
static void the_text_is_what_was_hashed(void **state)
{
    (void)state;
    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        char hash[HASH_TEXT_BYTES];
        _cleanup_(job_freep) Job *job = job_of(rows[i].job);
        _cleanup_free_ char *text = text_of(job);
        _cleanup_json_ json_t *json = json_loads(text, 0, NULL);
        json_t *model = json_object_get(json, "model"), *data = json_object_get(json, "data");
        const char *config = json_string_value(json_object_get(model, "config"));
        assert_string_equal(config, hash_format(hash_bytes(CONFIG, strlen(CONFIG)), hash));
        assert_string_equal(json_string_value(json_object_get(data, "empty_text")),
                            hash_format(hash_bytes(empty, sizeof(empty)), hash));
        assert_int_equal(json_object_del(model, "config"), 0);
        assert_int_equal(json_object_del(data, "empty_text"), 0);
        _cleanup_free_ char *rest =
            json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
        assert_true(hash_equal(hash_bytes(rest, strlen(rest)), job->identity));
    }
}

/* The identity that checkpoints store is computed as in versions before texts of terms existed. */
static void the_identity_is_of_job_config_and_empty_caption(void **state)
{
    (void)state;
    enum { N = sizeof(CONFIG) - 1 };
    _cleanup_(job_freep) Job *job = job_of(JOB_TEXT("", "", ""));
    JobNamed named = named_of(job);
    char bytes[sizeof(Hash) + N + sizeof(empty)];
    memcpy(bytes, &job->identity, sizeof(Hash));
    memcpy(bytes + sizeof(Hash), CONFIG, N);
    memcpy(bytes + sizeof(Hash) + N, empty, sizeof(empty));
    Hash found;
    assert_int_equal(job_terms_identity(job, &named, &found), 0);
    assert_true(hash_equal(found, hash_bytes(bytes, sizeof(bytes))));
    named.empty = NULL;
    assert_int_equal(job_terms_identity(job, &named, &found), 0);
    assert_true(hash_equal(found, hash_bytes(bytes, sizeof(Hash) + N)));
}

static void a_config_or_an_empty_caption_is_told_by_its_hash(void **state)
{
    (void)state;
    _cleanup_(job_freep) Job *job = job_of(JOB_TEXT("", "", ""));
    _cleanup_free_ char *was = text_of(job);
    char differences[300];
    JobNamed named = named_of(job);
    named.config = "{}";
    named.empty = NULL;
    _cleanup_free_ char *is = job_terms_format(job, &named);
    assert_int_equal(job_terms_diff(was, is, differences, sizeof(differences)), 2);
    assert_non_null(strstr(differences, "data.empty_text (hash) was \""));
    assert_non_null(strstr(differences, "is missing; model.config (hash) was \""));
    named.config = NULL;
    _cleanup_free_ char *unknown = job_terms_format(job, &named);
    assert_null(strstr(unknown, "config"));
}

static void of_damaged_and_older_ones_nothing_is_known(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "{", "[]", "1", "{\"a\":1,\"a\":2}"};
    _cleanup_(job_freep) Job *job = job_of(JOB_TEXT("", "", ""));
    _cleanup_free_ char *good = text_of(job);
    char differences[300];
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        assert_null(job_terms_parse(bad[i]));
        assert_int_equal(job_terms_diff(bad[i], good, differences, sizeof(differences)), 0);
        assert_string_equal(differences, "");
        assert_int_equal(job_terms_diff(good, bad[i], differences, sizeof(differences)), 0);
    }
    /* A number of a newer version, whose word is unknown, stays a number. */
    _cleanup_json_ json_t *newer =
        job_terms_parse("{\"train\":{\"precision\":7,\"device\":-1},\"more\":{\"x\":1}}");
    assert_int_equal(json_integer_value(json_object_get(newer, "train.precision")), 7);
    assert_int_equal(json_integer_value(json_object_get(newer, "train.device")), -1);
    assert_int_equal(json_integer_value(json_object_get(newer, "more.x")), 1);
}

static void a_text_without_bound_is_not_kept(void **state)
{
    (void)state;
    static char name[JOB_TERMS_MAX];
    _cleanup_(job_freep) Job *job = job_of(JOB_TEXT("", "", ""));
    JobNamed named = named_of(job);
    memset(name, 'x', sizeof(name) - 1);
    named.latents = name;
    assert_null(job_terms_format(job, &named));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_differs_is_told_by_the_keys_of_the_job_file),
        cmocka_unit_test(each_term_has_a_key_of_the_job_file),
        cmocka_unit_test(the_text_is_what_was_hashed),
        cmocka_unit_test(the_identity_is_of_job_config_and_empty_caption),
        cmocka_unit_test(a_config_or_an_empty_caption_is_told_by_its_hash),
        cmocka_unit_test(of_damaged_and_older_ones_nothing_is_known),
        cmocka_unit_test(a_text_without_bound_is_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
