/* cluster.h - the decision core: records, time and outcomes go in, guarded decisions come out.
 *
 * cluster_step() is total and deterministic: no I/O, clock, allocation, log or global. It learns
 * the cluster from records alone, so a new leader that fed it the same records decides the same.
 * At most one decision comes out of a step, and at most one is under way per job; the shell carries
 * it out as one transaction under the decision's guards and feeds back what became of it.
 *
 * Ownership: the caller gives memory of cluster_bytes(); everything lives in it, addressed by
 * index. Events borrow their records for the call. Actions borrow from the Cluster (the runs of a
 *            new world) until the next step.
 * Units:     now_usec is CLOCK_BOOTTIME of this machine and drives every deadline; real_usec is
 *            CLOCK_REALTIME and goes into records only.
 * Errors:    none. A record that does not fit the limits is left out and counted (cluster_dropped),
 *            and asked for again once there is room;
 *            asserts are for bugs of the core and its shell.
 * Threads:   one at a time.
 * Source:    docs/internals/core.md, docs/internals/etcd.md, "Records".
 */
#pragma once

#include "base/macro.h"
#include "cluster/admission.h"
#include "cluster/records.h"

typedef struct ClusterLimits {
    int nodes, jobs;
    int reports;   /* ranks/<job>/<generation>/<node> records; 4 a node do */
    int incidents; /* records held, and as many alerts; more than incidents_kept */
    int requests;
} ClusterLimits;

typedef struct ClusterConfig {
    uint64_t ttl_usec;   /* of the nodes' leases; everything about absence derives from it */
    uint64_t grace_usec; /* a vanished key may come back this long */
    uint64_t start_deadline_usec; /* from a world's record to all of its ranks being ready */
    uint64_t leave_deadline_usec; /* from asking a world to leave to its having left */
    uint64_t hang_wait_usec; /* for the reports of the other ranks, to find the smallest step */
    int max_strikes;         /* trainers that died alone on a node before it is quarantined */
    uint64_t strike_window_usec;
    uint64_t quarantine_usec; /* for strikes; a device fault waits for somebody to uncordon */
    int incidents_kept;
    uint64_t
        queue_patience_usec; /* a job that has waited so long goes before all growth and later jobs */
    uint64_t
        escalate_usec; /* an incident open this long is critical, whatever its cause; 0: never */
    char admit[ADMISSION_MAX + 1]; /* which nodes get ranks: cluster/admission.h; empty: all */
} ClusterConfig;

extern const ClusterConfig cluster_config_default;

/* What the core needs of a job file; the shell parses it. */
typedef struct JobFacts {
    int64_t n_grains; /* G: a world is never larger */
    int64_t steps;
    int max_failures; /* K of I7 */
    uint64_t grow_interval_usec;
    uint64_t
        store_patience_usec; /* so long generations lost to the store do not count as failures */
    int64_t arrival;         /* create revision of specs/<job>: the order of the queue */
    int min, max;            /* ranks, as the job file has them */
    char submission[SUBMISSION_BYTES];
    int priority;                        /* as the job file has it */
    char resume_uri[RECORD_URI_MAX + 1]; /* checkpoint to adopt; empty: none */
    char refused[RECORD_TEXT_MAX + 1];   /* why the job file is bad; empty: it is good */
} JobFacts;

typedef enum EventKind {
    EVENT_TICK,    /* time alone */
    EVENT_LEADING, /* term */
    EVENT_DEPOSED,
    EVENT_OUTCOME, /* of decision id */
    /* a record: its pointer is NULL when the key is gone */
    EVENT_NODE,
    EVENT_CORDON,
    EVENT_SPEC,
    EVENT_DESIRED,
    EVENT_WORLD,
    EVENT_PHASE,
    EVENT_RANKS,      /* name is the job, generation and node say the rest */
    EVENT_RENDEZVOUS, /* likewise; no content */
    EVENT_CHECKPOINTS,
    EVENT_PROGRESS,
    EVENT_INCIDENT,
    EVENT_ALERT, /* name is the incident's id */
    EVENT_REQUEST,
    EVENT_KINDS,
} EventKind;

