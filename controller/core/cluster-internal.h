/* cluster-internal.h - what the core knows; private to controller/core.
 *
 * Ownership: all arrays lie behind the Cluster in the caller's memory.
 * Units:     as cluster.h. *_usec without "real" in the name are boottime.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "cluster/cordon.h"
#include "cluster/resume.h"
#include "controller/core/cluster.h"
#include "controller/core/text.h"

/* A key's last change. Events older than seen are late copies and are ignored. */
typedef struct Stamp {
    int64_t mod;  /* what a guard compares; 0: the key does not exist */
    int64_t seen; /* revision of the last event */
} Stamp;

/* What became of a record that does not return by itself. What was known of it is kept. */
typedef enum Lost { LOST_NOT, LOST_GONE, LOST_DAMAGED, LOST_OLDER, LOST_FOREIGN } Lost;

typedef struct CoreNode {
    bool used, present;
    bool admitted;     /* by this controller's list; as long as its record was not seen: yes */
    NodeRecord record; /* the last one, also after it vanished; name is always set */
    Stamp stamp;
    uint64_t changed_usec; /* when it appeared or vanished */
    uint64_t vanished_real_usec;
    bool missed;                   /* it was here, or a world counts on it, and it has not left */
    char ran[RECORD_JOB_MAX + 32]; /* when it vanished: "2 ranks of job a"; empty: nothing */
    uint64_t left_incarnation;     /* the last that said that it leaves */
    int64_t drain_revision;        /* when its verdict became drain; 0: it is not */
    Stamp cordon_stamp;            /* without a record node_cordons() has no causes */
    bool cordon_foreign;           /* a later version's: it is not written over */
    bool left_out;                 /* by the decision being made */
    bool ran_before;               /* the job being planned */
    int first_report;              /* of those about its ranks, by next_of_node; -1: none */
} CoreNode;

/* Beside the nodes: most have none, and a table that is not touched costs no memory. */
typedef struct NodeCordons {
    CordonRecord record;
    int64_t revisions[RECORD_CAUSES_MAX]; /* when each cause became what it is */
} NodeCordons;

/* Small: there is room for 64 on each node. */
typedef struct CoreRank {
    int64_t step;
    uint64_t at_usec; /* realtime */
    int rank;
    int unmet;                  /* 1 + the rank that it did not meet; 0: none */
    int16_t exit_code;          /* -128 to 255 */
    uint8_t slot, stage, state; /* TrainStage, RankState */
    bool hung, killed;
} CoreRank;

/* ranks/<job>/<generation>/<node> */
typedef struct NodeRanks {
    bool used;
    bool gone;          /* the key vanished; the processes may still run */
    uint64_t gone_usec; /* when */
    int job, node;
    int next_of_node;
    int64_t generation, world_revision;
    uint64_t incarnation;
    Stamp stamp;
    uint64_t killed_usec, first_step_usec; /* realtime */
    uint64_t started_usec, ready_usec;     /* likewise, of the last rank to be so */
    int64_t first_step;
    bool left, finished;
    int n_ranks;
    CoreRank ranks[RECORD_SLOTS_MAX];
    int worst; /* the rank whose last words text holds */
    char text[RECORD_TEXT_MAX + 1];
} NodeRanks;

typedef struct Run {
    int node, report; /* report of the present generation, -1 before there is one */
    uint64_t incarnation, slots;
    int first_rank;
} Run;

