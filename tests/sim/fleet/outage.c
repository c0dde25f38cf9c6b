/* SPDX-License-Identifier: Apache-2.0 */
/* outage.c - the store or etcd fails once a schedule has healed, while nothing else goes wrong.
 *
 * Entry points (faults.h): outage_run() makes the store fail for some seconds: no world ends because of it, each job
 * that trains has an incident about it, and its checkpoints catch up. silence_run() makes etcd silent for more than
 * fence_sec: until fence_sec has passed the ranks train on, and then none runs. */
#include "daemon/world/progress.h"
#include "tests/sim/fleet/books.h"
#include "tests/sim/fleet/checks.h"
#include "tests/sim/fleet/faults.h"
#include "tests/sim/fleet/manifests.h"
#include "tests/sim/seams/loop.h"

#define SEC(n) ((uint64_t)(n)*USEC_PER_SEC)

enum {
    QUIESCENT_SEC = 60,
    /* The time from the last data until the incident is open: PROGRESS_WAIT_SEC, the write of the
     * record, and the leader's decision. Trainers give up after 25 s without data (trainer.c). */
    KNOWN_SEC = PROGRESS_WAIT_SEC + 3,
    /* how long a job may take to save after the store's return, in addition to the interval of
     * saves */
    CAUGHT_UP_SEC = 10,
    /* A daemon's last answer may be as old as the interval between renewals when etcd falls silent,
     * and a daemon compares the time with fence_sec only once a second. */
    FENCE_SLACK_SEC = 2
};

/* Returns whether the job trains, has many steps left, and was not told to leave. */
static bool is_quiescent(const FleetJob *job)
{
    const JobBooks *books = books_job(job->name);
    return books->has_phase && books->phase.phase == PHASE_RUNNING && !books->phase.leave &&
           job->plan.steps > 1000000;
}

static bool all_have_trained_since(const Play *play, uint64_t usec)
{
    for (int i = 0; i < play->n_jobs; i++) {
        if (play->jobs[i].plan.of)
            continue; /* an evaluation ends and waits while the other jobs train */
        const JobBooks *books = books_job(play->jobs[i].name);
        const bool over = books->has_phase && books->phase.phase >= PHASE_STOPPED;
        if (!over && (!books->has_phase || books->phase.phase != PHASE_RUNNING ||
                      books->trained_usec <= usec))
            return false;
    }
    return true;
}

/* Waits until hangs from earlier faults are over: the watchdog has found the hang, and the next
 * world trains. */
static bool wait_for_quiescence(const Play *play)
{
    uint64_t since = loops_now_usec();
    const uint64_t until = since + SEC(QUIESCENT_SEC);
    while (loops_now_usec() < until && !books_broken()) {
        if (trainers_hang())
            since = loops_now_usec();
        else if (all_have_trained_since(play, since))
            return true;
        fleet_run(loops_now_usec() + SEC(1) / 10);
    }
    return false;
}

static void check_known(const Play *play, const bool *quiescent, uint64_t ahead_usec)
{
    for (int i = 0; i < play->n_jobs; i++)
        if (quiescent[i] && play->jobs[i].plan.ahead_usec <= ahead_usec &&
            is_quiescent(&play->jobs[i]) && !checks_knows_trouble(play->jobs[i].name))
            books_break("I10", "%s waits for its store, and nobody is told", play->jobs[i].name);
}

static void check_caught_up(const Play *play, const bool *quiescent, uint64_t back_usec)
{
    for (int i = 0; i < play->n_jobs; i++) {
        const char *job = play->jobs[i].name;
        if (!quiescent[i] || !is_quiescent(&play->jobs[i]))
            continue;
        if (checks_committed_usec(job) < back_usec)
            books_break("I11", "%s has not saved since its store is back", job);
        else if (checks_knows_trouble(job))
            books_break("I10", "%s is well, and its trouble stays open", job);
    }
}

void outage_run(const Play *play)
{
    bool quiescent[PLAY_JOBS_MAX] = {0}, all_quiescent = true;
    uint64_t ahead_usec = UINT64_MAX, interval_usec = 0, save_usec = 0;
    if (!wait_for_quiescence(play))
        return;
    const ChecksCounts before = checks_counts();
    for (int i = 0; i < play->n_jobs; i++) {
        const TrainerPlan *plan = &play->jobs[i].plan;
        /* a program has no samples of ours to wait for, and reports no failed save */
        quiescent[i] = !plan->program && is_quiescent(&play->jobs[i]);
        all_quiescent &= quiescent[i];
        if (quiescent[i])
            ahead_usec = MIN(ahead_usec, plan->ahead_usec);
        save_usec = MAX(save_usec, plan->save_usec);
        interval_usec = MAX(interval_usec, (uint64_t)plan->save_steps * plan->step_usec);
    }
    if (ahead_usec == UINT64_MAX)
        return;
    fleet_say("only the store goes away");
    /* check_known() skips a job that reads more samples ahead: that job may not wait for the store
     * long enough to be reported */
    ahead_usec += SEC(1);
    manifests_lose(true);
    fleet_run(loops_now_usec() + ahead_usec + SEC(KNOWN_SEC));
    if (books_broken())
        return;
    /* The check is skipped if a world was told to leave: a job that saves and then leaves reports no
     * trouble. */
    if (checks_counts().n_leaves == before.n_leaves)
        check_known(play, quiescent, ahead_usec);
    fleet_say("the store is back");
    manifests_lose(false);
    const uint64_t back_usec = loops_now_usec();
    fleet_run(back_usec + 2 * interval_usec + 4 * save_usec + SEC(CAUGHT_UP_SEC));
    if (books_broken())
        return;
    check_caught_up(play, quiescent, back_usec);
    if (all_quiescent && checks_counts().n_leaves == before.n_leaves &&
        checks_counts().n_failures != before.n_failures)
        books_break("outage", "a world has ended although only its store was away");
}

/* ---- only etcd is silent ---- */

/* Checks that all jobs train on: while etcd is silent no leader decides, so no world may end. */
static void check_trains_on(const Play *play, const bool *quiescent)
{
    for (int i = 0; i < play->n_jobs; i++) {
        const FleetJob *job = &play->jobs[i];
        if (quiescent[i] && loops_now_usec() > books_job(job->name)->trained_usec +
                                                   4 * job->plan.step_usec + SEC(1))
            books_break("fence", "%s trains no more, and etcd has not been silent for fence_sec",
                        job->name);
    }
}

void silence_run(const Play *play)
{
    bool quiescent[PLAY_JOBS_MAX] = {0};
    if (!wait_for_quiescence(play))
        return;
    for (int i = 0; i < play->n_jobs; i++)
        quiescent[i] = is_quiescent(&play->jobs[i]);
    fleet_say("only etcd falls silent");
    faults_silence(true);
    const uint64_t due_usec = loops_now_usec() + SEC((uint64_t)play->fleet.fence_sec);
    fleet_run(due_usec - SEC(FENCE_SLACK_SEC));
    if (!books_broken())
        check_trains_on(play, quiescent);
    fleet_run(due_usec + SEC(FENCE_SLACK_SEC));
    if (!books_broken())
        trainers_check_fenced();
    fleet_say("etcd speaks again");
    faults_silence(false);
}
