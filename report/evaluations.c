/* SPDX-License-Identifier: Apache-2.0 */
/* evaluations.c - see report.h and drawing.h: the evaluations of a job's checkpoints, as a table and as curves. */
#include "report/drawing.h"

#include "base/memory.h"
#include "report/times.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

enum { ROWS_MAX = 20, COLUMNS_MAX = 6, COLOURS = 6, SMALL = 96, WIDTH = 1000 };

/* ---- gathering ---- */

static void add(ReportEvals *to, const ReportEval *eval)
{
    to->list = memory_grow(to->list, to->n, &to->room, sizeof(*to->list));
    to->list[to->n++] = *eval;
}

static const EvalRecord *find_record(const ReportEvals *evals, const char *submission, int64_t step)
{
    for (size_t i = evals->n_added; i < evals->n_records; i++)
        if (evals->records[i]->step == step &&
            strcmp(evals->records[i]->submission, submission) == 0)
            return evals->records[i];
    return NULL;
}

void report_add_results(ReportEvals *to, const char *key, const char *text, size_t n)
{
    Error ignored = ERROR_INIT;
    EvalRecord *record = memory_new(EvalRecord);
    if (eval_record_decode(key, text, n, record, &ignored) < 0) {
        free(record);
        return;
    }
    to->records = memory_grow(to->records, to->n_records, &to->room_records, sizeof(*to->records));
    to->records[to->n_records++] = record;
}

void report_evals_clear(ReportEvals *e)
{
    for (size_t i = 0; i < e->n_records; i++) {
        eval_record_clear(e->records[i]);
        free(e->records[i]);
    }
    free(e->records);
    free(e->list);
    *e = (ReportEvals){0};
}

void report_add_evals(ReportEvals *to, const char *job, const PhaseRecord *phase)
{
    const EvalProgress *p = &phase->eval;
    for (size_t i = 0; i < p->n_results; i++) {
        const EvalResult *r = &p->results[i];
        add(to, &(ReportEval){.job = job,
                              .step = r->step,
                              .verdict = eval_verdict_names[r->verdict],
                              .at_usec = r->at_usec,
                              .record = r->verdict == EVAL_DONE
                                            ? find_record(to, phase->submission, r->step)
                                            : NULL});
    }
    if (p->present.step > 0)
        add(to, &(ReportEval){.job = job,
                              .step = p->present.step,
                              .verdict = phase_is_active(phase->phase) ? "running" : "pending",
                              .at_usec = phase->since_usec});
    for (size_t i = 0; i < p->n_asked; i++)
        if (p->asked[i].step != p->present.step)
            add(to, &(ReportEval){.job = job,
                                  .step = p->asked[i].step,
                                  .verdict = "pending",
                                  .at_usec = phase->since_usec});
    to->n_added = to->n_records;
}

/* ---- curves ---- */

/* Tells whether the number is a loss: its name is "loss", or ends with that word. */
static bool is_loss(const char *name)
{
    const size_t n = strlen(name), n_word = strlen("loss");
    return n >= n_word && strcmp(name + n - n_word, "loss") == 0 &&
           (n == n_word || !isalnum((unsigned char)name[n - n_word - 1]));
}

size_t series_find(const ReportJob *j, Series ret[SERIES_MAX])
{
    size_t n = 0;
    for (size_t i = 0; i < j->evals.n; i++) {
        const ReportEval *e = &j->evals.list[i];
        for (size_t k = 0; e->record && k < e->record->results.n_numbers; k++) {
            const char *name = e->record->results.numbers[k].name;
            size_t at = 0;
            while (at < n && (strcmp(ret[at].name, name) != 0 || strcmp(ret[at].job, e->job) != 0))
                at++;
            if (at == n && n < SERIES_MAX)
                ret[n++] = (Series){.job = e->job, .name = name, .is_loss = is_loss(name)};
        }
    }
    return n;
}

/* Returns the value of the series in this evaluation; NAN: none. */
static double value_in(const Series *s, const ReportEval *e)
{
    for (size_t k = 0; e->record && strcmp(e->job, s->job) == 0 && k < e->record->results.n_numbers;
         k++)
        if (strcmp(e->record->results.numbers[k].name, s->name) == 0)
            return e->record->results.numbers[k].value;
    return NAN;
}

void series_range(const ReportJob *j, const Series *s, double *low, double *high)
{
    for (size_t i = 0; i < j->evals.n; i++) {
        const double value = value_in(s, &j->evals.list[i]);
        if (isfinite(value)) {
            *low = MIN(*low, value);
            *high = MAX(*high, value);
        }
    }
}