/* Of a key that is there. */
typedef enum RecordHealth {
    RECORD_READABLE,
    RECORD_DAMAGED, /* it does not decode: record is NULL */
    RECORD_FOREIGN, /* of a version that this program does not read: likewise, and never overwritten */
} RecordHealth;

typedef enum Outcome {
    OUTCOME_DONE,    /* revision is what it wrote */
    OUTCOME_REFUSED, /* a guard did not hold; the guarded records have been read and fed again */
    OUTCOME_UNKNOWN, /* neither done nor not done; likewise */
} Outcome;

enum { CLUSTER_NAME_BYTES = 96 };

typedef struct Event {
    EventKind kind;
    uint64_t now_usec, real_usec;
    bool more; /* another event of the same moment follows; decide nothing yet */
    RecordHealth health;
    bool stalled; /* the shell came late: a node that seems absent may have come back unseen */

    int64_t term;                  /* LEADING */
    int64_t id;                    /* OUTCOME */
    Outcome outcome;               /* OUTCOME */
    int64_t created;               /* create revision of the record */
    int64_t revision;              /* mod revision of the record or of its removal; OUTCOME_DONE */
    char name[CLUSTER_NAME_BYTES]; /* node, job, incident or request */
    char node[NODE_NAME_MAX + 1];  /* RANKS */
    int64_t generation;            /* RANKS, RENDEZVOUS */
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

/* One transaction: it compares the leader's term and every revision below that is not
 * REVISION_ANY (0: the key must not exist), then puts and removes what is set. */
enum { REVISION_ANY = -1 };

typedef struct Decision {
    int64_t id; /* 0: nothing to do */
    int64_t term;
    char job[RECORD_JOB_MAX + 1]; /* empty: about the cluster */
    int64_t world_revision, phase_revision, checkpoints_revision, desired_revision;

    bool put_world, put_phase, put_checkpoints, put_incident;
    bool put_desired, put_spec; /* the spec as the shell last read it */
    WorldRecord world;
    PhaseRecord phase;
    CheckpointsRecord checkpoints;
    DesiredRecord desired;
    int64_t spec_revision; /* compared when put_spec */
    IncidentRecord incident;
    int64_t incident_revision;

    int n_cordons;
    CordonRecord cordons[DECISION_CORDONS_MAX]; /* without causes: removed */
    int64_t cordon_revisions[DECISION_CORDONS_MAX];
    int cordon_changed[DECISION_CORDONS_MAX]; /* which cause it is about; -1: one that has ended */

    int64_t remove_generation;                     /* ranks and rendezvous of it; 0: none */
    bool remove_job;                               /* every record of it */
    char remove_incident[RECORD_INCIDENT_MAX + 1]; /* and its alert */
    bool put_request, remove_request;
    RequestRecord request;
    int64_t request_revision;
} Decision;

typedef struct Actions {
    Decision decision;
    bool read;          /* read everything and feed it: what did not fit may fit now */
    bool again;         /* call again with a TICK: there may be more to decide */
    uint64_t wake_usec; /* call again then at the latest; USEC_INFINITY: no need */
} Actions;

typedef struct Cluster Cluster;

size_t cluster_bytes(const ClusterLimits *limits);
/* memory: cluster_bytes() bytes, aligned as malloc does. */
Cluster *cluster_init(void *memory, const ClusterLimits *limits, const ClusterConfig *config);
/* Other settings from the next step on. The limits stay: incidents_kept is cut to fit them. */
void cluster_configure(Cluster *c, const ClusterConfig *config);
void cluster_step(Cluster *c, const Event *ev, Actions *ret);

/* Records that did not fit the limits since the start. */
int64_t cluster_dropped(const Cluster *c);
/* Nodes vanish in numbers: absence is not acted upon until this boottime; 0: no hold. */
uint64_t cluster_hold_until(const Cluster *c);

/* Checks the chains of reports and I2, I3, I5, I6 and I7 over the whole state with asserts; for tests and the
 * simulator. */
void cluster_check(const Cluster *c);
