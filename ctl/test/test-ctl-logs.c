/* SPDX-License-Identifier: Apache-2.0 */
/* test-ctl-logs.c - `sdctl job logs` of ranks on other nodes. The test plays their daemons, including malicious
 * daemons. */

#include "base/clock.h"
#include "base/test/testing.h"
#include "cluster/log-records.h"
#include "ctl/test/testing-ctl.h"

#include <signal.h>
#include <string.h>

/* ---- the nodes ---- */

static void put_node(CtlLab *lab, const char *name, const char *features)
{
    NodeRecord node = {.machine_id = "1",
                       .boot_id = "8c5a3f1e-0000-0000-0000-000000000000",
                       .incarnation = 1,
                       .n_slots = 2,
                       .address = "10.0.0.1",
                       .version = "0.3.0",
                       .log_dir = "/far"};
    (void)snprintf(node.name, sizeof(node.name), "%s", name);
    (void)snprintf(node.features, sizeof(node.features), "%s", features);
    CTL_PUT(lab, KEY_NODES, name, node_record, node);
}

static void put_nodes(CtlLab *lab, const char *features1, const char *features2)
{
    ctl_put_running_job(lab, "a");
    put_node(lab, "n1", features1);
    put_node(lab, "n2", features2);
}

/* Waits for a node's log request number seq, and returns its name "<node>/<id>". Only one request exists at a time. */
static LogRequestRecord wait_ask(CtlLab *lab, int64_t seq, char *ret_name, size_t size)
{
    LogRequestRecord ask;
    Error err = ERROR_INIT;
    for (int i = 0; i < 100000; i++) {
        _cleanup_free_ char *text = ctl_wait_any(lab, KEY_ASKS, ret_name, size);
        if (log_request_record_decode("ask", text, strlen(text), &ask, &err) < 0)
            fail_msg("%s", err.text);
        if (ask.seq == seq)
            return ask;
        log_request_record_clear(&ask);
    }
    fail_msg("no ask %lld", (long long)seq);
    return (LogRequestRecord){0};
}

static void tell(CtlLab *lab, const char *name, LogLinesRecord lines, int rank, int64_t offset,
                 int64_t skipped)
{
    LogPart part = {.next = {.rank = rank, .file = 5, .offset = offset},
                    .bytes = (int64_t)strlen(lines.text),
                    .skipped = skipped};
    lines.parts = &part;
    lines.n_parts = 1;
    CTL_PUT(lab, KEY_LINES, name, log_lines_record, lines);
}

