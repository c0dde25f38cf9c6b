/* SPDX-License-Identifier: Apache-2.0 */
/* history-internal.h - what the checker of histories keeps; see history.h.
 *
 * Ownership: the HistoryChecker owns entries and books; pointers to them hold as long as it lives.
 * Units:     revisions, steps, generations.
 * Errors:    history_broken().
 * Threads:   one.
 */
#pragma once

#include "cluster/keys.h"
#include "tests/history/history.h"

enum { BOOKED_WORLDS_MAX = 64, BOOKED_GONE_MAX = 64 };

typedef struct HistoryJob HistoryJob;
typedef struct Entry Entry;

typedef struct KeptValue { /* record NULL: there is none, or it cannot be read */
    void *record;
    bool there, foreign; /* foreign: a later version wrote it */
    int64_t revision, lease, version;
    bool by_hand;
} KeptValue;

struct Entry { /* one key, also after it was removed */
    char *key;
    const char *name; /* behind the kind, in key */
    KeyKind kind;
    HistoryJob *job;                                /* that the key is about; NULL: about none */
    int64_t generation;                             /* ranks, rendezvous */
    const char *node;                               /* ranks; in key */
    Entry *in_bucket, *older_report, *newer_report; /* reports of a job that are there */
    KeptValue before, after; /* the transaction; both are the same if it leaves the key alone */
    bool changes;
    bool touched; /* by hand; of a job's record, since its submission came */
};

typedef struct BookedWorld {
    int64_t revision, generation, first_step; /* first_step 0: not known before it is told */
    WorldRun *runs;
    size_t n_runs;
} BookedWorld;

struct HistoryJob {
    Entry *spec, *desired, *world, *phase, *checkpoints, *progress;
    Entry *reports; /* newest first */
    char submission[SUBMISSION_BYTES];
    int64_t generation;                    /* the highest of this submission */
    int64_t serial;                        /* of its phase */
    int64_t went;                          /* the highest generation that was told to go */
    int64_t steps;                         /* that the job file asks for; 0: unknown */
    BookedWorld worlds[BOOKED_WORLDS_MAX]; /* also of submissions before this one */
    uint64_t n_worlds;
    bool touched; /* one of its records is */
    HistoryJob *next;
};

struct HistoryChecker {
    char prefix[KEY_MAX];
    HistoryHandler handler;
    void *userdata;
    HistoryCounts counts;
    Entry **buckets;
    size_t n_buckets, n_entries;
    Entry **changed; /* of this transaction */
    size_t n_changed, changed_room;
    HistoryJob *jobs;
    char gone[BOOKED_GONE_MAX][SUBMISSION_BYTES];
    uint64_t n_gone;
    int64_t revision; /* of the transaction that is judged */
    /* Called for each transaction when all of it is judged, before it becomes what is there. NULL: nobody looks on. */
    void (*witness)(HistoryChecker *h);
};

void history_broken(HistoryChecker *h, const Entry *entry, const Breach *breach);
#define HISTORY_BROKEN(h, entry, invariant, ...)                                                   \
    do {                                                                                           \
        Breach _breach;                                                                            \
        (void)breach_say(&_breach, invariant, __VA_ARGS__); /* false always */                     \
        history_broken(h, entry, &_breach);                                                        \
    } while (0)

/* NULL: no such key was ever written. */
Entry *history_find(HistoryChecker *h, KeyKind kind, const char *name);
static inline const void *entry_before(const Entry *e) { return e ? e->before.record : NULL; }
static inline const void *entry_after(const Entry *e) { return e ? e->after.record : NULL; }

/* ---- history-job.c: one changed record of a job, and the job's books after the transaction ---- */
void history_judge_job(HistoryChecker *h, const Entry *e);
void history_book_job(HistoryChecker *h, const Entry *e);
/* Somebody's etcdctl has changed it. */
void history_book_hand(Entry *e);

/* ---- history-commits.c ---- */
void history_judge_commits(HistoryChecker *h, const Entry *e);
void history_judge_progress(HistoryChecker *h, const Entry *e);

/* ---- history-ranks.c ---- */
void history_judge_ranks(HistoryChecker *h, const Entry *e);
void history_judge_rendezvous(HistoryChecker *h, const Entry *e);
/* The world whose record was written then; NULL: none that the books remember. */
const BookedWorld *history_find_world(const HistoryJob *job, int64_t revision);
/* I3, when a generation is told to go: ranks of older worlds are dead, or out of reach. */
void history_judge_go(HistoryChecker *h, const Entry *phase);

/* ---- history-others.c: incidents, alerts, cordons, and the end ---- */
void history_judge_incident(HistoryChecker *h, const Entry *e);
void history_judge_alert(HistoryChecker *h, const Entry *e);
void history_judge_cordon(HistoryChecker *h, const Entry *e);
void history_judge_end(HistoryChecker *h);
