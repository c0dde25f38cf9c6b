/* SPDX-License-Identifier: Apache-2.0 */
/* test-journal.c - a journal holds what the core saw, and a replay makes the same decisions. */
#include "base/file.h"
#include "base/json/json.h"
#include "base/test/testing.h"
#include "cluster/keys.h"
#include "controller/journal/test/testing-life.h"

#include <string.h>
#include <sys/stat.h>

/* ---- the replay ---- */

typedef struct Seen {
    int n_heads, n_decisions, n_differences, n_events, n_cut;
    bool quiescent;
    char text[1024]; /* describes the last difference */
} Seen;

static int on_report(const ReplayReport *r, void *userdata)
{
    Seen *seen = userdata;
    seen->n_heads += r->kind == REPLAY_HEAD;
    if (r->kind == REPLAY_HEAD)
        seen->quiescent = r->head->quiescent;
    seen->n_events += r->kind == REPLAY_EVENT;
    seen->n_cut += r->kind == REPLAY_CUT;
    if (r->kind != REPLAY_DECISION)
        return 0;
    seen->n_decisions++;
    seen->n_differences += r->differs;
    if (r->differs) {
        _cleanup_free_ char *then = r->then ? json_dumps(r->then, 0) : NULL;
        _cleanup_free_ char *now = r->now ? json_dumps(r->now, 0) : NULL;
        (void)snprintf(seen->text, sizeof(seen->text), "line %zu\n- %s\n+ %s", r->line,
                       then ? then : "", now ? now : "");
    }
    return 0;
}

static Seen replay(const char *path)
{
    Seen seen = {0};
    Error err = ERROR_INIT;
    if (journal_replay(path, on_report, &seen, &err) != 0)
        fail_msg("%s", err.text);
    return seen;
}

static void assert_same(const Seen *seen)
{
    if (seen->n_differences > 0)
        fail_msg("%d differ, the last: %s", seen->n_differences, seen->text);
}

static char *read_journal(const Life *s)
{
    char *text;
    Error err = ERROR_INIT;
    assert_int_equal(file_read(s->path, 1 << 24, &text, NULL, &err), 0);
    return text;
}

static void write_journal(const Life *s, const char *text, size_t n)
{
    Error err = ERROR_INIT;
    assert_int_equal(file_write(s->path, text, n, 0, &err), 0);
}

/* Replaces the first or the last occurrence of `from` by `to`, which has the same length. */
static void change(const Life *s, const char *from, const char *to, bool last)
{
    _cleanup_free_ char *text = read_journal(s);
    char *found = NULL;
    assert_int_equal(strlen(from), strlen(to));
    for (char *at = text; (at = strstr(at, from)) && (last || !found); at++)
        found = at;
    assert_non_null(found);
    memcpy(found, to, strlen(to));
    write_journal(s, text, strlen(text));
}

/* ---- tests ---- */

static void a_life_is_replayed(void **state)
{
    Life *s = *state;
    life_open(s, LIFE_LARGE);
    life_begin_job(s);
    life_lose_a_rank(s, 1);
    life_lose_a_rank(s, 2);
    assert_true(s->n_decisions >= 9); /* three for each generation: world, go, running */
    Seen seen = replay(s->path);
    assert_same(&seen);
    assert_int_equal(seen.n_decisions, s->n_decisions);
    assert_int_equal(seen.n_heads, 1);
}

/* With a small bound there are many parts. The last two of them exist, and each can be replayed alone. */
static void parts_stand_alone_and_are_bounded(void **state)
{
    enum { MAX_BYTES = 256 << 10 };
    Life *s = *state;
    struct stat st, old_st;
    life_open(s, MAX_BYTES);
    life_begin_job(s);
    int n_parts = 0;
    uint64_t last_size = 0;
    for (int64_t generation = 1; generation < 60; generation++) {
        life_lose_a_rank(s, generation);
        assert_int_equal(stat(s->path, &st), 0);
        n_parts += (uint64_t)st.st_size < last_size;
        last_size = (uint64_t)st.st_size;
        bool has_old = stat(s->old_path, &old_st) == 0;
        assert_true(st.st_size + (has_old ? old_st.st_size : 0) < MAX_BYTES);
    }
    assert_true(n_parts >= 3);
    const char *const paths[] = {s->path, s->old_path};
    for (size_t i = 0; i < 2; i++) {
        Seen seen = replay(paths[i]);
        assert_true(seen.quiescent);
        assert_same(&seen);
        assert_int_equal(seen.n_heads, 1);
        assert_true(seen.n_decisions > 0);
    }
}

