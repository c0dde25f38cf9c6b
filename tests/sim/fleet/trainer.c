/* SPDX-License-Identifier: Apache-2.0 */
/* trainer.c - see trainer.h. */
#include "tests/sim/fleet/trainer.h"

#include "base/memory.h"
#include "cluster/records.h"
#include "daemon/loop/timer.h"
#include "protocol/exit-code.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BOOT_MSEC = 50,
    RESTORE_MSEC = 200,
    STEP_MSEC = 100,
    LOSS_MSEC = 50, /* until a rank sees that a peer is gone */
    DEATH_MSEC = 1, /* until SIGKILL has its effect */
    RANKS_MAX = 256,
    JOBS_MAX = 8,
};

typedef struct Ring Ring;

typedef struct Trainer {
    struct Trainer *next;
    Task *task; /* NULL: its slot has another one */
    Timer step, death, deadman;
    char job[RECORD_JOB_MAX + 1];
    int64_t generation, resumed; /* resumed: the step that its world goes on from */
    int rank, size;
    bool must_leave;
    Ring *ring; /* NULL: it has not joined */
} Trainer;

struct Ring { /* the ranks of one world, once they have met */
    Ring *next;
    char job[RECORD_JOB_MAX + 1];
    int64_t generation, step, saving; /* saving: the step whose verdict is awaited; 0: none */
    int size, n_joined;
    bool over, ends;
    Trainer *of[RANKS_MAX];
    Timer timer;
};

typedef struct Plan {
    char job[RECORD_JOB_MAX + 1];
    int64_t steps, save_steps;
} Plan;

static sd_event *loop;
static Timers timers;
static Trainer *trainers;
static Ring *rings;
static Plan plans[JOBS_MAX];
static size_t n_plans;

static void on_no_timer(_unused_ void *userdata, _unused_ const Error *err) { abort(); }

static void after(Timer *timer, uint64_t msec, TimerDue due, void *who)
{
    timer_start(&timers, timer, msec * USEC_PER_MSEC, due, who);
}

static const Plan *plan_of(const char *job)
{
    for (size_t i = 0; i < n_plans; i++)
        if (strcmp(plans[i].job, job) == 0)
            return &plans[i];
    assert(!"a job without a plan");
    return NULL;
}

void trainers_plan(const char *job, int64_t steps, int64_t save_steps)
{
    assert(n_plans < JOBS_MAX);
    Plan *plan = &plans[n_plans++];
    *plan = (Plan){.steps = steps, .save_steps = save_steps};
    (void)snprintf(plan->job, sizeof(plan->job), "%s", job);
}

/* ---- what a trainer says ---- */

static bool lives(const Trainer *t) { return t->task && task_lives(t->task); }

static void say(const Trainer *t, ChannelMessage *m)
{
    m->generation = m->type == CHANNEL_HELLO ? 0 : t->generation;
    if (lives(t))
        (void)task_say(t->task, m); /* a daemon that does not hear is about to be seen */
}

static void say_stage(const Trainer *t, int64_t step, TrainStage stage)
{
    ChannelMessage m = {.type = CHANNEL_STAGE, .step = step, .stage = stage};
    say(t, &m);
}

static void end(Trainer *t, int status)
{
    timer_stop(&t->step);
    timer_stop(&t->death);
    timer_stop(&t->deadman);
    if (lives(t))
        task_end(t->task, status);
}

static void fail(Trainer *t, int code, const char *text)
{
    ChannelMessage m = {.type = CHANNEL_ERROR, .step = t->resumed, .exit_code = code};
    (void)snprintf(m.text, sizeof(m.text), "%s", text);
    say(t, &m);
    end(t, code);
}

/* ---- rings ---- */

static void on_peer_lost(void *userdata) { fail(userdata, EXIT_PEER_LOST, "a peer is gone"); }

static void ring_break(Ring *ring)
{
    ring->over = true;
    timer_stop(&ring->timer);
    for (int i = 0; i < ring->size; i++)
        if (ring->of[i] && lives(ring->of[i]))
            after(&ring->of[i]->step, LOSS_MSEC, on_peer_lost, ring->of[i]);
}

static void ring_end(Ring *ring, const char *text)
{
    ring->over = true;
    timer_stop(&ring->timer);
    for (int i = 0; i < ring->size; i++) {
        ChannelMessage m = {.type = CHANNEL_DONE, .step = ring->step};
        (void)snprintf(m.text, sizeof(m.text), "%s", text);
        say(ring->of[i], &m);
        end(ring->of[i], EXIT_DONE);
    }
}

static void save(Ring *ring)
{
    ChannelMessage m = {.type = CHANNEL_SAVED, .step = ring->step};
    (void)snprintf(m.uri, sizeof(m.uri), "file:///c/%lld", (long long)ring->step);
    m.hash = m.digest = hash_bytes(&ring->step, sizeof(ring->step));
    ring->saving = ring->step;
    say(ring->of[0], &m);
}

static void on_step(void *userdata)
{
    Ring *ring = userdata;
    const Plan *plan = plan_of(ring->job);
    for (int i = 0; i < ring->size; i++)
        if (!lives(ring->of[i])) {
            ring_break(ring);
            return;
        }
    ring->step++;
    ChannelMessage m = {.type = CHANNEL_STEP, .step = ring->step, .steps = plan->steps, .loss = 1};
    for (int i = 0; i < ring->size; i++)
        say_stage(ring->of[i], ring->step, STAGE_COMPUTING);
    say(ring->of[0], &m);
    ring->ends = ring->step >= plan->steps || ring->of[0]->must_leave;
    if (ring->ends || (ring->step % plan->save_steps == 0 && ring->saving == 0))
        save(ring);
    if (!ring->ends)
        after(&ring->timer, STEP_MSEC, on_step, ring);
}

