/* SPDX-License-Identifier: Apache-2.0 */
/* test-shell-moments.c - the leader's shell while a read, a decision or a standstill is under way: the Leader is
 * freed, is deposed, leaves, gets the same request again, or may not write. */
#include "base/clock.h"
#include "base/fault.h"
#include "controller/core/step/survey.h"
#include "controller/leader/test/testing-shell.h"

#include <errno.h>
#include <string.h>

/* ---- what did not fit ---- */

static void delete_job(const char *name)
{
    static const char *const all[] = {"specs", "desired", "worlds", "phases"};
    for (size_t i = 0; i < ELEMENTSOF(all); i++) {
        char key[KEY_MAX];
        (void)snprintf(key, sizeof(key), "/sdtrain/lab/%s/%s", all[i], name);
        if (find(key))
            (void)delete_key(key);
    }
}

/* Job b did not fit beside a, which was then removed: within a second all records must be read again. */
static void need_room(void)
{
    begin();
    settle();
    put_job("b");
    settle();
    delete_job("a");
    show(&etcd);
}

static EtcdCall *begin_room_read(void)
{
    need_room();
    const int before = etcd.n_begun[CALL_READ];
    pass(900 * USEC_PER_MSEC); /* one read serves many removals */
    assert_int_equal(etcd.n_begun[CALL_READ], before);
    pass(200 * USEC_PER_MSEC);
    assert_int_equal(told.n_ended, 0);
    return oldest_call(&etcd, CALL_READ);
}

static bool has_job(const char *name)
{
    JobSurvey job;
    return cluster_survey_job(leader_view(leader).cluster, 0, &job) && !strcmp(job.name, name);
}

/* While the Leader reads all records again, job d does not fit, and then there is room for d: no second read begins
 * before the first read is answered. */
static void what_does_not_fit_is_read_by_one_at_a_time(_unused_ void **state)
{
    EtcdCall *read = begin_room_read();
    const int before = etcd.n_begun[CALL_READ];
    take_snapshot(read);
    put_job("c");
    show(&etcd);
    put_job("d");
    show(&etcd);
    delete_job("c");
    show(&etcd);
    pass(5 * USEC_PER_SEC);
    assert_int_equal(etcd.n_begun[CALL_READ], before);
    answer(read, GIVEN);
    settle();
    pass(5 * USEC_PER_SEC);
    settle();
    assert_true(has_job("b") || has_job("d"));
}

/* A decision without an answer causes a new read of all records. An older read that is answered after the new one must
 * not remove records that the new one has shown. */
static void an_older_read_of_what_did_not_fit_takes_nothing_away(_unused_ void **state)
{
    EtcdCall *room = begin_room_read();
    take_snapshot(room);
    put_job("c");
    show(&etcd);
    pass(5 * USEC_PER_MSEC);
    cordon("n1");
    answer(oldest_call(&etcd, CALL_TXN), LOST_BEFORE); /* the transaction for job c's world */
    pass(USEC_PER_SEC);
    answer(newest_call(&etcd, CALL_READ), GIVEN);
    assert_true(is_cordoned("n1"));
    assert_true(has_job("c"));
    answer(room, GIVEN);
    assert_true(is_cordoned("n1"));
    assert_true(has_job("c"));
    (void)delete_key("/sdtrain/lab/cordons/n1");
    list_again(&etcd); /* the cordon is still known, so its end is noticed */
    assert_false(is_cordoned("n1"));
    settle();
}

/* ---- the Leader is freed ---- */

static void need_room_and_wait(void) { need_room(); }
static void read_for_room(void) { (void)begin_room_read(); }

static void wait_to_read_again(void)
{
    begin();
    answer(oldest_call(&etcd, CALL_TXN), LOST_BEFORE);
}

static void read_again(void)
{
    wait_to_read_again();
    pass(USEC_PER_SEC);
    assert_int_equal(told.n_ended, 0);
    (void)oldest_call(&etcd, CALL_READ);
}

static void keep_still(void)
{
    (void)stand_still();
    assert_int_equal(told.n_ended, 0);
}

static void say_that_it_leaves(void)
{
    begin();
    settle();
    leader_leave(leader);
    (void)oldest_call(&etcd, CALL_TXN);
}

