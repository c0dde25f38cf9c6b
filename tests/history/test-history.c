/* SPDX-License-Identifier: Apache-2.0 */
/* test-history.c - a small history that keeps every rule, and the same history with one change that breaks a rule. */
#include "tests/history/testing-scenario.h"

#include "base/memory.h"

#include <string.h>

/* ---- histories that keep all rules ---- */

/* The reports of a node's previous daemon no longer count. */
static void restarted_daemon(Scenario *s)
{
    scenario_recovers(s);
    s->nodes[0].incarnation = 11;
    scenario_put_node(s, 0);
    scenario_commit(s);
    scenario_goes(s);
}

static void removal(Scenario *s)
{
    scenario_stops(s);
    scenario_deletes_job(s);
    scenario_starts_anew(s);
}

static void success(Scenario *s)
{
    scenario_add_commit(s, 40);
    scenario_commit(s);
    s->phase.go = false;
    scenario_phase_is(s, PHASE_SUCCEEDED);
    scenario_commit(s);
}

static void word(Scenario *s)
{
    scenario_stops(s);
    scenario_put_desired(s);
    scenario_commit(s);
    scenario_phase_is(s, PHASE_PENDING);
    scenario_commit(s);
}

static void recover_by_request(Scenario *s)
{
    scenario_stops(s);
    s->phase.generation++;
    s->world.generation++;
    for (size_t i = 0; i < s->checkpoints.n_commits; i++)
        s->checkpoints.commits[i].struck_out = true;
    scenario_add_commit(s, 3);
    s->phase.tried_revision = s->revision;
    scenario_phase_is(s, PHASE_PENDING);
    scenario_change(s, KEY_REQUESTS, "r1", request_record_encode(&s->request, NULL), 0);
    scenario_commit(s);
}

static void full_record(Scenario *s)
{
    for (int64_t step = 6; step < 6 + 2 * RECORD_COMMITS_MAX; step++) {
        scenario_add_commit(s, step);
        scenario_commit(s);
    }
}

static const struct {
    const char *name;
    void (*tell)(Scenario *s);
} well[] = {{"recovery", scenario_recovery},
            {"restarted_daemon", restarted_daemon},
            {"removal", removal},
            {"success", success},
            {"word", word},
            {"recover_by_request", recover_by_request},
            {"full_record", full_record}};

static void test_what_is_well(void **state)
{
    for (size_t i = 0; i < ELEMENTSOF(well); i++) {
        assert_int_equal(scenario_begin(state), 0);
        Scenario *s = *state;
        well[i].tell(s);
        history_checker_end(s->checker);
        if (s->n_said)
            fail_msg("%s: %s: %s", well[i].name, s->invariant, s->said);
        (void)scenario_end(state); /* always returns 0 */
    }
}

/* ---- histories that break a rule ---- */

static void world_repeats(Scenario *s)
{
    s->world.generation--;
    scenario_next_world(s, PHASE_STARTING);
    scenario_commit(s);
}

static void world_without_phase(Scenario *s)
{
    s->world.generation++;
    s->world.committed = checkpoints_mark(&s->checkpoints);
    s->world.resume.step = 5;
    scenario_put_world(s);
    scenario_commit(s);
}

static void phase_goes_back(Scenario *s)
{
    scenario_recovers(s);
    s->phase.generation--;
    scenario_put_phase(s);
    scenario_commit(s);
}

static void serial_repeats(Scenario *s)
{
    s->phase.serial--;
    scenario_put_phase(s);
    scenario_commit(s);
}

static void phase_of_another_submission(Scenario *s)
{
    memcpy(s->phase.submission, OTHER_SUBMISSION, SUBMISSION_BYTES);
    scenario_put_phase(s);
    scenario_commit(s);
}

static void submission_is_forgotten(Scenario *s)
{
    s->phase.submission[0] = '\0';
    scenario_put_phase(s);
    scenario_commit(s);
}

static void phase_after_removal(Scenario *s)
{
    scenario_stops(s);
    scenario_deletes_job(s);
    scenario_put_phase(s);
    scenario_commit(s);
}

static void job_is_put_back(Scenario *s)
{
    scenario_stops(s);
    scenario_deletes_job(s);
    scenario_submit(s);
}

static void job_over_a_job(Scenario *s)
{
    memcpy(s->spec.submission, OTHER_SUBMISSION, SUBMISSION_BYTES);
    scenario_put_spec(s);
    scenario_commit(s);
}

