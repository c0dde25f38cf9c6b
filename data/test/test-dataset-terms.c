/* SPDX-License-Identifier: Apache-2.0 */
/* test-dataset-terms.c - encoder.json: each key is checked; a job that leaves out the terms in encoder.json is the same
 * job as one that repeats them; streams of different encoders, a job file that contradicts encoder.json, and an
 * encoder.json that has changed since submission are refused by name. */
#include "data/dataset-look.h"
#include "data/dataset-terms.h"
#include "data/encoder-facts.h"
#include "data/test/testing-loader.h"
#include "store/test/testing-far.h"

#include <unistd.h>

#define WEIGHTS "\"0123456789abcdef0123456789abcdef\""
#define MERGES "\"00000000000000000000000000000001\""

static const char *const good =
    "{\"version\": 1, \"weights\": " WEIGHTS ", \"merges\": " MERGES
    ", \"scaling_factor\": 0.18215, "
    "\"latents\": {\"column\": \"latents\", \"shape\": [4, 6, 3]}, "
    "\"text\": {\"column\": \"text\", \"shape\": [5, 7]}, \"empty_text\": \"empty.npy\", "
    "\"rejected\": {\"decode\": 3}, \"later\": [1]}";

/* Returns text with the first occurrence of `from` replaced; the caller frees it. */
static char *with(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    char *changed;
    assert_non_null(at);
    assert_true(asprintf(&changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) > 0);
    return changed;
}

static void every_key_is_checked(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"\"version\": 1, ", "", "e.json: version: missing"},
        {"\"version\": 1", "\"version\": 0", "e.json: version: 0 is"},
        {"\"version\": 1", "\"version\": \"1\"", "e.json: version: expected an integer"},
        {"\"version\": 1", "\"version\": 2",
         "e.json: version: of version 2, which a newer sdtrain wrote; this one reads version 1"},
        {WEIGHTS, "\"0123\"", "e.json: weights: "},
        {WEIGHTS, "7", "e.json: weights: "},
        {"\"merges\": " MERGES ", ", "", "e.json: merges: missing"},
        {"0.18215", "0", "e.json: scaling_factor: 0 is not in"},
        {"0.18215", "\"1\"", "e.json: scaling_factor: expected a number"},
        {"0.18215", "1e300", "e.json: scaling_factor: 1e+300 is not in"},
        {"{\"column\": \"latents\", \"shape\": [4, 6, 3]}", "[]", "e.json: latents: "},
        {"\"column\": \"latents\"", "\"column\": \"\"", "e.json: latents.column: is empty"},
        {"[4, 6, 3]", "[4, 6]", "e.json: latents.shape: expected 3 numbers, got 2"},
        {"[4, 6, 3]", "[4, 6, 3, 1]", "e.json: latents.shape: "},
        {"[4, 6, 3]", "[4, 6, 3.5]",
         "e.json: latents.shape: element 2 is not a number in 1..65536"},
        {"[4, 6, 3]", "[0, 6, 3]", "e.json: latents.shape: element 0 is not a number"},
        {"[4, 6, 3]", "[4, 6, 4294967300]", "e.json: latents.shape: element 2 is not a number"},
        {"[5, 7]", "[5, -7]", "e.json: text.shape: element 1 is not a number"},
        {"\"empty.npy\"", "\"\"", "e.json: empty_text: \"\" is not a file of this folder"},
        {"\"empty.npy\"", "\"/etc/passwd\"", "e.json: empty_text: \"/etc/passwd\" is not a file"},
        {"\"empty.npy\"", "\"..\"", "e.json: empty_text: \"..\" is not a file"},
        {"\"empty.npy\"", "\"a/../../b\"", "e.json: empty_text: \"a/../../b\" is not a file"},
        {"\"empty.npy\"", "null", "e.json: empty_text: missing"},
        {"\"later\": [1]", "\"files\": 3", "e.json: files: expected an object"},
        {"\"later\": [1]", "\"files\": {\"index.json\": \"12\"}",
         "e.json: files.index.json: 12 is not a hash"},
        {"[1]}", "[1]", "e.json: line 1"},
    };
    EncoderFacts facts;
    Error err = ERROR_INIT;
    assert_good(encoder_facts_parse("e.json", good, strlen(good), &facts, &err), err);
    assert_true(facts.scaling_factor == 0.18215 && facts.shape.width == 3);
    assert_int_equal(facts.shape.text_dim, 7);
    assert_string_equal(facts.empty_text, "empty.npy");
    assert_true(hash_equal(facts.hash, hash_bytes(good, strlen(good))));
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        _cleanup_free_ char *text = with(good, cases[i].from, cases[i].to);
        err = ERROR_INIT;
        assert_int_equal(encoder_facts_parse("e.json", text, strlen(text), &facts, &err), -EINVAL);
        assert_names(err, cases[i].says);
    }
    /* The size is checked before anything is parsed. */
    _cleanup_free_ char *long_text = malloc(ENCODER_FACTS_MAX + 1);
    memset(long_text, '[', ENCODER_FACTS_MAX + 1);
    assert_int_equal(encoder_facts_parse("e.json", long_text, ENCODER_FACTS_MAX + 1, &facts, &err),
                     -EINVAL);
    assert_names(err, "more than 16777216 bytes");
    assert_int_equal(encoder_facts_parse("e.json", long_text, ENCODER_FACTS_MAX, &facts, &err),
                     -EINVAL);
}