static void give_up_the_lease(void)
{
    say_that_it_leaves();
    answer(oldest_call(&etcd, CALL_TXN), GIVEN);
    assert_int_equal(etcd.n_begun[CALL_REVOKE], 1);
}

static void ask_for_rights(void)
{
    begin();
    answer(oldest_call(&etcd, CALL_TXN), DENIED);
    assert_true(n_under_way(&etcd) > 1);
}

/* tear_down() finds what a freed Leader leaves behind: a timer, a request, a handler. */
static void it_may_go_in_the_middle_of_anything(void **state)
{
    static void (*const middle[])(void) = {need_room_and_wait, read_for_room, wait_to_read_again,
                                           read_again,         keep_still,    say_that_it_leaves,
                                           give_up_the_lease,  ask_for_rights};
    for (size_t i = 0; i < ELEMENTSOF(middle); i++) {
        middle[i]();
        (void)tear_down(state);
        (void)set_up(state);
    }
}

/* ---- the Leader stands still ---- */

/* A Leader that stood still and was deposed stands still again after its next election; the earlier pause does not
 * count. */
static void who_stood_still_and_was_deposed_stands_still_anew(_unused_ void **state)
{
    (void)stand_still();
    pass(20 * USEC_PER_SEC);
    lose_election();
    assert_false(leader_view(leader).is_still);
    assert_int_equal(leader_view(leader).term, 0);
    (void)delete_key(LEADER_KEY);
    show(&etcd);
    pass(20 * USEC_PER_SEC); /* the old pause ends */
    assert_int_equal(told.n_leads, 0);
    const int64_t term = enter_election();
    win_election(term);
    settle();
    assert_true(leader_view(leader).is_still);
    pass(28 * USEC_PER_SEC);
    settle();
    assert_true(leader_view(leader).is_still);
    pass(4 * USEC_PER_SEC);
    settle();
    assert_int_equal(leader_view(leader).term, term);
    assert_false(leader_view(leader).is_still);
    assert_int_equal(deaths_told(), 2);
}

/* A Leader that stands still writes that it leaves: its end is not a death, so the next controller need not wait. */
static void who_stands_still_says_that_it_leaves(_unused_ void **state)
{
    (void)stand_still();
    leader_leave(leader);
    answer(oldest_call(&etcd, CALL_TXN), GIVEN);
    assert_non_null(strstr(find(LEADER_KEY)->value, "left"));
    answer(oldest_call(&etcd, CALL_REVOKE), GIVEN);
    assert_int_equal(etcd.n_begun[CALL_REVOKE], 1);
    assert_int_equal(told.n_ended, 1);
}

/* A Leader that is elected but has not read the cluster also writes that it leaves. */
static void who_has_not_read_all_says_that_it_leaves(_unused_ void **state)
{
    win_election(enter_election());
    leader_leave(leader);
    answer(oldest_call(&etcd, CALL_TXN), GIVEN);
    assert_non_null(strstr(find(LEADER_KEY)->value, "left"));
    list_again(&etcd);
    assert_int_equal(told.n_leads, 0);
    answer(oldest_call(&etcd, CALL_REVOKE), GIVEN);
    assert_int_equal(told.n_ended, 1);
}

/* Times in records that are kept for people are CLOCK_REALTIME. */
static void deaths_and_pauses_are_told_in_the_time_of_people(_unused_ void **state)
{
    (void)stand_still();
    const uint64_t now_usec = clock_realtime_usec();
    LeaderRecord record = own_record();
    assert_in_range(record.still_until_usec, now_usec + 29 * USEC_PER_SEC,
                    now_usec + 30 * USEC_PER_SEC);
    assert_int_equal(record.n_before, 1); /* the second leader's record named no earlier death */
    assert_string_equal(record.before[0].name, "e");
    assert_in_range(record.before[0].at_usec, now_usec - USEC_PER_SEC, now_usec);
    leader_record_clear(&record);
}

/* ---- the Leader is deposed ---- */

