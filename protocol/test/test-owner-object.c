/* SPDX-License-Identifier: Apache-2.0 */
/* test-owner-object.c - owner objects: a claim is read back unchanged, and terms never make an object too long for
 * other versions. */
#include "protocol/owner.h"

#include "base/json/json.h"
#include "base/test/testing.h"

#include <string.h>

static const OwnerRecord plain = {.submission = "00112233445566778899aabbccddeeff",
                                  .claim = "ffeeddccbbaa99887766554433221100",
                                  .job = "first",
                                  .host = "n1",
                                  .pid = 7,
                                  .generation = 3,
                                  .job_identity = {1, 2},
                                  .dataset_digest = {3, 4},
                                  .claimed_usec = 5};

static OwnerRecord again(const OwnerRecord *o)
{
    Error err = ERROR_INIT;
    OwnerRecord ret;
    _cleanup_free_ char *text = NULL;
    assert_int_equal(owner_format(o, &text), 0);
    assert_in_range(strlen(text), 1, OWNER_OBJECT_MAX - 1);
    if (owner_parse("owner", text, strlen(text), &ret, &err) < 0)
        fail_msg("%s", err.text);
    return ret;
}

static void a_claim_comes_back(void **state)
{
    (void)state;
    OwnerRecord o = plain;
    (void)snprintf(o.job_terms, sizeof(o.job_terms), "{\"train\":{\"seed\":17}}");
    (void)snprintf(o.dataset_terms, sizeof(o.dataset_terms), "{\"data\":{}}");
    const OwnerRecord found = again(&o);
    assert_string_equal(found.claim, o.claim);
    assert_true(hash_equal(found.job_identity, o.job_identity));
    assert_true(hash_equal(found.dataset_digest, o.dataset_digest));
    assert_string_equal(found.job_terms, o.job_terms);
    assert_string_equal(found.dataset_terms, o.dataset_terms);
    const OwnerRecord older = again(&plain); /* as written by an older version, without terms */
    assert_string_equal(older.job_terms, "");
    assert_string_equal(older.dataset_terms, "");
}

/* A text of terms that does not fit is omitted, and the other text may still fit. */
static void terms_that_do_not_fit_are_left_out(void **state)
{
    (void)state;
    OwnerRecord o = plain;
    memset(o.job_terms, 'j', 2500);
    memset(o.dataset_terms, 'd', 2500);
    OwnerRecord found = again(&o);
    assert_string_equal(found.job_terms, o.job_terms);
    assert_string_equal(found.dataset_terms, "");
    memset(o.job_terms, '"', 2500); /* each '"' takes two bytes in JSON */
    memset(o.dataset_terms, '\0', sizeof(o.dataset_terms));
    (void)snprintf(o.dataset_terms, sizeof(o.dataset_terms), "{}");
    found = again(&o);
    assert_string_equal(found.job_terms, "");
    assert_string_equal(found.dataset_terms, "{}");
}

/* Terms that are too long, for example of a newer version, are ignored without an error. */
static void longer_terms_are_passed_over(void **state)
{
    (void)state;
    static char long_terms[OWNER_TERMS_MAX + 1];
    Error err = ERROR_INIT;
    OwnerRecord found;
    _cleanup_free_ char *text = NULL;
    memset(long_terms, 'x', OWNER_TERMS_MAX);
    assert_int_equal(owner_format(&plain, &text), 0);
    _cleanup_json_ json_t *json = json_loads(text, 0, NULL);
    json_object_set_new(json, "job_terms", json_string(long_terms));
    _cleanup_free_ char *longer = json_dumps(json, 0);
    assert_int_equal(owner_parse("owner", longer, strlen(longer), &found, &err), 0);
    assert_string_equal(found.job_terms, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_claim_comes_back),
        cmocka_unit_test(terms_that_do_not_fit_are_left_out),
        cmocka_unit_test(longer_terms_are_passed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
