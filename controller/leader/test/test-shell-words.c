/* SPDX-License-Identifier: Apache-2.0 */
/* test-shell-words.c - what the leader's shell leaves for people: the lines of its log, and the journal, from which
 * a replay must make the same decisions. */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "controller/journal/replay.h"
#include "controller/leader/test/testing-shell.h"

#include <errno.h>
#include <string.h>

enum { LINES_MAX = 256 };

static char *lines[LINES_MAX];
static size_t n_lines;

static void keep_line(_unused_ LogLevel level, const char *text)
{
    assert_true(n_lines < LINES_MAX);
    lines[n_lines++] = memory_text(text);
}

static void forget_lines(void)
{
    while (n_lines > 0)
        free(lines[--n_lines]);
}

static int n_said(const char *text)
{
    int n = 0;
    for (size_t i = 0; i < n_lines; i++)
        n += strstr(lines[i], text) != NULL;
    return n;
}

static void expect_said(const char *text)
{
    if (n_said(text) == 1)
        return;
    for (size_t i = 0; i < n_lines; i++)
        print_message("  %s\n", lines[i]);
    fail_msg("\"%s\" was said %d times", text, n_said(text));
}

static int begin_words(void **state)
{
    log_lend(keep_line);
    return set_up(state);
}

static int end_words(void **state)
{
    const int r = tear_down(state);
    log_lend(NULL);
    log_set_level(LOG_LEVEL_INFO);
    forget_lines();
    return r;
}

/* ---- the log ---- */

static void who_leads_and_who_does_not_is_said(_unused_ void **state)
{
    char text[64];
    begin();
    const int64_t term = leader_view(leader).term;
    (void)snprintf(text, sizeof(text), "leading TERM=%lld", (long long)term);
    expect_said(text);
    expect_said("cluster lab read, 0 records");
    lose_election();
    (void)snprintf(text, sizeof(text), "leadership lost TERM=%lld", (long long)term);
    expect_said(text);
    lose_election();
    expect_said("leadership lost"); /* the line is logged only once */
}

/* The line in the log names the term that has ended. */
static void who_is_deposed_says_so(_unused_ void **state)
{
    char text[64];
    begin();
    const int64_t term = leader_view(leader).term;
    (void)delete_key(LEADER_KEY);
    answer(oldest_call(&etcd, CALL_TXN), GIVEN);
    pass(USEC_PER_SEC);
    answer(oldest_call(&etcd, CALL_READ), GIVEN);
    (void)snprintf(text, sizeof(text), "deposed, as the store says TERM=%lld", (long long)term);
    expect_said(text);
    lose_election();
    assert_int_equal(n_said("leadership lost"), 0);
}

static void leave_for_a_minute(bool answers)
{
    begin();
    settle();
    leader_leave(leader);
    if (answers)
        answer_all(); /* etcd puts the Leader's last record */
    if (answers)
        answer_all(); /* etcd revokes the Leader's lease */
    pass(60 * USEC_PER_SEC);
    answer_all();
    answer_all();
}

static const char ends_with_lease[] = "etcd does not answer; leadership ends with its lease";

static void who_leaves_in_vain_says_so(_unused_ void **state)
{
    leave_for_a_minute(false);
    expect_said(ends_with_lease);
}

static void who_leaves_in_order_says_nothing_of_it(_unused_ void **state)
{
    leave_for_a_minute(true);
    assert_int_equal(n_said(ends_with_lease), 0);
}

/* The log names the leader that died, the time, the place of its journal, the pause of this controller, and the
 * term. */
static void a_standstill_is_explained(_unused_ void **state)
{
    char text[64];
    const int64_t term = stand_still();
    expect_said("2 leaders in a row died on the same records, the last ones e at "
                "2023-11-14T22:30:00Z (no journal); trying again in ");
    (void)snprintf(text, sizeof(text), "at SIGHUP TERM=%lld", (long long)term);
    expect_said(text);
    assert_true(n_said("again in 29 s") + n_said("again in 30 s") == 1);
}

static void each_of_the_dead_is_named(_unused_ void **state)
{
    const LeaderRecord first = {.name = "d",
                                .journal = "/var/d",
                                .version = "1",
                                .state = LEADER_UP};
    const LeaderRecord second = {
        .name = "e",
        .journal = "/var/e",
        .version = "1",
        .state = LEADER_UP,
        .deaths = 1,
        .before = {{.name = "d", .journal = "/var/d", .at_usec = 86400000000}},
        .n_before = 1};
    (void)follow_two_deaths(&first, &second);
    expect_said("the last ones d at 1970-01-02T00:00:00Z (journal /var/d), then e at "
                "2023-11-14T22:30:00Z (journal /var/e); trying again");
}

/* The line about records that do not fit is logged each time that their number grows, but not at each event. */
static void what_does_not_fit_is_said_when_it_grows(_unused_ void **state)
{
    begin();
    settle();
    assert_int_equal(n_said("do not fit"), 0);
    put_job("b");
    settle();
    const int n = n_said("do not fit");
    assert_in_range(n, 1, 8);
    pass(10 * USEC_PER_SEC);
    put_node("n3");
    settle();
    assert_int_equal(n_said("do not fit"), n);
    put_job("c");
    settle();
    assert_true(n_said("do not fit") > n);
}

static void another_history_is_told_with_both(_unused_ void **state)
{
    begin();
    settle();
    etcd.on_history(&(EtcdHistory){.cluster = 0xa1, .revision = 90},
                    &(EtcdHistory){.cluster = 0xb2, .revision = 30}, etcd.userdata);
    expect_said("revision 30 after 90, cluster b2 after a1; it was restored");
    assert_int_equal(told.n_ended, 1);
    assert_int_equal(told.ended, -ERESTART);
}

