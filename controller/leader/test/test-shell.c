/* SPDX-License-Identifier: Apache-2.0 */
/* test-shell.c - the leader's shell with nothing real around it: etcd, the loop and the clock are those of
 * testing-memory.h. So the shell may also run in a simulator, and here answers are lost and the watch is late at any
 * moment. */
#include "base/memory.h"
#include "controller/core/step/survey.h"
#include "controller/leader/test/testing-shell.h"

#include <string.h>

/* ---- cases ---- */

static void a_leader_reads_decides_and_writes(_unused_ void **state)
{
    put_node("n1");
    win_election(enter_election());
    assert_int_equal(told.n_leads, 0); /* the leader has not read the cluster yet */
    list_again(&etcd);
    assert_int_equal(told.n_loaded, 1);
    assert_int_equal(told.n_leads, 1);
    put_node("n2");
    put_job("a");
    settle();
    assert_int_equal(generation(), 1);
    assert_int_equal(told.n_answers[OUTCOME_REFUSED] + told.n_answers[OUTCOME_UNKNOWN], 0);
    list_again(&etcd);
    assert_int_equal(told.n_loaded, 1);
    put_node("new");
    settle();
    assert_int_equal(told.n_stalled, 0);
}

/* The reports of many nodes that arrive at once are decided together. */
static void what_comes_at_once_is_decided_upon_at_once(_unused_ void **state)
{
    begin();
    settle();
    pass(USEC_PER_SEC);
    const int before = told.n_ticks;
    for (int i = 3; i < 7; i++) {
        put_node((char[]){'n', (char)('0' + i), '\0'});
        (void)show_one(&etcd, NULL);
    }
    assert_in_range(told.n_ticks - before, 1,
                    2); /* a tick for the first node; the core may want a second one */
    const int early = told.n_ticks;
    pass(5 * USEC_PER_MSEC);
    assert_true(told.n_ticks > early);
}

/* The core decides until there is nothing more to decide, without another turn of the loop. */
static void all_that_can_be_decided_is(_unused_ void **state)
{
    begin_two();
    etcd.n_begun[CALL_TXN] = 0;
    list_again(&etcd); /* shows both changes at once */
    assert_int_equal(etcd.n_begun[CALL_TXN], 2);
    settle();
}

/* Two decisions have no answer, and each causes a read: the read that ends last may be the older one. */
static void an_older_read_takes_nothing_away(_unused_ void **state)
{
    char key[KEY_MAX];
    begin_two();
    show(&etcd);
    pass(5 * USEC_PER_MSEC);
    EtcdCall *second = newest_call(&etcd, CALL_TXN);
    answer(oldest_call(&etcd, CALL_TXN), LOST_BEFORE);
    pass(USEC_PER_SEC);
    EtcdCall *older = oldest_call(&etcd, CALL_READ);
    take_snapshot(older);
    cordon("n1");
    answer(second, LOST_BEFORE);
    pass(USEC_PER_SEC);
    EtcdCall *newer = newest_call(&etcd, CALL_READ);
    assert_ptr_not_equal(newer, older);
    answer(newer, GIVEN);
    assert_true(is_cordoned("n1"));
    answer(older, GIVEN);
    assert_true(is_cordoned("n1"));
    (void)delete_key(key_of("lab", KEY_CORDONS, "n1", key));
    list_again(&etcd); /* the cordon is still known, so its end is noticed */
    assert_false(is_cordoned("n1"));
    settle();
}

/* The wait before a read is 20, 40, 80 ms and so on up to 1.28 s; it begins at 20 ms again once a decision was
 * written. */
static void the_wait_after_a_refusal_grows_to_its_bound(_unused_ void **state)
{
    begin();
    for (int i = 0; i < 9; i++) {
        const int before = etcd.n_begun[CALL_READ];
        answer(oldest_call(&etcd, CALL_TXN), LOST_BEFORE);
        pass((20ULL << MIN(i, 6)) * USEC_PER_MSEC - 2 * USEC_PER_MSEC);
        assert_int_equal(etcd.n_begun[CALL_READ], before);
        pass(4 * USEC_PER_MSEC);
        assert_int_equal(etcd.n_begun[CALL_READ], before + 1);
        answer(oldest_call(&etcd, CALL_READ), GIVEN);
        pass(5 * USEC_PER_MSEC);
    }
    settle();
    assert_int_equal(generation(), 1);
    while (told.n_answers[OUTCOME_UNKNOWN] < 10) { /* a deadline causes the next decision */
        const int before = etcd.n_begun[CALL_TXN];
        pass(USEC_PER_SEC);
        if (etcd.n_begun[CALL_TXN] > before)
            answer(oldest_call(&etcd, CALL_TXN), LOST_BEFORE);
    }
    const int before = etcd.n_begun[CALL_READ];
    pass(22 * USEC_PER_MSEC);
    assert_int_equal(etcd.n_begun[CALL_READ], before + 1);
    settle();
}

