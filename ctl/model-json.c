/* SPDX-License-Identifier: Apache-2.0 */
/* model-json.c - the JSON that `job status` and `job list` print. */
#include "ctl/model-json.h"

#include "base/clock.h"
#include "cluster/cost.h"
#include "ctl/model.h"
#include "protocol/channel.h"
#include "protocol/exit-code.h"
#include "protocol/job.h"

#include <math.h>
#include <string.h>

static const char *rank_state_name(const RankReport *r)
{
    if (!r)
        return "unknown";
    switch (r->state) {
    case RANK_STARTING:
        return "starting";
    case RANK_READY:
        return "ready";
    case RANK_RUNNING:
        return "running";
    case RANK_EXITED:
        return exit_code_class(r->exit_code);
    }
    return "unknown";
}

static json_t *real_or_null(double v) { return isfinite(v) && v >= 0 ? json_real(v) : json_null(); }

static json_t *world_json(const ModelJob *job)
{
    json_t *ranks = json_array();
    for (int rank = 0; job->has_world && rank < job->world.size; rank++) {
        size_t run;
        int slot;
        if (world_rank_place(&job->world, rank, &run, &slot) < 0)
            break;
        const RankReport *report = model_rank(job, rank);
        int64_t step = report ? report->step : 0;
        if (report && report->state == RANK_RUNNING && job->has_progress)
            step = MAX(step, job->progress.step);
        json_array_append_new(ranks, json_pack("{s:i, s:s, s:i, s:i, s:s, s:I}", "rank", rank,
                                               "node", job->world.runs[run].node, "slot", slot,
                                               "pid", report ? report->pid : 0, "state",
                                               rank_state_name(report), "step", (json_int_t)step));
    }
    return json_pack("{s:i, s:o}", "size", job->has_world ? job->world.size : 0, "ranks", ranks);
}

static json_t *checkpoint_json(const ModelJob *job)
{
    const CheckpointCommit *c = checkpoints_latest(&job->checkpoints);
    char digest[HASH_TEXT_BYTES];
    if (!c)
        return json_null();
    return json_pack("{s:I, s:s, s:s, s:s*}", "step", (json_int_t)c->step, "uri", c->uri, "digest",
                     hash_format(c->digest, digest), "plans", *c->plans ? c->plans : NULL);
}

static json_t *time_or_null(uint64_t usec)
{
    return usec ? json_real((double)usec * 1e-6) : json_null();
}

json_t *model_incident_json(const IncidentRecord *i)
{
    json_t *phases =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "detect_s", real_or_null(i->detect_sec),
                  "decide_s", real_or_null(i->decide_sec), "stop_s", real_or_null(i->stop_sec),
                  "start_s", real_or_null(i->start_sec), "restore_s", real_or_null(i->restore_sec),
                  "replay_s", real_or_null(i->replay_sec));
    return json_pack("{s:s, s:f, s:s, s:s, s:i, s:s, s:I, s:I, s:I, s:b, s:o, s:o}", "id", i->id,
                     "at", (double)i->at_usec * 1e-6, "cause", i->cause, "node", i->node, "rank",
                     i->rank, "evidence", i->evidence, "generation", (json_int_t)i->generation,
                     "step", (json_int_t)i->step, "lost_steps", (json_int_t)i->lost_steps,
                     "resolved", i->state == INCIDENT_RESOLVED, "first_step_at",
                     time_or_null(i->first_step_usec), "phases", phases);
}

static json_t *incidents_json(const Model *m, const ModelJob *job)
{
    json_t *all = json_array();
    for (size_t i = 0; i < m->n_incidents; i++)
        if (model_is_incident_of(&m->incidents[i], job))
            json_array_append_new(all, model_incident_json(&m->incidents[i]));
    return all;
}

static json_t *store_json(const ModelJob *job)
{
    static const ProgressRecord nothing = {0};
    const ProgressRecord *p = model_progress(job);
    p = p ? p : &nothing;
    const bool told = p->save_next_bytes > 0;
    return json_pack("{s:o, s:s, s:o, s:o, s:o, s:o}", "unsaved_since",
                     time_or_null(p->unsaved_since_usec), "save_error", p->save_error,
                     "waits_since", time_or_null(p->waits_since_usec), "waits_rank",
                     p->waits_since_usec ? json_integer(p->waits_rank) : json_null(), "next_bytes",
                     told ? json_integer(p->save_next_bytes) : json_null(), "free_bytes",
                     told ? json_integer(p->save_free_bytes) : json_null());
}

