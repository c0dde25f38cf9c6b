/* SPDX-License-Identifier: Apache-2.0 */
/* test-replay.c - a journal that was cut or changed anywhere: whole lines are replayed, bad lines are named, and a
 * difference is reported once. */
#include "base/file.h"
#include "base/json/json.h"
#include "base/memory.h"
#include "base/test/testing-leaks.h"
#include "controller/journal/test/testing-life.h"

#include <string.h>

enum { LINES_MAX = 512 };

typedef struct Told {
    int n_calls, n_heads, n_events, n_then, n_alone, n_differ, n_cut, n_ignored;
    size_t line; /* line of the last difference or cut */
    int ends_at; /* on_report() returns 7 at this call; 0: at none */
} Told;

static int on_report(const ReplayReport *r, void *userdata)
{
    Told *told = userdata;
    told->n_heads += r->kind == REPLAY_HEAD;
    told->n_events += r->kind == REPLAY_EVENT;
    told->n_cut += r->kind == REPLAY_CUT;
    told->n_ignored += r->kind == REPLAY_EVENT && r->ignored;
    told->n_alone += r->kind == REPLAY_DECISION && !r->then;
    told->n_differ += r->differs;
    if (r->differs || r->kind == REPLAY_CUT)
        told->line = r->line;
    if (r->kind == REPLAY_DECISION && r->then) {
        told->n_then++;
        assert_true(json_array_size(r->then) > 0);
    }
    return ++told->n_calls == told->ends_at ? 7 : 0;
}

static char *text;
static size_t n_text;
static const char *lines[LINES_MAX]; /* the beginning of each line, and the end of the text */
static size_t n_lines;

/* Records a life with one failure, in one part. */
static int begin(void **state)
{
    (void)life_setup(state);
    Life *s = *state;
    Error err = ERROR_INIT;
    life_open(s, LIFE_LARGE);
    life_begin_job(s);
    life_lose_a_rank(s, 1);
    json_decref(life_end_journal(s));
    assert_int_equal(file_read(s->path, 1 << 24, &text, &n_text, &err), 0);
    n_lines = 0;
    for (const char *at = text; *at; at = strchr(at, '\n') + 1) {
        assert_true(n_lines + 1 < LINES_MAX);
        lines[n_lines++] = at;
    }
    lines[n_lines] = text + n_text;
    return 0;
}

static int end(void **state)
{
    free(text);
    return life_teardown(state);
}

static int replay_bytes(const Life *s, const char *bytes, size_t n, Told *told, Error *err)
{
    assert_int_equal(file_write(s->path, bytes, n, 0, err), 0);
    return journal_replay(s->path, on_report, told, err);
}

static bool is_decision(size_t line) { return strncmp(lines[line], "{\"decision\"", 11) == 0; }

/* Replays the lines with another text in place of one line ("" leaves the line out), or before that line. */
static int replay_with(const Life *s, size_t line, const char *instead, bool before, Told *told,
                       Error *err)
{
    const size_t n_before = (size_t)(lines[line] - text);
    const char *rest = before ? lines[line] : lines[line + 1];
    _cleanup_free_ char *bytes = memory_zeroed(n_text + strlen(instead) + 1, 1);
    memcpy(bytes, text, n_before);
    memcpy(bytes + n_before, instead, strlen(instead));
    memcpy(bytes + n_before + strlen(instead), rest, (size_t)(text + n_text - rest));
    return replay_bytes(s, bytes, strlen(bytes), told, err);
}

/* ---- tests ---- */

/* A journal may be cut at any byte: every whole line before the cut counts, half a line is reported as cut, and
 * without a whole head the file is not a journal. */
static void it_may_be_cut_anywhere(void **state)
{
    const Life *s = *state;
    int n_then = 0;
    for (size_t line = 0; line < n_lines; line++) {
        const size_t first = (size_t)(lines[line] - text), last = (size_t)(lines[line + 1] - text);
        for (size_t n = first; n < last; n += line == 0 || n + 3 >= last ? 1 : 41) {
            Told told = {0};
            Error err = ERROR_INIT;
            const bool whole = n == last - 1; /* only the line's newline is missing */
            int r = replay_bytes(s, text, n, &told, &err);
            if (line == 0 && !whole) {
                assert_int_equal(r, -EINVAL);
                assert_non_null(strstr(err.text, n == 0 ? ": empty" : "events.jsonl:1: line 1"));
                continue;
            }
            assert_int_equal(r, 0);
            assert_int_equal(told.n_differ, 0);
            assert_int_equal(told.n_cut, !whole && n > first);
            if (told.n_cut)
                assert_int_equal(told.line, line + 1);
            assert_int_equal(told.n_then, n_then + (whole && is_decision(line)));
            assert_int_equal(told.n_heads + told.n_events + told.n_then, line + whole);
        }
        n_then += is_decision(line);
    }
    assert_int_equal(n_then, s->n_decisions);
}