static void put_text(const Fixture *f, const char *name, const char *text)
{
    char path[PATH_MAX];
    Error err = ERROR_INIT;
    assert_good(file_write(scratch_path(&f->scratch, name, path), text, strlen(text), 0, &err),
                err);
}

/* Makes one dataset as sdprep encode leaves it, and a job that states none of its terms. */
static void begin(Fixture *f)
{
    char path[PATH_MAX];
    fixture_make(f, &plain);
    f->job.data.empty_text_uri = NULL;
    put_text(f, "first/encoder.json", good);
    assert_int_equal(rename(f->empty, scratch_path(&f->scratch, "first/empty.npy", path)), 0);
    memcpy(f->empty, path, sizeof(path));
}

/* Checks that sdctl and a rank refuse the job with the same text. */
static void refused(const Fixture *f, const char *word, const char *word2)
{
    Error err = ERROR_INIT;
    DatasetLook look;
    Dataset *dataset = NULL;
    assert_int_equal(dataset_look(&f->job, &look, &err), -EINVAL);
    assert_names(err, word);
    assert_names(err, word2);
    err = ERROR_INIT;
    assert_int_equal(dataset_open(&f->job, &dataset, &err), -EINVAL);
    assert_names(err, word);
    assert_names(err, word2);
}

/* Computes the identity as a rank does: from the job, the network's config and the data. */
static Hash identity_of(const Dataset *dataset, const Job *job)
{
    const JobNamed named = dataset_job_named(dataset, "{}");
    Hash ret;
    assert_int_equal(job_terms_identity(job, &named, &ret), 0);
    return ret;
}

static Hash plain_identity(const Dataset *dataset, const Job *job, const char *latents)
{
    JobNamed named = dataset_job_named(dataset, "{}");
    Hash ret;
    named.latents = latents;
    named.text = "text";
    assert_int_equal(job_terms_identity(job, &named, &ret), 0);
    return ret;
}

static void a_short_job_is_the_long_one(void **state)
{
    (void)state;
    Fixture f;
    Error err = ERROR_INIT;
    DatasetLook look;
    char text[JOB_SOURCES_MAX], again[JOB_SOURCES_MAX];
    begin(&f);
    Dataset *dataset = open_dataset(&f);
    Hash identity = identity_of(dataset, &f.job);
    assert_non_null(dataset_empty_text(dataset));
    check_steps(&f, dataset, 0, 20, 0, 6, 1 << 16);
    dataset_free(dataset);
    assert_good(dataset_look(&f.job, &look, &err), err);
    assert_true(look.sources.has_empty_text && look.sources.has_encoder[0]);
    assert_int_equal(strlen(dataset_sources_format(&look.sources, text)), 32 + 1 + 32 + 1 + 32);

    f.job.data.names_latents = f.job.data.names_text = true;
    f.job.data.empty_text_uri = f.empty;
    dataset = open_dataset(&f);
    assert_true(hash_equal(identity, identity_of(dataset, &f.job)));
    dataset_free(dataset);
    /* If a job needs nothing from encoder.json, the hash of encoder.json is not noted. */
    assert_good(dataset_look(&f.job, &look, &err), err);
    assert_int_equal(strlen(dataset_sources_format(&look.sources, again)), 32 + 1 + 32);
    assert_int_equal(strncmp(text, again, 32 + 1 + 32), 0);

    /* A job that drops no captions does not need the empty caption's embedding. */
    f.job.data.empty_text_uri = NULL;
    f.job.train.caption_drop = 0;
    dataset = open_dataset(&f);
    assert_null(dataset_empty_text(dataset));
    dataset_free(dataset);
    scratch_remove(&f.scratch);
}

