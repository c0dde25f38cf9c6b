/* SPDX-License-Identifier: Apache-2.0 */
/* test-workload.c - daemon/world on fakes: testing-memory.h has its etcd and its clock, testing-machine.h its trainers.
 * So daemon/world may also run in a simulator. */
#include "base/clock.h"
#include "daemon/test/testing-machine.h"
#include "daemon/world/hang.h"
#include "daemon/world/local-world.h"

#include <string.h>

enum { INCARNATION = 5 };

static Workload w;
static Machine home;
static Etcd etcd;

static bool has(char *const *environment, const char *variable)
{
    for (; *environment; environment++)
        if (strcmp(*environment, variable) == 0)
            return true;
    return false;
}

static void check_program(const ProcessProgram *program, int slot)
{
    assert_true(has(program->environment, "LANG=C") && has(program->environment, "SDTRAIN_LOG=x"));
    assert_true(has(program->environment, slot ? "SDTRAIN_SLOT=1" : "SDTRAIN_SLOT=0"));
    assert_false(has(program->environment, "SDTRAIN_FAULT=x"));
}

static ChannelType told(int slot) { return home.trainers[slot].told; }

/* ---- the daemon around the workload ---- */

static int n_committed, n_refused, n_ended, n_changed;

static void on_change(_unused_ void *userdata) { n_changed++; }
static void on_end(_unused_ void *userdata, _unused_ const Rank *rank,
                   _unused_ const ExitVerdict *v)
{
    n_ended++;
}

static void on_commit(_unused_ void *userdata, _unused_ const LocalWorld *local,
                      _unused_ CommitMark mark, bool committed)
{
    n_committed += committed;
    n_refused += !committed;
}

static const char submission[] = "0123456789abcdef0123456789abcdef";
static DaemonConfig config = {.cluster = "lab", .node = "n1", .slots = 2, .lease_sec = 10};
static bool knows_secrets;
static SlotGpus gpus; /* the GPUs of this node */

static int set_up(_unused_ void **state)
{
    const WorkloadNeeds needs = {.config = &config,
                                 .etcd = &etcd,
                                 .ranks = &home.ranks,
                                 .timers = &home.timers,
                                 .knows_secrets = &knows_secrets,
                                 .gpus = &gpus,
                                 .incarnation = INCARNATION};
    WorkloadEvents events = unheard_events;
    events.node_changed = on_change;
    events.commit_decided = on_commit;
    events.rank_ended = on_end;
    SpecRecord spec = {.spec = (char *)"{}"};
    n_committed = n_refused = n_ended = 0;
    memory_begin();
    machine_init(&home);
    home.check_program = check_program;
    workload_init(&w, &needs, &events);
    memcpy(spec.submission, submission, sizeof(submission));
    put_spec(&spec);
    return 0;
}

static int tear_down(_unused_ void **state)
{
    workload_clear(&w);
    machines_end();
    return 0;
}

/* Decides, as the leader, a world of two ranks on this node; the watch shows the world. */
static void decide(int64_t generation)
{
    WorldRun run = {.node = "n1", .incarnation = INCARNATION, .slots = 3};
    WorldRecord world = {.generation = generation, .size = 2, .runs = &run, .n_runs = 1};
    char key[KEY_MAX];
    memcpy(world.submission, submission, sizeof(submission));
    int64_t at = put(key_of("lab", KEY_WORLDS, "a", key), "a world", 0);
    job_set_world(job_get(&w, "a"), &world, at);
}

static void phase(int64_t generation, JobPhase is, bool go)
{
    PhaseRecord record = {.phase = is, .generation = generation, .go = go};
    memcpy(record.submission, submission, sizeof(submission));
    job_set_phase(job_get(&w, "a"), &record);
}

static RanksRecord report_of(int64_t generation)
{
    char key[KEY_MAX];
    Error err = ERROR_INIT;
    RanksRecord record;
    const StoredKey *k = find(key_ranks("lab", "a", generation, "n1", key));
    assert_non_null(k);
    assert_int_equal(k->lease, FIRST_LEASE);
    assert_int_equal(ranks_record_decode(key, k->value, strlen(k->value), &record, &err), 0);
    return record;
}

