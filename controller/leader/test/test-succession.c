/* SPDX-License-Identifier: Apache-2.0 */
/* test-succession.c - which controller may decide, after which deaths. */
#include "base/test/testing.h"
#include "controller/leader/succession.h"

#include <string.h>

#define SEC USEC_PER_SEC
enum { BASE = 30 };

typedef struct Line {
    Succession s;
    uint64_t now; /* seconds of CLOCK_BOOTTIME; CLOCK_REALTIME is 1000 s ahead */
    int64_t next_term;
} Line;

static void note(Line *l, KeyKind kind, const char *key, const char *value)
{
    succession_note_record(&l->s, kind, key, value, value ? strlen(value) : 0);
}

static void put(Line *l, const char *key, int64_t term, const LeaderRecord *record)
{
    char *text = NULL;
    text = leader_record_encode(record, NULL);
    succession_note_leader(&l->s, key, text, strlen(text), term, 0);
    free(text);
}

static int64_t stand(Line *l, const char *key)
{
    LeaderRecord record = {.state = LEADER_UP};
    (void)snprintf(record.name, sizeof(record.name), "host-%s", key);
    (void)snprintf(record.journal, sizeof(record.journal), "/log/%s", key);
    put(l, key, ++l->next_term, &record);
    return l->next_term;
}

/* Writes the controller's own record, which the watch then shows. */
static void tell(Line *l, const char *key, int64_t term)
{
    LeaderRecord record = {0};
    (void)snprintf(record.name, sizeof(record.name), "host-%s", key);
    (void)snprintf(record.journal, sizeof(record.journal), "/log/%s", key);
    succession_introduce(&l->s, &record);
    put(l, key, term, &record);
}

static void vanish(Line *l, const char *key)
{
    succession_note_leader(&l->s, key, NULL, 0, 0, (1000 + l->now) * SEC);
}

static SuccessionAnswer ask(Line *l, const char *key)
{
    return succession_query(&l->s, key, BASE * SEC, l->now * SEC, (1000 + l->now) * SEC);
}

/* Lets the first controller write its own record, see that record and begin to decide. One Succession stands for all
 * processes, because all see the same records. */
static void lead(Line *l, const char *key, int64_t term)
{
    assert_int_equal(ask(l, key), SUCCESSION_INTRODUCE);
    /* The answer stays the same until the watch has shown the record. */
    assert_int_equal(ask(l, key), SUCCESSION_INTRODUCE);
    tell(l, key, term);
    assert_int_equal(ask(l, key), SUCCESSION_LEAD);
    succession_led(&l->s, l->now * SEC);
}

/* Lets a and b die on the same records, so that c is the first. Returns c's term. */
static int64_t two_deaths(Line *l)
{
    *l = (Line){.now = 100};
    note(l, KEY_SPECS, "specs/job", "{}");
    note(l, KEY_PHASES, "phases/job", "{pending}");
    (void)stand(l, "a");
    int64_t b = stand(l, "b"), c = stand(l, "c");
    assert_int_equal(ask(l, "a"), SUCCESSION_LEAD); /* no leader died before a */
    assert_int_equal(ask(l, "b"), SUCCESSION_WAIT);
    vanish(l, "a");
    lead(l, "b", b);
    note(l, KEY_NODES, "nodes/n", "{}"); /* records of nodes change meanwhile */
    note(l, KEY_RANKS, "ranks/job/1/n", "{}");
    l->now = 110;
    vanish(l, "b");
    succession_left(&l->s); /* c is another process */
    return c;
}

static void the_third_stands_still(_unused_ void **state)
{
    Line l;
    int64_t c = two_deaths(&l);
    assert_int_equal(ask(&l, "c"), SUCCESSION_STAND_STILL);
    assert_int_equal(succession_still_until(&l.s), (110 + BASE) * SEC);
    LeaderRecord record = {0};
    succession_introduce(&l.s, &record);
    assert_int_equal(record.deaths, 2);
    assert_int_equal(record.still_until_usec, (1110 + BASE) * SEC);
    assert_int_equal(record.n_before, 2);
    assert_string_equal(record.before[0].name, "host-a");
    assert_string_equal(record.before[1].journal, "/log/b");
    assert_int_equal(record.before[1].at_usec, 1110 * SEC);

    tell(&l, "c", c);
    l.now = 110 + BASE - 1;
    assert_int_equal(ask(&l, "c"), SUCCESSION_STAND_STILL);
    l.now = 110 + BASE;
    lead(&l, "c", c); /* the pause is over */
    succession_clear(&l.s);
}

