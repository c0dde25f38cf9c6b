/* SPDX-License-Identifier: Apache-2.0 */
/* cluster.h - the decision core: records, time and outcomes go in, guarded decisions come out.
 *
 * cluster_step() is total and deterministic: no I/O, clock, allocation, log or global. It learns the cluster only
 * from records, so a new leader that fed it the same records decides the same. At most one decision comes out of a
 * step, and at most one is under way per job; the shell executes the decision as one transaction under the decision's
 * guards, and feeds the outcome back.
 *
 * Ownership: the caller gives memory of cluster_bytes(); everything lives in it, addressed by index. Events borrow
 *            their records for the call. Actions borrow from the Cluster (the runs of a new world) until the next
 *            step.
 * Units:     now_usec is CLOCK_BOOTTIME of this machine and drives every deadline; real_usec is
 *            CLOCK_REALTIME and goes into records only.
 * Errors:    none. A record that does not fit the limits is left out and counted (cluster_dropped), and read again
 *            once there is room. Asserts are for bugs of the core and its shell.
 * Threads:   one at a time.
 * Source:    docs/internals/core.md, docs/internals/etcd.md, "Records".
 */
#pragma once

#include "base/macro.h"
#include "cluster/admission.h"
#include "cluster/cost.h"
#include "cluster/records.h"

typedef struct ClusterLimits {
    int nodes, jobs;
    int reports;   /* ranks/<job>/<generation>/<node> records; four per node are enough */
    int incidents; /* incident records, and as many alert records; more than incidents_kept */
    int requests;
} ClusterLimits;

typedef struct ClusterConfig {
    uint64_t ttl_usec;   /* TTL of the nodes' leases; all waits for absent nodes derive from it */
    uint64_t grace_usec; /* a key that vanishes for less than this does not count as lost */
    uint64_t start_deadline_usec; /* longest time from a world's record until all ranks are ready */
    uint64_t leave_deadline_usec; /* longest time that a world may take to leave, once asked to */
    uint64_t hang_wait_usec;      /* after a hang, how long the other ranks' reports are awaited */
    int max_strikes;              /* this many strikes within the window quarantine a node */
    uint64_t strike_window_usec;  /* strikes older than this are forgotten */
    /* length of a quarantine for strikes; a quarantine for a device fault has no end */
    uint64_t quarantine_usec;
    int incidents_kept; /* number of incident records in etcd, open and resolved */
    /* A job that has waited this long gets slots before later jobs start or grow. */
    uint64_t queue_patience_usec;
    uint64_t escalate_usec; /* an incident open this long becomes critical; 0: never */
    /* which nodes get ranks, as in cluster/admission.h; empty: all */
    char admit[ADMISSION_MAX + 1];
    char prices[PRICES_MAX +
                1]; /* prices of slots by class of node, as in cluster/cost.h; empty: none */
} ClusterConfig;

extern const ClusterConfig cluster_config_default;

/* The part of a job file that the core needs; the shell parses the file. */
typedef struct JobFacts {
    int64_t n_grains; /* G, the number of grains: no world has more ranks */
    int64_t steps;    /* the job succeeds after this many steps; 0: unknown */
    int max_failures; /* K of invariant I7: generations without progress until the job fails */
    uint64_t grow_interval_usec;
    /* During an outage of the store that is shorter than this, lost generations do not count as failures. */
    uint64_t store_patience_usec;
    int64_t arrival;               /* create revision of specs/<job>: the order of the queue */
    int min, max;                  /* bounds of the number of ranks, as in the job file */
    bool stop_if_diverging;        /* the job fails when training diverges */
    int64_t keep_last, keep_every; /* which checkpoints are kept, as in the job file */
    bool needs_gpu;                /* each rank needs a slot that has a GPU */
    bool is_program; /* kind "exec": the ranks run a program that is not sdtrain's own */
    Hash program;    /* is_program: hash of the job file in programs/<job> */
    int per_node;    /* each node of a world has so many ranks; 0: any number */
    /* Kind "eval": the ranks run a program, or sdtrainer's own evaluation (not is_program), once for each checkpoint of
     * the job of_job: for one of each every_steps steps, or for the newest (0). */
    bool is_eval;
    int64_t every_steps;
    char of_job[RECORD_JOB_MAX + 1];
    /* A world that has run for this time has made progress, if its program reports no steps; 0: steps alone count. */
    uint64_t progress_usec;
    char submission[SUBMISSION_BYTES];   /* distinguishes two jobs that have had the same name */
    int priority;                        /* as in the job file */
    char resume_uri[RECORD_URI_MAX + 1]; /* checkpoint to adopt; empty: none */
    char refused[RECORD_TEXT_MAX + 1];   /* why the job file is bad; empty: it is good */
} JobFacts;

