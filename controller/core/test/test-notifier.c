/* SPDX-License-Identifier: Apache-2.0 */
/* test-notifier.c - the behaviour of the notifier, in scenarios. */
#include "controller/core/test/testing-notifier.h"

#include <string.h>

static const NotifierSink pager = {.name = "pager", .least = SEVERITY_CRITICAL};
static const NotifierSink hook = {.name = "hook", .least = SEVERITY_INFO};

static Lab *lab_with(NotifierSink sink)
{
    Lab *lab = lab_new(&sink, 1);
    lead(lab, 5);
    return lab;
}

/* ---- scenarios ---- */

static void a_page_is_opened_and_resolved(void **state)
{
    (void)state;
    Lab *lab = lab_with(pager);
    put_incident(lab, "a-1", SEVERITY_CRITICAL, false);
    EXPECT(lab, "store a-1 term 5: pager sending critical\n"
                "trigger to pager: critical a-1\n");
    answer(lab, "pager", "a-1", ACCEPTED);
    EXPECT(lab, "store a-1 term 5: pager triggered critical\n");
    pass(lab, 3600);
    EXPECT(lab, "");
    put_incident(lab, "a-1", SEVERITY_CRITICAL, true);
    EXPECT(lab, "resolve to pager: critical a-1\n");
    answer(lab, "pager", "a-1", ACCEPTED);
    EXPECT(lab, "store a-1 term 5: pager resolved critical settled\n");
    lab_free(lab);
}

static void who_recovers_alone_wakes_nobody(void **state)
{
    (void)state;
    NotifierSink sinks[] = {pager, hook};
    Lab *lab = lab_new(sinks, 2);
    lead(lab, 5);
    put_incident(lab, "a-1", SEVERITY_INFO, false);
    EXPECT(lab, "store a-1 term 5: hook sending info\n"
                "trigger to hook: info a-1\n");
    answer(lab, "hook", "a-1", ACCEPTED);
    put_incident(lab, "a-1", SEVERITY_INFO, true);
    answer(lab, "hook", "a-1", ACCEPTED);
    EXPECT(lab, "store a-1 term 5: hook triggered info\n"
                "resolve to hook: info a-1\n"
                "store a-1 term 5: hook resolved info settled\n");
    lab_free(lab);
}

static void what_becomes_critical_is_told_again(void **state)
{
    (void)state;
    NotifierSink sinks[] = {pager, hook};
    Lab *lab = lab_new(sinks, 2);
    lead(lab, 5);
    put_incident(lab, "a-1", SEVERITY_WARNING, false);
    answer(lab, "hook", "a-1", ACCEPTED);
    EXPECT(lab, "store a-1 term 5: hook sending warning\n"
                "trigger to hook: warning a-1\n"
                "store a-1 term 5: hook triggered warning\n");
    put_incident(lab, "a-1", SEVERITY_CRITICAL, false);
    EXPECT(lab, "store a-1 term 5: hook triggered warning, pager sending critical\n"
                "trigger to pager: critical a-1\n"
                "trigger to hook: critical a-1, told as warning\n");
    answer(lab, "pager", "a-1", ACCEPTED);
    EXPECT(lab, "store a-1 term 5: hook triggered warning, pager triggered critical\n");
    answer(lab, "hook", "a-1", ACCEPTED);
    EXPECT(lab, "store a-1 term 5: hook triggered critical, pager triggered critical\n");
    lab_free(lab);
}

static void without_sinks_only_the_end_is_marked(void **state)
{
    (void)state;
    Lab *lab = lab_new(&pager, 0);
    lead(lab, 5);
    put_incident(lab, "a-1", SEVERITY_CRITICAL, false);
    EXPECT(lab, "");
    put_incident(lab, "a-1", SEVERITY_CRITICAL, true);
    EXPECT(lab, "store a-1 term 5: settled\n");
    lab_free(lab);
}

