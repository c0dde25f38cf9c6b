/* SPDX-License-Identifier: Apache-2.0 */
/* test-request.c - the outcome of a request, from the field "outcome", the verdict, or (earlier versions) the answer's
 * words. */
#include "cluster/request.h"

#include "base/test/testing.h"

#include <errno.h>
#include <string.h>

static void a_verdict_is_the_first_word_of_an_answer(void **state)
{
    (void)state;
    static const char *const none[] = {"", ":", "heal", "drained", "drained: gpu"};
    NodeVerdict verdict = NODE_HEALTHY;
    RequestRecord request = {.answer = "drain: gpu: a row waits for a reset"};
    assert_true(request_verdict(&request, &verdict));
    assert_int_equal(verdict, NODE_DRAIN);
    for (size_t i = 0; i < ELEMENTSOF(none); i++) {
        (void)snprintf(request.answer, sizeof(request.answer), "%s", none[i]);
        assert_false(request_verdict(&request, &verdict));
    }
}

/* The field "outcome" decides. If the program that answered does not know this field, the answer's words decide. */
static void an_outcome_is_told_or_read_off_the_words(void **state)
{
    (void)state;
    static const struct {
        const char *json, *answer;
        RequestOutcome outcome;
    } cases[] = {
        {"", "", REQUEST_OPEN},
        {", \"outcome\": \"open\"", "", REQUEST_OPEN},
        {", \"outcome\": \"open\"", "refused: the job runs", REQUEST_REFUSED},
        {"", "refused: the job runs", REQUEST_REFUSED},
        {"", "the job is not training now", REQUEST_REFUSED},
        {"", "rank 0 saves after its present step", REQUEST_DONE},
        {", \"outcome\": \"done\"", "refused, and done all the same", REQUEST_DONE},
        {", \"outcome\": \"refused\"", "not now", REQUEST_REFUSED},
        {", \"outcome\": \"failed\"", "1 of 2 sinks accepted", REQUEST_FAILED},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        char text[256];
        RequestRecord request, again;
        Error err = ERROR_INIT;
        int n = snprintf(text, sizeof(text),
                         "{\"v\": 2, \"id\": \"r\", \"kind\": \"k\", \"answer\": \"%s\"%s}",
                         cases[i].answer, cases[i].json);
        assert_int_equal(request_record_decode("k", text, (size_t)n, &request, &err), 0);
        assert_int_equal(request_outcome(&request), cases[i].outcome);
        _cleanup_free_ char *written = request_record_encode(&request, NULL);
        assert_int_equal(request_record_decode("k", written, strlen(written), &again, &err), 0);
        assert_int_equal(request_outcome(&again), cases[i].outcome);
    }
    static const char other[] =
        "{\"v\": 2, \"id\": \"r\", \"kind\": \"k\", \"outcome\": \"maybe\"}";
    RequestRecord request;
    Error err = ERROR_INIT;
    assert_int_equal(request_record_decode("k", other, strlen(other), &request, &err), -EINVAL);
    assert_non_null(strstr(err.text, "outcome"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_verdict_is_the_first_word_of_an_answer),
        cmocka_unit_test(an_outcome_is_told_or_read_off_the_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
