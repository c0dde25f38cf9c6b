/* SPDX-License-Identifier: Apache-2.0 */
/* records.h - what the cluster keeps in etcd: one struct and one codec per kind of record.
 *
 * Keys lie under /sdtrain/<cluster>/, kind first (keys.h). Values are JSON with "v": 2. A reader
 * refuses any other "v" by name of key; fields it does not know are kept by whoever rewrites the
 * record (the *_encode functions take the old text and write over it).
 *
 * Ownership: records are values with fixed arrays or allocated parts that *_clear() frees;
 *            *_decode() overwrites *ret (left empty on failure); *_encode() gives the caller a
 *            string to free.
 * Units:     *_usec is CLOCK_REALTIME microseconds (records cross machines); *_sec seconds.
 * Errors:    -EINVAL with "<key>: <path>: <what is wrong>"; -EPROTONOSUPPORT for another "v".
 * Threads:   any.
 * Source:    docs/internals/etcd.md, "Records".
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/slots.h"
#include "cluster/admission.h"

enum {
    RECORD_VERSION = 2,        /* grows when an older reader would do harm */
    RECORD_VERSION_OLDEST = 2, /* that is still read */
    CLUSTER_NAME_MAX = 63,
    NODE_NAME_MAX = 63,
    RECORD_JOB_MAX = 63,
    RECORD_TEXT_MAX = 255,
    RECORD_URI_MAX = 511,
    RECORD_SLOTS_MAX = SLOTS_MAX, /* slots of one node */
    RECORD_RANKS_MAX = 16384,     /* ranks of one world */
    RECORD_COMMITS_MAX = 16,      /* kept in checkpoints/<job> */
    RECORD_REQUEST_MAX = 39,
    RECORD_INCIDENT_MAX = 95, /* "<job>-<generation>" */
    RECORD_PAST_WORLDS_MAX = 64,
    RECORD_PROBES_MAX = 16,
    RECORD_CAUSES_MAX = 12,     /* that hold one node back */
    RECORD_RUNS_MAX = 8,        /* jobs that a node remembers */
    RECORD_DELIVERIES_MAX = 12, /* sinks that an alert remembers */
    SUBMISSION_BYTES = 33,      /* a submission's id: 32 hex digits and the end */
    SINK_NAME_MAX = 31,
};

/* ---- leader/<lease>: a controller that leads, or waits to; the oldest key leads ---- */

typedef enum LeaderState {
    LEADER_UNTOLD, /* of a version that does not say when it leaves */
    LEADER_UP,
    LEADER_LEFT, /* its key is about to go, in order */
} LeaderState;

typedef struct LeaderDeath {
    char name[128];    /* of the controller that died leading */
    char journal[256]; /* where it recorded what it saw; empty: nowhere */
    uint64_t at_usec;  /* when its key went */
} LeaderDeath;

enum { LEADER_DEATHS_MAX = 2 };

typedef struct LeaderRecord {
    char name[128]; /* of the controller */
    char version[32];
    int max_nodes, max_jobs;       /* that there is room for; more of them are not looked at */
    char admit[ADMISSION_MAX + 1]; /* nodes that get ranks: cluster/admission.h; empty: all */
    char lacks[64];                /* kinds of records that it may not write, blanks between */
    LeaderState state;
    char journal[256]; /* where it records what it sees; empty: nowhere */
    int deaths;        /* leaders that died in a row, on the same records, before it took over */
    int64_t records;   /* digest of what they died on; counts with deaths alone */
    uint64_t still_until_usec; /* it has taken over and decides nothing until then; 0: it decides */
    LeaderDeath before[LEADER_DEATHS_MAX]; /* the newest of those deaths, the older one first */
    size_t n_before;
} LeaderRecord;

/* ---- marks ---- */

/* The newest commit of a job, as records other than checkpoints/<job> remember it. A reader that finds
 * checkpoints/<job> lost, or older than the mark, knows that commits are missing. */
typedef struct CommitMark {
    int64_t generation, step; /* generation 0: nothing was committed */
} CommitMark;

