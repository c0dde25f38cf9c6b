/* SPDX-License-Identifier: Apache-2.0 */
/* records.h - the records that the cluster keeps in etcd: one struct and one codec per kind.
 *
 * Keys lie under /sdtrain/<cluster>/, kind first (keys.h). Values are JSON with "v": 2. A reader refuses any other
 * "v" and names the key. A writer keeps the fields that it does not know: *_encode() writes over the old text.
 *
 * Ownership: records are values with fixed arrays or allocated parts that *_clear() frees; *_decode() overwrites *ret
 *            (left empty on failure); *_encode() gives the caller a string to free.
 * Units:     *_usec is CLOCK_REALTIME microseconds (records cross machines); *_sec seconds.
 * Errors:    -EINVAL with "<key>: <path>: <what is wrong>"; -EPROTONOSUPPORT for another "v".
 * Threads:   any.
 * Source:    docs/internals/etcd.md, "Records".
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "base/number/hash.h"
#include "base/slots.h"
#include "cluster/admission.h"

enum {
    RECORD_VERSION = 2,        /* grows when an older reader would do harm */
    RECORD_VERSION_OLDEST = 2, /* the oldest version that is still read */
    CLUSTER_NAME_MAX = 63,
    NODE_NAME_MAX = 63,
    RECORD_JOB_MAX = 63,
    RECORD_TEXT_MAX = 255,
    RECORD_URI_MAX = 511,
    RECORD_SLOTS_MAX = SLOTS_MAX, /* slots of one node */
    RECORD_RANKS_MAX = 16384,     /* ranks of one world */
    RECORD_COMMITS_MAX = 16,      /* commits kept in checkpoints/<job> */
    RECORD_REQUEST_MAX = 39,
    RECORD_INCIDENT_MAX = 95, /* "<job>-<generation>" */
    RECORD_PAST_WORLDS_MAX = 64,
    RECORD_PROBES_MAX = 16,
    RECORD_CAUSES_MAX = 12,     /* causes in one cordon record */
    RECORD_WAY_MAX = 23,        /* "signal 9" */
    RECORD_RUNS_MAX = 8,        /* jobs that a node remembers */
    RECORD_BY_MAX = 95,         /* who asked: "anna@laptop, etcd user ops" */
    RECORD_DELIVERIES_MAX = 12, /* sinks that an alert remembers */
    SUBMISSION_BYTES = 33,      /* a submission's id: 32 hex digits and the end */
    SINK_NAME_MAX = 31,
    RECORD_URIS_MAX = 4,      /* stores that one request has nodes try */
    RECORD_PEERS_MAX = 16,    /* nodes that one request has the others try to reach */
    RECORD_REPORT_MAX = 2047, /* what a node says in answer to "doctor" */
    RECORD_PRICE_CLASS_MAX = 47,
};

/* ---- leader/<lease>: a controller that leads, or waits to; the oldest key leads ---- */

typedef enum LeaderState {
    LEADER_UNTOLD, /* the controller's version does not say when it leaves */
    LEADER_UP,
    LEADER_LEFT, /* the controller stops in order and is about to delete its key */
} LeaderState;

typedef struct LeaderDeath {
    char name[128];    /* the controller that died leading */
    char journal[256]; /* path of that controller's journal; empty: it kept none */
    uint64_t at_usec;  /* when that controller's key went */
} LeaderDeath;

enum { LEADER_DEATHS_MAX = 2 };

typedef struct LeaderRecord {
    char name[128]; /* the controller's */
    char version[32];
    int max_nodes, max_jobs; /* sizes of the core's tables; further nodes and jobs are left out */
    char admit[ADMISSION_MAX + 1]; /* nodes that get ranks: cluster/admission.h; empty: all */
    char lacks[64]; /* kinds of records that the controller may not write, blanks between */
    LeaderState state;
    char journal[256]; /* path of the controller's journal; empty: it keeps none */
    char page[160];    /* ADDRESS:PORT of the controller's pages; empty: it has none */
    int deaths; /* leaders that died in a row, on the same records, before this one took over */
    int64_t records;           /* digest of the records on which they died, if deaths is not 0 */
    uint64_t still_until_usec; /* until then the new leader decides nothing; 0: it decides */
    int lease_sec;             /* the controller's setting; 0: not told */
    /* The settings that the controller decides by: "config" of docs/reference/journal.md, without admit; empty: not
     * told. */
    char settings[512];
    LeaderDeath before[LEADER_DEATHS_MAX]; /* the newest of those deaths, oldest first */
    size_t n_before;
} LeaderRecord;

