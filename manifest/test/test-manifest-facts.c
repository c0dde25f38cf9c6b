/* SPDX-License-Identifier: Apache-2.0 */
/* test-manifest-facts.c - a checkpoint of another job, other data or other numerics is described by
 * the differing keys and values. If an older version wrote only hashes to the manifest, these hashes
 * describe the checkpoint. */
#include "manifest/manifest-internal.h"

#include "base/file.h"
#include "base/test/testing.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define JOB "{\"optimizer\":{\"lr\":0.5},\"train\":{\"precision\":0,\"seed\":17}}"
#define DATA_OF(index, samples)                                                                    \
    "{\"data\":{\"streams\":[{\"index\":\"" index "\",\"samples\":" samples ",\"shards\":5}]}}"
#define DATA DATA_OF("ab", "96")

/* Returns the kept manifest of an older version, with the given terms of the job and the data
 * added; NULL adds no terms. */
static Manifest *manifest_with(const char *job, const char *data)
{
    const char *tree = getenv("SDTRAIN_SOURCE");
    char path[PATH_MAX], *text = NULL;
    Error err = ERROR_INIT;
    Hash seal;
    Manifest *m = NULL;
    (void)snprintf(path, sizeof(path), "%s/tests/corpus/manifest/step-4", tree ? tree : ".");
    if (file_read(path, MANIFEST_BYTES_MAX, &text, NULL, &err) < 0)
        fail_msg("%s", err.text);
    _cleanup_json_ json_t *json = json_loads(text, 0, NULL);
    assert_null(json_object_get(json, "job_terms"));
    if (job)
        json_object_set_new(json, "job_terms", json_string(job));
    if (data)
        json_object_set_new(json, "dataset_terms", json_string(data));
    assert_int_equal(manifest_seal(json, &seal), 0);
    json_object_set_new(json, "hash", json_hash(seal));
    _cleanup_free_ char *with = json_dumps(json, 0);
    if (manifest_parse("kept", with, strlen(with), &m, &err) < 0)
        fail_msg("%s", err.text);
    free(text);
    return m;
}

static void assert_differs(const Manifest *m, const CheckpointFacts *facts, const char *says)
{
    Error err = ERROR_INIT;
    assert_int_equal(manifest_check_facts(m, facts, &err), -EBADMSG);
    if (!strstr(err.text, says))
        fail_msg("\"%s\" is not in: %s", says, err.text);
}

static void set_terms(CheckpointFacts *facts, const char *job, const char *data)
{
    (void)snprintf(facts->job_terms, sizeof(facts->job_terms), "%s", job);
    (void)snprintf(facts->dataset_terms, sizeof(facts->dataset_terms), "%s", data);
}

static void keys_and_values_are_told(void **state)
{
    (void)state;
    _cleanup_(manifest_freep) Manifest *m = manifest_with(JOB, DATA);
    CheckpointFacts other = *manifest_facts(m);
    Error err = ERROR_INIT;
    assert_string_equal(other.job_terms, JOB);
    assert_string_equal(other.dataset_terms, DATA);
    set_terms(&other, "{\"optimizer\":{\"lr\":0.5},\"train\":{\"precision\":1,\"seed\":18}}",
              DATA_OF("cd", "95"));
    assert_int_equal(manifest_check_facts(m, &other, &err), 0); /* only the hashes are compared */
    other.job_identity.low++;
    assert_differs(m, &other,
                   "checkpoint step-0000000004-o1-g1-456ef687 of job test: its job identity is "
                   "another one: train.precision was \"fp32\", is \"bf16\"; train.seed was 17, is "
                   "18");
    other.job_identity.low--;
    other.dataset_digest.low++;
    assert_differs(m, &other,
                   ": its dataset digest is another one: data.streams[0].samples was 96, is 95");
    /* the same number of samples, but different samples */
    set_terms(&other, JOB, DATA_OF("cd", "96"));
    assert_differs(
        m, &other,
        ": its dataset digest is another one: data.streams[0].index was \"ab\", is \"cd\"");
}

static void of_older_ones_only_the_hashes_are_known(void **state)
{
    (void)state;
    _cleanup_(manifest_freep) Manifest *older = manifest_with(NULL, NULL);
    _cleanup_(manifest_freep) Manifest *newer = manifest_with(JOB, DATA);
    CheckpointFacts other = *manifest_facts(older);
    assert_string_equal(other.job_terms, "");
    other.job_identity.low++;
    static const char *const says = ": its job identity is 00000000000000010000000000000002, this "
                                    "job's is 00000000000000010000000000000003; only the hashes "
                                    "are known of it";
    assert_differs(newer, &other, says); /* the terms of the running job are not known */
    set_terms(&other, JOB, DATA);
    assert_differs(older, &other, says);
    /* if the terms are equal but the hashes differ, only the hashes are reported */
    assert_differs(newer, &other, says);
    other.job_identity.low--;
    other.dataset_digest.low++;
    assert_differs(older, &other,
                   ": its dataset digest is 00000000000000030000000000000004, this ");
}

/* A newer version's terms may be longer than this version's buffers: they are ignored, without an
 * error. */
static void longer_terms_are_passed_over(void **state)
{
    (void)state;
    static char long_terms[DATASET_TERMS_MAX + 1];
    memset(long_terms, 'x', DATASET_TERMS_MAX);
    _cleanup_(manifest_freep) Manifest *m = manifest_with(long_terms, long_terms);
    assert_string_equal(manifest_facts(m)->job_terms, "");
    assert_string_equal(manifest_facts(m)->dataset_terms, "");
}

static void terms_are_written_again(void **state)
{
    (void)state;
    _cleanup_(manifest_freep) Manifest *m = manifest_with(JOB, DATA), *again = NULL;
    Error err = ERROR_INIT;
    char *text;
    assert_int_equal(manifest_format(m, &text), 0);
    if (manifest_parse("again", text, strlen(text), &again, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(manifest_facts(again)->job_terms, JOB);
    assert_string_equal(manifest_facts(again)->dataset_terms, DATA);
    assert_true(hash_equal(manifest_digest(again), manifest_digest(m)));
    free(text);
}

static void numerics_are_told_by_their_keys(void **state)
{
    (void)state;
    static CheckpointFacts a, b;
    char text[200];
    (void)snprintf(a.numerics, sizeof(a.numerics), "{\"backend\":\"cpu\",\"version\":5}");
    (void)snprintf(b.numerics, sizeof(b.numerics), "{\"backend\":\"cuda\",\"version\":5}");
    assert_int_equal(facts_diff_numerics(&a, &b, text, sizeof(text)), 1);
    assert_string_equal(text, "backend was \"cpu\", is \"cuda\"");
    b.numerics[0] = '\0';
    assert_int_equal(facts_diff_numerics(&a, &b, text, sizeof(text)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_and_values_are_told),
        cmocka_unit_test(of_older_ones_only_the_hashes_are_known),
        cmocka_unit_test(longer_terms_are_passed_over),
        cmocka_unit_test(terms_are_written_again),
        cmocka_unit_test(numerics_are_told_by_their_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