/* Commits come in the order of generations, and of steps within one. */
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
    int64_t generation;           /* of that world */
    uint64_t lost_slots;          /* bit i: slot i holds a process that SIGKILL did not end */
    uint64_t bad_slots;    /* bit i: the device of slot i is not to be used; evidence says why */
    uint64_t startup_usec; /* time that the node's trainers have to be ready; 0: unknown */
    uint64_t memory_bytes; /* memory of the machine, with swap; 0: unknown */
    JobRun runs[RECORD_RUNS_MAX]; /* the entries with told set */
    size_t n_runs;
    char log_dir[512]; /* <log_dir>/<job>/g<generation>/rank<r>.log is what its ranks print */
    /* Words for what the node's version can do and its rights allow, blanks between. */
    char features[64];
} NodeRecord;

/* ---- health/<node>: written by the node when something changes, and now and then for the ages.
 *
 * For people: nothing decides by it. It stays when the node goes. ---- */

typedef struct HealthProbeRecord {
    char name[24];
    NodeVerdict verdict;
    char text[RECORD_TEXT_MAX + 1]; /* what is wrong, or what there is */
    char cure[96];                  /* what makes it go away; empty: nothing is wrong */
    uint64_t bad_slots;
    uint64_t since_usec; /* when the finding became so */
    uint64_t at_usec;    /* when the probe last answered; 0: not yet */
    uint64_t took_usec;  /* how long the last answer took */
    int hangs, failures; /* in a row */
} HealthProbeRecord;

typedef struct HealthRecord {
    char node[NODE_NAME_MAX + 1];
    char machine_id[33];
    NodeVerdict verdict;
    char evidence[RECORD_TEXT_MAX + 1];
    char cure[96];
    uint64_t bad_slots;
    uint64_t since_usec; /* when the verdict became so */
    uint64_t at_usec;    /* when the record was written */
    /* When the node took leave; 0: it did not, so without nodes/<node> the node is lost. */
    uint64_t left_usec;
    HealthProbeRecord probes[RECORD_PROBES_MAX];
    size_t n_probes;
} HealthRecord;

/* ---- cordons/<node>: sdctl and the leader, each its own causes; questions of it: cordon.h ----
 *
 * What holds a node back is a set of causes, told apart by owner, job and machine. Each has a reason
 * and an end of its own, and ends alone. Who writes changes the causes that are its business in what
 * it has read, under a guard on that revision, and puts the others back as they were. The record is
 * removed with the last one. */

typedef enum CordonMode { CORDON_NONE, CORDON_CORDON, CORDON_DRAIN, CORDON_QUARANTINE } CordonMode;

typedef enum CordonOwner {
    CORDON_OPERATOR, /* sdctl node cordon|drain: of whichever machine has the name */
    CORDON_MACHINE,  /* the leader: strikes, a verdict, a slot that is lost */
    CORDON_JOB, /* the leader: one job refuses the machine (numerics), while there is that job */
} CordonOwner;

typedef struct CordonCause {
    CordonOwner owner;
    char job[RECORD_JOB_MAX + 1];      /* CORDON_JOB: the job that refuses the machine */
    char submission[SUBMISSION_BYTES]; /* CORDON_JOB: of that job */
    /* The machine that is meant, under any name; empty: the one that has the node's name. */
    char machine_id[33];
    CordonMode mode; /* CORDON_NONE: strikes are counted, and nothing is held back */
    char reason[RECORD_TEXT_MAX + 1];
    uint64_t since_usec;
    uint64_t until_usec; /* 0: until somebody uncordons */
    int strikes;
} CordonCause;

typedef struct CordonRecord {
    char node[NODE_NAME_MAX + 1];
    CordonCause causes[RECORD_CAUSES_MAX];
    size_t n_causes;
} CordonRecord;

/* ---- specs/<job>: the job file, verbatim in "spec"; desired/<job> ---- */

enum { RECORD_SOURCES_MAX = 33 * 65 }; /* dataset_sources_format() */

typedef struct SpecRecord {
    char *spec;                          /* the job file's text */
    char resume_uri[RECORD_URI_MAX + 1]; /* job start --resume: manifest to adopt; empty: none */
    uint64_t submitted_usec;
    /* 128 random bits, drawn when the job is submitted: a job that is submitted again under its name has others. */
    char submission[SUBMISSION_BYTES];
    /* Hashes of empty_text and of each stream's index.json, as submitted; empty: not told. */
    char sources[RECORD_SOURCES_MAX];
} SpecRecord;