static void who_never_was_the_first_has_not_died_of_records(_unused_ void **state)
{
    Line l = {.now = 100};
    (void)stand(&l, "a");
    (void)stand(&l, "b");
    vanish(&l, "b");
    assert_int_equal(l.s.deaths, 0);
    succession_clear(&l.s);
}

static void values_that_change_places_are_other_records(_unused_ void **state)
{
    Line l = {.now = 100};
    note(&l, KEY_SPECS, "specs/x", "{1}");
    note(&l, KEY_SPECS, "specs/y", "{2}");
    const uint64_t before = l.s.records;
    note(&l, KEY_SPECS, "specs/x", "{2}");
    note(&l, KEY_SPECS, "specs/y", "{1}");
    assert_true(l.s.records != before);
    note(&l, KEY_SPECS, "specs/x", "{1}");
    note(&l, KEY_SPECS, "specs/y", "{2}");
    assert_true(l.s.records == before);
    succession_clear(&l.s);
}

/* The sum depends only on the records that exist now: two controllers that saw different earlier changes compute the
 * same sum. */
static void the_sum_tells_what_there_is_and_not_how_it_came(_unused_ void **state)
{
    static const char *const keys[] = {"specs/a", "specs/ab", "phases/a", "cordons/n"};
    static const KeyKind kinds[] = {KEY_SPECS, KEY_SPECS, KEY_PHASES, KEY_CORDONS};
    const char *now[4] = {NULL};
    Line old = {.now = 100};
    uint32_t draw = 1;
    for (int i = 0; i < 300; i++) {
        static const char *const values[] = {NULL, "{1}", "{2}", ""};
        draw = draw * 1664525 + 1013904223;
        const size_t k = draw >> 30, v = draw >> 28 & 3;
        now[k] = values[v];
        note(&old, kinds[k], keys[k], now[k]);
        Line fresh = {.now = 100};
        for (size_t n = 0; n < ELEMENTSOF(now); n++)
            if (now[n])
                note(&fresh, kinds[n], keys[n], now[n]);
        assert_true(fresh.s.records == old.s.records);
        succession_clear(&fresh.s);
    }
    note(&old, KEY_SPECS, "specs/new", NULL);
    const uint64_t without = old.s.records;
    note(&old, KEY_SPECS, "specs/new", ""); /* the record exists, although it is empty */
    assert_true(old.s.records != without);
    succession_clear(&old.s);
}

static void a_changed_record_ends_the_standstill(_unused_ void **state)
{
    static const struct {
        KeyKind kind;
        const char *key, *value;
    } changes[] = {{KEY_SPECS, "specs/job", NULL},
                   {KEY_DESIRED, "desired/job", "{deleted}"},
                   {KEY_CORDONS, "cordons/n", "{}"},
                   {KEY_PHASES, "phases/job", "{stopped}"}};
    for (size_t i = 0; i < ELEMENTSOF(changes); i++) {
        Line l;
        int64_t c = two_deaths(&l);
        assert_int_equal(ask(&l, "c"), SUCCESSION_STAND_STILL);
        tell(&l, "c", c);
        note(&l, changes[i].kind, changes[i].key, changes[i].value);
        lead(&l, "c", c);
        succession_clear(&l.s);
    }
}

static void an_operator_ends_the_standstill(_unused_ void **state)
{
    Line l;
    int64_t c = two_deaths(&l);
    assert_int_equal(ask(&l, "c"), SUCCESSION_STAND_STILL);
    tell(&l, "c", c);
    succession_overrule(&l.s);
    lead(&l, "c", c);
    succession_clear(&l.s);
}