/* A Leader that is deposed by a read, and later again by the election, can lead again. */
static void who_was_deposed_twice_leads_again(_unused_ void **state)
{
    begin();
    (void)delete_key(LEADER_KEY);
    answer(oldest_call(&etcd, CALL_TXN), GIVEN);
    pass(USEC_PER_SEC);
    answer(oldest_call(&etcd, CALL_READ), GIVEN);
    assert_int_equal(leader_view(leader).term, 0);
    show(&etcd);
    lose_election();
    assert_int_equal(leader_view(leader).term, 0);
    elect();
    assert_int_equal(told.n_leads, 2);
    settle();
    assert_int_equal(generation(), 1);
}

/* A decision of an earlier term has the old term as its guard: it is refused, and the decision of the new term
 * counts. */
static void a_decision_of_an_earlier_term_does_no_harm(_unused_ void **state)
{
    begin();
    EtcdCall *old = oldest_call(&etcd, CALL_TXN);
    lose_election();
    (void)delete_key(LEADER_KEY);
    show(&etcd);
    elect();
    EtcdCall *now = newest_call(&etcd, CALL_TXN);
    assert_ptr_not_equal(now, old);
    answer(now, GIVEN);
    assert_int_equal(generation(), 1);
    answer(old, GIVEN);
    assert_int_equal(told.n_answers[OUTCOME_REFUSED], 1);
    settle();
    assert_int_equal(generation(), 1);
    assert_int_equal(leader_view(leader).term, find(LEADER_KEY)->created);
}

/* ---- decisions ---- */

static int strike_always(const char *point)
{
    return strcmp(point, "decide.world.before") == 0 ? -EIO : 0;
}

/* A decision that cannot begin is not reported as done, and is tried again after longer and longer pauses. */
static void a_decision_that_cannot_begin_does_not_spin(_unused_ void **state)
{
    fault_lend(strike_always);
    list_again(&etcd);
    elect();
    put_node("n1");
    put_node("n2");
    put_job("a");
    const int before = etcd.n_begun[CALL_READ];
    for (int i = 0; i < 1000; i++) {
        show(&etcd);
        pass(10 * USEC_PER_MSEC);
        if (n_under_way(&etcd))
            answer(oldest_call(&etcd, CALL_READ), GIVEN);
    }
    assert_in_range(etcd.n_begun[CALL_READ] - before, 8, 20); /* 8 to 20 reads in ten seconds */
    fault_lend(NULL);
    pass(2 * USEC_PER_SEC);
    settle();
    assert_int_equal(generation(), 1);
}

static void a_decision_is_told_with_its_beginning(_unused_ void **state)
{
    begin();
    const uint64_t begun_usec = clock_boottime_usec();
    pass(USEC_PER_SEC);
    answer(oldest_call(&etcd, CALL_TXN), GIVEN);
    assert_in_range(told.begun_usec, begun_usec - 5 * USEC_PER_MSEC, begun_usec);
    settle();
}

static void put_running(const char *node, int rank)
{
    RankReport report = {.rank = rank, .pid = 1, .state = RANK_RUNNING, .step = 1, .at_usec = 1};
    RanksRecord record = {.incarnation = 1,
                          .generation = 1,
                          .world_revision = find("/sdtrain/lab/worlds/a")->modified,
                          .ranks = &report,
                          .n_ranks = 1,
                          .first_step = rank ? 0 : 1,
                          .first_step_usec = 1};
    char key[KEY_MAX];
    (void)snprintf(record.node, sizeof(record.node), "%s", node);
    char *text = ranks_record_encode(&record, NULL);
    (void)put(key_ranks("lab", "a", 1, node, key), text, 0);
    free(text);
}

/* After a short stall of the loop two things are due: the news that the last rank runs, which came just before the
 * start deadline, and the deadline. The news is handled first. */
static void news_come_before_deadlines(_unused_ void **state)
{
    begin();
    settle();
    put_running("n1", 0);
    settle();
    pass(settings.core.start_deadline_usec - 100 * USEC_PER_MSEC);
    put_running("n2", 1);
    stall(150 * USEC_PER_MSEC);
    resume();
    settle();
    assert_int_equal(told.n_stalled, 0);
    assert_null(find("/sdtrain/lab/incidents/a-1"));
    assert_int_equal(generation(), 1);
}

/* ---- requests that cannot begin ---- */