static void expect(int64_t generation, RankState rank0, RankState rank1, bool killed)
{
    RanksRecord record = report_of(generation);
    assert_int_equal(record.n_ranks, 2);
    assert_int_equal(record.ranks[0].state, rank0);
    assert_int_equal(record.ranks[1].state, rank1);
    assert_int_equal(record.killed_usec != 0, killed);
    ranks_record_clear(&record);
}

/* Runs a world: both ranks send hello and ready, and the leader lets them go. */
static void run_world(int64_t generation)
{
    decide(generation);
    says(&home, 0, CHANNEL_HELLO, 0);
    says(&home, 1, CHANNEL_HELLO, 0);
    answer_all();
    assert_int_equal(told(0), CHANNEL_ASSIGN);
    assert_int_equal(told(1), CHANNEL_ASSIGN);
    says(&home, 0, CHANNEL_RENDEZVOUS, 0);
    says(&home, 0, CHANNEL_READY, 0);
    says(&home, 1, CHANNEL_READY, 0);
    answer_all();
    expect(generation, RANK_READY, RANK_READY, generation > 1);
    phase(generation, PHASE_RUNNING, true);
    assert_int_equal(told(0), CHANNEL_GO);
    assert_int_equal(told(1), CHANNEL_GO);
}

/* ---- cases ---- */

static void a_world_is_assigned_goes_and_steps(_unused_ void **state)
{
    run_world(1);
    says(&home, 0, CHANNEL_STEP, 1);
    answer_all();
    RanksRecord record = report_of(1);
    assert_int_equal(record.first_step, 1);
    assert_int_equal(record.ranks[0].state, RANK_RUNNING);
    ranks_record_clear(&record);
}

static void a_new_world_waits_until_the_old_is_dead(_unused_ void **state)
{
    run_world(1);
    decide(2);
    assert_true(w.slots.of[0]->killing && w.slots.of[1]->killing);
    assert_int_equal(home.n_started, 2);
    assert_true(workload_has_old_ranks(&w));

    dies(&home, 0);
    assert_int_equal(home.n_started, 3); /* only slot 0 is clear yet */
    answer_all();
    dies(&home, 1);
    assert_int_equal(home.n_started, 4);
    assert_false(workload_has_old_ranks(&w));
    answer_all();
    expect(1, RANK_EXITED, RANK_EXITED, true);
    expect(2, RANK_STARTING, RANK_STARTING, true);
    assert_null(w.jobs->over); /* etcd knows that the old world is dead */
}

/* killed_usec reports to the leader that all older worlds are dead here. A world that never started must not report
 * that too early. */
static void a_world_that_never_started_tells_nothing_of_an_older_one(_unused_ void **state)
{
    char key[KEY_MAX];
    run_world(1);
    decide(2);
    answer_all();
    decide(3);
    answer_all();
    assert_null(find(key_ranks("lab", "a", 2, "n1", key)));
    dies(&home, 0);
    dies(&home, 1);
    answer_all();
    expect(1, RANK_EXITED, RANK_EXITED, true);
    expect(2, RANK_EXITED, RANK_EXITED, true);
    expect(3, RANK_STARTING, RANK_STARTING, true);
}

/* A rank hangs just before it gets its `go`, and has no peer that would miss it: startup_sec bounds its joining. */
static void a_rank_that_was_told_to_go_must_join(_unused_ void **state)
{
    config.startup_sec = 30;
    run_world(1);
    assert_int_equal(home.trainers[0].assigned.assign.startup_usec,
                     30 * USEC_PER_SEC); /* the trainer was told the bound */
    pass(30 * USEC_PER_SEC);
    hang_check(&w, clock_boottime_usec(), 0);
    assert_false(w.slots.of[0]->killing || w.slots.of[1]->killing);
    pass(USEC_PER_SEC);
    hang_check(&w, clock_boottime_usec(), 0);
    assert_true(w.slots.of[0]->killing && w.slots.of[1]->killing);
    config.startup_sec = 0;
}