static void removal_leaves_checkpoints(Scenario *s)
{
    scenario_stops(s);
    scenario_removes(s, KEY_SPECS, JOB);
    scenario_removes(s, KEY_DESIRED, JOB);
    scenario_removes(s, KEY_WORLDS, JOB);
    scenario_removes(s, KEY_PHASES, JOB);
    scenario_removes(s, KEY_PROGRESS, JOB);
    scenario_commit(s);
}

static void removal_while_it_runs(Scenario *s) { scenario_deletes_job(s); }

static void world_vanishes(Scenario *s)
{
    scenario_removes(s, KEY_WORLDS, JOB);
    scenario_commit(s);
}

static void checkpoints_vanish(Scenario *s)
{
    scenario_removes(s, KEY_CHECKPOINTS, JOB);
    scenario_commit(s);
}

static void resumes_too_early(Scenario *s)
{
    s->checkpoints.n_commits = 0; /* the leader acts as if it had not read the commits */
    scenario_next_world(s, PHASE_STARTING);
    scenario_commit(s);
}

static void commit_of_an_old_world(Scenario *s)
{
    scenario_recovers(s);
    s->world.generation = 1;
    scenario_add_commit(s, 10);
    s->changes[1].key = s->changes[1].key; /* the progress record is of world 1, too */
    scenario_commit(s);
}

static void commit_before_go(Scenario *s)
{
    scenario_recovers(s);
    s->progress = (ProgressRecord){.generation = 2, .step = 6, .at_usec = 1};
    scenario_add_commit(s, 10);
    scenario_commit(s);
}

static void commit_goes_back(Scenario *s)
{
    scenario_add_commit(s, 4);
    scenario_commit(s);
}

static void commit_below_the_latest(Scenario *s)
{
    scenario_recovers(s);
    scenario_old_rank_ends(s);
    scenario_goes(s);
    s->progress = (ProgressRecord){.generation = 2, .step = 6, .at_usec = 1};
    scenario_add_commit(s, 4);
    scenario_commit(s);
}

static void commit_is_lost(Scenario *s)
{
    scenario_add_commit(s, 10);
    scenario_commit(s);
    s->checkpoints.commits[0] = s->checkpoints.commits[1];
    s->checkpoints.n_commits = 1;
    scenario_put_checkpoints(s);
    scenario_commit(s);
}

static void struck_out_counts_again(Scenario *s)
{
    s->checkpoints.commits[0].struck_out = true;
    scenario_put_checkpoints(s);
    scenario_commit(s);
    s->checkpoints.commits[0].struck_out = false;
    scenario_put_checkpoints(s);
    scenario_commit(s);
}

static void progress_says_another_commit(Scenario *s)
{
    scenario_add_commit(s, 10);
    s->n_changes--;
    free((char *)s->changes[1].key);
    free((char *)s->changes[1].value);
    *scenario_version_of(s, "/sdtrain/" CLUSTER "/progress/" JOB) -= 1;
    s->progress.committed.step = 9;
    scenario_put_progress(s);
    scenario_commit(s);
}

static void progress_of_an_old_world(Scenario *s)
{
    scenario_recovers(s);
    scenario_put_progress(s);
    scenario_commit(s);
}

static void progress_forgets_a_commit(Scenario *s)
{
    s->progress.committed.step = 4;
    scenario_put_progress(s);
    scenario_commit(s);
}

static void progress_goes_back(Scenario *s)
{
    s->progress.step = 4;
    scenario_put_progress(s);
    scenario_commit(s);
}

static void cordon(Scenario *s, CordonMode mode)
{
    s->cordon.causes[0].mode = mode;
    scenario_put_cordon(s);
    scenario_commit(s);
    scenario_next_world(s, PHASE_STARTING);
    scenario_commit(s);
}

static void quarantined_node_is_used(Scenario *s) { cordon(s, CORDON_QUARANTINE); }
static void cordoned_node_is_used(Scenario *s) { cordon(s, CORDON_CORDON); }

static void slot_of_two(Scenario *s)
{
    s->world.size = 3;
    s->world.n_runs = 3;
    s->runs[2] = s->runs[0];
    scenario_next_world(s, PHASE_STARTING);
    scenario_commit(s);
}

static void too_few_slots(Scenario *s)
{
    s->world.n_runs = 1;
    scenario_next_world(s, PHASE_STARTING);
    scenario_commit(s);
}

static void slot_that_is_not_there(Scenario *s)
{
    s->runs[1].slots = 4;
    scenario_next_world(s, PHASE_STARTING);
    scenario_commit(s);
}

static void slot_that_is_lost(Scenario *s)
{
    s->nodes[1].lost_slots = 1;
    scenario_put_node(s, 1);
    scenario_commit(s);
    scenario_next_world(s, PHASE_STARTING);
    scenario_commit(s);
}

