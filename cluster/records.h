/* SPDX-License-Identifier: Apache-2.0 */
/* records.h - the records that the cluster keeps in etcd: one struct and one codec per kind.
 *
 * Keys begin with /sdtrain/<cluster>/<kind>/ (keys.h). Values are JSON objects with "v": 2. A reader refuses any other
 * "v" and names the key. A writer keeps fields that are unknown to it: *_encode() merges the record into the old text.
 *
 * Ownership: records have fixed arrays, or allocated parts that *_clear() frees; *_decode() overwrites *ret (and leaves
 *            it empty on failure); *_encode() returns a string that the caller frees.
 * Units:     *_usec is CLOCK_REALTIME microseconds (records cross machines); *_sec seconds.
 * Errors:    -EINVAL with "<key>: <path>: <what is wrong>"; -EPROTONOSUPPORT for another "v".
 * Source:    docs/internals/etcd.md, "Records".
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "base/number/hash.h"
#include "base/slots.h"
#include "cluster/admission.h"

enum {
    RECORD_VERSION = 2,        /* raised when older readers would misread a record */
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
    RECORD_INCIDENT_MAX = 95, /* length of an id: "<job>-<generation>" */
    RECORD_PAST_WORLDS_MAX = 64,
    RECORD_EVALS_MAX = 64, /* verdicts of evaluations kept in phases/<job> */
    RECORD_ASKED_MAX = 8,  /* checkpoints in phases/<job> that wait for an evaluation by request */
    RECORD_PROBES_MAX = 16,
    RECORD_CAUSES_MAX = 12,     /* causes in one cordon record */
    RECORD_WAY_MAX = 23,        /* how trainers end: "signal 9" */
    RECORD_RUNS_MAX = 8,        /* jobs in a node's history */
    RECORD_BY_MAX = 95,         /* requester's name: "anna@laptop, etcd user ops" */
    RECORD_DELIVERIES_MAX = 12, /* sinks in one alert record */
    SUBMISSION_BYTES = 33,      /* a submission's id: 32 hex digits and a NUL */
    SINK_NAME_MAX = 31,
    RECORD_URIS_MAX = 4,      /* stores that nodes test for one request */
    RECORD_PEERS_MAX = 16,    /* nodes to which other nodes connect for one request */
    RECORD_REPORT_MAX = 2047, /* bytes of a node's answer to "doctor" */
    RECORD_PRICE_CLASS_MAX = 47,
};

/* ---- leader/<lease>: one key per controller; the controller with the oldest key is the leader ---- */

typedef enum LeaderState {
    LEADER_UNTOLD, /* the controller's version does not report its state */
    LEADER_UP,
    LEADER_LEFT, /* the controller is stopping in order and will delete its key soon */
} LeaderState;

typedef struct LeaderDeath {
    char name[128];    /* the controller that died as leader */
    char journal[256]; /* path of the dead controller's journal; empty: it had none */
    uint64_t at_usec;  /* when the dead controller's key vanished */
} LeaderDeath;

enum { LEADER_DEATHS_MAX = 2 };

typedef struct LeaderRecord {
    char name[128]; /* the controller's name */
    char version[32];
    int max_nodes, max_jobs;       /* sizes of the core's tables; more nodes or jobs are ignored */
    char admit[ADMISSION_MAX + 1]; /* nodes that get ranks (cluster/admission.h); empty: all */
    char lacks[64]; /* kinds of records that the controller may not write, separated by blanks */
    LeaderState state;
    char journal[256]; /* path of the controller's journal; empty: it has none */
    char page[160];    /* ADDRESS:PORT of the controller's pages; empty: it has none */
    int deaths;        /* deaths of earlier leaders in a row, while the records did not change */
    int64_t records;   /* digest of the unchanged records, if deaths is not 0 */
    uint64_t still_until_usec; /* the leader decides nothing before this time; 0: it decides */
    int lease_sec;             /* the controller's setting lease_sec; 0: unknown */
    /* Settings that affect decisions: "config" of docs/reference/journal.md, without admit; empty: unknown. */
    char settings[512];
    LeaderDeath before[LEADER_DEATHS_MAX]; /* the newest counted deaths, oldest first */
    size_t n_before;
} LeaderRecord;

