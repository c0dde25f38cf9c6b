/* SPDX-License-Identifier: Apache-2.0 */
/* test-feed.c - each field of a submitted job reaches the core's facts: first all fields together, each with a value
 * that no other field has, then each key alone. */
#include "base/json/json.h"
#include "base/test/testing.h"
#include "cluster/keys.h"
#include "controller/feed/feed.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#define SUBMISSION "0123456789abcdef0123456789abcdef"

/* Keys of a job file that become facts; all values differ from each other and from the defaults. */
static const struct {
    const char *key;   /* section.key in the job file */
    const char *value; /* the key's value in the job file */
    size_t offset, size;
    int64_t fact;
} facts[] = {
#define FACT(k, v, member, number)                                                                 \
    {                                                                                              \
        k, v, offsetof(JobFacts, member), sizeof(((JobFacts *)NULL)->member), number               \
    }
    FACT("priority", "-7", priority, -7),
    FACT("world.min", "2", min, 2),
    FACT("world.max", "5", max, 5),
    FACT("train.device", "\"cuda\"", needs_gpu, true),
    FACT("train.steps", "8191", steps, 8191),
    FACT("train.stop_if_diverging", "true", stop_if_diverging, true),
    FACT("train.global_batch", "66", n_grains, 11), /* 11 grains of 6 */
    FACT("checkpoint.keep_last", "9", keep_last, 9),
    FACT("checkpoint.keep_every", "77", keep_every, 77),
    FACT("recovery.max_failures_at_same_step", "13", max_failures, 13),
    FACT("recovery.grow_interval_s", "101", grow_interval_usec, 101 * (int64_t)USEC_PER_SEC),
    FACT("recovery.store_patience_s", "3001", store_patience_usec, 3001 * (int64_t)USEC_PER_SEC),
};

/* Further keys that a job needs, and the value that each has if the case does not set it. */
static const char *const otherwise[] = {"world.min",    "1",       "world.max",          "4",
                                        "train.device", "\"cpu\"", "train.global_batch", "24",
                                        "train.grain",  "6",       "train.steps",        "10"};

static void set(json_t *file, const char *key, const char *value)
{
    char section[32] = "";
    const char *dot = strchr(key, '.');
    json_t *at = file;
    if (dot) {
        (void)snprintf(section, sizeof(section), "%.*s", (int)(dot - key), key);
        at = json_object_get(file, section);
        assert_non_null(at);
    }
    assert_int_equal(json_object_set_new(at, dot ? dot + 1 : key,
                                         json_loads(value, JSON_DECODE_ANY, NULL)),
                     0);
}

static json_t *usual_file(void)
{
    json_t *file = json_loads(
        "{\"name\":\"a\",\"kind\":\"train\",\"world\":{},"
        "\"model\":{\"config\":\"file:///m/config.json\",\"init\":\"random\"},"
        "\"data\":{\"streams\":[{\"uri\":\"file:///d/\"}],\"empty_text\":\"file:///d/e.npy\"},"
        "\"train\":{},\"recovery\":{},\"checkpoint\":{\"uri\":\"file:///c/\"}}",
        0, NULL);
    assert_non_null(file);
    for (size_t i = 0; i < ELEMENTSOF(otherwise); i += 2)
        set(file, otherwise[i], otherwise[i + 1]);
    return file;
}

/* Feeds the file as a submitted job; the event borrows from the feed. */
static const JobFacts *submit_program(Feed *feed, const json_t *file, Hash program)
{
    static Event event;
    char key[KEY_MAX];
    Error err = ERROR_INIT;
    SpecRecord spec = {.submitted_usec = 5, .submission = SUBMISSION, .program = program};
    (void)snprintf(spec.resume_uri, sizeof(spec.resume_uri), "file:///other/manifest.json");
    _cleanup_free_ char *text = json_dumps(file, JSON_COMPACT);
    spec.spec = text;
    _cleanup_free_ char *record = spec_record_encode(&spec, NULL);
    assert_int_equal(feed_event(feed, key_of("lab", KEY_SPECS, "a", key), record, strlen(record),
                                41, 43, &event, &err),
                     1);
    assert_int_equal(event.kind, EVENT_SPEC);
    assert_int_equal(event.health, RECORD_READABLE);
    assert_int_equal(event.created, 41);
    assert_int_equal(event.revision, 43);
    assert_string_equal(event.name, "a");
    return event.spec;
}

static const JobFacts *submit(Feed *feed, const json_t *file)
{
    return submit_program(feed, file, (Hash){0});
}

static int64_t fact_of(const JobFacts *of, size_t i)
{
    const char *at = (const char *)of + facts[i].offset;
    if (facts[i].size == sizeof(bool))
        return *(const bool *)at;
    if (facts[i].size == sizeof(int))
        return *(const int *)at;
    assert_int_equal(facts[i].size, sizeof(int64_t));
    return *(const int64_t *)at;
}