static void slots_of_another_job(Scenario *s)
{
    SpecRecord spec = {.spec = (char *)"{}", .submission = OTHER_SUBMISSION};
    WorldRecord world = {.generation = 1, .size = 1, .runs = s->runs, .n_runs = 1};
    PhaseRecord phase = {.phase = PHASE_STARTING, .generation = 1, .serial = 1};
    memcpy(world.submission, OTHER_SUBMISSION, SUBMISSION_BYTES);
    memcpy(phase.submission, OTHER_SUBMISSION, SUBMISSION_BYTES);
    scenario_change(s, KEY_SPECS, "b", spec_record_encode(&spec, NULL), 0);
    scenario_change(s, KEY_DESIRED, "b", desired_record_encode(&s->desired, NULL), 0);
    scenario_commit(s);
    scenario_change(s, KEY_WORLDS, "b", world_record_encode(&world, NULL), 0);
    scenario_change(s, KEY_PHASES, "b", phase_record_encode(&phase, NULL), 0);
    scenario_commit(s);
}

static void too_many_ranks(Scenario *s)
{
    s->desired.max = 1;
    scenario_put_desired(s);
    scenario_commit(s);
    scenario_next_world(s, PHASE_STARTING);
    scenario_commit(s);
}

static void stopped_job_gets_a_world(Scenario *s)
{
    s->desired.state = DESIRED_STOPPED;
    scenario_put_desired(s);
    scenario_commit(s);
    scenario_next_world(s, PHASE_STARTING);
    scenario_commit(s);
}

static void starts_without_a_word(Scenario *s)
{
    scenario_stops(s);
    scenario_phase_is(s, PHASE_PENDING);
    scenario_commit(s);
}

static void succeeds_too_early(Scenario *s)
{
    scenario_phase_is(s, PHASE_SUCCEEDED);
    scenario_commit(s);
}

static void goes_twice(Scenario *s)
{
    scenario_stops(s);
    s->phase.phase = PHASE_STARTING;
    scenario_goes(s);
}

static void goes_while_old_ranks_live(Scenario *s)
{
    scenario_recovers(s);
    scenario_goes(s);
}

static void rank_runs_before_go(Scenario *s)
{
    scenario_recovers(s);
    scenario_old_rank_ends(s);
    s->reports[0].state = RANK_RUNNING;
    scenario_put_ranks(s, 0);
    scenario_commit(s);
}

static void report_of_no_world(Scenario *s)
{
    s->ranks[0].world_revision--;
    scenario_put_ranks(s, 0);
    scenario_commit(s);
}

static void report_of_a_foreign_slot(Scenario *s)
{
    s->reports[0].slot = 1;
    scenario_put_ranks(s, 0);
    scenario_commit(s);
}

static void rank_comes_to_life(Scenario *s)
{
    s->reports[0].state = RANK_EXITED;
    scenario_put_ranks(s, 0);
    scenario_commit(s);
    s->reports[0].state = RANK_RUNNING;
    scenario_put_ranks(s, 0);
    scenario_commit(s);
}

static void rank_has_two_processes(Scenario *s)
{
    s->reports[0].pid++;
    scenario_put_ranks(s, 0);
    scenario_commit(s);
}

static void first_step_changes(Scenario *s)
{
    for (s->ranks[0].first_step = 1; s->ranks[0].first_step < 3; s->ranks[0].first_step++) {
        scenario_put_ranks(s, 0);
        scenario_commit(s);
    }
}

static void takes_back_that_it_left(Scenario *s)
{
    for (int i = 0; i < 2; i++) {
        s->ranks[0].left = i == 0;
        scenario_put_ranks(s, 0);
        scenario_commit(s);
    }
}

static void rank_ends_twice(Scenario *s)
{
    s->reports[0].state = RANK_EXITED;
    for (int code = 80; code < 82; code++) {
        s->reports[0].exit_code = code;
        scenario_put_ranks(s, 0);
        scenario_commit(s);
    }
}

static void leaves_before_it_went(Scenario *s)
{
    scenario_recovers(s);
    s->phase.leave = true;
    scenario_put_phase(s);
    scenario_commit(s);
}

static void waits_after_it_went(Scenario *s)
{
    s->phase.go = false;
    scenario_put_phase(s);
    scenario_commit(s);
}

static void dead_rank_lives(Scenario *s)
{
    scenario_recovers(s);
    scenario_old_rank_ends(s);
    scenario_removes(s, KEY_RANKS, JOB "/1/n0");
    scenario_commit(s);
    s->ranks[0].generation = 1;
    s->ranks[0].world_revision = 5;
    s->reports[0].state = RANK_RUNNING;
    scenario_put_ranks(s, 0);
    scenario_commit(s);
}

