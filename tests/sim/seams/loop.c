/* SPDX-License-Identifier: Apache-2.0 */
/* loop.c - see loop.h. */
#include "tests/sim/seams/loop.h"
#include "base/memory.h"
#include "tests/sim/seams/heap.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <time.h>

#define OWNER(node, type, member) ((type *)((char *)(node)-offsetof(type, member)))

typedef enum SourceKind { SOURCE_TIME, SOURCE_DEFER, SOURCE_IO } SourceKind;

struct sd_event_source {
    LIST_ENTRY(sd_event_source) list;
    HeapNode node; /* in the heap `pending` or `timers` of its loop, or in no heap */
    Heap *heap;
    sd_event *loop; /* NULL: the source is disconnected from its loop */
    SourceKind kind;
    unsigned n_references;
    bool floating; /* the loop owns the source, which has no reference to the loop */
    bool dispatching;
    bool pending;
    int enabled;
    int64_t priority;
    uint64_t serial; /* the number of the source in the order in which sources were added */
    uint64_t pending_iteration; /* the loop's iteration in which the source became pending */
    /* only for SOURCE_TIME; placed_usec: the time by which the source is sorted in a heap */
    uint64_t usec, placed_usec;
    int fd; /* only for SOURCE_IO */
    uint32_t events, ready;
    union {
        sd_event_time_handler_t time;
        sd_event_handler_t defer;
        sd_event_io_handler_t io;
    } callback;
    void *userdata;
};

struct sd_event {
    HeapNode node;              /* the loop's node in loops.due */
    LIST_ENTRY(sd_event) moved; /* the loop's links in loops.moved */
    bool has_moved;
    unsigned n_references;
    uint64_t serial;
    uint64_t iteration;
    uint64_t due_usec, due_turn; /* the keys by which the loop is sorted in loops.due */
    uint64_t last_turn;          /* the turn of the loop's last callback */
    bool frozen, dead, exiting, dispatching;
    int state, exit_code;
    int64_t realtime_offset_usec;
    size_t machine;
    unsigned refused; /* n: the n-th timer from now on is refused; 0: no timer is refused */
    Heap timers, pending;
    LIST_HEAD(SourceList, sd_event_source)
    sources, descriptors; /* sources: all kinds except SOURCE_IO; descriptors: SOURCE_IO */
};

static struct {
    bool opened;
    uint64_t now_usec, serial, turn;
    size_t n_loops;
    Heap due;                    /* the loops that have something to do */
    LIST_HEAD(, sd_event) moved; /* loops whose place in `due` may have to change */
    sd_event *current;
} loops;

/* ---- orders ---- */

/* Orders timers that have the same usec. */
static bool timer_before(const HeapNode *a, const HeapNode *b)
{
    return OWNER(a, sd_event_source, node)->serial < OWNER(b, sd_event_source, node)->serial;
}

/* Orders pending sources that have the same priority. */
static bool pending_before(const HeapNode *a, const HeapNode *b)
{
    const sd_event_source *x = OWNER(a, sd_event_source, node),
                          *y = OWNER(b, sd_event_source, node);
    if (x->pending_iteration != y->pending_iteration)
        return x->pending_iteration < y->pending_iteration;
    return x->usec != y->usec ? x->usec < y->usec : x->serial < y->serial;
}

/* Orders loops that have the same due_usec. */
static bool loop_before(const HeapNode *a, const HeapNode *b)
{
    const sd_event *x = OWNER(a, sd_event, node), *y = OWNER(b, sd_event, node);
    return x->due_turn != y->due_turn ? x->due_turn < y->due_turn : x->serial < y->serial;
}

/* ---- places ---- */

/* Returns when the loop has something to do; UINT64_MAX: never. */
static uint64_t loop_due_usec(const sd_event *loop)
{
    const HeapNode *timer = heap_first(&loop->timers);
    if (loop->frozen || loop->dead || loop->state == SD_EVENT_FINISHED)
        return UINT64_MAX;
    if (loop->exiting || heap_first(&loop->pending))
        return loops.now_usec;
    return timer ? MAX(OWNER(timer, sd_event_source, node)->usec, loops.now_usec) : UINT64_MAX;
}