typedef struct CoreJob {
    bool used;
    char name[RECORD_JOB_MAX + 1];
    Stamp spec_stamp, desired_stamp, world_stamp, phase_stamp, checkpoints_stamp, progress_stamp;
    JobFacts facts;
    DesiredRecord desired;
    WorldRecord world; /* .runs unused: they are c->runs[job * limits.nodes ...] */
    PhaseRecord phase; /* zero without one: pending, generation 0 */
    CheckpointsRecord checkpoints;
    ProgressRecord progress;
    int64_t
        word; /* the revision at which desired became what it is; one that is put back is no new word */
    int64_t reported_generation; /* the highest of its nodes' records */
    int64_t ran_generation;      /* as nodes tell whose store was restored */
    CommitMark ran_mark;
    Lost spec_lost, desired_lost, world_lost, phase_lost, checkpoints_lost;
    uint64_t
        lost_usec; /* since when something is missing that nobody here has seen; 0: nothing is */
    int n_runs;
    uint64_t world_usec, phase_usec; /* when this world, this phase was learnt */
    uint64_t failing_usec;           /* first sign that the world fails; 0: none */
    uint64_t failing_real_usec;
    uint64_t left_usec;        /* when rank 0's node was seen to have left; 0: it has not */
    uint64_t grown_usec;       /* when phase.grown_usec was learnt */
    uint64_t pending_usec;     /* when it was learnt that it waits; 0: it does not */
    int64_t oldest_generation; /* the lowest with records of its own; 0: none known */
    int64_t in_flight;         /* id of the decision under way; 0: none */
    int64_t awaited_revision;  /* of what was written, until the watch has shown it */
    bool planning;             /* that is a world: its slots are taken already */
    int64_t removing;          /* that removes this generation */
} CoreJob;

typedef struct Incident {
    bool used;
    IncidentRecord record;
    Stamp stamp;
} Incident;

/* alerts/<id>, as far as the core cares */
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
    uint64_t seen_usec; /* when this leader first saw it: what clients' clocks say is nothing */
} Request;

/* Where records may not fit. */
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
    uint64_t wake_usec; /* of the step being made */
    int64_t seen_revision;
    int64_t term;                        /* 0: not leading */
    uint64_t observe_until_usec;         /* a new leader does not act on absence before */
    uint64_t hold_usec, hold_until_usec; /* since when absence is not acted upon, and how long */
    int unnamed_lost;        /* counted by the page of many, and nobody here has seen them */
    bool knows_summary;      /* that has been looked at since this controller leads */
    uint64_t uninvited_usec; /* when a node was last here that is not admitted; 0: a new list */
    uint64_t uninvited_told_usec; /* when the incident was last written */
    bool probes_suspected;        /* too many nodes call themselves unhealthy at once */
    int64_t last_id;
    int64_t cluster_in_flight, cluster_awaited;
    int64_t dropped;
    unsigned missed, taken; /* by Table: records did not fit; places were taken since */
    CoreNode *nodes;
    NodeCordons *cordons; /* of each node */
    int *cordoned;        /* nodes that have a record of them, by index */
    int n_cordoned;
    int *by_name; /* used nodes in name order */
    int n_by_name;
    int last_node; /* where the last free place was */
    int n_gone;    /* reports whose key has vanished */
    CoreJob *jobs;
    int *by_arrival;
    int n_by_arrival;
    Run *runs;
    NodeRanks *reports;
    int n_reports;         /* none was ever used from there on */
    int first_free_report; /* of those before, by next_of_node; -1: none */
    Incident *incidents;
    Alert *alerts;
    Request *requests;
    /* scratch of one decision */
    WorldRun *plan_runs;
    int *plan_nodes;
    uint64_t *free_slots;
};