/* Columns are found under the names in encoder.json, and the job's identity is that of a job that states these
 * names. */
static void columns_have_the_names_that_it_says(void **state)
{
    (void)state;
    Fixture f;
    char path[PATH_MAX], *text;
    size_t n;
    Error err = ERROR_INIT;
    begin(&f);
    (void)scratch_path(&f.scratch, "first/index.json", path);
    assert_good(file_read(path, 1 << 20, &text, &n, &err), err);
    for (char *at = text; (at = strstr(at, "\"latents\""));)
        memcpy(at, "\"latentz\"", 9);
    assert_good(file_write(path, text, n, 0, &err), err);
    free(text);
    refused(&f, "data.latents", "no column \"latents\"");
    refused(&f, "first/encoder.json names it", "");
    _cleanup_free_ char *named = with(good, "\"column\": \"latents\"", "\"column\": \"latentz\"");
    put_text(&f, "first/encoder.json", named);
    Dataset *dataset = open_dataset(&f);
    check_steps(&f, dataset, 0, 5, 0, 6, 1 << 16);
    assert_true(
        hash_equal(identity_of(dataset, &f.job), plain_identity(dataset, &f.job, "latentz")));
    assert_false(
        hash_equal(identity_of(dataset, &f.job), plain_identity(dataset, &f.job, "latents")));
    dataset_free(dataset);

    f.job.data.names_latents = true;
    refused(&f, "data.latents: latents contradicts ",
            "first/encoder.json: latents.column: latentz; leave data.latents out");
    scratch_remove(&f.scratch);
}

static void what_contradicts_it_is_refused(void **state)
{
    (void)state;
    Fixture f;
    begin(&f);
    f.job.data.names_text = true;
    f.job.data.text = (char *)(uintptr_t) "caption";
    refused(&f, "data.text: caption contradicts ", "first/encoder.json: text.column: text;");
    f.job.data.text = (char *)(uintptr_t) "text";
    f.job.data.latent_scale = 0.18215;
    refused(&f, "data.latent_scale: 0.18215 contradicts ",
            "first/encoder.json: scaling_factor: latents are multiplied by 0.18215;");
    f.job.data.latent_scale = 1;

    /* Naming another file for the empty caption is a choice, not a contradiction. */
    char path[PATH_MAX];
    Error err = ERROR_INIT;
    char *bytes;
    size_t n;
    assert_good(file_read(f.empty, 1 << 20, &bytes, &n, &err), err);
    bytes[n - 1] = 0x3c; /* the half-precision number 1.0 */
    assert_good(file_write(scratch_path(&f.scratch, "own.npy", path), bytes, n, 0, &err), err);
    free(bytes);
    f.job.data.empty_text_uri = path;
    Dataset *dataset = open_dataset(&f);
    assert_true(dataset_empty_text(dataset)[5 * 7 - 1] == 1);
    dataset_free(dataset);
    f.job.data.empty_text_uri = NULL;

    /* An encoder.json that belongs to another dataset is refused. */
    for (int i = 0; i < 2; i++) {
        _cleanup_free_ char *other =
            with(good, i ? "[5, 7]" : "[4, 6, 3]", i ? "[7, 5]" : "[4, 3, 6]");
        put_text(&f, "first/encoder.json", other);
        refused(&f,
                i ? "first/encoder.json: text.shape: 7x5, but column text holds 5x7"
                  : "first/encoder.json: latents.shape: 4x3x6, but column latents holds 4x6x3",
                "it is another dataset's");
    }
    put_text(&f, "first/encoder.json", "{\"version\": 2}");
    refused(&f,
            "data.streams[0].uri: ", "first/encoder.json: version: of version 2, which a newer");
    scratch_remove(&f.scratch);
}

