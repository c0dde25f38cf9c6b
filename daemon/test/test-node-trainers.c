/* SPDX-License-Identifier: Apache-2.0 */
/* test-node-trainers.c - what a node sends to its trainers, receives from them and writes about them, in memory:
 * parts, states, commits, hangs. */
#include "base/log.h"
#include "daemon/test/testing-node.h"

#include <signal.h>
#include <string.h>

/* ---- commits ---- */

static size_t n_commits(void)
{
    char key[KEY_MAX];
    CheckpointsRecord record;
    Error err = ERROR_INIT;
    const StoredKey *k = find(key_of("lab", KEY_CHECKPOINTS, "a", key));
    if (!k)
        return 0;
    assert_int_equal(checkpoints_record_decode(key, k->value, strlen(k->value), &record, &err), 0);
    size_t n = record.n_commits;
    checkpoints_record_clear(&record);
    return n;
}

static void a_commit_whose_answer_is_lost_is_done_once(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    run_world("a", 1, 3, 0);
    says(&n1.machine, 0, CHANNEL_SAVED, 10);
    answer(under_way(&n1.etcd, key_of("lab", KEY_WORLDS, "a", key)), GIVEN);
    answer(under_way(&n1.etcd, key_of("lab", KEY_CHECKPOINTS, "a", key)), LOST_AFTER);
    pass(USEC_PER_SEC);
    settle();
    assert_int_equal(told(&n1, 0, CHANNEL_COMMITTED), 1);
    assert_int_equal(n1.n_committed, 1);
    assert_int_equal(n_commits(), 1);
}

/* The world moves after the node has read the commit's guards. */
static void a_commit_is_refused_when_the_world_moves_before_it_is_written(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    run_world("a", 1, 3, 0);
    says(&n1.machine, 0, CHANNEL_SAVED, 10);
    answer(under_way(&n1.etcd, key_of("lab", KEY_WORLDS, "a", key)), GIVEN);
    n1.etcd.is_blind = true;
    (void)decide("a", 2, 0, 1);
    settle();
    assert_int_equal(n_commits(), 0);
    assert_int_equal(told(&n1, 0, CHANNEL_COMMITTED), 0);
    assert_int_equal(told(&n1, 0, CHANNEL_REFUSED), 1);
    assert_killed(&n1, 0, true);
}

/* Two generations that commit the same step make two commits, since their bytes may differ. */
static void a_commit_is_not_known_by_its_step_alone(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    says(&n1.machine, 0, CHANNEL_SAVED, 10);
    settle();
    (void)decide("a", 2, 0, 1);
    settle();
    dies(&n1.machine, 0);
    dies(&n1.machine, 1);
    settle();
    run_world("a", 3, 3, 0);
    says(&n1.machine, 0, CHANNEL_SAVED, 10);
    settle();
    assert_int_equal(n_commits(), 2);
    assert_int_equal(n1.n_committed, 2);
    (void)decide("a", 4, 0, 1);
    n1.etcd.is_blind = true;
    says(&n1.machine, 0, CHANNEL_SAVED, 20);
    settle();
    assert_int_equal(told(&n1, 0, CHANNEL_REFUSED), 1);
    assert_int_equal(n1.n_refused, 1);
    assert_int_equal(n_commits(), 2);
    assert_killed(&n1, 0, true);
}

/* The second save arrives while the commit of the first save is still under way. */
static void two_saves_at_once_are_one_commit(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    says(&n1.machine, 0, CHANNEL_SAVED, 10);
    says(&n1.machine, 0, CHANNEL_SAVED, 20);
    settle();
    assert_int_equal(n_commits(), 1);
    assert_int_equal(told(&n1, 0, CHANNEL_COMMITTED), 1);
}

static void a_save_of_a_world_that_is_over_is_none(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    (void)decide("a", 2, 0, 1);
    settle();
    says(&n1.machine, 0, CHANNEL_SAVED, 10);
    settle();
    assert_int_equal(n_commits(), 0);
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_READY);
}