/* A rank is told the GPU of its slot; whether the job needs the GPU is decided by the trainer. */
static void a_rank_is_told_the_gpu_of_its_slot(_unused_ void **state)
{
    gpus = (SlotGpus){.pci = {"0000:3b:00"}, .n = 1};
    run_world(1);
    assert_string_equal(home.trainers[0].assigned.assign.gpu, "0000:3b:00");
    assert_string_equal(home.trainers[1].assigned.assign.gpu, "");
    gpus = (SlotGpus){.n = 0};
}

static void a_refused_write_kills_the_ranks(_unused_ void **state)
{
    char key[KEY_MAX];
    run_world(1);
    (void)put(key_of("lab", KEY_WORLDS, "a", key), "a world that no watch has shown yet", 0);
    says(&home, 0, CHANNEL_STEP, 1);
    assert_false(w.slots.of[0]->killing);
    answer_all();
    assert_true(w.slots.of[0]->killing && w.slots.of[1]->killing);
}

static void a_lost_slot_is_told_before_its_rank_counts_as_ended(_unused_ void **state)
{
    run_world(1);
    decide(2);
    dies(&home, 1);
    pass(RANK_KILL_CONFIRM_MSEC * USEC_PER_MSEC); /* the process in slot 0 does not end */
    answer_all();
    assert_int_equal(w.slots.lost, 1);
    expect(1, RANK_READY, RANK_READY, false); /* etcd does not know of the lost slot yet */
    RanksRecord record = report_of(2); /* the rank of slot 0 is not started, and has failed */
    assert_int_equal(record.ranks[0].state, RANK_EXITED);
    assert_int_equal(record.killed_usec, 0);
    ranks_record_clear(&record);
    assert_int_equal(home.n_started, 3);

    workload_note_node_written(&w);
    answer_all();
    expect(1, RANK_EXITED, RANK_EXITED, true);
    expect(2, RANK_EXITED, RANK_STARTING, true);
    assert_null(w.jobs->over);
    dies(&home, 0);
    assert_int_equal(w.slots.lost, 0);
}

/* The rank in a lost slot ends at last, by an earlier signal. It was already reported as exited, and is not reported
 * again. */
static void a_rank_of_a_lost_slot_ends_but_once(_unused_ void **state)
{
    run_world(1);
    rank_kill(w.slots.of[0], "the test says so");
    pass(RANK_KILL_CONFIRM_MSEC * USEC_PER_MSEC);
    workload_note_node_written(&w);
    answer_all();
    expect(1, RANK_EXITED, RANK_READY, false);
    home.trainers[0].status = -SIGSEGV;
    dies(&home, 0);
    answer_all();
    assert_int_equal(w.slots.lost, 0);
    assert_int_equal(n_ended, 1);
    RanksRecord record = report_of(1);
    assert_int_equal(record.ranks[0].exit_code, -SIGKILL);
    ranks_record_clear(&record);
}

static void a_checkpoint_counts_only_in_its_world(_unused_ void **state)
{
    char key[KEY_MAX];
    run_world(1);
    says(&home, 0, CHANNEL_SAVED, 10);
    answer_all();
    assert_int_equal(told(0), CHANNEL_COMMITTED);
    (void)put(key_of("lab", KEY_WORLDS, "a", key), "a world that no watch has shown yet", 0);
    says(&home, 0, CHANNEL_SAVED, 20);
    answer_all();
    assert_int_equal(told(0), CHANNEL_REFUSED);
    assert_int_equal(n_committed, 1);
    assert_int_equal(n_refused, 1);
    assert_true(w.slots.of[0]->killing);
}

/* Commits step 10, then puts the world's record once more, so that its ranks are started again, and saves `step`.
 * newer: whether this save must be committed. */
