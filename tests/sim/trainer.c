/* SPDX-License-Identifier: Apache-2.0 */
/* trainer.c - see trainer.h. */
#include "tests/sim/trainer.h"

#include "protocol/exit-code.h"
#include "tests/sim/checker.h"
#include "tests/sim/node.h"
#include "tests/sim/universe.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RECHECK_MSEC = 100,
    COMM_TIMEOUT_MSEC = 15000,
    STORE_AGAIN_MSEC = 300,
    STORE_DEADLINE_MSEC = 3000, /* of one operation */
    SAVE_TRIES = 3,
    PROGRESS_MSEC = 1000,
    WAIT_SLICE_MSEC = 500,
    WAIT_TOLD_MSEC = 3000,
    DATA_TIMEOUT_MSEC = 25000,
};

static Universe *universe_of(const Process *p) { return p->node->universe; }

static bool is_halted(const Process *p)
{
    return p->stopped || p->stuck || p->node->frozen_until_usec > universe_of(p)->sim.now_usec;
}

static void say_to_daemon(Process *p, ModelWord word)
{
    Sim *sim = &universe_of(p)->sim;
    sim_after(sim, &p->node->actor, sim_between(sim, 50, 500), node_hears, p,
              p->life * 8 + (uint64_t)word);
}

/* ---- the end ---- */

static void ring_break(Ring *ring);

void trainer_exit(Process *p, int code, const char *text)
{
    Universe *u = universe_of(p);
    if (!p->alive)
        return;
    p->alive = false;
    p->exit_code = code;
    if (code > 0)
        p->words = (LastWords){.error = true, .exit_code = code};
    else if (code == 0)
        p->words = (LastWords){.done = true};
    (void)snprintf(p->words.text, sizeof(p->words.text), "%s", text);
    sim_say(&u->sim, "%s slot %d: rank %d of %s-%lld ends %d %s", p->node->name, p->slot, p->rank,
            universe_job_name(p->job), (long long)p->generation, code, text);
    if (p->ring && !p->ring->over && code != 0)
        ring_break(p->ring);
    say_to_daemon(p, WORD_EXIT);
}

static void on_killed(Universe *u, void *who, uint64_t life)
{
    Process *p = who;
    (void)u;
    if (p->life == life && !p->unkillable)
        trainer_exit(p, -SIGKILL, "");
}

void trainer_kill(Process *p)
{
    Sim *sim = &universe_of(p)->sim;
    if (p->alive)
        sim_after(sim, NULL, sim_between(sim, 200, 20000), on_killed, p, p->life);
}

static void on_deadman(Universe *u, void *who, uint64_t life)
{
    Process *p = who;
    if (p->life != life || !p->alive || p->unkillable)
        return;
    uint64_t until = MAX(p->node->actor.frozen_until_usec, p->node->frozen_until_usec);
    if (p->stopped || until > u->sim.now_usec)
        trainer_exit(p, -SIGKILL, "");
}

void trainer_arm_deadman(Process *p)
{
    Universe *u = universe_of(p);
    uint64_t ttl_usec = u->options.ttl_usec;
    if (p->alive && p->assigned) /* last armed at most a quarter of the TTL ago */
        sim_after(&u->sim, NULL, ttl_usec - sim_between(&u->sim, 0, ttl_usec / 4), on_deadman, p,
                  p->life);
}

/* ---- from start to ready ---- */

static void speak_of(Process *p, int64_t step, TrainStage stage)
{
    p->step = step;
    p->stage = stage;
    watchdog_note_stage(&p->watchdog, step, stage, universe_of(p)->sim.now_usec);
}

/* The store is away: whether the operation under way is tried again. */
static bool has_patience(Process *p)
{
    uint64_t now = universe_of(p)->sim.now_usec;
    if (p->asking_usec == 0)
        p->asking_usec = now;
    if (now - p->asking_usec < STORE_DEADLINE_MSEC * USEC_PER_MSEC)
        return true;
    p->asking_usec = 0;
    return false;
}

