/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c - runs one schedule of a fleet: jobs, faults, healing; then every job must train again. */
#include "tests/sim/schedule.h"

#include "base/log.h"
#include "tests/sim/fleet/checks.h"
#include "tests/sim/fleet/faults.h"
#include "tests/sim/fleet/lost.h"
#include "tests/sim/seams/loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEC(n) ((uint64_t)(n)*USEC_PER_SEC)

enum {
    HANG_TOLD_SEC = 15, /* how long the other ranks of a world wait for a hanging rank */
    STARTS_MAX = 3,
    PATIENCE_SEC = 2 /* how long people wait for the effect of a request */
};

/* Returns whether the job runs and made a step lately, or has ended for good. */
static bool is_well(const FleetJob *job)
{
    const JobBooks *books = books_job(job->name);
    if (!books->has_phase)
        return false;
    if (books->phase.phase == PHASE_SUCCEEDED)
        return true;
    if (books->phase.phase == PHASE_FAILED &&
        (strstr(books->phase.reason, "no checkpoint of the job verifies") ||
         (job->plan.program && strstr(books->phase.reason, "record-lost: "))))
        return true; /* the job has failed for good: no checkpoint is left, or a person must name one */
    if (job->plan.of && books->phase.phase == PHASE_PENDING &&
        (strstr(books->phase.reason, "waits for a checkpoint of job") ||
         strstr(books->phase.reason, "which is not there")))
        return true;
    return books->phase.phase == PHASE_RUNNING &&
           books->trained_generation == books->phase.generation &&
           loops_now_usec() - books->trained_usec < 4 * job->plan.step_usec + SEC(1);
}

/* Starts jobs that rest or are missing: a job may have failed for good by the last fault, or a job
 * may have been deleted before. */
static void start_what_rests(const Play *play, int *n_starts)
{
    for (int i = 0; i < play->fleet.n_nodes; i++)
        if (books_node(fleet_node_name(i))->cordon.n_causes > 0)
            fleet_cordon(i, CORDON_NONE);
    lost_heal();
    for (int i = 0; i < play->n_jobs; i++) {
        const FleetJob *job = &play->jobs[i];
        const JobBooks *books = books_job(job->name);
        const JobPhase phase = books->phase.phase;
        lost_give_back(job);
        if (!books->has_spec && !books->has_desired && !books->has_phase)
            fleet_submit_job(job);
        else if (books->has_spec &&
                 (!books->has_desired ||
                  (books->desired.max != job->max && books->desired.state != DESIRED_DELETED)))
            fleet_want(job, DESIRED_RUNNING, 0);
        else if (books->has_spec && books->has_phase &&
                 (phase == PHASE_FAILED || phase == PHASE_STOPPED) &&
                 (books->desired.state == DESIRED_STOPPED || /* the job was stopped by a request */
                  /* a newer desired state is a request to start, which is still in progress */
                  books->word_revision <= books->phase.tried_revision) &&
                 n_starts[i]++ < STARTS_MAX)
            fleet_want(job, DESIRED_RUNNING, 0);
    }
}

/* Returns how long a schedule may take to train again: three TTL, the deadlines of a start and of
 * leaving, the pauses between starts, and the time to detect a hang. SDTRAIN_SIM_WITHIN_SEC=1 sets
 * this bound so low that schedules break, for trying out the reports. */
static uint64_t liveness_bound(const Play *play, bool hang)
{
    const char *asked = getenv("SDTRAIN_SIM_WITHIN_SEC");
    if (asked)
        return SEC(strtoul(asked, NULL, 10));
    const ClusterConfig *core = &play->fleet.core;
    uint64_t usec = 3 * core->ttl_usec + core->start_deadline_usec + core->leave_deadline_usec;
    for (int i = 0; i < play->n_jobs; i++) {
        const int pauses = books_job(play->jobs[i].name)->phase.pauses;
        usec = MAX(usec, usec + (pauses > 0 ? SEC(MIN(1 << MIN(pauses, 5), 30)) : 0));
    }
    usec += hang ? SEC(play->fleet.save_sec) + SEC(HANG_TOLD_SEC) : 0;
    usec += fleet_holds() ? 11 * core->ttl_usec : 0;
    return usec;
}