/* The pause doubles also for controllers that have just begun: the number of deaths is in the last leader's record. */
static void the_pause_doubles_up_to_its_bound(_unused_ void **state)
{
    static const uint64_t pauses[] = {60, 120, 240, 480, 600, 600};
    Line l;
    char key[2] = "c";
    int64_t term = two_deaths(&l);
    assert_int_equal(ask(&l, key), SUCCESSION_STAND_STILL);
    for (size_t i = 0; i < ELEMENTSOF(pauses); i++) {
        l.now = succession_still_until(&l.s) / SEC;
        lead(&l, key, term);
        LeaderRecord last = {0};
        succession_introduce(&l.s, &last);
        Succession fresh = {.records = l.s.records, .hashes = json_incref(l.s.hashes)};
        succession_clear(&l.s);
        l.s = fresh; /* a process that knows only what is in etcd */
        put(&l, key, term, &last);
        key[0]++;
        term = stand(&l, key);
        char old[2] = {(char)(key[0] - 1), 0};
        vanish(&l, old);
        assert_int_equal(ask(&l, key), SUCCESSION_STAND_STILL);
        assert_int_equal(succession_still_until(&l.s) / SEC - l.now, pauses[i]);
    }
    succession_clear(&l.s);
}

static void a_leader_that_left_or_decided_or_lived_is_no_second_death(_unused_ void **state)
{
    enum { LEFT, DECIDED, LIVED, SILENT, CASES };
    for (int how = 0; how < CASES; how++) {
        Line l = {.now = 100};
        note(&l, KEY_SPECS, "specs/job", "{}");
        (void)stand(&l, "a");
        int64_t b = stand(&l, "b"), c = stand(&l, "c");
        vanish(&l, "a");
        lead(&l, "b", b);
        if (how == DECIDED)
            note(&l, KEY_WORLDS, "worlds/job", "{}");
        if (how == LIVED) {
            assert_false(succession_is_settled(&l.s, BASE * SEC, (100 + BASE - 1) * SEC));
            assert_true(succession_is_settled(&l.s, BASE * SEC, (100 + BASE) * SEC));
            assert_false(succession_is_settled(&l.s, BASE * SEC, (100 + BASE) * SEC));
            tell(&l, "b", b);
        }
        LeaderRecord record = {.state = how == LEFT ? LEADER_LEFT : LEADER_UNTOLD};
        if (how == LEFT || how == SILENT)
            put(&l, "b", b, &record);
        vanish(&l, "b");
        succession_left(&l.s);
        if (how == LEFT || how == SILENT)
            assert_int_equal(ask(&l, "c"), SUCCESSION_LEAD);
        else
            lead(&l, "c", c); /* the record of c reports one death */
        succession_clear(&l.s);
    }
}

/* A controller that stood still had decided nothing, so its end is not a further death. */
static void one_that_stood_still_does_not_count(_unused_ void **state)
{
    Line l;
    int64_t c = two_deaths(&l);
    assert_int_equal(ask(&l, "c"), SUCCESSION_STAND_STILL);
    tell(&l, "c", c);
    (void)stand(&l, "d");
    vanish(&l, "c");
    assert_int_equal(ask(&l, "d"), SUCCESSION_STAND_STILL);
    assert_int_equal(l.s.deaths, 2);
    assert_string_equal(l.s.last[1].name, "host-b");
    succession_clear(&l.s);
}

/* Makes a controller that has just begun: it knows what is in etcd, but not the events before. */
static void begin_anew(const Line *old, Line *ret)
{
    *ret = (Line){.now = old->now, .next_term = old->next_term};
    ret->s.records = old->s.records;
    ret->s.hashes = json_deep_copy(old->s.hashes);
    for (size_t i = 0; i < old->s.n; i++)
        put(ret, old->s.all[i].key, old->s.all[i].term, &old->s.all[i].record);
}

/* Removes the first controller, and checks that a controller that has just begun counts the same deaths as the old
 * one. */
