/* SPDX-License-Identifier: Apache-2.0 */
/* test-http.c - the error text of a request that reaches no server. Nothing listens at port 9 of this host. */
#include "base/test/testing.h"
#include "controller/alerting/http.h"

#include <stdlib.h>
#include <string.h>

static char failure[600];

static bool may_send(_unused_ void *userdata) { return true; }

static void on_reply(const HttpReply *reply, void *userdata)
{
    assert_int_equal(reply->status, 0);
    (void)snprintf(failure, sizeof(failure), "%s", reply->failure);
    (void)sd_event_exit(userdata, 0);
}

/* Returns the failure of a request to url; proxy is the sink's own proxy, or NULL. */
static const char *fail_to_post(const char *url, const char *proxy)
{
    sd_event *event = NULL;
    Http *http = NULL;
    HttpCall *call = NULL;
    const HttpRequest request = {.url = url,
                                 .body = "{}",
                                 .proxy = proxy,
                                 .timeout_usec = 20 * USEC_PER_SEC};
    assert_true(sd_event_new(&event) >= 0);
    assert_int_equal(http_new(event, may_send, NULL, &http), 0);
    assert_int_equal(http_post(http, &request, on_reply, event, &call), 0);
    assert_true(sd_event_loop(event) >= 0);
    (void)http_free(http); /* always returns NULL */
    (void)sd_event_unref(event);
    return failure;
}

static void test_proxy_of_the_environment_is_named(_unused_ void **state)
{
    static const char named[] = "through the proxy http://127.0.0.1:9 of http_proxy";
    (void)unsetenv("no_proxy");
    (void)unsetenv("NO_PROXY");
    (void)setenv("http_proxy", "http://me:secret@127.0.0.1:9", 1);
    const char *text = fail_to_post("http://sink.invalid/hook", NULL);
    assert_non_null(strstr(text, "127.0.0.1"));
    assert_non_null(strstr(text, named));
    assert_null(strstr(text, "secret"));
    /* The text does not name http_proxy if the sink has a proxy of its own, or if no_proxy names the host. */
    assert_null(
        strstr(fail_to_post("http://sink.invalid/hook", "http://127.0.0.1:9"), "http_proxy"));
    (void)setenv("no_proxy", "127.0.0.1", 1);
    assert_null(strstr(fail_to_post("http://127.0.0.1:9/hook", NULL), "http_proxy"));
    (void)unsetenv("no_proxy");
    (void)unsetenv("http_proxy");
    assert_null(strstr(fail_to_post("http://127.0.0.1:9/hook", NULL), "proxy"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_proxy_of_the_environment_is_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
