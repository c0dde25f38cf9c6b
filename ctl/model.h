/* model.h - the records of one cluster as sdctl sees them: fed by a read or a watch, looked at by
 * the verbs.
 *
 * Ownership: model_new() and model_read() give the caller a Model, which owns all records. Pointers
 *            that lookups return are valid until the next model_feed().
 * Units:     as records.h.
 * Errors:    a record that does not decode is skipped and kept as a complaint, which names key,
 *            field and value.
 * Threads:   the main thread.
 */
#pragma once

#include "cluster/keys.h"
#include "cluster/records.h"
#include "ctl/client.h"

#include <jansson.h>

typedef struct ModelJob {
    char name[RECORD_JOB_MAX + 1];
    bool has_foreign_spec; /* of another version */
    bool has_spec, has_desired, has_world, has_phase, has_progress;
    bool bad_desired, bad_phase; /* there, and not to be read here: not to be changed either */
    char *desired_text;          /* as read, with what is not known here; NULL: none */
    SpecRecord spec;
    DesiredRecord desired;
    WorldRecord world;
    PhaseRecord phase;
    CheckpointsRecord checkpoints;
    ProgressRecord progress;
    RanksRecord *ranks; /* of the present generation, and older ones not yet removed */
    size_t n_ranks;
    int64_t arrival; /* create revision of the spec: its age in the queue */
    int64_t desired_revision, spec_revision, world_revision; /* mod revisions; 0: no record */
} ModelJob;

enum { MODEL_COMPLAINTS_MAX = 8, MODEL_CANDIDATES_MAX = 8 };

typedef struct Candidate { /* a controller that leads or waits to */
    char key[KEY_MAX];
    LeaderRecord record;
    int64_t create_revision;
} Candidate;

typedef struct Model {
    char cluster[64];
    ModelJob *jobs; /* by name */
    size_t n_jobs;
    NodeRecord *nodes; /* by name */
    size_t n_nodes;
    CordonRecord *cordons;
    size_t n_cordons;
    HealthRecord *health; /* of nodes that are here, and of those that are gone */
    size_t n_health;
    IncidentRecord *incidents; /* by time */
    size_t n_incidents;
    AlertRecord *alerts;
    size_t n_alerts;
    Candidate candidates[MODEL_CANDIDATES_MAX]; /* the first one leads */
    size_t n_candidates;
    RequestRecord *requests;
    size_t n_requests;
    char complaints[MODEL_COMPLAINTS_MAX][256]; /* the first records that did not decode */
    size_t n_complaints;                        /* of all */
} Model;

int model_new(const char *cluster, Model **ret);
Model *model_free(Model *model);
DEFINE_CLEANUP(Model, model_free)

int model_feed(Model *model, const EtcdEvent *event);
/* Reads every record once. */
int model_read(CtlClient *client, Model **ret, Error *err);
/* The same over a connection of its own. */
int model_open(const ClientOptions *options, Model **ret, Error *err);

ModelJob *model_job(const Model *model, const char *name);
/* Its world or phase is there and its job file is not, or cannot be read: nothing is decided about it. */
bool model_has_lost_spec(const ModelJob *job);
/* What people can be told of, with its job file or without. */
bool model_is_shown(const ModelJob *job);
/* As its records say, whichever are there. */
const char *model_submission(const ModelJob *job);
/* Why it is in its phase, or what it lacks and what to do. The text is the caller's. */
enum { MODEL_REASON_BYTES = 400 };
const char *model_reason(const ModelJob *job, char ret[MODEL_REASON_BYTES]);
/* One that is shown, or -ENOENT with a text for people. */
int model_find_any_job(const Model *model, const char *name, ModelJob **ret, Error *err);
/* The same, with its job file. */
int model_find_job(const Model *model, const char *name, ModelJob **ret, Error *err);
/* The leader's list lets it in, as far as that is known. */
bool model_is_admitted(const Model *model, const NodeRecord *node);
const NodeRecord *model_node(const Model *model, const char *name);
const CordonRecord *model_cordon(const Model *model, const char *node);
/* What holds the machine of that name back most, for that job or (NULL) for all; NULL: nothing. */
const CordonCause *model_cause(const Model *model, const char *node, const char *job);
const HealthRecord *model_health(const Model *model, const char *node);

/* How far an incident has been told, or NULL while it is not known. */
const AlertRecord *model_alert(const Model *model, const IncidentRecord *incident);

/* What does not fit the leader's limits, which does not look at it. */
typedef struct Crowd {
    int jobs, max_jobs, ended; /* of the jobs; max_jobs 0: nobody leads, or it does not say */
    int nodes, max_nodes;
} Crowd;
Crowd model_crowd(const Model *model);

/* Among the jobs that wait, in the order of the queue, from 1; 0: it does not wait. */
int model_place(const Model *model, const ModelJob *job, int *ret_of);

/* The report of a rank of the present world, or NULL. */
const RankReport *model_rank(const ModelJob *job, int rank);
/* The step that the present world goes on from, as its ranks or the history say; -1: nobody has said it yet
 * (of another job's checkpoint, before it was restored). */
int64_t model_resumed_step(const ModelJob *job);
/* The job's newest step known to anybody, and of how many; 0 when nothing is known. */
int64_t model_step(const ModelJob *job);
JobPhase model_phase(const ModelJob *job);
/* Stopped, succeeded or failed: nothing happens any more unless somebody asks for it. */
bool model_has_ended(const ModelJob *job);
/* Training time that counts / wall time since the first world; NAN while unknown. */
double model_goodput(const ModelJob *job);
/* From the fault to the first step that the next world completed; NAN while open. */
double model_recovery_sec(const IncidentRecord *incident);

/* Not of a job that had its name before. */
bool model_is_incident_of(const IncidentRecord *incident, const ModelJob *job);
/* It cost a world; else training went on beside it (store-trouble). */
bool model_ended_world(const IncidentRecord *incident);
/* What rank 0 of the present world last said; NULL: nothing, or the job has ended. */
const ProgressRecord *model_progress(const ModelJob *job);
/* Realtime of the next try after a failure; 0: none is waited for. */
uint64_t model_next_try_usec(const ModelJob *job);

/* The JSON of `job status -o json`; `job list -o json` is an array of it. NULL: out of memory. */
json_t *model_job_json(const Model *model, const ModelJob *job);
json_t *model_incident_json(const IncidentRecord *incident);