/* ---- marks: the newest commit of a job, as records other than checkpoints/<job> remember it. A reader that finds
 * checkpoints/<job> lost, or older than the mark, knows that commits are missing. ---- */

typedef struct CommitMark {
    int64_t generation, step; /* generation 0: nothing was committed */
} CommitMark;

/* In the order of generations, and of steps within one. */
static inline bool commit_mark_is_before(CommitMark a, CommitMark b)
{
    return a.generation != b.generation ? a.generation < b.generation : a.step < b.step;
}

/* How far a node was with a job. The node tells it once etcd was restored from a snapshot, which may be older: the
 * next world gets a higher generation, and looks for commits that the snapshot lacks. */
typedef struct JobRun {
    char job[RECORD_JOB_MAX + 1];
    char submission[SUBMISSION_BYTES];
    int64_t generation;   /* the highest generation that the node had ranks of */
    CommitMark committed; /* the newest commit that the node knows */
    bool told;            /* the entry must be in the node's record since a restore */
} JobRun;

/* Not in etcd: <state_dir>/history.json of a node. */
typedef struct HistoryRecord {
    char cluster[17];             /* etcd's cluster id, hex; empty: none was seen */
    int64_t revision;             /* the highest revision seen */
    int64_t lease;                /* that the node's record was last put under; 0: not known */
    JobRun runs[RECORD_RUNS_MAX]; /* newest last */
    size_t n_runs;
} HistoryRecord;

/* ---- nodes/<node>: written by the node under its lease ---- */

typedef enum NodeState { NODE_UP, NODE_LEFT } NodeState;
typedef enum NodeVerdict { NODE_HEALTHY, NODE_SUSPECT, NODE_DRAIN, NODE_ISOLATE } NodeVerdict;

typedef struct NodeRecord {
    char name[NODE_NAME_MAX + 1];
    char machine_id[33], boot_id[37];
    /* When this sdtraind started, realtime: a lost lease keeps it, a restart does not. */
    uint64_t incarnation;
    char address[128]; /* where other nodes reach the node's ranks */
    int n_slots;
    char version[32];
    NodeState state;
    NodeVerdict verdict;
    char evidence[RECORD_TEXT_MAX + 1];
    char job[RECORD_JOB_MAX + 1]; /* the job that the node runs; empty: none */
    int64_t world_revision;       /* mod revision of the worlds/<job> that the node runs */
    int64_t generation;           /* generation of the world that the node runs */
    uint64_t lost_slots;          /* bit i: slot i holds a process that SIGKILL did not end */
    uint64_t bad_slots;    /* bit i: the device of slot i is not to be used; evidence says why */
    uint64_t startup_usec; /* time that the node's trainers have to be ready; 0: unknown */
    uint64_t memory_bytes; /* memory of the machine, with swap; 0: unknown */
    int n_gpus; /* GPUs seen since the boot: slot i has the i-th in order of PCI address; 0: none, or not told */
    JobRun runs[RECORD_RUNS_MAX]; /* the entries with told set */
    size_t n_runs;
    char price_class[RECORD_PRICE_CLASS_MAX + 1]; /* the node's label `price`; empty: none */
    char log_dir[512]; /* <log_dir>/<job>/g<generation>/rank<r>.log is what its ranks print */
    char features[64]; /* words for what its version can do and its rights allow, blanks between */
    int lease_sec;     /* the node's setting; 0: not told */
    int64_t stranger_lease;    /* of the last record of another writer under this name */
    int64_t stranger_revision; /* of that record; 0: there was none lately */
} NodeRecord;

/* ---- health/<node>: written by the node when a finding changes, and after five minutes for the ages.
 *
 * The record is for people: no program decides by it. It stays when the node goes. ---- */

typedef struct HealthProbeRecord {
    char name[24];
    NodeVerdict verdict;
    char text[RECORD_TEXT_MAX + 1]; /* the fault found; of a healthy device, what the probe read */
    char cure[96];                  /* the action that ends the fault; empty: there is no fault */
    uint64_t bad_slots;
    uint64_t since_usec; /* when the finding last changed */
    uint64_t at_usec;    /* when the probe last answered; 0: not yet */
    uint64_t took_usec;  /* how long the last answer took */
    int hangs, failures; /* runs in a row that hung, or failed */
} HealthProbeRecord;

