/* SPDX-License-Identifier: Apache-2.0 */
/* frame.c - see frame.h: the sections are made first, and then share the available rows. */
#include "ctl/top/frame.h"

#include "base/memory.h"
#include "cluster/cost.h"
#include "cluster/pace.h"
#include "ctl/cluster/diagnosis.h"
#include "ctl/print.h"
#include "ctl/top/cells.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 1024, WRAP_LINES = 2, NAME_CELLS_MIN = 10 };

/* ---- lines ---- */

static FrameLine *add_line(Frame *f, Tone tone)
{
    f->lines = memory_grow(f->lines, f->n, &f->room, sizeof(*f->lines));
    FrameLine *line = &f->lines[f->n++];
    line->tone = tone;
    line->text[0] = '\0';
    return line;
}

static void draw_text(Frame *f, int columns, Tone tone, const char *format, ...) _printf_(4, 5);
static void draw_text(Frame *f, int columns, Tone tone, const char *format, ...)
{
    char text[TEXT_BYTES];
    size_t at = 0;
    va_list ap;
    va_start(ap, format);
    (void)vsnprintf(text, sizeof(text), format, ap); /* a cut text is longer than a line anyway */
    va_end(ap);
    (void)cells_put(add_line(f, tone)->text, FRAME_LINE_BYTES, &at, text, columns);
}

/* Draws text in at most two lines. The first line begins with the mark, the second line with blanks. */
static void draw_wrapped(Frame *f, int columns, Tone tone, const char *mark, const char *text)
{
    const int indent = cells_width(mark);
    for (int i = 0; i < WRAP_LINES && *text; i++) {
        const char *end = cells_break(text, columns - indent);
        const bool is_last = i + 1 == WRAP_LINES;
        char part[TEXT_BYTES];
        (void)snprintf(part, sizeof(part), "%.*s",
                       is_last ? (int)sizeof(part) - 1 : (int)(end - text), text);
        draw_text(f, columns, tone, "%*s%s", i == 0 ? 0 : indent, i == 0 ? mark : "", part);
        for (text = end; *text == ' ';)
            text++;
    }
}

/* ---- the head ---- */

static void draw_etcd(const FrameInput *in, int columns, Frame *f)
{
    const Members *m = in->members;
    char at[TIME_TEXT_BYTES];
    int64_t bytes = 0;
    if (in->silent_usec) {
        draw_text(f, columns, TONE_BAD, "etcd    does not answer: all below is of %s",
                  time_text(in->silent_usec, at));
        return;
    }
    if (!m)
        return;
    for (size_t i = 0; i < m->n; i++)
        bytes = MAX(bytes, m->members[i].status.db_bytes);
    draw_text(f, columns, m->n_answered < m->n || !m->has_leader ? TONE_BAD : TONE_PLAIN,
              "etcd    %zu of %zu member%s answer%s, %s; its database has %.1f MiB", m->n_answered,
              m->n, m->n == 1 ? "" : "s", m->n_answered == 1 && m->n == 1 ? "s" : "",
              m->has_leader ? "with a leader" : "NO LEADER", (double)bytes / (1 << 20));
}

static void draw_nodes(const FrameInput *in, int columns, Frame *f)
{
    const Model *m = in->model;
    const ClusterSlots s = cluster_slots(m);
    size_t n_up = 0, n_lost = 0, n_closed = 0, n_unwell = 0;
    char text[TEXT_BYTES];
    for (size_t i = 0; i < m->n_nodes; i++) {
        n_up += m->nodes[i].state == NODE_UP;
        n_unwell += m->nodes[i].state == NODE_UP && m->nodes[i].verdict != NODE_HEALTHY;
    }
    for (size_t i = 0; i < m->n_health; i++)
        n_lost += judge_is_lost(m, m->health[i].node);
    for (size_t i = 0; i < m->n_cordons; i++)
        n_closed += model_cause(m, m->cordons[i].node, NULL) != NULL;
    int n = snprintf(text, sizeof(text), "nodes   %zu up, %zu lost, %zu cordoned", n_up, n_lost,
                     n_closed);
    if (n_unwell > 0)
        n += snprintf(text + n, sizeof(text) - (size_t)n, ", %zu unwell", n_unwell);
    (void)snprintf(text + n, sizeof(text) - (size_t)n, "   slots   %d used, %d free of %d", s.used,
                   MAX(0, s.total - s.used - s.closed), s.total);
    draw_text(f, columns, n_lost + n_unwell > 0 ? TONE_BAD : TONE_PLAIN, "%s", text);
}