/* Neither the transaction nor the read of its outcome can begin: the Leader is not deposed, and nothing is reported
 * as done. */
static void what_cannot_begin_is_tried_ever_later(_unused_ void **state)
{
    list_again(&etcd);
    elect();
    put_node("n1");
    put_node("n2");
    put_job("a");
    etcd.fails = -ENOMEM;
    show(&etcd);
    pass(5 * USEC_PER_MSEC);
    assert_int_equal(etcd.n_failed, 1);
    pass(10 * USEC_PER_SEC);
    assert_in_range(etcd.n_failed, 8, 20);
    assert_int_equal(told.n_answers[OUTCOME_DONE] + told.n_ended, 0);
    assert_int_equal(n_under_way(&etcd), 0);
    assert_true(leader_view(leader).term > 0);
    const int before = etcd.n_failed;
    etcd.fails = 0;
    pass(2 * USEC_PER_SEC);
    assert_int_equal(etcd.n_failed, before);
    cordon("n1");
    answer(oldest_call(&etcd, CALL_READ), GIVEN);
    assert_true(is_cordoned("n1")); /* the read above has shown the cordon */
    (void)delete_key("/sdtrain/lab/cordons/n1");
    settle();
    assert_int_equal(generation(), 1);
}

static void what_did_not_fit_is_read_when_a_read_can_begin(_unused_ void **state)
{
    need_room();
    etcd.fails = -ENOMEM;
    pass(3500 * USEC_PER_MSEC);
    assert_int_equal(etcd.n_failed, 3); /* one request per second failed */
    etcd.fails = 0;
    pass(USEC_PER_SEC);
    answer(oldest_call(&etcd, CALL_READ), GIVEN);
    assert_true(has_job("b"));
    settle();
}

/* A Leader that cannot write that it leaves ends at once; so does a Leader that can write this, but cannot revoke
 * its lease. */
static void who_cannot_write_leaves_at_once(void **state)
{
    for (int i = 0; i < 2; i++) {
        begin();
        settle();
        if (i == 0)
            etcd.fails = -ENOMEM;
        leader_leave(leader);
        if (i == 1) {
            EtcdCall *last = oldest_call(&etcd, CALL_TXN);
            etcd.fails = -ENOMEM;
            answer(last, GIVEN);
        }
        assert_int_equal(told.n_ended, 1);
        assert_int_equal(told.ended, 0);
        assert_int_equal(n_under_way(&etcd), 0);
        leader_leave(leader); /* the Leader has left already */
        pass(5 * USEC_PER_SEC);
        assert_int_equal(told.n_ended, 1);
        (void)tear_down(state);
        (void)set_up(state);
    }
}

/* Whatever etcd answers to the last requests, the Leader has left. */
static void who_is_refused_its_last_words_has_left(void **state)
{
    static const AnswerKind kinds[] = {DENIED, LOST_BEFORE, LOST_AFTER};
    for (size_t i = 0; i < 2 * ELEMENTSOF(kinds); i++) {
        begin();
        settle();
        leader_leave(leader);
        answer(oldest_call(&etcd, CALL_TXN),
               i % 2 ? GIVEN : kinds[i / 2]); /* the write of LEADER_LEFT */
        assert_int_equal(told.n_ended, 0);
        assert_int_equal(etcd.n_begun[CALL_REVOKE], 1);
        answer(oldest_call(&etcd, CALL_REVOKE), kinds[i / 2]);
        assert_int_equal(told.n_ended, 1);
        assert_int_equal(told.ended, 0);
        (void)tear_down(state);
        (void)set_up(state);
    }
}

/* ---- records that cannot be read ---- */

