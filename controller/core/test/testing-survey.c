/* SPDX-License-Identifier: Apache-2.0 */
/* testing-survey.c - see testing-scenario.h: the command `survey`. */
#include "controller/core/step/survey.h"
#include "controller/core/test/testing-scenario.h"

#include <string.h>

void say_cost(Scenario *s, const char *lead, const CostMeter *cost)
{
    /* A meter runs only if there are prices. */
    assert_true(cost->rate > 0 || cost->since_usec == 0);
    if (cost->rate || cost->spent)
        say(s, "%srate=%.2f spent=%.6f lost=%.6f", lead, (double)cost->rate / COST_DOLLAR,
            (double)cost->spent / COST_DOLLAR, (double)cost->lost / COST_DOLLAR);
}

void say_shares(Scenario *s, const PhaseRecord *phase)
{
    if (phase->goodput > 0)
        say(s, " goodput=%.2f", phase->goodput);
    if (phase->saving > 0)
        say(s, " saving=%.3f", phase->saving);
    if (phase->saving_sec > 0)
        say(s, " saving_sec=%.2f", phase->saving_sec);
}

static void survey_job(Scenario *s, const JobSurvey *j)
{
    begin_line(s);
    say(s, "%s %s %lld: ranks %d of %d (%d starting, %d ready, %d running, %d exited)", j->name,
        job_phase_name(j->phase), (long long)j->generation, j->world_size, j->wanted_size,
        j->ranks[RANK_STARTING], j->ranks[RANK_READY], j->ranks[RANK_RUNNING],
        j->ranks[RANK_EXITED]);
    if (j->has_progress)
        say(s, ", step %lld", (long long)j->step);
    say(s, ", furthest %lld of %lld", (long long)j->furthest_step, (long long)j->steps);
    if (j->has_checkpoint)
        say(s, ", committed %lld", (long long)j->checkpoint_step);
    if (j->goodput >= 0)
        say(s, ", goodput=%.2f", j->goodput);
    if (j->saving > 0)
        say(s, " saving=%.3f", j->saving);
    say_cost(s, ", ", &j->cost);
    say(s, ", failures %d of %d\n", j->failures_without_progress, j->max_failures);
}

static double after(uint64_t usec)
{
    return usec ? (double)((int64_t)usec - (int64_t)TRACE_EPOCH_USEC) / 1e6 : -1;
}

/* Prints figures that the core only passes on, without deciding by them. */
static void survey_figures(Scenario *s, const JobSurvey *j)
{
    if (!j->has_progress)
        return;
    begin_line(s);
    say(s,
        "%s: %lld samples, %.1f a second, %.2f s a step, loss %.2f; phase since %.3f, committed "
        "%.3f",
        j->name, (long long)j->samples_seen, j->samples_per_sec, j->step_sec, j->loss,
        after(j->phase_usec), after(j->checkpoint_usec));
    say(s, ", unsaved %.3f, waits %.3f\n", after(j->unsaved_usec), after(j->waits_usec));
}

/* Checks and prints what the live page shows of a job beside its figures. */
static void survey_records(Scenario *s, int i, const JobSurvey *job)
{
    JobRecords records;
    assert_true(cluster_survey_records(trace_cluster(s->runner), i, &records));
    assert_int_equal(records.phase->phase, job->phase);
    assert_int_equal(records.checkpoints->n_commits > 0, job->has_checkpoint);
    if (records.progress)
        assert_int_equal(records.progress->step, job->step);
    if (!records.facts->submission[0] && !records.waits)
        return;
    begin_line(s);
    say(s, "%s is of submission \"%s\"%s\n", job->name, records.facts->submission,
        records.waits ? ", waits" : "");
}

static bool is_a_cause(const char *name)
{
    const char *cause;
    for (int i = 0; (cause = cluster_cause(i)); i++)
        if (strcmp(cause, name) == 0)
            return true;
    return false;
}

/* Prints what the live page shows of incidents, and checks that the two ways to find an incident agree. */
static void survey_incidents(Scenario *s)
{
    const Cluster *c = trace_cluster(s->runner);
    const IncidentRecord *incident;
    for (int i = 0; cluster_survey_incident(c, i, &incident); i++) {
        if (!incident)
            continue;
        assert_ptr_equal(cluster_find_incident(c, incident->id), incident);
        assert_true(is_a_cause(incident->cause));
        begin_line(s);
        say(s, "incident %s is %s\n", incident->id,
            incident->state == INCIDENT_OPEN ? "open" : "over");
    }
    assert_null(cluster_find_incident(c, "no-such"));
}

void survey(Scenario *s)
{
    static const char *const verdicts[] = {"healthy", "suspect", "drain", "isolate"};
    static const char *const modes[] = {"", " cordon", " drain", " quarantine"};
    Cluster *c = trace_cluster_for_survey(s->runner);
    JobSurvey job;
    NodeSurvey node;
    JobRecords none;
    int n = 0;
    for (; cluster_survey_job(c, n, &job); n++) {
        survey_job(s, &job);
        survey_figures(s, &job);
        survey_records(s, n, &job);
    }
    assert_false(cluster_survey_records(c, n, &none));
    survey_incidents(s);
    begin_line(s);
    for (int i = 0; cluster_survey_node(c, i, &node); i++) {
        say(s, "%s %s%s with %d slots, %d lost", node.name,
            node.up       ? verdicts[node.verdict]
            : node.absent ? "absent"
                          : "left",
            node.cordoned ? modes[node.mode] : "", node.n_slots, node.n_lost_slots);
        if (node.strikes)
            say(s, ", strikes %d", node.strikes);
        if (node.job[0])
            say(s, ", of %s", node.job);
        if (node.reason[0] || node.evidence[0])
            say(s, " (%s%s%s)", node.reason, node.reason[0] && node.evidence[0] ? "; " : "",
                node.evidence);
        say(s, "; ");
    }
    say(s, "%d free\n", cluster_free_slots(c));
}
