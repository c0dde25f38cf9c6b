/* SPDX-License-Identifier: Apache-2.0 */
/* test-requests.c - every request at every stage of a job, with a leader that stays, a leader that dies before it has
 * read the request, and a leader that dies after that: production controllers and daemons, in virtual time.
 *
 * The table of docs/operating/job.md has the outcome of each request and its latest time; this test reads the table. If
 * the leader dies, the outcome may be TAKEOVER_SEC later, with no other difference.
 *
 *   test-requests          tries each cell of the table
 *   test-requests print    prints the correct table */
#include "base/cleanup.h"
#include "base/file.h"
#include "base/test/testing.h"
#include "protocol/exit-code.h"
#include "tests/sim/fleet/fleet.h"
#include "tests/sim/seams/loop.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum {
    NODES = 4,
    RANKS = 3,     /* ranks of the job: fewer than NODES, so one node is a spare */
    FEWER = 2,     /* the number of ranks that a resize requests */
    LONG_SEC = 20, /* the duration of a long restore, first step or save */
    WATCH_SEC = 90,
    /* how long a takeover takes: the dead leader's lease runs out, and a new leader is elected */
    TAKEOVER_SEC = 16,
    STEPS = 100000,
    TEXT_BYTES = 64
};

static const char page[] = "docs/operating/job.md", heading[] = "## What a request does, and when";

static FleetJob job;

static const FleetJob usual = {.name = "a",
                               .min = 1,
                               .max = RANKS,
                               .max_failures = 20,
                               .grow_interval_sec = 600,
                               .store_patience_sec = 600,
                               .plan = {.steps = STEPS,
                                        .save_steps = STEPS,
                                        .step_usec = 100 * USEC_PER_MSEC,
                                        .save_usec = 20 * USEC_PER_MSEC,
                                        .restore_usec = 200 * USEC_PER_MSEC}};

static const JobBooks *books(void) { return books_job("a"); }
static const PhaseRecord *phase(void) { return &books()->phase; }

static void run_until_go(void)
{
    for (int i = 0; i < 600 && !phase()->go; i++)
        fleet_run(loops_now_usec() + 100 * USEC_PER_MSEC);
    assert_true(phase()->go);
}

static void change_plan(uint64_t *member, uint64_t usec)
{
    *member = usec;
    trainers_plan("a", &job.plan);
}

/* ---- the stages of a job ---- */

static void submit(void)
{
    fleet_submit_job(&job);
    fleet_run_for(2);
}

static void pends(void)
{
    for (int node = 0; node < NODES; node++)
        fleet_cordon(node, CORDON_CORDON);
    fleet_run_for(1);
    submit();
    assert_int_equal(phase()->phase, PHASE_PENDING);
    assert_int_equal(fleet_generation("a"), 0);
}

static void starts(void)
{
    job.plan.restore_usec = LONG_SEC * USEC_PER_SEC;
    submit();
    assert_int_equal(phase()->phase, PHASE_STARTING);
    assert_false(phase()->go);
}

static void makes_its_first_step(void)
{
    job.plan.first_usec = LONG_SEC * USEC_PER_SEC;
    submit();
    assert_int_equal(phase()->phase, PHASE_STARTING);
    run_until_go();
}

static void trains(void)
{
    submit();
    fleet_run_for(3);
    assert_int_equal(phase()->phase, PHASE_RUNNING);
}

static void fail_once(void) { assert_true(trainer_exit(1, 0, EXIT_RETRY, "once more")); }

static void recovers(void)
{
    trains();
    change_plan(&job.plan.restore_usec, LONG_SEC * USEC_PER_SEC);
    fail_once();
    for (int i = 0; i < 60 && fleet_generation("a") == 1; i++)
        fleet_run_for(1);
    fleet_run_for(1);
    assert_int_equal(phase()->phase, PHASE_RECOVERING);
    assert_false(phase()->go);
}

static void makes_its_first_step_again(void)
{
    trains();
    change_plan(&job.plan.first_usec, LONG_SEC * USEC_PER_SEC);
    fail_once();
    for (int i = 0; i < 60 && fleet_generation("a") == 1; i++)
        fleet_run_for(1);
    run_until_go();
    assert_int_equal(phase()->phase, PHASE_RECOVERING);
}