/* The core learns that an unreadable record exists: an unreadable cordon counts as a cordon. */
static void what_cannot_be_read_is_no_news_of_its_end(_unused_ void **state)
{
    begin();
    settle();
    assert_int_equal(told.n_unreadable, 0);
    (void)put("/sdtrain/lab/cordons/n1", "no record", 0);
    show(&etcd);
    assert_int_equal(told.n_unreadable, 1);
    assert_true(is_cordoned("n1"));
    leader_note_record(leader, "/sdtrain/lab/cordons/n2", "no record", 9, newest_revision);
    assert_int_equal(told.n_unreadable, 2);
    assert_false(is_cordoned("n2"));
    (void)put("/sdtrain/lab/worlds/a", "no record", 0);
    show(&etcd);
    assert_int_equal(told.n_unreadable, 3);
    (void)delete_key("/sdtrain/lab/cordons/n1");
    show(&etcd);
    assert_false(is_cordoned("n1"));
    const int before = told.n_observed;
    (void)put("/sdtrain/lab/what/is-it", "no record", 0); /* a kind of a later version */
    assert_true(show_one(&etcd, NULL));
    assert_int_equal(told.n_unreadable, 3);
    assert_in_range(told.n_observed, before, before + 1); /* at most a tick was observed */
    settle();
}

/* ---- rights ---- */

static bool lacks(const char *word)
{
    LeaderRecord record = own_record();
    const bool ret = strstr(record.lacks, word);
    leader_record_clear(&record);
    return ret;
}

/* A missing right is requested until it is granted: then no restart is needed. */
static void a_right_that_is_missing_is_asked_for_until_it_is_there(_unused_ void **state)
{
    ask_for_rights();
    assert_string_equal(etcd.last_right, "/sdtrain/lab/evals/.rights"); /* the last kind of keys */
    answer_kind(&etcd, CALL_RIGHTS, DENIED);
    assert_true(lacks("worlds"));
    for (int i = 0; i < 3; i++) {
        const int before = etcd.n_begun[CALL_RIGHTS];
        pass(9 * USEC_PER_SEC);
        if (etcd.n_begun[CALL_RIGHTS] == before)
            pass(2 * USEC_PER_SEC);
        assert_true(etcd.n_begun[CALL_RIGHTS] > before);
        answer_kind(&etcd, CALL_RIGHTS, i < 2 ? DENIED : GIVEN);
    }
    assert_false(lacks("worlds"));
    const int before = etcd.n_begun[CALL_RIGHTS];
    pass(30 * USEC_PER_SEC);
    assert_int_equal(etcd.n_begun[CALL_RIGHTS], before);
    settle();
}

/* ---- another lease ---- */

/* A leader's writes are guarded by the key of its present lease. */
static void another_lease_is_another_key(_unused_ void **state)
{
    static const char key[] = "/sdtrain/lab/leader/4f";
    begin();
    notify_lost(&etcd);
    (void)delete_key(LEADER_KEY);
    answer(oldest_call(&etcd, CALL_TXN), GIVEN); /* refused: the term's key is gone */
    settle();
    win_election(enter_election());
    settle();
    assert_int_equal(told.n_leads, 2);
    assert_string_equal(leader_key(leader), key);
    assert_int_equal(generation(), 1);
    assert_int_equal(told.n_answers[OUTCOME_REFUSED], 1);
    leader_leave(leader);
    answer(oldest_call(&etcd, CALL_TXN), GIVEN);
    assert_non_null(strstr(find(key)->value, "left"));
    answer_all();
}

/* ---- the view ---- */

static void each_change_of_the_view_is_told_at_once(_unused_ void **state)
{
    grant(&etcd);
    expect_view_is_told();
    list_again(&etcd);
    expect_view_is_told();
    assert_true(told.view.loaded && told.view.has_lease);
    elect();
    expect_view_is_told();
    assert_true(told.view.term > 0);
    notify_lost(&etcd);
    expect_view_is_told();
    assert_int_equal(told.view.term, 0);
    (void)delete_key(LEADER_KEY);
    show(&etcd);
    (void)tear_down(NULL);
    (void)set_up(NULL);
    (void)stand_still();
    expect_view_is_told();
    assert_true(told.view.is_still);
    pass(31 * USEC_PER_SEC);
    settle();
    expect_view_is_told();
    assert_false(told.view.is_still);
}

static void a_watch_that_is_down_shows(_unused_ void **state)
{
    assert_false(leader_view(leader).connected);
    list_again(&etcd);
    assert_true(leader_view(leader).connected);
    etcd.is_cut = true;
    assert_false(leader_view(leader).connected);
    assert_true(leader_view(leader).loaded);
    etcd.is_cut = false;
    cordon("n1");
    list_again(&etcd);
    assert_int_equal(told.shown, newest_revision);
    (void)put("/unrelated", "", 0); /* a write to an unrelated key */
    list_again(&etcd);
    assert_int_equal(told.shown, newest_revision); /* shown, although no record has changed */
}