static void loop_place(sd_event *loop)
{
    const uint64_t due_usec = loop_due_usec(loop);
    if (loop->node.place && due_usec == loop->due_usec && loop->last_turn == loop->due_turn)
        return;
    loop->due_usec = due_usec;
    loop->due_turn = loop->last_turn;
    if (due_usec != UINT64_MAX)
        heap_put(&loops.due, &loop->node, due_usec);
    else if (loop->node.place)
        heap_remove(&loops.due, &loop->node);
}

/* Notes that a loop's place in loops.due may change. A callback changes its sources many times, so
 * the loop is moved only when the next loop is needed. */
static void loop_moved(sd_event *loop)
{
    if (!loop->has_moved)
        LIST_INSERT_HEAD(&loops.moved, loop, moved);
    loop->has_moved = true;
}

static void loop_settle(sd_event *loop)
{
    if (loop->has_moved)
        LIST_REMOVE(loop, moved);
    loop->has_moved = false;
}

static const HeapNode *first_due(void)
{
    sd_event *loop;
    while ((loop = LIST_FIRST(&loops.moved))) {
        loop_settle(loop);
        loop_place(loop);
    }
    return heap_first(&loops.due);
}

static void source_unplace(sd_event_source *s)
{
    if (s->heap)
        heap_remove(s->heap, &s->node);
    s->heap = NULL;
}

/* Puts a source into the right heap after any change of the source. */
static void source_place(sd_event_source *s)
{
    Heap *heap = NULL;
    if (s->kind == SOURCE_IO) {
        bool ready = s->enabled != SD_EVENT_OFF && (s->ready & s->events);
        /* the loop notices a ready source at its next wait */
        if (ready && !s->pending)
            s->pending_iteration = s->loop->iteration + 1;
        s->pending = ready;
    }
    if (s->enabled != SD_EVENT_OFF && s->pending)
        heap = &s->loop->pending;
    else if (s->enabled != SD_EVENT_OFF && s->kind == SOURCE_TIME)
        heap = &s->loop->timers;
    if (s->heap == heap && (!heap || (heap == &s->loop->timers && s->usec == s->placed_usec)))
        return;
    if (s->heap != heap)
        source_unplace(s);
    s->heap = heap;
    s->placed_usec = s->usec;
    if (heap == &s->loop->timers)
        heap_put(heap, &s->node, s->usec);
    else if (heap)
        heap_put(heap, &s->node, (uint64_t)s->priority - (uint64_t)INT64_MIN);
    loop_moved(s->loop);
}

/* ---- functions for the simulator ---- */

void loops_open(uint64_t boottime_usec)
{
    assert(!loops.opened);
    loops.opened = true;
    loops.now_usec = boottime_usec;
    loops.serial = loops.turn = 0;
    loops.due = (Heap){.before = loop_before};
}

void loops_close(void)
{
    assert(loops.opened && loops.n_loops == 0 && !loops.current);
    heap_close(&loops.due);
    loops.opened = false;
}

uint64_t loops_now_usec(void) { return loops.now_usec; }

uint64_t loops_next_usec(void)
{
    const HeapNode *first = first_due();
    return first ? MAX(OWNER(first, sd_event, node)->due_usec, loops.now_usec) : UINT64_MAX;
}

sd_event *loop_current(void) { return loops.current; }

sd_event *loop_enter(sd_event *loop)
{
    sd_event *previous = loops.current;
    loops.current = loop;
    return previous;
}

void loop_freeze(sd_event *loop, bool frozen)
{
    loop->frozen = frozen;
    loop_moved(loop);
}

void loop_kill(sd_event *loop)
{
    loop->dead = true;
    loop_moved(loop);
}

bool loop_is_dead(const sd_event *loop) { return loop->dead; }

