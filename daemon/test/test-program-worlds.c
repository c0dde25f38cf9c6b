/* SPDX-License-Identifier: Apache-2.0 */
/* test-program-worlds.c - worlds whose ranks run programs of others: what is read, told, reported and watched. */
#include "base/clock.h"
#include "daemon/test/testing-machine.h"
#include "daemon/world/hang.h"
#include "daemon/world/local-world.h"
#include "daemon/world/trainer-messages.h"
#include "protocol/exit-code.h"

#include <signal.h>
#include <string.h>

enum { INCARNATION = 5, RESUMED = 40 };

#define SUBMISSION "0123456789abcdef0123456789abcdef"
#define PROGRAM "{\"the\":\"program\"}"

static Workload w;
static Machine home;
static Etcd etcd;
static bool knows_secrets;
static SlotGpus gpus;
static DaemonConfig config;
static const int runner = 77; /* stands for the open runner */

static const char *find_variable(char *const *environment, const char *name)
{
    const size_t n = strlen(name);
    for (; *environment; environment++)
        if (strncmp(*environment, name, n) == 0 && (*environment)[n] == '=')
            return *environment + n + 1;
    return NULL;
}

/* The runner's environment has nothing of the daemon's but what it needs, and what the configuration adds. */
static void check_program(const ProcessProgram *program, int slot)
{
    char number[8];
    (void)snprintf(number, sizeof(number), "%d", slot);
    assert_string_equal(program->argv[0], "/usr/bin/sdtrain-exec");
    assert_string_equal(program->argv[1], "run");
    assert_int_equal(program->program, runner);
    assert_null(find_variable(program->environment, "LANG"));
    assert_null(find_variable(program->environment, "SDTRAIN_FAULT"));
    assert_null(find_variable(program->environment, "OMP_DYNAMIC"));
    assert_string_equal(find_variable(program->environment, "SDTRAIN_LOG"), "x");
    assert_string_equal(find_variable(program->environment, "SDTRAIN_SLOT"), number);
    assert_string_equal(find_variable(program->environment, "SDTRAIN_CHANNEL"), "3");
    assert_string_equal(find_variable(program->environment, "SDTRAIN_EXEC_DIR"), "/state/exec");
    assert_string_equal(find_variable(program->environment, "SDTRAIN_EXEC_SECRETS"), "/secrets");
    assert_string_equal(find_variable(program->environment, "LD_LIBRARY_PATH"), "/opt");
    assert_non_null(find_variable(program->environment, "SDTRAIN_OWNER"));
    if (*config.exec_user) {
        assert_string_equal(program->host, "/the/socket");
        assert_int_equal(program->host_user, 4711);
    } else {
        assert_null(program->host);
    }
}

static void put_program(const char *file, const char *submission)
{
    char key[KEY_MAX];
    ProgramRecord record = {.file = (char *)file};
    (void)snprintf(record.submission, sizeof(record.submission), "%s", submission);
    _cleanup_free_ char *text = program_record_encode(&record, NULL);
    (void)put(key_of("lab", KEY_PROGRAMS, "a", key), text, 0);
}

static int set_up(_unused_ void **state)
{
    SpecRecord spec = {.spec = (char *)"{\"the\":\"spec\"}", .submission = SUBMISSION};
    config = (DaemonConfig){.cluster = "lab",
                            .node = "n1",
                            .slots = 3,
                            .lease_sec = 10,
                            .startup_sec = 30,
                            .save_sec = 60,
                            .hang_floor_sec = 1,
                            .hang_factor = 10,
                            .allow_exec = true,
                            .runner = "/usr/bin/sdtrain-exec",
                            .exec_secrets = "/secrets",
                            .state_dir = "/state",
                            .trainer_environment = json_pack("[s]", "LD_LIBRARY_PATH=/opt")};
    gpus = (SlotGpus){.n = 0};
    memory_begin();
    machine_init(&home);
    home.ranks.runner = &runner;
    home.check_program = check_program;
    const WorkloadNeeds needs = {.config = &config,
                                 .etcd = &etcd,
                                 .ranks = &home.ranks,
                                 .timers = &home.timers,
                                 .knows_secrets = &knows_secrets,
                                 .gpus = &gpus,
                                 .incarnation = INCARNATION};
    workload_init(&w, &needs, &unheard_events);
    put_spec(&spec);
    return 0;
}

static int tear_down(_unused_ void **state)
{
    workload_clear(&w);
    machines_end();
    json_decref(config.trainer_environment);
    return 0;
}

