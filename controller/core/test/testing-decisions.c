/* SPDX-License-Identifier: Apache-2.0 */
/* testing-decisions.c - see testing-scenario.h: prints the core's decisions. */
#include "controller/core/test/testing-scenario.h"

#include "base/slots.h"

#include <string.h>

static void say_world(Scenario *s, const Decision *d)
{
    const WorldRecord *w = &d->world;
    char slots[SLOTS_TEXT_MAX];
    begin_line(s);
    say(s, "%s world %lld:", d->job, (long long)w->generation);
    for (size_t i = 0; i < w->n_runs; i++)
        say(s, " %s/%s", w->runs[i].node, slots_format(w->runs[i].slots, slots));
    if (w->resume.adopt)
        say(s, ", adopts %s", w->resume.uri);
    else if (w->resume.find == FIND_MUST)
        say(s, ", finds its checkpoint, about %lld", (long long)w->resume.step);
    else if (w->resume.uri[0])
        say(s, ", resumes at %lld", (long long)w->resume.step);
    if (w->incident[0])
        say(s, ", for %s", w->incident);
    say(s, "\n");
}

enum { SAID_VERDICTS_MAX = 8 }; /* the newest */

static void say_phase(Scenario *s, const Decision *d)
{
    const PhaseRecord *p = &d->phase;
    begin_line(s);
    say(s, "%s %s %lld%s%s", d->job, job_phase_name(p->phase), (long long)p->generation,
        p->go ? " go" : "", p->leave ? " leave" : "");
    if (p->failures_without_progress)
        say(s, " failures=%d", p->failures_without_progress);
    if (p->pauses)
        say(s, " pauses=%d", p->pauses);
    if (p->furthest_step)
        say(s, " furthest=%lld", (long long)p->furthest_step);
    if (p->eval.present.step)
        say(s, " evaluates=%lld", (long long)p->eval.present.step);
    for (size_t i = 0; i < p->eval.n_asked; i++)
        say(s, "%s%lld", i == 0 ? " asked=" : ",", (long long)p->eval.asked[i].step);
    if (p->eval.n_results > SAID_VERDICTS_MAX)
        say(s, " %zu verdicts", p->eval.n_results);
    for (size_t i = 0; i < MIN(p->eval.n_results, (size_t)SAID_VERDICTS_MAX); i++) {
        const EvalResult *result =
            &p->eval.results[p->eval.n_results - MIN(p->eval.n_results, (size_t)SAID_VERDICTS_MAX) +
                             i];
        say(s, "%s%lld:%s", i == 0 ? " verdicts=" : ",", (long long)result->step,
            eval_verdict_names[result->verdict]);
    }
    say_shares(s, p);
    say_cost(s, " ", &p->cost);
    say(s, " \"%s\"\n", p->reason);
}

static void log_incident(Scenario *s, const IncidentRecord *i)
{
    begin_line(s);
    say(s, "incident %s %s: %s%s%s", i->id,
        i->state == INCIDENT_OPEN ? "open"
        : i->ended                ? "ended"
                                  : "resolved",
        i->severity ? severity_name(i->severity) : "", i->severity ? " " : "", i->cause);
    if (i->node[0])
        say(s, " %s", i->node);
    if (i->rank >= 0)
        say(s, " rank %d", i->rank);
    say(s, " step %lld lost %lld detect %.3f decide %.3f", (long long)i->step,
        (long long)i->lost_steps, i->detect_sec, i->decide_sec);
    if (i->stop_sec >= 0)
        say(s, " stop %.3f start %.3f restore %.3f", i->stop_sec, i->start_sec, i->restore_sec);
    if (i->replay_sec >= 0)
        say(s, " replay %.3f", i->replay_sec);
    say(s, " \"%s\"\n", i->evidence);
}

void say_decision(TraceRunner *runner, const Decision *d, void *userdata)
{
    Scenario *s = userdata;
    s->runner = runner;
    if (d->put_incident)
        log_incident(s, &d->incident);
    for (int i = 0; i < d->n_cordons; i++)
        log_cordon(s, &d->cordons[i], d->cordon_changed[i]);
    for (size_t i = 0; d->put_checkpoints && i < d->checkpoints.n_commits; i++)
        if (d->checkpoints.commits[i].struck_out) {
            begin_line(s);
            say(s, "%s strikes out %lld\n", d->job, (long long)d->checkpoints.commits[i].step);
        }
    bool restored = strcmp(d->incident.cause, "record-lost") == 0;
    if (d->put_desired || d->put_spec || (d->put_checkpoints && restored)) {
        begin_line(s);
        say(s, "%s puts %s back\n", d->job,
            d->put_spec      ? "specs"
            : d->put_desired ? "desired"
                             : "checkpoints");
    }
    if (d->put_world)
        say_world(s, d);
    if (d->put_phase)
        say_phase(s, d);
    if (d->remove_eval || d->remove_evals) {
        begin_line(s);
        say(s, d->remove_evals ? "%s removes its evaluations\n" : "%s removes evaluation %lld\n",
            d->job, (long long)d->remove_eval);
    }
    if (d->remove_generation || d->remove_job || d->remove_incident[0]) {
        begin_line(s);
        if (d->remove_generation)
            say(s, "%s removes generation %lld\n", d->job, (long long)d->remove_generation);
        else if (d->remove_job)
            say(s, "%s is removed\n", d->job);
        else
            say(s, "incident %s is removed\n", d->remove_incident);
    }
    if (d->put_request || d->remove_request) {
        begin_line(s);
        say(s, "request %s %s \"%s\"\n", d->request.id,
            d->remove_request      ? "removed"
            : d->request.answer[0] ? "answered"
                                   : "asked",
            d->request.answer[0] || d->remove_request ? d->request.answer : d->request.kind);
    }
}