void loop_set_realtime_offset(sd_event *loop, int64_t offset_usec)
{
    loop->realtime_offset_usec = offset_usec;
}

int64_t loop_realtime_offset(const sd_event *loop) { return loop->realtime_offset_usec; }

void loop_set_machine(sd_event *loop, size_t machine) { loop->machine = machine; }

size_t loop_machine(const sd_event *loop) { return loop->machine; }

void loop_set_ready(sd_event *loop, int fd, uint32_t revents)
{
    sd_event_source *s;
    LIST_FOREACH(s, &loop->descriptors, list)
    {
        if (s->fd != fd || s->ready == revents)
            continue;
        s->ready = revents;
        source_place(s);
    }
}

static void source_free(sd_event_source *s);

static int source_call(sd_event_source *s)
{
    switch (s->kind) {
    case SOURCE_TIME:
        return s->callback.time(s, s->usec, s->userdata);
    case SOURCE_DEFER:
        return s->callback.defer(s, s->userdata);
    case SOURCE_IO:
        return s->callback.io(s, s->fd, s->ready & s->events, s->userdata);
    }
    assert(false);
}

static void source_dispatch(sd_event_source *s)
{
    if (s->kind != SOURCE_DEFER) /* a descriptor that stays ready goes behind the other sources */
        s->pending = false;
    if (s->enabled == SD_EVENT_ONESHOT)
        s->enabled = SD_EVENT_OFF;
    source_place(s);
    s->dispatching = true;
    int r = source_call(s);
    s->dispatching = false;
    if (s->n_references == 0)
        source_free(s);
    else if (r < 0 && s->loop)
        (void)sd_event_source_set_enabled(s, SD_EVENT_OFF);
}

static void loop_run(sd_event *loop)
{
    assert(!loop->dispatching && !loop->dead && !loop->frozen);
    loop->iteration++;
    loop->last_turn = ++loops.turn;
    if (loop->exiting) {
        loop->state = SD_EVENT_FINISHED;
        loop_moved(loop);
        return;
    }
    HeapNode *node;
    while ((node = heap_first(&loop->timers)) &&
           OWNER(node, sd_event_source, node)->usec <= loops.now_usec) {
        sd_event_source *timer = OWNER(node, sd_event_source, node);
        timer->pending = true;
        timer->pending_iteration = loop->iteration;
        source_place(timer);
    }
    node = heap_first(&loop->pending);
    if (!node)
        return;
    sd_event_source *source = OWNER(node, sd_event_source, node);

    (void)sd_event_ref(loop);
    loop->dispatching = true;
    sd_event *previous = loop_enter(loop);
    source_dispatch(source);
    (void)loop_enter(previous);
    loop->dispatching = false;
    loop_moved(loop);
    (void)sd_event_unref(loop);
}

bool loops_run(uint64_t until_usec)
{
    uint64_t next_usec = loops_next_usec();
    assert(!loops.current);
    if (next_usec == UINT64_MAX || next_usec > until_usec) {
        if (until_usec != UINT64_MAX)
            loops.now_usec = MAX(loops.now_usec, until_usec);
        return false;
    }
    loops.now_usec = next_usec;
    loop_run(OWNER(heap_first(&loops.due), sd_event, node));
    return true;
}

/* ---- sd_event ---- */

int sd_event_new(sd_event **ret)
{
    assert(loops.opened);
    sd_event *loop = memory_new(sd_event);
    *loop = (sd_event){
        .n_references = 1,
        .serial = ++loops.serial,
        .state = SD_EVENT_INITIAL,
        .timers = {.before = timer_before},
        .pending = {.before = pending_before},
    };
    loops.n_loops++;
    *ret = loop;
    return 0;
}

sd_event *sd_event_ref(sd_event *loop)
{
    if (loop)
        loop->n_references++;
    return loop;
}

