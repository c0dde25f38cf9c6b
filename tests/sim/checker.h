/* SPDX-License-Identifier: Apache-2.0 */
/* checker.h - the invariants (docs/internals/architecture.md), checked from outside the code.
 *
 * The checkers see everything: each transaction before it is applied, each process, each
 * step. They keep their own books and ask the code for nothing.
 *
 * Ownership: part of the Universe.
 * Units:     steps, generations, revisions.
 * Errors:    sim_fail() with the invariant's number.
 * Threads:   one.
 */
#pragma once

#include "tests/history/rules.h"
#include "tests/sim/etcd.h"
#include "tests/sim/trainer.h"

enum { BOOKED_MAX = 64, SUBMISSIONS_MAX = 32 };

typedef struct Booked { /* a checkpoint that was committed, whatever became of the record */
    int manifest;
    bool struck; /* the leader has struck it out, or it did not verify when it was looked for */
} Booked;

typedef struct JobBooks {
    Booked booked[BOOKED_MAX]; /* oldest first */
    int n_booked;
    DesiredRecord word; /* a person's newest, and when */
    int64_t word_revision;
    uint64_t pending_usec;  /* since when its phase says that it waits; 0: it does not */
    int64_t born;           /* create revision of its spec: a job that was deleted is another one */
    int64_t generation;     /* of its newest world */
    int64_t world_revision; /* likewise */
    JobPhase phase;         /* as a leader last wrote it */
    bool broken_world, broken_phase; /* somebody has been at the record since a leader wrote it */
    int64_t visible_step, visible_before; /* that etcd has shown, ever and at the last failure */
    int failures; /* worlds in a row that failed without having shown more */
    int lost;     /* the same, of those that failed for the store alone */
    int64_t trained_revision, trained_generation, trained_step; /* of the newest world */
    uint64_t trained_usec;
    uint64_t committed_usec, failing_usec; /* the last commit; the first save that failed since */
    uint64_t trouble_usec; /* failing_usec when the incident was opened that says so */
    char submission[SUBMISSION_BYTES];
} JobBooks;

typedef struct Gone { /* jobs that a leader has removed */
    char submission[SUBMISSION_BYTES];
} Gone;

typedef struct Checker {
    Gone gone[SUBMISSIONS_MAX];
    uint64_t n_gone;
    JobBooks jobs[4];
    uint64_t n_worlds, n_commits, n_incidents, n_terms;
    uint64_t n_failures; /* incidents that ended a world */
    uint64_t n_leaves;   /* worlds that were asked to leave */
    int64_t last_term;
} Checker;

void checker_before(Universe *u, const Txn *txn);
/* Fails by a rule that a real etcd's history has to keep, too (tests/history/rules.h). */
void checker_breach(Universe *u, const Breach *breach);
/* after NULL: the record is removed. checker-cordons.c */
void checker_cordon(Universe *u, const Txn *txn, const char *name, const CordonRecord *after);
void checker_cordon_fed(struct ModelController *c, const char *name, const ModelValue *value,
                        int64_t revision);
/* What that leader must hold on to: of a record that is damaged what it has been told before. */
const CordonRecord *checker_cordon_known(Universe *u, const struct ModelController *leader,
                                         const char *name);
void checker_save_fails(Universe *u, int job);

/* ---- checker-commits.c: what was committed ---- */
void checker_commit(Universe *u, int job, const CheckpointsRecord *record);
/* A leader's: it strikes out, or puts back. */
void checker_rewrite(Universe *u, const struct ModelController *leader, int job,
                     const CheckpointsRecord *record);
void checker_resumes(Universe *u, const Ring *ring);
void checker_manifest_goes(Universe *u, int manifest, int latest);
void checker_success(Universe *u, int job);

/* ---- checker-lost.c: records that vanish, and whose a folder is ---- */
void checker_fed(struct ModelController *c, int key, const ModelValue *value, int64_t revision);
void checker_spec(Universe *u, const Txn *txn, int job, const JobFacts *facts);
void checker_word(Universe *u, const Txn *txn, int job, const DesiredRecord *desired);
void checker_phase_is_newest(Universe *u, const struct ModelController *leader, int job,
                             const PhaseRecord *phase);
void checker_follows_word(Universe *u, const struct ModelController *leader, int job,
                          const WorldRecord *world);
void checker_job_goes(Universe *u, int job);
/* That holds slots though its record was lost, as the leader has been told; NULL: there is none. */
const WorldRecord *checker_lost_world(Universe *u, const struct ModelController *leader, int job);
void checker_owner(Universe *u, int job, const PhaseRecord *phase, const WorldRecord *world);
/* A world of a job that waited: queue.c. */
void checker_queue(Universe *u, const Txn *txn, int job, const PhaseRecord *phase);
/* What a phase says moves ranks of that team. */
void checker_phase_acts(Universe *u, const Team *team, const PhaseRecord *phase);
void checker_process_starts(Universe *u, const Process *p);
void checker_ring_begins(Universe *u, const Ring *ring);
void checker_step(Universe *u, const Ring *ring);
/* Tells whether an incident says that the job's store fails. */
bool checker_knows_trouble(Universe *u, int job);
/* Checks the end of the schedule, when all is healed. */
void checker_end(Universe *u);