typedef struct HealthRecord {
    char node[NODE_NAME_MAX + 1];
    char machine_id[33];
    NodeVerdict verdict;
    char evidence[RECORD_TEXT_MAX + 1];
    char cure[96];
    uint64_t bad_slots;
    uint64_t since_usec; /* when the verdict last changed */
    uint64_t at_usec;    /* when the record was written */
    /* When the node took leave; 0: it did not, so without nodes/<node> the node is lost. */
    uint64_t left_usec;
    HealthProbeRecord probes[RECORD_PROBES_MAX];
    size_t n_probes;
    char report[RECORD_REPORT_MAX +
                1]; /* JSON of `sdtrainer doctor`, run for the newest "doctor"; empty: none was */
    char report_id[RECORD_REQUEST_MAX + 1]; /* id of that request */
} HealthRecord;

/* ---- cordons/<node>: written by sdctl and the leader, each its own causes; cordon.h reads it ----
 *
 * A set of causes holds a node back. Owner, job and machine identify a cause, which has a reason and an end of its
 * own. A writer changes its own causes in the record that it has read, keeps the others, and writes under a guard on
 * that revision. The record is removed with its last cause. */

typedef enum CordonMode { CORDON_NONE, CORDON_CORDON, CORDON_DRAIN, CORDON_QUARANTINE } CordonMode;

typedef enum CordonOwner {
    CORDON_OPERATOR, /* sdctl node cordon|drain: holds for any machine of the node's name */
    CORDON_MACHINE,  /* the leader: strikes, a verdict, a slot that is lost */
    CORDON_JOB, /* the leader: one job's strikes; or it refuses the machine, while the job exists */
} CordonOwner;

typedef struct CordonCause {
    CordonOwner owner;
    char job[RECORD_JOB_MAX + 1];      /* CORDON_JOB: the job that refuses the machine */
    char submission[SUBMISSION_BYTES]; /* CORDON_JOB: the job's submission */
    char machine_id[33]; /* held back whatever its name is; empty: any of the node's name */
    CordonMode mode;     /* CORDON_NONE: the cause only counts strikes */
    char reason[RECORD_TEXT_MAX + 1];
    uint64_t since_usec;
    uint64_t until_usec; /* 0: until somebody uncordons */
    int strikes;         /* CORDON_JOB: of that submission; CORDON_MACHINE: of former ones */
    char way[RECORD_WAY_MAX + 1]; /* CORDON_JOB: how the trainers ended; empty: not alike */
    char by[RECORD_BY_MAX + 1];   /* CORDON_OPERATOR: who asked, as that side says; may be empty */
} CordonCause;

typedef struct CordonRecord {
    char node[NODE_NAME_MAX + 1];
    CordonCause causes[RECORD_CAUSES_MAX];
    size_t n_causes;
} CordonRecord;

/* ---- specs/<job>: the job file, verbatim in "spec"; desired/<job> ---- */

enum { RECORD_SOURCES_MAX = 33 * 129 }; /* dataset_sources_format() */

typedef struct SpecRecord {
    char *spec;                          /* the job file's text */
    char resume_uri[RECORD_URI_MAX + 1]; /* job start --resume: manifest to adopt; empty: none */
    uint64_t submitted_usec;
    /* 128 random bits, drawn at each submission, so that two jobs of one name are told apart. */
    char submission[SUBMISSION_BYTES];
    /* Hashes of empty_text and of each stream's index.json and encoder.json, as submitted; empty: not told. */
    char sources[RECORD_SOURCES_MAX];
    char by[RECORD_BY_MAX + 1]; /* who submitted it, by that side's own word; empty: not told */
} SpecRecord;

typedef enum DesiredState { DESIRED_RUNNING, DESIRED_STOPPED, DESIRED_DELETED } DesiredState;

typedef struct DesiredRecord {
    DesiredState state;
    int min, max;
    int priority; /* place in the queue: the highest goes first */
    int target; /* world size that a resize asked for; 0: as many ranks as min..max and the slots allow */
    /* The side that asked for the last change, and when, by its own word and clock; empty and 0: not told. */
    char by[RECORD_BY_MAX + 1];
    uint64_t asked_usec;
} DesiredRecord;