static void commits_of_a_later_version_are_not_written_over(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    run_world("a", 1, 3, 0);
    (void)put(key_of("lab", KEY_CHECKPOINTS, "a", key), "{\"v\":1000}", 0);
    says(&n1.machine, 0, CHANNEL_SAVED, 10);
    for (int i = 0; i < 5; i++) {
        settle();
        pass(USEC_PER_SEC);
    }
    settle();
    assert_string_equal(find(key)->value, "{\"v\":1000}");
    assert_int_equal(told(&n1, 0, CHANNEL_COMMITTED), 0);
    (void)delete_key(key);
    pass(USEC_PER_SEC);
    settle();
    assert_int_equal(n_commits(), 1);
}

static void commits_of_a_predecessor_are_not_kept(_unused_ void **state)
{
    char mine[sizeof(submission)];
    join(&n1);
    memcpy(mine, submission, sizeof(mine));
    run_world("a", 1, 3, 0);
    says(&n1.machine, 0, CHANNEL_SAVED, 10);
    settle();
    remove_job("a");
    settle();
    dies(&n1.machine, 0);
    dies(&n1.machine, 1);
    settle();
    memset(submission, 'e', sizeof(submission) - 1);
    submit("a");
    run_world("a", 2, 3, 0);
    says(&n1.machine, 0, CHANNEL_SAVED, 30);
    settle();
    assert_int_equal(n_commits(), 1);
    assert_int_equal(n1.n_committed, 2);
    assert_int_equal(n1.manager->history.record.n_runs, 1); /* the node knows only the new job */
    assert_string_equal(n1.manager->history.record.runs[0].submission, submission);
    assert_int_equal(n1.manager->history.record.runs[0].committed.step, 30);
}

/* ---- what a trainer gets at its start ---- */

/* Puts a secret as the leader does: in the transaction of the world, at revision `at`. */
static void put_secret(int64_t generation, int64_t at, char letter)
{
    char key[KEY_MAX];
    SecretRecord record = {.generation = generation};
    memset(record.secret, letter, SECRET_TEXT_BYTES - 1);
    _cleanup_free_ char *text = secret_record_encode(&record, NULL);
    change_at(at, key_of("lab", KEY_SECRETS, "a", key), text, 0);
}

static void a_trainer_gets_its_part_once_with_the_secret_of_its_world(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    int64_t at = decide("a", 1, 3, 0);
    put_secret(1, at + 2, 'b'); /* the secret of a world that is not shown yet */
    show(&n1.etcd);
    says(&n1.machine, 0, CHANNEL_HELLO, 0);
    answer(under_way(&n1.etcd, key_of("lab", KEY_SPECS, "a", key)), GIVEN);
    assert_int_equal(told(&n1, 0, CHANNEL_ASSIGN), 0);
    answer_all();
    assert_int_equal(told(&n1, 0, CHANNEL_ASSIGN), 0);
    put_secret(1, at, 'c');
    pass(USEC_PER_SEC);
    answer_all();
    assert_int_equal(told(&n1, 0, CHANNEL_ASSIGN), 1);
    assert_int_equal(n1.machine.trainers[0].assigned.assign.secret[0], 'c');
    says(&n1.machine, 0, CHANNEL_HELLO, 0);
    says(&n1.machine, 1, CHANNEL_HELLO, 0);
    assert_int_equal(told(&n1, 0, CHANNEL_ASSIGN), 1);
    assert_int_equal(told(&n1, 1, CHANNEL_ASSIGN), 1);
    assert_int_equal(n1.machine.trainers[1].assigned.assign.secret[0], 'c');
    assert_int_equal(n1.machine.trainers[1].assigned.assign.rank, 1);
    assert_int_equal(n1.machine.trainers[1].assigned.assign.world_size, 2);
}

static void a_secret_of_an_earlier_world_is_none(_unused_ void **state)
{
    join(&n1);
    put_secret(1, 1, 'b');
    (void)decide("a", 1, 3, 0);
    settle();
    says(&n1.machine, 0, CHANNEL_HELLO, 0);
    assert_int_equal(told(&n1, 0, CHANNEL_ASSIGN), 1);
    assert_string_equal(n1.machine.trainers[0].assigned.assign.secret, "");
}

