/* SPDX-License-Identifier: Apache-2.0 */
/* job.c - see report.h: the values of a job's page, without its drawings. */
#include "base/json/json.h"
#include "base/memory.h"
#include "cluster/cost.h"
#include "cluster/pace.h"
#include "cluster/room.h"
#include "report/drawing.h"
#include "report/times.h"

#include <math.h>
#include <string.h>

enum { COMMITS_SHOWN = 6, CAPTIONS_SHOWN = 16 }; /* a longer list of captions is folded */

static double seconds_since(const ReportJob *j, uint64_t usec)
{
    return j->now_usec > usec ? (double)(j->now_usec - usec) * 1e-6 : 0;
}

static void put_progress(json_t *page, const ReportJob *j)
{
    const ProgressRecord *p = j->progress;
    const ReportPoint *last = j->n_points > 0 ? &j->points[j->n_points - 1] : NULL;
    const double loss = p && isfinite(p->loss) && p->step > 0 ? p->loss : last ? last->loss : NAN;
    const double to_go_sec =
        p && j->phase->phase == PHASE_RUNNING ? progress_to_go_sec(p, j->steps) : NAN;
    char span[SPAN_TEXT_BYTES];
    if (isfinite(loss))
        template_put(page, "loss=%.4f", loss);
    if (p && p->samples_per_sec > 0 && j->phase->phase == PHASE_RUNNING)
        template_put(page, "speed=%.4g", p->samples_per_sec);
    if (p && p->grad_norm > 0)
        template_put(page, "gradient=%.3g", p->grad_norm);
    if (p && p->lr > 0)
        template_put(page, "rate=%.3g", p->lr);
    if (isfinite(to_go_sec))
        template_put(page, "to_go=%s", span_text(to_go_sec, span));
}

/* Puts the cost of the slots, if the controllers have prices. */
static void put_cost(json_t *page, const ReportJob *j)
{
    CostView v;
    char spent[COST_TEXT_BYTES], lost[COST_TEXT_BYTES], steps[COST_TEXT_BYTES],
        samples[COST_TEXT_BYTES], end[COST_TEXT_BYTES];
    cost_look(j->phase, j->progress, j->now_usec, &v);
    if (!v.is_known)
        return;
    template_put(page, "cost=%s cost_lost=%s", cost_text(v.spent, spent), cost_text(v.lost, lost));
    if (v.to_end >= 0)
        template_put(page, "cost_end=%s", cost_text(v.to_end, end));
    if (v.per_1000_steps >= 0 && v.per_billion_samples >= 0)
        template_put(page, "cost_steps=%s cost_samples=%s", cost_text(v.per_1000_steps, steps),
                     cost_text(v.per_billion_samples, samples));
}

bool drawing_counts_steps(const ReportJob *j)
{
    return j->kind == JOB_TRAIN || (j->kind == JOB_EXEC && (j->step > 0 || j->steps > 0));
}

double drawing_goodput(const ReportJob *j) { return drawing_counts_steps(j) ? j->goodput : NAN; }

/* Puts how many checkpoints an evaluation has evaluated. */
static void put_evaluated(json_t *page, const ReportJob *j)
{
    int n_done = 0;
    if (j->kind != JOB_EVAL)
        return;
    for (size_t i = 0; i < j->evals.n; i++)
        n_done += strcmp(j->evals.list[i].verdict, eval_verdict_names[EVAL_DONE]) == 0;
    template_put(page, "n_evaluated=%d evaluated_plural=%s", n_done, n_done == 1 ? "" : "s");
}

