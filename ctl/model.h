/* SPDX-License-Identifier: Apache-2.0 */
/* model.h - the decoded records of one cluster. A read or a watch of etcd feeds them, and verbs use them.
 *
 * Ownership: model_new() and model_read() give the caller a Model, which owns all records. Pointers that lookups return
 *            are valid until the next model_feed().
 * Units:     as records.h.
 * Errors:    a record that does not decode is skipped and kept as a complaint, which names key, field and value.
 */
#pragma once

#include "cluster/keys.h"
#include "cluster/records.h"
#include "ctl/client.h"

#include <jansson.h>

typedef struct ModelJob {
    char name[RECORD_JOB_MAX + 1];
    bool has_foreign_spec; /* the spec record has another version */
    bool has_spec, has_desired, has_world, has_phase, has_progress;
    bool bad_desired, bad_phase; /* the record does not decode, so it must not be changed */
    char *desired_text; /* text of the desired record, unknown fields included; NULL: no record */
    SpecRecord spec;
    DesiredRecord desired;
    WorldRecord world;
    PhaseRecord phase;
    CheckpointsRecord checkpoints;
    ProgressRecord progress;
    RanksRecord *ranks; /* all ranks records of the job, also of past generations */
    size_t n_ranks;
    int64_t arrival; /* create revision of the spec, which orders the queue */
    int64_t desired_revision, spec_revision, world_revision; /* mod revisions; 0: no record */
} ModelJob;

enum { MODEL_COMPLAINTS_MAX = 8, MODEL_CANDIDATES_MAX = 8 };

/* A controller that leads or waits to lead. */
typedef struct Candidate {
    char key[KEY_MAX];
    LeaderRecord record;
    int64_t create_revision;
} Candidate;

typedef struct Model {
    char cluster[64];
    ModelJob *jobs; /* sorted by name */
    size_t n_jobs;
    NodeRecord *nodes; /* sorted by name */
    size_t n_nodes;
    CordonRecord *cordons;
    size_t n_cordons;
    HealthRecord *health; /* records of present and of former nodes */
    size_t n_health;
    IncidentRecord *incidents; /* sorted by time */
    size_t n_incidents;
    AlertRecord *alerts;
    size_t n_alerts;
    Candidate candidates[MODEL_CANDIDATES_MAX]; /* the first candidate is the leader */
    size_t n_candidates;
    RequestRecord *requests;
    size_t n_requests;
    /* errors of the first records that did not decode */
    char complaints[MODEL_COMPLAINTS_MAX][256];
    size_t n_complaints; /* number of records that did not decode; may exceed the array */
} Model;

Model *model_new(const char *cluster);
Model *model_free(Model *model);
DEFINE_CLEANUP(Model, model_free)

/* Stores the record of one event. Always returns 0, so that a ClientEventHandler can return the result. */
int model_feed(Model *model, const EtcdEvent *event);
/* Reads every record once. */
int model_read(CtlClient *client, Model **ret, Error *err);
/* Works as model_read(), but opens its own connection. */
int model_open(const ClientOptions *options, Model **ret, Error *err);

ModelJob *model_job(const Model *model, const char *name);
/* Tells whether the job has a world or phase but no readable job file. The leader makes no decisions about such a
 * job. */
bool model_has_lost_spec(const ModelJob *job);
/* Tells whether verbs show the job: it must have a job file, or have lost its job file. */
bool model_is_shown(const ModelJob *job);
/* Returns the submission's id from the first existing record: the spec, the phase or the world. */
const char *model_submission(const ModelJob *job);
/* model_reason() tells why the job is in its phase, or which record the job lacks and what to do. Returns ret. */
enum { MODEL_REASON_BYTES = 400 };
const char *model_reason(const ModelJob *job, char ret[MODEL_REASON_BYTES]);
/* Finds a job that `sdctl job list` shows, or returns -ENOENT with an error text. */
int model_find_any_job(const Model *model, const char *name, ModelJob **ret, Error *err);
/* Finds a job that has a job file, or returns -ENOENT with an error text. */
int model_find_job(const Model *model, const char *name, ModelJob **ret, Error *err);
/* Returns a node whose etcd user may write every node's record, if the leader admits all nodes; NULL: none. */
const NodeRecord *model_shared_user(const Model *m);
/* Tells whether the leader's list admits the node. Without a known list, the answer is yes. */
bool model_is_admitted(const Model *model, const NodeRecord *node);
const NodeRecord *model_node(const Model *model, const char *name);
const CordonRecord *model_cordon(const Model *model, const char *node);
/* Returns the strongest cause that keeps the node's machine from running this job, or with job NULL any job. Returns
 * NULL if there is no cause. */
const CordonCause *model_cause(const Model *model, const char *node, const char *job);
const HealthRecord *model_health(const Model *model, const char *node);

/* Returns the record of the incident's notifications, or NULL while there is none. */
const AlertRecord *model_alert(const Model *model, const IncidentRecord *incident);

/* Numbers of jobs and nodes, and the leader's limits, beyond which the leader ignores jobs and nodes. */
typedef struct Crowd {
    int jobs, max_jobs; /* max_jobs 0: no leader, or its limit is unknown */
    int ended;          /* how many of the jobs have ended */
    int nodes, max_nodes;
} Crowd;
Crowd model_crowd(const Model *model);

/* Returns the job's place in the queue of the *ret_of waiting jobs, from 1; 0: the job does not wait. */
int model_place(const Model *model, const ModelJob *job, int *ret_of);

/* Returns the report of a rank of the present world, or NULL. */
const RankReport *model_rank(const ModelJob *job, int rank);
/* Returns the step from which the present world resumed, as its ranks or the phase record report it. -1: unknown so
 * far, because ranks have not yet restored the checkpoint of another job. */
int64_t model_resumed_step(const ModelJob *job);
/* Returns the newest step in any record of the job; 0: none. */
int64_t model_step(const ModelJob *job);
JobPhase model_phase(const ModelJob *job);
/* Tells whether the job has stopped, succeeded or failed. Such a job changes only if an operator acts. */
bool model_has_ended(const ModelJob *job);
/* Tells whether the job runs a program that is not sdtrain's own. */
bool model_is_program(const ModelJob *job);
/* Returns the job's kind as in job files: "train", "exec" or "eval". */
const char *model_kind(const ModelJob *job);
/* Refuses such a job with -EINVAL: only its program can read its checkpoints. */
int model_refuse_program(const ModelJob *job, Error *err);
/* Returns the useful training time / wall time since the first world; NAN if unknown. */
double model_goodput(const ModelJob *job);
/* Returns the part of the wall time since the first world in which ranks waited for saves. The goodput includes this
 * part. */
double model_saving(const ModelJob *job);
/* Returns the seconds from the fault to the next world's first completed step; NAN while the incident is open. */
double model_recovery_sec(const IncidentRecord *incident);

/* Tells whether the incident belongs to this submission of the job, not to an earlier job of the same name. */
bool model_is_incident_of(const IncidentRecord *incident, const ModelJob *job);
/* Tells whether the incident ended a world. Otherwise training continued during the incident (store-trouble,
 * diverging). */
bool model_ended_world(const IncidentRecord *incident);
/* Returns the newest progress of rank 0 of the present world; NULL: none, or the job has ended. */
const ProgressRecord *model_progress(const ModelJob *job);
/* Returns the realtime of the next attempt after a failure; 0: no attempt is planned. */
uint64_t model_next_try_usec(const ModelJob *job);
