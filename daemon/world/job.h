/* job.h - what etcd says of a job, and this node's part in its world.
 *
 * A Job collects worlds/<job>, phases/<job> and rendezvous/<job>/<generation> as the watches bring
 * them, in whatever order. A LocalWorld is this node's share of one world: its seats (slot and rank) and
 * what is reported of them. When the world moves the local world is over: its ranks are killed, their
 * exits reported, and it goes.
 *
 * The handlers only note what has changed; job_advance() then does whatever can be done, and may be
 * called at any time.
 *
 * Ownership: the Manager owns Jobs, a Job its Teams. A Rank borrows its LocalWorld until it is over.
 * Units:     *_usec in reports is CLOCK_REALTIME, elsewhere CLOCK_BOOTTIME microseconds.
 * Errors:    records that cannot be read are logged and skipped.
 * Threads:   loop thread only.
 * Invariant: I3 (a slot never runs two generations), I6 (a slot serves at most one rank).
 */
#pragma once

#include "cluster/records.h"
#include "daemon/world/commit.h"
#include "daemon/world/plan.h"
#include "daemon/world/progress.h"
#include "daemon/world/record-writer.h"

typedef struct Workload Workload;
typedef struct Rank Rank;
typedef struct LocalJob LocalJob;

typedef struct LocalRank {
    int slot;
    bool pending; /* waits for its slot to be clear */
    RankReport report;
} LocalRank;

struct LocalWorld {
    LocalJob *job;
    LocalWorld *next; /* in job->over */
    int64_t generation, world_revision;
    int world_size;
    ResumePoint resume;
    char submission[SUBMISSION_BYTES];
    char *spec;                       /* the job file; NULL until it is read */
    char sources[RECORD_SOURCES_MAX]; /* as the spec's record has it */
    EtcdCall *spec_call;
    Timer spec_retry;
    /* The world's secret: wiped when every rank here has it; empty: there is none, or it is not read. */
    char secret[SECRET_TEXT_BYTES];
    bool has_read_secret; /* there is one, or it is known that there is none */
    EtcdCall *secret_call;
    Timer secret_retry;
    LocalRank local_ranks[RECORD_SLOTS_MAX];
    size_t n_local_ranks;
    bool over;

    uint64_t killed_usec; /* the older ranks of the job on this node are dead */
    int64_t first_step;
    uint64_t first_step_usec;
    char address[128]; /* of rank 0's rendezvous store, when rank 0 is here */

    RecordWriter report, rendezvous;
    Progress progress;
    Commit commit;
};

struct LocalJob {
    Workload *workload;
    LocalJob *next;
    char name[RECORD_JOB_MAX + 1];
    int64_t world_revision;            /* of worlds/<name>; 0: there is none */
    char submission[SUBMISSION_BYTES]; /* of that world, and of the last one there was */
    bool has_phase;
    PhaseRecord phase;
    uint64_t
        ends_usec; /* succeeded: until then its ranks end by themselves (CLOCK_BOOTTIME); 0: no */
    int64_t rendezvous_generation, rendezvous_revision; /* 0: unknown */
    char rendezvous[128];
    uint64_t first_steps_usec; /* how long they took in a world of first_steps_size; 0: unknown */
    int first_steps_size;
    LocalWorld *local, *over; /* over: ended, not yet dead or not yet reported */
};

/* Finds or makes it. NULL: out of memory or too many (logged). */
LocalJob *job_get(Workload *w, const char *name);
LocalJob *job_find(Workload *w, const char *name);
/* Cancels everything; the ranks must be dead. */
LocalJob *job_free(LocalJob *job);

/* What the watches say; a NULL record means that the key is gone. */
void job_set_world(LocalJob *job, const WorldRecord *world, int64_t revision);
/* There is one that cannot be read: damaged, or of a later version. */
void job_lose_world(LocalJob *job, int64_t revision);
void job_set_phase(LocalJob *job, const PhaseRecord *phase);
void job_set_rendezvous(LocalJob *job, int64_t generation, int64_t revision,
                        const RendezvousRecord *record);
void job_advance(LocalJob *job);
/* What the first steps of a world of that size may be expected to take, from an earlier one; 0: unknown. */
uint64_t job_first_steps_usec(const LocalJob *job, int world_size);
/* Forgets a job of which etcd and this node know nothing any more. */
void job_forget_if_idle(LocalJob *job);

/* The revision of worlds/<job> that must hold for this local world to write. */
int64_t local_world_guard_revision(const LocalWorld *local);
/* A guard did not hold: the world has moved. Kills its ranks at once. */
void local_world_refused(LocalWorld *local, const char *key);
LocalRank *local_world_rank_of(LocalWorld *local, const Rank *rank);
/* The seat of rank 0, or NULL when rank 0 lives elsewhere. */
LocalRank *local_world_rank0(LocalWorld *local);
/* Whether some rank of it runs or waits for its slot. */
bool local_world_is_live(const LocalWorld *local);
void local_world_report(LocalWorld *local);
