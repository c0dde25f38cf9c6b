/* SPDX-License-Identifier: Apache-2.0 */
/* trainer.c - see trainer.h. */
#include "tests/sim/fleet/trainer-internal.h"

#include "base/memory.h"
#include "cluster/records.h"
#include "protocol/exit-code.h"
#include "tests/sim/fleet/books.h"
#include "tests/sim/fleet/checks.h"
#include "tests/sim/fleet/fleet.h"
#include "tests/sim/fleet/manifests.h"
#include "tests/sim/seams/loop.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BOOT_MSEC = 50,
    DEATH_MSEC = 1, /* delay of SIGKILL's effect */
    LOSS_MSEC = 50, /* time until a rank notices that a peer has ended */
    COMM_TIMEOUT_MSEC = 15000,
    STORE_DEADLINE_MSEC = 3000, /* the deadline of one operation of the store */
    WAIT_SLICE_MSEC = 500,
    DATA_TIMEOUT_MSEC = 25000,
};

static sd_event *loop;
static Timers timers;
Trainer *trainers;
static Ring *rings;
Place trainer_places[FLEET_NODES_MAX];
static int numbers[FLEET_NODES_MAX], n_places;
uint64_t trainers_grace_usec, trainers_ttl_usec;
static uint64_t n_addresses; /* how many addresses were given out */

static void on_no_timer(_unused_ void *userdata, _unused_ const Error *err) { abort(); }

void trainer_after(Timer *timer, uint64_t usec, TimerDue due, void *who)
{
    timer_start(&timers, timer, usec, due, who);
}

void trainer_after_msec(Timer *timer, uint64_t msec, TimerDue due, void *who)
{
    trainer_after(timer, msec * USEC_PER_MSEC, due, who);
}

bool trainer_is_out(const Trainer *t) { return trainer_out_since(t->node) != 0; }

/* Returns whether a request to the store, which has had no answer since *since, is still within its deadline. */
bool trainer_has_patience(uint64_t *since)
{
    const uint64_t now = loops_now_usec();
    if (*since == 0)
        *since = now;
    if (now - *since < STORE_DEADLINE_MSEC * USEC_PER_MSEC)
        return true;
    *since = 0;
    return false;
}

/* ---- messages of a trainer ---- */

bool trainer_is_halted(const Trainer *t)
{
    return t->hangs || t->is_stopped || trainer_places[t->node].frozen;
}

/* Sends a message to the daemon. Returns false if the trainer is dead or its daemon does not read. */
bool trainer_say(const Trainer *t, ChannelMessage *m)
{
    m->generation = m->type == CHANNEL_HELLO ? 0 : t->generation;
    return trainer_lives(t) && task_say(t->task, m);
}

void trainer_say_stage(const Trainer *t, int64_t step, TrainStage stage, uint64_t waited_usec)
{
    ChannelMessage m = {.type = CHANNEL_STAGE,
                        .step = step,
                        .stage = stage == STAGE_RUNNING ? STAGE_COMPUTING : stage,
                        .unnamed = stage == STAGE_RUNNING,
                        .waited_usec = waited_usec};
    if (!trainer_is_halted(t))
        (void)trainer_say(t, &m);
}

void trainer_end(Trainer *t, int status)
{
    timer_stop(&t->work);
    timer_stop(&t->death);
    timer_stop(&t->deadman);
    timer_stop(&t->leave);
    timer_stop(&t->silence);
    if (!trainer_lives(t))
        return;
    if (status != 0)
        fleet_say("n%d slot %d: rank %d of %s-%lld ends %d", t->node, task_slot(t->task), t->rank,
                  t->job, (long long)t->generation, status);
    task_end(t->task, status);
    if (t->ring && !t->ring->over && status != 0)
        ring_break(t->ring);
}

void trainer_fail(Trainer *t, int code, const char *text)
{
    const int64_t step = t->ring ? t->ring->step : t->resumed;
    ChannelMessage m = {.type = CHANNEL_ERROR, .step = step, .exit_code = code};
    m.stage = t->looks ? STAGE_LEAVING : STAGE_STARTING;
    (void)snprintf(m.text, sizeof(m.text), "%s", text);
    if (code > 0)
        (void)trainer_say(t, &m);
    trainer_end(t, code);
}