static void recovery_without_incident(Scenario *s)
{
    scenario_next_world(s, PHASE_RECOVERING);
    scenario_commit(s);
}

static void incident_opens_again(Scenario *s)
{
    scenario_recovery(s);
    s->incident.state = INCIDENT_OPEN;
    s->incident.resolved_usec = 0;
    scenario_put_incident(s);
    scenario_commit(s);
}

static void incident_changes_its_cause(Scenario *s)
{
    scenario_recovers(s);
    (void)snprintf(s->incident.cause, sizeof(s->incident.cause), "hang");
    scenario_put_incident(s);
    scenario_commit(s);
}

static void incident_is_removed_open(Scenario *s)
{
    scenario_recovers(s);
    scenario_removes(s, KEY_INCIDENTS, JOB "-1");
    scenario_commit(s);
}

static void incident_stays_open(Scenario *s)
{
    scenario_recovers(s);
    scenario_old_rank_ends(s);
    scenario_goes(s);
    scenario_phase_is(s, PHASE_RUNNING);
    scenario_commit(s);
    history_checker_end(s->checker);
}

static void fault_without_quarantine(Scenario *s)
{
    (void)snprintf(s->incident.cause, sizeof(s->incident.cause), "device-fault");
    scenario_recovers(s);
}

static void two_strikes_at_once(Scenario *s)
{
    s->cordon.causes[0].strikes = 2;
    scenario_put_cordon(s);
    scenario_commit(s);
}

static void told_to_be_over_and_is_not(Scenario *s)
{
    scenario_recovers(s);
    s->alert.deliveries[0].state = DELIVERY_RESOLVED;
    scenario_put_alert(s);
    scenario_commit(s);
}

static void told_again(Scenario *s)
{
    scenario_recovery(s);
    s->alert.deliveries[0].state = DELIVERY_RESOLVED;
    scenario_put_alert(s);
    scenario_commit(s);
    s->alert.deliveries[0].state = DELIVERY_TRIGGERED;
    scenario_put_alert(s);
    scenario_commit(s);
}

static void node_without_lease(Scenario *s)
{
    scenario_change(s, KEY_NODES, "n0", node_record_encode(&s->nodes[0], NULL), 0);
    scenario_commit(s);
}

static void world_on_a_lease(Scenario *s)
{
    scenario_change(s, KEY_PHASES, JOB, phase_record_encode(&s->phase, NULL), LEASE);
    s->phase.serial++;
    free((char *)s->changes[0].value);
    s->changes[0].value = phase_record_encode(&s->phase, NULL);
    s->changes[0].n_value = strlen(s->changes[0].value);
    scenario_commit(s);
}

static void value_is_no_record(Scenario *s)
{
    scenario_change(s, KEY_HEALTH, "n0", memory_text("{\"v\": 2"), 0);
    scenario_commit(s);
}

static void key_of_nothing(Scenario *s)
{
    char *name = memory_format("/sdtrain/" CLUSTER "/elsewhere/x");
    s->changes[s->n_changes++] =
        (HistoryChange){.key = name, .value = memory_text("1"), .n_value = 1, .version = 1};
    scenario_commit(s);
}

static void a_version_is_missing(Scenario *s)
{
    *scenario_version_of(s, "/sdtrain/" CLUSTER "/phases/" JOB) += 1;
    scenario_put_phase(s);
    scenario_commit(s);
}

static void history_begins_in_the_middle(Scenario *s)
{
    *scenario_version_of(s, "/sdtrain/" CLUSTER "/cordons/n1") = 3;
    scenario_put_cordon(s);
    scenario_commit(s);
}

static void mark_is_forgotten(Scenario *s)
{
    scenario_recovers(s); /* the phase's field `committed` has step 5 */
    s->phase.committed = (CommitMark){0};
    scenario_put_phase(s);
    scenario_commit(s);
}

static void rendezvous_of_no_world(Scenario *s)
{
    RendezvousRecord record = {.address = "10.0.0.1:1"};
    scenario_change(s, KEY_RENDEZVOUS, JOB "/2", rendezvous_record_encode(&record, NULL), 0);
    scenario_commit(s);
}