/* ---- worlds/<job>: written once per generation by the leader ---- */

typedef struct WorldRun { /* consecutive ranks on one node */
    char node[NODE_NAME_MAX + 1];
    uint64_t incarnation; /* of the node's record when this world was decided */
    uint64_t slots;       /* bit mask; ranks take them in rising order */
} WorldRun;

/* Where no commit is known, rank 0 looks into the checkpoint folder first. Its node writes the checkpoints found
 * into checkpoints/<job>, and the next world goes on from the newest. */
typedef enum ResumeFind {
    FIND_NOTHING, /* do not look: go on as the resume point says */
    FIND_ANY,     /* look; if the folder holds no checkpoint, go on as the resume point says */
    FIND_MUST,    /* look; a checkpoint was there, so an empty folder is a failure */
} ResumeFind;

typedef struct ResumePoint {
    int64_t step;
    char uri[RECORD_URI_MAX + 1]; /* of manifest.json; empty: start at step 0 */
    Hash hash;                    /* of manifest.json; zero with adopt: not known, not checked */
    bool adopt;                   /* the checkpoint is another job's */
    ResumeFind find;
    char takes_over[RECORD_REQUEST_MAX + 1]; /* copied from CheckpointCommit.takes_over */
} ResumePoint;

typedef struct WorldRecord {
    int64_t generation;
    int size; /* ranks */
    WorldRun *runs;
    size_t n_runs;
    ResumePoint resume;
    /* Id of the incident from which this world recovers; empty: start, resize, growth. */
    char incident[RECORD_INCIDENT_MAX + 1];
    char reason[RECORD_TEXT_MAX + 1];
    uint64_t decided_usec;
    char submission[SUBMISSION_BYTES]; /* the spec's */
    CommitMark committed;              /* the newest commit when the world was decided */
} WorldRecord;

/* Finds the run and the slot of a rank; -ENOENT when the rank is out of range. */
int world_rank_place(const WorldRecord *world, int rank, size_t *ret_run, int *ret_slot);

/* ---- secrets/<job>: written by the leader in the transaction of a world, so that both have one mod revision.
 * Only nodes and controllers may read it; it goes into no journal, snapshot or log. ---- */

enum { SECRET_BYTES = 32, SECRET_TEXT_BYTES = 2 * SECRET_BYTES + 1 };

typedef struct SecretRecord {
    int64_t generation;
    char secret[SECRET_TEXT_BYTES]; /* hexadecimal digits; secret_record_clear() wipes them */
} SecretRecord;

/* Words in NodeRecord.features: of a node that reads secrets, and of one that answers "doctor". */
#define FEATURE_SECRETS "secrets"
#define FEATURE_DOCTOR "doctor"
bool node_knows(const NodeRecord *node, const char *feature);
/* Tells whether words, which have blanks between, hold word. */
bool words_have(const char *words, const char *word);

/* ---- phases/<job> ----
 *
 * A node kills its ranks of a job whose phase is pending, stopped, succeeded or failed, or that pauses, or that has
 * no worlds/<job>; and all ranks older than the generation of worlds/<job>. */

typedef enum JobPhase {
    PHASE_PENDING,
    PHASE_STARTING,
    PHASE_RUNNING,
    PHASE_RECOVERING,
    PHASE_RESIZING,
    PHASE_STOPPING,
    PHASE_STOPPED,
    PHASE_SUCCEEDED,
    PHASE_FAILED,
    PHASE_COUNT,
} JobPhase;

/* Tells whether a job in that phase holds the slots of its world. */
static inline bool phase_is_active(JobPhase phase)
{
    return phase >= PHASE_STARTING && phase <= PHASE_STOPPING;
}

const char *job_phase_name(JobPhase phase);

typedef struct PastWorld {
    int64_t generation;
    int size;     /* ranks */
    int64_t step; /* the step that the world went on from */
    uint64_t decided_usec;
    char reason[96]; /* cut to fit */
} PastWorld;

/* The cost of the job so far, in micro-dollars: cost.h reads it. */
typedef struct CostMeter {
    int64_t rate;        /* micro-dollars an hour for the slots of the newest world; 0: no prices */
    uint64_t since_usec; /* up to when spent counts; 0: the job holds no slots now */
    int64_t spent;
    int64_t lost; /* the part of spent that failures have cost */
} CostMeter;

