/* SPDX-License-Identifier: Apache-2.0 */
/* state.h - the core's state; private to controller/core.
 *
 * The core is built in floors; a file includes only headers of its own floor or of lower floors:
 *
 *   state < facts (questions about records) < observe (applies events) < judge (failures, plans, the queue)
 *   < write (parts of a decision) < decide (which decision it is) < step (cluster_step(), checks, the survey)
 *
 * Only observe/, step/ and a few notes of decide/ change the state: facts and judgements take a const Cluster, and
 * write only to the Scratch that they are given.
 *
 * Errors: none. Threads: one at a time.
 * Ownership: all arrays follow the Cluster in the caller's memory.
 * Units:     as cluster.h. *_usec without "real" in the name are boottime.
 */
#pragma once

#include "cluster/cordon.h"
#include "cluster/resume.h"
#include "controller/core/cluster.h"

/* When a key last changed. Events older than `seen` are late copies and are ignored. */
typedef struct Stamp {
    int64_t mod;  /* revision that a guard compares; 0: the key does not exist */
    int64_t seen; /* revision of the last event */
} Stamp;

/* Why a record that should exist is missing or does not count. Its last content is kept in memory. */
typedef enum Lost { LOST_NOT, LOST_GONE, LOST_DAMAGED, LOST_OLDER, LOST_FOREIGN } Lost;

typedef struct CoreNode {
    bool used, present;
    bool admitted;     /* the list admits the node, or its record was not seen yet */
    NodeRecord record; /* the last record, also after it vanished; record.name is always set */
    Stamp stamp;
    int64_t lease;          /* the lease of the record; 0: none or unknown */
    uint64_t doubt_usec;    /* since when another record is kept aside (strangers.c); 0: none is */
    bool doubt_has_reports; /* at doubt_usec there were reports under `lease`, too */
    uint64_t doubt_over_usec; /* when `lease` was seen to have ended; 0: the lease may live */
    uint64_t changed_usec;    /* when the node appeared or vanished */
    uint64_t vanished_real_usec;
    /* The node is absent and has not left, although it was present before or a world has ranks on it. */
    bool missed;
    char ran[RECORD_JOB_MAX + 32]; /* ranks on the node when it vanished: "2 ranks of job a" */
    uint64_t left_incarnation;     /* the last incarnation that reported that it leaves */
    int64_t drain_revision; /* revision at which the verdict became drain; 0: it is not drain */
    Stamp cordon_stamp;     /* stamp of cordons/<node>; mod 0: node_cordons() has no causes */
    bool cordon_foreign;    /* a later version wrote cordons/<node>: it is never overwritten */
    int64_t price;    /* a slot's price in micro-dollars per hour, by this controller's list */
    int first_report; /* the first report about the node's ranks, chained by next_of_node; -1: none */
} CoreNode;

/* A record under a node's name that the core does not believe, or does not believe yet. There is one per node, in a
 * table of its own. */
typedef struct DoubtedRecord {
    NodeRecord record;
    int64_t lease, revision;
} DoubtedRecord;

/* A node's cordon record. There is one per node, in a table of its own: most nodes have no cordon, and a table that is
 * not touched costs no memory. */
typedef struct NodeCordons {
    CordonRecord record;
    int64_t revisions[RECORD_CAUSES_MAX];  /* revision at which each cause got its mode and time */
    uint64_t told_usec[RECORD_CAUSES_MAX]; /* when this controller learnt the end of each cause */
} NodeCordons;

/* One rank of a report. Small: there is room for 64 on each node. */
typedef struct CoreRank {
    int64_t step;
    uint64_t at_usec; /* when the rank's state last changed (CLOCK_REALTIME) */
    int rank;
    int unreachable_rank;       /* the rank that this rank could not join with; -1: none */
    int16_t exit_code;          /* -128 to 255 */
    uint8_t slot, stage, state; /* stage is a TrainStage, state a RankState */
    bool hung, killed, stuck;
} CoreRank;

/* A report, from the record ranks/<job>/<generation>/<node>. */
typedef struct NodeRanks {
    bool used;
    bool gone;          /* the report's key vanished; the processes may still run */
    uint64_t gone_usec; /* when the report's key vanished */
    int job, node;      /* indices of the job and the node */
    int next_of_node;   /* next report of the node, or next free report; -1: none */
    int64_t generation, world_revision;
    int64_t lease; /* the lease of the report's key; 0: none or unknown */
    uint64_t incarnation;
    Stamp stamp;
    uint64_t killed_usec, first_step_usec; /* CLOCK_REALTIME */
    /* When the last rank started, and when the last rank was ready (CLOCK_REALTIME). */
    uint64_t started_usec, ready_usec;
    int64_t first_step;
    bool left, finished;
    int n_ranks;
    CoreRank ranks[RECORD_SLOTS_MAX];
    int worst; /* the rank whose last output is in text; -1: none */
    char text[RECORD_TEXT_MAX + 1];
} NodeRanks;