static void a_restart_goes_on_behind_a_cut_line(void **state)
{
    Life *s = *state;
    life_open(s, LIFE_LARGE);
    life_begin_job(s);
    s->journal = journal_free(s->journal);
    _cleanup_free_ char *text = read_journal(s);
    write_journal(s, text, strlen(text) - 20);
    Seen cut = replay(s->path);
    assert_same(&cut);
    assert_int_equal(cut.n_cut, 1);

    s->n_decisions = 0;
    life_open(s, LIFE_LARGE);
    s->now_usec += 10 * USEC_PER_SEC;
    life_begin_job(s);
    Seen seen = replay(s->path);
    assert_same(&seen);
    assert_int_equal(seen.n_heads, 2);
    assert_int_equal(seen.n_cut, 1);
}

static void assert_refused(const Life *s, const char *words)
{
    Seen seen = {0};
    Error err = ERROR_INIT;
    assert_int_equal(journal_replay(s->path, on_report, &seen, &err), -EINVAL);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" is not in \"%s\"", words, err.text);
}

static void a_bad_line_is_named(void **state)
{
    Life *s = *state;
    life_open(s, LIFE_LARGE);
    life_begin_job(s);
    change(s, "{\"key\":", "[\"key\":", true); /* lines of ticks follow the changed line */
    assert_refused(s, "events.jsonl:");
    change(s, "[\"key\":", "{\"key\":", true);
    change(s, "\"nodes\":16", "\"nodes\":-1", false);
    assert_refused(s, "events.jsonl:1: limits.nodes: -1 is not in ");
    change(s, "\"journal\"", "\"diary\"  ", false);
    assert_refused(s, "events.jsonl:1: not the journal of a controller");
    write_journal(s, "", 0);
    assert_refused(s, "events.jsonl: empty");
    write_journal(s, "{\"journal\":2}", 13);
    assert_refused(s, "events.jsonl:1: journal: 2 is not in ");
}

/* A recorded decision that this core does not make is reported with the core's own decision. */
static void a_difference_shows_both(void **state)
{
    Life *s = *state;
    life_open(s, LIFE_LARGE);
    life_begin_job(s);
    life_lose_a_rank(s, 1);
    change(s, "incident a-1: trainer-died", "incident b-1: trainer-died", false);
    Seen seen = replay(s->path);
    assert_int_equal(seen.n_differences, 1);
    assert_int_equal(seen.n_decisions, s->n_decisions);
    assert_non_null(strstr(seen.text, "- [\"incident b-1: trainer-died"));
    assert_non_null(strstr(seen.text, "+ [\"incident a-1: trainer-died"));
}

/* A replay uses the recorded settings, and those that a reload changed later. */
static void settings_are_replayed(void **state)
{
    Life *s = *state;
    s->head.config.max_strikes = 1; /* one strike would leave a node out at once */
    life_open(s, LIFE_LARGE);
    life_begin_job(s);
    ClusterConfig config = s->head.config;
    config.max_strikes = 2;
    life_configure(s, &config);
    life_lose_a_rank(s, 1);
    Seen seen = replay(s->path);
    assert_same(&seen);

    change(s, "\"max_strikes\":2", "\"max_strikes\":1", true); /* now the decisions differ */
    seen = replay(s->path);
    assert_true(seen.n_differences > 0);
}

/* A list of nodes that a reload changed decides about the next world, also in a replay. */
static void a_list_of_nodes_is_replayed(void **state)
{
    Life *s = *state;
    life_open(s, LIFE_LARGE);
    life_begin_job(s);
    ClusterConfig config = s->head.config;
    (void)snprintf(config.admit, sizeof(config.admit), "n2");
    life_configure(s, &config);
    life_lose_a_rank(s, 1);
    Seen seen = replay(s->path);
    assert_same(&seen);

    change(s, "\"admit\":\"n2\"", "\"admit\":\"n1\"", true); /* now the decisions differ */
    seen = replay(s->path);
    assert_true(seen.n_differences > 0);
    assert_non_null(strstr(seen.text, " n2 "));
}