/* How long a job was in phases that are over, since its first world was decided. */
typedef struct PhaseSpent {
    uint64_t start_usec, running_usec, recovery_usec;
    uint64_t resize_usec; /* resizing or stopping */
    uint64_t idle_usec;   /* pending, or stopped and started again */
} PhaseSpent;

typedef struct PhaseRecord {
    JobPhase phase;
    int64_t generation;
    bool go;    /* the old generation is dead or excluded: this one may join */
    bool leave; /* resize, drain, stop: rank 0 must finish the step, save and leave */
    char reason[RECORD_TEXT_MAX + 1];
    uint64_t since_usec;
    int64_t furthest_step; /* the job's furthest completed step when this generation began */
    int failures_without_progress; /* generations in a row that did not pass furthest_step */
    double goodput;                /* training time that counts / wall time since start */
    double useful_sec;             /* training time that counts, before the present world */
    double saving, saving_sec; /* the parts of goodput and of useful_sec that waited for saves */
    PhaseSpent spent;
    uint64_t started_usec; /* when the job's first world was decided */
    int growths_in_vain; /* in a row: the world was asked to leave in order to grow, and did not */
    uint64_t grown_usec; /* when growth was last planned */
    int64_t tried_revision; /* newest desired or cordon revision that a leave was tried for */
    /* How long after since_usec the next world comes, while nothing runs; 0: no pause. */
    uint64_t pause_usec;
    int pauses;               /* pauses in a row without progress */
    uint64_t store_lost_usec; /* since when the store has cost generations; 0: it costs none */
    /* The newest worlds with the present one, oldest first. */
    PastWorld worlds[RECORD_PAST_WORLDS_MAX];
    size_t n_worlds;
    char submission[SUBMISSION_BYTES]; /* the spec's */
    CommitMark committed;    /* the newest commit when the record was written, or a later one */
    int64_t furthest_resume; /* the furthest step that a world went on from, struck out or not */
    char dies_by[RECORD_WAY_MAX + 1]; /* how its trainers end on any machine; empty: none such */
    uint64_t dies_usec;               /* when one last did */
    int64_t serial; /* number of times the record was written: an older copy has a lower one */
    CostMeter cost;
} PhaseRecord;

/* Adds time in a phase. */
static inline void phase_spent_add(PhaseSpent *spent, JobPhase phase, uint64_t usec)
{
    uint64_t *const kinds[PHASE_COUNT] = {
        &spent->idle_usec,     &spent->start_usec,  &spent->running_usec,
        &spent->recovery_usec, &spent->resize_usec, &spent->resize_usec,
        &spent->idle_usec,     &spent->idle_usec,   &spent->idle_usec,
    };
    *kinds[phase] += usec;
}

/* ---- ranks/<job>/<gen>/<node>: written by the node under its lease, on change only ----
 *
 * After a new world is decided, a node with ranks of an older one reports them EXITED in that generation's record,
 * under a guard on the new world's mod revision, once they are confirmed dead. A node that is in both worlds may set
 * killed_usec in the new generation's record instead. A node that takes a new lease puts its node record and its
 * ranks records back in one transaction. */

typedef enum RankState { RANK_STARTING, RANK_READY, RANK_RUNNING, RANK_EXITED } RankState;

typedef struct RankReport {
    int slot, rank, pid;
    RankState state;
    int exit_code; /* EXITED: exit code, or -signal */
    int64_t step;  /* the newest step that the rank reported */
    int stage;     /* the newest TrainStage that the rank reported */
    bool hung;     /* the progress watchdog killed the rank */
    bool killed;   /* the daemon killed the rank on purpose (new world, fence, stop) */
    char text[RECORD_TEXT_MAX + 1]; /* the rank's last words */
    uint64_t at_usec; /* when state last changed: ready, running (first step done) or exited */
    int unmet;        /* 1 + the rank that this one could not join with; 0: none */
    uint64_t started_usec, ready_usec, joined_usec; /* times of the start's phases; 0: unknown */
} RankReport;