/* A key that only a read beside the watch has shown is removed before the watch's next list. The watch makes up
 * deletes only for keys that it has shown, so it never shows this delete. */
static void a_key_that_only_a_read_has_shown_goes_with_the_next_list(_unused_ void **state)
{
    char key[KEY_MAX];
    begin();
    cordon("n1");
    answer(oldest_call(&etcd, CALL_TXN), LOST_BEFORE);
    pass(USEC_PER_SEC);
    EtcdCall *read = oldest_call(&etcd, CALL_READ);
    take_snapshot(read);
    answer(read, GIVEN);
    assert_true(is_cordoned("n1"));
    (void)delete_key(key_of("lab", KEY_CORDONS, "n1", key));
    list_again(&etcd);
    assert_false(is_cordoned("n1"));
    NodeSurvey node;
    assert_true(cluster_survey_node(leader_view(leader).cluster, 1, &node)); /* both nodes exist */
    assert_true(node.up);
}

/* An event that the watch shows late is older than the read, and does not bring a removed key back. */
static void a_key_that_a_read_has_not_shown_does_not_come_back(_unused_ void **state)
{
    char key[KEY_MAX];
    begin();
    cordon("n1");
    show(&etcd);
    assert_true(is_cordoned("n1"));
    (void)key_of("lab", KEY_CORDONS, "n1", key);
    (void)delete_key(key);
    cordon("n1");
    (void)delete_key(key);
    IncidentRecord incident = {.id = "a-1", .job = "a", .cause = "node-lost", .at_usec = 1};
    PUT(incident_record, &incident, KEY_INCIDENTS, "a-1");
    (void)delete_key(key_of("lab", KEY_INCIDENTS, "a-1", key));
    answer(oldest_call(&etcd, CALL_TXN), LOST_BEFORE);
    pass(USEC_PER_SEC);
    answer(oldest_call(&etcd, CALL_READ), GIVEN);
    assert_false(is_cordoned("n1"));
    while (show_one(&etcd, NULL)) {
        assert_false(is_cordoned("n1"));
        assert_null(cluster_find_incident(leader_view(leader).cluster, "a-1"));
    }
    /* A cordon that is newer than the read counts. */
    cordon("n1");
    show(&etcd);
    assert_true(is_cordoned("n1"));
}

/* The watch has moved to a member that lags: a key that is not yet in this member's list is not gone. */
static void a_list_that_is_older_than_a_read_takes_nothing_away(_unused_ void **state)
{
    char key[KEY_MAX];
    begin();
    const int64_t before = newest_revision;
    cordon("n1");
    answer(oldest_call(&etcd, CALL_TXN), LOST_BEFORE);
    pass(USEC_PER_SEC);
    answer(oldest_call(&etcd, CALL_READ), GIVEN);
    assert_true(is_cordoned("n1"));
    list_until(&etcd, before);
    assert_true(is_cordoned("n1"));
    (void)delete_key(key_of("lab", KEY_CORDONS, "n1", key));
    list_again(&etcd); /* the cordon is still known, so its end is noticed */
    assert_false(is_cordoned("n1"));
}

static void a_refused_decision_is_made_again_of_what_was_read(_unused_ void **state)
{
    begin();
    const int before = etcd.n_begun[CALL_TXN];
    (void)put("/sdtrain/lab/phases/a", "{}",
              0); /* the key of the decision's guard existed for a moment */
    (void)delete_key("/sdtrain/lab/phases/a");
    (void)put("/sdtrain/lab/desired/a", find("/sdtrain/lab/desired/a")->value, 0);
    answer(oldest_call(&etcd, CALL_TXN), GIVEN);
    assert_int_equal(told.n_answers[OUTCOME_REFUSED], 1);
    assert_int_equal(generation(), 0);
    pass(USEC_PER_SEC);
    assert_int_equal(etcd.n_begun[CALL_TXN], before); /* no new decision before the read */
    answer(oldest_call(&etcd, CALL_READ), GIVEN);
    pass(5 * USEC_PER_MSEC);
    answer(oldest_call(&etcd, CALL_TXN), GIVEN);
    assert_int_equal(told.n_answers[OUTCOME_DONE], 1);
    assert_int_equal(generation(), 1);
}