/* Decides, as the leader, a world of two ranks in slots 0 and 2. */
static void decide(int64_t generation)
{
    char key[KEY_MAX];
    WorldRun run = {.node = "n1", .incarnation = INCARNATION, .slots = 5};
    WorldRecord world = {.generation = generation,
                         .size = 2,
                         .runs = &run,
                         .n_runs = 1,
                         .resume = {.step = RESUMED, .uri = "file:///c/40"},
                         .submission = SUBMISSION,
                         .program = hash_bytes(PROGRAM, strlen(PROGRAM))};
    int64_t at = put(key_of("lab", KEY_WORLDS, "a", key), "a world", 0);
    job_set_world(job_get(&w, "a"), &world, at);
    says(&home, 0, CHANNEL_HELLO, 0);
    says(&home, 2, CHANNEL_HELLO, 0);
    answer_all();
}

static void phase(JobPhase is, bool go, bool leave)
{
    PhaseRecord record = {
        .phase = is, .generation = 1, .go = go, .leave = leave, .submission = SUBMISSION};
    job_set_phase(job_get(&w, "a"), &record);
}

static void run_world(void)
{
    put_program(PROGRAM, SUBMISSION);
    decide(1);
    says(&home, 0, CHANNEL_RENDEZVOUS, 0);
    says(&home, 0, CHANNEL_READY, RESUMED);
    says(&home, 2, CHANNEL_READY, RESUMED);
    answer_all();
    phase(PHASE_STARTING, true, false);
    assert_int_equal(home.trainers[0].told, CHANNEL_GO);
    assert_int_equal(home.trainers[2].told, CHANNEL_GO);
}

static void stage(int slot, int64_t step, TrainStage stage)
{
    const bool unnamed = stage == STAGE_RUNNING;
    writes_message(&home, slot,
                   (ChannelMessage){.type = CHANNEL_STAGE,
                                    .step = step,
                                    .stage = unnamed ? STAGE_COMPUTING : stage,
                                    .unnamed = unnamed});
    home.trainers[slot].process->events.heard(home.trainers[slot].process->events.userdata);
}

static void ends(int slot, const char *how)
{
    ChannelMessage m = {.type = CHANNEL_DONE, .step = RESUMED};
    (void)snprintf(m.end, sizeof(m.end), "%s", how);
    writes_message(&home, slot, m);
    home.trainers[slot].status = EXIT_DONE;
    dies(&home, slot);
    answer_all();
}

static RanksRecord report(void)
{
    char key[KEY_MAX];
    Error err = ERROR_INIT;
    RanksRecord record;
    const StoredKey *k = find(key_ranks("lab", "a", 1, "n1", key));
    assert_non_null(k);
    assert_int_equal(ranks_record_decode(key, k->value, strlen(k->value), &record, &err), 0);
    return record;
}

static void expect_states(RankState rank0, RankState rank1)
{
    RanksRecord record = report();
    assert_int_equal(record.ranks[0].state, rank0);
    assert_int_equal(record.ranks[1].state, rank1);
    ranks_record_clear(&record);
}

static void expect_end(bool left, bool finished)
{
    RanksRecord record = report();
    assert_int_equal(record.left, left);
    assert_int_equal(record.finished, finished);
    ranks_record_clear(&record);
}

/* ---- cases ---- */

static void ranks_get_the_program(_unused_ void **state)
{
    gpus = (SlotGpus){.pci = {"0000:10:00", "0000:11:00", "0000:12:00"}, .n = 3};
    run_world();
    for (int rank = 0; rank < 2; rank++) {
        const ChannelAssign *a = &home.trainers[2 * rank].assigned.assign;
        assert_int_equal(a->rank, rank);
        assert_int_equal(a->resume_step, RESUMED);
        assert_string_equal(a->resume_uri, "file:///c/40");
        assert_string_equal(a->gpus, "0000:10:00,0000:12:00");
        assert_string_equal(a->submission, SUBMISSION);
    }
}