/* ---- marks: the newest commit of a job, stored in other records than checkpoints/<job>. If checkpoints/<job> is
 * missing or older than the mark, a reader knows that commits were lost. ---- */

typedef struct CommitMark {
    int64_t generation, step; /* generation 0: nothing was committed */
} CommitMark;

/* Tells whether mark a is older than mark b: the generation counts first, then the step. */
static inline bool commit_mark_is_before(CommitMark a, CommitMark b)
{
    return a.generation != b.generation ? a.generation < b.generation : a.step < b.step;
}

/* The progress of a job, as one node last saw it. After etcd was restored from a snapshot, which may be older, the node
 * reports this entry. The next world then gets a higher generation and searches for commits that the snapshot lacks. */
typedef struct JobRun {
    char job[RECORD_JOB_MAX + 1];
    char submission[SUBMISSION_BYTES];
    int64_t generation;   /* the highest generation of which the node had ranks */
    CommitMark committed; /* the newest commit known to the node */
    bool told;            /* etcd was restored, so the node's record includes this entry */
} JobRun;

/* A node's own file <state_dir>/history.json, which is not in etcd. */
typedef struct HistoryRecord {
    char cluster[17];             /* etcd's cluster id, hex; empty: unknown */
    int64_t revision;             /* the highest revision of etcd that the node has seen */
    int64_t lease;                /* lease of the node's record as last put; 0: unknown */
    JobRun runs[RECORD_RUNS_MAX]; /* one entry per job, the newest last */
    size_t n_runs;
} HistoryRecord;

/* ---- nodes/<node>: written by the node under its lease ---- */

typedef enum NodeState { NODE_UP, NODE_LEFT } NodeState;
typedef enum NodeVerdict { NODE_HEALTHY, NODE_SUSPECT, NODE_DRAIN, NODE_ISOLATE } NodeVerdict;

typedef struct NodeRecord {
    char name[NODE_NAME_MAX + 1];
    char machine_id[33], boot_id[37];
    /* When this sdtraind started, realtime. A lost lease does not change this value, a restart does. */
    uint64_t incarnation;
    char address[128]; /* address at which other nodes reach the node's ranks */
    int n_slots;
    char version[32];
    NodeState state;
    NodeVerdict verdict;
    char evidence[RECORD_TEXT_MAX + 1];
    char job[RECORD_JOB_MAX + 1]; /* the job that the node runs; empty: none */
    int64_t world_revision;       /* mod revision of worlds/<job> as the node runs it */
    int64_t generation;           /* generation of the world that the node runs */
    uint64_t lost_slots;          /* bit i: slot i has a process that survived SIGKILL */
    uint64_t bad_slots;    /* bit i: the device of slot i must not be used; evidence tells why */
    uint64_t startup_usec; /* time limit for the node's trainers to become ready; 0: unknown */
    uint64_t memory_bytes; /* the machine's memory including swap; 0: unknown */
    int n_gpus; /* GPUs seen since boot; slot i has the i-th by PCI address; 0: none, or unknown */
    JobRun runs[RECORD_RUNS_MAX]; /* only the runs whose `told` is true */
    size_t n_runs;
    char price_class[RECORD_PRICE_CLASS_MAX + 1]; /* the node's label `price`; empty: none */
    char log_dir[512]; /* a rank prints to <log_dir>/<job>/g<generation>/rank<r>.log */
    char features[64]; /* features that the node supports and has rights for, separated by blanks */
    int lease_sec;     /* the node's setting lease_sec; 0: unknown */
    /* Lease and revision of the last record that another writer put under this node's name; 0: none recently. */
    int64_t stranger_lease;
    int64_t stranger_revision;
} NodeRecord;

/* ---- health/<node>: written by the node when a finding changes, and every five minutes to update the times.
 * The record is for people: no program bases a decision on it. It remains when the node leaves. ---- */