/* By hand: the built-in calls libgcc where the processor lacks the instruction. */
static inline int slots_count(uint64_t slots)
{
    slots -= slots >> 1 & UINT64_C(0x5555555555555555);
    slots = (slots & UINT64_C(0x3333333333333333)) + (slots >> 2 & UINT64_C(0x3333333333333333));
    slots = (slots + (slots >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (int)(slots * UINT64_C(0x0101010101010101) >> 56);
}

/* ---- cluster.c ---- */
/* Whether the time has come; else the shell is woken then. */
bool cluster_due(Cluster *c, uint64_t at_usec);
Run *job_runs(const Cluster *c, const CoreJob *job);
int job_index(const Cluster *c, const CoreJob *job);
/* The highest generation that anybody speaks of. */
int64_t job_newest_generation(const CoreJob *job);
/* Of the next write of its phase: beyond those of all before, also of those that are lost and that nobody here
 * has seen, for none is beyond the revision at which it was written. */
static inline int64_t job_next_serial(const Cluster *c, const CoreJob *job)
{
    return MAX(job->phase.serial + 1, c->seen_revision);
}

/* ---- observe.c: records into state ---- */
void observe(Cluster *c, const Event *ev);
/* The node of that name, -1 when the table is full. */
int node_intern(Cluster *c, const char *name);
/* Forgets reports whose processes are known to be dead, once a batch of events is complete. */
void observe_settle(Cluster *c);

/* ---- checkpoints.c: what is committed, whatever becomes of checkpoints/<job> ---- */
void checkpoints_learn(CoreJob *job, const Event *ev);
/* Those of a job that had the name before are nothing to this one. */
void checkpoints_drop_others(CoreJob *job);
/* The newest commit that any record speaks of. */
CommitMark checkpoints_known_mark(const CoreJob *job);
/* Something was committed that is not known here: somebody must look into the folder. */
bool checkpoints_are_missing(const CoreJob *job);
/* False: every commit is struck out. */
bool checkpoints_find_resume(const CoreJob *job, const CheckpointsRecord *checkpoints,
                             ResumePoint *ret);
/* 0 where nothing is known. */
int64_t checkpoints_resume_step(const CoreJob *job);
/* Puts back what the leader remembers; tells of what it does not. */
bool decide_checkpoints(Cluster *c, const CoreJob *job, Decision *d);
/* `sdctl job recover`: a job that has ended, or waits, goes on from a manifest that somebody names, or from
 * what the folder holds. */
bool decide_recover(Cluster *c, CoreJob *job, Decision *d);
/* The present world looks for its checkpoint, and it was found. */
bool decide_found(Cluster *c, CoreJob *job, Decision *d);

/* ---- lost.c: records that vanish, are damaged, or come back as they once were ---- */
/* What an event says of a record whose last content is known (had) and which is older or not. */
Lost lost_by(const Event *ev, bool had, bool older);
/* "worlds/a was deleted" */
void lost_say(Text *t, Lost lost, const char *kind, const char *name);
/* An incident beside what the job does. */
void lost_incident(Cluster *c, const CoreJob *job, const char *evidence, bool over, Decision *d);
/* NULL: none is open. */
const Incident *lost_find_incident(const Cluster *c, const CoreJob *job);
bool decide_lost(Cluster *c, CoreJob *job, Decision *d);
/* A record of it is of a version that this one does not read: nothing of it is written, or removed. */
bool lost_to_another_version(const CoreJob *job);
/* Nothing can be decided about the job: it has no spec, or a record that this version does not read. */
bool lost_hides(const CoreJob *job);
/* Of a record that is there in another form than it is known: whose content is what was known. */
void lost_forget(CoreJob *job, const char *submission);
/* A record that went is of a submission before the job's: it was removed with it, and a list tells of that late. */
bool lost_with_its_job(const CoreJob *job, const char *submission);
/* Put back as it once was. */
bool lost_is_older_world(const CoreJob *job, const WorldRecord *world);
/* EVENT_SPEC and EVENT_PHASE, stamped; what a node tells after a restore of the store. */
void lost_learn_spec(Cluster *c, CoreJob *job, const Event *ev);
/* EVENT_DESIRED, stamped, and no copy of the last one. */
void lost_learn_desired(CoreJob *job, const Event *ev);
void lost_learn_phase(Cluster *c, CoreJob *job, const Event *ev);
void lost_learn_runs(CoreJob *job, const NodeRecord *node);

/* What did not fit may fit now, in part at least: it is to be read again. */
bool observe_has_room(Cluster *c);

/* ---- presence.c: which nodes and processes count as dead, and since when ---- */
void presence_update_hold(Cluster *c);
bool node_is_lost(Cluster *c, const CoreNode *node);
/* What holds the machine of that name back most, for that job or (NULL) for all; NULL: nothing. */
const CordonCause *node_find_cordon(const Cluster *c, const CoreNode *node, const CoreJob *job);
static inline const NodeCordons *node_cordons(const Cluster *c, const CoreNode *node)
{
    return &c->cordons[node - c->nodes];
}
/* What the leader holds against the machine that has the name; NULL: nothing. */
const CordonCause *node_own_cause(const Cluster *c, const CoreNode *node);
/* A world that has not ended has ranks there. */
bool node_hosts_ranks(const Cluster *c, const CoreNode *node);
/* Why no rank of the job may be placed there; NULL when it may. */
const char *node_refusal(const Cluster *c, const CoreNode *node, const CoreJob *job);
/* Processes that may still run: nobody reported their end, and their node is not known dead. */
bool report_is_alive(Cluster *c, const NodeRanks *report);
/* Of worlds before that generation or before that revision of worlds/<job>: of a job that was deleted
 * and born again the generations alone say nothing. */
bool job_has_ranks_alive(Cluster *c, const CoreJob *job, int64_t before_generation,
                         int64_t before_revision, int *ret_node);
/* Of worlds before the present one. */
bool job_has_older_ranks_alive(Cluster *c, const CoreJob *job, int *ret_node);

/* ---- admission.c: nodes that are not on the list ---- */
extern const char admission_cause[];
void node_admit(const Cluster *c, CoreNode *node);
/* The list is another one. */
void admission_update(Cluster *c);
bool decide_admission(Cluster *c, Decision *d);

/* ---- quarantine.c: what a node's own verdict is worth, and how a quarantine ends ---- */
void health_update_trust(Cluster *c);
/* It says that its results can't be trusted, and is believed. */
bool node_is_unhealthy(const Cluster *c, const CoreNode *node);
/* A quarantine of another name that is this machine's, for that job or for all; NULL: there is none. */
const CordonCause *node_find_machine_cordon(const Cluster *c, const CoreNode *node,
                                            const CoreJob *job);
/* Strikes against this machine under other names, as long as they count. */
int node_strikes_elsewhere(const Cluster *c, const CoreNode *node);
/* How many are unhealthy, of how many. */
void health_count(const Cluster *c, int *ret_unhealthy, int *ret_present);
/* A quarantine whose time is over: its machine is asked to check itself, whatever it is called now, and
 * is let in or kept out by what it answers. */
bool decide_quarantine(Cluster *c, const CoreNode *node, const CordonCause *cause, Decision *d);

/* ---- cordons.c: the leader's own causes in cordons/<node>, and their ends ---- */
/* What the leader holds against it, or nothing yet: to be changed and given to cordon_put_cause(). */
CordonCause cordon_begin_cause(const Cluster *c, const CoreNode *node, const CoreJob *refused_by);
/* One cause of it becomes this; the others stay. False: there is no room for it. */
bool cordon_put_cause(const Cluster *c, const CoreNode *node, const CordonCause *cause,
                      Decision *d);
/* One cause of it ends; the others stay. */
void cordon_end_cause(const Cluster *c, const CoreNode *node, const CordonCause *cause,
                      Decision *d);
bool decide_cordons(Cluster *c, Decision *d);

/* ---- queue.c: which jobs go before which ---- */
bool queue_goes_before(const CoreJob *a, const CoreJob *b);
bool queue_job_waits(const CoreJob *job);
/* The job that has waited so long that this one may neither start nor grow before it; NULL: none. */
const CoreJob *queue_find_ahead(Cluster *c, const CoreJob *job);
/* Another one that waits fits now. */
bool queue_somebody_starts(Cluster *c, const CoreJob *job);

/* ---- plan.c ---- */
typedef struct Plan {
    int size;      /* 0: not enough */
    int available; /* slots that the job could take */
    int n_runs;    /* in c->plan_runs, sorted by name */
} Plan;
/* Into c->free_slots, by node; job NULL: for one that is not there yet. */
void plan_find_free_slots(Cluster *c, const CoreJob *job);
void plan_world(Cluster *c, const CoreJob *job, Plan *ret);
/* That it has, whoever uses them; without those that are lost or bad. */
uint64_t plan_slots_of(const CoreNode *node);
int plan_wanted(const CoreJob *job);
int plan_needed(const CoreJob *job);
/* "needs 2 slots, 1 is free; n2 is absent" */
void plan_explain(Cluster *c, const CoreJob *job, const Plan *plan, char *ret, size_t size);
/* "; n2 is absent; n3 is cordoned: its fan; and 7 more" */
void plan_say_refusals(const Cluster *c, const CoreJob *job, Text *t);

/* ---- failure.c ---- */
typedef enum Cause {
    CAUSE_NONE,
    CAUSE_STORE_TROUBLE, /* ends no world: store-incident.c */
    CAUSE_RECORD_LOST,   /* lost.c */
    /* in rising order of how much they explain */
    CAUSE_PEER_LOST,
    CAUSE_RANKS_LOST,
    CAUSE_WORLD_LOST, /* lost.c, too */
    CAUSE_START_TIMEOUT,
    CAUSE_RETRY,
    CAUSE_STORE_UNREACHABLE,
    CAUSE_UNREACHABLE,
    CAUSE_TRAINER_DIED,
    CAUSE_HANG,
    CAUSE_SLOT_LOST,
    CAUSE_NODE_LEFT,
    CAUSE_NODE_RESTARTED,
    CAUSE_NODE_LOST,
    CAUSE_NODE_UNHEALTHY,
    CAUSE_DATA_CORRUPT,
    CAUSE_CHECKPOINT_CORRUPT,
    CAUSE_NON_FINITE,
    CAUSE_BAD_JOB,
    CAUSE_NOT_OWNER, /* another job has taken the checkpoint folder over */
    CAUSE_NUMERICS,
    CAUSE_DEVICE_FAULT,
    CAUSES,
} Cause;

typedef struct Failure {
    Cause cause;
    int node; /* index, -1 none */
    int rank; /* -1 none */
    int64_t step;
    uint64_t at_usec; /* realtime of the fault */
    char evidence[RECORD_TEXT_MAX + 1];
} Failure;

const char *cause_name(Cause cause);
Cause cause_of_exit(const CoreJob *job, const NodeRanks *report, const CoreRank *rank);
/* Of the job's present world. False while nothing failed, or while it is not clear yet who is to
 * blame and waiting is bounded. */
bool failure_find(Cluster *c, CoreJob *job, Failure *ret);
/* Furthest step that the present generation completed, as far as reports say. */
int64_t job_reached_step(const Cluster *c, const CoreJob *job);
const NodeRanks *job_rank0_report(const Cluster *c, const CoreJob *job);
bool job_all_exited(const Cluster *c, const CoreJob *job);
/* It is not ready, and its time for that is over. */
bool run_is_late(Cluster *c, const CoreJob *job, const Run *run);
/* A node of its world has vanished, and it is too early to say for good. */
bool job_absence_is_open(Cluster *c, const CoreJob *job);

/* lost.c: the world is none that the phase speaks of: another one must follow it. */
bool world_is_lost(const CoreJob *job, Failure *ret);

/* ---- spare.c: what is one node's own, and whether the job can do without it ---- */
/* The node whose ranks alone ended with that; -1: none, or several. */
int job_find_lone_teller(const Cluster *c, const CoreJob *job, Cause cause);
/* Another try on that node would meet it again, and on another one not. */
bool failure_is_of_one_node(const Cluster *c, const CoreJob *job, const Failure *failure);
/* The next world would be as large without the node. Uses the scratch of plan_world(). */
bool job_has_spare_for(Cluster *c, const CoreJob *job, int node);

/* ---- incident.c ---- */
void incident_open(Cluster *c, const CoreJob *job, const Failure *failure, Decision *d);
/* Not of a job that had its name before. */
bool incident_is_of(const IncidentRecord *record, const CoreJob *job);
/* The newest open one of the job that ended a world, or NULL. */
const Incident *incident_find_open(const Cluster *c, const CoreJob *job);
/* An open one of the job with that cause, or NULL. */
const Incident *incident_find_cause(const Cluster *c, const CoreJob *job, Cause cause);
/* "store-unreachable of rank 0 on n1: no answer" */
void incident_say(const IncidentRecord *record, Text *t);
void incident_resolve(Cluster *c, const CoreJob *job, const Incident *incident, Decision *d);
bool incident_add_replay(Cluster *c, const CoreJob *job, Decision *d);
/* Every sink that it concerns has heard of it and of its end, or was given up on. */
bool incident_is_told(const Cluster *c, const IncidentRecord *record);

/* ---- restart-backoff.c: before another world of a job whose store is away ---- */
/* Nothing of the job runs: its last generation has failed, and the next one is not due yet. */
bool job_is_paused(const CoreJob *job);
typedef struct RestartCounters { /* as PhaseRecord counts them */
    int failures, pauses;
    uint64_t store_lost_usec, pause_usec;
} RestartCounters;
/* With one more generation that ended for that cause. */
RestartCounters restart_counters_after(const Cluster *c, const CoreJob *job, Cause cause);
/* d->incident says after what. */
void decide_pause(Cluster *c, const CoreJob *job, uint64_t pause_usec, Decision *d);
bool decide_paused(Cluster *c, CoreJob *job, Decision *d);

/* ---- store-incident.c: a store that does not take checkpoints, or keeps data back, while the job trains ---- */
bool decide_store_incident(Cluster *c, const CoreJob *job, Decision *d);
/* The job has ended: nothing of it waits for the store any more. */
bool decide_store_incident_over(Cluster *c, const CoreJob *job, Decision *d);

/* ---- cluster-decisions.c ---- */
/* It is not here: what a page about it says. */
void node_note_absence(Cluster *c, CoreNode *node);
/* The open one of no job with that cause; NULL: there is none. */
const Incident *house_find_open(const Cluster *c, const char *cause);
void house_begin_incident(Cluster *c, const char *about, const char *cause, Decision *d);
void house_resolve(const Cluster *c, const Incident *incident, Decision *d);
void node_open_page(Cluster *c, const CoreNode *node, Cause cause, const char *evidence,
                    Decision *d);

/* ---- decide.c, cluster-decisions.c: each fills the decision and returns true when there is one ---- */
bool job_wants_to_run(const CoreJob *job);
bool decide_job(Cluster *c, CoreJob *job, Decision *d);
/* One more against f->node; too many quarantine it. */
void strike(Cluster *c, const Failure *f, Decision *d);
bool decide_failure(Cluster *c, CoreJob *job, const Failure *failure, Decision *d);
bool decide_world(Cluster *c, CoreJob *job, JobPhase phase, const char *reason, Decision *d);
/* As decide_phase(), where the generation ends: whatever was asked for until now is dealt with. */
void decide_end(Cluster *c, const CoreJob *job, JobPhase phase, const char *reason, Decision *d);
/* As decide_end() with PHASE_STOPPED, once no rank is left; until then it is stopping. */
void decide_stopped(Cluster *c, const CoreJob *job, const char *reason, Decision *d);
/* Training time of the job that counts, had its history ended with this step. */
double job_useful_sec(const Cluster *c, const CoreJob *job, int64_t step);
void decide_phase(Cluster *c, const CoreJob *job, JobPhase phase, const char *reason, Decision *d);
/* Rank 0 is told to finish its step, save and leave. */
bool ask_to_leave(Cluster *c, const CoreJob *job, JobPhase phase, const char *reason, Decision *d);
bool decide_cluster(Cluster *c, Decision *d);

/* ---- resize.c ---- */
bool decide_old_word(const Cluster *c, const CoreJob *job, Decision *d);
bool decide_resize(Cluster *c, CoreJob *job, Decision *d);
bool decide_wait(Cluster *c, CoreJob *job, Decision *d);