static void put_tiles(json_t *page, const ReportJob *j)
{
    const PhaseRecord *p = j->phase;
    char span[SPAN_TEXT_BYTES];
    double lost_sec = 0;
    long long again = 0;
    int n_open = 0;
    for (size_t i = 0; i < j->n_incidents; i++) {
        const IncidentRecord *n = j->incidents[i];
        double sec = report_ended_world(n) ? report_recovery_sec(n) : 0;
        lost_sec += isfinite(sec) ? sec : 0;
        again += n->lost_steps;
        n_open += n->state == INCIDENT_OPEN;
    }
    template_put(page, "n_incidents=%d incidents_plural=%s lost=%s", (int)j->n_incidents,
                 j->n_incidents == 1 ? "" : "s", span_text(lost_sec, span));
    if (drawing_counts_steps(j))
        template_put(page, "has_steps=%s step=%lld again=%lld again_plural=%s", "yes",
                     (long long)j->step, again, again == 1 ? "" : "s");
    if (j->steps > 0)
        template_put(page, "steps=%lld", (long long)j->steps);
    if (n_open > 0)
        template_put(page, "n_open=%d", n_open);
    if (j->steps > 0)
        template_put(page, "done=%.1f", 100.0 * (double)j->step / (double)j->steps);
    if (isfinite(drawing_goodput(j)))
        template_put(page, "goodput=%.1f", 100 * drawing_goodput(j));
    if (p->started_usec)
        template_put(page, "time=%s",
                     span_text((double)(drawing_end_usec(j) -
                                        MIN(p->started_usec, drawing_end_usec(j))) *
                                   1e-6,
                               span));
    put_evaluated(page, j);
    put_progress(page, j);
    put_cost(page, j);
}

/* Puts the job's present activity, and the problems that hinder it. */
static void put_under_way(json_t *page, const ReportJob *j)
{
    json_t *lines = template_list(page, "under_way");
    const PhaseRecord *phase = j->phase;
    const ProgressRecord *p = j->progress;
    char span[SPAN_TEXT_BYTES], room[ROOM_TEXT_BYTES] = "";
    const char *advice;
    if (drawing_has_ended(j))
        return;
    if (j->place > 0)
        template_put(lines, "text=%s place=%d of=%d since=%s", "waits for slots", j->place,
                     j->n_waiting, "");
    else if (phase->since_usec)
        template_put(lines, "text=%s since=%s", job_phase_name(phase->phase),
                     span_text(seconds_since(j, phase->since_usec), span));
    const uint64_t next_usec = phase->pause_usec ? phase->since_usec + phase->pause_usec : 0;
    if (next_usec > j->now_usec)
        template_put(lines, "text=%s since=%s", "tries again in",
                     span_text((double)(next_usec - j->now_usec) * 1e-6, span));
    if (p && p->unsaved_since_usec)
        template_put(lines, "text=%s since=%s bad=%s why=%s", "no checkpoint is saved",
                     span_text(seconds_since(j, p->unsaved_since_usec), span), "yes",
                     p->save_error);
    if (p && room_describe(p, room, &advice))
        template_put(lines, "text=%s bad=%s why=%s", room, "yes", advice);
    else if (p && *room)
        template_put(lines, "text=%s", room);
    if (p && p->waits_since_usec)
        template_put(lines, "text=%s since=%s bad=%s rank=%d", "waits for data",
                     span_text(seconds_since(j, p->waits_since_usec), span), "yes", p->waits_rank);
    if (p && p->diverging_since)
        template_put(lines, "text=%s since=%s from=%lld bad=%s why=%s", "diverging", "",
                     (long long)p->diverging_since, "yes", p->diverging);
}