typedef enum EventKind {
    EVENT_TICK,    /* time has passed, nothing else */
    EVENT_LEADING, /* this controller leads from now on, in the term Event.term */
    EVENT_DEPOSED, /* this controller no longer leads */
    EVENT_OUTCOME, /* the transaction of decision Event.id has ended */
    /* A record was read: Event.record is NULL if the key does not exist. */
    EVENT_NODE,
    EVENT_CORDON,
    EVENT_SPEC,
    EVENT_DESIRED,
    EVENT_WORLD,
    EVENT_PHASE,
    EVENT_RANKS,      /* Event.name is the job; Event.generation and Event.node are set, too */
    EVENT_RENDEZVOUS, /* Event.name is the job; Event.generation is set, the content is not read */
    EVENT_CHECKPOINTS,
    EVENT_PROGRESS,
    EVENT_INCIDENT,
    EVENT_ALERT, /* Event.name is the incident's id */
    EVENT_REQUEST,
    EVENT_KINDS,
} EventKind;

/* Whether the record of a key that exists could be read. */
typedef enum RecordHealth {
    RECORD_READABLE,
    RECORD_DAMAGED, /* the record does not decode; Event.record is NULL */
    /* A later version wrote the record, which is never overwritten; Event.record is NULL. */
    RECORD_FOREIGN,
} RecordHealth;

typedef enum Outcome {
    OUTCOME_DONE,    /* the transaction was done, at revision Event.revision */
    OUTCOME_REFUSED, /* a guard did not hold; the guarded records have been read and fed again */
    OUTCOME_UNKNOWN, /* the answer was lost; the guarded records have been read and fed again */
} Outcome;

enum { CLUSTER_NAME_BYTES = 96 };

typedef struct Event {
    EventKind kind;
    uint64_t now_usec, real_usec;
    bool more; /* another event of the same moment follows; nothing is decided yet */
    RecordHealth health;
    bool stalled; /* the shell was late: a node that seems absent may have returned unseen */

    int64_t term; /* for EVENT_LEADING: the term in which this controller leads */
    /* for EVENT_OUTCOME: Decision.id of the decision whose transaction has ended */
    int64_t id;
    Outcome outcome; /* for EVENT_OUTCOME: how the transaction has ended */
    int64_t created; /* create revision of the record */
    int64_t lease;   /* for EVENT_NODE and EVENT_RANKS: the lease of the key; 0: none or unknown */
    /* revision at which the record was written or removed, or the decision was done */
    int64_t revision;
    char name[CLUSTER_NAME_BYTES]; /* name of the node, job, incident or request */
    char node[NODE_NAME_MAX + 1];  /* for EVENT_RANKS: the node whose ranks are reported */
    int64_t generation; /* for EVENT_RANKS and EVENT_RENDEZVOUS: the generation in the key */
    union {
        const void *record;
        const NodeRecord *node_record;
        const CordonRecord *cordon;
        const JobFacts *spec;
        const DesiredRecord *desired;
        const WorldRecord *world;
        const PhaseRecord *phase;
        const RanksRecord *ranks;
        const CheckpointsRecord *checkpoints;
        const ProgressRecord *progress;
        const IncidentRecord *incident;
        const AlertRecord *alert;
        const RequestRecord *request;
    };
} Event;