static void a_failing_sink_is_tried_less_and_less(void **state)
{
    (void)state;
    Lab *lab = lab_with(pager);
    put_incident(lab, "a-1", SEVERITY_CRITICAL, false);
    forget(lab);
    answer(lab, "pager", "a-1", AGAIN());
    EXPECT(lab, "store a-1 term 5: pager sending critical after 1: HTTP 500\n");
    pass(lab, 0.9);
    EXPECT(lab, "");
    pass(lab, 0.2);
    EXPECT(lab, "trigger to pager: critical a-1\n");
    answer(lab, "pager", "a-1", AGAIN());
    EXPECT(lab, "store a-1 term 5: pager sending critical after 2: HTTP 500\n");
    pass(lab, 1.8);
    EXPECT(lab, "");
    pass(lab, 0.2);
    EXPECT(lab, "trigger to pager: critical a-1\n");
    for (int i = 3; i < 30; i++) {
        answer(lab, "pager", "a-1", AGAIN());
        pass(lab, 300); /* the pause is never longer than 300 s */
    }
    forget(lab);
    answer(lab, "pager", "a-1", ACCEPTED);
    EXPECT(lab, "store a-1 term 5: pager triggered critical\n");
    lab_free(lab);
}

static void jitter_spreads_the_tries(void **state)
{
    (void)state;
    Lab *lab = lab_with(pager);
    put_incident(lab, "a-1", SEVERITY_CRITICAL, false);
    lab->random = UINT32_MAX / 4;
    answer(lab, "pager", "a-1", AGAIN());
    assert_true(lab->wake > lab->now + SEC / 5 && lab->wake < lab->now + SEC * 3 / 10);
    lab->random = 0;
    pass(lab, 0.3);
    answer(lab, "pager", "a-1", AGAIN());
    EXPECT(lab, "store a-1 term 5: pager sending critical\n"
                "trigger to pager: critical a-1\n"
                "store a-1 term 5: pager sending critical after 1: HTTP 500\n"
                "trigger to pager: critical a-1\n"
                "store a-1 term 5: pager sending critical after 2: HTTP 500\n"
                "trigger to pager: critical a-1\n");
    lab_free(lab);
}

static void a_sink_that_asks_for_silence_gets_it(void **state)
{
    (void)state;
    Lab *lab = lab_with(pager);
    put_incident(lab, "a-1", SEVERITY_CRITICAL, false);
    forget(lab);
    answer(lab, "pager", "a-1", AGAIN(.pause_usec = 30 * SEC));
    EXPECT(lab, "store a-1 term 5: pager sending critical after 1: HTTP 500\n");
    put_incident(lab, "b-1", SEVERITY_CRITICAL, false);
    EXPECT(lab, "store b-1 term 5: pager sending critical\n");
    pass(lab, 29.9);
    EXPECT(lab, "");
    pass(lab, 0.2);
    EXPECT(lab, "trigger to pager: critical a-1\n"
                "trigger to pager: critical b-1\n");
    lab_free(lab);
}

static void a_sink_that_refuses_is_tried_slowly_while_it_matters(void **state)
{
    (void)state;
    Lab *lab = lab_with(pager);
    put_incident(lab, "a-1", SEVERITY_CRITICAL, false);
    forget(lab);
    answer(lab, "pager", "a-1", REFUSED);
    EXPECT(lab, "store a-1 term 5: pager failed critical after 1: HTTP 400\n");
    SinkCounts counts;
    notifier_count(lab->notifier, 0, &counts);
    assert_int_equal(counts.refused, 1);
    assert_int_equal(counts.waiting, 1);
    assert_int_equal(counts.failing, 1);
    pass(lab, 299);
    EXPECT(lab, "");
    pass(lab, 2);
    EXPECT(lab, "trigger to pager: critical a-1\n");
    notifier_configure(lab->notifier,
                       &lab->config); /* a reload, as after a correction of the sink's key */
    memset(lab->sent, 0, sizeof(lab->sent));
    run(lab);
    answer(lab, "pager", "a-1", REFUSED);
    EXPECT(lab, "trigger to pager: critical a-1\n"
                "store a-1 term 5: pager failed critical after 2: HTTP 400\n");
    put_incident(lab, "a-1", SEVERITY_CRITICAL, true);
    EXPECT(lab, "store a-1 term 5: pager failed critical after 2: HTTP 400 settled\n");
    lab_free(lab);
}