/* The store does not answer, so the job's worlds fail, and each pause between worlds is longer than
 * the pause before. */
static void pauses(void)
{
    trains();
    for (int i = 0; phase()->pause_usec < LONG_SEC * USEC_PER_SEC; i++) {
        assert_true(i < 600);
        for (int node = 0; phase()->go && node < NODES; node++)
            if (trainer_exit(node, 0, EXIT_STORE_UNREACHABLE, "the store does not answer"))
                break;
        fleet_run_for(1);
    }
    assert_int_equal(phase()->phase, PHASE_RECOVERING);
}

/* A request has given the job two ranks, and the save before the resize takes long. */
static void resizes(void)
{
    trains();
    change_plan(&job.plan.save_usec, LONG_SEC * USEC_PER_SEC);
    fleet_want(&job, DESIRED_RUNNING, FEWER);
    fleet_run_for(2);
    assert_int_equal(phase()->phase, PHASE_RESIZING);
}

static void stops(void)
{
    trains();
    change_plan(&job.plan.save_usec, LONG_SEC * USEC_PER_SEC);
    fleet_want(&job, DESIRED_STOPPED, 0);
    fleet_run_for(2);
    assert_int_equal(phase()->phase, PHASE_STOPPING);
}

static void has_stopped(void)
{
    trains();
    fleet_want(&job, DESIRED_STOPPED, 0);
    assert_true(fleet_run_until("a", PHASE_STOPPED, 10));
}

static void has_failed(void)
{
    trains();
    for (int node = 0; node < NODES; node++)
        (void)trainer_exit(node, 0, EXIT_NEVER_RETRY, "a setting is wrong");
    assert_true(fleet_run_until("a", PHASE_FAILED, 10));
}

static void has_succeeded(void)
{
    job.plan.steps = 60;
    submit();
    assert_true(fleet_run_until("a", PHASE_SUCCEEDED, 60));
}

static const struct {
    const char *name;
    void (*come)(void);
} moments[] = {
    {"pending", pends},
    {"starting, before go", starts},
    {"starting, first step", makes_its_first_step},
    {"running", trains},
    {"recovering, before go", recovers},
    {"recovering, first step", makes_its_first_step_again},
    {"recovering, a pause", pauses},
    {"resizing", resizes},
    {"stopping", stops},
    {"stopped", has_stopped},
    {"failed", has_failed},
    {"succeeded", has_succeeded},
};

/* ---- requests ---- */

static void ask_nothing(void) {}
static void ask_stop(void) { fleet_want(&job, DESIRED_STOPPED, books()->desired.target); }
static void ask_start(void) { fleet_want(&job, DESIRED_RUNNING, books()->desired.target); }
static void ask_delete(void) { fleet_want(&job, DESIRED_DELETED, books()->desired.target); }
static void ask_resize(void) { fleet_want(&job, books()->desired.state, FEWER); }
static void ask_drain(void) { fleet_cordon(0, CORDON_DRAIN); }
static void ask_cordon(void) { fleet_cordon(0, CORDON_CORDON); }

static void ask_priority(void)
{
    job.priority = 7;
    fleet_want(&job, books()->desired.state, books()->desired.target);
}

static void ask_checkpoint(void)
{
    RequestRecord request = {.id = "r1",
                             .kind = "checkpoint",
                             .target = "a",
                             .at_usec = loops_now_usec()};
    _cleanup_free_ char *text = request_record_encode(&request, NULL);
    fleet_put_by_hand(KEY_REQUESTS, "r1", 0, text);
}

static const struct {
    const char *name;
    void (*ask)(void);
} requests[] = {{"stop", ask_stop},
                {"start", ask_start},
                {"drain", ask_drain},
                {"cordon", ask_cordon},
                {"resize", ask_resize},
                {"priority", ask_priority},
                {"checkpoint", ask_checkpoint},
                {"delete", ask_delete}};

/* ---- outcomes ---- */

typedef enum Leader { LEADER_STAYS, LEADER_DIES_BEFORE, LEADER_DIES_AFTER, LEADER_KINDS } Leader;

static const char *const leader_names[] = {"the leader stays", "the leader dies before",
                                           "the leader dies after"};

typedef struct Result {
    char what[TEXT_BYTES];
    double sec; /* seconds from the request until the outcome; 0: nothing changed */
} Result;

