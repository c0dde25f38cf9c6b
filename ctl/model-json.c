/* SPDX-License-Identifier: Apache-2.0 */
/* model-json.c - the JSON that `job status` and `job list` print. */
#include "ctl/model-json.h"

#include "base/clock.h"
#include "base/json/json-build.h"
#include "cluster/cost.h"
#include "cluster/pace.h"
#include "ctl/model.h"
#include "ctl/print.h"
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
    return json_pack("{s:I, s:s, s:s?, s:s*}", "step", (json_int_t)c->step, "uri", c->uri, "digest",
                     print_digest(c->digest, digest), "plans", *c->plans ? c->plans : NULL);
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
    JsonBuild b = json_build();
    json_add_text(&b, "id", i->id);
    json_add_real(&b, "at", (double)i->at_usec * 1e-6);
    json_add_text(&b, "cause", i->cause);
    json_add_text(&b, "node", i->node);
    json_add_int(&b, "rank", i->rank);
    json_add_text(&b, "evidence", i->evidence);
    json_add_int(&b, "generation", i->generation);
    json_add_int(&b, "step", i->step);
    json_add_int(&b, "lost_steps", i->lost_steps);
    json_add_bool(&b, "resolved", i->state == INCIDENT_RESOLVED);
    json_add(&b, "first_step_at", time_or_null(i->first_step_usec));
    json_add(&b, "phases", phases);
    return json_build_end(&b);
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
        /* The error is ignored, because `job start` has checked the file. */
        (void)job_parse_any(job->name, job->spec.spec, strlen(job->spec.spec), &spec, &ignored);

    /* Programs and evaluations count what they report. */
    const bool trains = spec && spec->kind == JOB_TRAIN;
    const int64_t step = model_step(job), steps = trains ? spec->train.steps
                                                  : spec && spec->exec.steps > 0
                                                      ? spec->exec.steps
                                                      : job->progress.steps;
    const int64_t samples_seen = trains ? step * spec->train.global_batch
                                 : spec ? job->progress.samples_seen
                                        : 0;
    const bool running = job->has_progress && job->has_phase && job->phase.phase == PHASE_RUNNING;
    char reason[MODEL_REASON_BYTES];
    int of, place = model_place(m, job, &of);
    json_t *queue = place ? json_pack("{s:i, s:i, s:i, s:o}", "place", place, "of", of, "priority",
                                      job->desired.priority, "since",
                                      time_or_null(job->has_phase ? job->phase.since_usec : 0))
                          : json_null();
    JsonBuild b = json_build();
    json_add(&b, "queue", queue);
    json_add(&b, "submitted_at", time_or_null(job->has_spec ? job->spec.submitted_usec : 0));
    json_add_text(&b, "job", job->name);
    json_add_text(&b, "kind", model_kind(job));
    json_add_text(&b, "phase", job_phase_name(model_phase(job)));
    json_add_text(&b, "reason", model_reason(job, reason));
    json_add_int(&b, "generation", job->has_world ? job->world.generation : 0);
    json_add(&b, "world", world_json(job));
    json_add_int(&b, "step", step);
    json_add_int(&b, "steps", steps);
    json_add(&b, "loss", job->has_progress ? real_or_null(job->progress.loss) : json_null());
    json_add(&b, "samples_seen",
             !trains && samples_seen == 0 ? json_null() : json_integer(samples_seen));
    json_add(&b, "samples_per_s",
             running ? real_or_null(job->progress.samples_per_sec) : json_null());
    json_add(&b, "eta_s",
             running ? real_or_null(progress_to_go_sec(&job->progress, steps)) : json_null());
    json_add(&b, "checkpoint", checkpoint_json(job));
    json_add(&b, "incidents", incidents_json(m, job));
    /* Without steps nobody knows which time was useful. */
    json_add(&b, "goodput", !trains && step == 0 ? json_null() : real_or_null(model_goodput(job)));
    json_add(&b, "store", store_json(job));
    json_add(&b, "next_try_at", time_or_null(model_next_try_usec(job)));
    json_add(&b, "metrics_lost", metrics_lost_json(job));
    json_add(&b, "diverging", diverging_json(job));
    json_add(&b, "cost", cost_json(job));
    json_add_bool(&b, "job_file_lost", model_has_lost_spec(job));
    return json_build_end(&b);
}