/* The slot of one rank becomes clear before the slot of the other; the secret is kept until both ranks have it. */
static void a_secret_is_kept_until_the_last_rank_has_it(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    put_secret(2, decide("a", 2, 3, 0), 'c');
    settle();
    dies(&n1.machine, 1);
    settle();
    says(&n1.machine, 1, CHANNEL_HELLO, 0);
    assert_int_equal(n1.machine.trainers[1].assigned.assign.secret[0], 'c');
    pass(USEC_PER_SEC);
    dies(&n1.machine, 0);
    settle();
    assert_int_equal(n1.machine.n_started, 4);
    says(&n1.machine, 0, CHANNEL_HELLO, 0);
    assert_int_equal(told(&n1, 0, CHANNEL_ASSIGN), 1);
    assert_int_equal(n1.machine.trainers[0].assigned.assign.secret[0], 'c');
    const LocalWorld *local = job_find(&n1.manager->workload, "a")->local;
    for (size_t i = 0; i < sizeof(local->secret); i++)
        assert_int_equal(local->secret[i], 0); /* no rank needs the secret any more */
}

static char warning[300]; /* the last one */

static void keep_warning(LogLevel level, const char *text)
{
    if (level == LOG_LEVEL_WARNING)
        (void)snprintf(warning, sizeof(warning), "%s", text);
}

/* A secret that was denied is read again, since roles may change while the node runs. The log says why. */
static void a_secret_that_is_denied_once_is_read_again(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    put_secret(1, decide("a", 1, 3, 0), 'c');
    show(&n1.etcd);
    says(&n1.machine, 0, CHANNEL_HELLO, 0);
    log_lend(keep_warning);
    answer(under_way(&n1.etcd, key_of("lab", KEY_SECRETS, "a", key)), DENIED);
    log_lend(NULL);
    assert_string_equal(warning, "permission denied; reading again JOB=a");
    answer_all();
    assert_int_equal(told(&n1, 0, CHANNEL_ASSIGN), 0);
    pass(USEC_PER_SEC);
    settle();
    assert_int_equal(told(&n1, 0, CHANNEL_ASSIGN), 1);
    assert_int_equal(n1.machine.trainers[0].assigned.assign.secret[0], 'c');
}

/* A secret that cannot be decoded may be of a later version. The ranks wait, since without the secret they could not
 * join other ranks. */
static void a_secret_that_cannot_be_read_is_waited_for(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    const int64_t at = decide("a", 1, 3, 0);
    change_at(at, key_of("lab", KEY_SECRETS, "a", key), "{", 0);
    settle();
    says(&n1.machine, 0, CHANNEL_HELLO, 0);
    pass(USEC_PER_SEC);
    settle();
    assert_int_equal(told(&n1, 0, CHANNEL_ASSIGN), 0);
    put_secret(1, at, 'c');
    pass(USEC_PER_SEC);
    settle();
    assert_int_equal(n1.machine.trainers[0].assigned.assign.secret[0], 'c');
}

/* Rank 0 knows its own address by the answer to its put, without a watch. */
static void rank_0_goes_by_the_answer_to_its_own_word(_unused_ void **state)
{
    join(&n1);
    (void)decide("a", 1, 3, 0);
    settle();
    n1.etcd.is_blind = true;
    says(&n1.machine, 0, CHANNEL_HELLO, 0);
    settle();
    says(&n1.machine, 0, CHANNEL_RENDEZVOUS, 0);
    says(&n1.machine, 0, CHANNEL_READY, 0);
    settle();
    let_go("a", 1);
    show_kind(&n1.etcd, KEY_PHASES);
    assert_int_equal(told(&n1, 0, CHANNEL_GO), 1);
    assert_string_equal(n1.machine.trainers[0].address, "127.0.0.1:4000");
}

/* A node whose record does not name the right to read secrets starts ranks without a secret: the leader has made
 * no secret. */
static void a_node_that_may_read_no_secret_starts_without(_unused_ void **state)
{
    char key[KEY_MAX];
    start(&n1);
    answer(under_way(&n1.etcd, key_of("lab", KEY_SECRETS, ".rights", key)), DENIED);
    grant(&n1.etcd);
    settle();
    (void)decide("a", 1, 3, 0);
    show(&n1.etcd);
    says(&n1.machine, 0, CHANNEL_HELLO, 0);
    answer(under_way(&n1.etcd, key_of("lab", KEY_SECRETS, "a", key)), DENIED);
    answer_all();
    assert_int_equal(told(&n1, 0, CHANNEL_ASSIGN), 1);
    assert_string_equal(n1.machine.trainers[0].assigned.assign.secret, "");
}