/* A bad line in the middle, which no dying writer can have left, ends the replay: the lines after it cannot be
 * trusted. */
static void a_bad_line_within_ends_it(void **state)
{
    const Life *s = *state;
    for (size_t line = 1; line + 1 < n_lines; line += 5) {
        Told told = {0};
        Error err = ERROR_INIT;
        char where[32];
        (void)snprintf(where, sizeof(where), "events.jsonl:%zu: line 1, column", line + 1);
        assert_int_equal(replay_with(s, line, "{\"tick\":tr\n", false, &told, &err), -EINVAL);
        assert_non_null(strstr(err.text, where));
        assert_int_equal(told.n_heads + told.n_events + told.n_then, line);
    }
}

/* A decision that was not recorded differs, and all other decisions are still compared. */
static void a_decision_that_was_not_made(void **state)
{
    const Life *s = *state;
    int n_tried = 0;
    for (size_t line = 1; line + 1 < n_lines; line++) {
        Told told = {0};
        Error err = ERROR_INIT;
        if (!is_decision(line))
            continue;
        assert_int_equal(replay_with(s, line, "", false, &told, &err), 0);
        assert_int_equal(told.n_then, s->n_decisions - 1);
        assert_true(told.n_alone >= 1 && told.n_differ >= 1);
        n_tried++;
    }
    assert_int_equal(n_tried, s->n_decisions);
}

/* A decision that only the recorded core made differs, and so does one that was recorded for another job. */
static void a_decision_that_is_not_made_now(void **state)
{
    const Life *s = *state;
    size_t at = 1;
    while (!is_decision(at))
        at++;
    Told told = {0};
    Error err = ERROR_INIT;
    assert_int_equal(replay_with(s, at + 1,
                                 "{\"decision\":900,\"job\":\"b\",\"does\":[\"x\"],\"now\":1,"
                                 "\"real\":1}\n",
                                 true, &told, &err),
                     0);
    assert_int_equal(told.n_differ, 1);
    assert_int_equal(told.line, at + 2);
    assert_int_equal(told.n_then, s->n_decisions + 1);
    assert_int_equal(told.n_alone, 0);

    char other[4096];
    (void)snprintf(other, sizeof(other), "%.*s", (int)(lines[at + 1] - lines[at]), lines[at]);
    char *job = strstr(other, "\"job\":\"a\"");
    assert_non_null(job);
    job[7] = 'b';
    told = (Told){0};
    assert_int_equal(replay_with(s, at, other, false, &told, &err), 0);
    assert_true(told.n_differ >= 1);
    assert_int_equal(told.n_then, s->n_decisions);
}

/* If the handler returns a value other than 0, the replay ends there with that value, whatever the report was. */
static void a_handler_ends_it(void **state)
{
    const Life *s = *state;
    Told all = {0};
    Error err = ERROR_INIT;
    char twice[65536]; /* a cut line at the end is reported, too */
    const int n = snprintf(twice, sizeof(twice), "%s{\"tick\":tr\n%s{\"tick\":tr", text, text);
    assert_true(n < (int)sizeof(twice));
    assert_int_equal(replay_bytes(s, twice, (size_t)n, &all, &err), 0);
    assert_int_equal(all.n_heads, 2);
    assert_int_equal(all.n_cut, 2);
    assert_int_equal(all.n_then, 2 * s->n_decisions);
    assert_int_equal(all.n_differ, 0);
    for (int i = 1; i <= all.n_calls; i++) {
        Told told = {.ends_at = i};
        assert_int_equal(journal_replay(s->path, on_report, &told, &err), 7);
        assert_int_equal(told.n_calls, i);
    }
}