static void make_head(const FrameInput *in, int columns, Frame *f)
{
    const Model *m = in->model;
    char at[TIME_TEXT_BYTES];
    draw_text(f, columns, TONE_HEAD, "%s  cluster %s", time_text(in->now_usec, at), m->cluster);
    if (m->n_candidates == 0)
        draw_text(f, columns, TONE_BAD, "leader  nobody");
    else if (m->n_candidates == 1)
        draw_text(f, columns, TONE_PLAIN, "leader  %s", m->candidates[0].record.name);
    else
        draw_text(f, columns, TONE_PLAIN, "leader  %s; ready to follow: %s%s",
                  m->candidates[0].record.name, m->candidates[1].record.name,
                  m->n_candidates > 2 ? " and others" : "");
    draw_etcd(in, columns, f);
    draw_nodes(in, columns, f);
}

/* ---- jobs ---- */

typedef enum Column { PHASE, RANKS, STEP, RATE, LOSS, LEFT, SAVED, COST, COLUMNS } Column;

/* The columns of the job table. If there is no room, columns are omitted from the end. */
static const struct {
    const char *title;
    int cells; /* negative: aligned to the right */
} table[COLUMNS] = {
    [PHASE] = {"PHASE", 10},  [RANKS] = {"RANKS", -5}, [STEP] = {"STEP", -13},
    [RATE] = {"SAMPL/S", -7}, [LOSS] = {"LOSS", -7},   [LEFT] = {"ETA", -6},
    [SAVED] = {"SAVED", -6},  [COST] = {"COST", -7},
};

typedef char Cell[32];

/* Formats a time as "42s", "3m20s", "5h10m" or "12d4h"; "-" if unknown. */
static void short_span(double seconds, Cell ret)
{
    const long long s = isfinite(seconds) && seconds >= 0 ? (long long)MIN(seconds, 1e10) : -1;
    if (s < 0)
        (void)snprintf(ret, sizeof(Cell), "-");
    else if (s < 60)
        (void)snprintf(ret, sizeof(Cell), "%llds", s);
    else if (s < 3600)
        (void)snprintf(ret, sizeof(Cell), "%lldm%02llds", s / 60, s % 60);
    else if (s < 86400)
        (void)snprintf(ret, sizeof(Cell), "%lldh%02lldm", s / 3600, s % 3600 / 60);
    else
        (void)snprintf(ret, sizeof(Cell), "%lldd%lldh", s / 86400, s % 86400 / 3600);
    if (s >= 100 * 86400)
        (void)snprintf(ret, sizeof(Cell), "%lldd", s / 86400);
}

/* Formats "1234/100000", or in thousands or millions if that is too long. */
static void short_steps(int64_t step, int64_t steps, Cell ret)
{
    const char *unit = "";
    for (int i = 0; i < 3; i++) {
        int n = steps > 0 ? snprintf(ret, sizeof(Cell), "%lld%s/%lld%s", (long long)step, unit,
                                     (long long)steps, unit)
                          : snprintf(ret, sizeof(Cell), "%lld%s", (long long)step, unit);
        if (n <= -table[STEP].cells)
            return;
        unit = i == 0 ? "k" : "M";
        step /= 1000;
        steps /= 1000;
    }
}

/* Formats money as "$12.30", "$1,234", "$123k" or "$120M". */
static void short_money(int64_t money, Cell ret)
{
    const long long thousands = money / (1000 * COST_DOLLAR);
    if (thousands < 100)
        (void)cost_text(money, ret);
    else if (thousands < 100000)
        (void)snprintf(ret, sizeof(Cell), "$%lldk", thousands);
    else
        (void)snprintf(ret, sizeof(Cell), "$%lldM", thousands / 1000);
}

static double ago_sec(const FrameInput *in, uint64_t usec)
{
    return in->now_usec > usec ? (double)(in->now_usec - usec) * 1e-6 : 0;
}

static void fill_cells(const FrameInput *in, const ModelJob *job, Cell cells[COLUMNS])
{
    const ProgressRecord *p = model_progress(job);
    const bool runs = p && model_phase(job) == PHASE_RUNNING;
    const CheckpointCommit *saved = checkpoints_latest(&job->checkpoints);
    const int64_t step = model_step(job);
    CostView cost;
    for (int i = 0; i < COLUMNS; i++)
        (void)snprintf(cells[i], sizeof(Cell), "-");
    (void)snprintf(cells[PHASE], sizeof(Cell), "%s", job_phase_name(model_phase(job)));
    if (job_is_active(job))
        (void)snprintf(cells[RANKS], sizeof(Cell), "%d", job->world.size);
    if (job->has_progress)
        short_steps(step, job->progress.steps, cells[STEP]);
    if (runs && isfinite(p->samples_per_sec))
        (void)snprintf(cells[RATE], sizeof(Cell), p->samples_per_sec < 1000 ? "%.1f" : "%.0f",
                       p->samples_per_sec);
    if (job->has_progress && job->progress.step > 0)
        (void)snprintf(cells[LOSS], sizeof(Cell), job->progress.loss < 100 ? "%.4f" : "%.1e",
                       job->progress.loss);
    if (runs && isfinite(progress_to_go_sec(p, p->steps)))
        short_span(progress_to_go_sec(p, p->steps), cells[LEFT]);
    if (saved && saved->at_usec)
        short_span(ago_sec(in, saved->at_usec), cells[SAVED]);
    cost_look(&job->phase, p, in->now_usec, &cost);
    if (job->has_phase && cost.is_known)
        short_money(cost.spent, cells[COST]);
}