/* A part has all fields that the leader, the node and the job file set. */
static void a_part_is_told_whole(_unused_ void **state)
{
    char key[KEY_MAX];
    WorldRun runs[] = {{.node = "n2", .incarnation = n2.incarnation, .slots = 3},
                       {.node = "n1", .incarnation = n1.incarnation, .slots = 4}};
    WorldRecord world = {
        .generation = 9,
        .size = 3,
        .runs = runs,
        .n_runs = 2,
        .resume = {.step = 40, .uri = "file:///c/40", .find = FIND_MUST, .takes_over = "r17"}};
    const SlotGpus gpus = {.pci = {"0000:01:00", "0000:02:00", "0000:03:00"}, .n = 3};
    SpecRecord spec = {.spec = (char *)"{}", .sources = "abc"};
    memcpy(spec.submission, submission, sizeof(submission));
    memcpy(world.submission, submission, sizeof(submission));
    memset(&world.resume.hash, 7, sizeof(world.resume.hash));
    (void)snprintf(n1.config.address, sizeof(n1.config.address), "10.0.0.7");
    join(&n1);
    node_note_health(&n1.manager->node, NODE_HEALTHY, 0, "", &gpus);
    _cleanup_free_ char *file = spec_record_encode(&spec, NULL);
    (void)put(key_of("lab", KEY_SPECS, "a", key), file, 0);
    _cleanup_free_ char *text = world_record_encode(&world, NULL);
    (void)put(key_of("lab", KEY_WORLDS, "a", key), text, 0);
    settle();
    says(&n1.machine, 2, CHANNEL_HELLO, 0);
    const ChannelMessage *m = &n1.machine.trainers[2].assigned;
    assert_int_equal(told(&n1, 2, CHANNEL_ASSIGN), 1);
    assert_int_equal(m->generation, 9);
    assert_int_equal(m->assign.rank, 2);
    assert_int_equal(m->assign.world_size, 3);
    assert_int_equal(m->step, 40);
    assert_string_equal(m->assign.job, "a");
    assert_string_equal(m->assign.node, "n1");
    assert_string_equal(m->assign.resume_uri, "file:///c/40");
    assert_memory_equal(&m->assign.resume_hash, &world.resume.hash, sizeof(world.resume.hash));
    assert_int_equal(m->assign.find, FIND_MUST);
    assert_false(m->assign.adopt);
    assert_string_equal(m->assign.takes_over, "r17");
    assert_string_equal(m->assign.sources, "abc");
    assert_string_equal(m->assign.submission, submission);
    assert_string_equal(m->assign.bind_address, "10.0.0.7");
    assert_string_equal(m->assign.gpu, "0000:03:00");
}

static void a_file_of_another_submission_is_read_again(_unused_ void **state)
{
    char mine[sizeof(submission)];
    join(&n1);
    memcpy(mine, submission, sizeof(mine));
    memset(submission, 'e', sizeof(submission) - 1);
    (void)decide("a", 1, 1, 0);
    settle();
    says(&n1.machine, 0, CHANNEL_HELLO, 0);
    assert_int_equal(told(&n1, 0, CHANNEL_ASSIGN), 0);
    submit("a");
    pass(USEC_PER_SEC);
    settle();
    assert_int_equal(told(&n1, 0, CHANNEL_ASSIGN), 1);
}

static void a_rank_that_is_not_ready_does_not_go(_unused_ void **state)
{
    join(&n1);
    (void)decide("a", 1, 1, 0);
    let_go("a", 1);
    settle();
    says(&n1.machine, 0, CHANNEL_HELLO, 0);
    settle();
    assert_int_equal(told(&n1, 0, CHANNEL_ASSIGN), 1);
    assert_int_equal(told(&n1, 0, CHANNEL_GO), 0);
    says(&n1.machine, 0, CHANNEL_READY, 0);
    assert_int_equal(told(&n1, 0, CHANNEL_GO), 1);
}

static void a_leave_waits_until_rank_0_has_gone(_unused_ void **state)
{
    join(&n1);
    make_ready("a", 1, 0);
    set_phase("a", (PhaseRecord){.phase = PHASE_STOPPING, .generation = 1, .leave = true});
    settle();
    assert_int_equal(told(&n1, 0, CHANNEL_STOP), 0);
}