typedef enum DesiredState { DESIRED_RUNNING, DESIRED_STOPPED, DESIRED_DELETED } DesiredState;

typedef struct DesiredRecord {
    DesiredState state;
    int min, max;
    int priority; /* in the queue; more goes first */
    int target;   /* exact world size wanted by a resize; 0: as many as min..max and the slots allow
                 */
} DesiredRecord;

/* ---- worlds/<job>: written once per generation by the leader ---- */

typedef struct WorldRun { /* consecutive ranks on one node */
    char node[NODE_NAME_MAX + 1];
    uint64_t incarnation; /* of the node's record when this world was decided */
    uint64_t slots;       /* bit mask; ranks take them in rising order */
} WorldRun;

/* Where no commit is known rank 0 looks into the checkpoint folder first. What it finds its node writes
 * into checkpoints/<job>, and the next world goes on from there. */
typedef enum ResumeFind {
    FIND_NOTHING, /* the rest says all */
    FIND_ANY,     /* if there is nothing: as the rest says */
    FIND_MUST,    /* there was something: to find nothing is a failure */
} ResumeFind;

typedef struct ResumePoint {
    int64_t step;
    char uri[RECORD_URI_MAX + 1]; /* of manifest.json; empty: start at step 0 */
    Hash hash;                    /* of manifest.json; zero with adopt: not known, not checked */
    bool adopt;                   /* another job's checkpoint */
    ResumeFind find;
    char takes_over[RECORD_REQUEST_MAX + 1]; /* as the commit's */
} ResumePoint;

typedef struct WorldRecord {
    int64_t generation;
    int size; /* ranks */
    WorldRun *runs;
    size_t n_runs;
    ResumePoint resume;
    char incident[RECORD_INCIDENT_MAX +
                  1]; /* id of the incident that made it; empty: start, resize, growth */
    char reason[RECORD_TEXT_MAX + 1];
    uint64_t decided_usec;
    char submission[SUBMISSION_BYTES]; /* the spec's */
    CommitMark committed;              /* when it was decided */
} WorldRecord;

/* Rank -> node and slot. -ENOENT when out of range. */
int world_rank_place(const WorldRecord *world, int rank, size_t *ret_run, int *ret_slot);

/* ---- secrets/<job>: written by the leader in the transaction of a world, so that its mod revision is
 * that world's. Nodes and controllers alone may read it; it goes into no journal, snapshot or log. ---- */

enum { SECRET_BYTES = 32, SECRET_TEXT_BYTES = 2 * SECRET_BYTES + 1 };

typedef struct SecretRecord {
    int64_t generation;
    char secret[SECRET_TEXT_BYTES]; /* hexadecimal digits; secret_record_clear() wipes them */
} SecretRecord;

/* The word in NodeRecord.features of a node that reads secrets. */
#define FEATURE_SECRETS "secrets"
bool node_knows(const NodeRecord *node, const char *feature);
/* Of words with blanks between. */
bool words_have(const char *words, const char *word);

/* ---- phases/<job> ----
 *
 * A node kills what it still runs of a job whose phase is pending, stopped, succeeded or failed, or
 * says that it pauses, of a job without worlds/<job>, and the ranks of every generation older than that. */

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

const char *job_phase_name(JobPhase phase);

typedef struct PastWorld {
    int64_t generation;
    int size;     /* ranks */
    int64_t step; /* that it went on from */
    uint64_t decided_usec;
    char reason[96]; /* cut to fit */
} PastWorld;