typedef struct HealthProbeRecord {
    char name[24];
    NodeVerdict verdict;
    char text[RECORD_TEXT_MAX + 1]; /* the fault; for a healthy device, the values read */
    char cure[96];                  /* the action that repairs the fault; empty: no fault */
    uint64_t bad_slots;
    uint64_t since_usec; /* when the finding last changed */
    uint64_t at_usec;    /* when the probe last finished; 0: not yet */
    uint64_t took_usec;  /* how long the last run took */
    int hangs, failures; /* consecutive runs that hung, consecutive runs that failed */
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
    /* When the node left in order; 0: never. A node with 0 is lost if nodes/<node> is missing. */
    uint64_t left_usec;
    HealthProbeRecord probes[RECORD_PROBES_MAX];
    size_t n_probes;
    /* JSON printed by `sdtrainer doctor` for the newest "doctor" request; empty: there was no request. */
    char report[RECORD_REPORT_MAX + 1];
    char report_id[RECORD_REQUEST_MAX + 1]; /* id of the "doctor" request */
} HealthRecord;

/* ---- cordons/<node>: written by sdctl and the leader; read with cordon.h ----
 *
 * The causes that keep a node from getting ranks. A cause is identified by owner, job and machine, and has its own
 * reason and end. sdctl and the leader each change only their own causes and keep the others; a guard makes a write
 * fail if the record has changed since it was read. The record is removed with its last cause. */

typedef enum CordonMode { CORDON_NONE, CORDON_CORDON, CORDON_DRAIN, CORDON_QUARANTINE } CordonMode;

typedef enum CordonOwner {
    CORDON_OPERATOR, /* set by sdctl node cordon|drain, for any machine with the node's name */
    CORDON_MACHINE,  /* set by the leader for strikes, a verdict or a lost slot */
    CORDON_JOB,      /* set by the leader for one job that has strikes or refuses the machine */
} CordonOwner;

typedef struct CordonCause {
    CordonOwner owner;
    char job[RECORD_JOB_MAX + 1];      /* CORDON_JOB: the job of this cause */
    char submission[SUBMISSION_BYTES]; /* CORDON_JOB: the submission of the job */
    /* The cause is for this machine, whatever its node name; empty: for any machine with the node's name. */
    char machine_id[33];
    CordonMode mode; /* CORDON_NONE: the cause counts strikes, but cordons nothing */
    char reason[RECORD_TEXT_MAX + 1];
    uint64_t since_usec;
    uint64_t until_usec; /* 0: until a person uncordons the node */
    int strikes;         /* strikes of `submission`; with CORDON_MACHINE, of earlier submissions */
    char way[RECORD_WAY_MAX + 1]; /* CORDON_JOB: how all trainers ended; empty: in different ways */
    char by[RECORD_BY_MAX + 1];   /* CORDON_OPERATOR: requester, self-reported; may be empty */
} CordonCause;

typedef struct CordonRecord {
    char node[NODE_NAME_MAX + 1];
    CordonCause causes[RECORD_CAUSES_MAX];
    size_t n_causes;
} CordonRecord;

/* ---- specs/<job>: the job file, verbatim in "spec"; desired/<job> ---- */

enum { RECORD_SOURCES_MAX = 33 * 129 }; /* size of a text that dataset_sources_format() makes */

typedef struct SpecRecord {
    char *spec;                          /* the job file's text */
    char resume_uri[RECORD_URI_MAX + 1]; /* manifest given to job start --resume; empty: none */
    uint64_t submitted_usec;
    /* 128 random bits, drawn at each submission. They distinguish two jobs of one name. */
    char submission[SUBMISSION_BYTES];
    /* Hashes of empty_text and of each stream's index.json and encoder.json, as submitted; empty: unknown. */
    char sources[RECORD_SOURCES_MAX];
    char by[RECORD_BY_MAX + 1]; /* who submitted the job, self-reported; empty: unknown */
    Hash
        program; /* kind "exec": hash of the text in programs/<job>; zero: the job has no program */
} SpecRecord;

typedef enum DesiredState { DESIRED_RUNNING, DESIRED_STOPPED, DESIRED_DELETED } DesiredState;