static void what_was_over_before_it_was_told_is_told_all_the_same(void **state)
{
    (void)state;
    Lab *lab = lab_with(pager);
    put_incident(lab, "a-1", SEVERITY_CRITICAL, false);
    forget(lab);
    answer(lab, "pager", "a-1", AGAIN(.pause_usec = 60 * SEC));
    put_incident(lab, "a-1", SEVERITY_CRITICAL, true);
    EXPECT(lab, "store a-1 term 5: pager sending critical after 1: HTTP 500\n");
    pass(lab, 61);
    EXPECT(lab, "trigger to pager: critical a-1\n");
    answer(lab, "pager", "a-1", ACCEPTED);
    EXPECT(lab, "store a-1 term 5: pager triggered critical\n"
                "resolve to pager: critical a-1\n");
    lab_free(lab);
}

static void what_was_over_long_ago_is_given_up(void **state)
{
    (void)state;
    Lab *lab = lab_with(pager);
    put_incident(lab, "a-1", SEVERITY_CRITICAL, false);
    put_incident(lab, "a-1", SEVERITY_CRITICAL, true);
    while (lab->now < EPOCH + 3600 * SEC) {
        answer(lab, "pager", "a-1", AGAIN());
        pass(lab, 300);
    }
    forget(lab);
    answer(lab, "pager", "a-1", AGAIN());
    EXPECT(lab, "store a-1 term 5: pager failed critical after 13: HTTP 500 settled\n");
    pass(lab, 3600);
    EXPECT(lab, "");
    lab->now = EPOCH + 10000 * SEC;
    IncidentRecord old = {.id = "b-1",
                          .state = INCIDENT_RESOLVED,
                          .severity = SEVERITY_CRITICAL,
                          .at_usec = EPOCH,
                          .resolved_usec = EPOCH + SEC};
    feed(lab, EVENT_INCIDENT, "b-1", &old); /* the incident ended long before this leader saw it */
    run(lab);
    EXPECT(lab, "store b-1 term 5: settled\n");
    lab_free(lab);
}

static void a_stalled_sink_delays_no_other(void **state)
{
    (void)state;
    NotifierSink sinks[] = {pager, hook};
    Lab *lab = lab_new(sinks, 2);
    lead(lab, 5);
    for (int i = 0; i < 6; i++) {
        char id[8];
        (void)snprintf(id, sizeof(id), "a-%d", i);
        put_incident(lab, id, SEVERITY_CRITICAL, false);
        answer(lab, "hook", id, ACCEPTED);
    }
    int to_pager = 0;
    for (int i = 0; i < LAB_SENDS_MAX; i++)
        to_pager += lab->sent[i].id && lab->sent[i].sink == 0;
    assert_int_equal(to_pager, 4); /* at most four messages to a sink are under way */
    forget(lab);
    answer(lab, "pager", "a-0", AGAIN());
    answer(lab, "pager", "a-1", AGAIN());
    assert_non_null(strstr(lab->log, "trigger to pager: critical a-4\n"));
    lab_free(lab);
}

static void nothing_is_told_before_the_intent_is_stored(void **state)
{
    (void)state;
    Lab *lab = lab_with(pager);
    lab->outcome = OUTCOME_REFUSED; /* the leader's view of the store was old */
    put_incident(lab, "a-1", SEVERITY_CRITICAL, false);
    EXPECT(lab, "store a-1 term 5: pager sending critical - not done\n"
                "store a-1 term 5: pager sending critical\n"
                "trigger to pager: critical a-1\n");
    lab_free(lab);
}

static void nothing_is_resolved_before_the_trigger_is_stored(void **state)
{
    (void)state;
    Lab *lab = lab_with(pager);
    put_incident(lab, "a-1", SEVERITY_CRITICAL, false);
    put_incident(lab, "a-1", SEVERITY_CRITICAL, true);
    forget(lab);
    lab->outcome = OUTCOME_UNKNOWN;
    answer(lab, "pager", "a-1", ACCEPTED);
    EXPECT(lab, "store a-1 term 5: pager triggered critical - not done\n"
                "store a-1 term 5: pager triggered critical\n"
                "resolve to pager: critical a-1\n");
    lab_free(lab);
}

