/* SPDX-License-Identifier: Apache-2.0 */
/* test-journal-parts.c - all parts of a journal together hold what was seen and decided, in order, each line once,
 * wherever a part ends, and across reloads, restarts and terms. */
#include "base/file.h"
#include "base/test/testing-leaks.h"
#include "cluster/keys.h"
#include "controller/journal/test/testing-life.h"

#include <string.h>
#include <sys/stat.h>

/* A part may end before any line: the bounds are varied so that parts end before each of the events, in a quiet
 * cluster and in a cluster where something is always under way. */
static void a_part_ends_anywhere(_unused_ void **state)
{
    int n_parts = 0, n_unfit = 0;
    for (uint64_t max_bytes = 16 << 10; max_bytes < (40 << 10); max_bytes += 307) {
        void *life;
        assert_int_equal(life_setup(&life), 0);
        Life *s = life;
        life_open(s, max_bytes);
        life_begin_job(s);
        for (int64_t generation = 1; generation < 6; generation++)
            life_lose_a_rank(s, generation);
        LifeParts seen = life_check(s);
        assert_int_equal(seen.n_decisions, s->n_decisions);
        assert_int_equal(seen.n_heads, s->n_parts);
        assert_int_equal(seen.lost_events + seen.lost_decisions + seen.n_cut, 0);
        n_parts += seen.n_heads;
        n_unfit += seen.n_unfit;
        assert_int_equal(life_teardown(&life), 0);
    }
    assert_true(n_parts > 200);
    print_message("%d parts, of which %d began while something was under way\n", n_parts, n_unfit);
}

/* Settings that were reloaded in an earlier part are the settings of each later part, too. */
static void a_reload_outlives_its_part(void **state)
{
    Life *s = *state;
    ClusterConfig config = s->head.config;
    life_open(s, 24 << 10);
    life_begin_job(s);
    for (int64_t generation = 1; generation < 12; generation++) {
        config.grace_usec += USEC_PER_MSEC;
        (void)snprintf(config.prices, sizeof(config.prices), "p5*=%lld", (long long)generation);
        (void)snprintf(config.admit, sizeof(config.admit), "%s", generation % 2 ? "n*" : "");
        life_configure(s, &config);
        life_lose_a_rank(s, generation);
    }
    LifeParts seen = life_check(s);
    assert_true(seen.n_heads >= 4);
    assert_int_equal(seen.n_decisions, s->n_decisions);
}

/* A reload may ask to keep more incidents than the tables, whose sizes are fixed at the start, have room for: the core
 * cuts the number, and so does a replay. */
static void a_reload_beyond_the_limits_can_be_read(void **state)
{
    Life *s = *state;
    ClusterConfig config = s->head.config;
    life_open(s, 24 << 10);
    life_begin_job(s);
    config.incidents_kept = 3 * s->head.limits.incidents;
    life_configure(s, &config);
    for (int64_t generation = 1; generation < 12; generation++)
        life_lose_a_rank(s, generation);
    LifeParts seen = life_check(s);
    assert_true(seen.n_heads >= 3);
    assert_int_equal(seen.n_decisions, s->n_decisions);
}

static off_t size_of(const Life *s)
{
    struct stat st;
    assert_int_equal(stat(s->path, &st), 0);
    return st.st_size;
}

static void come_again(Life *s, int64_t term)
{
    life_tell(s, (Event){.kind = EVENT_DEPOSED});
    s->now_usec += 5 * USEC_PER_SEC;
    life_tick(s);
    life_tell(s, (Event){.kind = EVENT_LEADING, .term = term});
    s->now_usec += 100 * USEC_PER_SEC;
    life_tick(s);
}

/* A part has only the last event of leadership: none if leadership was lost, otherwise the newest term. */
static void who_was_deposed_leads_again(void **state)
{
    Life *s = *state;
    life_open(s, 24 << 10);
    life_begin_job(s);
    for (int64_t generation = 1; generation < 12; generation++) {
        come_again(s, 7 + generation);
        life_lose_a_rank(s, generation);
    }
    LifeParts seen = life_check(s);
    assert_true(seen.n_heads >= 4);
    assert_int_equal(seen.n_decisions, s->n_decisions);
}

/* While this controller does not lead, records change and parts end all the same. */
static void who_is_deposed_records_what_it_sees(void **state)
{
    Life *s = *state;
    life_open(s, 24 << 10);
    life_begin_job(s);
    life_tell(s, (Event){.kind = EVENT_DEPOSED});
    const int n_decisions = s->n_decisions;
    for (int i = 0; i < 200; i++) {
        s->now_usec += 30 * USEC_PER_SEC;
        life_put_node(s, i % 3 ? "n1" : "n2");
        life_tick(s);
    }
    assert_int_equal(s->n_decisions, n_decisions);
    s->now_usec += 100 * USEC_PER_SEC;
    life_tell(s, (Event){.kind = EVENT_LEADING, .term = 8});
    life_lose_a_rank(s, 1);
    LifeParts seen = life_check(s);
    assert_true(seen.n_heads >= 4);
    assert_true(seen.n_decisions > n_decisions);
}