static void an_answer_that_is_lost_is_looked_for(_unused_ void **state)
{
    begin();
    answer(oldest_call(&etcd, CALL_TXN), LOST_AFTER);
    assert_int_equal(told.n_answers[OUTCOME_UNKNOWN], 1);
    assert_int_equal(generation(), 1);
    const int before = etcd.n_begun[CALL_TXN];
    pass(USEC_PER_SEC);
    answer(oldest_call(&etcd, CALL_READ), LOST_BEFORE); /* the read has no answer either */
    pass(USEC_PER_SEC);
    assert_int_equal(etcd.n_begun[CALL_TXN], before);
    answer(oldest_call(&etcd, CALL_READ), GIVEN);
    settle();
    assert_int_equal(generation(), 1);
    assert_int_equal(told.n_answers[OUTCOME_REFUSED], 0);
}

static void another_ones_key_deposes(_unused_ void **state)
{
    begin();
    (void)delete_key(LEADER_KEY);
    answer(oldest_call(&etcd, CALL_TXN), GIVEN);
    assert_int_equal(told.n_answers[OUTCOME_REFUSED], 1);
    pass(USEC_PER_SEC);
    answer(oldest_call(&etcd, CALL_READ), GIVEN);
    assert_int_equal(leader_view(leader).term, 0);
    const int before = etcd.n_begun[CALL_TXN];
    settle();
    pass(100 * USEC_PER_SEC);
    assert_int_equal(etcd.n_begun[CALL_TXN], before);
    assert_int_equal(generation(), 0);
}

/* The leader's key was removed and put again: the read shows another create revision, which deposes the leader. */
static void its_own_key_born_again_deposes(_unused_ void **state)
{
    begin();
    char *text = strdup(find(LEADER_KEY)->value);
    cordon("n1");
    (void)delete_key(LEADER_KEY);
    (void)put(LEADER_KEY, text, 0);
    free(text);
    answer(oldest_call(&etcd, CALL_TXN), GIVEN);
    assert_int_equal(told.n_answers[OUTCOME_REFUSED], 1);
    pass(USEC_PER_SEC);
    answer(oldest_call(&etcd, CALL_READ), GIVEN);
    assert_int_equal(leader_view(leader).term, 0);
    assert_true(show_one(&etcd, NULL)); /* the watch only shows what was before the removal */
    pass(USEC_PER_SEC);
    assert_int_equal(leader_view(leader).term, 0);
}

static void an_old_list_deposes_nobody(_unused_ void **state)
{
    begin();
    answer(oldest_call(&etcd, CALL_TXN), LOST_BEFORE);
    pass(USEC_PER_SEC);
    EtcdCall *read = oldest_call(&etcd, CALL_READ);
    lose_election();
    (void)delete_key(LEADER_KEY);
    take_snapshot(read);
    elect();
    answer(read, GIVEN);
    assert_int_equal(leader_view(leader).term, find(LEADER_KEY)->created);
    settle();
    assert_int_equal(generation(), 1);
}

static void without_its_lease_it_does_not_lead(_unused_ void **state)
{
    begin();
    notify_lost(&etcd);
    const LeaderView view = leader_view(leader);
    assert_false(view.has_lease || election.has_candidate);
    assert_int_equal(view.term, 0);
    const int before = etcd.n_begun[CALL_TXN];
    (void)delete_key(LEADER_KEY);
    answer(oldest_call(&etcd, CALL_TXN), GIVEN); /* refused by the term's guard */
    assert_int_equal(told.n_answers[OUTCOME_REFUSED], 1);
    assert_int_equal(generation(), 0);
    settle();
    put_node("n3");
    settle();
    pass(100 * USEC_PER_SEC);
    assert_int_equal(etcd.n_begun[CALL_TXN], before);
    elect(); /* elected again */
    settle();
    assert_int_equal(generation(), 1);
    assert_int_equal(told.n_leads, 2);
}

