/* SPDX-License-Identifier: Apache-2.0 */
/* checks-internal.h - what the files of the checks share; see checks.h.
 *
 * Ownership: checks.c has the ledgers; pointers to them hold until checks_close().
 * Units:     as checks.h.
 * Errors:    books_break().
 * Threads:   one.
 */
#pragma once

#include "tests/history/history-internal.h"
#include "tests/sim/fleet/books.h"
#include "tests/sim/fleet/checks.h"
#include "tests/sim/fleet/fleet.h"

enum { BOOKED_COMMITS_MAX = 64, MARKS_MAX = 128 };

typedef struct Booked { /* a checkpoint that was committed, whatever became of the record */
    int manifest;
    bool struck;  /* the leader has struck it out, or it did not verify when it was looked for */
    bool unknown; /* somebody has taken its record away, and what was put back does not name it */
} Booked;

typedef struct Ledger { /* of a job, by its name */
    char name[RECORD_JOB_MAX + 1], submission[SUBMISSION_BYTES];
    int n_grains, max_failures, patience_sec; /* of the job file */
    bool needs_gpu;
    DesiredRecord word; /* a person's newest, and when */
    int64_t word_revision;
    uint64_t pending_usec;             /* since when its phase says that it waits; 0: it does not */
    int64_t world_revision;            /* of the newest that a leader wrote */
    char resized[RECORD_TEXT_MAX + 1]; /* what was last said of a resize, and of which world */
    int64_t resized_generation;
    JobPhase phase;                  /* as a leader last wrote it */
    bool broken_world, broken_phase; /* somebody has been at the record since a leader wrote it */
    bool broken_commits;             /* or ever */
    int64_t visible_step, visible_before; /* that etcd has shown, ever and at the last failure */
    int64_t committed_before;             /* the furthest commit that a failure has found */
    int failures;   /* worlds in a row that failed without having shown a further step */
    int lost;       /* the same, only of those that failed for the store */
    int struck_out; /* worlds in a row that failed for a commit that was then struck out */
    uint64_t committed_usec, failing_usec; /* the last commit; the first save that failed since */
    char trouble[RECORD_INCIDENT_MAX + 1]; /* the open incident that says that its store fails */
    uint64_t trouble_usec;                 /* failing_usec when that was opened */
    Booked booked[BOOKED_COMMITS_MAX];     /* oldest first */
    int n_booked;
} Ledger;

typedef struct NodeLedger {
    int64_t left_revision, up_revision; /* that it says so; 0: never */
    int64_t stay_revision;              /* when its record came */
    int64_t gone_revision;              /* of its record; 0: it was never there */
    uint64_t gone_usec;
} NodeLedger;

typedef struct Told { /* a controller in its life, of a job */
    char submission[SUBMISSION_BYTES];
    int64_t generation, world_revision, word_revision;
    int64_t went_generation;       /* the newest that it was told may go */
    uint64_t word_usec, went_usec; /* when it was told of that word, of that "go" */
    CommitMark committed;
} Told;

typedef struct ControllerLedger {
    uint64_t led_usec;
    uint64_t second; /* the one of which n_writes are */
    int n_writes;
    Told told[FLEET_JOBS_MAX];
    CordonRecord *cordons; /* of each node, owned */
    int64_t *cordon_revisions;
    uint64_t *cordon_usec;   /* when it was told of each; owned */
    int64_t *node_revisions; /* newest that it has read of each node's record; owned */
} ControllerLedger;

typedef struct Writing { /* one transaction */
    HistoryChecker *h;
    int controller; /* whose it is; -1: no controller's */
    bool is_person, is_node;
} Writing;

extern ChecksOptions checks_options;
extern Ledger ledgers[FLEET_JOBS_MAX];
extern NodeLedger node_ledgers[FLEET_NODES_MAX];
extern bool checks_clocks_differ;
extern ControllerLedger controller_ledgers[FLEET_CONTROLLERS_MAX];

Ledger *ledger_of(const char *job);
/* Returns the number of the fleet's node of this name. */
static inline int node_index(const char *name) { return (int)strtol(name + 1, NULL, 10); }
static inline uint64_t seconds(uint64_t n) { return n * USEC_PER_SEC; }

/* Returns the record that the transaction puts under that key, else the one that is there. */
static inline const void *record_of(const Writing *w, KeyKind kind, const char *name)
{
    return entry_after(history_find(w->h, kind, name));
}
static inline bool is_written(const Writing *w, KeyKind kind, const char *name)
{
    const Entry *e = history_find(w->h, kind, name);
    return e && e->changes && e->after.there;
}
/* Returns what the writing controller has been told, in its life, of the job that is there; NULL: it was told of
 * another one. */
const Told *told_of(const Writing *w, const Ledger *job);

/* ---- checks-time.c ---- */
void checks_node(const Writing *w, const Entry *e);
void checks_absence(const Writing *w, const IncidentRecord *incident);
void checks_hold(const Writing *w, const Entry *e);
void checks_loss(const Writing *w, const Entry *e);
void checks_queue(const Writing *w, const Ledger *job, const PhaseRecord *phase);
void checks_first_step(const Writing *w, const Ledger *job, const PhaseRecord *old,
                       const PhaseRecord *phase);

/* ---- checks-lost.c ---- */
void checks_word(const Writing *w, const Entry *e);
void checks_follows_word(const Writing *w, const Ledger *job, const WorldRecord *world);
void checks_slots(const Writing *w, const Entry *e);
void checks_cordon(const Writing *w, const Entry *e);
void checks_removal(const Writing *w, const Entry *e);

/* ---- checks-commits.c ---- */
void checks_commit(const Writing *w, const Entry *e);
void checks_rewrite(const Writing *w, const Entry *e);
