/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - makes HTML pages of a job and of a cluster, for `sdctl job report` and for the leader's live page.
 *
 * The callers fill these structs from records and metrics, and only this folder draws the pages. The templates job.html
 * and cluster.html share page.css and page.js; template.h describes the marks in templates. A page can be read without
 * its script.
 *
 * Folder:    defaults of the headers here: Threads: any.
 * Ownership: a struct borrows everything that it points to. The caller clears the Page.
 * Units:     *_usec is CLOCK_REALTIME microseconds, 0: unknown; *_sec is seconds; NAN: unknown.
 * Errors:    none.
 */
#pragma once

#include "cluster/eval-record.h"
#include "protocol/grid-notes.h"
#include "protocol/job.h"
#include "report/template.h"

/* A point of the curves: one step, or several consecutive steps that are drawn as one point. */
typedef struct ReportPoint {
    int64_t step;           /* the last step of the point */
    uint64_t usec;          /* when the point's last step was reported */
    double loss, low, high; /* mean, lowest and highest loss */
    double samples_per_sec, grad_norm, lr;
} ReportPoint;

/* A row of a table whose texts the caller has made, for example the costs. */
typedef struct ReportRow {
    const char *name, *text;
} ReportRow;

/* A picture. uri is "data:image/png;base64,...", or NULL for no picture. notes is NULL if its contents are unknown. */
typedef struct ReportPicture {
    const char *uri;
    const GridNotes *notes;
} ReportPicture;

/* The evaluation of one checkpoint. */
typedef struct ReportEval {
    const char *job; /* the job that evaluates */
    int64_t step;    /* of the checkpoint */
    /* "done", "failed" or "skipped"; without a verdict yet "running", or "pending" while no world evaluates it */
    const char *verdict;
    uint64_t at_usec;         /* when it was decided, or when the job's present phase began */
    const EvalRecord *record; /* what the evaluation has reported; NULL: nothing */
} ReportEval;

/* Evaluations of one or several jobs. It owns the records to which the list points; report_evals_clear() frees all. */
typedef struct ReportEvals {
    ReportEval *list;
    size_t n, room;
    EvalRecord **records;
    size_t n_records, room_records;
    size_t n_added; /* so many of the records are of jobs that report_add_evals() has added */
} ReportEvals;

/* Takes the text of a record evals/<job>/<step> of the job that report_add_evals() adds next. A text that does not
 * decode is left out. key is for errors. */
void report_add_results(ReportEvals *to, const char *key, const char *text, size_t n);
/* Adds the evaluations of a job of kind "eval": the verdicts, and then those that have none yet. Results of another
 * submission, or of a step without the verdict "done", are left out. The name is borrowed. */
void report_add_evals(ReportEvals *to, const char *job, const PhaseRecord *phase);
void report_evals_clear(ReportEvals *evals);

/* Returns advice about an incident for the person on call. */
typedef const char *(*ReportAdvice)(const IncidentRecord *incident);

typedef struct ReportJob {
    const char *cluster, *name, *version;
    JobKind kind;
    const char *of; /* kind "eval": the job whose checkpoints it evaluates */
    uint64_t now_usec;
    bool live; /* true: the page is served by the leader and follows the job */

    const PhaseRecord *phase; /* all zero: the job waits for its first world */
    const CheckpointsRecord *checkpoints;
    /* Progress of the present world; NULL: none, or the job has ended. */
    const ProgressRecord *progress;
    const IncidentRecord *const *incidents; /* incidents of this submission, sorted by time */
    size_t n_incidents;
    int64_t step, steps;
    double goodput, saving; /* saving: the part of goodput spent waiting for saves */
    int place, n_waiting;   /* place in the queue; 0: the job does not wait */
    ReportAdvice advice;    /* NULL: no advice */

    const ReportPoint *points; /* sorted by step */
    size_t n_points;
    const char *points_note; /* why there are no points, or which points are missing; "": no note */
    const int64_t *saved;    /* steps of checkpoints */
    size_t n_saved;
    ReportEvals evals; /* of this job's checkpoints; kind "eval": by this job */

    const Job *spec; /* NULL: the job file was not read */
    uint64_t submitted_usec;
    const ReportRow *rows; /* more facts about the job */
    size_t n_rows;
    const char *alone;            /* digest of an undisturbed run of the same job; NULL: unknown */
    ReportPicture grid, pictures; /* samples of the network, and pictures of the data */
} ReportJob;

typedef struct ReportJobLine {
    const char *name, *reason;
    JobPhase phase;
    int ranks, wanted, place; /* place 0: the job does not wait */
    int64_t step, steps;
    double loss, samples_per_sec, to_go_sec, goodput;
} ReportJobLine;

typedef struct ReportNodeLine {
    const char *name, *text; /* text: why a person should check the node; "": no need */
    const char *state;       /* "up", "lost", "drain", ... */
    const char *job;         /* "": the node runs no job */
    int n_slots, n_lost_slots;
    bool up, ill; /* ill: a person should check the node */
} ReportNodeLine;

enum { REPORT_NODES_ALL = 40, REPORT_NODES_MAX = 60 };

typedef struct ReportCluster {
    /* The field `leader` is the name of the controller that serves the page. */
    const char *cluster, *version, *leader;
    int64_t term;
    uint64_t now_usec;
    const char *note;          /* a note about the whole cluster; "": none */
    const ReportJobLine *jobs; /* in the order of the queue */
    size_t n_jobs, n_running, n_waiting;
    /* All nodes, sorted by name. If there are more than REPORT_NODES_ALL, only nodes with `ill` set are listed. */
    const ReportNodeLine *nodes;
    size_t n_nodes, n_up;
    int n_slots, n_free_slots;
    const IncidentRecord *const *incidents; /* open incidents, sorted by time */
    /* The field n_more_incidents is the number of open incidents that are not in the list. */
    size_t n_incidents, n_more_incidents;
    ReportAdvice advice;
    const ReportRow *rows;
    size_t n_rows;
} ReportCluster;

void report_job(const ReportJob *job, Page *ret);
enum { REPORT_WARMUP_BYTES = 160 };
/* Writes a text if a job with this phase and step has ended inside its warm-up; "" if not. spec may be NULL. Returns
 * ret. */
const char *report_warmup(JobPhase phase, int64_t step, const Job *spec,
                          char ret[REPORT_WARMUP_BYTES]);
void report_cluster(const ReportCluster *cluster, Page *ret);
/* Makes a page with a title and a text; link "" means no link. */
void report_words(const char *title, const char *words, const char *link, Page *ret);

/* Tells whether the incident ended a world. Otherwise training continued during the incident (store-trouble,
 * diverging). */
bool report_ended_world(const IncidentRecord *incident);
/* Returns the seconds from the fault to the next world's first completed step; NAN while the incident is open. */
double report_recovery_sec(const IncidentRecord *incident);