/* A store that refuses access to a missing encoder.json must not end a job that needs nothing from encoder.json; an
 * unreachable store must end the job. */
static void a_store_that_refuses_has_none(void **state)
{
    (void)state;
    Fixture f;
    Error err = ERROR_INIT;
    DatasetLook look;
    Dataset *dataset = NULL;
    char uri[PATH_MAX + 8], sources[JOB_SOURCES_MAX];
    begin(&f);
    assert_good(dataset_look(&f.job, &look, &err), err);
    (void)dataset_sources_format(&look.sources, sources);
    far_begin();
    (void)snprintf(uri, sizeof(uri), "far://%s", f.folders[0]);
    f.job.data.streams[0].uri = uri;
    far_fault(ENCODER_FACTS_NAME, 3, -EACCES, 0);
    refused(&f, "data.empty_text: missing", "no stream has an encoder.json");
    assert_int_equal(dataset_open_submitted(&f.job, sources, &dataset, &err), -EBADMSG);
    assert_names(err, "encoder.json is gone since the job was submitted");
    far_fault(ENCODER_FACTS_NAME, 1, -EHOSTUNREACH, 0);
    assert_int_equal(dataset_open(&f.job, &dataset, &err), -EHOSTUNREACH);
    far_fault(ENCODER_FACTS_NAME, 1, -EACCES, 0);
    f.job.data.empty_text_uri = f.empty;
    dataset_free(open_dataset(&f));
    scratch_remove(&f.scratch);
}

static void what_nobody_says_is_asked_for(void **state)
{
    (void)state;
    Fixture f;
    char path[PATH_MAX];
    begin(&f);
    assert_int_equal(unlink(scratch_path(&f.scratch, "first/encoder.json", path)), 0);
    refused(&f, "data.empty_text: missing; train.caption_drop 0.1 needs it",
            "no stream has an encoder.json");
    f.job.data.empty_text_uri = f.empty;
    dataset_free(open_dataset(&f));
    f.job.data.text = (char *)(uintptr_t) "txt";
    refused(&f, "no column \"txt\"",
            "there is no encoder.json that would name it: write data.text with the name of its "
            "column of text embeddings");
    /* Now the job file names the column, and the name may be a typing error. */
    f.job.data.names_text = true;
    Error err = ERROR_INIT;
    DatasetLook look;
    assert_int_equal(dataset_look(&f.job, &look, &err), -EINVAL);
    assert_null(strstr(err.text, "encoder.json"));
    scratch_remove(&f.scratch);
}

/* If the dataset's folder was moved or is not mounted, the error names the folder; it names no file in the folder,
 * and suggests no change of the job. */
static void a_dataset_that_is_gone_is_what_is_told(void **state)
{
    (void)state;
    Fixture f;
    Error err = ERROR_INIT;
    DatasetLook look;
    Dataset *dataset = NULL;
    char sources[JOB_SOURCES_MAX], away[PATH_MAX];
    static const char *const says = "data.streams[0].uri: file://", *gone = "holds no MDS dataset";
    begin(&f);
    assert_good(dataset_look(&f.job, &look, &err), err);
    (void)dataset_sources_format(&look.sources, sources);
    assert_int_equal(rename(f.folders[0], scratch_path(&f.scratch, "away", away)), 0);
    refused(&f, says, gone);
    assert_int_equal(dataset_open_submitted(&f.job, sources, &dataset, &err), -EINVAL);
    assert_names(err, says);
    assert_names(err, gone);
    f.job.data.streams[0].uri = away;
    assert_good(dataset_open_submitted(&f.job, sources, &dataset, &err), err);
    dataset_free(dataset);
    scratch_remove(&f.scratch);
}

