/* SPDX-License-Identifier: Apache-2.0 */
/* test-node-jobs.c - whole nodes in one process, where nothing is real: what one job must not do to another whose name
 * begins like its own, and jobs that die and are born again while watches show only a part. See test-node-worlds.c. */
#include "daemon/test/testing-node.h"

#include <string.h>

static int set_up(_unused_ void **state)
{
    nodes_begin();
    submit("a");
    submit("ab");
    return 0;
}

static int tear_down(_unused_ void **state)
{
    nodes_end();
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

/* It tells of both after etcd was restored from a snapshot. */
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

/* ---- what cannot be read ---- */

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

/* ---- death and rebirth ---- */

/* One watch shows the new job's rendezvous before another shows the end of the old one. */
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

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(how_far_job_ab_was_is_kept_when_job_a_begins),
        CASE(each_job_that_is_done_has_its_deadline),
        CASE(a_rendezvous_that_cannot_be_read_is_not_gone),
        CASE(a_late_death_does_not_take_the_address_of_the_next_life),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
