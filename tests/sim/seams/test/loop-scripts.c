/* SPDX-License-Identifier: Apache-2.0 */
/* loop-scripts.c - see loop-scripts.h. The scripts do not depend on the speed of the machine:
 * sources that are due at different times have priorities in the order of these times, so that even
 * a late loop runs the sources in that order. */
#include "tests/sim/seams/test/loop-scripts.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

enum { SOURCES = 4 };

typedef struct Script Script;
typedef struct Part Part;
struct Part {
    Script *script;
    sd_event_source *source;
    char name;
    void (*act)(Part *part); /* NULL: the callback is only recorded */
    int r;                   /* returned by the callback */
};

struct Script {
    const LoopKind *kind;
    sd_event *event;
    int fd;
    char ran[64];
    Part parts[SOURCES]; /* the sources A, B, C, D */
};

static int ran(Part *part)
{
    size_t n = strlen(part->script->ran);
    assert(n + 2 < sizeof(part->script->ran));
    part->script->ran[n] = part->name;
    part->script->ran[n + 1] = 0;
    int r = part->r;
    if (part->act)
        part->act(part);
    return r;
}

static int on_time(sd_event_source *source _unused_, uint64_t usec _unused_, void *userdata)
{
    return ran(userdata);
}

static int on_defer(sd_event_source *source _unused_, void *userdata) { return ran(userdata); }

static int on_io(sd_event_source *source _unused_, int fd _unused_, uint32_t revents,
                 void *userdata)
{
    assert(revents == EPOLLIN);
    return ran(userdata);
}

static Script script_open(const LoopKind *kind)
{
    Script script = {.kind = kind};
    assert(sd_event_new(&script.event) >= 0);
    return script;
}

/* Initializes the parts of a script, whose address must not change from now on. */
static void script_place(Script *script)
{
    script->fd = script->kind->descriptor();
    for (size_t i = 0; i < SOURCES; i++)
        script->parts[i] = (Part){.script = script, .name = (char)('A' + i)};
}

static void script_close(Script *script, const char *name, const char *expected)
{
    for (size_t n = strlen(script->ran); n < strlen(expected); n = strlen(script->ran)) {
        assert(sd_event_get_state(script->event) != SD_EVENT_FINISHED);
        script->kind->run(script->event);
    }
    if (strcmp(script->ran, expected))
        fprintf(stderr, "%s: ran %s instead of %s\n", name, script->ran, expected);
    assert(!strcmp(script->ran, expected));
    assert(script->kind->idle(script->event));
    for (size_t i = 0; i < SOURCES; i++)
        sd_event_source_disable_unref(script->parts[i].source);
    sd_event_unref(script->event);
    script->kind->close(script->fd);
}

static void timer(Part *part, uint64_t usec, int64_t priority, int enabled)
{
    assert(sd_event_add_time(part->script->event, &part->source, CLOCK_BOOTTIME, usec, 1, on_time,
                             part) >= 0);
    assert(sd_event_source_set_priority(part->source, priority) >= 0);
    assert(sd_event_source_set_enabled(part->source, enabled) >= 0);
}

static uint64_t in_msec(uint64_t msec) { return clock_boottime_usec() + msec * USEC_PER_MSEC; }

#define BEGIN(kind)                                                                                \
    Script script = script_open(kind);                                                             \
    script_place(&script);                                                                         \
    Part *a = &script.parts[0], *b = &script.parts[1], *c = &script.parts[2];                      \
    (void)a, (void)b, (void)c /* not every script uses all three variables */

static void priority_before_time(const LoopKind *kind)
{
    BEGIN(kind);
    timer(a, 1, 10, SD_EVENT_ONESHOT);
    timer(b, 2, 0, SD_EVENT_ONESHOT);
    timer(c, 3, -10, SD_EVENT_ONESHOT);
    script_close(&script, "priority before time", "CBA");
}

