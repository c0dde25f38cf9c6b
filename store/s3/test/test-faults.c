/* SPDX-License-Identifier: Apache-2.0 */
/* test-faults.c - tests the fixture testing-faults against a real server, with plain libcurl as the client. */
#include "store/s3/test/testing-faults.h"

#include "base/test/testing.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>

static size_t drop(char *data, size_t size, size_t n, void *context)
{
    (void)data;
    (void)context;
    return size * n;
}

/* Returns the status of an unsigned get; 0: there was no reply. */
static long get(const char *endpoint)
{
    CURL *curl = curl_easy_init();
    long status = 0;
    curl_easy_setopt(curl, CURLOPT_URL, endpoint);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, drop);
    if (curl_easy_perform(curl) == CURLE_OK)
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(curl);
    return status;
}

static void test_faults(void **state)
{
    (void)state;
    char behind[128];
    (void)snprintf(behind, sizeof behind, "%s", getenv("AWS_ENDPOINT_URL"));
    Faults *faults = faults_start(NULL);
    assert_string_equal(getenv("AWS_ENDPOINT_URL"), faults_endpoint(faults));
    long direct = get(behind);
    assert_int_not_equal(direct, 0);
    assert_int_equal(get(faults_endpoint(faults)), direct);
    long rule = faults_add(faults, "{'fault': 'status', 'status': %d, 'count': 2}", 503);
    assert_int_equal(get(faults_endpoint(faults)), 503);
    assert_int_equal(get(faults_endpoint(faults)), 503);
    assert_int_equal(get(faults_endpoint(faults)), direct);
    faults_wait(faults, rule, 2);
    faults_add(faults, "{'fault': 'lose', 'match': {'method': 'GET'}}");
    assert_int_equal(get(faults_endpoint(faults)), 0);
    assert_int_equal(faults_count(faults, "{'method': 'GET'}"), 5);
    faults = faults_stop(faults);
    assert_string_equal(getenv("AWS_ENDPOINT_URL"), behind);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_faults)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