typedef struct DesiredRecord {
    DesiredState state;
    int min, max;
    int priority; /* jobs of higher priority get slots first */
    int target;   /* world size of a resize request; 0: as min, max and the slots allow */
    /* The requester and the time of the last change, as the requester reported them; empty and 0: unknown. */
    char by[RECORD_BY_MAX + 1];
    uint64_t asked_usec;
} DesiredRecord;

/* ---- programs/<job>: the job file of a job of kind "exec", written by sdctl with each submission ----
 *
 * A user who may write this record may run programs on the nodes, so it is a kind of its own, with rights of its own. A
 * node runs a program only from here, and only if the file's hash is that of the world's record. */

typedef struct ProgramRecord {
    char *file; /* the job file's text */
    char submission[SUBMISSION_BYTES];
    char by[RECORD_BY_MAX + 1]; /* who submitted the job, self-reported; empty: unknown */
} ProgramRecord;

/* ---- worlds/<job>: written once per generation by the leader ---- */

typedef struct WorldRun { /* consecutive ranks on one node */
    char node[NODE_NAME_MAX + 1];
    uint64_t incarnation; /* incarnation of the node when this world was decided */
    uint64_t slots;       /* bit mask; ranks are assigned to slots in rising order */
} WorldRun;

/* Whether rank 0 first searches the checkpoint folder. Rank 0 does so when no commit is known. Its node writes
 * the checkpoints found into checkpoints/<job>, and the next world resumes from the newest. */
typedef enum ResumeFind {
    FIND_NOTHING, /* do not search: resume as the resume point says */
    FIND_ANY,     /* search; if the folder has no checkpoint, resume as the resume point says */
    FIND_MUST, /* search; the job has saved a checkpoint before, so an empty folder is an error */
} ResumeFind;

typedef struct ResumePoint {
    int64_t step;
    char uri[RECORD_URI_MAX + 1]; /* URI of manifest.json; empty: start at step 0 */
    Hash hash;                    /* hash of manifest.json; zero with adopt: unknown, not checked */
    bool adopt;                   /* the checkpoint was written by another job */
    ResumeFind find;
    char takes_over[RECORD_REQUEST_MAX + 1]; /* copied from CheckpointCommit.takes_over */
} ResumePoint;

typedef struct WorldRecord {
    int64_t generation;
    int size; /* number of ranks */
    WorldRun *runs;
    size_t n_runs;
    ResumePoint resume;
    /* Id of the incident from which this world recovers; empty: the world is a start, a resize or growth. */
    char incident[RECORD_INCIDENT_MAX + 1];
    char reason[RECORD_TEXT_MAX + 1];
    uint64_t decided_usec;
    char submission[SUBMISSION_BYTES]; /* submission of the job's spec */
    CommitMark committed;              /* the newest commit when the world was decided */
    /* Hash of the text in programs/<job>, which the ranks run; zero: the ranks are trainers of sdtrain's own. */
    Hash program;
} WorldRecord;

/* Finds the run and the slot of a rank. Returns -ENOENT when the world has no such rank. */
int world_rank_place(const WorldRecord *world, int rank, size_t *ret_run, int *ret_slot);

/* ---- secrets/<job>: written by the leader in the same transaction as worlds/<job>, so that both records have one mod
 * revision. Only nodes and controllers may read this record. No journal, snapshot or log contains it. ---- */

enum { SECRET_BYTES = 32, SECRET_TEXT_BYTES = 2 * SECRET_BYTES + 1 };

typedef struct SecretRecord {
    int64_t generation;
    char secret[SECRET_TEXT_BYTES]; /* hexadecimal digits; secret_record_clear() wipes them */
} SecretRecord;

/* Words in NodeRecord.features. "secrets": the node reads secrets. "doctor": the node answers "doctor" requests. */
#define FEATURE_SECRETS "secrets"
#define FEATURE_DOCTOR "doctor"
bool node_knows(const NodeRecord *node, const char *feature);
/* Tells whether the list `words`, separated by blanks, contains `word`. */
bool words_have(const char *words, const char *word);

