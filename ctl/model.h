/* model.h - the records of one cluster as sdctl sees them: fed by a read or a watch, looked at by
 * the verbs.
 *
 * Ownership: model_new() gives the caller a Model, which owns all records. Pointers that lookups
 * return are valid until the next model_feed(). Units:     as records.h. Errors:    a record that
 * does not decode is kept as a complaint and skipped. Threads:   the main thread.
 */
#pragma once

#include "cluster/keys.h"
#include "cluster/records.h"
#include "ctl/client.h"

#include <jansson.h>

typedef struct ModelJob {
    char name[RECORD_JOB_MAX + 1];
    bool has_spec, has_desired, has_world, has_phase, has_progress;
    SpecRecord spec;
    DesiredRecord desired;
    WorldRecord world;
    PhaseRecord phase;
    CheckpointsRecord checkpoints;
    ProgressRecord progress;
    RanksRecord *ranks; /* of the present generation, and older ones not yet removed */
    size_t n_ranks;
    int64_t desired_revision, spec_revision; /* mod revisions; 0: no record */
} ModelJob;

typedef struct Model {
    char cluster[64];
    ModelJob *jobs; /* by name */
    size_t n_jobs;
    NodeRecord *nodes; /* by name */
    size_t n_nodes;
    CordonRecord *cordons;
    size_t n_cordons;
    IncidentRecord *incidents; /* by time */
    size_t n_incidents;
    char leader[128]; /* value of the leader's key; empty: nobody leads */
    int64_t leader_revision;
    char complaint[256]; /* the last record that did not decode */
} Model;

int model_new(const char *cluster, Model **ret);
Model *model_free(Model *model);
DEFINE_CLEANUP(Model, model_free)

int model_feed(Model *model, const EtcdEvent *event);
/* Reads every record once. */
int model_read(Client *client, Model **ret, Error *err);

ModelJob *model_job(const Model *model, const char *name);
const NodeRecord *model_node(const Model *model, const char *name);
const CordonRecord *model_cordon(const Model *model, const char *node);

/* The report of a rank of the present world, or NULL. */
const RankReport *model_rank(const ModelJob *job, int rank);
/* The job's newest step known to anybody, and of how many; 0 when nothing is known. */
int64_t model_step(const ModelJob *job);

/* The JSON of `job status -o json`; `job list -o json` is an array of it. NULL: out of memory. */
json_t *model_job_json(const Model *model, const ModelJob *job);