static void assert_no_asks(CtlLab *lab)
{
    char key[KEY_MAX];
    Error err = ERROR_INIT;
    _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
    if (etcd_get_wait(lab->etcd, key_prefix("lab", KEY_ASKS, key), true, &answer, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(answer->n_kvs, 0);
}

/* ---- the tests ---- */

static void a_rank_elsewhere_is_asked_on_from_where_it_was(void **state)
{
    CtlLab *lab = *state;
    char name[100];
    put_nodes(lab, "secrets", "secrets logs");
    ctl_begin(lab, "job logs a --rank 1");
    LogRequestRecord ask = wait_ask(lab, 1, name, sizeof(name));
    assert_memory_equal(name, "n2/", 3);
    assert_string_equal(ask.job, "a");
    assert_int_equal(ask.generation, 2);
    assert_false(ask.follow);
    assert_int_equal(ask.n_places, 1);
    assert_int_equal(ask.places[0].rank, 1);
    assert_int_equal(ask.places[0].file, 0);
    log_request_record_clear(&ask);
    tell(lab, name, (LogLinesRecord){.seq = 7, .text = (char *)"of another ask\n"}, 1, 3, 0);
    tell(lab, name, (LogLinesRecord){.seq = 1, .text = (char *)"one\nha", .more = true}, 1, 6, 99);
    ask = wait_ask(lab, 2, name, sizeof(name));
    assert_int_equal(ask.places[0].file, 5);
    assert_int_equal(ask.places[0].offset, 6);
    log_request_record_clear(&ask);
    tell(lab, name,
         (LogLinesRecord){.seq = 2, .text = (char *)"lf\x1b[2J\xc2\x9b.\nend", .end = true}, 1, 20,
         0);
    assert_int_equal(ctl_finish(lab), 0);
    assert_string_equal(lab->out, "one\nhalf?[2J??.\nend\n");
    assert_string_equal(lab->err, "sdctl: rank 1: 99 bytes before this are not shown; all that is "
                                  "kept is in /far/a/g2 on n2 (10.0.0.1)\n");
    assert_no_asks(lab);
}

static void a_node_that_cannot_be_asked_is_named(void **state)
{
    CtlLab *lab = *state;
    put_nodes(lab, "", "");
    assert_int_equal(ctl_run(lab, "job logs a --rank 1"), 0);
    assert_string_equal(lab->err,
                        "sdctl: rank 1: its log is on n2 (10.0.0.1) in /far/a/g2/rank1.log; "
                        "sdtraind 0.3.0 there hands out no logs: it is older, or has no right to "
                        "(/usr/share/sdtrain/etcd-roles)\n");
    put_nodes(lab, "", "logs"); /* now n2 accepts requests, but does not answer */
    assert_int_equal(ctl_run(lab, "job logs a --rank 1"), 1);
    assert_string_equal(lab->err, "sdctl: node n2 (10.0.0.1): it does not answer within 5 s; its "
                                  "logs are there in /far/a/g2\n");
    assert_no_asks(lab);
}

static void answers_that_mean_harm_are_refused(void **state)
{
    static const struct {
        const char *lines, *says;
    } cases[] = {
        {"{\"v\":2,\"seq\":1,\"refused\":\"16 readers\\n\\u001b[2J\"}", "16 readers ?[2J"},
        {"{\"v\":2,\"seq\":1,\"text\":\"x\",\"parts\":[]}", "1 bytes belong to no part"},
        {"{", "lines/n2/"},
    };
    CtlLab *lab = *state;
    char name[100];
    put_nodes(lab, "", "logs");
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        ctl_begin(lab, "job logs a --rank 1");
        LogRequestRecord ask = wait_ask(lab, 1, name, sizeof(name));
        log_request_record_clear(&ask);
        ctl_put_text(lab, KEY_LINES, name, cases[i].lines);
        assert_int_equal(ctl_finish(lab), 1);
        assert_contains(lab->err, cases[i].says);
        assert_contains(lab->err, "node n2 (10.0.0.1)");
        assert_string_equal(lab->out, "");
        ctl_remove(lab, KEY_LINES, name);
    }
    /* Lines of a rank that was not requested are not printed. */
    ctl_begin(lab, "job logs a --rank 1");
    LogRequestRecord ask = wait_ask(lab, 1, name, sizeof(name));
    log_request_record_clear(&ask);
    tell(lab, name, (LogLinesRecord){.seq = 1, .text = (char *)"x\n", .end = true}, 0, 2, 0);
    assert_int_equal(ctl_finish(lab), 0);
    assert_string_equal(lab->out, "");
}

static void a_reader_follows_and_ends_by_a_signal(void **state)
{
    CtlLab *lab = *state;
    char name[100];
    put_nodes(lab, "", "logs");
    ctl_begin(lab, "job logs a --rank 1 -f");
    LogRequestRecord ask = wait_ask(lab, 1, name, sizeof(name));
    assert_true(ask.follow);
    assert_true(ask.pause_usec > 0);
    log_request_record_clear(&ask);
    tell(lab, name, (LogLinesRecord){.seq = 1, .text = (char *)"one\n"}, 1, 4, 0);
    ask = wait_ask(lab, 2, name, sizeof(name));
    assert_true(ask.follow);
    log_request_record_clear(&ask);
    assert_int_equal(kill(lab->pid, SIGTERM), 0);
    assert_int_equal(ctl_finish_by(lab), SIGTERM);
    assert_string_equal(lab->out, "one\n");
    assert_no_asks(lab);
}

static void a_generation_that_is_over_is_asked_of_every_node(void **state)
{
    CtlLab *lab = *state;
    char name[100];
    put_nodes(lab, "", "logs");
    ctl_begin(lab, "job logs a --generation 1");
    LogRequestRecord ask = wait_ask(lab, 1, name, sizeof(name));
    assert_int_equal(ask.generation, 1);
    assert_int_equal(ask.n_places, 0);
    log_request_record_clear(&ask);
    tell(lab, name, (LogLinesRecord){.seq = 1, .text = (char *)"past\n", .end = true}, 6, 5, 0);
    assert_int_equal(ctl_finish(lab), 0);
    assert_string_equal(lab->out, "rank 6   past\n");
    ctl_remove(lab, KEY_LINES, name);
    ctl_begin(lab, "job logs a --generation 1");
    ask = wait_ask(lab, 1, name, sizeof(name));
    log_request_record_clear(&ask);
    ctl_put_text(lab, KEY_LINES, name, "{\"v\":2,\"seq\":1,\"end\":true}");
    assert_int_equal(ctl_finish(lab), 3);
    assert_contains(lab->err, "no node that is registered has a log of generation 1 of job a");
}

/* After a change of the world, the requests for the old ranks end, and the new ranks' nodes get requests. */
static void a_reader_moves_on_with_the_job(void **state)
{
    CtlLab *lab = *state;
    char name[100], second[100];
    put_nodes(lab, "", "logs");
    ctl_begin(lab, "job logs a --rank 1 -f");
    LogRequestRecord ask = wait_ask(lab, 1, name, sizeof(name));
    log_request_record_clear(&ask);
    tell(lab, name, (LogLinesRecord){.seq = 1, .text = (char *)"old\n"}, 1, 4, 0);
    ask = wait_ask(lab, 2, name, sizeof(name));
    log_request_record_clear(&ask);
    WorldRun runs[] = {{.node = "n2", .incarnation = 1, .slots = 3}};
    WorldRecord world = {.generation = 3, .size = 2, .runs = runs, .n_runs = 1};
    CTL_PUT(lab, KEY_WORLDS, "a", world_record, world);
    ask = wait_ask(lab, 3, name, sizeof(name));
    assert_false(ask.follow);
    assert_int_equal(ask.places[0].offset, 4);
    log_request_record_clear(&ask);
    tell(lab, name, (LogLinesRecord){.seq = 3, .text = (char *)"last words", .end = true}, 1, 14,
         0);
    do {
        ask = wait_ask(lab, 1, second, sizeof(second));
        log_request_record_clear(&ask);
    } while (strcmp(name, second) == 0);
    tell(lab, second, (LogLinesRecord){.seq = 1, .text = (char *)"new\n"}, 1, 4, 0);
    ask = wait_ask(lab, 2, second, sizeof(second));
    assert_int_equal(ask.generation, 3);
    log_request_record_clear(&ask);
    ctl_put_phase(lab, "a", PHASE_SUCCEEDED, "finished");
    ask = wait_ask(lab, 3, second, sizeof(second));
    assert_false(ask.follow);
    log_request_record_clear(&ask);
    tell(lab, second, (LogLinesRecord){.seq = 3, .text = (char *)"done\n", .end = true}, 1, 9, 0);
    assert_int_equal(ctl_finish(lab), 0);
    assert_string_equal(lab->out, "old\nlast words\n--- generation 3, 2 ranks\nnew\ndone\n");
}

static void a_node_that_is_lost_has_no_last_words(void **state)
{
    CtlLab *lab = *state;
    char name[100];
    put_nodes(lab, "logs", "logs");
    ctl_begin(lab, "job logs a --rank 1 -f");
    LogRequestRecord ask = wait_ask(lab, 1, name, sizeof(name));
    log_request_record_clear(&ask);
    tell(lab, name, (LogLinesRecord){.seq = 1, .text = (char *)"old\n"}, 1, 4, 0);
    ask = wait_ask(lab, 2, name, sizeof(name));
    log_request_record_clear(&ask);
    ctl_remove(lab, KEY_NODES, "n2");
    WorldRun runs[] = {{.node = "n1", .incarnation = 1, .slots = 3}};
    WorldRecord world = {.generation = 3, .size = 2, .runs = runs, .n_runs = 1};
    const uint64_t began = clock_boottime_usec();
    CTL_PUT(lab, KEY_WORLDS, "a", world_record, world);
    do {
        ask = wait_ask(lab, 1, name, sizeof(name));
        log_request_record_clear(&ask);
    } while (strncmp(name, "n1/", 3) != 0);
    /* sdctl has not waited for the old ranks' last lines, for which the time limit is 5 s. */
    assert_true(clock_boottime_usec() - began < 4 * USEC_PER_SEC);
    tell(lab, name, (LogLinesRecord){.seq = 1, .text = (char *)"new\n"}, 1, 4, 0);
    ask = wait_ask(lab, 2, name, sizeof(name));
    log_request_record_clear(&ask);
    ctl_put_phase(lab, "a", PHASE_FAILED, "enough");
    ask = wait_ask(lab, 3, name, sizeof(name));
    log_request_record_clear(&ask);
    tell(lab, name, (LogLinesRecord){.seq = 3, .text = (char *)"", .end = true}, 1, 4, 0);
    assert_int_equal(ctl_finish(lab), 0);
    assert_string_equal(lab->out, "old\n--- generation 3, 2 ranks\nnew\n");
    assert_contains(lab->err, "sdctl: node n2 is not registered now");
}

static void many_ranks_are_shown_if_all_are_asked_for(void **state)
{
    CtlLab *lab = *state;
    put_nodes(lab, "", "");
    WorldRun runs[] = {{.node = "n2", .incarnation = 1, .slots = 0xffffff}};
    WorldRecord world = {.generation = 3, .size = 24, .runs = runs, .n_runs = 1};
    CTL_PUT(lab, KEY_WORLDS, "a", world_record, world);
    assert_int_equal(ctl_run(lab, "job logs a"), 1);
    assert_string_equal(lab->err, "sdctl: job a has 24 ranks: name one with --rank, or all of them "
                                  "with --all\n");
    assert_int_equal(ctl_run(lab, "job logs a --all"), 0);
    assert_contains(lab->err, "rank 23: its log is on n2");
    assert_int_equal(ctl_run(lab, "job logs a --all --rank 1"), 2);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, ctl_setup, ctl_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_rank_elsewhere_is_asked_on_from_where_it_was),
        TEST(a_node_that_cannot_be_asked_is_named),
        TEST(answers_that_mean_harm_are_refused),
        TEST(a_reader_follows_and_ends_by_a_signal),
        TEST(a_generation_that_is_over_is_asked_of_every_node),
        TEST(a_reader_moves_on_with_the_job),
        TEST(a_node_that_is_lost_has_no_last_words),
        TEST(many_ranks_are_shown_if_all_are_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
