/* SPDX-License-Identifier: Apache-2.0 */
/* job.h - what etcd's records say about a job, and this node's share of its world.
 *
 * Watches show records in any order: a phase may be known before its world, or the world of a deleted job together
 * with the phase of its successor. So the handlers only note what has changed. job_advance() then does whatever can
 * be done, and may be called at any time.
 *
 * A LocalJob collects worlds/<job>, phases/<job> and rendezvous/<job>/<generation>. A LocalWorld is this node's
 * share of one world: its local ranks (rank and slot) and the reports about them. When the world has moved, the
 * local world is over: its ranks are killed, their exits are reported, and it is freed.
 *
 * Ownership: the Workload owns its LocalJobs, a LocalJob its LocalWorlds. A Rank borrows its LocalWorld.
 * Units:     *_usec in reports is CLOCK_REALTIME, elsewhere CLOCK_BOOTTIME microseconds.
 * Errors:    records that cannot be read are logged and skipped.
 * Invariant: I3 (a slot never runs two generations), I6 (a slot serves at most one rank). The present local world of
 *            a job is not over, and was made from the revision that the job knows.
 */
#pragma once

#include "cluster/records.h"
#include "daemon/world/commit.h"
#include "daemon/world/evaluation.h"
#include "daemon/world/plan.h"
#include "daemon/world/progress.h"
#include "daemon/world/record-writer.h"

typedef struct Workload Workload;
typedef struct Rank Rank;
typedef struct LocalJob LocalJob;

typedef struct LocalRank {
    int slot;
    bool pending; /* the rank waits for its slot to be clear; its process was never started */
    RankReport report;
} LocalRank;

struct LocalWorld {
    LocalJob *job;
    LocalWorld *next; /* next in job->over */
    int64_t generation;
    int64_t world_revision; /* mod revision of worlds/<job> that this world was read at */
    int world_size;
    ResumePoint resume;
    char submission[SUBMISSION_BYTES];
    bool is_program;                  /* the ranks run a program that is not sdtrain's own */
    Hash program;                     /* is_program: hash of the job file in programs/<job> */
    char *spec;                       /* the job file; NULL until it is read */
    char sources[RECORD_SOURCES_MAX]; /* hashes of the data sets, from specs/<job> */
    EtcdCall *spec_call;
    Timer spec_retry;
    uint64_t program_lost_usec; /* when the program was first missed in etcd; 0: it never was */
    /* The world's secret; wiped when every rank here has it. Empty: the world has none, or it is not read yet. */
    char secret[SECRET_TEXT_BYTES];
    bool has_read_secret; /* `secret` was read, or the world has none */
    EtcdCall *secret_call;
    Timer secret_retry;
    LocalRank local_ranks[RECORD_SLOTS_MAX];
    size_t n_local_ranks;
    bool over; /* the world has moved: no rank is started, and only exits are reported */

    /* The time at which all ranks of older worlds on this node were dead. If this world is over, its own ranks were
     * dead by then, too. 0: not known yet, or this world is not over and this node had no older worlds. */
    uint64_t killed_usec;
    bool has_older;           /* this node had older worlds of the job when this world began */
    int64_t first_step;       /* the first step that this world has finished, if rank 0 is here */
    uint64_t first_step_usec; /* when first_step was finished; 0: never, or rank 0 is elsewhere */
    char address[128];        /* address of rank 0's rendezvous store, if rank 0 is here */

    RecordWriter report;     /* writes ranks/<job>/<generation>/<node> */
    RecordWriter rendezvous; /* writes rendezvous/<job>/<generation>, if rank 0 is here */
    Progress progress;
    Commit commit;
    Evaluation evaluation; /* of a program that evaluates a checkpoint */
};

struct LocalJob {
    Workload *workload;
    LocalJob *next;
    char name[RECORD_JOB_MAX + 1];
    int64_t world_revision;            /* mod revision of worlds/<name>; 0: there is no world */
    char submission[SUBMISSION_BYTES]; /* submission of the present world, or of the last world */
    bool has_phase;
    PhaseRecord phase; /* valid if has_phase */
    /* After the job has succeeded: until when its ranks may exit by themselves (CLOCK_BOOTTIME). 0: it has not
     * succeeded. */
    uint64_t ends_usec;
    int64_t rendezvous_generation; /* generation of `rendezvous`; 0: none is known */
    int64_t rendezvous_revision;   /* mod revision of the last put or deletion of a rendezvous */
    char rendezvous[128];
    /* How long the longest of the first steps took in a world of first_steps_size ranks; 0: unknown. */
    uint64_t first_steps_usec;
    int first_steps_size;
    LocalWorld *local; /* share of the present world; NULL: the world has no rank here */
    LocalWorld *over; /* list of local worlds that are over, but not yet dead or not yet reported */
};

/* Finds or makes the job. NULL: the name is too long, or 4096 jobs are known (logged). */
LocalJob *job_get(Workload *w, const char *name);
/* Returns the job, or NULL if nothing is known of it. */
LocalJob *job_find(Workload *w, const char *name);
/* Cancels everything and frees the job; its ranks must be dead. Accepts NULL, returns NULL. */
LocalJob *local_job_free(LocalJob *job);

/* Called when a watch shows a record of the job. NULL: the key was deleted. */
void job_set_world(LocalJob *job, const WorldRecord *world, int64_t revision);
/* Called when a world's record cannot be decoded: it is damaged, or of a later version. */
void job_lose_world(LocalJob *job, int64_t revision);
void job_set_phase(LocalJob *job, const PhaseRecord *phase);
void job_set_rendezvous(LocalJob *job, int64_t generation, int64_t revision,
                        const RendezvousRecord *record);
/* Does what can be done now: ends, starts, assigns and reports ranks. */
void job_advance(LocalJob *job);
/* Returns how long a first step of a world of that size may take, judged by an earlier world; 0: unknown. */
uint64_t job_first_steps_usec(const LocalJob *job, int world_size);
/* Frees the job if neither etcd nor this node knows anything of it any more. */
void job_forget_if_idle(LocalJob *job);

/* Returns the mod revision of worlds/<job> that guards the writes of this local world. */
int64_t local_world_guard_revision(const LocalWorld *local);
/* Called when a guard has failed because the world has moved: kills its ranks at once. */
void local_world_refused(LocalWorld *local, const char *key);
/* Returns the local rank in the slot of that rank; NULL: this world has none there. */
LocalRank *local_world_rank_of(LocalWorld *local, const Rank *rank);
/* Returns rank 0, or NULL if rank 0 is on another node. */
LocalRank *local_world_rank0(LocalWorld *local);
/* Returns whether any rank of this world is not reported as exited, or waits for its slot. */
bool local_world_is_live(const LocalWorld *local);
/* Writes the report of the ranks after a change. */
void local_world_report(LocalWorld *local);
