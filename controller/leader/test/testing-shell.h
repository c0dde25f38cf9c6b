/* SPDX-License-Identifier: Apache-2.0 */
/* testing-shell.h - the program around a Leader of cluster "lab" whose loop, clock and etcd are those of
 * testing-memory.h; the test plays the election.
 *
 * Ownership: tear_down() frees the Leader, and fails the test if the Leader has left a timer, request or handler
 *            behind.
 * Units:     *_usec is microseconds of testing-memory.h's clock.
 * Errors:    none: anything that goes wrong ends the test.
 * Threads:   main thread only.
 */
#pragma once

#include "cluster/keys.h"
#include "cluster/records.h"
#include "controller/leader/leader.h"
#include "etcd/test/testing-memory.h"

/* This candidate's key in the election, while it holds its first lease. */
#define LEADER_KEY "/sdtrain/lab/leader/4e"

extern Etcd etcd;
extern Leader *leader;
extern LeaderSettings settings;
/* The test's own journal, into which the next Leader records; NULL: nothing is recorded. */
extern Journal *journal;

/* The calls of LeaderEvents since set_up(): their numbers, and the last values. */
extern struct ShellTold {
    int n_loaded, n_leads, n_ended, ended, n_views, n_stalled, n_ticks, n_observed, n_leading,
        n_unreadable, n_read, n_results, n_answers[3];
    uint64_t begun_usec; /* when the last answered decision began */
    int64_t shown;       /* revision up to which the watch has shown the store */
    LeaderView view;     /* as it was at the last view_changed() */
} told;

/* These make a Leader of a cluster with room for one job, or for two. The Leader has read nothing yet. */
int set_up(void **state);
int set_up_two(void **state);
int tear_down(void **state);

/* ---- records that other clients write; the watch shows them later ---- */

#define PUT(prefix, record, kind, name)                                                            \
    do {                                                                                           \
        char _key[KEY_MAX];                                                                        \
        char *_text = prefix##_encode(record, NULL);                                               \
        (void)put(key_of("lab", kind, name, _key), _text, 0);                                      \
        free(_text);                                                                               \
    } while (0)

/* These put a node of one slot, a job of one or two ranks, a cordon, and a candidate's record under any key. */
void put_node(const char *name);
void put_job(const char *name);
void cordon(const char *node);
void put_leader(const char *key, const LeaderRecord *record);

/* ---- the election ---- */

extern struct Election {
    char *introduced; /* the value that the election was last given to write */
    bool has_candidate;
    EtcdElectionHandler on_elected;
    void *userdata; /* passed to on_elected */
} election;

/* Puts the candidate's key under the candidate's lease; if there is no lease, etcd first grants one. Returns the term
 * that begins if the candidate wins. */
int64_t enter_election(void);
void win_election(int64_t term);
void lose_election(void);
/* Makes the Leader the first in the election. */
void elect(void);
/* Begins to lead, with two nodes and a job whose first world is about to be written. */
void begin(void);
/* Gives two jobs a world each, then requests both jobs to stop. */
void begin_two(void);
/* Lets two leaders with these records lead and die in turn, and then elects the Leader. Returns its term. */
int64_t follow_two_deaths(const LeaderRecord *first, const LeaderRecord *second);
/* Lets two leaders die on the same records, so that the Leader pauses before it decides. Returns its term. */
int64_t stand_still(void);
/* Ends a stall: due timers and waiting events of the watch run by their priority. */
void resume(void);

/* Checks that every change of the view was reported. */
void expect_view_is_told(void);
/* Returns whether the core regards the node as cordoned. */
bool is_cordoned(const char *node);
/* Returns the generation of job a's world in etcd; 0: it has none. */
int64_t generation(void);
/* Returns the record that the Leader introduces itself with; the caller must clear it. */
LeaderRecord own_record(void);
/* Returns the number of deaths in own_record(). */
int deaths_told(void);