/* The view names the first controller in the election, however many others there are. */
static void the_first_one_is_known(_unused_ void **state)
{
    const LeaderRecord other = {.name = "other", .version = "1", .state = LEADER_UP};
    list_again(&etcd);
    assert_null(leader_view(leader).first);
    elect();
    assert_string_equal(leader_view(leader).first->name, "c");
    put_leader("/sdtrain/lab/leader/1", &other);
    show(&etcd);
    assert_string_equal(leader_view(leader).first->name, "c");
    (void)delete_key(LEADER_KEY);
    lose_election();
    show(&etcd);
    assert_string_equal(leader_view(leader).first->name, "other");
}

/* Each record is reported before the core receives it: when it is put, changed or gone, by the watch and by a read.
 * Nothing else is reported. */
static void each_record_is_told_as_read(_unused_ void **state)
{
    begin();
    settle();
    int n = told.n_read;
    put_node("n3");
    cordon("n3");
    show(&etcd);
    assert_int_equal(told.n_read, n + 2);
    (void)delete_key("/sdtrain/lab/nodes/n3");
    show(&etcd);
    assert_int_equal(told.n_read, n + 3);
    (void)delete_key("/sdtrain/lab/cordons/n3");
    list_again(&etcd);
    assert_int_equal(told.n_read, n + 4);
    settle();
    n = told.n_read;
    pass(10 * USEC_PER_SEC); /* the passing of time is not reported as a record */
    leader_configure(leader, &settings);
    leader_note_record(leader, "/sdtrain/lab/cordons/n3", NULL, 0, newest_revision);
    lose_election();
    assert_int_equal(told.n_read, n);
}

/* The core must not receive a record that was read beside the watch: it would assume that every key is that recent. */
static void the_core_does_not_hear_of_what_was_read_beside_the_watch(_unused_ void **state)
{
    NodeRecord node = {.name = "beside", .machine_id = "m", .incarnation = 1, .n_slots = 1};
    NodeSurvey survey;
    begin();
    settle();
    char *text = node_record_encode(&node, NULL);
    const int before = told.n_observed, n_ticks = told.n_ticks;
    leader_note_record(leader, "/sdtrain/lab/nodes/beside", text, strlen(text),
                       newest_revision + 9);
    free(text);
    assert_int_equal(told.n_observed, before + 1);
    assert_int_equal(told.n_ticks, n_ticks);
    for (int i = 0; cluster_survey_node(leader_view(leader).cluster, i, &survey); i++)
        assert_string_not_equal(survey.name, "beside");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(what_does_not_fit_is_read_by_one_at_a_time),
        CASE(an_older_read_of_what_did_not_fit_takes_nothing_away),
        CASE(it_may_go_in_the_middle_of_anything),
        CASE(who_stood_still_and_was_deposed_stands_still_anew),
        CASE(who_stands_still_says_that_it_leaves),
        CASE(who_has_not_read_all_says_that_it_leaves),
        CASE(deaths_and_pauses_are_told_in_the_time_of_people),
        CASE(who_was_deposed_twice_leads_again),
        CASE(a_decision_of_an_earlier_term_does_no_harm),
        CASE(a_decision_that_cannot_begin_does_not_spin),
        CASE(a_decision_is_told_with_its_beginning),
        CASE(news_come_before_deadlines),
        CASE(what_cannot_begin_is_tried_ever_later),
        CASE(what_did_not_fit_is_read_when_a_read_can_begin),
        CASE(who_cannot_write_leaves_at_once),
        CASE(who_is_refused_its_last_words_has_left),
        CASE(what_cannot_be_read_is_no_news_of_its_end),
        CASE(a_right_that_is_missing_is_asked_for_until_it_is_there),
        CASE(another_lease_is_another_key),
        CASE(each_change_of_the_view_is_told_at_once),
        CASE(a_watch_that_is_down_shows),
        CASE(the_first_one_is_known),
        CASE(each_record_is_told_as_read),
        CASE(the_core_does_not_hear_of_what_was_read_beside_the_watch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