static void a_file_with_values_of_its_own_everywhere(_unused_ void **state)
{
    _cleanup_(feed_freep) Feed *feed = feed_new("lab");
    _cleanup_json_ json_t *file = usual_file();
    for (size_t i = 0; i < ELEMENTSOF(facts); i++)
        set(file, facts[i].key, facts[i].value);
    const JobFacts *f = submit(feed, file);
    assert_string_equal(f->refused, "");
    for (size_t i = 0; i < ELEMENTSOF(facts); i++)
        if (fact_of(f, i) != facts[i].fact)
            fail_msg("%s: the fact is %" PRId64 ", not %" PRId64, facts[i].key, fact_of(f, i),
                     facts[i].fact);
    assert_int_equal(f->arrival, 41);
    assert_string_equal(f->submission, SUBMISSION);
    assert_string_equal(f->resume_uri, "file:///other/manifest.json");
}

/* Each key changes its own fact and no other. */
static void each_key_alone(_unused_ void **state)
{
    _cleanup_(feed_freep) Feed *feed = feed_new("lab");
    _cleanup_json_ json_t *usual = usual_file();
    const JobFacts before = *submit(feed, usual);
    assert_string_equal(before.refused, "");
    for (size_t i = 0; i < ELEMENTSOF(facts); i++) {
        _cleanup_json_ json_t *file = json_deep_copy(usual);
        if (strcmp(facts[i].key, "world.max") == 0 ||
            strcmp(facts[i].key, "train.global_batch") == 0)
            set(file, "train.global_batch", "66"); /* world.max needs as many grains */
        set(file, facts[i].key, facts[i].value);
        const JobFacts *f = submit(feed, file);
        assert_string_equal(f->refused, "");
        for (size_t k = 0; k < ELEMENTSOF(facts); k++) {
            const bool grains = strcmp(facts[k].key, "train.global_batch") == 0;
            const bool changes = k == i || (grains && strcmp(facts[i].key, "world.max") == 0);
            if (fact_of(f, k) != (changes ? facts[k].fact : fact_of(&before, k)))
                fail_msg("%s was set, and the fact of %s is %" PRId64, facts[i].key, facts[k].key,
                         fact_of(f, k));
        }
    }
}

/* A fact that is added later must get a row, too: the bytes that no row and no text covers are too few for a fact. */
static void no_fact_is_left_out(_unused_ void **state)
{
    static char covered[sizeof(JobFacts)];
    static const struct {
        size_t offset, size;
    } others[] = {{offsetof(JobFacts, arrival), sizeof(((JobFacts *)NULL)->arrival)},
                  {offsetof(JobFacts, is_program), sizeof(bool)},
                  {offsetof(JobFacts, program), sizeof(Hash)},
                  {offsetof(JobFacts, per_node), sizeof(int)},
                  {offsetof(JobFacts, is_eval), sizeof(bool)},
                  {offsetof(JobFacts, every_steps), sizeof(int64_t)},
                  {offsetof(JobFacts, of_job), sizeof(((JobFacts *)NULL)->of_job)},
                  {offsetof(JobFacts, progress_usec), sizeof(uint64_t)},
                  {offsetof(JobFacts, submission), SUBMISSION_BYTES},
                  {offsetof(JobFacts, resume_uri), sizeof(((JobFacts *)NULL)->resume_uri)},
                  {offsetof(JobFacts, refused), sizeof(((JobFacts *)NULL)->refused)}};
    for (size_t i = 0; i < ELEMENTSOF(facts); i++)
        memset(covered + facts[i].offset, 1, facts[i].size);
    for (size_t i = 0; i < ELEMENTSOF(others); i++)
        memset(covered + others[i].offset, 1, others[i].size);
    for (size_t i = 0, gap = 0; i < sizeof(covered); i++) {
        gap = covered[i] ? 0 : gap + 1;
        if (gap == sizeof(int64_t))
            fail_msg("byte %zu of JobFacts belongs to a field that no case sets", i);
    }
}

static json_t *program_file(void)
{
    json_t *file = json_loads(
        "{\"name\":\"a\",\"kind\":\"exec\",\"priority\":3,"
        "\"world\":{\"min\":2,\"max\":6,\"per_node\":2},"
        "\"exec\":{\"command\":[\"train\"],\"dir\":\"/tmp\",\"device\":\"cuda\",\"steps\":8191},"
        "\"recovery\":{\"max_failures_at_same_step\":13,\"progress_s\":61}}",
        0, NULL);
    assert_non_null(file);
    return file;
}