/* A line of a later version is skipped and reported; a line that no version writes is refused. */
static void lines_of_others(void **state)
{
    const Life *s = *state;
    static const struct {
        const char *line;
        int r, n_ignored;
        const char *words;
    } cases[] = {
        {"{\"key\":\"/sdtrain/lab/strange/"
         "x\",\"value\":\"{}\",\"revision\":1,\"now\":1,\"real\":1}\n",
         0, 0, NULL},
        {"{\"key\":\"/sdtrain/lab/nodes/"
         "A_B\",\"value\":\"{}\",\"revision\":1,\"now\":1,\"real\":1}\n",
         0, 1, NULL},
        {"{\"key\":\"/sdtrain/lab/nodes/n9\",\"value\":\"{}\",\"now\":1,\"real\":1}\n", -EINVAL, 0,
         "revision"},
        {"{\"key\":7,\"value\":\"{}\",\"revision\":1,\"now\":1,\"real\":1}\n", -EINVAL, 0, "key"},
        {"{\"leading\":0,\"now\":1,\"real\":1}\n", -EINVAL, 0, "leading: 0"},
        {"{\"outcome\":\"odd\",\"id\":1,\"revision\":1,\"now\":1,\"real\":1}\n", -EINVAL, 0,
         "outcome"},
        {"{\"outcome\":\"done\",\"id\":0,\"revision\":1,\"now\":1,\"real\":1}\n", -EINVAL, 0,
         "id: 0"},
        {"{\"outcome\":\"done\",\"id\":9999,\"revision\":1,\"now\":1,\"real\":1}\n", 0, 0, NULL},
        {"{\"tick\":true,\"now\":-1,\"real\":1}\n", -EINVAL, 0, "now: -1"},
        {"{\"tick\":true,\"now\":1}\n", -EINVAL, 0, "real"},
        {"{\"config\":{\"max_strikes\":-1},\"now\":1,\"real\":1}\n", -EINVAL, 0, "max_strikes"},
        {"{\"decision\":0,\"job\":\"a\",\"does\":[],\"now\":1,\"real\":1}\n", -EINVAL, 0,
         "decision: 0"},
        {"{\"decision\":1,\"does\":[],\"now\":1,\"real\":1}\n", -EINVAL, 0, "job"},
        {"{\"decision\":1,\"job\":\"a\",\"now\":1,\"real\":1}\n", -EINVAL, 0, "does"},
        {"{\"journal\":1}\n", -EINVAL, 0, "version"},
        {"[]\n", -EINVAL, 0, "expected a JSON object"},
        {"{\"tock\":true,\"now\":1,\"real\":1}\n", -EINVAL, 0, "line: neither event nor decision"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Told told = {0};
        Error err = ERROR_INIT;
        const int r = replay_with(s, n_lines - 1, cases[i].line, true, &told, &err);
        if (r != cases[i].r || told.n_ignored != cases[i].n_ignored ||
            (r < 0 && !strstr(err.text, cases[i].words)))
            fail_msg("%s: %d, %d ignored: %s", cases[i].line, r, told.n_ignored, err.text);
    }
}

/* A line of 16 MiB ends the replay with an error. A line that is one byte shorter is passed over and counted. */
static void a_line_without_an_end(void **state)
{
    enum { MAX = 16 << 20 };
    const Life *s = *state;
    Told told = {0};
    Error err = ERROR_INIT;
    _cleanup_free_ char *bytes = memory_zeroed(n_text + MAX + 1, 1);
    memcpy(bytes, text, n_text);
    memset(bytes + n_text, 'x', MAX);
    assert_int_equal(replay_bytes(s, bytes, n_text + MAX - 2, &told, &err), 0);
    assert_int_equal(told.n_cut, 1);
    bytes[n_text + MAX - 2] = '\n';
    assert_int_equal(replay_bytes(s, bytes, n_text + MAX - 1, &told, &err), 0);
    bytes[n_text + MAX - 2] = 'x';
    assert_int_equal(replay_bytes(s, bytes, n_text + MAX - 1, &told, &err), -EINVAL);
    assert_non_null(strstr(err.text, "the line is longer than 16 MiB"));
}

/* Runs replays that end early. */
static void replay_once(void *arg)
{
    const Life *s = arg;
    size_t at = 1;
    while (!is_decision(at))
        at++;
    Told told = {0};
    Error err = ERROR_INIT;
    assert_int_equal(replay_with(s, at, "{\"tick\":tr\n", false, &told, &err), -EINVAL);
    assert_int_equal(replay_with(s, at, "[]\n", true, &told, &err), -EINVAL);
    assert_int_equal(replay_with(s, at, "", false, &told, &err), 0);
    /* The lines have a second head. */
    assert_int_equal(replay_with(s, at, text, true, &told, &err), 0);
}

static void nothing_stays_in_memory(void **state) { leaks_none(replay_once, *state); }

static void a_file_that_is_not_there(void **state)
{
    const Life *s = *state;
    Told told = {0};
    Error err = ERROR_INIT;
    assert_int_equal(journal_replay(s->old_path, on_report, &told, &err), -ENOENT);
    assert_non_null(strstr(err.text, s->old_path));
    assert_int_equal(journal_replay(s->folder, on_report, &told, &err), -EIO);
    assert_int_equal(told.n_calls, 0);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(it_may_be_cut_anywhere),
        CASE(a_bad_line_within_ends_it),
        CASE(a_decision_that_was_not_made),
        CASE(a_decision_that_is_not_made_now),
        CASE(a_handler_ends_it),
        CASE(lines_of_others),
        CASE(a_line_without_an_end),
        CASE(a_file_that_is_not_there),
        CASE(nothing_stays_in_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