void series_put(json_t *list, const ReportJob *j, const Series *s, size_t colour, const Axis *steps,
                const Axis *y)
{
    const Axis percent = {.low = steps->low, .high = steps->high, .from = 0, .to = 100};
    const Axis wide = {.low = steps->low, .high = steps->high, .from = 0, .to = WIDTH};
    char *path = NULL;
    size_t n_bytes = 0;
    FILE *to = memory_given(open_memstream(&path, &n_bytes));
    json_t *o =
        template_put(list, "name=%s job=%s colour=%d", s->name, s->job, (int)(colour % COLOURS));
    json_t *dots = template_list(o, "dots");
    for (size_t i = 0; i < j->evals.n; i++) {
        const ReportEval *e = &j->evals.list[i];
        const double value = value_in(s, e);
        if (!isfinite(value))
            continue;
        fprintf(to, "%s%.0f %.1f", json_array_size(dots) > 0 ? "L" : "M",
                axis_at(&wide, (double)e->step), axis_at(y, value));
        template_put(dots, "x=%.2f y=%.1f colour=%d name=%s value=%.6g step=%lld job=%s",
                     axis_at(&percent, (double)e->step), axis_at(y, value), (int)(colour % COLOURS),
                     s->name, value, (long long)e->step, s->job);
    }
    (void)fclose(to);
    (void)json_object_set_new(o, "path", json_string(memory_given(path)));
    free(path);
}

/* ---- the table ---- */

static int compare_evals(const void *a, const void *b)
{
    const ReportEval *const *left = a, *const *right = b;
    const int64_t by_step = (*right)->step - (*left)->step; /* the newest first */
    return by_step != 0 ? (by_step > 0 ? 1 : -1) : (*left > *right) - (*left < *right);
}

/* Names columns for the numbers of the rows. Numbers of two jobs with one name share a column. */
static size_t find_columns(const ReportEval *const *rows, size_t n_rows,
                           const char *ret[COLUMNS_MAX])
{
    size_t n = 0;
    for (size_t i = 0; i < n_rows; i++)
        for (size_t k = 0; rows[i]->record && k < rows[i]->record->results.n_numbers; k++) {
            const char *name = rows[i]->record->results.numbers[k].name;
            size_t at = 0;
            while (at < n && strcmp(ret[at], name) != 0)
                at++;
            if (at == n && n < COLUMNS_MAX)
                ret[n++] = name;
        }
    return n;
}

static void put_cell(json_t *cells, const ReportEval *e, const char *name)
{
    for (size_t k = 0; e->record && k < e->record->results.n_numbers; k++) {
        const EvalNumber *number = &e->record->results.numbers[k];
        if (strcmp(number->name, name) != 0)
            continue;
        if (isfinite(number->value))
            template_put(cells, "name=%s value=%.6g", name, number->value);
        else
            template_put(cells, "name=%s value=%s", name, "nan");
        return;
    }
    template_put(cells, "name=%s value=%s", name, "");
}

static void put_artifacts(json_t *row, const EvalResults *results)
{
    json_t *artifacts = template_list(row, "artifacts");
    for (size_t i = 0; i < results->n_artifacts; i++) {
        const EvalArtifact *a = &results->artifacts[i];
        const bool is_link =
            strncmp(a->uri, "https://", 8) == 0 || strncmp(a->uri, "http://", 7) == 0;
        template_put(artifacts, "name=%s uri=%s link=%s", a->name, a->uri, is_link ? "yes" : "");
    }
}

static void put_row(json_t *rows, const ReportJob *j, const ReportEval *e,
                    const char *const *columns, size_t n)
{
    char when[TIME_TEXT_BYTES], took[SPAN_TEXT_BYTES] = "";
    const EvalResults *results = e->record ? &e->record->results : NULL;
    const char *tone = strcmp(e->verdict, "failed") == 0    ? "bad"
                       : strcmp(e->verdict, "skipped") == 0 ? "warning"
                                                            : "";
    if (results && isfinite(results->seconds) && results->seconds > 0)
        (void)span_text(results->seconds, took);
    json_t *row = template_put(rows, "step=%lld verdict=%s tone=%s date=%s", (long long)e->step,
                               e->verdict, tone, date_text(e->at_usec, when));
    template_put(row, "took=%s text=%s", took, results ? results->text : "");
    if (j->kind != JOB_EVAL)
        template_put(row, "by=%s link=%s", e->job, j->live ? "yes" : "");
    json_t *cells = template_list(row, "cells");
    for (size_t i = 0; i < n; i++)
        put_cell(cells, e, columns[i]);
    if (!results || (!*results->text && results->n_artifacts == 0))
        return;
    template_put(row, "reported=%s", "yes");
    put_artifacts(row, results);
}

void drawing_put_evals(json_t *page, const ReportJob *j)
{
    json_t *rows = template_list(page, "evals"), *heads = template_list(page, "eval_columns");
    const char *columns[COLUMNS_MAX];
    const size_t n_rows = MIN(j->evals.n, (size_t)ROWS_MAX);
    if (j->evals.n == 0)
        return;
    _cleanup_free_ const ReportEval **sorted = memory_zeroed(j->evals.n, sizeof(*sorted));
    for (size_t i = 0; i < j->evals.n; i++)
        sorted[i] = &j->evals.list[i];
    qsort(sorted, j->evals.n, sizeof(*sorted), compare_evals);
    const size_t n = find_columns(sorted, n_rows, columns);
    for (size_t i = 0; i < n; i++)
        template_put(heads, "name=%s", columns[i]);
    for (size_t i = 0; i < n_rows; i++)
        put_row(rows, j, sorted[i], columns, n);
    if (j->evals.n > n_rows)
        template_put(page, "more_evals=%d", (int)(j->evals.n - n_rows));
}