static void streams_must_be_of_one_encoder(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {WEIGHTS, "\"0123456789abcdef0123456789abcdee\"",
         "weights: 0123456789abcdef0123456789abcdee"},
        {MERGES, "\"00000000000000000000000000000002\"",
         "merges: 00000000000000000000000000000002"},
        {"0.18215", "0.25", "scaling_factor: 0.25"},
        {"\"column\": \"latents\"", "\"column\": \"caption\"", "latents.column: caption"},
        {"\"column\": \"text\"", "\"column\": \"caption\"", "text.column: caption"},
        {"[4, 6, 3]", "[4, 3, 6]", "latents.shape: 4x3x6"},
        {"[5, 7]", "[7, 5]", "text.shape: 7x5"},
    };
    Fixture f;
    begin(&f);
    add_stream(&f, &plain, 1);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        char says[200], other[PATH_MAX];
        _cleanup_free_ char *text = with(good, cases[i].from, cases[i].to);
        put_text(&f, "second/encoder.json", text);
        (void)snprintf(says, sizeof(says), "second/encoder.json: %s, but file://", cases[i].says);
        (void)scratch_path(&f.scratch, "first/encoder.json has ", other);
        refused(&f, "data.streams[1].uri: ", says);
        refused(&f, other, "what different encoders made");
    }
    /* The recipes and the numerics of two streams may differ. */
    _cleanup_free_ char *recipe =
        with(good, "\"later\": [1]", "\"numerics\": \"x\", \"recipe\": {}");
    put_text(&f, "second/encoder.json", recipe);
    Dataset *dataset = open_dataset(&f);
    check_steps(&f, dataset, 0, 10, 0, 6, 1 << 16);
    dataset_free(dataset);

    /* Nothing is known of a stream without an encoder.json. The encoder.json of the other stream applies to both
     * streams, whichever stream is first. */
    char path[PATH_MAX];
    assert_int_equal(unlink(scratch_path(&f.scratch, "second/encoder.json", path)), 0);
    dataset_free(open_dataset(&f));
    const JobStream first = f.job.data.streams[0];
    f.job.data.streams[0] = f.job.data.streams[1];
    f.job.data.streams[1] = first;
    dataset = open_dataset(&f);
    assert_non_null(dataset_empty_text(dataset));
    dataset_free(dataset);
    Error err = ERROR_INIT;
    EncoderFacts facts;
    assert_int_equal(encoder_facts_find(&f.job, &facts, &err), 1);
    assert_true(facts.scaling_factor == 0.18215);
    f.job.data.n_streams = 1;
    assert_int_equal(encoder_facts_find(&f.job, &facts, &err), 0);
    scratch_remove(&f.scratch);
}

static Hash hash_of_file(const Fixture *f, const char *name)
{
    char path[PATH_MAX];
    _cleanup_free_ char *text = NULL;
    size_t n;
    Error err = ERROR_INIT;
    assert_good(file_read(scratch_path(&f->scratch, name, path), SIZE_MAX / 2, &text, &n, &err),
                err);
    return hash_bytes(text, n);
}