/* ---- phases/<job> ----
 *
 * A node kills all its ranks of a job if the job's phase is pending, stopped, succeeded or failed, if the job pauses,
 * or if worlds/<job> is missing. It also kills ranks of generations older than worlds/<job>. */

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

/* Tells whether a job in this phase occupies the slots of its world. */
static inline bool phase_is_active(JobPhase phase)
{
    return phase >= PHASE_STARTING && phase <= PHASE_STOPPING;
}

const char *job_phase_name(JobPhase phase);

typedef struct PastWorld {
    int64_t generation;
    int size;     /* number of ranks */
    int64_t step; /* the step from which the world resumed */
    uint64_t decided_usec;
    char reason[96]; /* a longer reason is cut */
} PastWorld;

/* The cost of the job so far, in micro-dollars; cost.h has the functions for it. */
typedef struct CostMeter {
    int64_t rate;        /* micro-dollars an hour for the slots of the newest world; 0: no prices */
    uint64_t since_usec; /* spent includes costs up to this time; 0: the job has no slots now */
    int64_t spent;
    int64_t lost; /* the part of spent that failures have cost */
} CostMeter;

/* The job's total time in each kind of phase since its first world was decided, without the present phase. */
typedef struct PhaseSpent {
    uint64_t start_usec, running_usec, recovery_usec;
    uint64_t resize_usec; /* time in the phases resizing and stopping */
    uint64_t idle_usec;   /* time in the phase pending, and between an end and a new start */
} PhaseSpent;

/* The end of a checkpoint's evaluation. */
typedef enum EvalVerdict {
    EVAL_DONE,
    EVAL_FAILED,  /* each of its tries failed */
    EVAL_SKIPPED, /* the checkpoint was removed before its turn */
    EVAL_VERDICTS,
} EvalVerdict;

extern const char *const eval_verdict_names[EVAL_VERDICTS];

typedef struct EvalResult {
    int64_t step, generation; /* of the followed job's commit */
    EvalVerdict verdict;
    uint64_t at_usec; /* when the verdict was decided */
} EvalResult;

/* An element of checkpoints/<job>. */
typedef struct CheckpointCommit {
    int64_t step, generation;
    char uri[RECORD_URI_MAX + 1];
    Hash hash, digest;
    bool struck_out;
    uint64_t at_usec;
    char plans[HASH_TEXT_BYTES]; /* hash of the plan set in use; empty: none, or an older writer */
    /* Id of the `job recover` request that named this commit; its world may take over the folder once. Empty: none. */
    char takes_over[RECORD_REQUEST_MAX + 1];
} CheckpointCommit;

/* The progress of a job that evaluates the checkpoints of another job. */
typedef struct EvalProgress {
    /* Submission of the followed job, whose commits the steps below count; empty: no commit was chosen yet. */
    char submission[SUBMISSION_BYTES];
    CommitMark present; /* the commit whose evaluation has begun, without a verdict; step 0: none */
    int64_t step;       /* each commit up to this step has its verdict, apart from `present` */
    EvalResult results[RECORD_EVALS_MAX]; /* the newest verdicts, oldest first */
    size_t n_results;
    /* Checkpoints that `sdctl job evaluate` has named: step, generation, uri, hash. They come before those of the
     * followed job, oldest request first, and each stays here until its verdict, also while it is `present`. */
    CheckpointCommit asked[RECORD_ASKED_MAX];
    size_t n_asked;
} EvalProgress;

