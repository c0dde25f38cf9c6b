/* SPDX-License-Identifier: Apache-2.0 */
/* survey.h - the core's state in numbers, for metrics and status. These functions only read the state.
 *
 * Errors: none. Threads: one at a time.
 * Ownership: names are borrowed from the Cluster until its next step.
 * Units:     *_usec is CLOCK_REALTIME microseconds, 0 unknown; *_sec seconds.
 */
#pragma once

#include "controller/core/cluster.h"

typedef struct JobSurvey {
    const char *name;
    JobPhase phase;
    int64_t generation;
    int world_size;  /* ranks of the present world; 0: there is none */
    int wanted_size; /* ranks that the world would have with enough slots; 0: the job has ended */
    int ranks[RANK_EXITED + 1]; /* number of ranks of the present generation, by RankState */
    int64_t steps, furthest_step;
    bool has_progress;          /* the next five fields are from progress/<job> */
    int64_t step, samples_seen; /* reported by the present or an earlier generation */
    double loss, samples_per_sec, step_sec;
    uint64_t unsaved_usec; /* since when the store accepts no checkpoint; 0: it accepts them */
    uint64_t waits_usec;   /* since when a rank waits for data; 0: none does */
    double goodput; /* share of the time in which steps that count were trained; -1: unknown */
    double saving;  /* the part of goodput in which the job waited for saves */
    bool has_checkpoint;
    int64_t checkpoint_step;
    uint64_t checkpoint_usec; /* when the checkpoint was committed */
    uint64_t phase_usec;      /* since when the job has this phase */
    int failures_without_progress, max_failures;
    CostMeter cost; /* the cost meter, advanced to the present time */
} JobSurvey;

/* Records of a job, as last seen. */
typedef struct JobRecords {
    const PhaseRecord *phase; /* all zero without a record */
    const CheckpointsRecord *checkpoints;
    /* The progress of the present world; NULL: there is none, or the job has ended. */
    const ProgressRecord *progress;
    const JobFacts *facts; /* all zero without a job file */
    bool waits;            /* the job waits for its first or next world */
} JobRecords;

typedef struct NodeSurvey {
    const char *name, *job; /* job: the job whose ranks the node runs; "": none */
    const char *evidence;   /* why the node's verdict is not healthy; "": unknown */
    const char *reason;     /* why the node is cordoned; "": it is not cordoned */
    bool up, absent;        /* if both are false, the node's daemon was stopped */
    bool cordoned;          /* no rank of any job is placed on the node */
    NodeVerdict verdict;
    CordonMode mode;
    int strikes, n_slots, n_lost_slots;
} NodeSurvey;

/* These functions fill *ret about the i-th job in the order of the queue, or the i-th node in the order of names. They
 * return false if there is no i-th job or node. */
bool cluster_survey_job(const Cluster *c, int i, JobSurvey *ret);
bool cluster_survey_records(const Cluster *c, int i, JobRecords *ret);
bool cluster_survey_node(const Cluster *c, int i, NodeSurvey *ret);
/* Returns how many slots a new job could take. */
int cluster_free_slots(const Cluster *c);
/* Sets *ret to the incident in the i-th place, or to NULL if that place is free. Returns false if there are no more
 * places. */
bool cluster_survey_incident(const Cluster *c, int i, const IncidentRecord **ret);
/* Returns the incident as last seen; NULL: there is none. */
const IncidentRecord *cluster_find_incident(const Cluster *c, const char *id);
/* Returns the i-th cause that an incident can have; NULL: there are no more. */
const char *cluster_cause(int i);
