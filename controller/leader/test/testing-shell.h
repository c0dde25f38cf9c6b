/* SPDX-License-Identifier: Apache-2.0 */
/* testing-shell.h - the program around a Leader whose loop, clock and etcd are those of testing-store.h.
 *
 * Ownership: tear_down() frees the Leader, and fails the test if the Leader has left a timer, request or handler
 *            behind.
 * Units:     *_usec is the store's time.
 * Errors:    none: anything that goes wrong ends the test.
 * Threads:   main thread only.
 */
#pragma once

#include "cluster/records.h"
#include "controller/leader/leader.h"
#include "controller/leader/test/testing-store.h"

extern Leader *leader;
extern LeaderSettings settings;
/* The test's own journal, into which the next Leader records; NULL: nothing is recorded. */
extern Journal *journal;

/* The calls of LeaderEvents since set_up(): their numbers, and the last values. */
extern struct ShellTold {
    int n_loaded, n_leads, n_ended, ended, n_views, n_stalled, n_ticks, n_observed, n_leading,
        n_unreadable, n_read, n_answers[3];
    uint64_t begun_usec; /* when the last answered decision began */
    int64_t shown;       /* revision up to which the watch has shown the store */
    LeaderView view;     /* as it was at the last view_changed() */
} told;

/* These make a Leader of a cluster with room for one job, or for two. The Leader has read nothing yet. */
int set_up(void **state);
int set_up_two(void **state);
int tear_down(void **state);

/* Makes the Leader the first in the election. */
void elect(void);
/* Begins to lead, with two nodes and a job whose first world is about to be written. */
void begin(void);
/* Gives two jobs a world each, then requests both jobs to stop. */
void begin_two(void);
/* Lets two leaders die on the same records, so that this one stands still. Returns its term. */
int64_t stand_still(void);

/* Checks that every change of the view was reported. */
void expect_view_is_told(void);
/* Returns whether the core regards the node as cordoned. */
bool is_cordoned(const char *node);
/* Returns the generation of job a's world in etcd; 0: it has none. */
int64_t generation(void);
/* Returns the number of deaths in the Leader's own record. */
int deaths_told(void);
