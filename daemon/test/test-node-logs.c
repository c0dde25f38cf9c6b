/* SPDX-License-Identifier: Apache-2.0 */
/* test-node-logs.c - a node answers requests for what its ranks print, on the seams of testing-machine.h; its log
 * files are real. */
#include "daemon/test/testing-node.h"

#include "base/file.h"
#include "base/memory.h"
#include "daemon/process/log-tail.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum {
    READER_LEASE = 4711,    /* the lease of a reader's request */
    HUGE_BYTES = 512 << 20, /* ops/mutants allows files of up to 1 GiB */
};

static char logs[] = "/tmp/sdtrain-logs-XXXXXX";
static LogLinesRecord lines; /* the last answer that expect() has read */

/* ---- the node's files ---- */

static const char *path_of(const char *name)
{
    static char path[200];
    (void)snprintf(path, sizeof(path), "%s/a/g1/%s", logs, name);
    return path;
}

static void append(const char *name, const char *text)
{
    FILE *file = fopen(path_of(name), "ae");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void turn_over(void)
{
    char old[200];
    (void)snprintf(old, sizeof(old), "%s", path_of("rank0.log.1"));
    assert_int_equal(rename(path_of("rank0.log"), old), 0);
}

/* ---- the reader ---- */

static LogPlace places[2];

/* Puts a request for logs of job a. Without places, the request is for all ranks of the node. */
static void ask(const char *id, LogRequestRecord record, size_t n_places, int64_t lease)
{
    char key[KEY_MAX];
    record.generation = 1;
    record.places = places;
    record.n_places = n_places;
    (void)snprintf(record.job, sizeof(record.job), "a");
    _cleanup_free_ char *text = log_request_record_encode(&record, NULL);
    (void)put(key_log("lab", KEY_ASKS, "n1", id, key), text, lease);
    settle();
}

static void ask_on(int64_t seq, bool follow)
{
    ask("r1", (LogRequestRecord){.seq = seq, .follow = follow, .tail_bytes = 1000}, 1,
        READER_LEASE);
}

static const StoredKey *lines_key(const char *id)
{
    char key[KEY_MAX];
    return find(key_log("lab", KEY_LINES, "n1", id, key));
}

static void expect_of(const char *id, int64_t seq, const char *text)
{
    const StoredKey *k = lines_key(id);
    Error err = ERROR_INIT;
    assert_non_null(k);
    log_lines_record_clear(&lines);
    if (log_lines_record_decode(k->key, k->value, strlen(k->value), &lines, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(lines.seq, seq);
    assert_true(strlen(lines.text) <= LOG_TEXT_MAX);
    assert_true(k->lease == lease_of(&n1.etcd));
    if (text)
        assert_string_equal(lines.text, text);
    if (lines.n_parts == 1)
        places[0] = lines.parts[0].next;
}

static void expect(int64_t seq, const char *text) { expect_of("r1", seq, text); }

/* Checks that the request gets no answer within a second. */
static void expect_silence(int64_t seq)
{
    pass(USEC_PER_SEC);
    settle();
    expect(seq - 1, NULL);
}

static void wait_for(int64_t seq, const char *text)
{
    pass(LOG_REQUESTS_LOOK_MSEC * USEC_PER_MSEC);
    settle();
    expect(seq, text);
}

static int setup(_unused_ void **state)
{
    char folder[200];
    Error err = ERROR_INIT;
    (void)snprintf(logs, sizeof(logs), "/tmp/sdtrain-logs-XXXXXX");
    assert_non_null(mkdtemp(logs));
    (void)snprintf(folder, sizeof(folder), "%s/a/g1", logs);
    assert_int_equal(folder_make(folder, &err), 0);
    nodes_begin();
    (void)snprintf(n1.config.log_dir, sizeof(n1.config.log_dir), "%s", logs);
    memset(places, 0, sizeof(places));
    return 0;
}

static int teardown(_unused_ void **state)
{
    Error err = ERROR_INIT;
    log_lines_record_clear(&lines);
    nodes_end();
    assert_int_equal(folder_remove(logs, &err), 0);
    return 0;
}

/* ---- answers ---- */

static void one_answer_lies_there_until_it_is_asked_on(_unused_ void **state)
{
    join(&n1);
    append("rank0.log", "one\ntwo\n");
    ask_on(1, true);
    expect(1, "one\ntwo\n");
    assert_int_equal(lines.parts[0].skipped, 0);
    append("rank0.log", "three\n");
    expect_silence(2);
    ask_on(2, true);
    expect(2, "three\n");
    ask_on(3, true);
    expect_silence(3);
    append("rank0.log", "four");
    expect_silence(3); /* the line has no end yet */
    append("rank0.log", " and five\nsi");
    wait_for(3, "four and five\n");
    ask_on(4, false);
    wait_for(4, "si");
    assert_true(lines.end);
}

static void a_rank_that_has_not_begun_is_waited_for(_unused_ void **state)
{
    join(&n1);
    ask_on(1, true);
    expect(1, "");
    assert_true(lines.parts[0].missing);
    ask_on(2, true);
    append("rank0.log", "begun\n");
    wait_for(2, "begun\n");
    ask("r2", (LogRequestRecord){.seq = 1}, 0, READER_LEASE); /* a request for all ranks */
    expect_of("r2", 1, "");                                   /* empty, since tail_bytes is 0 */
    assert_int_equal(lines.n_parts, 1);
    assert_true(lines.end && !lines.parts[0].missing);
    places[0] = (LogPlace){.rank = 7};
    ask("r3", (LogRequestRecord){.seq = 1}, 1, READER_LEASE);
    expect_of("r3", 1, "");
    assert_true(lines.end && lines.parts[0].missing);
}

static void a_log_that_turns_over_loses_no_line(_unused_ void **state)
{
    join(&n1);
    append("rank0.log", "one\n");
    ask_on(1, true);
    expect(1, "one\n");
    append("rank0.log", "two\nhalf");
    turn_over();
    append("rank0.log", " a line\nthree\n");
    ask_on(2, true);
    wait_for(2, "two\nhalf");
    assert_true(lines.more);
    ask_on(3, true);
    expect(3, " a line\nthree\n");
    assert_int_equal(lines.parts[0].skipped, 0);
    for (int i = 0; i < 2; i++) { /* after two turnovers lines are lost, and the answer says so */
        append("rank0.log", "gone\n");
        turn_over();
    }
    append("rank0.log", "here\n");
    ask_on(4, true);
    wait_for(4, "gone\n");
    assert_true(lines.parts[0].skipped > 0);
    ask_on(5, true);
    expect(5, "here\n");
    assert_int_equal(truncate(path_of("rank0.log"), 0), 0); /* as when the job starts again */
    append("rank0.log", "new\n");
    ask_on(6, true);
    wait_for(6, "new\n");
}

static void a_huge_log_is_read_at_its_end(_unused_ void **state)
{
    join(&n1);
    append("rank0.log", "old\n");
    assert_int_equal(truncate(path_of("rank0.log"), HUGE_BYTES), 0); /* a sparse file */
    append("rank0.log", "\nend\n");
    ask("r1", (LogRequestRecord){.seq = 1, .tail_bytes = (int64_t)1 << 40}, 1, READER_LEASE);
    expect(1, NULL);
    assert_int_equal(strlen(lines.text), LOG_TEXT_MAX); /* the text has no line end */
    assert_int_equal(lines.parts[0].skipped, HUGE_BYTES + 5 - LOG_REQUESTS_TAIL_MAX);
    assert_true(lines.more);
    ask_on(2, true); /* a reader that is so far behind skips to the tail */
    expect(2, "end\n");
    assert_true(lines.parts[0].skipped > LOG_TAIL_BEHIND_MAX);
    places[0].offset = 0;
    ask_on(3, true);
    wait_for(3, "end\n");
    assert_true(lines.parts[0].skipped > HUGE_BYTES / 2);
}

static void what_would_harm_a_terminal_or_a_record_is_replaced(_unused_ void **state)
{
    join(&n1);
    append("rank0.log", "\x1b]0;x\x07\ttab\r\n\xff\xc3\xa4\n\xc3\xa4\n");
    ask_on(1, true);
    expect(1, "?]0;x?\ttab \n?\xc3\xa4\n\xc3\xa4\n");
    assert_int_equal(unlink(path_of("rank0.log")), 0);
    assert_int_equal(symlink("/etc/passwd", path_of("rank0.log")), 0);
    ask_on(2, false);
    wait_for(2, "");
    assert_true(lines.end && lines.parts[0].missing);
    assert_int_equal(unlink(path_of("rank0.log")), 0);
    assert_int_equal(mkfifo(path_of("rank0.log"), 0600), 0);
    ask("r2", (LogRequestRecord){.seq = 1, .tail_bytes = 9}, 1, READER_LEASE);
    expect_of("r2", 1, "");
    assert_true(lines.parts[0].missing);
}

static void ranks_that_are_followed_share_an_answer(_unused_ void **state)
{
    enum { N = 3 * LOG_TEXT_MAX / 10 };
    join(&n1);
    for (int i = 0; i < N; i++)
        append("rank0.log", "123456789\n");
    append("rank1.log", "of rank 1\n");
    places[1].rank = 1;
    ask("r1", (LogRequestRecord){.seq = 2, .follow = true, .tail_bytes = 1 << 20}, 2, READER_LEASE);
    expect(2, NULL);
    assert_int_equal(lines.n_parts, 2);
    assert_true(lines.parts[0].bytes > 0 && lines.parts[1].bytes == 10);
    assert_non_null(strstr(lines.text, "of rank 1\n"));
    assert_true(lines.more);
    /* Without `follow` the first rank is read to its end first, so that its lines stay together. */
    ask("r2", (LogRequestRecord){.seq = 1, .tail_bytes = 1 << 20}, 2, READER_LEASE);
    expect_of("r2", 1, NULL);
    assert_int_equal(lines.parts[0].next.rank, 0);
    assert_int_equal(lines.parts[1].bytes, 0);
    assert_int_equal(lines.parts[1].next.file, 0);
    assert_true(lines.more && !lines.end);
}

/* ---- bounds ---- */

static void one_reader_too_many_is_told_so(_unused_ void **state)
{
    char id[20], key[KEY_MAX];
    join(&n1);
    append("rank0.log", "x\n");
    for (int i = 0; i <= LOG_REQUESTS_MAX; i++) {
        (void)snprintf(id, sizeof(id), "r%d", i);
        ask(id, (LogRequestRecord){.seq = 1, .follow = true, .tail_bytes = 9}, 1, READER_LEASE);
    }
    expect_of(id, 1, "");
    assert_true(lines.end);
    assert_string_equal(lines.refused, "16 readers are served already");
    expect_of("r0", 1, "x\n");
    assert_string_equal(lines.refused, "");
    (void)delete_key(key_log("lab", KEY_ASKS, "n1", "r0", key));
    settle();
    assert_null(lines_key("r0"));
    ask("r99", (LogRequestRecord){.seq = 1, .follow = true, .tail_bytes = 9}, 1, READER_LEASE);
    expect_of("r99", 1, NULL);
    assert_string_equal(lines.refused, "");
}

/* Repeats a request as long as it is answered at once. Returns the number of answers. */
static int drink(int64_t *seq)
{
    for (int n = 0;; n++) {
        char wanted[40];
        (void)snprintf(wanted, sizeof(wanted), "\"seq\":%lld,", (long long)*seq + 1);
        places[0] = (LogPlace){0};
        ask("r1", (LogRequestRecord){.seq = ++*seq, .tail_bytes = LOG_REQUESTS_TAIL_MAX}, 1,
            READER_LEASE);
        if (n1.manager->log_requests.budget_bytes <= 0 && !strstr(lines_key("r1")->value, wanted))
            return n;
        expect(*seq, NULL);
    }
}

static void a_node_writes_so_much_at_once_and_a_second(_unused_ void **state)
{
    enum {
        BURST = LOG_REQUESTS_BURST_BYTES / LOG_TEXT_MAX,
        SECOND = LOG_REQUESTS_BYTES_A_SEC / LOG_TEXT_MAX
    };
    int64_t seq = 0;
    join(&n1);
    for (int i = 0; i < LOG_TEXT_MAX / 4; i++)
        append("rank0.log", "0123456\n");
    int n = drink(&seq);
    assert_true(n > BURST * 3 / 4 && n <= BURST);
    pass(10 * USEC_PER_SEC);
    settle();
    expect(seq, NULL); /* the answer to the request that waited */
    n = drink(&seq);
    assert_true(n > 5 * SECOND && n <= 10 * SECOND);
}

/* ---- failures ---- */

/* Returns a record that asks for the log of rank 0, whose place is places[0]. */
static LogRequestRecord ask_for_one(bool follow)
{
    places[0] = (LogPlace){0};
    return (LogRequestRecord){.seq = 1,
                              .follow = follow,
                              .generation = 1,
                              .job = "a",
                              .tail_bytes = 9,
                              .places = places,
                              .n_places = 1};
}

static void an_answer_that_is_lost_is_put_again(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    append("rank0.log", "one\n");
    LogRequestRecord record = ask_for_one(true);
    _cleanup_free_ char *text = log_request_record_encode(&record, NULL);
    (void)put(key_log("lab", KEY_ASKS, "n1", "r1", key), text, READER_LEASE);
    show(&n1.etcd);
    answer(under_way(&n1.etcd, key_log("lab", KEY_LINES, "n1", "r1", key)), LOST_BEFORE);
    settle();
    assert_null(lines_key("r1"));
    pass(USEC_PER_SEC - 1); /* after a failure the put is not repeated at once */
    assert_int_equal(n_under_way(&n1.etcd), 0);
    pass(USEC_PER_SEC);
    settle();
    expect(1, "one\n");
    /* The node's lease ends, and its answer vanishes with the lease. */
    expire(&n1.etcd);
    assert_null(lines_key("r1"));
    notify_lost(&n1.etcd);
    grant(&n1.etcd);
    settle();
    wait_for(1, "one\n");
}

static void an_ask_may_come_before_etcd_has_told_us_of_our_answer(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    pass(USEC_PER_SEC); /* the timer that a new lease starts has run */
    append("rank0.log", "one\n");
    LogRequestRecord record = ask_for_one(false);
    _cleanup_free_ char *text = log_request_record_encode(&record, NULL);
    (void)put(key_log("lab", KEY_ASKS, "n1", "r1", key), text, READER_LEASE);
    show(&n1.etcd);
    (void)delete_key(key); /* the reader deletes its request before the answer is written */
    show(&n1.etcd);
    settle();
    assert_null(lines_key("r1"));
    record.follow = true;
    _cleanup_free_ char *first = log_request_record_encode(&record, NULL);
    (void)put(key, first, READER_LEASE);
    show(&n1.etcd);
    record.seq = 2;
    record.follow = false;
    _cleanup_free_ char *second = log_request_record_encode(&record, NULL);
    (void)put(key, second, READER_LEASE);
    show(&n1.etcd);
    settle();
    wait_for(2, "one\n");
}

/* A reader comes back under the same id and asks for another rank: it gets an answer of its own. */
static void an_ask_that_is_reborn_has_an_answer_of_its_own(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    append("rank0.log", "one\n");
    append("rank1.log", "two\n");
    LogRequestRecord record = ask_for_one(true);
    _cleanup_free_ char *first = log_request_record_encode(&record, NULL);
    (void)put(key_log("lab", KEY_ASKS, "n1", "r1", key), first, READER_LEASE);
    show(&n1.etcd);
    (void)delete_key(key); /* deleted while our answer is under way */
    places[0].rank = 1;
    _cleanup_free_ char *second = log_request_record_encode(&record, NULL);
    (void)put(key, second, READER_LEASE);
    show(&n1.etcd);
    settle();
    pass(USEC_PER_SEC);
    settle();
    expect(1, "two\n");
}

/* The earlier request with this id was to be answered once; the new request with this id follows the log. */
static void an_ask_that_is_reborn_does_not_end_with_the_one_before(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    append("rank0.log", "one\n");
    LogRequestRecord record = ask_for_one(false);
    _cleanup_free_ char *first = log_request_record_encode(&record, NULL);
    (void)put(key_log("lab", KEY_ASKS, "n1", "r1", key), first, READER_LEASE);
    show(&n1.etcd);
    (void)delete_key(key);
    record.follow = true;
    record.seq = 2;
    _cleanup_free_ char *second = log_request_record_encode(&record, NULL);
    (void)put(key, second, READER_LEASE);
    show(&n1.etcd);
    settle();
    pass(USEC_PER_SEC);
    settle();
    expect(2, "one\n");
    append("rank0.log", "two\n");
    ask_on(3, true);
    wait_for(3, "two\n");
}

/* With `follow` each answer begins with another rank, since one answer may lack room for all ranks. */
static void each_rank_that_is_followed_comes_first_in_its_turn(_unused_ void **state)
{
    join(&n1);
    append("rank0.log", "zero\n");
    append("rank1.log", "one\n");
    for (int64_t seq = 1; seq <= 4; seq++) {
        places[0] = (LogPlace){0};
        places[1] = (LogPlace){.rank = 1};
        ask("r1", (LogRequestRecord){.seq = seq, .follow = true, .tail_bytes = 99}, 2,
            READER_LEASE);
        wait_for(seq, seq % 2 ? "one\nzero\n" : "zero\none\n");
        assert_int_equal(lines.parts[0].next.rank, seq % 2);
    }
}

/* Each line that fits into an answer is handed out whole. */
static void the_lines_of_a_long_log_are_not_cut(_unused_ void **state)
{
    int64_t seq = 0;
    int n = 0;
    join(&n1);
    for (int i = 0; i < 3 * LOG_TEXT_MAX / 100; i++)
        append("rank0.log", "a line that fills no answer by itself and is cut where nobody looks, "
                            "as long as this\n");
    append("rank0.log", "without an end");
    do {
        ask("r1", (LogRequestRecord){.seq = ++seq, .tail_bytes = 1 << 20}, 1, READER_LEASE);
        wait_for(seq, NULL);
        assert_int_equal(strncmp(lines.text, "a line", 6), 0);
        if (lines.more)
            assert_int_equal(lines.text[strlen(lines.text) - 1], '\n');
        assert_true(++n < 10);
    } while (lines.more);
    assert_true(n > 2 && lines.end);
    assert_non_null(strstr(lines.text, "\nwithout an end"));
}

/* Each rank with a log is listed once, and files with other names are not listed. */
static void the_ranks_of_a_node_are_listed_in_their_order(_unused_ void **state)
{
    static const char *const files[] = {"rank10.log",    "rank2.log",  "rank2.log.1", "rank0.log.1",
                                        "rank3.log.bak", "rank-1.log", "rank.log",    "xrank4.log"};
    static const int ranks[] = {0, 2, 10};
    join(&n1);
    for (size_t i = 0; i < ELEMENTSOF(files); i++)
        append(files[i], "x\n");
    ask("r1", (LogRequestRecord){.seq = 1, .tail_bytes = 9}, 0, READER_LEASE);
    expect(1, NULL);
    assert_int_equal(lines.n_parts, ELEMENTSOF(ranks));
    for (size_t i = 0; i < ELEMENTSOF(ranks); i++)
        assert_int_equal(lines.parts[i].next.rank, ranks[i]);
}

/* A reader in the old file skips to the tail of a huge present file, though little of the old file is left to read. */
static void a_reader_in_the_old_file_is_led_to_the_end_of_a_huge_one(_unused_ void **state)
{
    join(&n1);
    append("rank0.log", "one\n");
    ask_on(1, true);
    expect(1, "one\n");
    append("rank0.log", "two\n");
    turn_over();
    append("rank0.log", "x");
    assert_int_equal(truncate(path_of("rank0.log"), HUGE_BYTES), 0);
    append("rank0.log", "\nend\n");
    ask_on(2, true);
    wait_for(2, "end\n");
    assert_int_equal(lines.parts[0].skipped, 4 + HUGE_BYTES + 1); /* all except the last line */
    ask_on(3, true);
    append("rank0.log", "more\n");
    wait_for(3, "more\n");
}

/* The ids "r1" and "r10" belong to different readers. */
static void readers_whose_ids_begin_alike_are_apart(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    append("rank0.log", "one\n");
    places[0] = (LogPlace){0};
    ask("r10", (LogRequestRecord){.seq = 1, .follow = true, .tail_bytes = 9}, 1, READER_LEASE);
    ask("r1", (LogRequestRecord){.seq = 1, .follow = true, .tail_bytes = 9}, 1, READER_LEASE);
    expect_of("r10", 1, "one\n");
    expect_of("r1", 1, "one\n");
    (void)delete_key(key_log("lab", KEY_ASKS, "n1", "r1", key));
    settle();
    assert_null(lines_key("r1"));
    assert_non_null(lines_key("r10"));
}

static void an_ask_that_cannot_be_read_ends_no_other(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    append("rank0.log", "one\n");
    places[0] = (LogPlace){0};
    ask_on(1, true);
    expect(1, "one\n");
    (void)put(key_log("lab", KEY_ASKS, "n1", "r1", key), "{", READER_LEASE);
    settle();
    expect(1, "one\n"); /* the earlier answer stays */
}

static void strange_asks_are_passed_over(_unused_ void **state)
{
    static const char *const texts[] = {"", "{", "{\"v\":2}",
                                        "{\"v\":2,\"job\":\"../..\",\"generation\":1,\"seq\":1}",
                                        "{\"v\":3,\"job\":\"a\",\"generation\":1,\"seq\":1}"};
    char key[KEY_MAX];
    join(&n1);
    append("rank0.log", "x\n");
    (void)key_log("lab", KEY_ASKS, "n1", "r1", key);
    for (size_t i = 0; i < ELEMENTSOF(texts); i++) {
        (void)put(key, texts[i], READER_LEASE);
        settle();
        assert_null(lines_key("r1"));
    }
    ask("r1", (LogRequestRecord){.seq = 1}, 0, 0); /* a request without a lease */
    assert_null(lines_key("r1"));
    (void)put(key_log("lab", KEY_ASKS, "n2", "r2", key), "{}", READER_LEASE);
    (void)put(key_log("lab", KEY_ASKS, "n1", "r/2", key), "{}", READER_LEASE);
    settle();
    ask_on(1, true);
    expect(1, "x\n");
}

static void a_node_without_the_right_says_nothing_of_logs(_unused_ void **state)
{
    char key[KEY_MAX];
    start(&n1);
    answer(under_way(&n1.etcd, key_log("lab", KEY_ASKS, "n1", ".rights", key)), DENIED);
    grant(&n1.etcd);
    settle();
    assert_string_equal(node_record(&n1).features,
                        FEATURE_DOCTOR " " FEATURE_EVALS " " FEATURE_SECRETS);
    ask_on(1, true);
    assert_null(lines_key("r1"));
    pass(30 * USEC_PER_SEC);
    settle();
    assert_string_equal(node_record(&n1).features,
                        FEATURE_DOCTOR " " FEATURE_EVALS " " FEATURE_SECRETS " " FEATURE_LOGS);
    pass(LOG_REQUESTS_LOOK_MSEC * USEC_PER_MSEC);
    settle();
    expect(1, "");
    append("rank0.log", "x\n");
    ask_on(2, true);
    expect(2, "x\n");
}

static void a_node_that_may_not_write_lines_gives_up_ask_by_ask(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    pass(USEC_PER_SEC);
    append("rank0.log", "one\n");
    LogRequestRecord record = ask_for_one(true);
    _cleanup_free_ char *text = log_request_record_encode(&record, NULL);
    (void)put(key_log("lab", KEY_ASKS, "n1", "r1", key), text, READER_LEASE);
    show(&n1.etcd);
    answer(under_way(&n1.etcd, key_log("lab", KEY_LINES, "n1", "r1", key)), DENIED);
    for (int i = 0; i < 20; i++) {
        pass(USEC_PER_SEC);
        assert_int_equal(n_under_way(&n1.etcd), 0);
    }
    ask_on(1, true);
    expect(1, "one\n");
}

/* A reader sets the minimum time between two answers; the first answer comes at once. */
static void a_reader_that_wants_a_pause_has_it(_unused_ void **state)
{
    LogRequestRecord record = {.seq = 1, .follow = true, .tail_bytes = 1000, .pause_usec = 5000000};
    join(&n1);
    append("rank0.log", "one\n");
    ask("r1", record, 1, READER_LEASE);
    expect(1, "one\n");
    append("rank0.log", "two\n");
    record.seq = 2;
    ask("r1", record, 1, READER_LEASE);
    pass(5 * USEC_PER_SEC - LOG_REQUESTS_LOOK_MSEC * USEC_PER_MSEC);
    settle();
    expect(1, NULL);
    pass(2 * LOG_REQUESTS_LOOK_MSEC * USEC_PER_MSEC);
    settle();
    expect(2, "two\n");
    record.seq = 3;
    record.pause_usec = 0; /* the node's own minimum applies */
    append("rank0.log", "three\n");
    pass(5 * USEC_PER_SEC);
    ask("r1", record, 1, READER_LEASE);
    expect(3, "three\n");
    record.seq = 4;
    append("rank0.log", "four\n");
    ask("r1", record, 1, READER_LEASE);
    expect(3, NULL);
    wait_for(4, "four\n");
}

/* Another machine has the name, so readers mean that machine: the waiting node answers no request. */
static void who_waits_for_its_name_answers_nobody(_unused_ void **state)
{
    const int64_t lease = foreign_lease();
    append("rank0.log", "a line\n");
    (void)put_node(&n1, "another", 1, lease);
    start(&n1);
    settle();
    grant(&n1.etcd);
    settle();
    ask_on(1, false);
    pass(2 * USEC_PER_SEC);
    settle();
    assert_null(lines_key("r1"));
    (void)end_lease(lease);
    settle();
    wait_for(1, "a line\n");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(one_answer_lies_there_until_it_is_asked_on),
        TEST(a_rank_that_has_not_begun_is_waited_for),
        TEST(a_log_that_turns_over_loses_no_line),
        TEST(a_huge_log_is_read_at_its_end),
        TEST(what_would_harm_a_terminal_or_a_record_is_replaced),
        TEST(ranks_that_are_followed_share_an_answer),
        TEST(one_reader_too_many_is_told_so),
        TEST(a_node_writes_so_much_at_once_and_a_second),
        TEST(an_answer_that_is_lost_is_put_again),
        TEST(an_ask_may_come_before_etcd_has_told_us_of_our_answer),
        TEST(an_ask_that_is_reborn_has_an_answer_of_its_own),
        TEST(readers_whose_ids_begin_alike_are_apart),
        TEST(an_ask_that_cannot_be_read_ends_no_other),
        TEST(strange_asks_are_passed_over),
        TEST(a_node_that_may_not_write_lines_gives_up_ask_by_ask),
        TEST(a_reader_that_wants_a_pause_has_it),
        TEST(an_ask_that_is_reborn_does_not_end_with_the_one_before),
        TEST(each_rank_that_is_followed_comes_first_in_its_turn),
        TEST(a_reader_in_the_old_file_is_led_to_the_end_of_a_huge_one),
        TEST(the_lines_of_a_long_log_are_not_cut),
        TEST(the_ranks_of_a_node_are_listed_in_their_order),
        TEST(a_node_without_the_right_says_nothing_of_logs),
        TEST(who_waits_for_its_name_answers_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