static void expect_the_same_of(Line *old, const char *first, const char *next)
{
    Line fresh;
    begin_anew(old, &fresh);
    vanish(old, first);
    vanish(&fresh, first);
    succession_left(&old->s); /* the process of the first controller has ended */
    assert_int_equal(fresh.s.deaths, old->s.deaths);
    assert_true(old->s.deaths == 0 || fresh.s.n_last == old->s.n_last);
    for (size_t i = 0; old->s.deaths > 0 && i < old->s.n_last; i++)
        assert_string_equal(fresh.s.last[i].name, old->s.last[i].name);
    const SuccessionAnswer answer = ask(old, next);
    assert_int_equal(ask(&fresh, next), answer);
    assert_int_equal(succession_still_until(&fresh.s), succession_still_until(&old->s));
    /* the two controllers also agree after a record has changed */
    note(old, KEY_SPECS, "specs/other", "{}");
    note(&fresh, KEY_SPECS, "specs/other", "{}");
    assert_int_equal(ask(&fresh, next), ask(old, next));
    succession_clear(&fresh.s);
}

static void who_comes_late_knows_the_same(_unused_ void **state)
{
    enum { LEADS, STILL, LED_ON, LEFT, CASES };
    for (int how = 0; how < CASES; how++) {
        Line l;
        const int64_t c = two_deaths(&l);
        (void)stand(&l, "d");
        assert_int_equal(ask(&l, "c"), SUCCESSION_STAND_STILL);
        tell(&l, "c", c);
        if (how != STILL) {
            l.now += BASE;
            lead(&l, "c", c);
        }
        if (how == LED_ON) {
            l.now += BASE;
            assert_true(succession_is_settled(&l.s, BASE * SEC, l.now * SEC));
            tell(&l, "c", c);
        }
        if (how == LEFT)
            put(&l, "c", c, &(LeaderRecord){.state = LEADER_LEFT, .name = "c"});
        expect_the_same_of(&l, "c", "d");
        succession_clear(&l.s);
    }
}

/* The controller's key vanishes before the election reports it: the deaths in its record are then not reported
 * again. */
static void what_was_told_goes_with_the_key(_unused_ void **state)
{
    Line l = {.now = 100};
    LeaderRecord record = {0};
    const int64_t term = two_deaths(&l);
    assert_int_equal(ask(&l, "c"), SUCCESSION_STAND_STILL);
    succession_introduce(&l.s, &record);
    assert_int_equal(record.deaths, 2);
    assert_int_equal(record.still_until_usec, (1110 + BASE) * SEC);
    l.now += BASE;
    lead(&l, "c", term);
    vanish(&l, "c");
    record = (LeaderRecord){0};
    succession_introduce(&l.s, &record);
    assert_int_equal(record.state, LEADER_UP);
    assert_int_equal(record.deaths, 0);
    assert_int_equal(record.records, 0);
    assert_int_equal(record.still_until_usec, 0);
    assert_int_equal(record.n_before, 0);
    assert_int_equal(succession_still_until(&l.s), 0);
    succession_clear(&l.s);
}

static void a_damaged_record_is_one_that_tells_nothing(_unused_ void **state)
{
    Line l = {.now = 100};
    succession_note_leader(&l.s, "a", "{", 1, 1, 0);
    l.next_term = 1;
    (void)stand(&l, "b");
    assert_int_equal(ask(&l, "b"), SUCCESSION_WAIT);
    vanish(&l, "a");
    vanish(&l, "never-seen");
    assert_int_equal(ask(&l, "b"), SUCCESSION_LEAD);
    succession_clear(&l.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_third_stands_still),
        cmocka_unit_test(who_never_was_the_first_has_not_died_of_records),
        cmocka_unit_test(values_that_change_places_are_other_records),
        cmocka_unit_test(the_sum_tells_what_there_is_and_not_how_it_came),
        cmocka_unit_test(a_changed_record_ends_the_standstill),
        cmocka_unit_test(an_operator_ends_the_standstill),
        cmocka_unit_test(the_pause_doubles_up_to_its_bound),
        cmocka_unit_test(a_leader_that_left_or_decided_or_lived_is_no_second_death),
        cmocka_unit_test(one_that_stood_still_does_not_count),
        cmocka_unit_test(who_comes_late_knows_the_same),
        cmocka_unit_test(what_was_told_goes_with_the_key),
        cmocka_unit_test(a_damaged_record_is_one_that_tells_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