static Ring *ring_of(const Trainer *t)
{
    for (Ring *ring = rings; ring; ring = ring->next)
        if (ring->generation == t->generation && strcmp(ring->job, t->job) == 0)
            return ring;
    Ring *ring = memory_new(Ring);
    assert(t->size <= RANKS_MAX);
    *ring = (Ring){.next = rings, .generation = t->generation, .step = t->resumed, .size = t->size};
    memcpy(ring->job, t->job, sizeof(ring->job));
    rings = ring;
    return ring;
}

static void join(Trainer *t)
{
    Ring *ring = t->ring = ring_of(t);
    assert(!ring->of[t->rank] && ring->step == t->resumed && ring->size == t->size);
    ring->of[t->rank] = t;
    say_stage(t, t->resumed, STAGE_JOINING);
    if (++ring->n_joined == ring->size)
        after(&ring->timer, STEP_MSEC, on_step, ring);
}

static void hear_verdict(Trainer *t, const ChannelMessage *m)
{
    Ring *ring = t->ring;
    if (m->type == CHANNEL_REFUSED) {
        fail(t, EXIT_RETRY, "the checkpoint was refused");
        return;
    }
    if (!ring || ring->over || m->step != ring->saving)
        return;
    ring->saving = 0;
    if (ring->ends && m->step == ring->step)
        ring_end(ring, ring->step >= plan_of(ring->job)->steps ? "finished" : "left");
    else if (ring->ends)
        save(ring); /* that one was under way when the last was due */
}

/* ---- what happens to a trainer ---- */

static void on_booted(void *userdata)
{
    Trainer *t = userdata;
    ChannelMessage m = {.type = CHANNEL_HELLO, .pid = 1};
    say(t, &m);
}

static void on_restored(void *userdata)
{
    Trainer *t = userdata;
    ChannelMessage m = {.type = CHANNEL_RENDEZVOUS};
    (void)snprintf(m.address, sizeof(m.address), "10.0.0.1:%d", 1000 + task_slot(t->task));
    if (t->rank == 0)
        say(t, &m);
    m = (ChannelMessage){.type = CHANNEL_READY, .step = t->resumed};
    say(t, &m);
}

static void on_dead(void *userdata) { end(userdata, -SIGKILL); }

static void assign(Trainer *t, const ChannelMessage *m)
{
    const char *step = strrchr(m->resume_uri, '/');
    t->generation = m->generation;
    t->rank = m->rank;
    t->size = m->world_size;
    t->resumed = step ? atoll(step + 1) : 0;
    (void)snprintf(t->job, sizeof(t->job), "%s", m->job);
    after(&t->step, RESTORE_MSEC, on_restored, t);
}

static void hear(Trainer *t, const ChannelMessage *m)
{
    switch (m->type) {
    case CHANNEL_ASSIGN:
        assign(t, m);
        break;
    case CHANNEL_GO:
        join(t);
        break;
    case CHANNEL_ALIVE:
        timer_start(&timers, &t->deadman, m->alive_usec, on_dead, t);
        break;
    case CHANNEL_STOP:
        t->must_leave = true;
        break;
    case CHANNEL_COMMITTED:
    case CHANNEL_REFUSED:
        hear_verdict(t, m);
        break;
    default:
        break;
    }
}

static void started(_unused_ void *userdata, Task *task)
{
    Trainer *t = memory_new(Trainer);
    *t = (Trainer){.next = trainers, .task = task};
    trainers = t;
    task_set_userdata(task, t);
    after(&t->step, BOOT_MSEC, on_booted, t);
}

static void told(_unused_ void *userdata, Task *task)
{
    Trainer *t = task_userdata(task);
    ChannelMessage m = {0};
    while (lives(t) && task_hear(task, &m)) {
        hear(t, &m);
        channel_message_clear(&m);
    }
}

static void killed(_unused_ void *userdata, Task *task)
{
    Trainer *t = task_userdata(task);
    after(&t->death, DEATH_MSEC, on_dead, t);
}

static void awaited(_unused_ void *userdata, Task *task) { end(task_userdata(task), -SIGKILL); }

/* The parent-death signal. */
static void hung_up(void *userdata, Task *task) { killed(userdata, task); }

static void cleared(_unused_ void *userdata, Task *task)
{
    Trainer *t = task_userdata(task);
    t->task = NULL;
}

TaskProgram trainers_program(void)
{
    return (TaskProgram){.started = started,
                         .told = told,
                         .killed = killed,
                         .awaited = awaited,
                         .hung_up = hung_up,
                         .cleared = cleared};
}

/* ---- life ---- */

void trainers_open(void)
{
    int r = sd_event_new(&loop);
    assert(r >= 0);
    timers = (Timers){.event = loop, .failed = on_no_timer};
    n_plans = 0;
}

void trainers_close(void)
{
    for (Trainer *t = trainers, *next; t; t = next) {
        next = t->next;
        assert(!t->task);
        timer_stop(&t->step);
        timer_stop(&t->death);
        timer_stop(&t->deadman);
        free(t);
    }
    for (Ring *ring = rings, *next; ring; ring = next) {
        next = ring->next;
        timer_stop(&ring->timer);
        free(ring);
    }
    trainers = NULL;
    rings = NULL;
    loop = sd_event_unref(loop);
}