static void source_disconnect(sd_event_source *s)
{
    sd_event *loop = s->loop;
    if (!loop)
        return;
    source_unplace(s);
    LIST_REMOVE(s, list);
    s->loop = NULL;
    loop_moved(loop);
    if (!s->floating)
        (void)sd_event_unref(loop);
}

static void source_free(sd_event_source *s)
{
    source_disconnect(s);
    free(s);
}

sd_event *sd_event_unref(sd_event *loop)
{
    if (!loop)
        return NULL;
    assert(loop->n_references > 0);
    if (--loop->n_references > 0)
        return NULL;
    sd_event_source *s;
    while ((s = LIST_FIRST(&loop->sources)) || (s = LIST_FIRST(&loop->descriptors))) {
        assert(s->floating);
        source_free(s);
    }
    loop_settle(loop);
    if (loop->node.place)
        heap_remove(&loops.due, &loop->node);
    assert(loops.current != loop);
    heap_close(&loop->timers);
    heap_close(&loop->pending);
    loops.n_loops--;
    free(loop);
    return NULL;
}

int sd_event_exit(sd_event *loop, int code)
{
    if (loop->state == SD_EVENT_FINISHED)
        return -ESTALE;
    loop->exiting = true;
    loop->exit_code = code;
    loop_moved(loop);
    return 0;
}

int sd_event_get_exit_code(sd_event *loop, int *ret_code)
{
    if (!loop->exiting)
        return -ENODATA;
    *ret_code = loop->exit_code;
    return 0;
}

int sd_event_get_state(sd_event *loop)
{
    return loop->dispatching ? SD_EVENT_RUNNING : loop->state;
}

int sd_event_now(sd_event *loop _unused_, clockid_t clock, uint64_t *ret_usec)
{
    assert(clock == CLOCK_BOOTTIME || clock == CLOCK_MONOTONIC);
    *ret_usec = loops.now_usec;
    return 0;
}

/* ---- sd_event_source ---- */

static int source_add(sd_event *loop, sd_event_source **ret, const sd_event_source *what)
{
    if (loop->state == SD_EVENT_FINISHED)
        return -ESTALE;
    sd_event_source *s = memory_new(sd_event_source);
    *s = *what;
    s->loop = loop;
    s->n_references = 1;
    s->floating = !ret;
    s->serial = ++loops.serial;
    s->pending_iteration = loop->iteration;
    if (ret)
        (void)sd_event_ref(loop);
    LIST_INSERT_HEAD(s->kind == SOURCE_IO ? &loop->descriptors : &loop->sources, s, list);
    source_place(s);
    if (ret)
        *ret = s;
    return 0;
}

void loop_refuse_timer(sd_event *loop, unsigned n) { loop->refused = n; }

int sd_event_add_time(sd_event *loop, sd_event_source **ret, clockid_t clock, uint64_t usec,
                      uint64_t accuracy _unused_, sd_event_time_handler_t callback, void *userdata)
{
    assert((clock == CLOCK_BOOTTIME || clock == CLOCK_MONOTONIC) && callback);
    if (loop->refused > 0 && --loop->refused == 0)
        return -ENOMEM;
    return source_add(loop, ret,
                      &(sd_event_source){.kind = SOURCE_TIME,
                                         .enabled = SD_EVENT_ONESHOT,
                                         .usec = usec,
                                         .callback.time = callback,
                                         .userdata = userdata});
}

static uint64_t later(uint64_t usec)
{
    return usec > UINT64_MAX - loops.now_usec ? UINT64_MAX : loops.now_usec + usec;
}

int sd_event_add_time_relative(sd_event *loop, sd_event_source **ret, clockid_t clock,
                               uint64_t usec, uint64_t accuracy, sd_event_time_handler_t callback,
                               void *userdata)
{
    return sd_event_add_time(loop, ret, clock, later(usec), accuracy, callback, userdata);
}