static void begin_anew_and_save(int64_t step, bool newer)
{
    run_world(1);
    says(&home, 0, CHANNEL_SAVED, 10);
    answer_all();
    assert_int_equal(told(0), CHANNEL_COMMITTED);
    decide(1);
    dies(&home, 0);
    dies(&home, 1);
    answer_all();
    says(&home, 0, CHANNEL_HELLO, 0);
    says(&home, 1, CHANNEL_HELLO, 0);
    answer_all();
    says(&home, 0, CHANNEL_RENDEZVOUS, 0);
    says(&home, 0, CHANNEL_READY, 0);
    says(&home, 1, CHANNEL_READY, 0);
    answer_all();
    assert_int_equal(told(0), CHANNEL_GO);
    ChannelMessage saved = {.type = CHANNEL_SAVED, .step = step, .uri = "file:///c/anew"};
    writes_message(&home, 0, saved);
    home.trainers[0].process->events.heard(home.trainers[0].process->events.userdata);
    answer_all();
    assert_int_equal(told(0), newer ? CHANNEL_COMMITTED : CHANNEL_REFUSED);
    assert_int_equal(n_committed, 1 + newer);
}

static void a_world_that_begins_anew_commits_no_older_step(_unused_ void **state)
{
    begin_anew_and_save(5, false);
}

static void a_world_that_begins_anew_commits_no_step_twice(_unused_ void **state)
{
    begin_anew_and_save(10, false);
}

static void a_world_that_begins_anew_commits_the_next_step(_unused_ void **state)
{
    begin_anew_and_save(11, true);
}

/* Returns the step that the progress record names as committed. */
static int64_t marked_step(void)
{
    char key[KEY_MAX];
    ProgressRecord record;
    const StoredKey *k = find(key_of("lab", KEY_PROGRESS, "a", key));
    assert_non_null(k);
    assert_int_equal(progress_record_decode(key, k->value, strlen(k->value), &record, NULL), 0);
    return record.committed.step;
}

/* Progress that is under way together with a commit does not undo the commit's mark: etcd may execute the two writes
 * in any order. */
static void a_commit_is_not_forgotten_by_progress(_unused_ void **state)
{
    char progress[KEY_MAX], commit[KEY_MAX], world[KEY_MAX];
    key_of("lab", KEY_WORLDS, "a", world);
    key_of("lab", KEY_PROGRESS, "a", progress);
    key_of("lab", KEY_CHECKPOINTS, "a", commit);
    run_world(1);
    says(&home, 0, CHANNEL_STEP, 1); /* the progress is under way */
    says(&home, 0, CHANNEL_SAVED, 1);
    const size_t n = n_under_way(&etcd);
    answer(under_way(&etcd, world), GIVEN); /* the world is read */
    if (n_under_way(&etcd) == n)            /* the next request follows at once */
        answer(under_way(&etcd, commit), GIVEN);
    answer(under_way(&etcd, progress), GIVEN);
    pass(USEC_PER_SEC);
    answer_all();
    assert_int_equal(n_committed, 1);
    assert_int_equal(marked_step(), 1);

    says(&home, 0, CHANNEL_SAVED, 2);
    answer(under_way(&etcd, world), GIVEN);
    pass(2 * USEC_PER_SEC);
    says(&home, 0, CHANNEL_STEP, 3); /* the commit is under way */
    answer_all();
    assert_int_equal(n_committed, 2);
    assert_int_equal(marked_step(), 2);
}

/* A report that etcd executes late does not count: a member of etcd that was frozen may execute a request long after
 * its client has asked another member. */
static void a_report_that_comes_late_does_not_count(_unused_ void **state)
{
    char key[KEY_MAX];
    run_world(1);
    (void)key_ranks("lab", "a", 1, "n1", key);
    says(&home, 1, CHANNEL_STAGE, 1);
    dies(&home, 1);
    answer(under_way(&etcd, key), LATE); /* this report says that rank 0 runs */
    dies(&home, 0);
    pass(3 * USEC_PER_SEC);
    answer_all();
    expect(1, RANK_EXITED, RANK_EXITED, false);
    come_late();
    expect(1, RANK_EXITED, RANK_EXITED, false);
    assert_int_equal(n_under_way(&etcd), 0);
}

