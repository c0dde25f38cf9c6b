/* survey.h - what the core knows, in numbers for whoever watches; reads alone.
 *
 * Ownership: names are borrowed from the Cluster until its next step.
 * Units:     *_usec is CLOCK_REALTIME microseconds, 0 unknown; *_sec seconds.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/cluster.h"

typedef struct JobSurvey {
    const char *name;
    JobPhase phase;
    int64_t generation;
    int world_size, wanted_size; /* ranks; wanted: what it would have if there were slots; 0 when
                                    it has ended */
    int ranks[RANK_EXITED + 1];  /* of the present generation, by RankState */
    int64_t steps, furthest_step;
    bool has_progress; /* of the present or an earlier generation; then: */
    int64_t step, samples_seen;
    double loss, samples_per_sec, step_sec;
    uint64_t unsaved_usec, waits_usec; /* of the present generation: since when; 0: it is well */
    double goodput;                    /* -1 unknown */
    bool has_checkpoint;
    int64_t checkpoint_step;
    uint64_t checkpoint_usec; /* when it was committed */
    uint64_t phase_usec;      /* since when it has its phase */
    int failures_without_progress, max_failures;
} JobSurvey;

typedef struct NodeSurvey {
    const char *name;
    bool up, absent; /* neither: it has taken leave */
    bool cordoned;   /* no rank of any job is placed there */
    NodeVerdict verdict;
    CordonMode mode;
    int strikes, n_slots, n_lost_slots;
} NodeSurvey;

/* The i-th job in order of arrival, the i-th node in order of names; false: there are no more. */
bool cluster_survey_job(const Cluster *c, int i, JobSurvey *ret);
bool cluster_survey_node(const Cluster *c, int i, NodeSurvey *ret);
/* That a new job could take. */
int cluster_free_slots(const Cluster *c);

/* As last seen; NULL: there is none. */
const IncidentRecord *cluster_find_incident(const Cluster *c, const char *id);
/* The i-th cause that an incident can have; NULL: no more. */
const char *cluster_cause(int i);
