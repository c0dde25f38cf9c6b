/* SPDX-License-Identifier: Apache-2.0 */
/* test-node-jobs.c - whole nodes in one process, on fakes: a job does not affect another job whose name begins with
 * its own name. Jobs are deleted and submitted again while the watches show only a part of these changes. See
 * test-node-worlds.c. */
#include "daemon/test/testing-node.h"

#include <string.h>

static int set_up(_unused_ void **state)
{
    nodes_begin();
    submit("a");
    submit("ab");
    return 0;
}

/* ---- names ---- */

static bool remembers(const TestNode *n, const char *job)
{
    const HistoryRecord *record = &n->manager->history.record;
    for (size_t i = 0; i < record->n_runs; i++)
        if (strcmp(record->runs[i].job, job) == 0)
            return true;
    return false;
}

/* The node keeps both jobs, to report them after a restore of etcd from a snapshot. */
static void how_far_job_ab_was_is_kept_when_job_a_begins(_unused_ void **state)
{
    join(&n1);
    run_world("ab", 3, 1, 0);
    run_world("a", 1, 2, 0);
    assert_true(remembers(&n1, "ab"));
    assert_true(remembers(&n1, "a"));
}

static void each_job_that_is_done_has_its_deadline(_unused_ void **state)
{
    join(&n1);
    run_world("ab", 1, 1, 0);
    run_world("a", 1, 2, 0);
    set_phase("a", (PhaseRecord){.phase = PHASE_SUCCEEDED, .generation = 1});
    settle();
    pass(3 * USEC_PER_SEC);
    assert_killed(&n1, 0, false);
    assert_killed(&n1, 1, true);
    set_phase("ab", (PhaseRecord){.phase = PHASE_SUCCEEDED, .generation = 1});
    settle();
    pass(3 * USEC_PER_SEC);
    assert_killed(&n1, 0, true);
}

/* ---- records that cannot be decoded ---- */

static void get_ready_on_n2(void)
{
    says(&n2.machine, 0, CHANNEL_HELLO, 0);
    settle();
    says(&n2.machine, 0, CHANNEL_READY, 0);
    settle();
}

static void a_rendezvous_that_cannot_be_read_is_not_gone(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    join(&n2);
    (void)decide("a", 1, 1, 1);
    set_rendezvous("a", 1, "127.0.0.1:7");
    settle();
    (void)put(key_rendezvous("lab", "a", 1, key), "{", 0);
    let_go("a", 1);
    settle();
    get_ready_on_n2();
    assert_int_equal(told(&n2, 0, CHANNEL_GO), 1);
    assert_string_equal(n2.machine.trainers[0].address, "127.0.0.1:7");
}

/* ---- jobs that are deleted and submitted again ---- */

/* One watch shows the new job's rendezvous before another watch shows the end of the old job. */
static void a_late_death_does_not_take_the_address_of_the_next_life(_unused_ void **state)
{
    join(&n1);
    join(&n2);
    run_world("a", 1, 0, 1);
    n2.etcd.is_blind = true;
    remove_job("a");
    submit("a");
    (void)decide("a", 1, 1, 1);
    let_go("a", 1);
    set_rendezvous("a", 1, "127.0.0.1:9");
    show_kind(&n2.etcd, KEY_RENDEZVOUS);
    show_kind(&n2.etcd, KEY_PHASES);
    show_kind(&n2.etcd, KEY_WORLDS);
    answer_all();
    dies(&n2.machine, 0);
    answer_all();
    says(&n2.machine, 0, CHANNEL_HELLO, 0);
    answer_all();
    says(&n2.machine, 0, CHANNEL_READY, 0);
    answer_all();
    assert_int_equal(told(&n2, 0, CHANNEL_GO), 1);
    assert_string_equal(n2.machine.trainers[0].address, "127.0.0.1:9");
}