static json_t *diverging_json(const ModelJob *job)
{
    const ProgressRecord *p = model_progress(job);
    if (!p || p->diverging_since == 0)
        return json_null();
    return json_pack("{s:I, s:s}", "since", (json_int_t)p->diverging_since, "text", p->diverging);
}

static json_t *metrics_lost_json(const ModelJob *job)
{
    const ProgressRecord *p = &job->progress;
    if (!job->has_progress || p->metrics_lost == 0)
        return json_null();
    return json_pack("{s:I, s:I, s:I}", "steps", (json_int_t)p->metrics_lost, "first",
                     (json_int_t)p->metrics_lost_first, "last", (json_int_t)p->metrics_lost_last);
}

static json_t *dollars_or_null(int64_t money)
{
    return money >= 0 ? json_real((double)money / COST_DOLLAR) : json_null();
}

static json_t *cost_json(const ModelJob *job)
{
    CostView v;
    cost_look(&job->phase, model_progress(job), clock_realtime_usec(), &v);
    if (!job->has_phase || !v.is_known)
        return json_null();
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "spent", dollars_or_null(v.spent), "lost",
                     dollars_or_null(v.lost), "per_hour", dollars_or_null(v.rate), "per_1000_steps",
                     dollars_or_null(v.per_1000_steps), "per_billion_samples",
                     dollars_or_null(v.per_billion_samples), "to_end", dollars_or_null(v.to_end));
}

json_t *model_job_json(const Model *m, const ModelJob *job)
{
    Error ignored = ERROR_INIT;
    _cleanup_(job_freep) Job *spec = NULL;
    if (job->has_spec && job->spec.spec)
        (void)job_parse(job->name, job->spec.spec, strlen(job->spec.spec), &spec,
                        &ignored); /* it was checked at start */

    const int64_t step = model_step(job), steps = spec ? spec->train.steps : job->progress.steps;
    const bool running = job->has_progress && job->has_phase && job->phase.phase == PHASE_RUNNING;
    const double step_sec = job->progress.samples_per_sec > 0 && spec
                                ? (double)spec->train.global_batch / job->progress.samples_per_sec
                                : NAN;
    char reason[MODEL_REASON_BYTES];
    int of, place = model_place(m, job, &of);
    json_t *queue = place ? json_pack("{s:i, s:i, s:i, s:o}", "place", place, "of", of, "priority",
                                      job->desired.priority, "since",
                                      time_or_null(job->has_phase ? job->phase.since_usec : 0))
                          : json_null();
    return json_pack(
        "{s:o, s:o, s:s, s:s, s:s, s:I, s:o, s:I, s:I, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, "
        "s:o, s:o, s:o, s:o, s:b}",
        "queue", queue, "submitted_at", time_or_null(job->has_spec ? job->spec.submitted_usec : 0),
        "job", job->name, "phase", job_phase_name(model_phase(job)), "reason",
        model_reason(job, reason), "generation",
        (json_int_t)(job->has_world ? job->world.generation : 0), "world", world_json(job), "step",
        (json_int_t)step, "steps", (json_int_t)steps, "loss",
        job->has_progress ? real_or_null(job->progress.loss) : json_null(), "samples_seen",
        (json_int_t)(spec ? step * spec->train.global_batch : 0), "samples_per_s",
        running ? real_or_null(job->progress.samples_per_sec) : json_null(), "eta_s",
        running ? real_or_null((double)(steps - step) * step_sec) : json_null(), "checkpoint",
        checkpoint_json(job), "incidents", incidents_json(m, job), "goodput",
        real_or_null(model_goodput(job)), "store", store_json(job), "next_try_at",
        time_or_null(model_next_try_usec(job)), "metrics_lost", metrics_lost_json(job), "diverging",
        diverging_json(job), "cost", cost_json(job), "job_file_lost", model_has_lost_spec(job));
}
