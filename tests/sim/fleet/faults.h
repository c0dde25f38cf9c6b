/* SPDX-License-Identifier: Apache-2.0 */
/* faults.h - a schedule of a fleet: the options drawn from its seed, the faults that strike, and the healing at the
 * end.
 *
 * Errors: none. Threads: one.
 * Ownership: there is one schedule at a time; the fleet is open while faults strike.
 * Units:     *_usec is virtual time.
 */
#pragma once

#include "tests/sim/fleet/fleet.h"

enum { PLAY_JOBS_MAX = 4 };

typedef struct Play { /* drawn from the seed before the schedule begins */
    FleetOptions fleet;
    int n_jobs;
    FleetJob jobs[PLAY_JOBS_MAX];
    uint64_t faults;      /* the kinds of faults that strike: one bit for each kind */
    uint64_t faults_usec; /* how long faults strike */
    uint64_t gap_usec;    /* average time between two faults */
    /* a stranger writes nodes' records: of random nodes, or of one node again and again */
    bool has_stranger;
    /* the first job's trainers are killed again and again, on whichever node they run */
    bool leaks;
    bool
        has_namer; /* a person names checkpoints of the first job, for the evaluation to evaluate */
    bool has_outage;  /* after the healing only the store fails: outage_run() */
    bool has_silence; /* at the end only etcd is silent, for longer than fence_sec */
} Play;

void play_draw(uint64_t seed, int n_nodes, Play *ret);
void play_describe(const Play *play);

/* Faults strike from now on, until faults_heal(). */
void faults_begin(const Play *play);
uint64_t faults_count(void);
/* on: all members of etcd stop, and stay stopped even if an earlier fault ends meanwhile; off: all
 * members run. */
void faults_silence(bool on);
void faults_heal(void);
/* Frees the faults' timers. Call it while the fleet is still open. */
void faults_end(void);

void outage_run(const Play *play);
void silence_run(const Play *play);

/* Draws a number for the schedule. These draws are independent of the network's. */
uint32_t play_draw_below(uint32_t n);
