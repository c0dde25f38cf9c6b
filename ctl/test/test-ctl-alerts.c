/* SPDX-License-Identifier: Apache-2.0 */
/* test-ctl-alerts.c - `sdctl alerts list` and `test`, and the sinks in cluster status. The test plays the leader. */
#include "base/clock.h"
#include "base/test/testing.h"
#include "ctl/test/testing-ctl.h"

#include <string.h>

static void put_page(CtlLab *lab, bool settled)
{
    uint64_t at = clock_realtime_usec() - 61 * USEC_PER_SEC;
    IncidentRecord incident = {.id = "a-3",
                               .state = settled ? INCIDENT_RESOLVED : INCIDENT_OPEN,
                               .severity = SEVERITY_CRITICAL,
                               .cause = "node-lost",
                               .node = "n3",
                               .evidence = "its lease ran out",
                               .at_usec = at};
    AlertRecord alert = {.id = "a-3",
                         .incident_usec = at,
                         .term = 5,
                         .settled = settled,
                         .deliveries = {{.sink = "pager", .state = DELIVERY_TRIGGERED},
                                        {.sink = "hook",
                                         .state = DELIVERY_FAILED,
                                         .attempts = 3,
                                         .text = "HTTP 403"}},
                         .n_deliveries = 2};
    CTL_PUT(lab, KEY_INCIDENTS, "a-3", incident_record, incident);
    CTL_PUT(lab, KEY_ALERTS, "a-3", alert_record, alert);
}

static void the_list_shows_how_far_each_sink_is(void **state)
{
    CtlLab *lab = *state;
    put_page(lab, false);
    assert_int_equal(ctl_run(lab, "alerts list"), 0);
    assert_contains(lab->out, "a-3: critical, open since 1 min ");
    assert_contains(lab->out,
                    ": node-lost on n3: its lease ran out\n  pager                triggered");
    assert_contains(lab->out, "3 in vain, last: HTTP 403\n");
    assert_int_equal(ctl_run(lab, "alerts list -o json"), 0);
    json_t *list = ctl_json(lab), *one = json_array_get(list, 0);
    assert_int_equal(json_array_size(list), 1);
    assert_string_equal(json_string_value(json_object_get(one, "incident")), "a-3");
    assert_int_equal(json_array_size(json_object_get(one, "sinks")), 2);
    json_decref(list);
    assert_int_equal(ctl_run(lab, "cluster status"), 0);
    assert_contains(lab->out,
                    "sink hook has not taken the page of incident a-3 in 3 tries: HTTP 403");

    put_page(lab, true);
    assert_int_equal(ctl_run(lab, "alerts list"), 0);
    assert_contains(lab->out, "no incident is open");
    assert_int_equal(ctl_run(lab, "cluster status"), 0);
    assert_null(strstr(lab->out, "sink"));
}

static void answer_request(CtlLab *lab, DeliveryState hook)
{
    char id[64];
    _cleanup_free_ char *text = ctl_wait_any(lab, KEY_REQUESTS, id, sizeof(id));
    assert_contains(text, "\"kind\":\"alerts-test\"");
    RequestRecord q = {.kind = "alerts-test",
                       .answer = "the leader's words",
                       .deliveries = {{.sink = "pager", .state = DELIVERY_RESOLVED},
                                      {.sink = "hook", .state = hook, .text = "HTTP 403"}},
                       .n_deliveries = 2};
    (void)snprintf(q.id, sizeof(q.id), "%.39s", id);
    CTL_PUT(lab, KEY_REQUESTS, id, request_record, q);
}

static void a_test_waits_for_what_the_sinks_said(void **state)
{
    CtlLab *lab = *state;
    ctl_begin(lab, "alerts test");
    answer_request(lab, DELIVERY_RESOLVED);
    assert_int_equal(ctl_finish(lab), 0);
    assert_string_equal(lab->out, "pager                accepted\n"
                                  "hook                 accepted\n"
                                  "the leader's words\n");
    testing_etcd_ctl(lab->server, "del", "--prefix", "/sdtrain/lab/requests/", NULL);

    ctl_begin(lab, "alerts test --sink hook");
    answer_request(lab, DELIVERY_FAILED);
    assert_int_equal(ctl_finish(lab), 1);
    assert_contains(lab->out, "hook                 FAILED: HTTP 403\n");

    assert_int_equal(ctl_run(lab, "alerts test --timeout 0.1"), 4);
    assert_string_equal(lab->err, "sdctl: no leader has answered within 0.1 s\n");
    assert_int_equal(ctl_run(lab, "alerts test --sink a-name-that-no-sink-can-have-at-all"), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_list_shows_how_far_each_sink_is),
        cmocka_unit_test(a_test_waits_for_what_the_sinks_said),
    };
    return cmocka_run_group_tests(tests, ctl_setup, ctl_teardown);
}