/* A job's ranks on one node, in its present world. */
typedef struct Run {
    int node;
    int report; /* index of the node's report of the job's present world; -1: there is none yet */
    uint64_t incarnation, slots;
    int first_rank;
} Run;

typedef struct CoreJob {
    bool used;
    char name[RECORD_JOB_MAX + 1];
    Stamp spec_stamp, desired_stamp, world_stamp, phase_stamp, checkpoints_stamp, progress_stamp;
    JobFacts facts;
    DesiredRecord desired;
    WorldRecord world; /* .runs is unused: see job_runs() */
    PhaseRecord phase; /* without a record all zero: pending, generation 0 */
    CheckpointsRecord checkpoints;
    ProgressRecord progress;
    /* Revisions at which progress/<job> first reported the present trouble with the store, and the present
     * divergence; 0: none. */
    int64_t trouble_revision, diverging_revision;
    /* revision of the user's last request in desired/<job>; a put-back does not count */
    int64_t word;
    int64_t reported_generation; /* the highest generation of which nodes wrote reports */
    int64_t ran_generation; /* after a restore of etcd: the highest generation that nodes report */
    CommitMark ran_mark;    /* after a restore of etcd: the newest commit that nodes report */
    Lost spec_lost, desired_lost, world_lost, phase_lost, checkpoints_lost;
    /* since when a record is missing that this controller never saw; 0: none is */
    uint64_t lost_usec;
    int n_runs;
    /* When the record of the world, and when the record of the phase, was last read. */
    uint64_t world_usec, phase_usec;
    uint64_t failing_usec; /* when the first sign of a failure was seen; 0: the world is well */
    uint64_t failing_real_usec; /* failing_usec as CLOCK_REALTIME */
    uint64_t left_usec;         /* when rank 0 was seen to have left; 0: it has not */
    uint64_t grown_usec;        /* when phase.grown_usec was last read */
    uint64_t pending_usec; /* when PHASE_PENDING was first read; 0: the job is in another phase */
    /* the lowest generation that has records of its own; 0: none is known */
    int64_t oldest_generation;
    int64_t in_flight;        /* id of the decision under way; 0: none */
    int64_t awaited_revision; /* revision of the last write, until the watch has shown it */
    /* The decision under way creates a world: other jobs make no plans until that world is seen. */
    bool in_flight_places_world;
    /* Generation whose records the decision under way deletes; 0: none. */
    int64_t in_flight_removes;
} CoreJob;

typedef struct Incident {
    bool used;
    IncidentRecord record;
    Stamp stamp;
} Incident;

/* The part of alerts/<id> that the core needs. */
typedef struct Alert {
    bool used, settled;
    char id[RECORD_INCIDENT_MAX + 1];
    uint64_t incident_usec;
    Stamp stamp;
} Alert;

typedef struct Request {
    bool used;
    RequestRecord record;
    Stamp stamp;
    /* when this controller first saw the request; clients' clocks are not trusted */
    uint64_t seen_usec;
} Request;

/* The working memory of one step. Functions that search or plan write only here. The next step reads nothing of it;
 * an action borrows plan_runs until the next step. */
typedef struct Scratch {
    uint64_t wake_usec; /* the earliest time that the core waits for; USEC_INFINITY: none */
    /* by node: this decision places no rank on the node; NULL: no node is left out */
    bool *left_out;
    /* by node: the node has ranks of the last world of the job whose next world is planned */
    bool *ran_before;
    uint64_t *free_slots; /* by node: the free slots of the last plan */
    int *plan_nodes;      /* indices of nodes in order of preference, of the last plan */
    WorldRun *plan_runs;  /* the runs of the last plan, sorted by node name */
} Scratch;

/* The tables that may be too small for all records. */
typedef enum Table {
    TABLE_NODES,
    TABLE_JOBS,
    TABLE_REPORTS,
    TABLE_INCIDENTS,
    TABLE_ALERTS,
    TABLE_REQUESTS,
    TABLES,
} Table;