/* ---- rings ---- */

static void on_step(void *userdata);

static void on_peer_lost(void *userdata)
{
    Trainer *t = userdata;
    if (trainer_is_halted(t))
        trainer_after_msec(&t->work, AGAIN_MSEC, on_peer_lost, t);
    else
        trainer_fail(t, t->looks ? EXIT_NON_FINITE : EXIT_PEER_LOST,
                     t->looks ? "first is a conv" : "a peer is gone");
}

void ring_stop(Ring *ring)
{
    ring->over = true;
    timer_stop(&ring->timer);
    timer_stop(&ring->save_timer);
}

void ring_break(Ring *ring)
{
    ring_stop(ring);
    for (int i = 0; i < ring->size; i++)
        if (ring->of[i] && trainer_lives(ring->of[i]))
            trainer_after_msec(&ring->of[i]->work, LOSS_MSEC, on_peer_lost, ring->of[i]);
}

static void ring_end(Ring *ring, const char *text)
{
    ring_stop(ring);
    for (int i = 0; i < ring->size; i++) {
        ChannelMessage m = {.type = CHANNEL_DONE, .step = ring->step};
        (void)snprintf(m.end, sizeof(m.end), "%s", text);
        (void)trainer_say(ring->of[i], &m);
        trainer_end(ring->of[i], EXIT_DONE);
    }
}

/* All ranks find that the loss is not finite, and end. The rank with the bad grain first searches for the reason. */
static void ring_diverge(Ring *ring)
{
    Trainer *owner = ring->of[ring->step % ring->size];
    ring_stop(ring);
    owner->looks = true;
    trainer_say_stage(owner, ring->step, STAGE_LEAVING, 0);
    trainer_after_msec(&owner->work, 1000u * (ring->step % (EXIT_NON_FINITE_SEC + 1)), on_peer_lost,
                       owner);
    for (int i = 0; i < ring->size; i++)
        if (ring->of[i] != owner)
            trainer_fail(ring->of[i], EXIT_NON_FINITE, "the loss is not finite");
}

/* Returns the newest ring of a trainer's world, or makes a new ring. If the world's record was put
 * again by hand, the world's first ranks have ended, and its new ranks meet in another ring. */
static Ring *ring_of(const Trainer *t)
{
    for (Ring *ring = rings; ring; ring = ring->next)
        if (ring->generation == t->generation && strcmp(ring->submission, t->submission) == 0 &&
            strcmp(ring->address, t->meets_at) == 0)
            return ring;
    Ring *ring = memory_new(Ring);
    const TrainerPlan *plan = &trainer_plan(t->job)->plan;
    *ring = (Ring){.next = rings,
                   .steps = plan->of ? t->resumed + plan->steps : plan->steps,
                   .generation = t->generation,
                   .step = t->resumed,
                   .committed = t->resumed,
                   .parent = t->resume,
                   .written = -1,
                   .size = t->size,
                   .of = memory_zeroed((size_t)t->size, sizeof(Trainer *))};
    memcpy(ring->job, t->job, sizeof(ring->job));
    memcpy(ring->submission, t->submission, sizeof(ring->submission));
    memcpy(ring->address, t->meets_at, sizeof(ring->address));
    rings = ring;
    return ring;
}

void ring_finish(Ring *ring)
{
    if (ring_program(ring)) {
        program_end(ring);
        return;
    }
    ring_end(ring, ring->step >= ring->steps ? "finished" : "left");
}

/* A trainer names the step that it works on, the runner of a program the last step that is done. */
static void ring_say_stage(const Ring *ring, int rank, TrainStage stage, uint64_t waited_usec)
{
    const ProgramKind program = ring_program(ring);
    const bool is_next = !program && stage != STAGE_SAVING;
    if (!program || program == PROGRAM_SPEAKS)
        trainer_say_stage(ring->of[rank], ring->step + is_next, stage, waited_usec);
}