static void it_says_that_it_leaves(_unused_ void **state)
{
    begin();
    settle();
    leader_leave(leader);
    leader_leave(leader);
    answer(oldest_call(&etcd, CALL_TXN), GIVEN);
    assert_non_null(strstr(find(LEADER_KEY)->value, "left"));
    assert_int_equal(told.n_ended, 0);
    assert_int_equal(etcd.n_begun[CALL_REVOKE], 1);
    answer(oldest_call(&etcd, CALL_REVOKE), GIVEN);
    assert_int_equal(told.n_ended, 1);
    assert_int_equal(told.ended, 0);
    pass(100 * USEC_PER_SEC);
    assert_int_equal(told.n_ended, 1);
}

/* etcd does not answer the write of LEADER_LEFT: the Leader ends after two seconds all the same. */
static void it_leaves_without_etcd(_unused_ void **state)
{
    begin();
    settle();
    leader_leave(leader);
    pass(2 * USEC_PER_SEC - 1);
    assert_int_equal(told.n_ended, 0);
    pass(1);
    assert_int_equal(told.n_ended, 1);
    answer_all();
    answer_all();
    assert_int_equal(told.n_ended, 1);
}

static void without_a_lease_it_leaves_at_once(_unused_ void **state)
{
    list_again(&etcd);
    leader_leave(leader);
    assert_int_equal(told.n_ended, 1);
    assert_int_equal(etcd.n_begun[CALL_REVOKE], 0);
}

static void who_leaves_does_not_begin_to_lead(_unused_ void **state)
{
    list_again(&etcd);
    leader_leave(leader);
    win_election(enter_election());
    show(&etcd);
    assert_int_equal(told.n_leads, 0);
    answer_all();
}

static void another_history_ends_it(_unused_ void **state)
{
    const EtcdHistory was = {.cluster = 1, .revision = 9}, is = {.cluster = 1, .revision = 3};
    etcd.on_history(&was, &is, etcd.userdata);
    assert_int_equal(told.n_ended, 1);
    assert_int_equal(told.ended, -ERESTART);
}

static void a_denied_transaction_has_it_ask_for_its_rights(_unused_ void **state)
{
    begin();
    const int before = etcd.n_begun[CALL_RIGHTS];
    answer(oldest_call(&etcd, CALL_TXN), DENIED);
    assert_true(etcd.n_begun[CALL_RIGHTS] > before);
    settle();
    pass(USEC_PER_SEC);
    settle();
    assert_int_equal(generation(), 1);
}

/* No rank of a world reports anything: the core wakes at the time that it requested. */
static void time_alone_is_a_reason_to_decide(_unused_ void **state)
{
    begin();
    settle();
    const int before = etcd.n_begun[CALL_TXN];
    pass(settings.core.start_deadline_usec - USEC_PER_SEC);
    assert_int_equal(etcd.n_begun[CALL_TXN], before);
    assert_int_equal(told.n_stalled, 0);
    pass(30 * USEC_PER_SEC);
    assert_true(etcd.n_begun[CALL_TXN] > before);
    assert_int_equal(told.n_stalled, 0); /* a tick in time does not count as late */
}

static void a_loop_that_comes_late_says_so(_unused_ void **state)
{
    begin();
    settle();
    stall(settings.core.start_deadline_usec + USEC_PER_SEC);
    put_node("n3");
    show(&etcd);
    assert_true(told.n_stalled > 0);
}

static void what_did_not_fit_is_read_when_there_is_room(_unused_ void **state)
{
    JobSurvey job;
    begin();
    settle();
    put_job("b");
    settle();
    assert_true(cluster_dropped(leader_view(leader).cluster) > 0);
    static const char *const all[] = {"specs", "desired", "worlds", "phases"};
    for (size_t i = 0; i < ELEMENTSOF(all); i++) {
        char key[KEY_MAX];
        (void)snprintf(key, sizeof(key), "/sdtrain/lab/%s/a", all[i]);
        (void)delete_key(key);
    }
    const int before = etcd.n_begun[CALL_READ];
    show(&etcd);
    pass(2 * USEC_PER_SEC);
    assert_int_equal(etcd.n_begun[CALL_READ],
                     before + 1); /* one read serves all records that did not fit */
    answer(oldest_call(&etcd, CALL_READ), LOST_BEFORE);
    pass(2 * USEC_PER_SEC);
    assert_int_equal(etcd.n_begun[CALL_READ], before + 2); /* the leader reads again */
    const int decided = etcd.n_begun[CALL_TXN];
    answer(oldest_call(&etcd, CALL_READ), GIVEN);
    assert_int_equal(etcd.n_begun[CALL_TXN], decided + 1); /* the core decides at once */
    settle();
    assert_true(cluster_survey_job(leader_view(leader).cluster, 0, &job));
    assert_string_equal(job.name, "b");
}

