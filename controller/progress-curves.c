/* SPDX-License-Identifier: Apache-2.0 */
/* progress-curves.c - see progress-curves.h. */
#include "controller/progress-curves.h"

#include "base/memory.h"
#include "cluster/keys.h"

#include <math.h>
#include <string.h>

typedef struct SeenJob {
    char name[RECORD_JOB_MAX + 1]; /* empty: the entry is free */
    ReportPoint points[SEEN_POINTS_MAX];
    int width[SEEN_POINTS_MAX]; /* number of reports in each point */
    size_t n;
    int wide;                       /* number of reports that a point has room for */
    SeenEval evals[SEEN_EVALS_MAX]; /* sorted by step */
    size_t n_evals;
} SeenJob;

struct Seen {
    SeenJob **jobs; /* a free place is NULL */
    int n_jobs;
};

static int find_place(const Seen *s, const char *name)
{
    for (int i = 0; i < s->n_jobs; i++)
        if (s->jobs[i] && strcmp(s->jobs[i]->name, name) == 0)
            return i;
    return -1;
}

static SeenJob *take_place(Seen *s, const char *name)
{
    int i = find_place(s, name);
    if (i >= 0)
        return s->jobs[i];
    for (i = 0; i < s->n_jobs && s->jobs[i]; i++)
        ;
    if (i == s->n_jobs)
        return NULL;
    s->jobs[i] = memory_new(SeenJob);
    s->jobs[i]->wide = 1;
    (void)snprintf(s->jobs[i]->name, sizeof(s->jobs[i]->name), "%s", name);
    return s->jobs[i];
}

static SeenJob *job_forget(SeenJob *j)
{
    for (size_t i = 0; j && i < j->n_evals; i++)
        free(j->evals[i].text);
    free(j);
    return NULL;
}

/* Merges a value of two neighbouring points: returns the mean, or the known value if only one value is known. */
static double mean(double a, int n_a, double b, int n_b)
{
    if (!isfinite(a) || !isfinite(b))
        return isfinite(a) ? a : b;
    return (a * n_a + b * n_b) / (n_a + n_b);
}

static void join(ReportPoint *to, int *width, const ReportPoint *p, int n)
{
    to->loss = mean(to->loss, *width, p->loss, n);
    to->samples_per_sec = mean(to->samples_per_sec, *width, p->samples_per_sec, n);
    to->grad_norm = mean(to->grad_norm, *width, p->grad_norm, n);
    to->lr = mean(to->lr, *width, p->lr, n);
    to->low = fmin(to->low, p->low); /* fmin() ignores NAN */
    to->high = fmax(to->high, p->high);
    to->step = p->step;
    to->usec = p->usec;
    *width += n;
}

static void halve(SeenJob *j)
{
    size_t n = 0;
    for (size_t i = 0; i < j->n; i += 2) {
        j->points[n] = j->points[i];
        j->width[n] = j->width[i];
        if (i + 1 < j->n)
            join(&j->points[n], &j->width[n], &j->points[i + 1], j->width[i + 1]);
        n++;
    }
    j->n = n;
    j->wide *= 2;
}

static double known(double value) { return value > 0 ? value : NAN; }

static void note_progress(Seen *s, const char *job, const ProgressRecord *p)
{
    SeenJob *j = p->step > 0 ? take_place(s, job) : NULL;
    if (!j || !isfinite(p->loss))
        return;
    if (j->n > 0 && j->points[j->n - 1].step == p->step)
        return;
    while (j->n > 0 && j->points[j->n - 1].step > p->step)
        j->n--; /* a recovery has taken the point's steps back */
    const ReportPoint point = {.step = p->step,
                               .usec = p->at_usec,
                               .loss = p->loss,
                               .low = p->loss,
                               .high = p->loss,
                               .samples_per_sec = known(p->samples_per_sec),
                               .grad_norm = known(p->grad_norm),
                               .lr = known(p->lr)};
    if (j->n > 0 && j->width[j->n - 1] < j->wide) {
        join(&j->points[j->n - 1], &j->width[j->n - 1], &point, 1);
        return;
    }
    if (j->n == SEEN_POINTS_MAX)
        halve(j);
    j->points[j->n] = point;
    j->width[j->n++] = 1;
}

void curves_note(Seen *s, const Event *event)
{
    if (!s)
        return;
    if (event->kind == EVENT_PROGRESS && event->record) {
        note_progress(s, event->name, event->progress);
    } else if (event->kind == EVENT_SPEC && !event->record && event->health == RECORD_READABLE) {
        const int i = find_place(s, event->name);
        if (i >= 0)
            s->jobs[i] = job_forget(s->jobs[i]);
    }
}

const ReportPoint *curves_points(const Seen *s, const char *job, size_t *ret_n)
{
    const int i = s ? find_place(s, job) : -1;
    *ret_n = i >= 0 ? s->jobs[i]->n : 0;
    return i >= 0 ? s->jobs[i]->points : NULL;
}

/* ---- evaluations ---- */

static void drop_eval(SeenJob *j, size_t at)
{
    free(j->evals[at].text);
    memmove(&j->evals[at], &j->evals[at + 1], (--j->n_evals - at) * sizeof(*j->evals));
}

void curves_note_eval(Seen *s, const char *rest, const char *value, size_t n)
{
    char job[RECORD_JOB_MAX + 1];
    int64_t step;
    if (!s || key_parse_eval(rest, job, sizeof(job), &step) < 0)
        return;
    const int place = find_place(s, job);
    SeenJob *j = place >= 0 ? s->jobs[place] : value ? take_place(s, job) : NULL;
    if (!j)
        return;
    size_t at = 0;
    while (at < j->n_evals && j->evals[at].step < step)
        at++;
    if (at < j->n_evals && j->evals[at].step == step)
        drop_eval(j, at);
    if (!value)
        return;
    if (j->n_evals == SEEN_EVALS_MAX) { /* the earliest step makes room */
        if (at == 0)
            return;
        drop_eval(j, 0);
        at--;
    }
    memmove(&j->evals[at + 1], &j->evals[at], (j->n_evals++ - at) * sizeof(*j->evals));
    j->evals[at] = (SeenEval){.step = step, .text = memory_bytes(value, n), .n = n};
}

const SeenEval *curves_eval(const Seen *s, const char *job, size_t i)
{
    const int place = s ? find_place(s, job) : -1;
    return place >= 0 && i < s->jobs[place]->n_evals ? &s->jobs[place]->evals[i] : NULL;
}

Seen *curves_new(int max_jobs)
{
    Seen *s = memory_new(Seen);
    s->n_jobs = max_jobs;
    s->jobs = memory_zeroed((size_t)max_jobs, sizeof(SeenJob *));
    return s;
}

Seen *curves_free(Seen *s)
{
    if (!s)
        return NULL;
    for (int i = 0; i < s->n_jobs; i++)
        (void)job_forget(s->jobs[i]);
    free(s->jobs);
    free(s);
    return NULL;
}
