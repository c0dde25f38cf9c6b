/* SPDX-License-Identifier: Apache-2.0 */
/* test-node-asks.c - a node whose log readers do not take their answers, or whose requests are invalid, on the seams of
 * testing-machine.h. test-node-logs.c tests the answers. */
#include "daemon/test/testing-node.h"

#include "base/file.h"

#include <fcntl.h>
#include <string.h>

enum { READER_LEASE = 4711 /* the lease of a reader's request */ };

static void ask(const char *id, int64_t seq)
{
    char key[KEY_MAX];
    LogPlace place = {0};
    const LogRequestRecord record = {.job = "a",
                                     .generation = 1,
                                     .seq = seq,
                                     .follow = true,
                                     .tail_bytes = 9,
                                     .places = &place,
                                     .n_places = 1};
    _cleanup_free_ char *text = log_request_record_encode(&record, NULL);
    (void)put(key_log("lab", KEY_ASKS, "n1", id, key), text, READER_LEASE);
    settle();
}

static void withdraw(const char *id)
{
    char key[KEY_MAX];
    (void)delete_key(key_log("lab", KEY_ASKS, "n1", id, key));
    settle();
}

static const StoredKey *lines_key(const char *id)
{
    char key[KEY_MAX];
    return find(key_log("lab", KEY_LINES, "n1", id, key));
}

/* Checks that the answer to that request is in etcd. Returns whether the answer is a refusal. */
static bool is_refused(const char *id, int64_t seq)
{
    const StoredKey *k = lines_key(id);
    LogLinesRecord lines;
    Error err = ERROR_INIT;
    assert_non_null(k);
    assert_int_equal(log_lines_record_decode(k->key, k->value, strlen(k->value), &lines, &err), 0);
    assert_int_equal(lines.seq, seq);
    const bool refused = lines.refused[0] != '\0';
    log_lines_record_clear(&lines);
    return refused;
}

static const char *numbered(const char *name, int i)
{
    static char id[20];
    (void)snprintf(id, sizeof(id), "%s%d", name, i);
    return id;
}

static void let_pass(uint64_t sec)
{
    for (uint64_t i = 0; i < sec; i++) {
        pass(USEC_PER_SEC);
        renew(&n1.etcd);
        settle();
    }
}

static int setup(_unused_ void **state)
{
    nodes_begin();
    join(&n1);
    return 0;
}

static int teardown(_unused_ void **state)
{
    nodes_end();
    return 0;
}

/* Readers whose lease lives lose their places if they do not take an answer, be it their first or a later one. */
static void answers_that_nobody_takes_hold_no_place(_unused_ void **state)
{
    enum { TAKEN = 8 };
    for (int i = 0; i < LOG_REQUESTS_MAX; i++) {
        ask(numbered("r", i), 1 + i % 2);
        assert_false(is_refused(numbered("r", i), 1 + i % 2));
    }
    let_pass(LOG_REQUESTS_UNTAKEN_SEC - 2);
    for (int i = 0; i < TAKEN; i++) /* these readers take their answers, then wait for lines */
        ask(numbered("r", i), 2 + i % 2);
    ask("early", 1);
    assert_true(is_refused("early", 1));
    let_pass(3);
    for (int i = TAKEN; i < LOG_REQUESTS_MAX; i++) { /* new readers replace silent ones */
        ask(numbered("new", i), 1);
        assert_false(is_refused(numbered("new", i), 1));
    }
    ask("more", 1);
    assert_true(is_refused("more", 1));
    for (int i = TAKEN; i < LOG_REQUESTS_MAX; i++)
        withdraw(numbered("r", i)); /* makes room in the fake etcd, which holds few keys */
    let_pass(2 * LOG_REQUESTS_UNTAKEN_SEC);
    for (int i = TAKEN; i < LOG_REQUESTS_MAX; i++) {
        ask(numbered("newer", i), 1);
        assert_false(is_refused(numbered("newer", i), 1));
    }
    ask("more", 2);
    assert_true(is_refused("more", 2)); /* readers that wait for lines keep their places */
}

/* A reader that comes late still finds its answer, and is served again. */
static void whoever_comes_back_is_served(_unused_ void **state)
{
    for (int i = 0; i < LOG_REQUESTS_MAX; i++)
        ask(numbered("r", i), 1);
    let_pass(LOG_REQUESTS_UNTAKEN_SEC + 1);
    ask("new", 1);
    assert_false(is_refused("r0", 1));
    ask("r0", 2); /* takes the place of a reader that took no answer */
    assert_false(is_refused("r0", 2));
    withdraw("r2");
    assert_null(lines_key("r2"));
}

/* A reader that repeats its request with the same number has not taken the answer. */
static void the_same_ask_again_takes_nothing(_unused_ void **state)
{
    for (int i = 0; i < LOG_REQUESTS_MAX; i++)
        ask(numbered("r", i), 1);
    let_pass(LOG_REQUESTS_UNTAKEN_SEC - 1);
    for (int i = 0; i < LOG_REQUESTS_MAX; i++)
        ask(numbered("r", i), 1);
    let_pass(2);
    ask("new", 1);
    assert_false(is_refused("new", 1));
}

/* A client that may write requests for logs cannot fill the journal with warnings. */
static void damaged_asks_are_warned_of_once_a_minute(_unused_ void **state)
{
    char key[KEY_MAX], path[] = "/tmp/sdtrain-asks-XXXXXX", *said = NULL;
    const int before = dup(STDERR_FILENO), fd = mkostemp(path, O_CLOEXEC);
    assert_true(before >= 0 && fd >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    for (int i = 0; i < 100; i++) {
        (void)put(key_log("lab", KEY_ASKS, "n1", i % 2 ? "r1" : "r2", key), i % 2 ? "{" : "{}",
                  i % 2 ? READER_LEASE : 0);
        settle();
    }
    let_pass(LOG_REQUESTS_DAMAGED_SEC + 1);
    let_pass(LOG_REQUESTS_DAMAGED_SEC + 1); /* no request comes meanwhile */
    (void)put(key_log("lab", KEY_ASKS, "n1", "r3", key), "{", READER_LEASE);
    settle();
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    (void)close(before);
    (void)close(fd);
    assert_int_equal(file_read(path, 1 << 16, &said, NULL, NULL), 0);
    (void)unlink(path);
    int n = 0;
    for (const char *p = said; (p = strstr(p, " warning ")); p++)
        n++;
    assert_int_equal(n, 3);
    assert_non_null(strstr(said, "/asks/n1/r2: it has no lease"));
    assert_non_null(strstr(said, "99 more asks for logs were passed over within 60 s, the last: "));
    assert_non_null(strstr(said, "/asks/n1/r3: "));
    free(said);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(answers_that_nobody_takes_hold_no_place),
        TEST(whoever_comes_back_is_served),
        TEST(the_same_ask_again_takes_nothing),
        TEST(damaged_asks_are_warned_of_once_a_minute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