static uint64_t next_try_msec(void)
{
    const uint64_t begun_usec = clock_boottime_usec();
    while (n_under_way(&etcd) == 0)
        pass(10 * USEC_PER_MSEC);
    return (clock_boottime_usec() - begun_usec) / USEC_PER_MSEC;
}

/* A report that fails is written again after longer and longer pauses, up to two seconds. After a success the next
 * pause is again the shortest. */
static void a_report_that_fails_is_tried_at_a_pace(_unused_ void **state)
{
    static const uint64_t paces_msec[] = {100, 200, 400, 800, 1600, 2000, 2000};
    char key[KEY_MAX];
    run_world(1);
    (void)key_ranks("lab", "a", 1, "n1", key);
    dies(&home, 1);
    for (size_t i = 0; i < ELEMENTSOF(paces_msec); i++) {
        answer(under_way(&etcd, key), LOST_BEFORE);
        assert_int_equal(next_try_msec(), paces_msec[i]);
    }
    answer_all();
    dies(&home, 0);
    answer(under_way(&etcd, key), LOST_BEFORE);
    assert_int_equal(next_try_msec(), paces_msec[0]);
    answer_all();
    expect(1, RANK_EXITED, RANK_EXITED, false);
}

static void progress_that_comes_late_does_not_count(_unused_ void **state)
{
    char key[KEY_MAX];
    (void)key_of("lab", KEY_PROGRESS, "a", key);
    run_world(1);
    says(&home, 0, CHANNEL_STEP, 1);
    answer_all(); /* the record was read first, since its revision was unknown */
    pass(2 * USEC_PER_SEC);
    says(&home, 0, CHANNEL_STEP, 2);
    answer(under_way(&etcd, key), LATE);
    says(&home, 0, CHANNEL_SAVED, 2); /* the commit writes the mark */
    for (int i = 0; i < 3; i++) {
        answer_all();
        pass(USEC_PER_SEC);
    }
    answer_all();
    assert_int_equal(n_committed, 1);
    assert_int_equal(marked_step(), 2);
    come_late();
    assert_int_equal(marked_step(), 2);
}

static void a_spec_that_is_late_is_read_again(_unused_ void **state)
{
    char key[KEY_MAX];
    char *late = strdup(find(key_of("lab", KEY_SPECS, "a", key))->value);
    (void)delete_key(key);
    decide(1);
    says(&home, 0, CHANNEL_HELLO, 0);
    answer_all();
    assert_int_equal(told(0), 0);
    (void)put(key, late, 0);
    free(late);
    pass(USEC_PER_SEC);
    answer_all();
    assert_int_equal(told(0), CHANNEL_ASSIGN);
}

static void what_a_trainer_leaves_keeps_its_slot(_unused_ void **state)
{
    run_world(1);
    decide(2);
    assert_true(home.trainers[0].killed && home.trainers[1].killed);
    home.trainers[0].leaves = true;
    dies(&home, 0);
    dies(&home, 1);
    assert_int_equal(home.n_started, 3); /* the new rank of slot 1 */
    home.trainers[0].leaves = false;
    dies(&home, 0); /* the other processes in slot 0 end */
    assert_int_equal(home.n_started, 4);
    answer_all();
    expect(2, RANK_STARTING, RANK_STARTING, true);
}

static void what_outlives_its_trainer_loses_the_slot(_unused_ void **state)
{
    run_world(1);
    home.trainers[0].leaves = true;
    dies(&home, 0); /* the trainer ends without being killed */
    pass(RANK_KILL_CONFIRM_MSEC * USEC_PER_MSEC - 1);
    assert_int_equal(w.slots.lost, 0);
    pass(1);
    assert_int_equal(w.slots.lost, 1);
}

