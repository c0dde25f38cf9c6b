/* SPDX-License-Identifier: Apache-2.0 */
/* test-history-failures.c - what a failure may cost a job, and the least size of a program's world, tested with the
 * history of test-history.c. */
#include "tests/history/testing-scenario.h"

#include <string.h>

/* ---- which failures are counted: I7 ---- */

/* The newest commit does not verify: world 2 resumes from the commit before it, or tries the newest
 * commit again. */
static void fails_for_a_commit(Scenario *s, bool strikes_out, int failures)
{
    scenario_add_commit(s, 10);
    s->phase.failures_without_progress = 1;
    scenario_put_phase(s);
    scenario_commit(s);
    (void)snprintf(s->incident.cause, sizeof(s->incident.cause), "checkpoint-corrupt");
    (void)snprintf(s->world.incident, sizeof(s->world.incident), "%s", s->incident.id);
    s->checkpoints.commits[1].struck_out = strikes_out;
    s->phase.failures_without_progress = failures;
    scenario_put_incident(s);
    scenario_put_checkpoints(s);
    scenario_next_world(s, PHASE_RECOVERING);
    scenario_commit(s);
}

static void commit_is_struck_out(Scenario *s) { fails_for_a_commit(s, true, 1); }

static void struck_out_is_a_failure(Scenario *s) { fails_for_a_commit(s, true, 2); }

static void failures_skip_one(Scenario *s)
{
    s->phase.failures_without_progress = 2;
    scenario_recovers(s);
}

static void failure_is_not_counted(Scenario *s) { fails_for_a_commit(s, false, 1); }

/* ---- the cost of a death ---- */

#define MACHINE "11111111111111111111111111111111"

static CordonCause deaths(const char *job, int strikes)
{
    CordonCause cause = {.owner = CORDON_JOB,
                         .machine_id = MACHINE,
                         .reason = "trainer-died: signal 9",
                         .since_usec = 1,
                         .strikes = strikes,
                         .way = "signal 9"};
    (void)snprintf(cause.job, sizeof(cause.job), "%s", job);
    memcpy(cause.submission, strcmp(job, JOB) == 0 ? SUBMISSION : OTHER_SUBMISSION,
           SUBMISSION_BYTES);
    return cause;
}

/* A trainer dies on n1, and n1's cordon is as the test set it. n0 continues alone. */
static void dies(Scenario *s)
{
    (void)snprintf(s->incident.cause, sizeof(s->incident.cause), "trainer-died");
    (void)snprintf(s->world.incident, sizeof(s->world.incident), "%s", s->incident.id);
    s->world.size = 1;
    s->world.n_runs = 1;
    scenario_put_incident(s);
    scenario_put_cordon(s);
    scenario_next_world(s, PHASE_RECOVERING);
    scenario_commit(s);
}

static void strike_is_of_the_job(Scenario *s)
{
    s->cordon.causes[0] = deaths(JOB, 1);
    dies(s);
}

static void strike_is_of_another_job(Scenario *s)
{
    s->cordon.causes[0] = deaths("b", 1);
    dies(s);
}

static void quarantine(Scenario *s)
{
    s->cordon.causes[s->cordon.n_causes++] = (CordonCause){.owner = CORDON_MACHINE,
                                                           .machine_id = MACHINE,
                                                           .mode = CORDON_QUARANTINE,
                                                           .reason = "trainer-died: signal 9",
                                                           .since_usec = 1,
                                                           .until_usec = 9};
    dies(s);
}

static void one_job_quarantines(Scenario *s)
{
    s->cordon.causes[0] = deaths(JOB, 1);
    quarantine(s);
}

static void two_jobs_quarantine(Scenario *s)
{
    s->cordon.causes[0] = deaths("b", 1);
    scenario_put_cordon(s);
    scenario_commit(s);
    s->cordon.causes[s->cordon.n_causes++] = deaths(JOB, 1);
    quarantine(s);
}

/* The job refuses n1 for signal 9, and n0 for the reason `way`. */
static void job_refuses_two(Scenario *s, const char *way)
{
    s->cordon.causes[0] = deaths(JOB, 1);
    s->cordon.causes[0].mode = CORDON_QUARANTINE;
    s->cordon.causes[0].until_usec = 9;
    scenario_put_cordon(s);
    scenario_commit(s);
    (void)snprintf(s->cordon.node, sizeof(s->cordon.node), "n0");
    memset(s->cordon.causes[0].machine_id, '0', 32);
    (void)snprintf(s->cordon.causes[0].way, sizeof(s->cordon.causes[0].way), "%s", way);
    scenario_put_cordon(s);
    scenario_commit(s);
}

static void job_refuses_two_for_one_way(Scenario *s) { job_refuses_two(s, "signal 9"); }
static void job_refuses_two_for_two_ways(Scenario *s) { job_refuses_two(s, "signal 11"); }

/* ---- sizes of programs ---- */

/* Each node gives the program two ranks, and one is wanted: the next world has two. */
static void share_of_a_node_is_the_least_size(Scenario *s)
{
    s->spec.spec = (char *)"{\"kind\": \"exec\", \"world\": {\"per_node\": 2}}";
    scenario_put_spec(s);
    s->desired.max = 1;
    scenario_put_desired(s);
    scenario_commit(s);
    scenario_next_world(s, PHASE_STARTING);
    scenario_commit(s);
}

static const struct {
    void (*tell)(Scenario *s);
    /* the broken rule, and a part of the checker's text; NULL: no rule is broken */
    const char *invariant, *says;
} scenarios[] = {
    {commit_is_struck_out, NULL, NULL},
    {struck_out_is_a_failure, "I7", "for a commit that is struck out"},
    {failures_skip_one, "I7", "had 0 failures, and has 2"},
    {failure_is_not_counted, "I7", "checkpoint-corrupt of a is not a failure"},
    {strike_is_of_the_job, NULL, NULL},
    {strike_is_of_another_job, "blame", "costs it no strike"},
    {one_job_quarantines, "blame", "is quarantined only for deaths of a"},
    {two_jobs_quarantine, NULL, NULL},
    {job_refuses_two_for_one_way, "blame", "are refused by a for signal 9"},
    {job_refuses_two_for_two_ways, NULL, NULL},
    {share_of_a_node_is_the_least_size, NULL, NULL},
};

static void test_failures(void **state)
{
    for (size_t i = 0; i < ELEMENTSOF(scenarios); i++) {
        assert_int_equal(scenario_begin(state), 0);
        Scenario *s = *state;
        scenarios[i].tell(s);
        const bool well = !scenarios[i].says;
        if (well ? s->n_said > 0
                 : s->n_said == 0 || strcmp(s->invariant, scenarios[i].invariant) != 0 ||
                       !strstr(s->said, scenarios[i].says))
            fail_msg("scenario %zu: %s: %s", i, s->invariant, s->said);
        (void)scenario_end(state); /* always returns 0 */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