typedef struct RanksRecord {
    char node[NODE_NAME_MAX + 1];
    uint64_t incarnation; /* of the node's record */
    int64_t generation;
    int64_t world_revision;
    RankReport *ranks;
    size_t n_ranks;
    /* When the previous generation's ranks on this node were confirmed dead; 0: none ran. */
    uint64_t killed_usec;
    int64_t first_step; /* rank 0's node: first step that this generation completed; 0: none yet */
    uint64_t first_step_usec;
    bool left;     /* all ranks exited 0 on request */
    bool finished; /* the job's last step is done and committed */
} RanksRecord;

/* ---- rendezvous/<job>/<gen> ---- */

typedef struct RendezvousRecord {
    char address[128];
} RendezvousRecord;

/* ---- checkpoints/<job>: appended by rank 0's node, struck out by the leader ---- */

typedef struct CheckpointCommit {
    int64_t step, generation;
    char uri[RECORD_URI_MAX + 1];
    Hash hash, digest;
    bool struck_out;
    uint64_t at_usec;
    char plans
        [HASH_TEXT_BYTES]; /* hash of the plan set that it was computed by; empty: none, or an older version's */
    /* Id of the `job recover` that named this commit: the world that goes on from it may take the folder over, once.
     * Empty: no request named it. */
    char takes_over[RECORD_REQUEST_MAX + 1];
} CheckpointCommit;

typedef struct CheckpointsRecord {
    CheckpointCommit commits[RECORD_COMMITS_MAX]; /* oldest first */
    size_t n_commits;
    char submission[SUBMISSION_BYTES]; /* the spec's */
} CheckpointsRecord;

/* The newest commit that is not struck out, or NULL. */
const CheckpointCommit *checkpoints_latest(const CheckpointsRecord *record);
/* Appends a commit; a full record drops its oldest one. */
void checkpoints_append(CheckpointsRecord *record, const CheckpointCommit *commit);
/* The mark of the newest commit, struck out or not. */
static inline CommitMark checkpoints_mark(const CheckpointsRecord *record)
{
    if (record->n_commits == 0)
        return (CommitMark){0};
    const CheckpointCommit *newest = &record->commits[record->n_commits - 1];
    return (CommitMark){.generation = newest->generation, .step = newest->step};
}

/* ---- progress/<job>: written by rank 0's node, at most once a second, but at once for a world's first step ---- */

typedef struct ProgressRecord {
    int64_t generation, step, steps;
    double loss;
    double grad_norm, lr; /* of that step; 0 or NAN: not told */
    double samples_per_sec, step_sec;
    double saving_sec; /* how long rank 0 has waited for saves since this world's first step */
    int64_t samples_seen;
    uint64_t at_usec;
    uint64_t unsaved_since_usec; /* since when every save has failed; 0: the newest was good */
    char save_error[RECORD_TEXT_MAX + 1];
    int64_t save_next_bytes, save_free_bytes; /* of the next save: room.h; 0: not told */
    /* Since when the ranks have waited for the data of waits_rank; 0: they do not wait, or not for long. */
    uint64_t waits_since_usec;
    int waits_rank;
    int64_t diverging_since; /* the step from which on training diverges; 0: it does not */
    char diverging[160];     /* which value is too large, for people */
    int64_t metrics_lost;    /* steps whose metrics are lost; 0: none */
    int64_t metrics_lost_first, metrics_lost_last; /* the first and the last of these steps */
    CommitMark committed; /* the newest commit; the commit's own transaction writes it */
} ProgressRecord;

/* ---- incidents/<id> ---- */

typedef enum IncidentState { INCIDENT_OPEN, INCIDENT_RESOLVED } IncidentState;

/* info: the cluster recovered by itself; warning: worth a look; critical: a person must act, or hardware has
 * failed. */
typedef enum Severity { SEVERITY_INFO, SEVERITY_WARNING, SEVERITY_CRITICAL } Severity;

const char *severity_name(Severity severity);

/* The enums' words in records, by value. */
extern const char *const node_verdict_names[4];
extern const char *const cordon_mode_names[4];
extern const char *const cordon_owner_names[3];
extern const char *const rank_state_names[4];
extern const char *const delivery_state_names[4];
extern const char *const severity_names[3];