/* A program's checkpoints have no digest, and it may register none. An evaluation has no checkpoints. */
static void put_checkpoints(json_t *page, const ReportJob *j)
{
    json_t *rows = template_list(page, "checkpoints");
    char text[HASH_TEXT_BYTES], when[TIME_TEXT_BYTES];
    const bool has_digests = j->kind == JOB_TRAIN;
    const bool has_any = has_digests || (j->kind == JOB_EXEC && j->checkpoints->n_commits > 0);
    template_put(page, "has_checkpoints=%s has_digests=%s", has_any ? "yes" : "",
                 has_digests ? "yes" : "");
    if (!has_any)
        return;
    for (size_t i = j->checkpoints->n_commits; i-- > 0 && json_array_size(rows) < COMMITS_SHOWN;) {
        const CheckpointCommit *c = &j->checkpoints->commits[i];
        json_t *row = template_put(rows, "step=%lld generation=%lld date=%s manifest=%s struck=%s",
                                   (long long)c->step, (long long)c->generation,
                                   date_text(c->at_usec, when), c->uri, c->struck_out ? "yes" : "");
        if (has_digests)
            template_put(row, "digest=%s", hash_format(c->digest, text));
    }
    const CheckpointCommit *newest = checkpoints_latest(j->checkpoints);
    if (!newest)
        return;
    template_put(page, "saved_step=%lld", (long long)newest->step);
    if (!has_digests)
        return;
    template_put(page, "digest=%s", hash_format(newest->digest, text));
    if (j->alone)
        template_put(page, "alone=%s", j->alone);
    if (j->alone && strcmp(j->alone, text) == 0)
        template_put(page, "same=%s", "yes");
}

static bool has_same_captions(const GridNotes *a, const GridNotes *b)
{
    if (!a || !b || a->n_captions != b->n_captions)
        return false;
    for (int i = 0; i < a->n_captions; i++)
        if (strcmp(a->captions[i], b->captions[i]) != 0)
            return false;
    return true;
}

static void put_captions(json_t *figure, const GridNotes *notes)
{
    bool any = false;
    for (int i = 0; i < notes->n_captions; i++)
        any |= *notes->captions[i] != '\0';
    json_t *captions = template_list(figure, "captions");
    for (int i = 0; any && i < notes->n_captions; i++)
        template_put(captions, "text=%s", notes->captions[i]);
    template_put(figure, "few=%s", notes->n_captions <= CAPTIONS_SHOWN ? "yes" : "");
}

static void put_picture(json_t *figures, const ReportJob *j, const ReportPicture *p, bool real)
{
    const GridNotes *n = p->notes;
    if (!p->uri)
        return;
    json_t *figure = template_put(figures, "uri=%s", p->uri);
    if (n ? n->real : real)
        template_put(figure, "real=%s", "yes");
    if (!n)
        return;
    template_put(figure, "known=%s step=%lld weights=%s picked=%llu", "yes", (long long)n->step,
                 n->ema ? "averaged (EMA) weights" : "weights, not averaged,",
                 (unsigned long long)n->seed);
    if (strcmp(n->job, j->name) != 0)
        template_put(figure, "other=%s", n->job);
    if (p == &j->pictures && has_same_captions(j->grid.notes, n))
        template_put(figure, "same=%s", "yes");
    else
        put_captions(figure, n);
}

static void put_pictures(json_t *page, const ReportJob *j)
{
    json_t *figures = template_list(page, "figures");
    put_picture(figures, j, &j->grid, false);
    put_picture(figures, j, &j->pictures, true);
}

const char *report_warmup(JobPhase phase, int64_t step, const Job *spec,
                          char ret[REPORT_WARMUP_BYTES])
{
    const bool has_ended =
        phase == PHASE_SUCCEEDED || phase == PHASE_STOPPED || phase == PHASE_FAILED;
    const int64_t warmup = spec ? spec->train.optimizer.warmup_steps : 0;
    *ret = '\0';
    if (has_ended && step > 0 && step < warmup)
        (void)snprintf(ret, REPORT_WARMUP_BYTES,
                       "ended at step %lld, inside its warm-up of %lld steps: the learning rate "
                       "was %.3g at most, not %.3g",
                       (long long)step, (long long)warmup,
                       spec->train.optimizer.lr * (double)step / (double)warmup,
                       spec->train.optimizer.lr);
    return ret;
}

static char *join_command(const Job *s)
{
    char *text = memory_text("");
    for (char **word = s->exec.command; *word; word++) {
        char *longer = memory_format("%s%s%s", text, *text ? " " : "", *word);
        free(text);
        text = longer;
    }
    return text;
}