static void the_next_leader_goes_on(void **state)
{
    (void)state;
    Lab *lab = lab_with(pager);
    put_incident(lab, "a-1", SEVERITY_CRITICAL, false);
    put_incident(lab, "b-1", SEVERITY_CRITICAL, false);
    answer(lab, "pager", "b-1", ACCEPTED);
    forget(lab);
    lead(lab, 0);
    put_incident(lab, "b-1", SEVERITY_CRITICAL, true);
    EXPECT(lab, "");
    lead(lab, 9); /* a-1 may have arrived: it is sent again, under the same key */
    EXPECT(lab, "store a-1 term 9: pager sending critical\n"
                "store b-1 term 9: pager triggered critical\n"
                "trigger to pager: critical a-1\n");
    pass(lab, 9);
    EXPECT(lab, ""); /* messages of the last leader may still be under way */
    pass(lab, 1.1);
    EXPECT(lab, "resolve to pager: critical b-1\n");
    lab_free(lab);
}

static void who_may_not_lead_any_more_is_silent(void **state)
{
    (void)state;
    Lab *lab = lab_with(pager);
    lab->lease = lab->now + SEC;
    lab->now += 2 * SEC;
    put_incident(lab, "a-1", SEVERITY_CRITICAL, false);
    EXPECT(lab, "");
    lab->lease = lab->now + 10 * SEC;
    pass(lab, 1);
    EXPECT(lab, "store a-1 term 5: pager sending critical\n"
                "trigger to pager: critical a-1\n");
    lab_free(lab);
}

static void open_pages_are_repeated_where_silence_means_the_end(void **state)
{
    (void)state;
    NotifierSink alertmanager = {.name = "am", .repeat_usec = 60 * SEC};
    Lab *lab = lab_with(alertmanager);
    put_incident(lab, "a-1", SEVERITY_INFO, false);
    answer(lab, "am", "a-1", ACCEPTED);
    forget(lab);
    pass(lab, 61);
    EXPECT(lab, "trigger to am: info a-1\n");
    answer(lab, "am", "a-1", ACCEPTED);
    EXPECT(lab, ""); /* nothing has changed, so nothing is stored */
    lead(lab, 9);
    EXPECT(lab, "store a-1 term 9: am triggered info\n"
                "trigger to am: info a-1\n");
    lab_free(lab);
}

static void signs_of_life_come_from_the_leader_alone(void **state)
{
    (void)state;
    NotifierSink dead_man = {.name = "dead-man",
                             .heartbeat_only = true,
                             .heartbeat_usec = 30 * SEC};
    Lab *lab = lab_with(dead_man);
    EXPECT(lab, "beat to dead-man\n");
    put_incident(lab, "a-1", SEVERITY_CRITICAL, false);
    EXPECT(lab, "");
    answer(lab, "dead-man", "-", ACCEPTED);
    pass(lab, 31);
    EXPECT(lab, "beat to dead-man\n");
    answer(lab, "dead-man", "-", AGAIN());
    pass(lab, 1.1);
    EXPECT(lab, "beat to dead-man\n");
    lead(lab, 0);
    pass(lab, 100);
    EXPECT(lab, "");
    lab_free(lab);
}

static void put_test(Lab *lab, const char *target, uint64_t age_usec)
{
    RequestRecord q = {.id = "7", .kind = "alerts-test", .at_usec = lab->now - age_usec};
    (void)snprintf(q.target, sizeof(q.target), "%s", target);
    feed(lab, EVENT_REQUEST, "7", &q);
    run(lab);
}

static void a_test_goes_through_every_sink_once(void **state)
{
    (void)state;
    NotifierSink sinks[] = {
        pager, hook, {.name = "dead-man", .heartbeat_only = true, .heartbeat_usec = 3600 * SEC}};
    Lab *lab = lab_new(sinks, 3);
    lead(lab, 5);
    answer(lab, "dead-man", "-", ACCEPTED);
    forget(lab);
    put_test(lab, "", 0);
    EXPECT(lab, "trigger to pager: critical test-7\n"
                "trigger to hook: critical test-7\n"
                "beat to dead-man: critical test-7\n");
    answer(lab, "pager", "test-7", ACCEPTED);
    EXPECT(lab, "resolve to pager: critical test-7\n");
    answer(lab, "pager", "test-7", ACCEPTED);
    answer(lab, "hook", "test-7", REFUSED);
    EXPECT(lab, "");
    answer(lab, "dead-man", "test-7", ACCEPTED);
    EXPECT(lab, "answer 7 \"2 of 3 sinks accepted\": pager resolved critical, "
                "hook failed critical after 1: HTTP 400, dead-man resolved critical\n");
    pass(lab, 600);
    EXPECT(lab, "");
    put_test(lab, "hook", 0);
    EXPECT(lab, "trigger to hook: critical test-7\n");
    lead(lab, 9); /* the user of the test still waits */
    EXPECT(lab, "trigger to hook: critical test-7\n"
                "beat to dead-man\n");
    lab_free(lab);
}