int sd_event_add_defer(sd_event *loop, sd_event_source **ret, sd_event_handler_t callback,
                       void *userdata)
{
    assert(callback);
    return source_add(loop, ret,
                      &(sd_event_source){.kind = SOURCE_DEFER,
                                         .enabled = SD_EVENT_ONESHOT,
                                         .pending = true,
                                         .callback.defer = callback,
                                         .userdata = userdata});
}

int sd_event_add_io(sd_event *loop, sd_event_source **ret, int fd, uint32_t events,
                    sd_event_io_handler_t callback, void *userdata)
{
    assert(fd >= 0 && callback);
    return source_add(loop, ret,
                      &(sd_event_source){.kind = SOURCE_IO,
                                         .enabled = SD_EVENT_ON,
                                         .fd = fd,
                                         .events = events,
                                         .callback.io = callback,
                                         .userdata = userdata});
}

sd_event_source *sd_event_source_ref(sd_event_source *s)
{
    if (s)
        s->n_references++;
    return s;
}

sd_event_source *sd_event_source_unref(sd_event_source *s)
{
    if (!s)
        return NULL;
    assert(s->n_references > 0);
    if (--s->n_references > 0)
        return NULL;
    if (s->dispatching)
        source_disconnect(s); /* the source is freed when its callback has returned */
    else
        source_free(s);
    return NULL;
}

sd_event_source *sd_event_source_disable_unref(sd_event_source *s)
{
    if (s)
        (void)sd_event_source_set_enabled(s, SD_EVENT_OFF);
    return sd_event_source_unref(s);
}

int sd_event_source_set_enabled(sd_event_source *s, int enabled)
{
    if (!s)
        return 0;
    assert(enabled == SD_EVENT_OFF || enabled == SD_EVENT_ON || enabled == SD_EVENT_ONESHOT);
    assert(s->kind != SOURCE_DEFER ||
           enabled != SD_EVENT_ON); /* with ON, the source would leave no time for other sources */
    if (!s->loop || s->loop->state == SD_EVENT_FINISHED)
        return enabled == SD_EVENT_OFF ? 0 : -ESTALE;
    if (s->kind == SOURCE_TIME && (enabled == SD_EVENT_OFF) != (s->enabled == SD_EVENT_OFF))
        s->pending = false;
    s->enabled = enabled;
    source_place(s);
    return 0;
}

int sd_event_source_get_enabled(sd_event_source *s, int *ret)
{
    if (ret)
        *ret = s->enabled;
    return s && s->enabled != SD_EVENT_OFF;
}

int sd_event_source_set_time(sd_event_source *s, uint64_t usec)
{
    assert(s->kind == SOURCE_TIME);
    if (!s->loop || s->loop->state == SD_EVENT_FINISHED)
        return -ESTALE;
    s->pending = false;
    s->usec = usec;
    source_place(s);
    return 0;
}

int sd_event_source_set_time_relative(sd_event_source *s, uint64_t usec)
{
    return sd_event_source_set_time(s, later(usec));
}

int sd_event_source_get_time(sd_event_source *s, uint64_t *ret_usec)
{
    assert(s->kind == SOURCE_TIME);
    *ret_usec = s->usec;
    return 0;
}

int sd_event_source_set_priority(sd_event_source *s, int64_t priority)
{
    if (!s->loop || s->loop->state == SD_EVENT_FINISHED)
        return -ESTALE;
    s->priority = priority;
    source_place(s);
    return 0;
}

int sd_event_source_get_priority(sd_event_source *s, int64_t *ret_priority)
{
    *ret_priority = s->priority;
    return 0;
}

int sd_event_source_get_pending(sd_event_source *s) { return s->pending; }

sd_event *sd_event_source_get_event(sd_event_source *s) { return s->loop; }

void *sd_event_source_get_userdata(sd_event_source *s) { return s->userdata; }

void *sd_event_source_set_userdata(sd_event_source *s, void *userdata)
{
    void *old = s->userdata;
    s->userdata = userdata;
    return old;
}

int sd_event_source_set_description(sd_event_source *s _unused_, const char *text _unused_)
{
    return 0;
}