/* Writes the most serious fact about the job; "" if there is nothing to report. */
static void draw_note(const FrameInput *in, const ModelJob *job, char *ret, size_t size)
{
    char span[SPAN_TEXT_BYTES], reason[MODEL_REASON_BYTES];
    const ProgressRecord *p = model_progress(job);
    const uint64_t next_usec = model_next_try_usec(job);
    int of, place = model_place(in->model, job, &of), n = 0;
    ret[0] = '\0';
    if (p && p->diverging_since)
        (void)snprintf(ret, size, "diverging since step %lld: %s", (long long)p->diverging_since,
                       p->diverging);
    else if (p && p->unsaved_since_usec)
        (void)snprintf(ret, size, "UNSAVED for %s: %s",
                       span_text(ago_sec(in, p->unsaved_since_usec), span), p->save_error);
    else if (p && p->waits_since_usec)
        (void)snprintf(ret, size, "rank %d has waited for data for %s", p->waits_rank,
                       span_text(ago_sec(in, p->waits_since_usec), span));
    if (*ret)
        return;
    if (place)
        n = snprintf(ret, size, "place %d of %d: ", place, of);
    else if (next_usec > in->now_usec)
        n = snprintf(ret, size, "tries again in %s: ",
                     span_text((double)(next_usec - in->now_usec) * 1e-6, span));
    (void)model_reason(job, reason);
    /* The reason of a running job tells why its world began. Only a reason with a colon also tells what the
     * job lacks. */
    if (n > 0 || model_phase(job) != PHASE_RUNNING || strchr(reason, ':'))
        (void)snprintf(ret + n, size - (size_t)n, "%s", reason);
}

static Tone tone_of(const ModelJob *job)
{
    switch (model_phase(job)) {
    case PHASE_RUNNING:
        return TONE_GOOD;
    case PHASE_FAILED:
        return TONE_BAD;
    case PHASE_PENDING:
    case PHASE_STOPPED:
    case PHASE_SUCCEEDED:
        return TONE_SOFT;
    default:
        return TONE_BUSY;
    }
}

static void put_row(Frame *f, Tone tone, const char *name, int name_cells, int n_columns,
                    const Cell cells[COLUMNS])
{
    FrameLine *line = add_line(f, tone);
    size_t at = 0;
    cells_put_column(line->text, sizeof(line->text), &at, name, name_cells);
    for (int i = 0; i < n_columns; i++) {
        (void)cells_put(line->text, sizeof(line->text), &at, " ", 1);
        cells_put_column(line->text, sizeof(line->text), &at, cells[i], table[i].cells);
    }
}

/* Returns the sort order of a job: active and failed jobs first, then waiting jobs, then stopped and succeeded jobs. */
static int rank_of(const ModelJob *job)
{
    switch (model_phase(job)) {
    case PHASE_PENDING:
        return 1;
    case PHASE_STOPPED:
    case PHASE_SUCCEEDED:
        return 2;
    default:
        return 0;
    }
}

static bool has_cost(const Model *m)
{
    for (size_t i = 0; i < m->n_jobs; i++)
        if (m->jobs[i].phase.cost.since_usec || m->jobs[i].phase.cost.spent)
            return true;
    return false;
}

/* Returns how many columns fit beside the jobs' names, and stores the width of the names. */
static int fit_columns(const Model *m, int columns, int *ret_name_cells)
{
    int n = has_cost(m) ? COLUMNS : COST, width = 0;
    for (int i = 0; i < n; i++)
        width += 1 + abs(table[i].cells);
    while (n > 0 && columns - width < NAME_CELLS_MIN)
        width -= 1 + abs(table[--n].cells);
    int longest = NAME_CELLS_MIN;
    for (size_t i = 0; i < m->n_jobs; i++)
        longest = MAX(longest, model_is_shown(&m->jobs[i]) ? cells_width(m->jobs[i].name) : 0);
    *ret_name_cells = MIN(columns - width, longest);
    return n;
}

