/* SPDX-License-Identifier: Apache-2.0 */
/* testing-scenario.h - a small history, written by hand, in which two nodes train a job; a test chooses how the history
 * continues.
 *
 * A test changes the scenario's records and writes them; scenario_commit() makes one revision of all that was written.
 *
 * Units: as in the records. Threads: the test's.
 * Ownership: scenario_begin() and scenario_end() are cmocka's setup and teardown; the scenario is in *state.
 * Errors:    a failed assertion ends the test. The checker's report is in said and invariant.
 */
#pragma once

#include "base/test/testing.h"
#include "cluster/keys.h"
#include "tests/history/history.h"

#define CLUSTER "test"
#define JOB "a"
#define SUBMISSION "0123456789abcdef0123456789abcdef"
#define OTHER_SUBMISSION "fedcba9876543210fedcba9876543210"

enum { SCENARIO_CHANGES_MAX = 16, SCENARIO_KEYS_MAX = 64, LEASE = 7 };

typedef struct Scenario {
    HistoryChecker *checker;
    int64_t revision;
    HistoryChange changes[SCENARIO_CHANGES_MAX];
    size_t n_changes;
    char *keys[SCENARIO_KEYS_MAX];
    int64_t versions[SCENARIO_KEYS_MAX];
    size_t n_keys;
    char said[512], invariant[16]; /* the text and the invariant of the first breach */
    int n_said;

    SpecRecord spec;
    DesiredRecord desired;
    WorldRecord world;
    WorldRun runs[4];
    PhaseRecord phase;
    NodeRecord nodes[2];
    RanksRecord ranks[2];
    RankReport reports[2];
    CheckpointsRecord checkpoints;
    ProgressRecord progress;
    IncidentRecord incident;
    CordonRecord cordon;
    AlertRecord alert;
    RequestRecord request;
} Scenario;

/* The checker's handler: keeps the first breach, and counts all of them. */
void scenario_hear(int64_t revision, const char *key, const Breach *breach, void *userdata);
/* Sets up the scenario: two nodes train world 1, which has committed step 5. */
int scenario_begin(void **state);
int scenario_end(void **state);

/* ---- changes of the next revision ---- */

/* Writes a key. text NULL removes the key; otherwise the scenario frees text. */
void scenario_change(Scenario *s, KeyKind kind, const char *name, char *text, int64_t lease);
void scenario_removes(Scenario *s, KeyKind kind, const char *name);
void scenario_put_spec(Scenario *s);
void scenario_put_desired(Scenario *s);
void scenario_put_phase(Scenario *s);
void scenario_put_world(Scenario *s);
void scenario_put_node(Scenario *s, int i);
void scenario_put_ranks(Scenario *s, int i);
void scenario_put_checkpoints(Scenario *s);
void scenario_put_progress(Scenario *s);
void scenario_put_incident(Scenario *s);
void scenario_put_cordon(Scenario *s);
void scenario_put_alert(Scenario *s);
/* Writes the job's phase record with the given phase. */
void scenario_phase_is(Scenario *s, JobPhase phase);
/* Writes the next world, and its phase in the same revision. */
void scenario_next_world(Scenario *s, JobPhase phase);
/* Adds a commit of the present world, and the progress that names it. */
void scenario_add_commit(Scenario *s, int64_t step);
/* Returns the key's present version, to which the next write of the key adds one. */
int64_t *scenario_version_of(Scenario *s, const char *key);

/* ---- whole revisions ---- */

void scenario_commit(Scenario *s);
void scenario_submit(Scenario *s);
void scenario_goes(Scenario *s);
/* After the loss of n1, world 2 begins only on n0. */
void scenario_recovers(Scenario *s);
/* n0 ends its rank of world 1, and reports the end while world 2 exists. */
void scenario_old_rank_ends(Scenario *s);
void scenario_stops(Scenario *s);
void scenario_deletes_job(Scenario *s);
/* Another job of the same name begins. */
void scenario_starts_anew(Scenario *s);
/* scenario_recovers(), and all following changes up to a commit of step 10 in world 2. */
void scenario_recovery(Scenario *s);