/* A transaction of an earlier term is answered late, while a transaction of the present term is under way:
 * the transaction of the present term stays under way. */
static void an_answer_to_an_earlier_term_ends_nothing(void **state)
{
    Life *s = *state;
    life_open(s, 64 << 10);
    s->holds = true;
    life_begin_job(s);
    const int64_t held = s->held_id;
    assert_true(held > 0);
    come_again(s, 8);
    assert_true(s->held_id > held); /* the core has decided again */
    life_tell(s, (Event){.kind = EVENT_OUTCOME,
                         .id = held,
                         .outcome = OUTCOME_REFUSED,
                         .revision = s->revision});
    s->now_usec += 100 * USEC_PER_SEC;
    off_t size = 0;
    while (s->n_parts == 1) {
        size = size_of(s);
        life_put_node(s, "n1");
    }
    assert_true(size >= 32 << 10); /* the part ended at its second bound (half of max_bytes) */
    LifeParts seen = life_check(s);
    assert_int_equal(seen.n_heads, 2);
    assert_int_equal(seen.n_unfit, 1);
}

/* A decision that was under way when leadership was lost is no longer under way, although its answer never arrives. */
static void a_lost_term_has_nothing_under_way(void **state)
{
    Life *s = *state;
    life_open(s, 64 << 10);
    s->holds = true;
    life_begin_job(s);
    life_tell(s, (Event){.kind = EVENT_DEPOSED});
    s->now_usec += 100 * USEC_PER_SEC;
    off_t size = 0;
    while (s->n_parts == 1) {
        size = size_of(s);
        life_put_node(s, "n1");
    }
    assert_true(size < 20 << 10); /* the part ended at its first bound (a quarter of max_bytes) */
    assert_int_equal(life_check(s).n_unfit, 0);
}

/* The answer reports a write that the watch has not shown yet: the write is still under way. */
static void a_write_that_was_not_shown_is_under_way(void **state)
{
    Life *s = *state;
    life_open(s, 64 << 10);
    s->holds = true;
    life_begin_job(s);
    life_tell(s, (Event){.kind = EVENT_OUTCOME,
                         .id = s->held_id,
                         .outcome = OUTCOME_DONE,
                         .revision = s->revision + 100000});
    s->now_usec += 100 * USEC_PER_SEC;
    off_t size = 0;
    while (s->n_parts == 1) {
        size = size_of(s);
        life_put_node(s, "n1");
    }
    assert_true(size >= 32 << 10);
    assert_int_equal(life_check(s).n_unfit, 1);
}

/* A tick that comes late makes no node count as lost, neither when it is recorded nor in a replay. */
static void a_stall_is_replayed(void **state)
{
    char key[KEY_MAX];
    Life *s = *state;
    life_open(s, LIFE_LARGE);
    life_begin_job(s);
    const int n_decisions = s->n_decisions;
    life_put(s, key_of("lab", KEY_NODES, "n2", key), NULL, 0);
    s->now_usec += 60 * USEC_PER_SEC;
    s->stalled = true;
    life_tick(s);
    assert_int_equal(s->n_decisions, n_decisions);
    s->now_usec += 2 * USEC_PER_SEC;
    life_tick(s);
    assert_true(s->n_decisions > n_decisions);
    LifeParts seen = life_check(s);
    assert_int_equal(seen.n_decisions, s->n_decisions);
}

/* New processes use the same folder: each begins with a head of its own, in the existing part or in a new one. */
static void restarts_go_on(void **state)
{
    Life *s = *state;
    for (int i = 0; i < 12; i++) {
        life_open(s, 64 << 10);
        life_begin_job(s);
        life_lose_a_rank(s, 1);
        s->now_usec += 100 * USEC_PER_SEC;
    }
    LifeParts seen = life_check(s);
    assert_int_equal(seen.n_decisions, s->n_decisions);
    assert_true(seen.n_heads > s->n_parts && s->n_parts >= 3);
}

/* A part that has the greatest size ends when the next process starts. */
static void a_large_part_ends_at_a_start(void **state)
{
    Life *s = *state;
    life_open(s, LIFE_LARGE);
    life_begin_job(s);
    const uint64_t size = (uint64_t)size_of(s);
    life_open(s, 4 * size + 4); /* a quarter of this is one byte more than the part */
    assert_int_equal(s->n_parts, 1);
    life_open(s, 4 * (uint64_t)size_of(s));
    assert_int_equal(s->n_parts, 2);
    life_begin_job(s);
    LifeParts seen = life_check(s);
    assert_int_equal(seen.n_heads, 3);
}