static void the_last_words_of_a_trainer_are_read(_unused_ void **state)
{
    run_world(1);
    writes(&home, 0, CHANNEL_STEP, 1);
    dies(&home, 0);
    answer_all();
    RanksRecord record = report_of(1);
    assert_int_equal(record.first_step, 1);
    assert_int_equal(record.ranks[0].state, RANK_EXITED);
    ranks_record_clear(&record);
}

static void who_is_killed_is_told_nothing(_unused_ void **state)
{
    run_world(1);
    ChannelMessage stop = {.type = CHANNEL_STOP, .generation = 1};
    rank_kill(w.slots.of[0], "the test says so");
    rank_send(w.slots.of[0], &stop);
    assert_int_equal(told(0), CHANNEL_GO);
}

/* Each message of the trainer says that the trainer ends. Its time to exit begins with the first message. */
static void a_trainer_that_talks_on_ends_no_later(_unused_ void **state)
{
    run_world(1);
    says(&home, 0, CHANNEL_ERROR, 1);
    pass(RANK_LAST_WORDS_MSEC * USEC_PER_MSEC / 2);
    says(&home, 0, CHANNEL_ERROR, 1);
    assert_false(home.trainers[0].killed);
    pass(RANK_LAST_WORDS_MSEC * USEC_PER_MSEC / 2);
    assert_true(home.trainers[0].killed);
}

static void a_trainer_that_hangs_up_has_a_moment_to_end(_unused_ void **state)
{
    run_world(1);
    hangs_up(&home, 0);
    pass(RANK_LAST_WORDS_MSEC * USEC_PER_MSEC - 1);
    assert_false(home.trainers[0].killed);
    pass(1);
    assert_true(home.trainers[0].killed && w.slots.of[0]->killing);
    dies(&home, 0);
    answer_all();
    expect(1, RANK_EXITED, RANK_READY, false);
}

static void the_dead_mans_timer_looks_like_a_hang(_unused_ void **state)
{
    run_world(1);
    home.trainers[1].status = -SIGKILL; /* killed by another process, early */
    dies(&home, 1);
    pass(8 * USEC_PER_SEC); /* more than three quarters of the lease */
    home.trainers[0].status = -SIGKILL;
    dies(&home, 0);
    answer_all();
    RanksRecord record = report_of(1);
    assert_int_equal(record.ranks[0].exit_code, -SIGKILL);
    assert_true(record.ranks[0].hung && !record.ranks[1].hung);
    assert_non_null(strstr(record.ranks[0].text, "stood still for 8.0 s"));
    ranks_record_clear(&record);
}

/* A job that is over is not checked any more, though its records may stay for long. */
static void jobs_that_are_over_are_looked_at_no_more(_unused_ void **state)
{
    run_world(1);
    phase(1, PHASE_SUCCEEDED, true);
    pass(3 * USEC_PER_SEC);
    workload_end_late(&w, clock_boottime_usec());
    assert_true(home.trainers[0].killed && home.trainers[1].killed);
    dies(&home, 0);
    dies(&home, 1);
    answer_all();
    n_changed = 0;
    for (int i = 0; i < 10; i++)
        workload_end_late(&w, clock_boottime_usec());
    assert_int_equal(n_changed, 0);
}

/* A client that may write phases must not be able to fill a node's memory. */
static void a_node_knows_so_many_jobs_and_no_more(_unused_ void **state)
{
    enum { MOST = 4096 };
    char name[RECORD_JOB_MAX + 3];
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_null(job_get(&w, name)); /* too long for a job's name */
    for (int i = 0; i < MOST; i++) {
        (void)snprintf(name, sizeof(name), "j%d", i);
        assert_non_null(job_get(&w, name));
    }
    assert_null(job_get(&w, "one-more"));
    assert_non_null(job_get(&w, "j17"));
    assert_int_equal(w.n_jobs, MOST);
    job_forget_if_idle(job_find(&w, "j17"));
    assert_null(job_find(&w, "j17"));
    assert_non_null(job_get(&w, "one-more"));
}

