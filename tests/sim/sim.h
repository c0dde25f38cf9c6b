/* SPDX-License-Identifier: Apache-2.0 */
/* sim.h - virtual time, the queue of what happens next, draws, and the history of a schedule.
 *
 * A Sim is one schedule: everything in it is a function of its options and its seed. Whoever acts
 * (a daemon, a controller) is an Actor: what is queued for an actor that has died since is dropped,
 * for one that is frozen it waits until the thaw, messages before timers.
 *
 * Ownership: sim_free() frees the queue alone; the models are parts of a Universe (universe.h).
 * Units:     microseconds of virtual boottime, the same on all machines.
 * Errors:    a broken invariant ends the schedule: sim_fail() keeps the first. Out of memory aborts.
 * Threads:   one.
 */
#pragma once

#include "base/macro.h"
#include "base/philox.h"

/* Boottime and realtime begin here, far from zero. */
#define SIM_EPOCH_USEC (UINT64_C(1000000) * USEC_PER_SEC)

enum { JOBS_MAX = 4 };

typedef struct Universe Universe;

typedef struct Actor {
    uint32_t life; /* grows when it dies: what was meant for the life before is dropped */
    bool alive;
    uint64_t frozen_until_usec;
} Actor;

/* token is the caller's: it tells a timer that was replaced from one that still counts. */
typedef void (*SimHandler)(Universe *u, void *who, uint64_t token);

typedef struct SimEvent {
    uint64_t at_usec, order; /* timers come after the messages of the same moment */
    SimHandler handler;
    void *who;
    uint64_t token;
    Actor *actor; /* NULL: the world itself */
    uint32_t life;
} SimEvent;

typedef struct Sim {
    uint64_t seed, now_usec;
    bool talk; /* prints a line per transition */
    SimEvent *heap;
    size_t n_heap, heap_size;
    uint64_t serial, n_draws, n_events, digest;
    Philox block;
    bool failed;
    char broken[16], text[400]; /* which invariant, and how */
} Sim;

void sim_init(Sim *sim, uint64_t seed, bool talk);
void sim_free(Sim *sim);

/* ---- what happens next ---- */

void sim_after(Sim *sim, Actor *actor, uint64_t delay_usec, SimHandler handler, void *who,
               uint64_t token);
void sim_timer(Sim *sim, Actor *actor, uint64_t delay_usec, SimHandler handler, void *who,
               uint64_t token);
/* Everything until then, or until something fails. */
void sim_run(Universe *u, uint64_t until_usec);
/* A number that nobody else has. */
uint64_t sim_serial(Sim *sim);

/* ---- draws ---- */

uint32_t sim_draw(Sim *sim, uint32_t n); /* 0..n-1 */
bool sim_chance(Sim *sim, uint32_t permille);
uint64_t sim_between(Sim *sim, uint64_t low_usec, uint64_t high_usec);

/* ---- the history ---- */

/* One line: printed when the schedule is talked about, part of the digest always. */
void sim_say(Sim *sim, const char *format, ...) _printf_(2, 3);
void sim_fail(Sim *sim, const char *invariant, const char *format, ...) _printf_(3, 4);

/* ---- memory: a schedule that has none ends the program ---- */

void *sim_new(size_t bytes); /* zeroed */
void *sim_more(void *old, size_t bytes);