/* Nothing is run that whoever may write specs could have changed, or that is of another submission. */
static void another_program_is_not_run(_unused_ void **state)
{
    decide(1); /* there is none yet */
    assert_int_equal(home.trainers[0].n_told[CHANNEL_ASSIGN], 0);
    put_program("{\"another\":\"program\"}", SUBMISSION);
    pass(USEC_PER_SEC);
    answer_all();
    assert_int_equal(home.trainers[0].n_told[CHANNEL_ASSIGN], 0);
    put_program(PROGRAM, "fedcba9876543210fedcba9876543210");
    pass(USEC_PER_SEC);
    answer_all();
    assert_int_equal(home.trainers[0].n_told[CHANNEL_ASSIGN], 0);
    put_program(PROGRAM, SUBMISSION);
    pass(USEC_PER_SEC);
    answer_all();
    assert_int_equal(home.trainers[0].n_told[CHANNEL_ASSIGN], 1);
}

/* The results of an evaluation are in etcd before its rank is answered, once, whatever etcd's answers do. */
static void results_are_written_under_the_worlds_guard(_unused_ void **state)
{
    char key[KEY_MAX];
    EvalRecord record;
    Error err = ERROR_INIT;
    run_world();
    const ChannelMessage m = {.type = CHANNEL_RESULTS,
                              .step = RESUMED,
                              .results = {.numbers = {{"fid", 12.5}},
                                          .n_numbers = 1,
                                          .seconds = 3}};
    (void)key_eval("lab", "a", RESUMED, key);
    trainer_messages_take(w.slots.of[2], &m);
    answer_all();
    assert_null(find(key)); /* rank 1 has none */
    trainer_messages_take(w.slots.of[0], &m);
    assert_int_equal(home.trainers[0].n_told[CHANNEL_COMMITTED], 0);
    answer_all();
    assert_int_equal(home.trainers[0].n_told[CHANNEL_COMMITTED], 1);
    const char *text = find(key)->value;
    assert_int_equal(eval_record_decode(key, text, strlen(text), &record, &err), 0);
    assert_int_equal(record.step, RESUMED);
    assert_string_equal(record.uri, "file:///c/40");
    assert_string_equal(record.node, "n1");
    assert_string_equal(record.submission, SUBMISSION);
    assert_true(record.results.numbers[0].value == 12.5 && record.results.seconds == 3);
    eval_record_clear(&record);
}

/* Job `name` evaluates the checkpoint of that step of the job with that submission. The watch shows it if `seen`. */
static void evaluate(const char *name, const char *of, int64_t step, bool seen)
{
    char key[KEY_MAX];
    PhaseRecord record = {.phase = PHASE_RUNNING, .generation = 1};
    record.eval.present = (CommitMark){.generation = 1, .step = step};
    memcpy(record.eval.submission, of, sizeof(record.eval.submission));
    _cleanup_free_ char *text = phase_record_encode(&record, NULL);
    (void)put(key_of("lab", KEY_PHASES, name, key), text, 0);
    if (seen)
        job_set_phase(job_get(&w, name), &record);
}

static void assert_held(int64_t step, size_t n)
{
    const ChannelHeld *held = &home.trainers[0].held;
    assert_int_equal(held->n, n);
    for (size_t i = 0; i < n; i++)
        if (held->steps[i] == step)
            return;
    fail_msg("step %lld is not held", (long long)step);
}

/* The checkpoints that evaluations read are known at `go`, and at each commit, even where the watch is behind. */
static void what_evaluations_read_is_held(_unused_ void **state)
{
    char phases[KEY_MAX];
    (void)key_prefix("lab", KEY_PHASES, phases);
    evaluate("e", SUBMISSION, 40, true);
    evaluate("f", SUBMISSION, 40, true);
    evaluate("g", "another0000000000000000000000000", 30, true);
    evaluate("h", SUBMISSION, 0, true);
    run_world();
    assert_held(40, 1);
    const ChannelMessage saved = {.type = CHANNEL_SAVED, .step = 60, .uri = "file:///c/60"};
    trainer_messages_take(w.slots.of[0], &saved);
    while (!is_under_way(&etcd, phases))
        answer(newest_call(&etcd, CALL_TXN), GIVEN);
    /* rank 0 would remove what it does not know as held */
    assert_int_equal(home.trainers[0].n_told[CHANNEL_COMMITTED], 0);
    evaluate("e", SUBMISSION, 50, false);
    answer(under_way(&etcd, phases), LOST_BEFORE);
    pass(USEC_PER_SEC);
    answer_all();
    assert_int_equal(home.trainers[0].n_told[CHANNEL_COMMITTED], 1);
    assert_held(50, 2);
    assert_held(40, 2);
}