static void make_jobs(const FrameInput *in, int columns, Frame *f)
{
    const Model *m = in->model;
    int name_cells, n_columns = fit_columns(m, columns, &name_cells);
    Cell cells[COLUMNS];
    char note[TEXT_BYTES];
    for (int i = 0; i < COLUMNS; i++)
        (void)snprintf(cells[i], sizeof(Cell), "%s", table[i].title);
    put_row(f, TONE_HEAD, "JOB", name_cells, n_columns, cells);
    for (int rank = 0; rank < 3; rank++)
        for (size_t i = 0; i < m->n_jobs; i++) {
            const ModelJob *job = &m->jobs[i];
            if (!model_is_shown(job) || rank_of(job) != rank)
                continue;
            fill_cells(in, job, cells);
            put_row(f, tone_of(job), job->name, name_cells, n_columns, cells);
            draw_note(in, job, note, sizeof(note));
            if (*note)
                draw_text(f, columns, TONE_SOFT, "  %s", note);
        }
    if (f->n == 1)
        draw_text(f, columns, TONE_SOFT, "no jobs; sdctl job start submits one");
}

/* ---- faults, and nodes that get no ranks ---- */

static void make_wrong(const FrameInput *in, int columns, Frame *f)
{
    Judgement judgement = {json_array(), json_array()};
    size_t i;
    json_t *one;
    if (in->members)
        diagnose_etcd(in->members, &judgement);
    diagnose_cluster(in->model, &judgement);
    json_array_foreach (judgement.wrong, i, one) {
        const char *advice = json_string_value(json_array_get(judgement.advice, i));
        draw_wrapped(f, columns, TONE_BAD, "! ", json_string_value(one));
        if (advice && *advice)
            draw_wrapped(f, columns, TONE_PLAIN, "    ", advice);
    }
    if (json_array_size(judgement.wrong) == 0)
        draw_text(f, columns, TONE_GOOD, "all is well");
    json_decref(judgement.wrong);
    json_decref(judgement.advice);
}

/* Lists cordoned and drained nodes. Nodes in quarantine are already among the faults. */
static void make_closed(const FrameInput *in, int columns, Frame *f)
{
    const Model *m = in->model;
    for (size_t i = 0; i < m->n_cordons; i++) {
        const CordonCause *c = model_cause(m, m->cordons[i].node, NULL);
        if (c && c->mode != CORDON_QUARANTINE)
            draw_text(f, columns, TONE_SOFT, "node %s is %s%s%s", m->cordons[i].node,
                      c->mode == CORDON_DRAIN ? "drained" : "cordoned", *c->reason ? ": " : "",
                      c->reason);
    }
}

/* ---- the frame ---- */

/* Copies a section after an empty line. If the section does not fit, its last line tells how many lines are missing. */
static void put_section(Frame *to, const Frame *from, size_t room, int columns, const char *more)
{
    if (from->n == 0 || room < 2)
        return;
    (void)add_line(to, TONE_PLAIN);
    const size_t n = from->n <= room - 1 ? from->n : room - 2;
    for (size_t i = 0; i < n; i++)
        *add_line(to, TONE_PLAIN) = from->lines[i];
    if (n < from->n)
        draw_text(to, columns, TONE_SOFT, "and %zu more lines: %s", from->n - n, more);
}

void frame_make(const FrameInput *in, int columns, int rows, Frame *ret)
{
    Frame jobs = {0}, wrong = {0}, closed = {0};
    columns = CLAMP(columns, (int)FRAME_COLUMNS_MIN, (int)FRAME_COLUMNS_MAX);
    *ret = (Frame){0};
    make_head(in, columns, ret);
    make_jobs(in, columns, &jobs);
    make_wrong(in, columns, &wrong);
    make_closed(in, columns, &closed);

    /* With too few rows, jobs and faults each get half of the rows, plus the rows that the other section does not
     * need. */
    size_t left = rows == 0 ? SIZE_MAX : (size_t)rows > ret->n ? (size_t)rows - ret->n : 0;
    const size_t need = closed.n ? closed.n + 1 : 0, of_closed = MIN(need, left / 6);
    const size_t half = (left - of_closed) / 2;
    const size_t of_wrong =
        MIN(wrong.n + 1, MAX(half, left - of_closed - MIN(jobs.n + 1, left - of_closed)));
    put_section(ret, &jobs, left - of_closed - of_wrong, columns, "sdctl job list");
    put_section(ret, &wrong, of_wrong, columns, "sdctl cluster status");
    left = rows == 0 ? SIZE_MAX : (size_t)rows > ret->n ? (size_t)rows - ret->n : 0;
    put_section(ret, &closed, left, columns, "sdctl node list");
    if (rows > 0)
        ret->n = MIN(ret->n, (size_t)rows);
    frame_clear(&jobs);
    frame_clear(&wrong);
    frame_clear(&closed);
}

void frame_clear(Frame *f)
{
    free(f->lines);
    *f = (Frame){0};
}