static void tests_that_cannot_be_made_are_answered(void **state)
{
    (void)state;
    NotifierSink sinks[] = {pager};
    Lab *lab = lab_new(sinks, 1);
    lead(lab, 5);
    put_test(lab, "siren", 0);
    EXPECT(lab, "answer 7 \"refused: the leader's alerts_file names no sink siren\":\n");
    put_test(lab, "", 600 * SEC);
    EXPECT(lab, "answer 7 \"0 of 1 sink accepted\": pager failed critical\n");
    lab->config.n_sinks = 0;
    notifier_configure(lab->notifier, &lab->config);
    put_test(lab, "", 0);
    EXPECT(lab, "answer 7 \"refused: the leader's alerts_file names no sink\":\n");
    lab_free(lab);
}

static void an_incident_that_somebody_removed_is_over(void **state)
{
    (void)state;
    Lab *lab = lab_with(pager);
    put_incident(lab, "a-1", SEVERITY_CRITICAL, false);
    answer(lab, "pager", "a-1", ACCEPTED);
    forget(lab);
    feed(lab, EVENT_INCIDENT, "a-1", NULL);
    run(lab);
    answer(lab, "pager", "a-1", ACCEPTED);
    EXPECT(lab, "resolve to pager: critical a-1\n"
                "store a-1 term 5: pager resolved critical settled\n"
                "remove a-1\n");
    lab_free(lab);
}

static void an_id_that_comes_again_is_another_incident(void **state)
{
    (void)state;
    Lab *lab = lab_with(pager);
    put_incident(lab, "a-1", SEVERITY_CRITICAL, true);
    answer(lab, "pager", "a-1", ACCEPTED);
    answer(lab, "pager", "a-1", ACCEPTED);
    forget(lab);
    IncidentRecord again = {.id = "a-1", .severity = SEVERITY_CRITICAL, .at_usec = EPOCH + SEC};
    feed(lab, EVENT_INCIDENT, "a-1", &again);
    run(lab);
    EXPECT(lab, "store a-1 term 5: pager sending critical\n"
                "trigger to pager: critical a-1\n");
    char key[DEDUP_KEY_BYTES];
    assert_string_equal(notifier_dedup_key("c", &again, key), "c/a-1/1000001");
    lab_free(lab);
}

static void sinks_come_and_go(void **state)
{
    (void)state;
    Lab *lab = lab_with(pager);
    put_incident(lab, "a-1", SEVERITY_CRITICAL, false);
    answer(lab, "pager", "a-1", ACCEPTED);
    forget(lab);
    lab->config.sinks[0] = hook;
    notifier_configure(lab->notifier, &lab->config);
    run(lab);
    answer(lab, "hook", "a-1", ACCEPTED);
    put_incident(lab, "a-1", SEVERITY_CRITICAL, true);
    answer(lab, "hook", "a-1", ACCEPTED);
    EXPECT(lab, "store a-1 term 5: pager triggered critical, hook sending critical\n"
                "trigger to hook: critical a-1\n"
                "store a-1 term 5: pager triggered critical, hook triggered critical\n"
                "resolve to hook: critical a-1\n"
                "store a-1 term 5: pager triggered critical, hook resolved critical\n");
    lab->config.sinks[1] = pager; /* the pager is configured again: its page is resolved, too */
    lab->config.n_sinks = 2;
    notifier_configure(lab->notifier, &lab->config);
    run(lab);
    answer(lab, "pager", "a-1", ACCEPTED);
    EXPECT(lab, "resolve to pager: critical a-1\n"
                "store a-1 term 5: pager resolved critical, hook resolved critical settled\n");
    lab_free(lab);
}