static void as_many_are_held_as_are_committed(_unused_ void **state)
{
    char name[8];
    for (int i = 1; i <= 20; i++) {
        (void)snprintf(name, sizeof(name), "e%02d", i);
        evaluate(name, SUBMISSION, i, true);
    }
    run_world();
    assert_int_equal(home.trainers[0].held.n, CHANNEL_HELD_MAX);
}

/* A program that stays away ends the job with its reason, and not as a hang of some node. */
static void a_program_that_is_nowhere_is_named(_unused_ void **state)
{
    decide(1);
    put_program("{\"another\":\"program\"}", SUBMISSION);
    for (int i = 0; i < 40 && !w.slots.of[0]->killing; i++) {
        pass(500 * USEC_PER_MSEC);
        answer_all();
    }
    assert_true(w.slots.of[0]->killing && w.slots.of[2]->killing);
    dies(&home, 0);
    dies(&home, 2);
    answer_all();
    RanksRecord record = report();
    assert_int_equal(record.ranks[1].exit_code, EXIT_NEVER_RETRY);
    assert_string_equal(record.ranks[1].text,
                        "/sdtrain/lab/programs/a: file: not the one that the world "
                        "was made for");
    ranks_record_clear(&record);
}

static void has_started(int slot, pid_t pid)
{
    Process *p = home.trainers[slot].process;
    p->pid = pid;
    p->events.moved(p->events.userdata);
    answer_all();
}

/* Its host reports the pid after the program has spoken, or before. */
static void a_program_of_another_user_has_a_host(_unused_ void **state)
{
    (void)snprintf(config.exec_user, sizeof(config.exec_user), "runs-programs");
    (void)snprintf(config.exec_socket, sizeof(config.exec_socket), "/the/socket");
    config.exec_uid = 4711;
    put_program(PROGRAM, SUBMISSION);
    decide(1);
    RanksRecord record = report();
    assert_int_equal(record.ranks[0].state, RANK_STARTING);
    assert_int_equal(record.ranks[0].pid, 0);
    ranks_record_clear(&record);
    has_started(0, 4242);
    record = report();
    assert_int_equal(record.ranks[0].pid, 4242);
    assert_int_equal(record.ranks[1].pid, 0);
    ranks_record_clear(&record);
    says(&home, 0, CHANNEL_RENDEZVOUS, 0);
    says(&home, 0, CHANNEL_READY, RESUMED);
    says(&home, 2, CHANNEL_READY, RESUMED);
    has_started(2, 4243);
    record = report();
    assert_int_equal(record.ranks[1].state, RANK_READY);
    assert_int_equal(record.ranks[1].pid, 4243);
    ranks_record_clear(&record);
    home.trainers[0].status = 3;
    dies(&home, 0);
    answer_all();
    record = report();
    assert_int_equal(record.ranks[0].exit_code, 3);
    ranks_record_clear(&record);
}

/* It has ended before it could start the program. */
static void a_host_that_starts_nothing_is_a_rank_that_ended(_unused_ void **state)
{
    (void)snprintf(config.exec_user, sizeof(config.exec_user), "runs-programs");
    (void)snprintf(config.exec_socket, sizeof(config.exec_socket), "/the/socket");
    config.exec_uid = 4711;
    decide(1);
    home.trainers[2].status = 127;
    dies(&home, 2);
    answer_all();
    RanksRecord record = report();
    assert_int_equal(record.ranks[1].state, RANK_EXITED);
    assert_int_equal(record.ranks[1].exit_code, 127);
    assert_int_equal(record.ranks[1].pid, 0);
    ranks_record_clear(&record);
}

static void a_node_that_allows_no_programs_runs_none(_unused_ void **state)
{
    config.allow_exec = false;
    char key[KEY_MAX];
    WorldRun run = {.node = "n1", .incarnation = INCARNATION, .slots = 1};
    WorldRecord world = {.generation = 1,
                         .size = 1,
                         .runs = &run,
                         .n_runs = 1,
                         .submission = SUBMISSION,
                         .program = hash_bytes(PROGRAM, strlen(PROGRAM))};
    int64_t at = put(key_of("lab", KEY_WORLDS, "a", key), "a world", 0);
    job_set_world(job_get(&w, "a"), &world, at);
    answer_all();
    assert_int_equal(home.n_started, 0);
    RanksRecord record = report();
    assert_int_equal(record.ranks[0].state, RANK_EXITED);
    assert_int_equal(record.ranks[0].exit_code, EXIT_RETRY);
    assert_non_null(strstr(record.ranks[0].text, "allow_exec"));
    ranks_record_clear(&record);
}