static bool searches(const Process *p) { return p->rank == 0 && p->find != FIND_NOTHING; }

/* Nobody knows which checkpoint is the newest: the folder is looked through (trainer/found.c). True: there
 * is none, and the job begins. */
static bool has_found(Process *p)
{
    p->found = store_search(&universe_of(p)->store, p->submission);
    if (p->found >= 0)
        say_to_daemon(p, WORD_FOUND);
    else if (p->find == FIND_MUST)
        trainer_exit(p, EXIT_DATA_CORRUPT,
                     "checkpoint.uri: file:///store holds no checkpoint, and this job has "
                     "committed some");
    return p->found < 0 && p->find != FIND_MUST;
}

static void on_restored(Universe *u, void *who, uint64_t life)
{
    Process *p = who;
    char uri[STORE_URI_BYTES], text[128];
    if (p->life != life || !p->alive)
        return;
    if (is_halted(p)) {
        sim_after(&u->sim, NULL, RECHECK_MSEC * USEC_PER_MSEC, on_restored, p, life);
        return;
    }
    if (p->node->refuses_numerics) {
        trainer_exit(p, EXIT_NUMERICS, "the canned grain differs");
    } else if ((u->store.out || p->node->has_no_store) && (p->resume >= 0 || searches(p))) {
        if (has_patience(p))
            sim_after(&u->sim, NULL, STORE_AGAIN_MSEC * USEC_PER_MSEC, on_restored, p, life);
        else
            trainer_exit(p, EXIT_STORE_UNREACHABLE, "the store does not answer");
    } else if (searches(p) && !has_found(p)) {
        return; /* it has ended, or waits for the verdict */
    } else if (p->resume >= 0 &&
               (u->store.manifests[p->resume].corrupt || u->store.manifests[p->resume].removed)) {
        (void)snprintf(text, sizeof(text), "%s does not verify", store_uri(p->resume, uri));
        trainer_exit(p, EXIT_DATA_CORRUPT, text);
    } else {
        speak_of(p, p->resume_step, STAGE_READY);
        say_to_daemon(p, WORD_READY);
    }
}

void trainer_assign(Process *p)
{
    Universe *u = universe_of(p);
    if (!p->alive || p->assigned)
        return;
    p->assigned = true;
    speak_of(p, p->resume_step, STAGE_RESTORING);
    sim_after(&u->sim, NULL,
              sim_between(&u->sim, u->options.restore_usec / 2, u->options.restore_usec * 3 / 2),
              on_restored, p, p->life);
}

static void on_booted(Universe *u, void *who, uint64_t life)
{
    Process *p = who;
    (void)u;
    if (p->life == life && p->alive)
        say_to_daemon(p, WORD_HELLO);
}

void trainer_start(Process *p)
{
    Universe *u = universe_of(p);
    checker_process_starts(u, p);
    p->used = p->alive = true;
    p->life = sim_serial(&u->sim);
    p->parent = p->resume;
    p->written = p->found = -1;
    p->committed_step = p->resume_step;
    watchdog_start(&p->watchdog, 0, u->sim.now_usec);
    sim_after(&u->sim, NULL, sim_between(&u->sim, 10000, 150000), on_booted, p, p->life);
}

/* ---- rings ---- */

static void on_step(Universe *u, void *who, uint64_t token);
static void save(Process *p, int64_t step, bool leave, bool finish);
static void end_well(Process *rank0, const char *text);

static Ring *ring_of(Universe *u, const Process *p)
{
    for (Ring *ring = u->rings; ring; ring = ring->next)
        if (ring->job == p->job && ring->world_revision == p->world_revision)
            return ring;
    Ring *ring = sim_new(sizeof(*ring));
    *ring = (Ring){.next = u->rings,
                   .job = p->job,
                   .size = p->world_size,
                   .generation = p->generation,
                   .world_revision = p->world_revision,
                   .step = p->resume_step,
                   .members = sim_new((size_t)p->world_size * sizeof(Process *)),
                   .lives = sim_new((size_t)p->world_size * sizeof(uint64_t))};
    u->rings = ring;
    return ring;
}

