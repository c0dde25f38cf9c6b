/* SPDX-License-Identifier: Apache-2.0 */
/* testing-shell.h - the program around a Leader whose loop, clock and etcd are those of testing-store.h.
 *
 * Ownership: tear_down() frees the Leader, and fails the test if it has left something behind.
 * Units:     *_usec is the store's time.
 * Errors:    none: what goes wrong ends the test.
 * Threads:   main thread only.
 */
#pragma once

#include "cluster/records.h"
#include "controller/leader/leader.h"
#include "controller/leader/test/testing-store.h"

extern Leader *leader;
extern LeaderSettings settings;
/* The test's own, into which the next Leader records; NULL: nothing is recorded. */
extern Journal *journal;

/* The calls of LeaderEvents since set_up(): how many there were, and the last values. */
extern struct ShellTold {
    int n_loaded, n_leads, n_ended, ended, n_views, n_stalled, n_ticks, n_observed, n_leading,
        n_unreadable, n_read, n_answers[3];
    uint64_t begun_usec; /* of the last decision that was answered */
    int64_t shown;       /* as far as the watch has come */
    LeaderView view;     /* as it was at the last view_changed() */
} told;

/* A Leader of a cluster of one job, and of two: it has read nothing. */
int set_up(void **state);
int set_up_two(void **state);
int tear_down(void **state);

/* It stands for election and is the first. */
void elect(void);
/* A leader, two nodes and a job whose first world is about to be written. */
void begin(void);
/* Two jobs have worlds, and both are told to stop. */
void begin_two(void);
/* Two leaders died on the same records: this one keeps still. Returns its term. */
int64_t stand_still(void);

/* Nothing of the view has changed that was not told. */
void expect_view_is_told(void);
/* Reports whether the core takes the node to be cordoned. */
bool is_cordoned(const char *node);
/* Returns the generation of job a's world in etcd; 0: it has none. */
int64_t generation(void);
/* As its record in the election says. */
int deaths_told(void);