/* A program may name no step: it runs once its runner says so. */
static void a_rank_runs_without_a_step(_unused_ void **state)
{
    run_world();
    expect_states(RANK_READY, RANK_READY);
    stage(2, RESUMED, STAGE_RUNNING);
    stage(0, RESUMED, STAGE_JOINING); /* it has not reported READY=1 */
    answer_all();
    expect_states(RANK_READY, RANK_RUNNING);
    stage(0, RESUMED, STAGE_RUNNING);
    answer_all();
    expect_states(RANK_RUNNING, RANK_RUNNING);
}

static void each_rank_is_asked_to_leave(_unused_ void **state)
{
    run_world();
    phase(PHASE_STOPPING, true, true);
    phase(PHASE_STOPPING, true, true);
    assert_int_equal(home.trainers[0].n_told[CHANNEL_STOP], 1);
    assert_int_equal(home.trainers[2].n_told[CHANNEL_STOP], 1);
    ends(2, "left");
    expect_end(false, false);
    ends(0, "finished");
    expect_end(true, false); /* one of them has more to do */
}

static void the_node_has_finished_when_all_its_ranks_have(_unused_ void **state)
{
    run_world();
    ends(0, "finished");
    expect_end(false, false);
    assert_false(w.slots.of[2]->killing);
    ends(2, "finished");
    expect_end(false, true);
}

/* A runner is told until when no other world can have been decided, whatever becomes of this daemon. */
static void a_runner_knows_when_the_lease_may_end(_unused_ void **state)
{
    run_world();
    pass(3 * USEC_PER_SEC);
    workload_send_alive(&w);
    assert_int_equal(home.trainers[2].alive_usec, 10 * USEC_PER_SEC);
    assert_int_equal(home.trainers[2].lease_usec, clock_boottime_usec() + 10 * USEC_PER_SEC);
}

static bool is_hung(int slot) { return w.slots.of[slot] && w.slots.of[slot]->hangs; }

static void check_hangs_after(uint64_t sec, bool rank0, bool rank1)
{
    pass(sec * USEC_PER_SEC);
    hang_check(&w, clock_boottime_usec(), 0);
    assert_int_equal(is_hung(0), rank0);
    assert_int_equal(is_hung(2), rank1);
}

/* Neither a program that says nothing nor one that names steps alone is bound. */
static void silence_is_not_a_hang(_unused_ void **state)
{
    run_world();
    stage(0, RESUMED, STAGE_RUNNING);
    stage(2, RESUMED, STAGE_RUNNING);
    check_hangs_after(5000, false, false);
    for (int i = 1; i < 20; i++) {
        stage(0, RESUMED + i, STAGE_RUNNING);
        pass(USEC_PER_SEC);
    }
    check_hangs_after(5000, false, false);
}

/* Before it has reported READY=1, a program that must do so has as long as a start may take. */
static void a_program_that_does_not_get_ready_hangs(_unused_ void **state)
{
    run_world();
    stage(0, RESUMED, STAGE_JOINING);
    stage(2, RESUMED, STAGE_RUNNING);
    check_hangs_after(29, false, false);
    check_hangs_after(2, true, false);
}

/* A program that names its stages is watched, by the time between its reports: it may report every 100th step. A rank
 * beside it that names none does not hide the hang. */
static void stages_are_watched(_unused_ void **state)
{
    run_world();
    stage(2, RESUMED, STAGE_RUNNING);
    for (int i = 1; i < 20; i++) {
        stage(0, RESUMED + 100 * i, STAGE_COMPUTING);
        pass(USEC_PER_SEC);
    }
    check_hangs_after(8, false, false);
    check_hangs_after(3, true, false);
}

static void hang(void)
{
    for (int i = 1; i < 20; i++) {
        stage(0, RESUMED + i, STAGE_COMPUTING);
        pass(USEC_PER_SEC);
    }
    check_hangs_after(11, true, false);
    assert_int_equal(home.trainers[0].n_looks, 1);
    assert_int_equal(home.trainers[2].n_looks, 0);
}

