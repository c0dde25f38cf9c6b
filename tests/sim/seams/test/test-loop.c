/* SPDX-License-Identifier: Apache-2.0 */
/* test-loop.c - the model of sd-event: the scripts that also hold for libsystemd, and the
 * properties of virtual time. */
#include "base/clock.h"
#include "tests/sim/seams/loop.h"
#include "tests/sim/seams/test/loop-scripts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include <cmocka.h>

static void run(sd_event *event _unused_) { assert_true(loops_run(UINT64_MAX)); }
static bool idle(sd_event *event _unused_) { return !loops_run(loops_now_usec()); }
static int descriptor(void) { return 1000; }
static void set_ready(sd_event *event, int fd, bool ready)
{
    loop_set_ready(event, fd, ready ? EPOLLIN : 0);
}
static void descriptor_close(int fd _unused_) {}

static void scripts(void **state _unused_)
{
    loops_open(USEC_PER_SEC);
    loop_scripts_run(&(LoopKind){.run = run,
                                 .idle = idle,
                                 .descriptor = descriptor,
                                 .set_ready = set_ready,
                                 .close = descriptor_close});
    loops_close();
}

/* ---- several loops ---- */

static char text[256];

static int note(sd_event_source *source _unused_, uint64_t usec, void *userdata)
{
    size_t n = strlen(text);
    (void)snprintf(text + n, sizeof(text) - n, "%s@%d ", (const char *)userdata,
                   (int)clock_boottime_usec());
    assert_true(usec <= clock_boottime_usec());
    return 0;
}

static sd_event_source *at(sd_event *loop, uint64_t usec, int64_t priority, const char *name)
{
    sd_event_source *source;
    assert_int_equal(sd_event_add_time(loop, &source, CLOCK_BOOTTIME, usec, 0, note, (void *)name),
                     0);
    assert_int_equal(sd_event_source_set_priority(source, priority), 0);
    return source;
}

typedef struct Pair {
    sd_event *a, *b;
    sd_event_source *sources[5];
} Pair;

static Pair pair_open(void)
{
    Pair p = {0};
    text[0] = 0;
    loops_open(0);
    assert_int_equal(sd_event_new(&p.a), 0);
    assert_int_equal(sd_event_new(&p.b), 0);
    p.sources[0] = at(p.a, 10, 0, "a1");
    p.sources[1] = at(p.b, 5, 0, "b1");
    p.sources[2] = at(p.b, 10, 0, "b2");
    p.sources[3] = at(p.a, 20, 0, "a2");
    p.sources[4] = at(p.a, 30, -1, "a3");
    return p;
}

static void pair_close(Pair *p)
{
    for (size_t i = 0; i < ELEMENTSOF(p->sources); i++)
        sd_event_source_disable_unref(p->sources[i]);
    sd_event_unref(p->a);
    sd_event_unref(p->b);
    loops_close();
}

static void time_passes_from_source_to_source(void **state _unused_)
{
    Pair p = pair_open();
    assert_int_equal(loops_next_usec(), 5);
    assert_false(loops_run(3));
    assert_int_equal(loops_now_usec(), 3);
    while (loops_run(25))
        ;
    assert_string_equal(text, "b1@5 a1@10 b2@10 a2@20 ");
    assert_int_equal(loops_now_usec(), 25);
    while (loops_run(UINT64_MAX))
        ;
    assert_string_equal(text, "b1@5 a1@10 b2@10 a2@20 a3@30 ");
    assert_int_equal(loops_now_usec(), 30);
    assert_int_equal(loops_next_usec(), UINT64_MAX);
    pair_close(&p);
}

static void a_frozen_loop_finds_all_at_once(void **state _unused_)
{
    Pair p = pair_open();
    loop_freeze(p.a, true);
    while (loops_run(40))
        ;
    assert_string_equal(text, "b1@5 b2@10 ");
    loop_freeze(p.a, false);
    while (loops_run(50))
        ;
    assert_string_equal(text, "b1@5 b2@10 a3@40 a1@40 a2@40 ");
    pair_close(&p);
}