typedef struct PhaseRecord {
    JobPhase phase;
    int64_t generation;
    bool go;    /* this generation may join: the old generation is dead or excluded */
    bool leave; /* rank 0 must finish the step, save and exit, for a resize, drain or stop */
    char reason[RECORD_TEXT_MAX + 1];
    uint64_t since_usec;
    int64_t furthest_step; /* the job's furthest completed step when this generation began */
    int failures_without_progress; /* consecutive generations that did not get past furthest_step */
    double goodput;                /* useful training time / wall time since the start */
    double useful_sec;             /* useful training time before the present world */
    double saving, saving_sec;     /* the parts of goodput and useful_sec spent waiting for saves */
    PhaseSpent spent;
    uint64_t started_usec; /* when the job's first world was decided */
    int growths_in_vain; /* consecutive failed attempts to make the world leave in order to grow */
    uint64_t grown_usec; /* when growth was last planned */
    int64_t tried_revision; /* desired and cordon records up to this revision are handled */
    /* A pause before the next world: nothing runs for this time after since_usec; 0: no pause. */
    uint64_t pause_usec;
    int pauses;               /* consecutive pauses without progress */
    uint64_t store_lost_usec; /* since when store errors have ended generations; 0: they do not */
    /* The newest worlds including the present one, oldest first. */
    PastWorld worlds[RECORD_PAST_WORLDS_MAX];
    size_t n_worlds;
    char submission[SUBMISSION_BYTES]; /* submission of the job's spec */
    CommitMark committed;              /* the newest commit; may lag by about a minute */
    int64_t furthest_resume; /* the furthest step of a resume, even if its commit is struck out */
    char dies_by[RECORD_WAY_MAX + 1]; /* how the job's trainers die on any machine; "": unknown */
    uint64_t dies_usec;               /* when a trainer last died in the way dies_by */
    int64_t serial; /* how often the record was written, so a lower serial marks an older copy */
    CostMeter cost;
    EvalProgress eval; /* of a job of kind "eval" */
} PhaseRecord;

/* Adds usec to the time that the job has spent in this kind of phase. */
static inline void phase_spent_add(PhaseSpent *spent, JobPhase phase, uint64_t usec)
{
    uint64_t *const kinds[PHASE_COUNT] = {
        &spent->idle_usec,     &spent->start_usec,  &spent->running_usec,
        &spent->recovery_usec, &spent->resize_usec, &spent->resize_usec,
        &spent->idle_usec,     &spent->idle_usec,   &spent->idle_usec,
    };
    *kinds[phase] += usec;
}

/* ---- ranks/<job>/<gen>/<node>: written by the node under its lease, only on a change ----
 *
 * After a new world is decided, a node waits until its ranks of the old world are confirmed dead. Then it reports them
 * EXITED in the old generation's record, with a guard on the new world's mod revision. A node in both worlds may set
 * killed_usec in the new record instead. A node with a new lease restores node and ranks records in one transaction. */

typedef enum RankState { RANK_STARTING, RANK_READY, RANK_RUNNING, RANK_EXITED } RankState;

typedef struct RankReport {
    int slot, rank, pid;
    RankState state;
    int exit_code; /* EXITED: exit code, or -signal */
    int64_t step;  /* the newest step reported by the rank */
    int stage;     /* the newest TrainStage reported by the rank */
    bool unnamed;  /* the rank runs a program that names no stage, and `stage` means nothing */
    bool hung;     /* the progress watchdog killed the rank */
    bool killed;   /* the daemon killed the rank on purpose (new world, fence, stop) */
    char text[RECORD_TEXT_MAX + 1]; /* the rank's last message */
    uint64_t at_usec; /* when state last changed: ready, running (first step done) or exited */
    int unmet;        /* 1 + the number of a rank that could not be reached; 0: none */
    bool stuck; /* hung, and the kernel showed it stopped, or waiting for a driver or a disk */
    uint64_t started_usec, ready_usec, joined_usec; /* times of the start's phases; 0: unknown */
} RankReport;

typedef struct RanksRecord {
    char node[NODE_NAME_MAX + 1];
    uint64_t incarnation; /* incarnation of the node's record */
    int64_t generation;
    int64_t world_revision;
    RankReport *ranks;
    size_t n_ranks;
    /* When the previous generation's ranks on this node were confirmed dead; 0: none ran. */
    uint64_t killed_usec;
    int64_t first_step; /* in the record of rank 0's node: the first completed step; 0: none */
    uint64_t first_step_usec;
    bool left;     /* all ranks exited with code 0, on request */
    bool finished; /* the job's last step is done and committed */
} RanksRecord;

/* ---- rendezvous/<job>/<gen> ---- */