static void a_record_that_cannot_be_read_is_named(_unused_ void **state)
{
    begin();
    settle();
    (void)put("/sdtrain/lab/nodes/n1", "no record", 0);
    show(&etcd);
    assert_int_equal(n_said("/sdtrain/lab/nodes/n1"), 1);
    (void)put("/sdtrain/lab/what/is-it", "{}", 0); /* a kind of another version: not for the core */
    settle();
    assert_non_null(find("/sdtrain/lab/what/is-it"));
}

static void a_decision_without_an_outcome_names_its_job(_unused_ void **state)
{
    begin();
    answer(oldest_call(&etcd, CALL_TXN), LOST_BEFORE);
    assert_int_equal(n_said("outcome unknown, reading again: "), 1);
    assert_int_equal(n_said("JOB=a"), 1);
    pass(USEC_PER_SEC);
    answer(oldest_call(&etcd, CALL_READ), LOST_BEFORE);
    expect_said("cannot read the cluster again: ");
    settle();
    forget_lines();
    pass(USEC_PER_SEC);
    settle();
    assert_int_equal(generation(), 1);
    assert_true(n_said("JOB=a") > 0); /* the decision that was done is logged */
}

/* ---- the journal ---- */

static char path[64];

static int begin_journal(void **state)
{
    Error err = ERROR_INIT;
    JournalHead head = {
        .cluster = "lab",
        .config = cluster_config_default,
        .limits = {.nodes = 8, .jobs = 1, .reports = 32, .incidents = 201, .requests = 8}};
    char folder[] = "/tmp/sdtrain-test-journal-XXXXXX";
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/j", folder);
    log_lend(keep_line);
    assert_int_equal(journal_new(path, 1 << 24, &head, &journal, &err), 0);
    return set_up(state);
}

static int end_journal(void **state)
{
    (void)end_words(state);
    journal = journal_free(journal);
    (void)unlink(path);
    *strrchr(path, '/') = '\0';
    return rmdir(path);
}

static struct {
    int n_decisions, n_all;
} replayed;

static int on_report(const ReplayReport *report, _unused_ void *userdata)
{
    replayed.n_all++;
    replayed.n_decisions += report->kind == REPLAY_DECISION;
    assert_false(report->differs);
    return 0;
}

static void expect_replay(int n_decisions)
{
    Error err = ERROR_INIT;
    memset(&replayed, 0, sizeof(replayed));
    if (journal_replay(path, on_report, NULL, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(replayed.n_decisions >= n_decisions);
}

/* Returns the last line of the journal that contains this text. */
static json_t *last_line(const char *text)
{
    char line[65536];
    json_t *ret = NULL;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file))
        if (strstr(line, text)) {
            json_decref(ret);
            ret = json_loads(line, 0, NULL);
        }
    assert_int_equal(fclose(file), 0);
    assert_non_null(ret);
    return ret;
}

static void expect_now(const char *text)
{
    json_t *line = last_line(text);
    assert_int_equal(json_integer_value(json_object_get(line, "now")), clock_boottime_usec());
    assert_int_equal(json_integer_value(json_object_get(line, "real")), clock_realtime_usec());
    json_decref(line);
}

/* A replay makes the same decisions, although there were refusals, lost answers, another term and other settings. */
static void a_replay_decides_the_same(_unused_ void **state)
{
    begin();
    answer(oldest_call(&etcd, CALL_TXN), LOST_AFTER);
    pass(USEC_PER_SEC);
    settle();
    assert_int_equal(generation(), 1);
    cordon("n1");
    settle();
    lose_election();
    (void)delete_key(LEADER_KEY);
    show(&etcd);
    pass(20 * USEC_PER_SEC);
    settings.core.start_deadline_usec = 3 * USEC_PER_SEC;
    leader_configure(leader, &settings);
    elect();
    settle();
    pass(10 * USEC_PER_SEC); /* longer than the new deadline */
    settle();
    stall(USEC_PER_SEC);
    resume();
    settle();
    expect_replay(3);
}

/* Each line carries the time of its event. */
static void each_line_has_its_time(_unused_ void **state)
{
    list_again(&etcd);
    elect();
    expect_now("\"leading\"");
    pass(1234567);
    leader_configure(leader, &settings);
    expect_now("\"config\"");
    pass(1234567);
    put_node("n1");
    show(&etcd);
    expect_now("/nodes/n1");
    put_node("n2");
    put_job("a");
    show(&etcd);
    pass(5 * USEC_PER_MSEC);
    expect_now("\"decision\"");
    pass(1234567);
    answer(oldest_call(&etcd, CALL_TXN), GIVEN);
    expect_now("\"outcome\"");
    pass(1234567);
    lose_election();
    expect_now("\"deposed\"");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin_words, end_words)
#define CASE_OF_JOURNAL(name) cmocka_unit_test_setup_teardown(name, begin_journal, end_journal)
    const struct CMUnitTest tests[] = {
        CASE(who_leads_and_who_does_not_is_said),
        CASE(who_is_deposed_says_so),
        CASE(who_leaves_in_vain_says_so),
        CASE(who_leaves_in_order_says_nothing_of_it),
        CASE(a_standstill_is_explained),
        CASE(each_of_the_dead_is_named),
        CASE(what_does_not_fit_is_said_when_it_grows),
        CASE(another_history_is_told_with_both),
        CASE(a_record_that_cannot_be_read_is_named),
        CASE(a_decision_without_an_outcome_names_its_job),
        CASE_OF_JOURNAL(a_replay_decides_the_same),
        CASE_OF_JOURNAL(each_line_has_its_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
