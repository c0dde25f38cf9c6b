/* SPDX-License-Identifier: Apache-2.0 */
/* faults.h - a schedule of a fleet: what its seed draws, the faults that strike, and how all is healed.
 *
 * Ownership: there is one schedule at a time; the fleet is open while faults strike.
 * Units:     *_usec is virtual time.
 * Errors:    none.
 * Threads:   one.
 */
#pragma once

#include "tests/sim/fleet/fleet.h"

enum { PLAY_JOBS_MAX = 3 };

typedef struct Play { /* drawn from the seed before anything happens */
    FleetOptions fleet;
    int n_jobs;
    FleetJob jobs[PLAY_JOBS_MAX];
    uint64_t faults;      /* kinds that exist: a bit each */
    uint64_t faults_usec; /* how long they strike */
    uint64_t gap_usec;    /* between two, on average */
    bool has_stranger; /* somebody writes nodes' records: each second one, or one again and again */
    bool leaks;        /* the first job's trainers are killed again and again, wherever they run */
    bool has_outage;   /* after the healing only the store goes away: outage.c */
    bool has_silence;  /* and at last only etcd is silent, for longer than fence_sec */
} Play;

void play_draw(uint64_t seed, int n_nodes, Play *ret);
void play_describe(const Play *play);

/* Faults strike from now on, until faults_heal(). */
void faults_begin(const Play *play);
uint64_t faults_count(void);
/* All members of etcd stand still, whatever faults end meanwhile; or all are well. */
void faults_silence(bool on);
void faults_heal(void);
/* Frees timers; the fleet is still open. */
void faults_end(void);

void outage_run(const Play *play);
void silence_run(const Play *play);

/* Draws of the schedule, apart from the network's. */
uint32_t play_draw_below(uint32_t n);