static void ring_begin_step(Ring *ring, bool is_first)
{
    ring->stalled_usec = 0;
    for (int i = 0; i < ring->size; i++)
        ring_say_stage(ring, i, STAGE_COMPUTING, 0);
    trainer_after(&ring->timer, trainer_step_usec(ring->job, is_first), on_step, ring);
}

static void on_join_deadline(void *userdata)
{
    Trainer *t = userdata;
    if (trainer_is_halted(t))
        trainer_after_msec(&t->work, AGAIN_MSEC, on_join_deadline, t);
    else
        trainer_fail(t, EXIT_PEER_LOST, "not all ranks have joined");
}

static void ring_begin(Ring *ring)
{
    ring->began = true;
    for (int i = 0; i < ring->size; i++) {
        timer_stop(&ring->of[i]->work);
        if (ring->of[i]->resume != ring->of[0]->resume)
            books_break("I4", "rank %d of %s-%lld has restored another checkpoint than rank 0", i,
                        ring->job, (long long)ring->generation);
    }
    if (trainer_plan(ring->job)->taken_over) {
        trainer_fail(ring->of[0], EXIT_NOT_OWNER, TRAINERS_OTHER_OWNER);
        return;
    }
    if (ring_program(ring) && ring->parent >= 0 && manifests_get(ring->parent)->damaged) {
        program_fails_to_load(ring);
        return;
    }
    checks_begins(ring->job, ring->submission, ring->generation, ring->parent);
    if (!trainer_plan(ring->job)->plan.of) /* rank 0 claims the folder */
        manifests_retire(ring->parent, KEEP_LAST, &ring->of[0]->held);
    if (ring->step >= ring->steps)
        ring_finish(ring); /* an earlier world has done all steps */
    else
        ring_begin_step(ring, true);
}

static void join(Trainer *t)
{
    if (t->ring)
        return;
    Ring *ring = t->ring = ring_of(t);
    if (ring->of[t->rank])
        books_break("I3", "rank %d of %s-%lld goes twice", t->rank, t->job,
                    (long long)t->generation);
    ring->of[t->rank] = t;
    trainer_say_stage(t, t->resumed, trainer_program(t) ? STAGE_RUNNING : STAGE_JOINING, 0);
    trainer_after_msec(&t->work, ring->over ? AGAIN_MSEC : COMM_TIMEOUT_MSEC,
                       ring->over ? on_peer_lost : on_join_deadline, t);
    if (++ring->n_joined == ring->size && !ring->over)
        ring_begin(ring);
}

/* ---- steps ---- */

/* Returns whether some ranks are halted or unreachable, so that the other ranks wait and report a stage. */
static bool ring_stalls(Ring *ring)
{
    const uint64_t now = loops_now_usec();
    bool stalls = false;
    for (int i = 0; i < ring->size; i++)
        stalls |= trainer_is_halted(ring->of[i]) || trainer_places[ring->of[i]->node].island !=
                                                        trainer_places[ring->of[0]->node].island;
    if (!stalls)
        return false;
    if (ring->stalled_usec == 0) {
        ring->stalled_usec = now;
        for (int i = 0; i < ring->size; i++)
            ring_say_stage(ring, i, STAGE_REDUCING, 0);
    }
    if (now - ring->stalled_usec > COMM_TIMEOUT_MSEC * USEC_PER_MSEC)
        ring_break(ring);
    else
        trainer_after_msec(&ring->timer, AGAIN_MSEC, on_step, ring);
    return true;
}

/* Returns the rank that has lacked the store the longest; NULL: every rank reaches the store. */
static Trainer *waiting_rank(const Ring *ring, uint64_t *ret_since)
{
    Trainer *first = NULL;
    *ret_since = UINT64_MAX;
    for (int i = 0; i < ring->size; i++) {
        const uint64_t since = trainer_out_since(ring->of[i]->node);
        if (since && since < *ret_since) {
            first = ring->of[i];
            *ret_since = since;
        }
    }
    return first;
}

/* Makes all ranks wait, and report that they wait, if one rank has used up the samples that it had
 * read before an outage of the store. Returns false if no rank waits for samples. */