typedef struct RendezvousRecord {
    char address[128];
} RendezvousRecord;

/* ---- checkpoints/<job>: appended by rank 0's node, struck out by the leader ---- */

typedef struct CheckpointsRecord {
    CheckpointCommit commits[RECORD_COMMITS_MAX]; /* oldest first */
    size_t n_commits;
    char submission[SUBMISSION_BYTES]; /* submission of the job's spec */
} CheckpointsRecord;

/* Returns the newest commit that is not struck out, or NULL. */
const CheckpointCommit *checkpoints_latest(const CheckpointsRecord *record);
/* Appends a commit. If the record is full, its oldest commit is removed. */
void checkpoints_append(CheckpointsRecord *record, const CheckpointCommit *commit);
/* Returns the mark of the newest commit, even if that commit is struck out. */
static inline CommitMark checkpoints_mark(const CheckpointsRecord *record)
{
    if (record->n_commits == 0)
        return (CommitMark){0};
    const CheckpointCommit *newest = &record->commits[record->n_commits - 1];
    return (CommitMark){.generation = newest->generation, .step = newest->step};
}

/* ---- progress/<job>: written by rank 0's node at most once a second, but immediately for a world's first step ---- */

typedef struct ProgressRecord {
    int64_t generation, step, steps;
    double loss;
    double grad_norm, lr; /* values at the step in `step`; 0 or NAN: unknown */
    double samples_per_sec, step_sec;
    double saving_sec; /* how long rank 0 has waited for saves since this world's first step */
    int64_t samples_seen;
    uint64_t at_usec;
    /* Since when every save has failed; 0: the newest save succeeded, or no save has failed. */
    uint64_t unsaved_since_usec;
    char save_error[RECORD_TEXT_MAX + 1];
    /* Size of the next save and free space for it (room.h); 0: unknown. */
    int64_t save_next_bytes, save_free_bytes;
    /* Since when the ranks have waited for the data of rank waits_rank; 0: they do not wait, or only briefly so far. */
    uint64_t waits_since_usec;
    int waits_rank;
    int64_t diverging_since; /* the step at which divergence began; 0: training does not diverge */
    char diverging[160];     /* a text for people: which value is too large */
    int64_t metrics_lost;    /* number of steps whose metrics are lost */
    int64_t metrics_lost_first, metrics_lost_last; /* the first and last step with lost metrics */
    CommitMark committed; /* the newest commit, written in the transaction of the commit */
} ProgressRecord;

/* ---- incidents/<id> ---- */

typedef enum IncidentState { INCIDENT_OPEN, INCIDENT_RESOLVED } IncidentState;

/* info: the cluster recovered by itself; warning: a person should check; critical: a person must act. */
typedef enum Severity { SEVERITY_INFO, SEVERITY_WARNING, SEVERITY_CRITICAL } Severity;

const char *severity_name(Severity severity);

/* The words of the enums in JSON, indexed by value. */
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
    /* Submission of the job; empty: the incident does not concern a job, or the submission is unknown. */
    char submission[SUBMISSION_BYTES];
    char cause[48]; /* "trainer-died", "node-lost", "hang", "data-corrupt", ... */
    char node[NODE_NAME_MAX + 1];
    int rank; /* -1: unknown */
    int64_t generation, step;
    char evidence[RECORD_TEXT_MAX + 1];
    uint64_t at_usec, resolved_usec;
    bool ended;         /* resolved because the job ended, without a recovery */
    int64_t lost_steps; /* number of steps that must be trained again */
    /* The step reached when the recovery began; 0: unknown, or an earlier incident began the recovery. */
    int64_t reached_step;
    /* Duration of each phase of the recovery; -1: unknown. detect ends when the fault is known, decide when the new
     * world's record is written, stop when the old ranks are dead, start when the new processes run, restore when all
     * ranks are ready. replay lasts from the new world's first step until the old world's last step is repeated. */
    double detect_sec, decide_sec, stop_sec, start_sec, restore_sec, replay_sec;
    uint64_t first_step_usec; /* time of the next world's first step; 0: not yet */
    uint64_t hold_until_usec; /* "nodes-vanished": latest end of the wait for the nodes; else 0 */
    int hold_nodes;           /* "nodes-vanished" only: number of nodes before they vanished */
} IncidentRecord;