struct Cluster {
    ClusterLimits limits;
    ClusterConfig config;
    uint64_t now_usec, real_usec;
    int64_t seen_revision;
    int64_t term; /* the term in which this controller leads; 0: it does not lead */
    /* time of the first event; the core does not know nodes that were lost earlier */
    uint64_t began_usec;
    uint64_t observe_until_usec; /* a new leader does not act on absence before this time */
    uint64_t hold_usec;          /* when the last hold began */
    uint64_t hold_until_usec;    /* when the hold ends: until then absence causes no decision */
    int hold_nodes;              /* the number of nodes when the hold began */
    bool hold_is_told;           /* an incident that reports a hold was read */
    bool hold_is_taken; /* the hold was read from an incident, without the names of nodes */
    int unnamed_lost; /* nodes that the incident nodes-lost counts but this controller never saw */
    bool knows_summary; /* this leader has read the open incident nodes-lost */
    /* when a node that is not admitted was last present; 0: the list is new */
    uint64_t uninvited_usec;
    uint64_t uninvited_told_usec; /* when the incident not-admitted was last written */
    bool probes_suspected;        /* too many nodes report themselves unhealthy at once */
    int64_t last_id;              /* id of the last decision */
    /* id of the decision under way that is about no single job; 0: none */
    int64_t cluster_in_flight;
    /* Revision of the last write that was about no single job, until the watch has shown it. */
    int64_t cluster_awaited;
    int64_t dropped; /* records that did not fit */
    unsigned missed; /* a bit per Table: set if records of the table did not fit */
    /* a bit per Table in `missed`: set if the table has got a new entry since it dropped a record */
    unsigned taken;
    const CoreNode *nodes;
    const NodeCordons *cordons;   /* one per node */
    const DoubtedRecord *doubted; /* one per node; valid if the node's doubt_usec is not 0 */
    int n_doubted;                /* number of nodes whose doubt_usec is not 0 */
    uint64_t stranger_told_usec;  /* when an incident node-contested was last written */
    int *cordoned; /* indices of the nodes that have a cordon record, in rising order */
    int n_cordoned;
    int *by_name; /* indices of used nodes, in name order */
    int n_by_name;
    int last_node; /* where node_intern() last found a free place */
    int n_gone;    /* number of reports that are `gone` */
    const CoreJob *jobs;
    int *by_arrival; /* indices of used jobs, in the order of the queue */
    int n_by_arrival;
    const Run *runs; /* limits.nodes runs for each job: see job_runs() */
    const NodeRanks *reports;
    int n_reports;         /* entries from this index on were never used */
    int first_free_report; /* a free entry below n_reports, chained by next_of_node; -1: none */
    const Incident *incidents;
    const Alert *alerts;
    const Request *requests;
    /* Only cluster_step() uses this field: it passes the Scratch on as an argument. */
    Scratch scratch;
};

/* Counts the bits without the built-in function, which calls libgcc if the processor lacks the instruction. */
static inline int slots_count(uint64_t slots)
{
    slots -= slots >> 1 & UINT64_C(0x5555555555555555);
    slots = (slots & UINT64_C(0x3333333333333333)) + (slots >> 2 & UINT64_C(0x3333333333333333));
    slots = (slots + (slots >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (int)(slots * UINT64_C(0x0101010101010101) >> 56);
}

/* True when the time has come; otherwise the shell wakes the core at that time or before. Every wait of the core
 * goes through this function. */
bool cluster_due(const Cluster *c, Scratch *s, uint64_t at_usec);
const Run *job_runs(const Cluster *c, const CoreJob *job);
int job_index(const Cluster *c, const CoreJob *job);

/* These functions return entries of the tables to write to: they do not accept a const Cluster. */
static inline CoreNode *node_at(Cluster *c, int i)
{
    assert(i >= 0 && i < c->limits.nodes);
    return (CoreNode *)&c->nodes[i];
}

static inline NodeCordons *cordons_at(Cluster *c, int node)
{
    assert(node >= 0 && node < c->limits.nodes);
    return (NodeCordons *)&c->cordons[node];
}

static inline DoubtedRecord *doubted_at(Cluster *c, int node)
{
    assert(node >= 0 && node < c->limits.nodes);
    return (DoubtedRecord *)&c->doubted[node];
}

static inline CoreJob *job_at(Cluster *c, int i)
{
    assert(i >= 0 && i < c->limits.jobs);
    return (CoreJob *)&c->jobs[i];
}

static inline Run *runs_at(Cluster *c, const CoreJob *job) { return (Run *)job_runs(c, job); }

static inline NodeRanks *report_at(Cluster *c, int i)
{
    assert(i >= 0 && i < c->limits.reports);
    return (NodeRanks *)&c->reports[i];
}

static inline Incident *incident_at(Cluster *c, int i)
{
    assert(i >= 0 && i < c->limits.incidents);
    return (Incident *)&c->incidents[i];
}

static inline Alert *alert_at(Cluster *c, int i)
{
    assert(i >= 0 && i < c->limits.incidents);
    return (Alert *)&c->alerts[i];
}

static inline Request *request_at(Cluster *c, int i)
{
    assert(i >= 0 && i < c->limits.requests);
    return (Request *)&c->requests[i];
}

/* Returns the highest generation that any record of the job names. */
int64_t job_newest_generation(const CoreJob *job);
/* Returns the serial of the phase's next write. It is higher than the serials of all earlier writes, even of
 * lost writes that this controller never saw, because no serial is higher than the revision at which it was written. */
static inline int64_t job_next_serial(const Cluster *c, const CoreJob *job)
{
    return MAX(job->phase.serial + 1, c->seen_revision);
}

static inline const NodeCordons *node_cordons(const Cluster *c, const CoreNode *node)
{
    assert(node >= c->nodes && node < c->nodes + c->limits.nodes);
    return &c->cordons[node - c->nodes];
}

/* True while another writer contests the node's name. The node gets no new ranks then, and has more time before it
 * counts as lost (node_is_lost()): if the other writer removed its record, the node puts the record back. */
static inline bool node_is_contested(const CoreNode *node)
{
    return node->doubt_usec != 0 || node->record.stranger_revision != 0;
}