/* The runner of a program that hangs reports where the program stands, and ends it. */
static void a_runner_reports_a_hang(_unused_ void **state)
{
    run_world();
    hang();
    assert_false(home.trainers[0].killed);
    assert_int_equal(home.trainers[0].n_told[CHANNEL_HUNG], 1);
    assert_int_equal(home.trainers[2].n_told[CHANNEL_HUNG], 0);
    check_hangs_after(0, true, false); /* it is told once */
    assert_int_equal(home.trainers[0].n_told[CHANNEL_HUNG], 1);
    writes_message(&home, 0,
                   (ChannelMessage){.type = CHANNEL_ERROR,
                                    .step = RESUMED + 19,
                                    .exit_code = -SIGKILL,
                                    .hung = true,
                                    .text = "no progress; it stood in step (train.py:33)"});
    home.trainers[0].status = EXIT_RETRY;
    dies(&home, 0);
    answer_all();
    RanksRecord record = report();
    assert_true(record.ranks[0].hung);
    assert_int_equal(record.ranks[0].exit_code, -SIGKILL);
    assert_string_equal(record.ranks[0].text, "no progress; it stood in step (train.py:33)");
    ranks_record_clear(&record);
}

/* A runner that does not report it, for it is stopped itself, is killed. */
static void a_runner_that_hangs_is_killed(_unused_ void **state)
{
    run_world();
    hang();
    pass((RANK_EXPLAIN_MSEC - 100) * USEC_PER_MSEC);
    assert_false(home.trainers[0].killed);
    pass(200 * USEC_PER_MSEC);
    assert_true(home.trainers[0].killed);
    dies(&home, 0);
    answer_all();
    RanksRecord record = report();
    assert_true(record.ranks[0].hung);
    assert_string_equal(record.ranks[0].text, "no progress since step 59, computing");
    ranks_record_clear(&record);
}

static void check_report_after(uint64_t sec, int64_t step, TrainStage stage_of_rank0,
                               TrainStage stage_of_rank1)
{
    check_hangs_after(sec, false, false);
    answer_all();
    RanksRecord record = report();
    assert_int_equal(record.ranks[0].step, step);
    assert_int_equal(record.ranks[1].step, step);
    assert_int_equal(record.ranks[0].stage, stage_of_rank0);
    assert_int_equal(record.ranks[1].stage, stage_of_rank1);
    assert_false(record.ranks[0].hung || record.ranks[1].hung);
    ranks_record_clear(&record);
}

/* Ranks that wait for one of another node hang later than that one. The leader knows where they stand before, by one
 * report. */
static void where_a_rank_stands_is_reported(_unused_ void **state)
{
    char key[KEY_MAX];
    run_world();
    for (int i = 1; i < 20; i++) {
        stage(0, RESUMED + i, STAGE_COMPUTING);
        stage(2, RESUMED + i, STAGE_COMPUTING);
        pass(USEC_PER_SEC);
    }
    answer_all();
    stage(0, RESUMED + 19, STAGE_REDUCING);
    stage(2, RESUMED + 19, STAGE_REDUCING);
    check_report_after(4, RESUMED + 19, STAGE_COMPUTING, STAGE_COMPUTING);
    check_report_after(2, RESUMED + 19, STAGE_REDUCING, STAGE_REDUCING);
    const int64_t told = find(key_ranks("lab", "a", 1, "n1", key))->modified;
    check_report_after(2, RESUMED + 19, STAGE_REDUCING, STAGE_REDUCING);
    assert_int_equal(find(key_ranks("lab", "a", 1, "n1", key))->modified, told);
    stage(2, RESUMED + 19, STAGE_GATHERING); /* it went on, and stands again */
    check_report_after(6, RESUMED + 19, STAGE_REDUCING, STAGE_GATHERING);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(ranks_get_the_program),
        CASE(another_program_is_not_run),
        CASE(results_are_written_under_the_worlds_guard),
        CASE(what_evaluations_read_is_held),
        CASE(as_many_are_held_as_are_committed),
        CASE(a_program_that_is_nowhere_is_named),
        CASE(a_program_of_another_user_has_a_host),
        CASE(a_host_that_starts_nothing_is_a_rank_that_ended),
        CASE(a_node_that_allows_no_programs_runs_none),
        CASE(a_rank_runs_without_a_step),
        CASE(each_rank_is_asked_to_leave),
        CASE(the_node_has_finished_when_all_its_ranks_have),
        CASE(a_runner_knows_when_the_lease_may_end),
        CASE(silence_is_not_a_hang),
        CASE(a_program_that_does_not_get_ready_hangs),
        CASE(stages_are_watched),
        CASE(a_runner_reports_a_hang),
        CASE(a_runner_that_hangs_is_killed),
        CASE(where_a_rank_stands_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