static int ranks(void)
{
    int n = 0;
    for (int node = 0; node < NODES; node++)
        n += trainers_are_at(node, 0);
    return n;
}

/* Returns whether the job is at rest, as people see it: gone, ended, or training in a world. */
static bool rests(void)
{
    const JobBooks *b = books();
    if (!b->has_spec && !b->has_phase)
        return ranks() == 0;
    return b->has_phase &&
           (!phase_is_active(b->phase.phase) ? ranks() == 0 : b->phase.phase == PHASE_RUNNING);
}

/* Describes the outcome: "stopped, saved", "3 ranks, moved", "goes on". moved: the world has no
 * rank on n0; saved: there is a newer checkpoint. */
static void describe(int64_t generation, int64_t committed, char ret[TEXT_BYTES])
{
    const JobBooks *b = books();
    const char *saved = fleet_committed("a") > committed ? ", saved" : "";
    if (!b->has_spec && !b->has_phase)
        (void)snprintf(ret, TEXT_BYTES, "gone");
    else if (b->phase.phase != PHASE_RUNNING)
        (void)snprintf(ret, TEXT_BYTES, "%s%s", job_phase_name(b->phase.phase), saved);
    else if (b->generation == generation)
        (void)snprintf(ret, TEXT_BYTES, "goes on%s", saved);
    else
        (void)snprintf(ret, TEXT_BYTES, "%d ranks%s%s", ranks(),
                       trainers_are_at(0, 0) ? "" : ", moved", saved);
}

static void check_answer(const char *what)
{
    RequestRecord request;
    _cleanup_free_ char *text = fleet_read(KEY_REQUESTS, "r1");
    const char *answer = strstr(what, ", saved") ? "rank 0 saves after its present step"
                                                 : "refused: the job does not train now";
    assert_non_null(text);
    assert_int_equal(request_record_decode("r1", text, strlen(text), &request, NULL), 0);
    assert_string_equal(request.answer, answer);
    request_record_clear(&request);
}

static void kill_leader(void)
{
    if (fleet_leader() >= 0)
        fleet_restart_controller(fleet_leader(), 5 * USEC_PER_SEC);
}

/* Plays a stage and a request, and closes the fleet. */
static Result play(void (*come)(void), void (*ask)(void), Leader leader)
{
    const FleetOptions options = {
        .seed = 1, .n_members = 3, .n_controllers = 2, .n_nodes = NODES, .n_slots = 1};
    Result result = {0};
    char now[TEXT_BYTES];
    job = usual;
    fleet_open(&options);
    come();
    const int64_t generation = fleet_generation("a"), committed = fleet_committed("a");
    if (leader == LEADER_DIES_BEFORE)
        kill_leader();
    const uint64_t asked_usec = loops_now_usec();
    ask();
    if (leader == LEADER_DIES_AFTER) {
        fleet_run_for(1);
        kill_leader();
    }
    while (loops_now_usec() < asked_usec + WATCH_SEC * USEC_PER_SEC) {
        fleet_run(loops_now_usec() + 50 * USEC_PER_MSEC);
        if (!rests())
            continue;
        describe(generation, committed, now);
        if (strcmp(now, result.what) != 0)
            result.sec = (double)(loops_now_usec() - asked_usec) / 1e6;
        memcpy(result.what, now, sizeof(now));
    }
    const Breach *breach = books_broken();
    if (breach)
        fail_msg("%s: %s", breach->invariant, breach->text);
    if (ask == ask_checkpoint)
        check_answer(result.what);
    fleet_close();
    return result;
}

/* ---- the table ---- */

enum { COLUMNS = 2 + (int)ELEMENTSOF(requests), CELL_BYTES = 80 };

/* Splits "| a | b |" into its cells; returns how many there are. */
static int split(char *line, char *ret[COLUMNS + 1])
{
    int n = 0;
    for (char *cell; (cell = strsep(&line, "|")) && n <= COLUMNS;) {
        while (isspace((unsigned char)*cell))
            cell++;
        for (char *end = cell + strlen(cell); end > cell && isspace((unsigned char)end[-1]);)
            *--end = '\0';
        if (*cell)
            ret[n++] = cell;
    }
    return n;
}

/* Returns whether the result agrees with a cell of the page's table; bound_sec is added to the cell's
 * time. A cell "-" means: the outcome is the same as without a request. */