typedef struct PhaseRecord {
    JobPhase phase;
    int64_t generation;
    bool go;    /* the old generation is dead or excluded: this one may join */
    bool leave; /* resize, drain, stop: rank 0 is told to finish the step, save and leave */
    char reason[RECORD_TEXT_MAX + 1];
    uint64_t since_usec;
    int64_t furthest_step; /* the job's furthest completed step when this generation began */
    int failures_without_progress; /* generations in a row that did not pass it */
    double goodput;                /* training time that counts / wall time since start */
    double useful_sec;             /* training time that counts, up to since_usec */
    uint64_t started_usec;         /* when the job's first world was decided */
    uint64_t grown_usec;           /* when growth was last planned */
    int64_t tried_revision; /* newest desired or cordon revision that a leave was tried for */
    uint64_t pause_usec; /* nothing runs, and the next world comes so long after since_usec; 0: no
                               pause */
    int pauses;          /* in a row, without progress */
    uint64_t store_lost_usec; /* since when the store costs generations; 0: it does not */
    PastWorld worlds[RECORD_PAST_WORLDS_MAX]; /* the newest, oldest first, with the present one */
    size_t n_worlds;
    char submission[SUBMISSION_BYTES]; /* the spec's */
    CommitMark committed;              /* when this was written, or later */
    int64_t furthest_resume; /* the furthest step that a world went on from, struck out or not */
    int64_t serial;          /* how often it was written: an older copy has a lower one */
} PhaseRecord;

/* ---- ranks/<job>/<gen>/<node>: written by the node under its lease, on change only ----
 *
 * When a new world is decided, a node that still has ranks of an older one reports them EXITED in
 * their own record (guarded by the new world's mod revision) once they are confirmed dead; a node
 * that is in both worlds may instead set killed_usec in the new generation's record. A node that
 * takes a new lease puts its node record and its ranks records back in one transaction. */

typedef enum RankState { RANK_STARTING, RANK_READY, RANK_RUNNING, RANK_EXITED } RankState;

typedef struct RankReport {
    int slot, rank, pid;
    RankState state;
    int exit_code;                  /* EXITED: exit code, or -signal */
    int64_t step;                   /* last (step, stage) it spoke of */
    int stage;                      /* TrainStage */
    bool hung;                      /* the progress watchdog killed it */
    bool killed;                    /* the daemon killed it on purpose (new world, fence, stop) */
    char text[RECORD_TEXT_MAX + 1]; /* its own last words */
    uint64_t at_usec; /* of the last change: ready, running (first step done) or exit */
    int unmet;        /* 1 + the rank that it did not meet when it joined; 0: none */
    uint64_t started_usec, ready_usec, joined_usec; /* phases of recovery; 0 unknown */
} RankReport;

typedef struct RanksRecord {
    char node[NODE_NAME_MAX + 1];
    uint64_t incarnation; /* of the node's record */
    int64_t generation;
    int64_t world_revision;
    RankReport *ranks;
    size_t n_ranks;
    uint64_t killed_usec; /* when the previous generation's ranks on this node were confirmed dead;
                             0: none ran */
    int64_t first_step;   /* rank 0's node: first step this generation completed; 0: none yet */
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
    /* id of the `job recover` that named it: who goes on from it may take the folder over, once; empty: nobody
     * named it */
    char takes_over[RECORD_REQUEST_MAX + 1];
} CheckpointCommit;

typedef struct CheckpointsRecord {
    CheckpointCommit commits[RECORD_COMMITS_MAX]; /* oldest first */
    size_t n_commits;
    char submission[SUBMISSION_BYTES]; /* the spec's */
} CheckpointsRecord;

/* The newest that is not struck out, or NULL. */
const CheckpointCommit *checkpoints_latest(const CheckpointsRecord *record);
/* Appends, dropping the oldest beyond RECORD_COMMITS_MAX. */
void checkpoints_append(CheckpointsRecord *record, const CheckpointCommit *commit);
/* Of the newest commit, struck out or not. */
static inline CommitMark checkpoints_mark(const CheckpointsRecord *record)
{
    if (record->n_commits == 0)
        return (CommitMark){0};
    const CheckpointCommit *newest = &record->commits[record->n_commits - 1];
    return (CommitMark){.generation = newest->generation, .step = newest->step};
}

/* ---- progress/<job>: rank 0's node, at most 1/s (and at once for a world's first step) ---- */

typedef struct ProgressRecord {
    int64_t generation, step, steps;
    double loss;
    double samples_per_sec, step_sec;
    int64_t samples_seen;
    uint64_t at_usec;
    uint64_t unsaved_since_usec; /* checkpoints fail since then; 0: they do not */
    char save_error[RECORD_TEXT_MAX + 1];
    uint64_t waits_since_usec; /* the ranks wait for the data of one of them since then; 0: they do
                                  not, or not for long */
    int waits_rank;
    /* so many steps of the history have no metrics any more, between these; 0: all have */
    int64_t metrics_lost, metrics_lost_first, metrics_lost_last;
    CommitMark committed; /* written in the commit's own transaction */
} ProgressRecord;