static bool ring_waits(Ring *ring)
{
    const uint64_t now = loops_now_usec();
    uint64_t since;
    if (ring_program(ring))
        return false; /* its data do not lie in our store */
    Trainer *of = waiting_rank(ring, &since);
    if (!of || now < since + trainer_plan(ring->job)->plan.ahead_usec) {
        ring->waiting_usec = 0;
        return false;
    }
    if (ring->waiting_usec == 0)
        ring->waiting_usec = now;
    const uint64_t waited = now - ring->waiting_usec;
    if (waited > DATA_TIMEOUT_MSEC * USEC_PER_MSEC) {
        trainer_fail(of, EXIT_STORE_UNREACHABLE, "the data did not come");
        return true;
    }
    for (int i = 0; i < ring->size; i++)
        ring_say_stage(ring, i, STAGE_REDUCING, MAX(waited, UINT64_C(1)));
    trainer_after_msec(&ring->timer, WAIT_SLICE_MSEC, on_step, ring);
    return true;
}

/* Trainers agree on leaving by what rank 0 says. The ranks of a program agree, too, whoever was asked. */
static bool ring_must_leave(const Ring *ring)
{
    bool must = ring->of[0]->must_leave;
    for (int i = 1; ring_program(ring) && i < ring->size; i++)
        must |= ring->of[i]->must_leave;
    return must && !trainer_plan(ring->job)->plan.ignores_leave;
}

static void on_step(void *userdata)
{
    Ring *ring = userdata;
    const Plan *plan = trainer_plan(ring->job);
    for (int i = 0; i < ring->size; i++)
        if (!trainer_lives(ring->of[i])) {
            ring_break(ring);
            return;
        }
    if (ring_stalls(ring) || ring_waits(ring))
        return;
    if (plan->poisoned == ring->step + 1) {
        ring_diverge(ring);
        return;
    }
    ring->step++;
    for (int i = 0; i < ring->size; i++)
        if (!ring->of[i]->is_killed)
            fleet_check_fence(ring->of[i]->node);
    books_trained(ring->job, ring->submission, ring->generation, ring->step);
    ChannelMessage m = {.type = CHANNEL_STEP,
                        .step = ring->step,
                        .steps = ring->steps,
                        .loss = 1,
                        .failed_saves = ring->n_failed_saves,
                        .unsaved_since_usec = ring->unsaved_usec};
    if (ring_program(ring) != PROGRAM_SILENT)
        (void)trainer_say(ring->of[0], &m);
    ring->ends = ring->step >= ring->steps || ring_must_leave(ring);
    for (int i = 0; ring->ends && i < ring->size; i++)
        ring_say_stage(ring, i, STAGE_SAVING, 0);
    const bool saves = ring_program(ring) != PROGRAM_SILENT && !plan->plan.of;
    if (ring->ends && !saves) {
        ring_finish(ring);
        return;
    }
    if (saves && !ring->saves &&
        (ring->ends || ring->of[0]->must_save || ring->step % plan->plan.save_steps == 0))
        ring_begin_save(ring);
    if (!ring->ends)
        ring_begin_step(ring, false);
}

/* ---- from the start until ready ---- */

static void on_booted(void *userdata)
{
    Trainer *t = userdata;
    ChannelMessage m = {.type = CHANNEL_HELLO, .pid = 1};
    if (trainer_is_halted(t))
        trainer_after_msec(&t->work, AGAIN_MSEC, on_booted, t);
    else
        (void)trainer_say(t, &m);
}

/* If the newest checkpoint is not known, rank 0 searches the checkpoint folder. Returns true if the
 * trainer can resume from the checkpoint that it was told. */
static bool has_looked(Trainer *t)
{
    char uri[MANIFEST_URI_BYTES];
    if (t->rank != 0 || t->find == FIND_NOTHING)
        return true;
    const int newest = manifests_newest(t->submission);
    if (newest < 0 && t->find == FIND_MUST) {
        trainer_fail(t, EXIT_DATA_CORRUPT,
                     "checkpoint.uri: it holds no checkpoint of this job, which has "
                     "committed some");
        return false;
    }
    if (newest < 0)
        return true;
    const Manifest *manifest = manifests_get(newest);
    ChannelMessage m = {.type = CHANNEL_FOUND,
                        .step = manifest->last,
                        .made_by = manifest->generation};
    (void)snprintf(m.uri, sizeof(m.uri), "%s", manifest_uri(newest, uri));
    m.hash = m.digest = hash_bytes(&newest, sizeof(newest));
    t->has_found = true;
    (void)trainer_say(t, &m);
    return false;
}