static void check_liveness(const Play *play)
{
    const uint64_t begun = loops_now_usec();
    const bool hang = trainers_hang();
    const uint64_t until = begun + liveness_bound(play, hang);
    uint64_t asked_usec = begun;
    int n_starts[PLAY_JOBS_MAX] = {0}, n_well = 0;
    while (!books_broken() && loops_now_usec() < until &&
           (n_well < play->n_jobs || lost_is_left() || fleet_people_wait())) {
        fleet_run(loops_now_usec() + 100 * USEC_PER_MSEC);
        if (loops_now_usec() >= asked_usec + SEC(PATIENCE_SEC)) {
            asked_usec = loops_now_usec();
            start_what_rests(play, n_starts);
        }
        n_well = 0;
        for (int i = 0; i < play->n_jobs; i++)
            n_well += is_well(&play->jobs[i]);
    }
    for (int i = 0; i < play->n_jobs; i++) {
        const JobBooks *books = books_job(play->jobs[i].name);
        if (!is_well(&play->jobs[i]))
            books_break("I11", "%s is %s %lld s after all healed: %s", books->name,
                        books->has_phase ? job_phase_name(books->phase.phase) : "nowhere",
                        (long long)((until - begun) / USEC_PER_SEC), books->phase.reason);
    }
}

/* After the healing, each job gets a share of the slots, so that all jobs can run together. */
static void give_shares(Play *play)
{
    const int share = play->fleet.n_nodes * play->fleet.n_slots / play->n_jobs;
    for (int i = 0; i < play->n_jobs; i++) {
        FleetJob *job = &play->jobs[i];
        const int least = MAX(job->plan.per_node, 1);
        job->max = CLAMP(job->max, least, MAX(share - share % least, least));
        job->min = least;
        lost_give_back(job);
        if (books_job(job->name)->has_spec)
            fleet_want(job, DESIRED_RUNNING, 0);
    }
}

static void run(Play *play)
{
    fleet_run_for(2);
    for (int i = 0; i < play->n_jobs; i++)
        fleet_submit_job(&play->jobs[i]);
    faults_begin(play);
    fleet_run(loops_now_usec() + play->faults_usec);
    faults_heal();
    give_shares(play);
    check_liveness(play);
    fleet_run(loops_now_usec() + 2 * play->fleet.core.ttl_usec + SEC(2));
    if (!books_broken())
        trainers_check_rest();
    if (!books_broken())
        books_end();
    if (!books_broken() && play->has_outage)
        outage_run(play);
    if (!books_broken() && play->has_silence)
        silence_run(play);
    if (!books_broken() && play->has_silence)
        check_liveness(play);
}

static void write_nothing(_unused_ LogLevel level, _unused_ const char *text) {}

void schedule_run(uint64_t seed, int n_nodes, bool talks, ScheduleResult *ret)
{
    Play play;
    play_draw(seed, n_nodes, &play);
    play.fleet.talks = talks;
    play.fleet.says_records = getenv("SDTRAIN_SIM_RECORDS");
    if (!talks)
        log_lend(write_nothing);
    if (talks)
        play_describe(&play);
    fleet_open(&play.fleet);
    run(&play);
    const Breach *breach = books_broken();
    const BooksCounts n = books_counts();
    *ret = (ScheduleResult){.failed = breach,
                            .digest = fleet_digest(),
                            .n_events = n.n_changes,
                            .n_faults = faults_count(),
                            .n_worlds = n.n_worlds,
                            .n_commits = n.n_commits,
                            .n_incidents = n.n_incidents,
                            .n_terms = checks_counts().n_terms};
    if (breach)
        (void)snprintf(ret->invariant, sizeof(ret->invariant), "%s", breach->invariant);
    if (breach)
        (void)snprintf(ret->text, sizeof(ret->text), "%s", breach->text); /* a long text is cut */
    faults_end();
    fleet_close();
}