typedef struct IncidentRecord {
    char id[RECORD_INCIDENT_MAX + 1]; /* "<job>-<generation of the world that failed>" */
    IncidentState state;
    Severity severity;
    char job[RECORD_JOB_MAX + 1];
    char submission[SUBMISSION_BYTES]; /* the job's; empty: the incident is of no job */
    char cause[48]; /* "trainer-died", "node-lost", "hang", "data-corrupt", ... */
    char node[NODE_NAME_MAX + 1];
    int rank; /* -1: unknown */
    int64_t generation, step;
    char evidence[RECORD_TEXT_MAX + 1];
    uint64_t at_usec, resolved_usec;
    bool ended;           /* resolved because its job ended: nothing was recovered */
    int64_t lost_steps;   /* steps that are trained again */
    int64_t reached_step; /* when the recovery began; 0: unknown, or another incident began it */
    /* Length of each phase of the recovery; -1: unknown. detect ends when the fault is known, decide with the new
     * world's record, stop when the old ranks are dead, start when the new processes run, restore when all are ready.
     * replay is from the first step to the step of the old world. */
    double detect_sec, decide_sec, stop_sec, start_sec, restore_sec, replay_sec;
    uint64_t first_step_usec; /* realtime of the next world's first step; 0: not yet */
    uint64_t hold_until_usec; /* of "nodes-vanished": realtime, at the latest; 0: not told */
    int hold_nodes;           /* of "nodes-vanished": how many there were before; 0: not told */
} IncidentRecord;

/* ---- alerts/<id>: which sink has been told what of incidents/<id>; written by the leader ----
 *
 * The incident itself obliges the leader to notify, and this record says how far it has come. So a change of leader
 * loses no notification. */

typedef enum DeliveryState {
    DELIVERY_SENDING,   /* stored before the first attempt: the sink may have been told */
    DELIVERY_TRIGGERED, /* the sink has accepted that the incident is open */
    DELIVERY_RESOLVED,  /* the sink has accepted that the incident is over */
    /* The sink refused, or too many attempts failed. Attempts go on slowly while the incident is open. */
    DELIVERY_FAILED,
} DeliveryState;

typedef struct Delivery {
    char sink[SINK_NAME_MAX + 1];
    DeliveryState state;
    Severity severity; /* the severity told */
    int attempts;      /* attempts that failed since the sink last accepted a message */
    uint64_t at_usec;  /* when the delivery last changed */
    char text[128];    /* why the last attempt failed; empty: it did not */
} Delivery;

typedef struct AlertRecord {
    char id[RECORD_INCIDENT_MAX + 1];
    /* The incident's at_usec: a job submitted again under its name repeats ids. */
    uint64_t incident_usec;
    int64_t term; /* of the leader that notifies */
    bool settled; /* the incident is over and no sink is left to be told */
    Delivery deliveries[RECORD_DELIVERIES_MAX];
    size_t n_deliveries;
} AlertRecord;

/* ---- requests/<id> ---- */

/* A store that nodes are to try. */
typedef struct RequestUri {
    char uri[RECORD_URI_MAX + 1];
    bool write;      /* it must take and give back an object; else it must have an index.json */
    char marker[64]; /* an object that the asker has put there; empty: none */
} RequestUri;

/* A node that the others are to reach. */
typedef struct RequestPeer {
    char address[128];
} RequestPeer;

typedef enum RequestOutcome {
    REQUEST_OPEN,
    REQUEST_DONE,
    REQUEST_REFUSED,
    REQUEST_FAILED
} RequestOutcome;

typedef struct RequestRecord {
    char id[RECORD_REQUEST_MAX + 1];
    /* To a job: "checkpoint", "recover". To a node: "check" runs its probes now; "clear" first forgets the faults that
     * only a reset cures. To all nodes: "doctor" has each try the stores and look at its machine; health/<node> gets
     * its report, and the request no answer. To the leader: "forget" a lost node that does not come back;
     * "alerts-test"; "uncordon" says who let a node have ranks again, for the leader's log. */
    char kind[24];
    char target[64]; /* a job, a node or a sink; "alerts-test" with an empty target: all sinks */
    char submission[SUBMISSION_BYTES]; /* of the job; empty: any job of that name */
    char machine_id[33]; /* only this machine answers as the node; empty: any machine does */
    char answer[RECORD_TEXT_MAX + 1]; /* empty: not answered yet */
    RequestOutcome outcome;           /* of the answer: request_outcome() */
    uint64_t at_usec;
    Delivery deliveries[RECORD_DELIVERIES_MAX]; /* "alerts-test": come with the answer */
    size_t n_deliveries;
    /* "recover": the commit to go on from; uri empty: the newest one that the folder holds. */
    CheckpointCommit commit;
    RequestUri uris[RECORD_URIS_MAX]; /* "doctor": the stores to try */
    size_t n_uris;
    char by[RECORD_BY_MAX + 1];          /* who asked, by that side's own word; empty: not told */
    RequestPeer peers[RECORD_PEERS_MAX]; /* "doctor": the nodes to reach */
    size_t n_peers;
} RequestRecord;