/* Deletes job a and submits it again, while no watch shows the time between. Its one rank then gets its `go`. */
static void submit_again(void)
{
    remove_job("a");
    memset(submission, 'e', sizeof(submission) - 1);
    submit("a");
    (void)decide("a", 1, 1, 0);
    list_again(&n1.etcd);
    answer_all();
    dies(&n1.machine, 0);
    settle();
    says(&n1.machine, 0, CHANNEL_HELLO, 0);
    settle();
    says(&n1.machine, 0, CHANNEL_READY, 0);
    let_go("a", 1);
    settle();
    assert_int_equal(told(&n1, 0, CHANNEL_GO), 1);
}

static void say_computing(int slot, int64_t step)
{
    writes_message(&n1.machine, slot,
                   (ChannelMessage){.type = CHANNEL_STAGE, .step = step, .stage = STAGE_COMPUTING});
    const FakeTrainer *t = trainer_in(&n1.machine, slot);
    t->process->events.heard(t->process->events.userdata);
}

static void pass_in_contact(uint64_t sec)
{
    for (uint64_t i = 0; i < sec; i++) {
        pass(USEC_PER_SEC);
        renew(&n1.etcd);
        settle();
    }
}

/* Does steps of one second each, as many as the watchdog needs to know their time. */
static void do_first_steps(void)
{
    for (int64_t step = 1; step <= 1 + WATCHDOG_STEPS_MIN; step++) {
        say_computing(0, step);
        pass_in_contact(1);
    }
}

/* Ends the present world and its ranks, then runs the next world in these slots of n1. */
static void run_next(int64_t generation, uint64_t slots)
{
    (void)decide("a", generation, 0, 1);
    settle();
    for (int slot = 0; slot < RECORD_SLOTS_MAX; slot++)
        if (n1.machine.trainers[slot].process)
            dies(&n1.machine, slot);
    settle();
    run_world("a", generation + 1, slots, 0);
}

static void hold_to_steps(void)
{
    n1.config.hang_floor_sec = 1;
    n1.config.hang_factor = 2;
}

/* The bound for the first steps of a world comes from the steps of the world before; with fewer ranks the bound is
 * longer. */
static void first_steps_are_known_by_those_of_the_world_before(_unused_ void **state)
{
    hold_to_steps();
    join(&n1);
    run_world("a", 1, 1, 0);
    do_first_steps();
    run_next(2, 15);
    do_first_steps(); /* steps of four ranks */
    run_next(4, 1);
    say_computing(0, 1);
    pass_in_contact(7);
    assert_killed(&n1, 0, false);
    pass_in_contact(2);
    assert_killed(&n1, 0, true);
}

static void more_ranks_have_first_steps_that_are_no_shorter(_unused_ void **state)
{
    hold_to_steps();
    join(&n1);
    run_world("a", 1, 1, 0);
    do_first_steps();
    run_next(2, 15);
    for (int slot = 0; slot < 4; slot++)
        say_computing(slot, 1);
    pass_in_contact(1);
    assert_killed(&n1, 0, false);
    pass_in_contact(2);
    assert_killed(&n1, 0, true);
}

/* The new job's steps may take a hundred times as long as the old job's steps. */
static void
nothing_is_known_of_the_first_steps_of_a_job_that_was_submitted_again(_unused_ void **state)
{
    hold_to_steps();
    join(&n1);
    run_world("a", 1, 1, 0);
    do_first_steps();
    submit_again();
    say_computing(0, 1);
    pass_in_contact(100);
    assert_killed(&n1, 0, false);
}

static void a_job_that_succeeds_after_another_of_its_name_has_its_time(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 1, 0);
    set_phase("a", (PhaseRecord){.phase = PHASE_SUCCEEDED, .generation = 1});
    settle();
    pass(3 * USEC_PER_SEC);
    assert_killed(&n1, 0, true);
    submit_again();
    set_phase("a", (PhaseRecord){.phase = PHASE_SUCCEEDED, .generation = 1});
    settle();
    pass(2 * USEC_PER_SEC - 1);
    assert_killed(&n1, 0, false);
    pass(TICK_USEC);
    assert_killed(&n1, 0, true);
}