void rings_free(Universe *u)
{
    for (Ring *ring = u->rings, *next; ring; ring = next) {
        next = ring->next;
        free(ring->members);
        free(ring->lives);
        free(ring);
    }
}

static bool is_member(const Ring *ring, int rank)
{
    return ring->members[rank] && ring->members[rank]->life == ring->lives[rank] &&
           ring->members[rank]->alive;
}

static void ring_schedule(Ring *ring, Universe *u, uint64_t delay_usec)
{
    ring->token = sim_serial(&u->sim);
    sim_after(&u->sim, NULL, delay_usec, on_step, ring, ring->token);
}

static void ring_begin_step(Ring *ring, Universe *u)
{
    uint64_t usec = u->options.step_usec;
    ring->stalled_usec = 0;
    for (int rank = 0; rank < ring->size; rank++)
        if (is_member(ring, rank) && !is_halted(ring->members[rank]))
            speak_of(ring->members[rank], ring->step + 1, STAGE_COMPUTING);
    ring_schedule(ring, u, sim_between(&u->sim, usec - usec / 10, usec + usec / 10));
}

/* A connection has closed: the others see it at once, unless they are halted. */
static void on_peer_lost(Universe *u, void *who, uint64_t life)
{
    Process *p = who;
    if (p->life != life || !p->alive)
        return;
    if (is_halted(p)) {
        sim_after(&u->sim, NULL, RECHECK_MSEC * USEC_PER_MSEC, on_peer_lost, p, life);
        return;
    }
    trainer_exit(p, EXIT_PEER_LOST, "a peer is gone");
}

static void ring_break(Ring *ring)
{
    ring->over = true;
    for (int rank = 0; rank < ring->size; rank++) {
        Process *p = ring->members[rank];
        if (!is_member(ring, rank))
            continue;
        Sim *sim = &universe_of(p)->sim;
        sim_after(sim, NULL, sim_between(sim, 500, 50000), on_peer_lost, p, p->life);
    }
}

static void on_join_deadline(Universe *u, void *who, uint64_t life)
{
    Process *p = who;
    if (p->life != life || !p->alive || (p->ring && p->ring->began))
        return;
    if (is_halted(p))
        sim_after(&u->sim, NULL, RECHECK_MSEC * USEC_PER_MSEC, on_join_deadline, p, life);
    else
        trainer_exit(p, EXIT_PEER_LOST, "not all ranks have joined");
}

void trainer_go(Process *p)
{
    Universe *u = universe_of(p);
    if (!p->alive || p->gone)
        return;
    p->gone = true;
    Ring *ring = p->ring = ring_of(u, p);
    speak_of(p, p->resume_step, STAGE_JOINING);
    sim_after(&u->sim, NULL, COMM_TIMEOUT_MSEC * USEC_PER_MSEC, on_join_deadline, p, p->life);
    if (ring->over) {
        sim_after(&u->sim, NULL, RECHECK_MSEC * USEC_PER_MSEC, on_peer_lost, p, p->life);
        return;
    }
    ring->members[p->rank] = p;
    ring->lives[p->rank] = p->life;
    if (++ring->n_joined < ring->size)
        return;
    ring->began = true;
    if (u->taken_over[ring->job]) {
        trainer_exit(ring->members[0], EXIT_NOT_OWNER, UNIVERSE_OTHER_OWNER);
        return;
    }
    checker_ring_begins(u, ring);
    if (ring->step >= u->options.jobs[ring->job].steps)
        end_well(ring->members[0], "finished"); /* its last world died after its last commit */
    else
        ring_begin_step(ring, u);
}

/* ---- steps ---- */