/* ---- asks/<node>/<id>: what somebody wants to read of a node's logs; written by sdctl under a lease of its own ----
 *
 * The record is a place to read on from, one for each rank, so the node keeps nothing that a lost record could
 * contradict. sdctl writes it again, with the next seq, when it has shown what the node answered. So at most one answer
 * to each ask lies in etcd. The record goes when the reader does, and the answer with it. */

enum {
    LOG_TEXT_MAX = 16384,  /* bytes of log in one answer */
    LOG_REQUESTS_MAX = 16, /* asks that a node serves at once */
    LOG_ID_MAX = 39,
};

typedef struct LogPlace {
    int rank;
    int64_t file;   /* the node's number of the rank's file; 0: the one where the tail begins */
    int64_t offset; /* bytes in that file */
} LogPlace;

typedef struct LogRequestRecord {
    char job[RECORD_JOB_MAX + 1];
    int64_t generation;
    int64_t seq;        /* of this ask, from 1; the answer repeats it */
    bool follow;        /* answer once there is something to read; false: say when all is read */
    int64_t tail_bytes; /* of each rank: where reading begins; older lines are left out */
    int64_t
        pause_usec; /* the node waits that long between two answers, unless more is there already */
    LogPlace *places; /* the ranks; none: all that the node has of the generation */
    size_t n_places;
} LogRequestRecord;

/* ---- lines/<node>/<id>: the node's answer to asks/<node>/<id>, under the node's lease ---- */

typedef struct LogPart {
    LogPlace next;   /* where to read on */
    int64_t bytes;   /* of the answer's text */
    int64_t skipped; /* bytes left out before it: they are old, were too many, or are gone */
    bool missing;    /* the node has no such file */
} LogPart;

typedef struct LogLinesRecord {
    int64_t seq;
    LogPart *parts;
    size_t n_parts;
    char *
        text; /* of all parts, one after another; UTF-8 without control characters but line ends and tabs */
    bool more;                         /* there is more to read at once */
    bool end;                          /* all is read: the node has forgotten the ask */
    char refused[RECORD_TEXT_MAX + 1]; /* why the node does not serve the ask; empty: it does */
} LogLinesRecord;

/* Words in NodeRecord.features: of a node that answers asks; of one whose user may write every node's record. */
#define FEATURE_LOGS "logs"
#define FEATURE_SHARED "shared"

/* ---- codecs: source is the key, for errors; old_text (may be NULL) keeps unknown fields ---- */

#define DECLARE_RECORD(Type, prefix)                                                               \
    int prefix##_decode(const char *source, const char *text, size_t n_bytes, Type *ret,           \
                        Error *err);                                                               \
    char *prefix##_encode(const Type *record, const char *old_text);                               \
    void prefix##_clear(Type *record);

DECLARE_RECORD(LeaderRecord, leader_record)
DECLARE_RECORD(NodeRecord, node_record)
DECLARE_RECORD(HistoryRecord, history_record)
DECLARE_RECORD(HealthRecord, health_record)
DECLARE_RECORD(CordonRecord, cordon_record)
DECLARE_RECORD(SpecRecord, spec_record)
DECLARE_RECORD(DesiredRecord, desired_record)
DECLARE_RECORD(WorldRecord, world_record)
DECLARE_RECORD(SecretRecord, secret_record)
DECLARE_RECORD(PhaseRecord, phase_record)
DECLARE_RECORD(RanksRecord, ranks_record)
DECLARE_RECORD(RendezvousRecord, rendezvous_record)
DECLARE_RECORD(CheckpointsRecord, checkpoints_record)
DECLARE_RECORD(ProgressRecord, progress_record)
DECLARE_RECORD(IncidentRecord, incident_record)
DECLARE_RECORD(AlertRecord, alert_record)
DECLARE_RECORD(RequestRecord, request_record)
DECLARE_RECORD(LogRequestRecord, log_request_record)
DECLARE_RECORD(LogLinesRecord, log_lines_record)