/* ---- incidents/<id> ---- */

typedef enum IncidentState { INCIDENT_OPEN, INCIDENT_RESOLVED } IncidentState;

/* info: recovered alone, as it is built to; warning: worth a look; critical: somebody must act, or
 * hardware has failed. */
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
    char id[RECORD_INCIDENT_MAX + 1]; /* "<job>-<generation>": of the world that failed */
    IncidentState state;
    Severity severity;
    char job[RECORD_JOB_MAX + 1];
    char submission[SUBMISSION_BYTES]; /* of the job; empty: of none */
    /* "trainer-died", "node-lost", "hang", "non-finite-loss", "data-corrupt", ... */
    char cause[48];
    char node[NODE_NAME_MAX + 1];
    int rank; /* -1 unknown */
    int64_t generation, step;
    char evidence[RECORD_TEXT_MAX + 1];
    uint64_t at_usec, resolved_usec;
    bool ended; /* resolved because its job ended: nothing was recovered */
    int64_t lost_steps;
    /* -1 unknown. detect: fault to known; decide: to the new world's record; stop: to old ranks
     * dead; start: to processes up; restore: to all ready; replay: from first step to where the old
     * world was. */
    double detect_sec, decide_sec, stop_sec, start_sec, restore_sec, replay_sec;
    /* Realtime of the first step that the next world completed; 0: not yet. */
    uint64_t first_step_usec;
} IncidentRecord;

/* ---- alerts/<id>: what of incidents/<id> has been told to which sink; written by the leader ----
 *
 * The incident is what must be told, and this is how far that has come: so no incident is without
 * its page, whenever the leader changes. */

typedef enum DeliveryState {
    DELIVERY_SENDING,   /* stored before the first try: the sink may have heard */
    DELIVERY_TRIGGERED, /* it has accepted that the incident is open */
    DELIVERY_RESOLVED,  /* and that it is over */
    DELIVERY_FAILED, /* refused, or tried too often; tried on, slowly, while the incident is open */
} DeliveryState;

typedef struct Delivery {
    char sink[SINK_NAME_MAX + 1];
    DeliveryState state;
    Severity severity; /* as told */
    int attempts;      /* that failed since the sink last accepted something */
    uint64_t at_usec;  /* of the last change */
    char text[128];    /* why the last attempt failed; empty: it did not */
} Delivery;

typedef struct AlertRecord {
    char id[RECORD_INCIDENT_MAX + 1];
    /* The incident's at_usec: ids of a job that was born again come again. */
    uint64_t incident_usec;
    int64_t term; /* of the leader that tells */
    bool settled; /* the incident is over and nothing is left to tell anybody */
    Delivery deliveries[RECORD_DELIVERIES_MAX];
    size_t n_deliveries;
} AlertRecord;

/* ---- requests/<id> ---- */

typedef struct RequestRecord {
    char id[RECORD_REQUEST_MAX + 1];
    /* Of a job: "checkpoint", "recover". Of a node: "check" runs its probes now; "clear" first forgets what only a
     * reset would cure; "forget", which the leader answers, of a lost one that does not come back. "alerts-test". */
    char kind[24];
    char target[64];                   /* job, node or sink; of a sink, empty: all */
    char submission[SUBMISSION_BYTES]; /* of the job that is meant; empty: whichever has the name */
    /* Of a node: it answers only if it is this machine; empty: whichever it is. */
    char machine_id[33];
    char answer[RECORD_TEXT_MAX + 1]; /* empty: not answered yet */
    uint64_t at_usec;
    Delivery deliveries[RECORD_DELIVERIES_MAX]; /* of "alerts-test", with the answer */
    size_t n_deliveries;
    CheckpointCommit commit; /* of "recover": to go on from; uri empty: whatever the folder holds */
} RequestRecord;

/* The answer to "check" and "clear" begins with the node's verdict: "healthy", "suspect: ...". False
 * when it does not, or is not there yet. */
bool request_verdict(const RequestRecord *request, NodeVerdict *ret);

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