enum { DECISION_CORDONS_MAX = 8 };

/* A decision is one transaction: it compares the leader's term and every revision below that is not REVISION_ANY (0:
 * the key must not exist), then puts and removes the records that are set. */
enum { REVISION_ANY = -1 };

typedef struct Decision {
    int64_t id; /* 0: there is nothing to do */
    int64_t term;
    char job[RECORD_JOB_MAX + 1]; /* the job that the decision is about; empty: no single job */
    int64_t world_revision, phase_revision, checkpoints_revision, desired_revision;
    /* With a world that begins to evaluate a checkpoint: the job whose checkpoint it is, and the guard of
     * checkpoints/<followed>. A node that commits later knows of the evaluation. Empty: no such world. */
    char followed[RECORD_JOB_MAX + 1];
    int64_t followed_revision;

    bool put_world, put_phase, put_checkpoints, put_incident;
    bool put_desired;
    bool put_spec; /* the shell puts the spec's text as it last read it */
    WorldRecord world;
    PhaseRecord phase;
    CheckpointsRecord checkpoints;
    DesiredRecord desired;
    int64_t spec_revision; /* the spec's guard, which is compared if put_spec is true */
    IncidentRecord incident;
    int64_t incident_revision;

    int64_t remove_generation; /* generation whose ranks/ and rendezvous/ are removed; 0: none */
    /* With put_phase: step of the evaluation whose record is removed; 0: none. remove_evals: all of them are. */
    int64_t remove_eval;
    bool remove_evals;
    bool remove_job; /* every record of the job is removed */
    char remove_incident[RECORD_INCIDENT_MAX +
                         1]; /* id of an incident to remove with its alert; empty: none */
    bool put_request, remove_request;
    RequestRecord request;
    int64_t request_revision;

    int n_cordons;
    /* Index of the cause that is new or changed; -1: a cause has ended. */
    int cordon_changed[DECISION_CORDONS_MAX];
    int64_t cordon_revisions[DECISION_CORDONS_MAX];
    /* A cordon without causes is removed. This field is the last because it is large: elements beyond n_cordons are
     * not written. */
    CordonRecord cordons[DECISION_CORDONS_MAX];
} Decision;

typedef struct Actions {
    /* the shell reads every record again and feeds it: a record that did not fit may fit now */
    bool read;
    bool again; /* there may be more to decide: the shell calls again with EVENT_TICK */
    /* The latest time at which the shell calls again; USEC_INFINITY: only an event causes the next call. */
    uint64_t wake_usec;
    Decision decision; /* if decision.id is 0, no other field of the decision is set */
} Actions;

typedef struct Cluster Cluster;

size_t cluster_bytes(const ClusterLimits *limits);
/* memory has cluster_bytes() bytes, aligned as malloc() aligns them. */
Cluster *cluster_init(void *memory, const ClusterLimits *limits, const ClusterConfig *config);
/* Applies other settings from the next step on. The limits stay: incidents_kept is cut to fit them. */
void cluster_configure(Cluster *c, const ClusterConfig *config);
/* Processes one event. Makes at most one decision, and none if ev->more is set. */
void cluster_step(Cluster *c, const Event *ev, Actions *ret);

/* Returns how many records did not fit the limits since the start. */
int64_t cluster_dropped(const Cluster *c);
/* Returns the time (CLOCK_BOOTTIME) until which absent nodes cause no decision, because many vanished at once; 0:
 * there is no hold. */
uint64_t cluster_hold_until(const Cluster *c);

/* For tests and the simulator, because it is slow: asserts that the chains of reports, the lists and the invariants I3,
 * I6 and I7 hold in the whole state. */
void cluster_check(const Cluster *c);
