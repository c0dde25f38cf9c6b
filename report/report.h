/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - a job and a cluster as pages of HTML, for `sdctl job report` and for the leader's live page.
 *
 * The makers of these structs gather what records and metrics say; only this folder draws the pages. job.html and
 * cluster.html are the templates, both share page.css and page.js; template.h says how places are filled. A page can
 * be read without its script.
 *
 * Ownership: a struct borrows all that it points to. The caller clears the Page.
 * Units:     *_usec is CLOCK_REALTIME microseconds, 0 unknown; *_sec seconds; NAN is an unknown double.
 * Errors:    none.
 * Threads:   any.
 */
#pragma once

#include "cluster/records.h"
#include "protocol/grid-notes.h"
#include "report/template.h"

/* One step, or several in a row that are drawn as one. */
typedef struct ReportPoint {
    int64_t step;           /* the last of them */
    uint64_t usec;          /* when it was reported */
    double loss, low, high; /* mean, least and greatest loss */
    double samples_per_sec, grad_norm, lr;
} ReportPoint;

/* A line of a table that somebody else has words for, as what a job costs. */
typedef struct ReportRow {
    const char *name, *text;
} ReportRow;

/* uri: "data:image/png;base64,..."; NULL: there is none. notes NULL: nobody knows what it shows. */
typedef struct ReportPicture {
    const char *uri;
    const GridNotes *notes;
} ReportPicture;

/* Tells the person on call what to do. */
typedef const char *(*ReportAdvice)(const IncidentRecord *incident);

typedef struct ReportJob {
    const char *cluster, *name, *version;
    uint64_t now_usec;
    bool live; /* the page is served, and follows the job */

    const PhaseRecord *phase; /* zero: the job waits for its first world */
    const CheckpointsRecord *checkpoints;
    const ProgressRecord *progress; /* of the present world; NULL: none, or the job has ended */
    const IncidentRecord *const *incidents; /* of this submission, by time */
    size_t n_incidents;
    int64_t step, steps;
    double goodput, saving; /* saving: the part of goodput that waited for saves */
    int place, n_waiting;   /* in the queue; 0: it does not wait */
    ReportAdvice advice;    /* NULL: nothing is advised */

    const ReportPoint *points; /* by step */
    size_t n_points;
    const char *points_note; /* why there are none, or which are missing; "": nothing to say */
    const int64_t *saved;    /* steps of checkpoints */
    size_t n_saved;

    const Job *spec; /* NULL: not read */
    uint64_t submitted_usec;
    const ReportRow *rows; /* more facts */
    size_t n_rows;
    const char *alone;            /* digest of the same job run alone; NULL: not told */
    ReportPicture grid, pictures; /* what the network draws, and what is in the data */
} ReportJob;

typedef struct ReportJobLine {
    const char *name, *reason;
    JobPhase phase;
    int ranks, wanted, place; /* place 0: it does not wait */
    int64_t step, steps;
    double loss, samples_per_sec, to_go_sec, goodput;
} ReportJobLine;

typedef struct ReportNodeLine {
    const char *name, *text; /* text: why the node needs a look; "": it does not */
    const char *state;       /* "up", "lost", "drain", ... */
    const char *job;         /* "": it runs none */
    int n_slots, n_lost_slots;
    bool up, ill; /* ill: it needs a look */
} ReportNodeLine;

enum { REPORT_NODES_ALL = 40, REPORT_NODES_MAX = 60 };

typedef struct ReportCluster {
    const char *cluster, *version, *leader; /* leader: this controller's name */
    int64_t term;
    uint64_t now_usec;
    const char *note;          /* what holds for the cluster as a whole; "": nothing */
    const ReportJobLine *jobs; /* in the order of the queue */
    size_t n_jobs, n_running, n_waiting;
    /* All nodes, in the order of names: up to REPORT_NODES_ALL are listed, else those that need a look. */
    const ReportNodeLine *nodes;
    size_t n_nodes, n_up;
    int n_slots, n_free_slots;
    const IncidentRecord *const *incidents; /* open ones, by time */
    size_t n_incidents, n_more_incidents;   /* more: open ones beyond these */
    ReportAdvice advice;
    const ReportRow *rows;
    size_t n_rows;
} ReportCluster;

void report_job(const ReportJob *job, Page *ret);
enum { REPORT_WARMUP_BYTES = 160 };
/* Says that a job which has ended at that step did so inside its warm-up; "": it did not. spec may be NULL. Returns
 * ret. */
const char *report_warmup(JobPhase phase, int64_t step, const Job *spec,
                          char ret[REPORT_WARMUP_BYTES]);
void report_cluster(const ReportCluster *cluster, Page *ret);
/* A page of a title and some words; link "": none. */
void report_words(const char *title, const char *words, const char *link, Page *ret);

/* Tells whether the incident ended a world; if not, training went on beside it (store-trouble, diverging). */
bool report_ended_world(const IncidentRecord *incident);
/* Returns the seconds from the fault to the first step that the next world completed; NAN while open. */
double report_recovery_sec(const IncidentRecord *incident);