static void ring_stall(Ring *ring, Universe *u)
{
    if (ring->stalled_usec == 0) {
        ring->stalled_usec = u->sim.now_usec;
        for (int rank = 0; rank < ring->size; rank++) /* the others wait for those that halted */
            if (is_member(ring, rank) && !is_halted(ring->members[rank]))
                speak_of(ring->members[rank], ring->step + 1, STAGE_REDUCING);
    }
    if (u->sim.now_usec - ring->stalled_usec > COMM_TIMEOUT_MSEC * USEC_PER_MSEC)
        ring_break(ring);
    else
        ring_schedule(ring, u, RECHECK_MSEC * USEC_PER_MSEC);
}

/* What was read ahead is used up: all ranks wait for the store, and say so (trainer/loop.c). */
static bool ring_waits(Ring *ring, Universe *u)
{
    uint64_t now = u->sim.now_usec;
    if (!u->store.out || now < u->store.out_usec + u->options.ahead_usec) {
        ring->waiting_usec = 0;
        return false;
    }
    if (ring->waiting_usec == 0)
        ring->waiting_usec = now;
    uint64_t waited = now - ring->waiting_usec;
    Process *rank0 = ring->members[0];
    if (waited > DATA_TIMEOUT_MSEC * USEC_PER_MSEC) {
        trainer_exit(rank0, EXIT_STORE_UNREACHABLE, "the data did not come");
        return true;
    }
    for (int rank = 0; rank < ring->size; rank++) {
        speak_of(ring->members[rank], ring->step + 1, STAGE_REDUCING);
        watchdog_note_wait(&ring->members[rank]->watchdog, waited, now);
    }
    if (waited >= WAIT_TOLD_MSEC * USEC_PER_MSEC && !rank0->waits_told) {
        rank0->waits_told = true;
        say_to_daemon(rank0, WORD_WAIT);
    }
    ring_schedule(ring, u, WAIT_SLICE_MSEC * USEC_PER_MSEC);
    return true;
}

static void ring_poison(Ring *ring)
{
    ring->over = true; /* all reach the same verdict */
    for (int rank = 0; rank < ring->size; rank++)
        if (is_member(ring, rank))
            trainer_exit(ring->members[rank], EXIT_NON_FINITE, "the loss is not finite");
}

static void after_step(Ring *ring, Universe *u)
{
    const JobPlan *plan = &u->options.jobs[ring->job];
    Process *rank0 = ring->members[0];
    bool first = ring->step == rank0->resume_step + 1;
    for (int rank = 0; first && rank < ring->size; rank++)
        say_to_daemon(ring->members[rank], WORD_STEP);
    watchdog_note_step(&rank0->watchdog, ring->step, u->sim.now_usec);
    for (int rank = 0; rank < ring->size; rank++)
        watchdog_note_wait(&ring->members[rank]->watchdog, 0, u->sim.now_usec);
    if (!first && (rank0->waits_told ||
                   u->sim.now_usec >= rank0->progress_usec + PROGRESS_MSEC * USEC_PER_MSEC)) {
        rank0->progress_usec = u->sim.now_usec;
        say_to_daemon(rank0, WORD_STEP);
    }
    if (ring->step >= plan->steps)
        save(rank0, ring->step, false, true);
    else if (rank0->must_leave)
        save(rank0, ring->step, true, false);
    else if (ring->step % plan->every_steps == 0 && !rank0->writing && !rank0->awaiting)
        save(rank0, ring->step, false, false);
}

static void on_step(Universe *u, void *who, uint64_t token)
{
    Ring *ring = who;
    if (token != ring->token || ring->over)
        return;
    int island = ring->members[0]->node->island;
    for (int rank = 0; rank < ring->size; rank++) {
        const Process *p = ring->members[rank];
        if (!is_member(ring, rank)) {
            ring_break(ring);
            return;
        }
        if (is_halted(p) || p->node->island != island) {
            ring_stall(ring, u);
            return;
        }
    }
    if (ring_waits(ring, u))
        return;
    if (u->poisoned_step[ring->job] == ring->step + 1) {
        ring_poison(ring);
        return;
    }
    ring->step++;
    checker_step(u, ring);
    after_step(ring, u);
    if (!ring->over && !ring->members[0]->ending)
        ring_begin_step(ring, u);
}