/* Puts what a job runs that is not a training by sdtrain. */
static void put_program(json_t *page, const Job *s)
{
    json_t *rows = template_list(page, "facts");
    if (!job_is_program(s)) {
        template_put(rows, "name=%s text=%s", "it measures", "the loss on held-out data");
        for (size_t i = 0; i < s->data.n_streams; i++)
            template_put(rows, "name=%s text=%s", "data", s->data.streams[i].uri);
        return;
    }
    _cleanup_free_ char *command = join_command(s);
    template_put(rows, "name=%s text=%s", "command", command);
    if (s->exec.dir)
        template_put(rows, "name=%s text=%s", "folder", s->exec.dir);
    template_put(rows, "name=%s text=%s", "device",
                 s->exec.device == JOB_DEVICE_CUDA ? "cuda" : "cpu");
}

static void put_spec(json_t *page, const ReportJob *j)
{
    static const char *const precision[] = {"fp32", "bf16", "fp16"};
    static const char *const reduction[] = {"exact", "exact64",
                                            "float: bits may differ between worlds"};
    const Job *s = j->spec;
    char text[HASH_TEXT_BYTES], when[TIME_TEXT_BYTES], warmup[REPORT_WARMUP_BYTES];
    json_t *rows = template_list(page, "rows");
    for (size_t i = 0; i < j->n_rows; i++)
        template_put(rows, "name=%s text=%s", j->rows[i].name, j->rows[i].text);
    if (*report_warmup(j->phase->phase, j->step, s, warmup))
        template_put(rows, "name=%s text=%s", "warm-up", warmup);
    if (!s)
        return;
    template_put(page, "submitted=%s", date_text(j->submitted_usec, when));
    if (j->kind != JOB_TRAIN) {
        put_program(page, s);
        return;
    }
    template_put(page, "batch=%lld grains=%lld grain=%lld device=%s",
                 (long long)s->train.global_batch, (long long)s->train.n_grains,
                 (long long)s->train.grain, s->train.device == JOB_DEVICE_CUDA ? "cuda" : "cpu");
    template_put(page, "precision=%s reduction=%s lr=%g warmup=%lld clip=%g seed=%llu",
                 precision[s->train.precision], reduction[s->train.reduction],
                 s->train.optimizer.lr, (long long)s->train.optimizer.warmup_steps,
                 s->train.optimizer.clip_norm, (unsigned long long)s->train.seed);
    template_put(page, "model=%s identity=%s", s->model.config_uri, hash_format(s->identity, text));
    json_t *streams = template_list(page, "streams");
    for (size_t i = 0; i < s->data.n_streams; i++)
        template_put(streams, "uri=%s proportion=%g", s->data.streams[i].uri,
                     s->data.streams[i].proportion);
}

void report_job(const ReportJob *j, Page *ret)
{
    const JobPhase phase = j->phase->phase;
    const char *tone = phase == PHASE_SUCCEEDED                             ? "good"
                       : phase == PHASE_FAILED || phase == PHASE_RECOVERING ? "bad"
                                                                            : "";
    char when[TIME_TEXT_BYTES];
    _cleanup_json_ json_t *page = json_object();
    template_put(page, "job=%s phase=%s tone=%s reason=%s cluster=%s", j->name,
                 job_phase_name(phase), tone, j->phase->reason, j->cluster);
    template_put(page, "version=%s written=%s live=%s", j->version, date_text(j->now_usec, when),
                 j->live ? "yes" : "");
    put_tiles(page, j);
    if (j->kind == JOB_EVAL)
        template_put(page, "of=%s", j->of);
    put_under_way(page, j);
    drawing_put_curves(page, j);
    drawing_put_evals(page, j);
    drawing_put_times(page, j);
    drawing_put_worlds(page, j);
    drawing_put_recoveries(page, j);
    put_checkpoints(page, j);
    put_pictures(page, j);
    put_spec(page, j);
    template_page(report_job_html, page, ret);
}