/* ---- alerts/<id>: which notifications of incidents/<id> each sink has accepted; written by the leader ----
 * So a change of leader loses no notification. */

typedef enum DeliveryState {
    DELIVERY_SENDING,   /* stored before the first attempt: the sink may have been notified */
    DELIVERY_TRIGGERED, /* the sink has accepted the message that the incident is open */
    DELIVERY_RESOLVED,  /* the sink has accepted the message that the incident is over */
    /* The sink refused the message, or too many attempts failed. Attempts continue at a low rate. */
    DELIVERY_FAILED,
} DeliveryState;

typedef struct Delivery {
    char sink[SINK_NAME_MAX + 1];
    DeliveryState state;
    Severity severity; /* severity in the newest message */
    int attempts;      /* failed attempts since the sink last accepted a message */
    uint64_t at_usec;  /* when this delivery last changed */
    char text[128];    /* why the last attempt failed; empty: it did not fail */
} Delivery;

typedef struct AlertRecord {
    char id[RECORD_INCIDENT_MAX + 1];
    /* The incident's at_usec. A job that is submitted again under its old name repeats incident ids. */
    uint64_t incident_usec;
    int64_t term; /* term of the leader that notifies */
    bool settled; /* the incident is over and no more messages are due */
    Delivery deliveries[RECORD_DELIVERIES_MAX];
    size_t n_deliveries;
} AlertRecord;

/* ---- requests/<id> ---- */

/* A store that nodes must test. */
typedef struct RequestUri {
    char uri[RECORD_URI_MAX + 1];
    bool write;      /* test by writing and reading an object; false: read index.json */
    char marker[64]; /* an object that the requester has put into the store; empty: none */
} RequestUri;

/* A node to which the other nodes must connect. */
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
    /* To a job: "checkpoint", "recover", "evaluate". To a node: "check" runs its probes now; "clear" does so after
     * forgetting the faults that only a reset repairs. To all nodes: "doctor" makes each node test the stores and its
     * machine; the result is the report in health/<node>, and the request gets no answer. To the leader: "forget" a
     * lost node that will not return; "alerts-test"; "uncordon" makes the leader log who uncordoned a node. */
    char kind[24];
    char target[64]; /* name of a job, node or sink; empty with "alerts-test": all sinks */
    char submission[SUBMISSION_BYTES]; /* submission of the job; empty: any job with this name */
    char machine_id[33]; /* only the node with this machine id answers; empty: any machine */
    char answer[RECORD_TEXT_MAX + 1]; /* empty: not answered yet */
    RequestOutcome outcome;           /* outcome of the answer; read by request_outcome() */
    uint64_t at_usec;
    Delivery deliveries[RECORD_DELIVERIES_MAX]; /* for "alerts-test"; written with the answer */
    size_t n_deliveries;
    /* "recover": the commit to resume from; uri empty: the folder's newest. "evaluate": the checkpoint. */
    CheckpointCommit commit;
    RequestUri uris[RECORD_URIS_MAX]; /* "doctor": the stores to test */
    size_t n_uris;
    char by[RECORD_BY_MAX + 1];          /* the requester, self-reported; empty: unknown */
    RequestPeer peers[RECORD_PEERS_MAX]; /* "doctor": the nodes to connect to */
    size_t n_peers;
} RequestRecord;

/* NodeRecord.features: "logs": the node serves log requests; "programs": it runs jobs of kind "exec"; "shared": its
 * etcd user may write every node's record; "evals": its trainer evaluates checkpoints. */
#define FEATURE_LOGS "logs"
#define FEATURE_PROGRAMS "programs"
#define FEATURE_SHARED "shared"
#define FEATURE_EVALS "evals"

/* ---- codecs: source is the key, for error texts; old_text (may be NULL) supplies unknown fields to keep ---- */

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
DECLARE_RECORD(ProgramRecord, program_record)
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