static void by_time(const LoopKind *kind)
{
    BEGIN(kind);
    timer(b, in_msec(6), 2, SD_EVENT_ONESHOT);
    timer(c, in_msec(4), 1, SD_EVENT_ONESHOT);
    timer(a, in_msec(2), 0, SD_EVENT_ONESHOT);
    script_close(&script, "by time", "ACB");
}

static void arm_again(Part *part)
{
    int enabled = SD_EVENT_ON;
    assert(sd_event_source_get_enabled(part->source, &enabled) == 0 && enabled == SD_EVENT_OFF);
    assert(sd_event_source_get_pending(part->source) == 0);
    if (strlen(part->script->ran) == 3)
        return;
    assert(sd_event_source_set_time_relative(part->source, USEC_PER_MSEC) >= 0);
    assert(sd_event_source_set_enabled(part->source, SD_EVENT_ONESHOT) >= 0);
}

static void oneshot_is_off_in_its_callback(const LoopKind *kind)
{
    BEGIN(kind);
    a->act = arm_again;
    timer(a, 1, 0, SD_EVENT_ONESHOT);
    script_close(&script, "oneshot", "AAA");
}

static void off_after_six(Part *part)
{
    if (strlen(part->script->ran) >= 5)
        assert(sd_event_source_set_enabled(part->source, SD_EVENT_OFF) >= 0);
}

static void on_runs_again_and_in_turn(const LoopKind *kind)
{
    BEGIN(kind);
    a->act = b->act = off_after_six;
    timer(a, 1, 0, SD_EVENT_ON);
    timer(b, 2, 0, SD_EVENT_ON);
    script_close(&script, "on", "ABABAB");
}

static void off_b(Part *part)
{
    Part *b = &part->script->parts[1];
    assert(sd_event_source_get_pending(b->source) > 0);
    assert(sd_event_source_set_enabled(b->source, SD_EVENT_OFF) >= 0);
    assert(sd_event_source_get_pending(b->source) == 0);
}

static void on_b(Part *part)
{
    assert(sd_event_source_set_enabled(part->script->parts[1].source, SD_EVENT_ONESHOT) >= 0);
}

static void off_takes_back(const LoopKind *kind)
{
    BEGIN(kind);
    a->act = off_b;
    c->act = on_b;
    timer(a, 1, -1, SD_EVENT_ONESHOT);
    timer(b, 2, 0, SD_EVENT_ONESHOT);
    timer(c, 3, 1, SD_EVENT_ONESHOT);
    script_close(&script, "off", "ACB");
}

static void b_later(Part *part)
{
    sd_event_source *b = part->script->parts[1].source;
    assert(sd_event_source_set_time(b, in_msec(3600 * 1000)) >= 0);
    assert(sd_event_source_get_pending(b) == 0);
}

static void b_now(Part *part)
{
    assert(sd_event_source_set_time(part->script->parts[1].source, 1) >= 0);
}

static void a_new_time_takes_back(const LoopKind *kind)
{
    BEGIN(kind);
    a->act = b_later;
    c->act = b_now;
    timer(a, 1, -1, SD_EVENT_ONESHOT);
    timer(b, 2, 0, SD_EVENT_ONESHOT);
    timer(c, 3, 5, SD_EVENT_ONESHOT);
    script_close(&script, "new time", "ACB");
}

static void free_both(Part *part)
{
    Part *b = &part->script->parts[1];
    b->source = sd_event_source_disable_unref(b->source);
    part->source = sd_event_source_disable_unref(part->source);
}

static void a_callback_frees_its_source(const LoopKind *kind)
{
    BEGIN(kind);
    a->act = free_both;
    timer(a, 1, -1, SD_EVENT_ON);
    timer(b, 2, 0, SD_EVENT_ON);
    timer(c, 3, 1, SD_EVENT_ONESHOT);
    script_close(&script, "free", "AC");
}

static void an_error_switches_off(const LoopKind *kind)
{
    BEGIN(kind);
    a->r = -EIO;
    timer(a, 1, 0, SD_EVENT_ON);
    timer(b, 2, 1, SD_EVENT_ONESHOT);
    script_close(&script, "error", "AB");
}