static void put_alert_of(Lab *lab, int64_t term, const char *id)
{
    AlertRecord alert = {.term = term, .incident_usec = EPOCH, .n_deliveries = 1};
    alert.deliveries[0] = (Delivery){.state = DELIVERY_SENDING, .severity = SEVERITY_CRITICAL};
    (void)snprintf(alert.deliveries[0].sink, sizeof(alert.deliveries[0].sink), "pager");
    feed(lab, EVENT_ALERT, id, &alert);
}

static void a_mark_without_its_incident_tells_nothing(void **state)
{
    (void)state;
    Lab *lab = lab_with(pager);
    put_alert_of(lab, 4, "a-1");
    run(lab);
    EXPECT(lab, "");
    put_incident(lab, "a-1", SEVERITY_CRITICAL, false);
    EXPECT(lab, "store a-1 term 5: pager sending critical\n"
                "trigger to pager: critical a-1\n");
    lab_free(lab);
}

/* While the greatest number of writes is under way, the incidents that the predecessor left are not sent. */
static void what_waits_for_its_write_is_not_told(void **state)
{
    (void)state;
    NotifierAction action;
    Lab *lab = lab_with(pager);
    lab->config.stores = 1;
    notifier_configure(lab->notifier, &lab->config);
    put_alert_of(lab, 4, "a-1");
    put_alert_of(lab, 4, "b-1");
    IncidentRecord incident = {.severity = SEVERITY_CRITICAL, .at_usec = EPOCH, .rank = -1};
    feed(lab, EVENT_INCIDENT, "a-1", &incident);
    feed(lab, EVENT_INCIDENT, "b-1", &incident);
    notifier_next(lab->notifier, lab->now, lab->now, lab->lease, &action);
    assert_int_equal(action.kind, NOTIFIER_STORE_ALERT);
    notifier_next(lab->notifier, lab->now, lab->now, lab->lease, &action);
    assert_int_equal(action.kind, NOTIFIER_REST);
    lab_free(lab);
}

static void what_is_told_waits_for_nothing(void **state)
{
    (void)state;
    Lab *lab = lab_with(pager);
    SinkCounts counts;
    put_incident(lab, "a-1", SEVERITY_CRITICAL, false);
    notifier_count(lab->notifier, 0, &counts);
    assert_int_equal(counts.waiting, 1);
    answer(lab, "pager", "a-1", ACCEPTED);
    notifier_count(lab->notifier, 0, &counts);
    assert_int_equal(counts.waiting, 0); /* the incident is open, and no message is due */
    put_incident(lab, "a-1", SEVERITY_CRITICAL, true);
    notifier_count(lab->notifier, 0, &counts);
    assert_int_equal(counts.waiting, 1); /* the message about the incident's end is due */
    lab_free(lab);
}

static void what_ended_long_ago_is_told_no_more(void **state)
{
    (void)state;
    Lab *lab = lab_with(pager);
    const double late_sec = (double)lab->config.late_usec / 1e6;
    put_incident(lab, "a-1", SEVERITY_CRITICAL, true);
    forget(lab);
    answer(lab, "pager", "a-1", AGAIN(.pause_usec = 2 * lab->config.late_usec));
    EXPECT(lab, "store a-1 term 5: pager sending critical after 1: HTTP 500\n");
    pass(lab, late_sec - 1);
    EXPECT(lab, "");
    pass(lab, 2);
    EXPECT(lab, "store a-1 term 5: pager failed critical after 1: HTTP 500 settled\n");
    lab_free(lab);
}