/* Values that JSON cannot hold are unreadable to the core, when they are recorded and in a replay; the recording
 * goes on. */
static void no_value_ends_the_recording(void **state)
{
    static const char zero[] = "{\"v\":2}\0}", bytes[] = "{\"v\":2,\"name\":\"\xff\x80\"}",
                      half[] = "{\"v\":2}\xc3";
    char key[KEY_MAX];
    Life *s = *state;
    life_open(s, 24 << 10);
    life_begin_job(s);
    life_put(s, key_of("lab", KEY_NODES, "n3", key), zero, sizeof(zero) - 1);
    life_put(s, key_of("lab", KEY_NODES, "n4", key), bytes, sizeof(bytes) - 1);
    life_put(s, key_of("lab", KEY_CORDONS, "n4", key), half, sizeof(half) - 1);
    life_put(s, key_of("lab", KEY_CORDONS, "n5", key), "", 0);
    _cleanup_free_ char *text = NULL;
    Error err = ERROR_INIT;
    assert_int_equal(file_read(s->path, 1 << 24, &text, NULL, &err), 0);
    assert_non_null(
        strstr(text,
               "\"value\":\"{\\\"v\\\":2,\\\"name\\\":\\\"?")); /* the value's readable part */
    for (int64_t generation = 1; generation < 6; generation++)
        life_lose_a_rank(s, generation);
    LifeParts seen = life_check(s);
    assert_int_equal(seen.lost_events + seen.lost_decisions, 0);
    assert_true(seen.n_heads >= 2);
}

/* Leases, create revisions and stalls are in the lines, and a snapshot keeps them. */
static void what_an_event_carries_is_kept(void **state)
{
    Life *s = *state;
    s->lease = 41;
    life_open(s, 24 << 10);
    life_begin_job(s);
    for (int64_t generation = 1; generation < 8; generation++) {
        s->stalled = true;
        s->lease++;
        life_lose_a_rank(s, generation);
    }
    LifeParts seen = life_check(s);
    assert_true(seen.n_heads >= 3);
    assert_int_equal(seen.n_decisions, s->n_decisions);
}

/* Two parts stay below the bound, or below six times the records, so that no part of a large cluster is only a
 * snapshot. */
static void many_records_have_room(void **state)
{
    char key[KEY_MAX], name[16];
    Life *s = *state;
    life_open(s, 1);
    for (int i = 0; i < 100; i++) {
        (void)snprintf(name, sizeof(name), "a-%d", i);
        life_put(s, key_of("lab", KEY_INCIDENTS, name, key), "{}", 2);
    }
    const int n_parts = s->n_parts;
    assert_true(n_parts >= 3 &&
                n_parts < 12); /* each part is three times as large as the last snapshot */
    s->now_usec += 100 * USEC_PER_SEC;
    LifeParts seen = life_check(s);
    assert_int_equal(seen.n_unfit, 0);
}

static void live_once(_unused_ void *arg)
{
    void *life;
    assert_int_equal(life_setup(&life), 0);
    Life *s = life;
    life_open(s, 24 << 10);
    life_begin_job(s);
    ClusterConfig config = s->head.config;
    for (int64_t generation = 1; generation < 8; generation++) {
        life_configure(s, &config);
        life_lose_a_rank(s, generation);
    }
    life_open(s, 24 << 10);
    life_begin_job(s);
    (void)life_check(s);
    assert_int_equal(life_teardown(&life), 0);
}

static void nothing_stays_in_memory(_unused_ void **state) { leaks_none(live_once, NULL); }

#define WITH_LIFE(test) cmocka_unit_test_setup_teardown(test, life_setup, life_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_ends_anywhere),
        WITH_LIFE(a_reload_outlives_its_part),
        WITH_LIFE(a_reload_beyond_the_limits_can_be_read),
        WITH_LIFE(who_was_deposed_leads_again),
        WITH_LIFE(who_is_deposed_records_what_it_sees),
        WITH_LIFE(an_answer_to_an_earlier_term_ends_nothing),
        WITH_LIFE(a_lost_term_has_nothing_under_way),
        WITH_LIFE(a_write_that_was_not_shown_is_under_way),
        WITH_LIFE(a_stall_is_replayed),
        WITH_LIFE(restarts_go_on),
        WITH_LIFE(a_large_part_ends_at_a_start),
        WITH_LIFE(no_value_ends_the_recording),
        WITH_LIFE(what_an_event_carries_is_kept),
        WITH_LIFE(many_records_have_room),
        cmocka_unit_test(nothing_stays_in_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