static void texts_of_the_settings_survive(_unused_ void **state)
{
    ClusterConfig config = cluster_config_default, back;
    Error err = ERROR_INIT;
    (void)snprintf(config.admit, sizeof(config.admit), "n*");
    (void)snprintf(config.prices, sizeof(config.prices), "p5*=12.29");
    _cleanup_json_ json_t *object = journal_config_json(&config);
    assert_int_equal(journal_config_read("line", object, &back, &err), 0);
    assert_string_equal(back.admit, config.admit);
    assert_string_equal(back.prices, config.prices);
}

static void a_disk_that_fails_is_tried_again(void **state)
{
    Life *s = *state;
    char blocked[128];
    Error err = ERROR_INIT;
    life_open(s, 256 << 10);
    /* While this folder exists, no new part can begin. */
    (void)snprintf(blocked, sizeof(blocked), "%s.new/x", s->path);
    assert_int_equal(folder_make(blocked, &err), 0);
    life_begin_job(s);
    int64_t generation = 1;
    for (; generation < 40; generation++)
        life_lose_a_rank(s, generation);
    blocked[strlen(blocked) - 2] = '\0';
    assert_int_equal(folder_remove(blocked, &err), 0);
    for (; generation < 44; generation++)
        life_lose_a_rank(s, generation);
    Seen seen = replay(s->path);
    assert_same(&seen);
    assert_true(seen.n_decisions > 0);
    seen = replay(s->old_path);
    assert_same(&seen);
}

/* Records key n3 with a value of n bytes, always at the same time. Returns by how much the file grew. */
static int64_t record_value(const Life *s, Journal *journal, size_t n)
{
    char key[KEY_MAX];
    struct stat before, after;
    const Event event = {.kind = EVENT_NODE, .revision = 5, .now_usec = s->now_usec};
    _cleanup_free_ char *value = malloc(n);
    assert_non_null(value);
    memset(value, 'x', n);
    assert_int_equal(stat(s->path, &before), 0);
    journal_record_key(journal, &event, key_of("lab", KEY_NODES, "n3", key), value, n);
    assert_int_equal(stat(s->path, &after), 0);
    return after.st_size - before.st_size;
}

/* A line of the greatest length is replayed, and copied whole into the next part. A longer line is lost. */
static void the_longest_line_is_read_again(void **state)
{
    enum { LINE_BYTES_MAX = (16 << 20) - 1 }; /* with the newline */
    Life *s = *state;
    Error err = ERROR_INIT;
    const Event tick = {.kind = EVENT_TICK, .now_usec = s->now_usec};
    _cleanup_(journal_freep) Journal *journal = NULL;
    assert_int_equal(journal_new(s->path, 1, &s->head, &journal, &err), 0);
    const int64_t around = record_value(s, journal, 1) - 1;
    const size_t longest = (size_t)(LINE_BYTES_MAX - around);
    assert_int_equal(record_value(s, journal, longest), LINE_BYTES_MAX);
    journal_record_event(journal, &tick); /* begins a part */
    assert_int_equal(replay(s->old_path).n_events, 2);
    assert_int_equal(replay(s->path).n_events, 2); /* the copy, and the tick */
    assert_int_equal(record_value(s, journal, longest + 1), 0);
    assert_int_equal(replay(s->path).n_events, 2);
}

#define WITH_LIFE(test) cmocka_unit_test_setup_teardown(test, life_setup, life_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_LIFE(a_life_is_replayed),
        WITH_LIFE(parts_stand_alone_and_are_bounded),
        WITH_LIFE(a_restart_goes_on_behind_a_cut_line),
        WITH_LIFE(a_bad_line_is_named),
        WITH_LIFE(a_difference_shows_both),
        WITH_LIFE(settings_are_replayed),
        WITH_LIFE(a_list_of_nodes_is_replayed),
        cmocka_unit_test(texts_of_the_settings_survive),
        WITH_LIFE(a_disk_that_fails_is_tried_again),
        WITH_LIFE(the_longest_line_is_read_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
