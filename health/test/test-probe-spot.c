/* SPDX-License-Identifier: Apache-2.0 */
/* test-probe-spot.c - a fake endpoint that returns a cloud's notices, withdraws them, returns invalid answers, or
 * does not answer. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/test/testing.h"
#include "health/verdict.h"
#include "store/s3/test/testing-endpoint.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN "tokenAQ-_=="
#define NOTICE "{\"action\": \"terminate\", \"time\": \"2026-11-26T15:22:00Z\"}"
#define ADVICE "{\"noticeTime\": \"2026-11-26T15:00:00Z\"}"

/* The fake endpoint and its answers. NULL: 404; "": no answer at all; a text that begins with "HTTP/" is sent
 * unchanged. */
typedef struct Cloud {
    FakeEndpoint *endpoint;
    const char *token, *notice, *advice;
    atomic_uint asked;
    ProbeContext context;
    ProbeResult result;
} Cloud;

static bool answer(void *context, const EndpointRequest *request, char *ret, size_t size)
{
    Cloud *c = context;
    const char *says = NULL;
    atomic_fetch_add(&c->asked, 1);
    if (strcmp(request->path, "/latest/api/token") == 0)
        says = strcmp(request->method, "PUT") == 0 &&
                       endpoint_has_header(request, "X-aws-ec2-metadata-token-ttl-seconds: 60")
                   ? c->token
                   : NULL;
    else if (strcmp(request->method, "GET") != 0 ||
             !endpoint_has_header(request, "X-aws-ec2-metadata-token: " TOKEN))
        says = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";
    else if (strcmp(request->path, "/latest/meta-data/spot/instance-action") == 0)
        says = c->notice;
    else if (strcmp(request->path, "/latest/meta-data/events/recommendations/rebalance") == 0)
        says = c->advice;
    if (says && !*says)
        return false;
    if (says && strncmp(says, "HTTP/", 5) == 0)
        (void)snprintf(ret, size, "%s", says);
    else
        endpoint_reply(ret, size, says ? 200 : 404, 0, says ?: "");
    return true;
}

static void start(Cloud *c)
{
    *c = (Cloud){.token = TOKEN, .context = {.boot_id = "boot-1", .n_slots = 1, .probe_sec = 30}};
    c->endpoint = endpoint_start("127.0.0.1:0", answer, c);
    (void)snprintf(c->context.spot_endpoint, sizeof(c->context.spot_endpoint),
                   "http://127.0.0.1:%d", endpoint_port(c->endpoint));
}

static void stop(Cloud *c)
{
    endpoint_stop(c->endpoint);
    probe_result_clear(&c->result);
    probe_context_clear(&c->context);
}

/* Runs the probe once. Its state goes into the next run through JSON, as between daemon and child. */
static void look(Cloud *c)
{
    Error err = ERROR_INIT;
    _cleanup_free_ char *context = NULL, *result = NULL;
    ProbeContext given = {0};
    ProbeResult found = {0};
    assert_int_equal(probe_context_format(&c->context, &context), 0);
    assert_int_equal(probe_context_parse(context, strlen(context), &given, &err), 0);
    assert_int_equal(probe_spot.run(&given, &found, &err), 0);
    assert_int_equal(probe_result_format(&found, &result), 0);
    probe_result_clear(&found);
    probe_context_clear(&given);
    probe_result_clear(&c->result);
    assert_int_equal(probe_result_parse(result, strlen(result), &c->result, &err), 0);
    json_decref(c->context.state);
    c->context.state = json_incref(c->result.state);
}

static void expect_well(const Cloud *c, const char *note)
{
    if (c->result.n_findings > 0)
        fail_msg("found %s", c->result.findings[0].text);
    if (!strstr(c->result.note, note))
        fail_msg("\"%s\" is not in \"%s\"", note, c->result.note);
}