static void a_leave_is_told_to_rank_0_once(_unused_ void **state)
{
    const PhaseRecord leave = {.phase = PHASE_STOPPING, .generation = 2, .leave = true, .go = true};
    PhaseRecord other = leave;
    join(&n1);
    run_world("a", 2, 6, 0);
    other.generation = 1;
    set_phase("a", other);
    settle();
    other.generation = 3;
    set_phase("a", other);
    settle();
    assert_int_equal(told(&n1, 1, CHANNEL_STOP), 0);
    for (int i = 0; i < 3; i++) { /* the same request to leave, three times */
        set_phase("a", leave);
        settle();
        list_again(&n1.etcd);
        pass(USEC_PER_SEC);
    }
    assert_int_equal(told(&n1, 1, CHANNEL_STOP), 1);
    assert_int_equal(told(&n1, 2, CHANNEL_STOP), 0);
    assert_killed(&n1, 1, false);
}

/* ---- messages from trainers ---- */

static void say_stage(int slot, int64_t step, TrainStage stage)
{
    writes_message(&n1.machine, slot,
                   (ChannelMessage){.type = CHANNEL_STAGE, .step = step, .stage = stage});
    FakeTrainer *t = trainer_in(&n1.machine, slot);
    t->process->events.heard(t->process->events.userdata);
}

static void a_rank_runs_when_its_first_step_is_done(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    say_stage(1, 5, STAGE_LOADING);
    say_stage(1, 5, STAGE_REDUCING);
    settle();
    assert_int_equal(state_of(&n1, "a", 1, 1), RANK_READY);
    say_stage(1, 6, STAGE_LOADING);
    settle();
    assert_int_equal(state_of(&n1, "a", 1, 1), RANK_RUNNING);
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_READY);
    says(&n1.machine, 0, CHANNEL_STEP, 6);
    says(&n1.machine, 0, CHANNEL_STEP, 7);
    settle();
    RanksRecord record = report_of(&n1, "a", 1);
    assert_int_equal(record.first_step, 6);
    assert_int_equal(record.ranks[0].state, RANK_RUNNING);
    ranks_record_clear(&record);
}

static void a_report_whose_answer_is_lost_is_written_again(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    says(&n1.machine, 0, CHANNEL_STEP, 1);
    answer(under_way(&n1.etcd, report_key(&n1, "a", 1)->key), LOST_BEFORE);
    pass(USEC_PER_SEC);
    settle();
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_RUNNING);
    assert_killed(&n1, 0, false);
}

static void a_rank_that_was_killed_says_so(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    set_phase("a", (PhaseRecord){.phase = PHASE_STOPPED, .generation = 1});
    settle();
    dies(&n1.machine, 0);
    n1.machine.trainers[1].killed = false;
    n1.machine.trainers[1].status = 70; /* this rank exited just before it could be killed */
    dies(&n1.machine, 1);
    settle();
    RanksRecord record = report_of(&n1, "a", 1);
    assert_true(record.ranks[0].killed && !record.ranks[0].hung);
    assert_int_equal(record.ranks[0].exit_code, -SIGKILL);
    assert_int_equal(record.ranks[1].exit_code, 70);
    ranks_record_clear(&record);
}

/* Only the rank furthest behind hangs: another rank may be silent because it waits for that rank. */
static void only_the_rank_furthest_behind_hangs(_unused_ void **state)
{
    n1.config.startup_sec = 20;
    join(&n1);
    run_world("a", 1, 3, 0);
    say_stage(0, 1, STAGE_COMPUTING);
    pass(10 * USEC_PER_SEC);
    say_stage(1, 0, STAGE_COMPUTING);
    pass(10 * USEC_PER_SEC + 2 * TICK_USEC);
    renew(&n1.etcd);
    assert_killed(&n1, 0, false);
    pass(8 * USEC_PER_SEC);
    assert_killed(&n1, 0, false);
    assert_killed(&n1, 1, false);
    while (!n1.machine.trainers[1].killed)
        pass(TICK_USEC);
    assert_killed(&n1, 0, false);
}

/* ---- hangs, and messages to trainers ---- */