static void new_settings_are_shown_and_used(_unused_ void **state)
{
    begin();
    settle();
    (void)snprintf(settings.introduction.admit, sizeof(settings.introduction.admit), "n1");
    settings.core.start_deadline_usec = 5 * USEC_PER_SEC;
    leader_configure(leader, &settings);
    assert_non_null(strstr(election.introduced, "\"n1\""));
    settle();
    const int before = etcd.n_begun[CALL_TXN];
    pass(10 * USEC_PER_SEC);
    assert_true(etcd.n_begun[CALL_TXN] > before); /* the new deadline is over */
}

static void the_view_is_told_every_two_seconds(_unused_ void **state)
{
    list_again(&etcd);
    const int before = told.n_views;
    pass(10 * USEC_PER_SEC);
    assert_in_range(told.n_views - before, 5, 6);
}

/* The leader reports the standstill, and begins by itself when the pause is over. After it has led for long enough,
 * the deaths are forgotten. */
static void a_standstill_ends_by_itself(_unused_ void **state)
{
    const int64_t term = stand_still();
    pass(29 * USEC_PER_SEC);
    settle();
    assert_int_equal(leader_view(leader).term, 0);
    pass(2 * USEC_PER_SEC); /* the pause is three leases */
    settle();
    assert_int_equal(leader_view(leader).term, term);
    assert_int_equal(deaths_told(), 2);
    pass(40 * USEC_PER_SEC);
    assert_int_equal(deaths_told(), 0);
}

static void other_records_end_a_standstill(_unused_ void **state)
{
    const int64_t term = stand_still();
    put_job("a");
    settle();
    assert_int_equal(leader_view(leader).term, term);
}

/* A person who changes the settings has seen the standstill. */
static void new_settings_end_a_standstill(_unused_ void **state)
{
    const int64_t term = stand_still();
    leader_configure(leader, &settings);
    settle();
    assert_int_equal(leader_view(leader).term, term);
}

/* Requests under way are cancelled when the Leader is freed. */
static void it_goes_with_a_transaction_under_way(_unused_ void **state) { begin(); }

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
/* A case with room for two jobs. */
#define CASE_OF_TWO(name) cmocka_unit_test_setup_teardown(name, set_up_two, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_leader_reads_decides_and_writes),
        CASE(a_key_that_only_a_read_has_shown_goes_with_the_next_list),
        CASE(a_key_that_a_read_has_not_shown_does_not_come_back),
        CASE(a_refused_decision_is_made_again_of_what_was_read),
        CASE(an_answer_that_is_lost_is_looked_for),
        CASE(another_ones_key_deposes),
        CASE(its_own_key_born_again_deposes),
        CASE(an_old_list_deposes_nobody),
        CASE(without_its_lease_it_does_not_lead),
        CASE(it_says_that_it_leaves),
        CASE(it_leaves_without_etcd),
        CASE(who_leaves_does_not_begin_to_lead),
        CASE(another_history_ends_it),
        CASE(a_denied_transaction_has_it_ask_for_its_rights),
        CASE(time_alone_is_a_reason_to_decide),
        CASE(a_loop_that_comes_late_says_so),
        CASE(what_did_not_fit_is_read_when_there_is_room),
        CASE(new_settings_are_shown_and_used),
        CASE(the_view_is_told_every_two_seconds),
        CASE(a_standstill_ends_by_itself),
        CASE(other_records_end_a_standstill),
        CASE(new_settings_end_a_standstill),
        CASE(what_comes_at_once_is_decided_upon_at_once),
        CASE(the_wait_after_a_refusal_grows_to_its_bound),
        CASE(it_goes_with_a_transaction_under_way),
        CASE(without_a_lease_it_leaves_at_once),
        CASE(a_list_that_is_older_than_a_read_takes_nothing_away),
        CASE_OF_TWO(all_that_can_be_decided_is),
        CASE_OF_TWO(an_older_read_takes_nothing_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
