/* SPDX-License-Identifier: Apache-2.0 */
/* checks-internal.h - declarations for all files of the checks; see checks.h.
 *
 * Units: as checks.h. Errors: books_break(). Threads: one.
 * Ownership: checks.c has the ledgers; pointers to them are valid until checks_close().
 */
#pragma once

#include "tests/history/history-internal.h"
#include "tests/sim/fleet/books.h"
#include "tests/sim/fleet/checks.h"
#include "tests/sim/fleet/fleet.h"

enum { BOOKED_COMMITS_MAX = 64, MARKS_MAX = 128 };

typedef struct Booked { /* a committed checkpoint, whatever happened to its record */
    int manifest;
    /* the leader has struck the commit out, or its checkpoint did not verify in a search */
    bool struck;
    /* somebody removed the commit's record, and the record that was put back does not name the commit */
    bool unknown;
} Booked;

typedef struct Ledger { /* the ledger of a job, found by its name */
    char name[RECORD_JOB_MAX + 1], submission[SUBMISSION_BYTES];
    int n_grains, per_node, max_failures, patience_sec; /* from the job file */
    bool needs_gpu;
    bool is_eval;       /* the job evaluates the checkpoints of another job */
    DesiredRecord word; /* a person's newest desired state; word_revision: its revision */
    int64_t word_revision;
    uint64_t pending_usec;  /* since when the phase is pending; 0: the phase is not pending */
    int64_t world_revision; /* revision of the newest world that a leader wrote */
    /* the last reported resize, and the generation of its world */
    char resized[RECORD_TEXT_MAX + 1];
    int64_t resized_generation;
    JobPhase phase;                  /* the phase that a leader last wrote */
    bool broken_world, broken_phase; /* changed by hand since a leader last wrote the record */
    bool broken_commits;             /* the checkpoints record was changed by hand at any time */
    /* visible_step: the newest step that was ever in etcd; visible_before: its value at the last
     * failure */
    int64_t visible_step, visible_before;
    int64_t committed_before; /* the newest committed step at the last failure */
    int failures;             /* failed worlds in a row that did not get beyond the newest step */
    int lost;                 /* failed worlds in a row that failed because of the store */
    int struck_out; /* worlds in a row that failed because of a commit that was then struck out */
    /* times of the last commit, and of the first failed save since then */
    uint64_t committed_usec, failing_usec;
    char trouble[RECORD_INCIDENT_MAX + 1]; /* the open incident about failures of the job's store */
    uint64_t trouble_usec;                 /* failing_usec when the incident `trouble` was opened */
    Booked booked[BOOKED_COMMITS_MAX];     /* the commits, oldest first */
    int n_booked;
} Ledger;

typedef struct NodeLedger {
    /* revisions at which the node reported "left" and "up"; 0: never */
    int64_t left_revision, up_revision;
    int64_t stay_revision; /* revision at which the node's present record was created */
    int64_t gone_revision; /* revision at which the node's record vanished; 0: it never vanished */
    uint64_t gone_usec;
} NodeLedger;

typedef struct Told { /* what a controller has read about a job since its start */
    char submission[SUBMISSION_BYTES];
    int64_t generation, world_revision, word_revision;
    int64_t went_generation; /* the newest generation that was told to go */
    /* word_usec: when the controller read the newest desired state; went_usec: when the controller
     * read that went_generation was told to go */
    uint64_t word_usec, went_usec;
    CommitMark committed;
} Told;

typedef struct NodeMachine { /* as a controller has read it */
    char id[33];
    uint64_t usec; /* when the controller first read a record of this machine */
} NodeMachine;

typedef struct ControllerLedger {
    uint64_t led_usec;
    uint64_t second; /* the second in which n_writes were counted */
    int n_writes;
    Told told[FLEET_JOBS_MAX];
    CordonRecord *cordons; /* the cordon of each node, owned */
    int64_t *cordon_revisions;
    uint64_t *cordon_usec; /* when the controller read each cordon; owned */
    /* the newest revision of each node's record that the controller has read; owned */
    int64_t *node_revisions;
    NodeMachine *machines; /* the machine in each node's newest record that it has read; owned */
} ControllerLedger;

typedef struct Writing { /* a transaction that is being checked */
    HistoryChecker *h;
    int controller; /* the controller that writes; -1: the writer is not a controller */
    bool is_person, is_node;
} Writing;

extern ChecksOptions checks_options;
extern Ledger ledgers[FLEET_JOBS_MAX];
extern NodeLedger node_ledgers[FLEET_NODES_MAX];
extern bool checks_clocks_differ;
extern ControllerLedger controller_ledgers[FLEET_CONTROLLERS_MAX];

Ledger *ledger_of(const char *job);
/* Returns the number of the fleet's node with the given name. */
static inline int node_index(const char *name) { return (int)strtol(name + 1, NULL, 10); }
static inline uint64_t seconds(uint64_t n) { return n * USEC_PER_SEC; }

/* Returns the record that the transaction puts under the key, or the present record if the
 * transaction does not put the key. */
static inline const void *record_of(const Writing *w, KeyKind kind, const char *name)
{
    return entry_after(history_find(w->h, kind, name));
}
static inline bool is_written(const Writing *w, KeyKind kind, const char *name)
{
    const Entry *e = history_find(w->h, kind, name);
    return e && e->changes && e->after.there;
}
/* Returns what the writing controller has read, since its start, about the present submission of
 * the job; NULL if the controller has read only of another submission. */
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