/* A node learns of its own put by etcd's answer, which may come after the watch has shown a newer change. */
static void an_address_that_is_older_than_its_deletion_is_none(_unused_ void **state)
{
    const RendezvousRecord record = {.address = "127.0.0.1:1"};
    join(&n1);
    (void)decide("a", 4, 1, 1);
    settle();
    LocalJob *job = job_find(&n1.manager->workload, "a");
    const int64_t at = job->world_revision;
    job_set_rendezvous(job, 4, at + 1, &record);
    assert_int_equal(job->rendezvous_generation, 4);
    job_set_rendezvous(job, 4, at + 3, NULL);
    job_set_rendezvous(job, 4, at + 2, &record);
    assert_int_equal(job->rendezvous_generation, 0);
    job_set_rendezvous(job, 4, at + 4, &record);
    assert_int_equal(job->rendezvous_generation, 4);
}

/* A node forgets a job with the last record of the job. */
static void what_is_known_of_a_job_goes_with_its_last_record(_unused_ void **state)
{
    char key[KEY_MAX];
    const Workload *w;
    join(&n1);
    w = &n1.manager->workload;
    set_phase("x", (PhaseRecord){.phase = PHASE_PENDING});
    set_rendezvous("y", 3, "127.0.0.1:1");
    (void)decide("z", 1, 0, 1);
    settle();
    assert_int_equal(w->n_jobs, 3);
    (void)delete_key(key_of("lab", KEY_PHASES, "x", key));
    settle();
    assert_int_equal(w->n_jobs, 2);
    (void)delete_key(key_rendezvous("lab", "y", 3, key));
    settle();
    assert_int_equal(w->n_jobs, 1);
    set_phase("z", (PhaseRecord){.phase = PHASE_RUNNING, .generation = 1});
    settle();
    (void)delete_key(key_of("lab", KEY_WORLDS, "z", key));
    settle();
    assert_int_equal(w->n_jobs, 1);
    (void)delete_key(key_of("lab", KEY_PHASES, "z", key));
    settle();
    assert_int_equal(w->n_jobs, 0);
    assert_null(w->jobs);
}

/* The watch of the phases is ahead of the watch of the worlds. */
static void a_later_phase_that_ends_a_job_ends_an_older_world(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 1, 0);
    set_phase("a", (PhaseRecord){.phase = PHASE_STOPPED, .generation = 2});
    settle();
    assert_killed(&n1, 0, true);
}

static void each_world_removes_the_oldest_logs_of_its_job(_unused_ void **state)
{
    join(&n1);
    *pruned = '\0';
    run_world("a", 1, 1, 0);
    assert_string_equal(pruned, "a");
    run_world("ab", 1, 2, 0);
    assert_string_equal(pruned, "ab");
    (void)decide("a", 2, 0, 1); /* no rank of this world runs on n1 */
    settle();
    assert_string_equal(pruned, "ab");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, nodes_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(how_far_job_ab_was_is_kept_when_job_a_begins),
        CASE(each_job_that_is_done_has_its_deadline),
        CASE(a_rendezvous_that_cannot_be_read_is_not_gone),
        CASE(a_late_death_does_not_take_the_address_of_the_next_life),
        CASE(first_steps_are_known_by_those_of_the_world_before),
        CASE(more_ranks_have_first_steps_that_are_no_shorter),
        CASE(nothing_is_known_of_the_first_steps_of_a_job_that_was_submitted_again),
        CASE(a_job_that_succeeds_after_another_of_its_name_has_its_time),
        CASE(an_address_that_is_older_than_its_deletion_is_none),
        CASE(what_is_known_of_a_job_goes_with_its_last_record),
        CASE(a_later_phase_that_ends_a_job_ends_an_older_world),
        CASE(each_world_removes_the_oldest_logs_of_its_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