static void a_loop_that_stood_still_is_forgiven_to_the_ranks(_unused_ void **state)
{
    n1.config.startup_sec = 20;
    join(&n1);
    (void)decide("a", 1, 1, 0);
    settle();
    stall(30 * USEC_PER_SEC);
    pass(0);
    renew(&n1.etcd);
    assert_killed(&n1, 0, false);
    pass(19 * USEC_PER_SEC);
    assert_killed(&n1, 0, false);
    pass(2 * USEC_PER_SEC);
    assert_killed(&n1, 0, true);
    dies(&n1.machine, 0);
    settle();
    RanksRecord record = report_of(&n1, "a", 1);
    assert_true(record.ranks[0].hung && !record.ranks[0].killed);
    ranks_record_clear(&record);
}

static void say_the_next(_unused_ void *userdata) { say_stage(0, 2, STAGE_COMPUTING); }

/* A message that has arrived is read before the node checks for silence. */
static void what_was_said_counts_before_the_silence_after_it(_unused_ void **state)
{
    Timer word = {0};
    n1.config.startup_sec = 20;
    join(&n1);
    run_world("a", 1, 1, 0);
    say_stage(0, 1, STAGE_COMPUTING);
    pass(20 * USEC_PER_SEC + TICK_USEC / 2);
    timer_start(&n1.machine.timers, &word, TICK_USEC / 2, say_the_next, NULL);
    pass(TICK_USEC / 2);
    assert_killed(&n1, 0, false);
    renew(&n1.etcd); /* so that the fence does not act */
    pass(19 * USEC_PER_SEC);
    assert_killed(&n1, 0, false);
    pass(USEC_PER_SEC + TICK_USEC);
    assert_killed(&n1, 0, true);
}

static void trainers_hear_each_quarter_of_a_lease_that_they_may_run_on(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    int before = told(&n1, 1, CHANNEL_ALIVE);
    pass(10 * USEC_PER_SEC);
    assert_int_equal(told(&n1, 0, CHANNEL_ALIVE), before + 4);
    assert_int_equal(told(&n1, 1, CHANNEL_ALIVE), before + 4);
}

static void a_trainer_that_does_not_take_its_part_is_killed(_unused_ void **state)
{
    join(&n1);
    make_ready("a", 1, 0);
    n1.machine.trainers[0].deaf = true;
    pass(10 * USEC_PER_SEC); /* a missed `alive` does no harm: it is repeated */
    assert_killed(&n1, 0, false);
    let_go("a", 1);
    settle();
    assert_killed(&n1, 0, true);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, nodes_set_up, nodes_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_commit_whose_answer_is_lost_is_done_once),
        CASE(a_commit_is_refused_when_the_world_moves_before_it_is_written),
        CASE(a_commit_is_not_known_by_its_step_alone),
        CASE(a_loop_that_stood_still_is_forgiven_to_the_ranks),
        CASE(what_was_said_counts_before_the_silence_after_it),
        CASE(trainers_hear_each_quarter_of_a_lease_that_they_may_run_on),
        CASE(a_trainer_that_does_not_take_its_part_is_killed),
        CASE(two_saves_at_once_are_one_commit),
        CASE(a_save_of_a_world_that_is_over_is_none),
        CASE(commits_of_a_later_version_are_not_written_over),
        CASE(commits_of_a_predecessor_are_not_kept),
        CASE(a_trainer_gets_its_part_once_with_the_secret_of_its_world),
        CASE(a_secret_of_an_earlier_world_is_none),
        CASE(a_secret_is_kept_until_the_last_rank_has_it),
        CASE(a_secret_that_is_denied_once_is_read_again),
        CASE(a_secret_that_cannot_be_read_is_waited_for),
        CASE(rank_0_goes_by_the_answer_to_its_own_word),
        CASE(a_node_that_may_read_no_secret_starts_without),
        CASE(a_part_is_told_whole),
        CASE(a_file_of_another_submission_is_read_again),
        CASE(a_rank_that_is_not_ready_does_not_go),
        CASE(a_leave_waits_until_rank_0_has_gone),
        CASE(a_leave_is_told_to_rank_0_once),
        CASE(a_rank_runs_when_its_first_step_is_done),
        CASE(a_report_whose_answer_is_lost_is_written_again),
        CASE(a_rank_that_was_killed_says_so),
        CASE(only_the_rank_furthest_behind_hangs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
