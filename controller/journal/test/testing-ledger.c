/* SPDX-License-Identifier: Apache-2.0 */
/* testing-ledger.c - life_check(): compares the parts with the ledger. */
#include "base/file.h"
#include "base/json/json.h"
#include "base/test/testing.h"
#include "controller/journal/test/testing-life.h"

#include <string.h>

typedef struct Walk {
    const Life *life;
    size_t next; /* index of the next entry in the ledger */
    /* each key ("" for leadership) -> the last line about the key, in the order of time */
    json_t *present;
    json_t *config;
    LifeParts seen;
    /* The part that is being read: */
    const char *path;
    json_t *lines; /* the part's lines; null for a line that cannot be read */
    size_t line;
    /* The replay of the part at `path`: */
    size_t n_reported;
    int n_then;
    bool fit;
} Walk;

static const json_t *next_of(const Walk *w) { return json_array_get(w->life->ledger, w->next); }

static void apply(Walk *w)
{
    json_t *line = json_array_get(w->life->ledger, w->next++);
    const char *key = json_string_value(json_object_get(line, "key"));
    assert_non_null(line);
    if (json_object_get(line, "config")) {
        json_decref(w->config);
        w->config = json_incref(json_object_get(line, "config"));
    }
    if (json_object_get(line, "restart"))
        json_object_clear(w->present);
    if (json_object_get(line, "leading") || json_object_get(line, "deposed"))
        key = "";
    if (!key)
        return;
    (void)json_object_del(w->present, key);
    if (json_object_get(line, "value") || json_object_get(line, "leading"))
        json_object_set(w->present, key, line);
}

static int64_t number(const json_t *line, const char *key)
{
    return json_integer_value(json_object_get(line, key));
}

/* Skips as many entries of the ledger as `said` reports lost; they are in no part. */
static void lose(Walk *w, const json_t *said)
{
    int64_t events = 0, decisions = 0;
    const int64_t n = number(said, "lost_events") + number(said, "lost_decisions");
    for (int64_t i = 0; i < n; i++) {
        bool decides = json_object_get(next_of(w), "decision");
        decisions += decides;
        events += !decides;
        assert_null(json_object_get(next_of(w), "restart"));
        apply(w);
    }
    assert_int_equal(events, number(said, "lost_events"));
    assert_int_equal(decisions, number(said, "lost_decisions"));
    w->seen.lost_events += events;
    w->seen.lost_decisions += decisions;
}

/* Skips the restart after which a head was written, if the ledger has one next. */
static void restart(Walk *w, const json_t *head)
{
    const int64_t lost = number(head, "lost_events") + number(head, "lost_decisions");
    if (number(head, "snapshot") > 0 && lost == 0)
        return;
    for (;;) {
        size_t at = w->next;
        while (at < json_array_size(w->life->ledger) &&
               !json_object_get(json_array_get(w->life->ledger, at), "restart"))
            at++;
        const json_t *mark = json_array_get(w->life->ledger, at);
        if (!mark ||
            (int64_t)(at - w->next) != number(mark, "lost_events") + number(mark, "lost_decisions"))
            return;
        lose(w, mark);
        apply(w);
    }
}

static void expect_line(const Walk *w, const json_t *line, const json_t *expected)
{
    _cleanup_json_ json_t *wanted = expected ? json_deep_copy(expected) : json_null();
    const char *value = json_string_value(json_object_get(wanted, "value"));
    if (value && strcmp(value, "?") == 0) { /* the value ends with bytes that no record ends with */
        const char *written = json_string_value(json_object_get(line, "value"));
        assert_non_null(written);
        assert_true(strlen(written) >= 3);
        assert_string_equal(written + strlen(written) - 3, "\xef\xbf\xbd");
        json_object_set(wanted, "value", json_object_get(line, "value"));
    }
    if (json_equal(line, wanted))
        return;
    _cleanup_free_ char *there = json_dumps(line, JSON_ENCODE_ANY);
    _cleanup_free_ char *must = json_dumps(wanted, JSON_ENCODE_ANY);
    fail_msg("%s:%zu (ledger: %zu)\nhas  %s\nmust %s", w->path, w->line + 1, w->next,
             there ? there : "?", must ? must : "nothing");
}

static void take_head(Walk *w, const json_t *head)
{
    const char *key;
    json_t *line;
    restart(w, head);
    lose(w, head);
    w->seen.n_heads++;
    w->seen.n_unfit += !json_is_true(json_object_get(head, "calm"));
    assert_string_equal(json_string_value(json_object_get(head, "cluster")), "lab");
    assert_string_equal(json_string_value(json_object_get(head, "version")), "0.2.0");
    assert_true(json_equal(json_object_get(head, "config"), w->config));
    assert_int_equal(number(json_object_get(head, "limits"), "reports"), 64);
    assert_int_equal(number(head, "snapshot"), json_object_size(w->present));
    json_object_foreach (w->present, key, line)
        expect_line(w, json_array_get(w->lines, ++w->line), line);
}