/* ---- saving ---- */

static void end_well(Process *rank0, const char *text)
{
    Ring *ring = rank0->ring;
    ring->over = true;
    for (int rank = 0; rank < ring->size; rank++)
        if (is_member(ring, rank))
            trainer_exit(ring->members[rank], EXIT_DONE, text);
}

static void on_saved(Universe *u, void *who, uint64_t life)
{
    Process *p = who;
    if (p->life != life || !p->alive)
        return;
    if (is_halted(p)) {
        sim_after(&u->sim, NULL, RECHECK_MSEC * USEC_PER_MSEC, on_saved, p, life);
        return;
    }
    ModelManifest m = {.job = p->job,
                       .generation = p->generation,
                       .world_revision = p->world_revision,
                       .parent = p->parent,
                       .first = p->committed_step + 1,
                       .last = p->saving_step};
    memcpy(m.submission, p->submission, sizeof(m.submission));
    if (u->store.out && has_patience(p)) {
        sim_after(&u->sim, NULL, STORE_AGAIN_MSEC * USEC_PER_MSEC, on_saved, p, life);
        return;
    }
    if (u->taken_over[p->job]) { /* it looks before each manifest */
        trainer_exit(p, EXIT_NOT_OWNER, UNIVERSE_OTHER_OWNER);
        return;
    }
    p->asking_usec = 0;
    p->writing = false;
    p->written = p->ring->over ? -1 : store_put(&u->store, &m);
    if (p->written < 0 && p->unsaved_usec == 0) {
        p->unsaved_usec = u->sim.now_usec;
        checker_save_fails(u, p->job);
    }
    if (p->written >= 0) {
        p->awaiting = true;
        say_to_daemon(p, WORD_SAVED);
    } else if (p->ending && ++p->tries == SAVE_TRIES) {
        trainer_exit(p, EXIT_STORE_UNREACHABLE, "the last checkpoint could not be saved");
    } else if (p->ending) {
        p->writing = true;
        sim_after(&u->sim, NULL, STORE_AGAIN_MSEC * USEC_PER_MSEC, on_saved, p, life);
    } /* else training goes on, and the next one may be */
}

static void begin_save(Process *p)
{
    Universe *u = universe_of(p);
    p->writing = true;
    p->saving_step = p->ring->step;
    sim_after(&u->sim, NULL,
              sim_between(&u->sim, u->options.save_usec / 2, u->options.save_usec * 2), on_saved, p,
              p->life);
}

/* leave, finish: all wait for it. */
static void save(Process *p, int64_t step, bool leave, bool finish)
{
    p->ending = leave || finish;
    p->finished = finish;
    if (p->ending)
        for (int rank = 0; rank < p->ring->size; rank++)
            if (is_member(p->ring, rank))
                speak_of(p->ring->members[rank], step, STAGE_SAVING);
    if (!p->writing && !p->awaiting)
        begin_save(p);
}

void trainer_hear_verdict(Process *p, bool committed)
{
    if (p->alive && p->found >= 0)
        trainer_exit(p, EXIT_RETRY, "a checkpoint was found: the next world goes on from it");
    if (!p->alive || !p->awaiting)
        return;
    p->awaiting = false;
    if (!committed) {
        trainer_exit(p, EXIT_RETRY, "the checkpoint was refused: this world is over");
        return;
    }
    p->parent = p->written;
    p->committed_step = p->saving_step;
    p->unsaved_usec = 0;
    store_retire(universe_of(p), p->written);
    if (p->ending && p->ring && !p->ring->over) {
        if (p->saving_step == p->ring->step)
            end_well(p, p->finished ? "finished" : "left");
        else
            begin_save(p); /* that one was in flight when the last was due */
    }
}

void trainer_leave(Process *p) { p->must_leave = true; }