static void a_dead_loop_runs_nothing(void **state _unused_)
{
    Pair p = pair_open();
    while (loops_run(10))
        ;
    loop_kill(p.a);
    assert_true(loop_is_dead(p.a) && !loop_is_dead(p.b));
    /* A killed loop's code may still change its sources, but none of them runs. */
    assert_int_equal(sd_event_source_set_time(p.sources[3], 11), 0);
    while (loops_run(UINT64_MAX))
        ;
    assert_string_equal(text, "b1@5 a1@10 b2@10 ");
    pair_close(&p);
}

static int look_at_clock(sd_event_source *source, uint64_t usec _unused_, void *userdata)
{
    uint64_t *ret = userdata;
    *ret = clock_realtime_usec();
    assert_ptr_equal(loop_current(), sd_event_source_get_event(source));
    return 0;
}

static void each_process_has_its_wall_clock(void **state _unused_)
{
    Pair p = pair_open();
    uint64_t a = 0, b = 0;
    loop_set_realtime_offset(p.a, 1000);
    loop_set_realtime_offset(p.b, -1);
    assert_int_equal(sd_event_add_time(p.a, NULL, CLOCK_BOOTTIME, 6, 0, look_at_clock, &a), 0);
    assert_int_equal(sd_event_add_time(p.b, NULL, CLOCK_BOOTTIME, 6, 0, look_at_clock, &b), 0);
    while (loops_run(UINT64_MAX))
        ;
    assert_int_equal(a, 1006);
    assert_int_equal(b, 5);
    assert_null(loop_enter(p.a));
    assert_int_equal(clock_realtime_usec(), 1030);
    assert_ptr_equal(loop_enter(NULL), p.a);
    assert_int_equal(clock_realtime_usec(), 30);
    pair_close(&p);
}

/* ---- many sources ---- */

enum { MANY = 500 };

static struct {
    sd_event_source *source;
    uint64_t usec;
    bool off;
} many[MANY];
static size_t order[MANY], n_ran;

static int ran_one(sd_event_source *source _unused_, uint64_t usec _unused_, void *userdata)
{
    order[n_ran++] = (size_t)(uintptr_t)userdata;
    return 0;
}

static void many_run_by_time_and_age(void **state _unused_)
{
    sd_event *loop;
    uint64_t draw = 1;
    size_t n_on = 0;

    loops_open(0);
    assert_int_equal(sd_event_new(&loop), 0);
    for (size_t i = 0; i < MANY; i++) {
        draw = draw * UINT64_C(6364136223846793005) + 1442695040888963407;
        many[i].usec = (draw >> 33) % 97 + 1;
        assert_int_equal(sd_event_add_time(loop, &many[i].source, CLOCK_BOOTTIME, 200, 0, ran_one,
                                           (void *)i),
                         0);
    }
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(sd_event_source_set_time(many[i].source, many[i].usec), 0);
    for (size_t i = 0; i < MANY; i += 3) {
        many[i].off = true;
        many[i].source = sd_event_source_disable_unref(many[i].source);
    }
    while (loops_run(UINT64_MAX))
        ;
    for (size_t i = 0; i < MANY; i++)
        n_on += !many[i].off;
    assert_int_equal(n_ran, n_on);
    for (size_t i = 0; i < n_ran; i++) {
        assert_false(many[order[i]].off);
        if (i > 0)
            assert_true(
                many[order[i - 1]].usec < many[order[i]].usec ||
                (many[order[i - 1]].usec == many[order[i]].usec && order[i - 1] < order[i]));
    }
    for (size_t i = 0; i < MANY; i++)
        sd_event_source_disable_unref(many[i].source);
    sd_event_unref(loop);
    loops_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scripts),
        cmocka_unit_test(time_passes_from_source_to_source),
        cmocka_unit_test(a_frozen_loop_finds_all_at_once),
        cmocka_unit_test(a_dead_loop_runs_nothing),
        cmocka_unit_test(each_process_has_its_wall_clock),
        cmocka_unit_test(many_run_by_time_and_age),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