static json_t *read_lines(const char *path)
{
    char *text, *rest;
    Error err = ERROR_INIT;
    if (file_read(path, 1 << 24, &text, NULL, &err) < 0)
        fail_msg("%s", err.text);
    json_t *lines = json_array();
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        json_t *json = json_loads(line, 0, NULL);
        json_array_append_new(lines, json ? json : json_null());
    }
    free(text);
    return lines;
}

/* Writes the name that a replay gives the event of a line. */
static void name_of(const json_t *line, char *ret, size_t size)
{
    const char *key = json_string_value(json_object_get(line, "key"));
    const char *outcome = json_string_value(json_object_get(line, "outcome"));
    if (key)
        (void)snprintf(ret, size, "%s%s", key + strlen("/sdtrain/lab/"),
                       json_object_get(line, "value") ? "" : " gone");
    else if (outcome)
        (void)snprintf(ret, size, "decision %lld %s", (long long)number(line, "id"), outcome);
    else if (json_object_get(line, "leading"))
        (void)snprintf(ret, size, "leading, term %lld", (long long)number(line, "leading"));
    else
        (void)snprintf(ret, size, "%s", json_object_get(line, "deposed") ? "deposed" : "tick");
}

/* Checks that each line is reported once, in order, and with its kind and content. */
static int on_report(const ReplayReport *r, void *userdata)
{
    char name[512];
    Walk *w = userdata;
    const json_t *line = json_array_get(w->lines, r->line - 1);
    if (r->kind == REPLAY_DECISION && w->fit && r->differs) {
        _cleanup_free_ char *then = r->then ? json_dumps(r->then, 0) : NULL;
        _cleanup_free_ char *now = r->now ? json_dumps(r->now, 0) : NULL;
        fail_msg("%s:%zu\n- %s\n+ %s", w->path, r->line, then ? then : "", now ? now : "");
    }
    if (r->kind == REPLAY_DECISION && !r->then)
        return 0;
    while (w->n_reported + 1 < r->line) /* settings are not reported */
        assert_non_null(json_object_get(json_array_get(w->lines, w->n_reported++), "config"));
    assert_int_equal(r->line, ++w->n_reported);
    switch (r->kind) {
    case REPLAY_HEAD:
        assert_non_null(json_object_get(line, "journal"));
        assert_int_equal(r->head->lost_events, number(line, "lost_events"));
        assert_int_equal(r->head->lost_decisions, number(line, "lost_decisions"));
        assert_int_equal(r->head->n_snapshot, number(line, "snapshot"));
        w->fit = r->head->quiescent;
        return 0;
    case REPLAY_EVENT:
        name_of(line, name, sizeof(name));
        assert_string_equal(r->event, name);
        assert_int_equal(r->real_usec, number(line, "real"));
        return 0;
    case REPLAY_DECISION:
        assert_true(json_equal(r->then, json_object_get(line, "does")));
        assert_string_equal(r->job, json_string_value(json_object_get(line, "job")));
        w->n_then++;
        return 0;
    case REPLAY_CUT:
        assert_true(json_is_null(line));
        assert_true(r->text[0] != '\0');
        return 0;
    }
    return -EINVAL;
}

static void take_part(Walk *w, const char *path)
{
    Error err = ERROR_INIT;
    int n_decisions = 0, n_heads = 0;
    w->path = path;
    w->lines = read_lines(path);
    for (w->line = 0; w->line < json_array_size(w->lines); w->line++) {
        const json_t *line = json_array_get(w->lines, w->line);
        if (json_is_null(line)) {
            w->seen.n_cut++;
        } else if (json_object_get(line, "journal")) {
            take_head(w, line);
            n_heads++;
        } else {
            n_decisions += json_object_get(line, "decision") != NULL;
            expect_line(w, line, next_of(w));
            apply(w);
        }
    }
    w->seen.n_decisions += n_decisions;
    w->n_reported = 0;
    w->n_then = 0;
    int r = journal_replay(path, on_report, w, &err);
    if (n_heads == 0) /* the disk stored half of the head, or nothing */
        assert_int_equal(r, -EINVAL);
    else if (r != 0)
        fail_msg("%s", err.text);
    assert_int_equal(w->n_then, n_decisions);
    json_decref(w->lines);
}

LifeParts life_check(Life *s)
{
    char path[128];
    _cleanup_json_ json_t *end = life_end_journal(s);
    Walk w = {.life = s, .present = json_object()};
    for (int i = 1; i <= s->n_parts; i++) {
        take_part(&w, life_part(s, i, path));
    }
    restart(&w, end); /* the last controller may not have written a head */
    lose(&w, end);
    assert_int_equal(w.next, json_array_size(s->ledger));
    json_decref(w.present);
    json_decref(w.config);
    return w.seen;
}