/* An alert has room for twelve sinks. The thirteenth takes the place of a sink that is no longer configured. */
static void a_sink_that_is_gone_gives_its_place_away(void **state)
{
    (void)state;
    Lab *lab = lab_with(pager);
    put_incident(lab, "a-1", SEVERITY_CRITICAL, false);
    answer(lab, "pager", "a-1", ACCEPTED);
    for (int i = 1; i <= RECORD_DELIVERIES_MAX; i++) {
        char *name = lab->config.sinks[1].name;
        lab->config.n_sinks = 2; /* the pager stays configured */
        (void)snprintf(name, sizeof(lab->config.sinks[1].name), "sink%d", i);
        lab->config.sinks[1].least = SEVERITY_INFO;
        notifier_configure(lab->notifier, &lab->config);
        forget(lab);
        run(lab);
        answer(lab, name, "a-1", ACCEPTED);
    }
    assert_non_null(strstr(lab->log, ": pager triggered critical, sink1 triggered critical, "));
    assert_non_null(strstr(lab->log, ", sink10 triggered critical, sink12 triggered critical\n"));
    assert_null(strstr(lab->log, "sink11"));
    lab_free(lab);
}

static void incidents_beyond_its_places_are_counted(void **state)
{
    (void)state;
    Lab *lab = lab_new(NULL, 0);
    char id[16];
    lead(lab, 5);
    for (int i = 0; i <= LAB_PAGES; i++) {
        assert_int_equal(notifier_dropped(lab->notifier), 0);
        (void)snprintf(id, sizeof(id), "a-%d", i);
        put_incident(lab, id, SEVERITY_CRITICAL, false);
    }
    assert_int_equal(notifier_dropped(lab->notifier), 1);
    lab_free(lab);
}

/* A test ends with the write of its answer, even before the watch shows the record. */
static void a_test_ends_with_its_answer(void **state)
{
    (void)state;
    NotifierAction action;
    Lab *lab = lab_new(&pager, 1);
    RequestRecord q = {.id = "7", .kind = "alerts-test", .at_usec = lab->now, .target = "siren"};
    lead(lab, 5);
    feed(lab, EVENT_REQUEST, "7", &q);
    notifier_next(lab->notifier, lab->now, lab->now, lab->lease, &action);
    assert_non_null(action.request);
    notifier_stored(lab->notifier, action.id, OUTCOME_DONE, lab->revision + 1);
    notifier_next(lab->notifier, lab->now, lab->now, lab->lease, &action);
    assert_int_equal(action.kind, NOTIFIER_REST);
    lab_free(lab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_is_opened_and_resolved),
        cmocka_unit_test(who_recovers_alone_wakes_nobody),
        cmocka_unit_test(what_becomes_critical_is_told_again),
        cmocka_unit_test(without_sinks_only_the_end_is_marked),
        cmocka_unit_test(a_failing_sink_is_tried_less_and_less),
        cmocka_unit_test(jitter_spreads_the_tries),
        cmocka_unit_test(a_sink_that_asks_for_silence_gets_it),
        cmocka_unit_test(a_sink_that_refuses_is_tried_slowly_while_it_matters),
        cmocka_unit_test(what_was_over_before_it_was_told_is_told_all_the_same),
        cmocka_unit_test(what_was_over_long_ago_is_given_up),
        cmocka_unit_test(a_stalled_sink_delays_no_other),
        cmocka_unit_test(nothing_is_told_before_the_intent_is_stored),
        cmocka_unit_test(nothing_is_resolved_before_the_trigger_is_stored),
        cmocka_unit_test(the_next_leader_goes_on),
        cmocka_unit_test(who_may_not_lead_any_more_is_silent),
        cmocka_unit_test(open_pages_are_repeated_where_silence_means_the_end),
        cmocka_unit_test(signs_of_life_come_from_the_leader_alone),
        cmocka_unit_test(a_test_goes_through_every_sink_once),
        cmocka_unit_test(tests_that_cannot_be_made_are_answered),
        cmocka_unit_test(an_incident_that_somebody_removed_is_over),
        cmocka_unit_test(an_id_that_comes_again_is_another_incident),
        cmocka_unit_test(sinks_come_and_go),
        cmocka_unit_test(a_mark_without_its_incident_tells_nothing),
        cmocka_unit_test(what_waits_for_its_write_is_not_told),
        cmocka_unit_test(what_is_told_waits_for_nothing),
        cmocka_unit_test(what_ended_long_ago_is_told_no_more),
        cmocka_unit_test(a_sink_that_is_gone_gives_its_place_away),
        cmocka_unit_test(incidents_beyond_its_places_are_counted),
        cmocka_unit_test(a_test_ends_with_its_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