/* encoder.json has the hashes of the files beside it, so changed files are found even if the job was not submitted. */
static void files_of_another_dataset_are_found(void **state)
{
    (void)state;
    Fixture f;
    Error err = ERROR_INIT;
    DatasetLook look;
    Dataset *dataset = NULL;
    char empty[HASH_TEXT_BYTES], index[HASH_TEXT_BYTES];
    begin(&f);
    hash_format(hash_of_file(&f, "first/empty.npy"), empty);
    hash_format(hash_of_file(&f, "first/index.json"), index);
    static const char other[] = "00000000000000000000000000000002";
    const struct {
        const char *empty, *index, *says;
    } cases[] = {
        {empty, index, NULL},
        {other, index, "first/empty.npy is not what it was when encoder.json was written"},
        {empty, other, "first/index.json is not what it was when encoder.json was written"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        char files[200];
        (void)snprintf(files, sizeof(files),
                       "\"files\": {\"empty.npy\": \"%s\", \"index.json\": \"%s\"}", cases[i].empty,
                       cases[i].index);
        _cleanup_free_ char *text = with(good, "\"later\": [1]", files);
        put_text(&f, "first/encoder.json", text);
        int looks = dataset_look(&f.job, &look, &err);
        if (cases[i].says)
            assert_names(err, cases[i].says);
        err = ERROR_INIT;
        int opens = dataset_open(&f.job, &dataset, &err);
        if (cases[i].says)
            assert_names(err, cases[i].says);
        err = ERROR_INIT;
        assert_int_equal(looks, cases[i].says ? -EBADMSG : 0);
        assert_int_equal(opens, looks);
        if (opens == 0)
            dataset_free(dataset);
    }
    /* A job may name another file for the empty caption than encoder.json does. */
    _cleanup_free_ char *text =
        with(good, "\"later\": [1]",
             "\"files\": {\"empty.npy\": \"00000000000000000000000000000002\"}");
    put_text(&f, "first/encoder.json", text);
    f.job.data.empty_text_uri = f.empty;
    assert_good(dataset_open(&f.job, &dataset, &err), err);
    dataset_free(dataset);
    scratch_remove(&f.scratch);
}

static void what_changed_since_the_start_is_found(void **state)
{
    (void)state;
    Fixture f;
    Error err = ERROR_INIT;
    DatasetLook look;
    Dataset *dataset = NULL;
    char text[JOB_SOURCES_MAX], path[PATH_MAX];
    begin(&f);
    assert_good(dataset_look(&f.job, &look, &err), err);
    (void)dataset_sources_format(&look.sources, text);
    assert_good(dataset_open_submitted(&f.job, text, &dataset, &err), err);
    dataset_free(dataset);

    /* encoder.json gets a blank that does not change its meaning; then it is removed; then it is restored. */
    _cleanup_free_ char *longer = with(good, "[1]}", "[1] }");
    put_text(&f, "first/encoder.json", longer);
    assert_int_equal(dataset_open_submitted(&f.job, text, &dataset, &err), -EBADMSG);
    assert_names(err, "data.streams[0].uri: ");
    assert_names(err, "first/encoder.json is not what it was when the job was submitted");
    assert_int_equal(unlink(scratch_path(&f.scratch, "first/encoder.json", path)), 0);
    assert_int_equal(dataset_open_submitted(&f.job, text, &dataset, &err), -EBADMSG);
    assert_names(err, "first/encoder.json is gone since the job was submitted");
    put_text(&f, "first/encoder.json", good);
    assert_good(dataset_open_submitted(&f.job, text, &dataset, &err), err);
    dataset_free(dataset);

    /* The file of the empty caption, which encoder.json names, is changed, then removed. */
    scratch_flip(f.empty, -1);
    assert_int_equal(dataset_open_submitted(&f.job, text, &dataset, &err), -EBADMSG);
    assert_names(err, "first/empty.npy is not what it was when the job was submitted");
    assert_names(err, "what file://");
    assert_int_equal(unlink(f.empty), 0);
    assert_int_equal(dataset_open_submitted(&f.job, text, &dataset, &err), -EINVAL);
    assert_names(err, "first/encoder.json names: data.empty_text: ");
    assert_names(err, "first/empty.npy");
    refused(&f, "first/encoder.json names: data.empty_text: ", "first/empty.npy");

    /* The job's record has the sources of another job. */
    text[0] = '\0';
    f.job.train.caption_drop = 0;
    assert_good(dataset_look(&f.job, &look, &err), err);
    (void)dataset_sources_format(&look.sources, text);
    assert_int_equal(text[0], '-');
    f.job.train.caption_drop = 0.1;
    assert_int_equal(dataset_open_submitted(&f.job, text, &dataset, &err), -EINVAL);
    assert_names(err, "the job's record: sources: they are not those of its spec");
    scratch_remove(&f.scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_is_checked),
        cmocka_unit_test(a_short_job_is_the_long_one),
        cmocka_unit_test(columns_have_the_names_that_it_says),
        cmocka_unit_test(what_contradicts_it_is_refused),
        cmocka_unit_test(a_store_that_refuses_has_none),
        cmocka_unit_test(what_nobody_says_is_asked_for),
        cmocka_unit_test(a_dataset_that_is_gone_is_what_is_told),
        cmocka_unit_test(streams_must_be_of_one_encoder),
        cmocka_unit_test(files_of_another_dataset_are_found),
        cmocka_unit_test(what_changed_since_the_start_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
