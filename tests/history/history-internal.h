/* SPDX-License-Identifier: Apache-2.0 */
/* history-internal.h - the state of the checker of histories; see history.h.
 *
 * Errors: history_broken(). Threads: one.
 * Ownership: the HistoryChecker owns entries and books; pointers to them are valid as long as the checker exists.
 * Units:     revisions, steps, generations.
 */
#pragma once

#include "cluster/keys.h"
#include "tests/history/history.h"

enum { BOOKED_WORLDS_MAX = 64, BOOKED_GONE_MAX = 64 };

typedef struct HistoryJob HistoryJob;
typedef struct Entry Entry;

typedef struct KeptValue { /* record NULL: the key is not there, or its value cannot be read */
    void *record;
    bool there, foreign; /* there: the key exists; foreign: a later version wrote it */
    int64_t revision, lease, version;
    bool by_hand;
} KeptValue;

struct Entry { /* the checker's data on one key; kept after the key is removed */
    char *key;
    const char *name; /* the part of key after the kind */
    KeyKind kind;
    HistoryJob *job; /* the job of the key; NULL: none */
    int64_t
        generation;   /* the generation in a ranks or rendezvous key, or the step in an evals key */
    const char *node; /* the node in a ranks key; points into key */
    /* links: of a hash bucket, and of the list of the job's existing reports */
    Entry *in_bucket, *older_report, *newer_report;
    /* the value before and after the transaction; equal if the key is unchanged */
    KeptValue before, after;
    bool changes;
    /* the key was changed by hand; for a key of a job: since the job's present submission */
    bool touched;
};

typedef struct BookedWorld {
    int64_t revision, generation, first_step; /* first_step 0: no first step was reported yet */
    WorldRun *runs;
    size_t n_runs;
} BookedWorld;

struct HistoryJob {
    Entry *spec, *desired, *world, *phase, *checkpoints, *progress;
    Entry *reports; /* list of the job's existing reports, newest first */
    char submission[SUBMISSION_BYTES];
    int64_t generation;                    /* the highest generation of this submission */
    int64_t serial;                        /* serial of the job's phase */
    int64_t went;                          /* the highest generation that was told to go */
    int64_t steps;                         /* steps that the job file asks for; 0: unknown */
    int64_t per_node;                      /* ranks of each node of its worlds; 0: any number */
    char of[RECORD_JOB_MAX + 1];           /* the job whose checkpoints it evaluates; empty: none */
    BookedWorld worlds[BOOKED_WORLDS_MAX]; /* includes worlds of earlier submissions */
    uint64_t n_worlds;
    bool touched; /* one of the job's records was changed by hand */
    HistoryJob *next;
};

struct HistoryChecker {
    char prefix[KEY_MAX];
    HistoryHandler handler;
    void *userdata;
    HistoryCounts counts;
    Entry **buckets;
    size_t n_buckets, n_entries;
    Entry **changed; /* entries that this transaction changes */
    size_t n_changed, changed_room;
    HistoryJob *jobs;
    char gone[BOOKED_GONE_MAX][SUBMISSION_BYTES];
    uint64_t n_gone;
    int64_t revision; /* revision of the transaction that is being checked */
    /* Is called for each transaction after all its changes are checked, before each entry's `after`
     * becomes `before`. May be NULL. */
    void (*witness)(HistoryChecker *h);
};

void history_broken(HistoryChecker *h, const Entry *entry, const Breach *breach);
#define HISTORY_BROKEN(h, entry, invariant, ...)                                                   \
    do {                                                                                           \
        Breach _breach;                                                                            \
        (void)breach_say(&_breach, invariant, __VA_ARGS__); /* always returns false */             \
        history_broken(h, entry, &_breach);                                                        \
    } while (0)

/* Returns the entry of a key, or NULL if the key was never written. */
Entry *history_find(HistoryChecker *h, KeyKind kind, const char *name);
static inline const void *entry_before(const Entry *e) { return e ? e->before.record : NULL; }
static inline const void *entry_after(const Entry *e) { return e ? e->after.record : NULL; }

/* ---- history-job.c: checks of one changed record of a job, and updates of the job's books after
 * the transaction ---- */
void history_judge_job(HistoryChecker *h, const Entry *e);
void history_book_job(HistoryChecker *h, const Entry *e);
/* Records that somebody changed the entry by hand, with etcdctl. */
void history_book_hand(Entry *e);

/* ---- history-commits.c ---- */
void history_judge_commits(HistoryChecker *h, const Entry *e);
void history_judge_progress(HistoryChecker *h, const Entry *e);

/* ---- history-evals.c: jobs of kind "eval" ---- */
void history_judge_evaluated(HistoryChecker *h, const Entry *world);
void history_judge_verdicts(HistoryChecker *h, const Entry *phase, const PhaseRecord *old);
void history_judge_results(HistoryChecker *h, const Entry *eval);

/* ---- history-ranks.c ---- */
void history_judge_ranks(HistoryChecker *h, const Entry *e);
void history_judge_rendezvous(HistoryChecker *h, const Entry *e);
/* Returns the world whose record was written at that revision; NULL if the books do not contain it. */
const BookedWorld *history_find_world(const HistoryJob *job, int64_t revision);
/* Checks I3 when a generation is told to go: ranks of older worlds must be dead or unreachable. */
void history_judge_go(HistoryChecker *h, const Entry *phase);

/* ---- history-others.c: incidents, alerts, cordons, and the end ---- */
void history_judge_incident(HistoryChecker *h, const Entry *e);
void history_judge_alert(HistoryChecker *h, const Entry *e);
void history_judge_cordon(HistoryChecker *h, const Entry *e);
void history_judge_end(HistoryChecker *h);