/* A rank is found by its pid only until its process is reaped: then the pid may belong to another process, while the
 * slot is still held. */
static void a_process_is_found_by_its_number_until_it_is_reaped(_unused_ void **state)
{
    run_world(1);
    Rank *first = w.slots.of[0], *second = w.slots.of[1];
    const pid_t number = first->process.pid;
    assert_ptr_equal(slots_rank_of_process(&w.slots, number), first);
    assert_ptr_equal(slots_rank_of_process(&w.slots, second->process.pid), second);
    assert_null(slots_rank_of_process(&w.slots, number + 100));
    home.trainers[0].leaves = true;
    dies(&home, 0);
    assert_ptr_equal(w.slots.of[0], first);
    assert_null(slots_rank_of_process(&w.slots, number));
    second->process.pid = number;
    assert_ptr_equal(slots_rank_of_process(&w.slots, number), second);
}

/* At most 4,096 jobs are known. A further job is refused, and all known jobs stay, until a job is forgotten and leaves
 * a place. */
static void the_jobs_that_are_known_stay_when_there_are_too_many(_unused_ void **state)
{
    enum { MOST = 4096 };
    char name[RECORD_JOB_MAX + 2];
    LocalJob *first = NULL;
    for (int i = 0; i < MOST; i++) {
        (void)snprintf(name, sizeof(name), "j%d", i);
        LocalJob *job = job_get(&w, name);
        assert_non_null(job);
        first = first ?: job;
    }
    assert_null(job_get(&w, "one-more"));
    assert_null(job_find(&w, "one-more"));
    assert_ptr_equal(job_get(&w, "j0"), first);
    assert_ptr_equal(job_find(&w, "j4095"), job_get(&w, "j4095"));
    assert_int_equal(w.n_jobs, MOST);
    job_forget_if_idle(job_find(&w, "j17"));
    assert_non_null(job_get(&w, "one-more"));
    assert_null(job_get(&w, "j17"));
    job_forget_if_idle(first);
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_null(job_get(&w, name)); /* longer than a name may be */
    name[RECORD_JOB_MAX] = '\0';
    assert_non_null(job_get(&w, name));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_world_is_assigned_goes_and_steps),
        CASE(the_jobs_that_are_known_stay_when_there_are_too_many),
        CASE(a_rank_is_told_the_gpu_of_its_slot),
        CASE(a_new_world_waits_until_the_old_is_dead),
        CASE(a_rank_that_was_told_to_go_must_join),
        CASE(a_refused_write_kills_the_ranks),
        CASE(a_report_that_comes_late_does_not_count),
        CASE(a_report_that_fails_is_tried_at_a_pace),
        CASE(progress_that_comes_late_does_not_count),
        CASE(a_world_that_never_started_tells_nothing_of_an_older_one),
        CASE(a_lost_slot_is_told_before_its_rank_counts_as_ended),
        CASE(a_rank_of_a_lost_slot_ends_but_once),
        CASE(a_checkpoint_counts_only_in_its_world),
        CASE(a_world_that_begins_anew_commits_no_older_step),
        CASE(a_world_that_begins_anew_commits_no_step_twice),
        CASE(a_world_that_begins_anew_commits_the_next_step),
        CASE(a_commit_is_not_forgotten_by_progress),
        CASE(a_spec_that_is_late_is_read_again),
        CASE(what_a_trainer_leaves_keeps_its_slot),
        CASE(what_outlives_its_trainer_loses_the_slot),
        CASE(the_last_words_of_a_trainer_are_read),
        CASE(a_process_is_found_by_its_number_until_it_is_reaped),
        CASE(jobs_that_are_over_are_looked_at_no_more),
        CASE(a_node_knows_so_many_jobs_and_no_more),
        CASE(who_is_killed_is_told_nothing),
        CASE(a_trainer_that_talks_on_ends_no_later),
        CASE(a_trainer_that_hangs_up_has_a_moment_to_end),
        CASE(the_dead_mans_timer_looks_like_a_hang),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