static const struct {
    void (*tell)(Scenario *s);
    const char *invariant, *says;
} broken[] = {
    {world_repeats, "I2", "comes after world 1"},
    {world_without_phase, "I2", "without its phase"},
    {phase_goes_back, "I2", "goes back from 2 to 1"},
    {serial_repeats, "lost", "follows phase"},
    {phase_of_another_submission, "lost", "is the job's"},
    {submission_is_forgotten, "lost", "says no more"},
    {phase_after_removal, "gone", "the job is not there"},
    {job_is_put_back, "lost", "is put back"},
    {job_over_a_job, "lost", "takes the place"},
    {removal_leaves_checkpoints, "gone", "this stays"},
    {removal_while_it_runs, "I3", "removed while it is running"},
    {world_vanishes, "lost", "the world of a is removed"},
    {checkpoints_vanish, "lost", "the checkpoints of a are removed"},
    {resumes_too_early, "I4", "resumes at 0"},
    {commit_of_an_old_world, "I3", "commits step 10 in world 2"},
    {commit_before_go, "I3", "never went"},
    {commit_goes_back, "I4", "goes back from step 5 to 4"},
    {commit_below_the_latest, "I4", "commits step 4 after step 5"},
    {commit_is_lost, "I4", "step 5 of a, which was committed, is lost"},
    {struck_out_counts_again, "I4", "counts again"},
    {progress_says_another_commit, "I4", "its progress says step 9"},
    {progress_of_an_old_world, "I3", "reports progress in world 2"},
    {progress_forgets_a_commit, "I4", "the progress of a forgets that step 5"},
    {progress_goes_back, "progress", "from step 5 to 4"},
    {quarantined_node_is_used, "I5", "quarantined: Xid 79"},
    {cordoned_node_is_used, "I5", "cordoned"},
    {slot_of_two, "I6", "twice"},
    {too_few_slots, "record", "the runs hold 1 slots"},
    {slot_that_is_not_there, "I6", "does not have"},
    {slot_that_is_lost, "I6", "lost or a bad slot"},
    {slots_of_another_job, "I6", "b gets slots of n0 that a holds"},
    {too_many_ranks, "size", "has 2 ranks"},
    {stopped_job_gets_a_world, "word", "is to be stopped"},
    {starts_without_a_word, "word", "nobody has said so"},
    {succeeds_too_early, "I9", "step 5 of 40"},
    {goes_twice, "I3", "goes twice"},
    {goes_while_old_ranks_live, "I3", "goes while ranks of generation 1 live on n0"},
    {rank_runs_before_go, "I3", "was not told to go"},
    {report_of_no_world, "I3", "never was"},
    {report_of_a_foreign_slot, "I6", "does not give it"},
    {rank_comes_to_life, "I3", "was exited"},
    {rank_has_two_processes, "I3", "two processes"},
    {first_step_changes, "progress", "the first step is 2, and was 1"},
    {takes_back_that_it_left, "I3", "takes back that its ranks have left"},
    {rank_ends_twice, "I3", "has ended with 80, and with 81"},
    {leaves_before_it_went, "I3", "leaves before it went"},
    {waits_after_it_went, "I3", "is told to wait"},
    {dead_rank_lives, "I3", "told in generation 2 that they are dead"},
    {recovery_without_incident, "I10", "without an incident"},
    {incident_opens_again, "I10", "opens again"},
    {incident_changes_its_cause, "I10", "turns from node-lost to hang"},
    {incident_is_removed_open, "I10", "is not over"},
    {incident_stays_open, "I10", "is still open, and a is running"},
    {fault_without_quarantine, "blame", "does not quarantine it"},
    {two_strikes_at_once, "cordon", "had 0 strikes, and has 2"},
    {told_to_be_over_and_is_not, "I10", "and it is not"},
    {told_again, "I10", "told again"},
    {node_without_lease, "lease", "hangs on no lease"},
    {world_on_a_lease, "lease", "hangs on a lease"},
    {value_is_no_record, "record", "health/n0"},
    {key_of_nothing, "key", "no record"},
    {a_version_is_missing, "hole", "lacks changes"},
    {history_begins_in_the_middle, "hole", "it is version 4, not 1"},
    {mark_is_forgotten, "I4", "forgets that step 5"},
    {rendezvous_of_no_world, "I3", "generation 2"},
};

static void test_what_breaks(void **state)
{
    for (size_t i = 0; i < ELEMENTSOF(broken); i++) {
        assert_int_equal(scenario_begin(state), 0);
        Scenario *s = *state;
        broken[i].tell(s);
        if (s->n_said == 0 || strcmp(s->invariant, broken[i].invariant) != 0 ||
            !strstr(s->said, broken[i].says))
            fail_msg("%s \"%s\" is not told, but %s: %s", broken[i].invariant, broken[i].says,
                     s->invariant, s->said);
        (void)scenario_end(state); /* always returns 0 */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_well),
        cmocka_unit_test(test_what_breaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