static void defer_d(Part *part)
{
    Part *d = &part->script->parts[3];
    assert(sd_event_add_defer(part->script->event, &d->source, on_defer, d) >= 0);
    assert(sd_event_source_set_priority(d->source, -5) >= 0);
}

static void a_defer_runs_once(const LoopKind *kind)
{
    BEGIN(kind);
    a->act = defer_d;
    timer(a, 1, 0, SD_EVENT_ONESHOT);
    timer(b, 2, 1, SD_EVENT_ONESHOT);
    script_close(&script, "defer", "ADB");
}

static void is_read(Part *part)
{
    if (strlen(part->script->ran) == 2)
        part->script->kind->set_ready(part->script->event, part->script->fd, false);
}

static void answers_before_timers(const LoopKind *kind)
{
    BEGIN(kind);
    a->act = is_read;
    timer(b, 1, 0, SD_EVENT_ONESHOT);
    assert(sd_event_add_io(script.event, &a->source, script.fd, EPOLLIN, on_io, a) >= 0);
    assert(sd_event_source_set_priority(a->source, -10) >= 0);
    kind->set_ready(script.event, script.fd, true);
    script_close(&script, "answers", "AAB");
}

static void answers_in_turn_with_timers(const LoopKind *kind)
{
    BEGIN(kind);
    b->act = off_after_six;
    timer(b, 1, 0, SD_EVENT_ON);
    assert(sd_event_add_io(script.event, &a->source, script.fd, EPOLLIN, on_io, a) >= 0);
    a->act = off_after_six;
    kind->set_ready(script.event, script.fd, true);
    script_close(&script, "in turn", "ABABAB");
}

static void change_priority(Part *part)
{
    assert(sd_event_source_set_priority(part->script->parts[2].source, -1) >= 0);
}

static void a_priority_changes_while_pending(const LoopKind *kind)
{
    BEGIN(kind);
    a->act = change_priority;
    timer(a, 1, -2, SD_EVENT_ONESHOT);
    timer(b, 2, 0, SD_EVENT_ONESHOT);
    timer(c, 3, 1, SD_EVENT_ONESHOT);
    script_close(&script, "priority", "ACB");
}

static void quit(Part *part) { assert(sd_event_exit(part->script->event, 7) >= 0); }

static void exit_leaves_the_rest(const LoopKind *kind)
{
    BEGIN(kind);
    int code = 0;
    a->act = quit;
    timer(a, 1, 0, SD_EVENT_ONESHOT);
    timer(b, 2, 1, SD_EVENT_ONESHOT);
    kind->run(script.event);
    while (sd_event_get_state(script.event) != SD_EVENT_FINISHED)
        kind->run(script.event);
    assert(sd_event_get_exit_code(script.event, &code) >= 0 && code == 7);
    assert(sd_event_source_set_time(b->source, 5) == -ESTALE);
    assert(sd_event_source_set_enabled(b->source, SD_EVENT_ON) == -ESTALE);
    assert(sd_event_source_set_enabled(b->source, SD_EVENT_OFF) == 0);
    assert(sd_event_add_time(script.event, &c->source, CLOCK_BOOTTIME, 1, 1, on_time, c) ==
           -ESTALE);
    assert(!c->source && sd_event_exit(script.event, 8) == -ESTALE);
    script_close(&script, "exit", "A");
}

void loop_scripts_run(const LoopKind *kind)
{
    priority_before_time(kind);
    by_time(kind);
    oneshot_is_off_in_its_callback(kind);
    on_runs_again_and_in_turn(kind);
    off_takes_back(kind);
    a_new_time_takes_back(kind);
    a_callback_frees_its_source(kind);
    an_error_switches_off(kind);
    a_defer_runs_once(kind);
    answers_before_timers(kind);
    answers_in_turn_with_timers(kind);
    a_priority_changes_while_pending(kind);
    exit_leaves_the_rest(kind);
}
