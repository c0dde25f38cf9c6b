/* SPDX-License-Identifier: Apache-2.0 */
/* testing-story.h - a small history, written by hand: two nodes train a job, and what may follow.
 *
 * A test changes the story's records and writes them; story_commit() makes one revision of what was written.
 *
 * Ownership: story_begin() and story_end() are cmocka's setup and teardown; the story is in *state.
 * Units:     as in the records.
 * Errors:    a failed assertion ends the test. The checker's report is in said and invariant.
 * Threads:   the test's.
 */
#pragma once

#include "base/test/testing.h"
#include "cluster/keys.h"
#include "tests/history/history.h"

#define CLUSTER "test"
#define JOB "a"
#define SUBMISSION "0123456789abcdef0123456789abcdef"
#define OTHER_SUBMISSION "fedcba9876543210fedcba9876543210"

enum { STORY_CHANGES_MAX = 16, STORY_KEYS_MAX = 64, LEASE = 7 };

typedef struct Story {
    HistoryChecker *checker;
    int64_t revision;
    HistoryChange changes[STORY_CHANGES_MAX];
    size_t n_changes;
    char *keys[STORY_KEYS_MAX];
    int64_t versions[STORY_KEYS_MAX];
    size_t n_keys;
    char said[512], invariant[16]; /* of the first breach */
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
} Story;

/* The handler: keeps the first breach, and counts. */
void story_hear(int64_t revision, const char *key, const Breach *breach, void *userdata);
/* Two nodes train world 1, which has committed step 5. */
int story_begin(void **state);
int story_end(void **state);

/* ---- what is written in the next revision ---- */

/* text: NULL removes the key; else the story frees it. */
void story_change(Story *s, KeyKind kind, const char *name, char *text, int64_t lease);
void story_removes(Story *s, KeyKind kind, const char *name);
void story_put_spec(Story *s);
void story_put_desired(Story *s);
void story_put_phase(Story *s);
void story_put_world(Story *s);
void story_put_node(Story *s, int i);
void story_put_ranks(Story *s, int i);
void story_put_checkpoints(Story *s);
void story_put_progress(Story *s);
void story_put_incident(Story *s);
void story_put_cordon(Story *s);
void story_put_alert(Story *s);
/* The phase, with that word. */
void story_phase_is(Story *s, JobPhase phase);
/* The next world, its phase beside it. */
void story_next_world(Story *s, JobPhase phase);
/* A commit of the present world, and the progress that knows of it. */
void story_add_commit(Story *s, int64_t step);
/* The key's version; that of its next write is one more. */
int64_t *story_version_of(Story *s, const char *key);

/* ---- whole revisions ---- */

void story_commit(Story *s);
void story_submit(Story *s);
void story_goes(Story *s);
/* World 2 after the loss of n1, only on n0. */
void story_recovers(Story *s);
/* n0 ends its rank of world 1, and says so in world 2. */
void story_old_rank_ends(Story *s);
void story_stops(Story *s);
void story_deletes_job(Story *s);
/* Another job of the same name. */
void story_starts_anew(Story *s);
/* story_recovers(), and all that follows up to a commit of step 10 in world 2. */
void story_recovery(Story *s);