static void a_program(_unused_ void **state)
{
    _cleanup_(feed_freep) Feed *feed = feed_new("lab");
    _cleanup_json_ json_t *file = program_file();
    const Hash program = {.high = 7, .low = 8};
    const JobFacts *f = submit_program(feed, file, program);
    assert_string_equal(f->refused, "");
    assert_true(f->is_program && f->needs_gpu && hash_equal(f->program, program));
    assert_int_equal(f->per_node, 2);
    assert_int_equal(f->progress_usec, 61 * USEC_PER_SEC);
    assert_int_equal(f->n_grains, RECORD_RANKS_MAX);
    assert_int_equal(f->steps, 8191);
    assert_int_equal(f->max_failures, 13);
    assert_int_equal(f->priority, 3);
    assert_int_equal(f->min, 2);
    assert_int_equal(f->max, 6);
    assert_int_equal(f->keep_last, RECORD_COMMITS_MAX); /* nobody knows which are removed */
    set(file, "checkpoint", "{\"uri\": \"/c\", \"keep_last\": 5}");
    assert_int_equal(submit_program(feed, file, program)->keep_last, 5);
    _cleanup_json_ json_t *usual = usual_file();
    f = submit(feed, usual);
    assert_true(!f->is_program && f->per_node == 0 && f->progress_usec == 0);
}

static void an_evaluation(_unused_ void **state)
{
    _cleanup_(feed_freep) Feed *feed = feed_new("lab");
    _cleanup_json_ json_t *file = program_file();
    set(file, "kind", "\"eval\"");
    set(file, "of", "{\"job\": \"b\", \"every_steps\": 250}");
    set(file, "checkpoint", "{\"uri\": \"s3://b/c\"}");
    (void)json_object_del(json_object_get(file, "recovery"), "progress_s");
    const JobFacts *f = submit_program(feed, file, (Hash){.high = 7, .low = 8});
    assert_string_equal(f->refused, "");
    assert_true(f->is_eval && f->is_program && f->every_steps == 250 && f->progress_usec == 0);
    assert_string_equal(f->of_job, "b");
    assert_int_equal(f->max_failures, 13);
    f = submit(feed, file); /* without its program */
    assert_non_null(strstr(f->refused, "programs/a is missing"));
}

/* Submits an evaluation by sdtrainer itself, of job b. */
static const JobFacts *submit_eval(Feed *feed, const char *of, const char *work, const char *value)
{
    _cleanup_json_ json_t *file = program_file();
    (void)json_object_del(file, "exec");
    (void)json_object_del(json_object_get(file, "recovery"), "progress_s");
    set(file, "kind", "\"eval\"");
    set(file, "world", "{\"min\": 1, \"max\": 1}");
    set(file, "of", of);
    set(file, work, value);
    set(file, "checkpoint", "{\"uri\": \"s3://b/c\"}");
    return submit(feed, file);
}

/* One rank measures the loss, or draws the pictures. */
static void evaluations_by_sdtrainer(_unused_ void **state)
{
    _cleanup_(feed_freep) Feed *feed = feed_new("lab");
    const JobFacts *f = submit_eval(feed, "{\"job\": \"b\", \"newest\": true}", "loss",
                                    "{\"streams\": [{\"uri\": \"/d\"}], \"device\": \"cuda\"}");
    assert_string_equal(f->refused, "");
    assert_true(f->is_eval && !f->is_program && f->needs_gpu && f->every_steps == 0);
    assert_string_equal(f->of_job, "b");
    assert_int_equal(f->n_grains, 1);
    assert_int_equal(f->max, 1);
    assert_int_equal(f->steps, 0);
    f = submit_eval(feed, "{\"job\": \"b\", \"every_steps\": 9}", "grid",
                    "{\"streams\": [{\"uri\": \"/d\"}], \"uri\": \"s3://b/grids\"}");
    assert_string_equal(f->refused, "");
    assert_true(f->is_eval && !f->is_program && !f->needs_gpu && f->every_steps == 9);
    assert_int_equal(f->n_grains, 1);
}

/* An older sdctl, or a person, has put the spec without its program. */
static void a_program_that_lies_nowhere(_unused_ void **state)
{
    _cleanup_(feed_freep) Feed *feed = feed_new("lab");
    _cleanup_json_ json_t *file = program_file();
    const JobFacts *f = submit(feed, file);
    assert_string_equal(f->refused,
                        "/sdtrain/lab/specs/a: program: the record programs/a is missing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_with_values_of_its_own_everywhere),
        cmocka_unit_test(each_key_alone),
        cmocka_unit_test(no_fact_is_left_out),
        cmocka_unit_test(a_program),
        cmocka_unit_test(an_evaluation),
        cmocka_unit_test(evaluations_by_sdtrainer),
        cmocka_unit_test(a_program_that_lies_nowhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