static bool says(const char *cell, const Result *result, const Result *without, int bound_sec)
{
    char what[CELL_BYTES] = "";
    double sec = 0;
    if (strcmp(cell, "-") == 0)
        return strcmp(result->what, without->what) == 0 &&
               result->sec <= without->sec + 1 + bound_sec;
    const char *in = strstr(cell, " in ");
    if (!in || sscanf(in, " in %lf s", &sec) != 1 || in - cell >= (int)sizeof(what))
        fail_msg("%s: a cell says neither \"-\" nor \"... in N s\": %s", page, cell);
    memcpy(what, cell, (size_t)(in - cell));
    return strcmp(result->what, what) == 0 && result->sec <= sec + bound_sec;
}

static void try_row(size_t moment, char *cells[])
{
    const Result without = play(moments[moment].come, ask_nothing, LEADER_STAYS);
    if (!says(cells[1], &without, &without, 0))
        fail_msg("%s: without a request: \"%s in %.1f s\"; the page: \"%s\"", moments[moment].name,
                 without.what, without.sec, cells[1]);
    for (size_t i = 0; i < ELEMENTSOF(requests); i++)
        for (int leader = 0; leader < LEADER_KINDS; leader++) {
            const Result result = play(moments[moment].come, requests[i].ask, (Leader)leader);
            if (!says(cells[2 + i], &result, &without, leader ? TAKEOVER_SEC : 0))
                fail_msg("%s, %s, %s: \"%s in %.1f s\"; the page: \"%s\"", moments[moment].name,
                         requests[i].name, leader_names[leader], result.what, result.sec,
                         cells[2 + i]);
        }
}

/* Returns the lines of the table below the heading, including its two heading lines. */
static char *read_table(char **ret_text)
{
    Error err = ERROR_INIT;
    const char *source = getenv("SDTRAIN_SOURCE");
    _cleanup_free_ char *path = NULL;
    assert_true(asprintf(&path, "%s/%s", source ? source : ".", page) > 0);
    if (file_read(path, 1 << 20, ret_text, NULL, &err) < 0)
        fail_msg("%s", err.text);
    char *at = strstr(*ret_text, heading);
    assert_non_null(at);
    at = strstr(at, "\n| ");
    assert_non_null(at);
    return at + 1;
}

static void each_cell_is_true(_unused_ void **state)
{
    _cleanup_free_ char *text = NULL;
    char *rest = read_table(&text), *cells[COLUMNS + 1];
    assert_int_equal(split(strsep(&rest, "\n"), cells), COLUMNS);
    for (size_t i = 0; i < ELEMENTSOF(requests); i++)
        assert_string_equal(cells[2 + i], requests[i].name);
    (void)strsep(&rest, "\n");
    for (size_t i = 0; i < ELEMENTSOF(moments); i++) {
        assert_int_equal(split(strsep(&rest, "\n"), cells), COLUMNS);
        assert_string_equal(cells[0], moments[i].name);
        try_row(i, cells);
    }
    assert_false(rest && rest[0] == '|');
}

static void print_table(void)
{
    printf("| the job is | no request |");
    for (size_t i = 0; i < ELEMENTSOF(requests); i++)
        printf(" %s |", requests[i].name);
    printf("\n|---|---|");
    for (size_t i = 0; i < ELEMENTSOF(requests); i++)
        printf("---|");
    for (size_t m = 0; m < ELEMENTSOF(moments); m++) {
        const Result without = play(moments[m].come, ask_nothing, LEADER_STAYS);
        printf("\n| %s | %s in %.0f s |", moments[m].name, without.what, without.sec + 0.5);
        for (size_t i = 0; i < ELEMENTSOF(requests); i++) {
            const Result r = play(moments[m].come, requests[i].ask, LEADER_STAYS);
            if (strcmp(r.what, without.what) == 0 && r.sec <= without.sec + 1)
                printf(" - |");
            else
                printf(" %s in %.0f s |", r.what, r.sec + 0.5);
        }
    }
    printf("\n");
}

int main(int argc, char *argv[])
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_cell_is_true)};
    if (argc == 2 && strcmp(argv[1], "print") == 0)
        print_table();
    else
        return cmocka_run_group_tests(tests, NULL, NULL);
    return 0;
}