static void on_restored(void *userdata)
{
    Trainer *t = userdata;
    if (trainer_is_halted(t)) {
        trainer_after_msec(&t->work, AGAIN_MSEC, on_restored, t);
        return;
    }
    if (trainer_places[t->node].differs && !trainer_program(t)) {
        trainer_fail(t, EXIT_NUMERICS, "the canned grain differs");
        return;
    }
    if (!trainer_program(t) && trainer_is_out(t) &&
        (t->resume >= 0 || (t->rank == 0 && t->find != FIND_NOTHING))) {
        if (trainer_has_patience(&t->asking_usec))
            trainer_after_msec(&t->work, STORE_AGAIN_MSEC, on_restored, t);
        else
            trainer_fail(t, EXIT_STORE_UNREACHABLE, "the store does not answer");
        return;
    }
    if (!has_looked(t))
        return;
    if (!trainer_program(t) && t->resume >= 0 && manifests_get(t->resume)->damaged) {
        char uri[MANIFEST_URI_BYTES], text[128];
        (void)snprintf(text, sizeof(text), "%s does not verify", manifest_uri(t->resume, uri));
        trainer_fail(t, EXIT_DATA_CORRUPT, text);
        return;
    }
    ChannelMessage m = {.type = CHANNEL_RENDEZVOUS};
    (void)snprintf(m.address, sizeof(m.address), "10.0.0.%d:%d", 1 + t->node,
                   1024 + (int)(++n_addresses % 60000));
    memcpy(t->address, m.address, sizeof(t->address));
    if (t->rank == 0)
        (void)trainer_say(t, &m);
    m = (ChannelMessage){.type = CHANNEL_READY, .step = t->resumed};
    (void)trainer_say(t, &m);
}

static void assign(Trainer *t, int64_t generation, const ChannelAssign *m)
{
    t->is_assigned = true;
    t->generation = generation;
    t->rank = m->rank;
    t->size = m->world_size;
    t->resume = manifest_of(m->resume_uri);
    t->resumed = t->resume >= 0 ? manifests_get(t->resume)->last : 0;
    t->find = (ResumeFind)m->find;
    if (trainer_plan(m->job)->plan.needs_gpu &&
        (!m->gpu[0] || task_slot(t->task) >= fleet_gpus(t->node)))
        books_break("gpu", "a rank of %s starts in slot %d of n%d, which has %d GPUs", m->job,
                    task_slot(t->task), t->node, fleet_gpus(t->node));
    (void)snprintf(t->job, sizeof(t->job), "%s", m->job);
    (void)snprintf(t->submission, sizeof(t->submission), "%s", m->submission);
    trainer_say_stage(t, t->resumed, STAGE_RESTORING, 0);
    trainer_after(&t->work, trainer_plan(t->job)->plan.restore_usec, on_restored, t);
}

/* ---- actions of the daemon and the kernel ---- */

static void on_dead(void *userdata)
{
    Trainer *t = userdata;
    t->is_killed = true;
    if (!t->clings)
        trainer_end(t, -SIGKILL);
}

/* The kernel's dead-man timer expires. On a frozen host the timer does not run. */
static void on_deadman(void *userdata)
{
    Trainer *t = userdata;
    if (trainer_places[t->node].frozen)
        trainer_after_msec(&t->deadman, AGAIN_MSEC, on_deadman, t);
    else
        on_dead(t);
}