static void expect(const Cloud *c, FaultCode fault, const char *part)
{
    assert_int_equal(c->result.n_findings, 1);
    const ProbeFinding *f = &c->result.findings[0];
    assert_string_equal(fault_rule(f->fault)->name, fault_rule(fault)->name);
    if (!strstr(f->text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, f->text);
}

/* Makes the last run that saw the notice seem to be `seconds` ago. */
static void let_pass(Cloud *c, double seconds)
{
    double usec = 0;
    assert_true(probe_recall(c->context.state, "noticed_usec", &usec));
    (void)json_object_set_new(c->context.state, "noticed_usec", json_real(usec - seconds * 1e6));
}

/* ---- tests ---- */

static void test_nobody_is_asked_without_an_endpoint(_unused_ void **state)
{
    Cloud c;
    start(&c);
    c.notice = NOTICE;
    c.context.spot_endpoint[0] = '\0';
    look(&c);
    expect_well(&c, "no spot_endpoint");
    assert_int_equal(c.asked, 0);
    stop(&c);
}

/* A notice drains the node, and still counts until a reboot when the endpoint has just withdrawn it. */
static void test_notice_drains_until_a_reboot(_unused_ void **state)
{
    Cloud c;
    ProbeAnswer weighed = {0};
    start(&c);
    look(&c);
    expect_well(&c, "no notice");
    c.notice = NOTICE;
    look(&c);
    expect(&c, FAULT_SPOT_NOTICE, "takes this instance at 2026-11-26T15:22:00Z (terminate)");
    verdict_weigh(c.result.findings, 1, 1, &weighed);
    assert_int_equal(weighed.level, HEALTH_DRAIN);
    assert_non_null(strstr(fault_cure_text(weighed.cure), "a reboot"));

    c.notice = NULL;
    look(&c);
    expect(&c, FAULT_SPOT_NOTICE, "15:22:00Z");
    let_pass(&c, 890);
    look(&c);
    expect(&c, FAULT_SPOT_NOTICE, "15:22:00Z");
    (void)snprintf(c.context.boot_id, sizeof(c.context.boot_id), "boot-2");
    look(&c);
    expect_well(&c, "no notice");
    stop(&c);
}

/* An instance that was spared, or woken from hibernation, is used again after 15 minutes without the notice. Silence
 * of the endpoint does not count as time without the notice. */
static void test_notice_ends_when_it_was_denied_for_long(_unused_ void **state)
{
    Cloud c;
    start(&c);
    c.notice = NOTICE;
    look(&c);
    c.token = "HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n";
    c.notice = NULL;
    let_pass(&c, 100000);
    look(&c);
    expect(&c, FAULT_SPOT_NOTICE, "15:22:00Z");
    c.token = TOKEN;
    look(&c); /* the 15 minutes begin at the first answer without a notice */
    expect(&c, FAULT_SPOT_NOTICE, "15:22:00Z");
    let_pass(&c, 901);
    look(&c);
    expect_well(&c, "no notice");
    look(&c);
    expect_well(&c, "no notice");
    stop(&c);
}

static void test_recommendation_is_told(_unused_ void **state)
{
    Cloud c;
    start(&c);
    c.advice = ADVICE;
    look(&c);
    expect(&c, FAULT_SPOT_REBALANCE, "since 2026-11-26T15:00:00Z");
    assert_int_equal(fault_rule(FAULT_SPOT_REBALANCE)->level, HEALTH_SUSPECT);
    c.notice = "{\"action\": \"hibernate\"}";
    look(&c);
    expect(&c, FAULT_SPOT_NOTICE, "takes this instance (hibernate)");
    stop(&c);
}

/* Invalid answers never drain the node; twelve of them in a row are reported. */
static void test_what_is_no_answer(_unused_ void **state)
{
    char long_reply[6000];
    memset(long_reply, 'x', sizeof(long_reply) - 1);
    long_reply[sizeof(long_reply) - 1] = '\0';
    memcpy(long_reply, "{\"action\":\"", 11);
    memcpy(long_reply + sizeof(long_reply) - 3, "\"}", 2);
    const struct {
        const char *token, *notice, *part;
    } all[] = {
        {TOKEN, "<html>Sign in to the network</html>", "instance-action: "},
        {TOKEN, "{\"action\": \"term", "instance-action: "},
        {TOKEN, "{\"time\": \"2026-11-26T15:22:00Z\"}", "action: missing"},
        {TOKEN, "{\"action\": 1}", "action: expected a string"},
        {TOKEN, "[]", "instance-action: "},
        {TOKEN, long_reply, "instance-action: "},
        {TOKEN, "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", "it answers status 500"},
        {TOKEN, "HTTP/1.1 302 Found\r\nLocation: /latest/api/token\r\nContent-Length: 0\r\n\r\n",
         "it answers status 302"},
        {TOKEN, "HTTP/1.1 200 Ok\r\nContent-Length: 90\r\n\r\n{\"action\": \"stop\"}",
         "instance-action: "},
        {TOKEN, "no HTTP at all", "instance-action: "},
        {"", NULL, "api/token: "},
        {NULL, NULL, "asked for a token, it answers status 404"},
        {"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", NULL, "it answers status 403"},
        {"<html>", NULL, "what it gives is not a token"},
        {"HTTP/1.1 200 Ok\r\nContent-Length: 0\r\n\r\n", NULL, "what it gives is not a token"},
    };
    for (size_t i = 0; i < ELEMENTSOF(all); i++) {
        Cloud c;
        start(&c);
        c.context.probe_sec = 1; /* limits the wait for an endpoint that is silent */
        c.token = all[i].token;
        c.notice = all[i].notice && strncmp(all[i].notice, "no ", 3) == 0 ? "HTTP/nonsense"
                                                                          : all[i].notice;
        for (int k = 1; k < 12; k++) {
            look(&c);
            expect_well(&c, all[i].part);
            if (all[i].token && !*all[i].token)
                (void)json_object_set_new(c.context.state, "silences", json_real(k = 11));
        }
        look(&c);
        expect(&c, FAULT_SPOT_SILENT, "nobody knows of notices: ");
        expect(&c, FAULT_SPOT_SILENT, all[i].part);
        c.token = TOKEN;
        c.notice = NULL;
        c.context.probe_sec = 30;
        look(&c);
        expect_well(&c, "no notice");
        stop(&c);
    }
    assert_int_equal(fault_rule(FAULT_SPOT_SILENT)->level, HEALTH_SUSPECT);
}

/* The probe must end by itself before it is killed, since a probe that is killed twice isolates the node. A proxy in
 * the environment is not used for an address of this machine. */
static void test_silence_is_bounded(_unused_ void **state)
{
    Cloud c;
    start(&c);
    c.context.probe_sec = 1;
    c.notice = "";
    uint64_t began = clock_boottime_usec();
    look(&c);
    uint64_t took = clock_boottime_usec() - began;
    expect_well(&c, "instance-action: ");
    assert_true(took >= 400 * USEC_PER_MSEC && took < 20 * USEC_PER_SEC);
    c.context.probe_sec = 30;
    c.notice = NULL;
    (void)setenv("http_proxy", "http://127.0.0.1:1", 1);
    look(&c);
    (void)unsetenv("http_proxy");
    expect_well(&c, "no notice");
    stop(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody_is_asked_without_an_endpoint),
        cmocka_unit_test(test_notice_drains_until_a_reboot),
        cmocka_unit_test(test_notice_ends_when_it_was_denied_for_long),
        cmocka_unit_test(test_recommendation_is_told),
        cmocka_unit_test(test_what_is_no_answer),
        cmocka_unit_test(test_silence_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