static void hear(Trainer *t, const ChannelMessage *m)
{
    switch (m->type) {
    case CHANNEL_ASSIGN:
        assign(t, m->generation, &m->assign);
        break;
    case CHANNEL_GO:
        checks_goes(t->job, t->submission, t->generation);
        memcpy(t->meets_at, t->size > 1 ? m->address : t->address, sizeof(t->meets_at));
        trainer_check_address(t);
        t->held = m->held;
        program_check_evaluated(t);
        join(t);
        break;
    case CHANNEL_ALIVE:
        trainer_after(&t->deadman, m->alive_usec, on_deadman, t);
        break;
    case CHANNEL_STOP:
        checks_leaves(t->job, t->submission, t->generation);
        t->must_leave = true;
        if (trainer_program(t))
            program_is_asked_to_leave(t);
        break;
    case CHANNEL_HUNG:
        program_is_hung(t);
        break;
    case CHANNEL_CHECKPOINT:
        t->must_save = true;
        break;
    case CHANNEL_COMMITTED:
    case CHANNEL_REFUSED:
        if (t->has_results)
            program_hears_of_results(t, m->type == CHANNEL_COMMITTED);
        else
            trainer_hear_verdict(t, m);
        break;
    default:
        break;
    }
}

static void started(void *userdata, Task *task)
{
    Trainer *t = memory_new(Trainer);
    trainer_check_slot(*(const int *)userdata, task_slot(task));
    *t = (Trainer){.next = trainers, .task = task, .node = *(const int *)userdata, .resume = -1};
    trainers = t;
    task_set_userdata(task, t);
    trainer_after_msec(&t->work, BOOT_MSEC, on_booted, t);
}

/* Reads the waiting messages. A stopped trainer reads its messages when it continues. */
void trainer_listen(Trainer *t)
{
    ChannelMessage m;
    while (trainer_lives(t) && !t->is_stopped && !trainer_places[t->node].frozen &&
           task_hear(t->task, &m)) {
        hear(t, &m);
        channel_message_clear(&m);
    }
}

static void told(_unused_ void *userdata, Task *task) { trainer_listen(task_userdata(task)); }

static void killed(_unused_ void *userdata, Task *task)
{
    Trainer *t = task_userdata(task);
    t->is_killed = true;
    trainer_after_msec(&t->death, DEATH_MSEC, on_dead, t);
}

/* The daemon of a living trainer has ended: the keeper and the parent-death signal kill the trainer before the next
 * daemon starts. */
static void orphaned(_unused_ void *userdata, Task *task)
{
    trainer_end(task_userdata(task), -SIGKILL);
}

static void cleared(_unused_ void *userdata, Task *task)
{
    Trainer *t = task_userdata(task);
    t->task = NULL;
}

TaskProgram trainers_program(int node)
{
    assert(node < n_places);
    numbers[node] = node;
    return (TaskProgram){.userdata = &numbers[node],
                         .started = started,
                         .told = told,
                         .killed = killed,
                         .awaited = orphaned,
                         .hung_up = orphaned,
                         .cleared = cleared};
}

/* ---- open and close ---- */

void trainers_open(int n_nodes, uint64_t its_grace_usec, uint64_t its_ttl_usec)
{
    int r = sd_event_new(&loop);
    assert(r >= 0 && n_nodes <= FLEET_NODES_MAX);
    timers = (Timers){.event = loop, .failed = on_no_timer};
    trainer_plans_clear();
    n_places = n_nodes;
    trainers_grace_usec = its_grace_usec;
    trainers_ttl_usec = its_ttl_usec;
    n_addresses = 0;
    trainer_store_clear();
    memset(trainer_places, 0, sizeof(trainer_places));
    manifests_open();
}

void trainers_close(void)
{
    for (Trainer *t = trainers, *next; t; t = next) {
        next = t->next;
        assert(!t->task);
        timer_stop(&t->work);
        timer_stop(&t->death);
        timer_stop(&t->deadman);
        timer_stop(&t->leave);
        timer_stop(&t->silence);
        free(t);
    }
    for (Ring *ring = rings, *next; ring; ring = next) {
        next = ring->next;
        timer_stop(&ring->timer);
        timer_stop(&ring->save_timer);
        free(ring->of);
        free(ring);
    }
    trainers = NULL;
    rings = NULL;
    manifests_close();
    loop = sd_event_unref(loop);
}
