/* test-walk.c - random walks: nodes, users and faults drawn from a seed act on the store, and the
 * invariants of ARCHITECTURE.md are checked against what really runs, at every decision. At the end
 * everything is healed, and the jobs must run again (I11).
 *
 *     test-walk [SEED]      one walk, with a line per action */
#include "base/testing.h"
#include "controller/core/replay.h"

#include <string.h>

enum { NODES = 5, SLOTS = 2, JOBS = 2, WALKS = 150, ACTIONS = 400, MAX_FAILURES = 3 };

typedef enum ProcessState { NONE, STARTING, READY, RUNNING } ProcessState;

/* What really runs on a node for a job: all its slots together. */
typedef struct Team {
    ProcessState state;
    int64_t generation;
    bool old_killed;
} Team;

typedef struct Machine {
    bool registered; /* its key is in the store */
    uint64_t incarnation;
    Team teams[JOBS];
} Machine;

typedef struct Walk {
    Replay *replay;
    uint64_t seed;
    bool talk;
    int64_t term;
    Machine machines[NODES];
    int64_t generations[JOBS]; /* highest ever decided */
    int n_worlds, n_incidents;
} Walk;

static const char *const node_names[NODES] = {"n1", "n2", "n3", "n4", "n5"};
static const char *const job_names[JOBS] = {"a", "b"};

static uint32_t draw(Walk *w, uint32_t n)
{
    w->seed = w->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(w->seed >> 33) % n;
}

#define TALK(w, ...)                                                                               \
    do {                                                                                           \
        if ((w)->talk)                                                                             \
            print_message(__VA_ARGS__);                                                            \
    } while (0)

/* ---- the store ---- */

static void *record_of(Walk *w, EventKind kind, const char *name)
{
    ReplayEntry *e = replay_find(w->replay, kind, name, 0, NULL);
    return e ? e->record : NULL;
}

static int machine_of(const char *node)
{
    for (int i = 0; i < NODES; i++)
        if (strcmp(node_names[i], node) == 0)
            return i;
    return -1;
}

static const WorldRun *run_of(const WorldRecord *world, int machine)
{
    for (size_t i = 0; world && i < world->n_runs; i++)
        if (strcmp(world->runs[i].node, node_names[machine]) == 0)
            return &world->runs[i];
    return NULL;
}

static bool is_active(const PhaseRecord *p)
{
    return p && p->phase >= PHASE_STARTING && p->phase <= PHASE_STOPPING;
}

/* ---- invariants ---- */

static bool is_quarantined(Walk *w, int machine)
{
    const CordonRecord *c = record_of(w, EVENT_CORDON, node_names[machine]);
    return c && c->mode == CORDON_QUARANTINE && !c->job[0] &&
           (!c->until_usec || c->until_usec > replay_now(w->replay));
}

static void check_world(Walk *w, int job, const Decision *d)
{
    assert_true(d->world.generation > w->generations[job]); /* I2 */
    assert_true(d->n_cordons <= DECISION_CORDONS_MAX);
    const CheckpointsRecord *checkpoints =
        d->put_checkpoints ? &d->checkpoints : record_of(w, EVENT_CHECKPOINTS, d->job);
    const CheckpointCommit *latest = checkpoints ? checkpoints_latest(checkpoints) : NULL;
    assert_int_equal(d->world.resume.step, latest ? latest->step : 0); /* I4 */
    int size = 0;
    for (size_t i = 0; i < d->world.n_runs; i++) {
        const WorldRun *run = &d->world.runs[i];
        int m = machine_of(run->node);
        size += __builtin_popcountll(run->slots);
        assert_false(is_quarantined(w, m)); /* I5 */
        for (int c = 0; c < d->n_cordons; c++)
            if (d->cordons[c].mode != CORDON_NONE)
                assert_string_not_equal(d->cordons[c].node, run->node);
        for (int other = 0; other < JOBS; other++) { /* I6 */
            const WorldRecord *world = record_of(w, EVENT_WORLD, job_names[other]);
            const WorldRun *theirs = run_of(world, m);
            if (other != job && theirs && is_active(record_of(w, EVENT_PHASE, job_names[other])))
                assert_true((theirs->slots & run->slots) == 0);
        }
    }
    assert_int_equal(size, d->world.size);
}

/* I3: no process of an older generation runs on a node that is here and not fenced. */
static void check_go(Walk *w, int job, const Decision *d)
{
    for (int m = 0; m < NODES; m++) {
        const Team *team = &w->machines[m].teams[job];
        if (w->machines[m].registered && !is_quarantined(w, m) && team->state != NONE)
            assert_true(team->generation >= d->phase.generation);
    }
}

static void check_decision(Replay *replay, const Decision *d, void *userdata)
{
    Walk *w = userdata;
    w->replay = replay;
    assert_int_equal(d->term, w->term);
    w->n_incidents += d->put_incident && d->incident.state == INCIDENT_OPEN;
    if (!d->job[0])
        return;
    int job = d->job[0] - 'a';
    if (d->put_world)
        check_world(w, job, d);
    if (d->put_phase) {
        const PhaseRecord *old = record_of(w, EVENT_PHASE, d->job);
        if (is_active(&d->phase))
            assert_true(d->phase.failures_without_progress < MAX_FAILURES); /* I7 */
        if (d->phase.go && !(old && old->go && old->generation == d->phase.generation))
            check_go(w, job, d);
        TALK(w, "  %s %s %lld go=%d leave=%d failures=%d \"%s\"\n", d->job,
             job_phase_name(d->phase.phase), (long long)d->phase.generation, d->phase.go,
             d->phase.leave, d->phase.failures_without_progress, d->phase.reason);
    }
}

/* What is applied counts for I2, what is refused does not. */
static void note_worlds(Walk *w)
{
    for (int j = 0; j < JOBS; j++) {
        const WorldRecord *world = record_of(w, EVENT_WORLD, job_names[j]);
        if (!world || world->generation == w->generations[j])
            continue;
        assert_true(world->generation > w->generations[j]);
        w->generations[j] = world->generation;
        w->n_worlds++;
    }
}

/* ---- nodes ---- */

static void put_node(Walk *w, int m)
{
    NodeRecord n = {.machine_id = "m", .incarnation = w->machines[m].incarnation, .n_slots = SLOTS};
    (void)snprintf(n.name, sizeof(n.name), "%s", node_names[m]);
    for (int j = 0; j < JOBS; j++)
        if (w->machines[m].teams[j].state != NONE) {
            (void)snprintf(n.job, sizeof(n.job), "%s", job_names[j]);
            n.generation = w->machines[m].teams[j].generation;
        }
    w->machines[m].registered = true;
    replay_put(w->replay, EVENT_NODE, node_names[m], 0, NULL, &n, false);
}

typedef struct Change {
    RankState state;
    int exit_code, stage;
    bool killed, hung, left;
    int64_t first_step, step;
} Change;

/* Puts the node's ranks record of a generation, all ranks alike. more: the node record follows. */
static void put_ranks(Walk *w, int m, int j, int64_t generation, Change change, bool more)
{
    const ReplayEntry *world_entry = replay_find(w->replay, EVENT_WORLD, job_names[j], 0, NULL);
    ReplayEntry *old = replay_find(w->replay, EVENT_RANKS, job_names[j], generation, node_names[m]);
    const WorldRecord *world = world_entry ? world_entry->record : NULL;
    const WorldRun *run = world && world->generation == generation ? run_of(world, m) : NULL;
    RankReport reports[SLOTS] = {0};
    RanksRecord r = {.generation = generation, .incarnation = w->machines[m].incarnation};
    if (old) {
        r = *(RanksRecord *)old->record;
        memcpy(reports, r.ranks, r.n_ranks * sizeof(RankReport));
    } else if (run) {
        r.world_revision = world_entry->mod;
        for (int rank = 0; rank < world->size; rank++) {
            size_t i;
            int slot;
            assert_int_equal(world_rank_place(world, rank, &i, &slot), 0);
            if (&world->runs[i] == run)
                reports[r.n_ranks++] = (RankReport){.slot = slot, .rank = rank};
        }
    } else {
        return; /* nothing was ever written about it, and its world is gone */
    }
    r.ranks = reports;
    for (size_t i = 0; i < r.n_ranks; i++) {
        if (reports[i].state == RANK_EXITED && old)
            continue;
        reports[i].state = change.state;
        reports[i].exit_code = change.exit_code;
        reports[i].killed = change.killed;
        reports[i].hung = change.hung;
        reports[i].stage = change.stage;
        reports[i].step = MAX(reports[i].step, change.step);
        reports[i].at_usec = replay_now(w->replay);
    }
    if (change.first_step && !r.first_step) {
        r.first_step = change.first_step;
        r.first_step_usec = replay_now(w->replay);
    }
    r.left |= change.left;
    if (w->machines[m].teams[j].old_killed)
        r.killed_usec = replay_now(w->replay);
    replay_put(w->replay, EVENT_RANKS, job_names[j], generation, node_names[m], &r, more);
}

static void kill_team(Walk *w, int m, int j)
{
    Team *team = &w->machines[m].teams[j];
    int64_t generation = team->generation;
    team->state = NONE;
    put_ranks(w, m, j, generation, (Change){.state = RANK_EXITED, .exit_code = -9, .killed = true},
              false);
}

static void commit(Walk *w, int j, int64_t step, int64_t generation)
{
    CheckpointsRecord record = {0};
    const CheckpointsRecord *old = record_of(w, EVENT_CHECKPOINTS, job_names[j]);
    if (old)
        record = *old;
    if (record.n_commits > 0 && record.commits[record.n_commits - 1].step >= step)
        return;
    CheckpointCommit c = {.step = step, .generation = generation};
    (void)snprintf(c.uri, sizeof(c.uri), "file:///c/%s/%lld/manifest.json", job_names[j],
                   (long long)step);
    checkpoints_append(&record, &c);
    replay_put(w->replay, EVENT_CHECKPOINTS, job_names[j], 0, NULL, &record, false);
}

/* Rank 0's node trains: a first step, progress, a commit now and then, leaving when told. */
static void train(Walk *w, int m, int j, const WorldRecord *world, const PhaseRecord *phase)
{
    Team *team = &w->machines[m].teams[j];
    const ProgressRecord *p = record_of(w, EVENT_PROGRESS, job_names[j]);
    int64_t step = world->resume.step;
    if (p && p->generation == team->generation)
        step = MAX(step, p->step);
    step++;
    if (phase->leave) {
        commit(w, j, step, team->generation);
        team->state = NONE;
        put_ranks(w, m, j, team->generation, (Change){.state = RANK_EXITED, .left = true}, false);
        return;
    }
    put_ranks(w, m, j, team->generation,
              (Change){.state = RANK_RUNNING, .first_step = step, .step = step, .stage = 5}, false);
    ProgressRecord now = {.generation = team->generation,
                          .step = step,
                          .step_sec = 0.1,
                          .at_usec = replay_now(w->replay)};
    replay_put(w->replay, EVENT_PROGRESS, job_names[j], 0, NULL, &now, false);
    if (step % 4 == 0)
        commit(w, j, step, team->generation);
}

/* A daemon looks at one job and does the next thing. */
static void serve(Walk *w, int m, int j)
{
    Team *team = &w->machines[m].teams[j];
    const WorldRecord *world = record_of(w, EVENT_WORLD, job_names[j]);
    const PhaseRecord *phase = record_of(w, EVENT_PHASE, job_names[j]);
    const WorldRun *run = run_of(world, m);
    if (!w->machines[m].registered)
        return;
    if (!world || !is_active(phase) || phase->generation != world->generation) {
        if (team->state != NONE)
            kill_team(w, m, j);
        return;
    }
    if (team->state != NONE && team->generation < world->generation) {
        kill_team(w, m, j);
        team->old_killed = true;
        return;
    }
    if (!run || run->incarnation != w->machines[m].incarnation)
        return;
    int64_t g = world->generation;
    if (team->state == NONE) {
        if (replay_find(w->replay, EVENT_RANKS, job_names[j], g, node_names[m]))
            return; /* it has had its try */
        team->state = STARTING;
        team->generation = g;
        put_ranks(w, m, j, g, (Change){.state = RANK_STARTING}, false);
        team->old_killed = false;
    } else if (team->state == STARTING) {
        team->state = READY;
        put_ranks(w, m, j, g, (Change){.state = RANK_READY, .stage = 2}, false);
    } else if (team->state == READY && phase->go) {
        team->state = RUNNING;
        put_ranks(w, m, j, g, (Change){.state = RANK_RUNNING, .stage = 3}, false);
    } else if (team->state == RUNNING && run == &world->runs[0]) {
        train(w, m, j, world, phase);
    } else if (team->state == RUNNING && phase->leave) {
        team->state = NONE;
        put_ranks(w, m, j, g, (Change){.state = RANK_EXITED, .left = true}, false);
    }
}

/* ---- faults ---- */

static void lose_lease(Walk *w, int m)
{
    ReplayEntry *entries;
    size_t n = replay_entries(w->replay, &entries);
    TALK(w, "lease of %s ends\n", node_names[m]);
    w->machines[m].registered = false;
    for (size_t i = 0; i < n; i++)
        if (entries[i].record && entries[i].kind == EVENT_RANKS &&
            strcmp(entries[i].node, node_names[m]) == 0) {
            ReplayEntry e = entries[i];
            replay_put(w->replay, EVENT_RANKS, e.name, e.generation, e.node, NULL, true);
        }
    replay_put(w->replay, EVENT_NODE, node_names[m], 0, NULL, NULL, false);
}

/* Back with its processes and their records, or as a new daemon without any. */
static void come_back(Walk *w, int m, bool restarted)
{
    TALK(w, "%s comes back%s\n", node_names[m], restarted ? ", restarted" : "");
    if (restarted)
        w->machines[m] = (Machine){.incarnation = w->machines[m].incarnation + 1};
    for (int j = 0; j < JOBS; j++) {
        static const RankState states[] = {0, RANK_STARTING, RANK_READY, RANK_RUNNING};
        Team *team = &w->machines[m].teams[j];
        const WorldRecord *world = record_of(w, EVENT_WORLD, job_names[j]);
        if (team->state != NONE && (!world || world->generation != team->generation))
            team->state = NONE; /* refused: it kills its ranks at once */
        if (team->state != NONE)
            put_ranks(w, m, j, team->generation, (Change){.state = states[team->state]}, true);
    }
    put_node(w, m);
}

static void hurt_rank(Walk *w, int m, int j)
{
    static const Change faults[] = {
        {.exit_code = -9, .stage = 5},
        {.exit_code = -11, .stage = 5},
        {.exit_code = 81},
        {.exit_code = 75},
        {.exit_code = 83},
        {.exit_code = 80},
        {.exit_code = -9, .hung = true},
        {.exit_code = 82, .stage = 1},
    };
    Team *team = &w->machines[m].teams[j];
    if (team->state == NONE || !w->machines[m].registered)
        return;
    Change fault = faults[draw(w, ELEMENTSOF(faults))];
    TALK(w, "%s: ranks of %s exit %d\n", node_names[m], job_names[j], fault.exit_code);
    fault.state = RANK_EXITED;
    team->state = NONE;
    put_ranks(w, m, j, team->generation, fault, false);
}

/* ---- users ---- */

static void want(Walk *w, int j, DesiredState state, int target)
{
    DesiredRecord d = {.state = state, .min = 1, .max = 6, .target = target};
    TALK(w, "want %s %d target %d\n", job_names[j], (int)state, target);
    replay_put(w->replay, EVENT_DESIRED, job_names[j], 0, NULL, &d, false);
}

static void cordon(Walk *w, int m, CordonMode mode)
{
    CordonRecord c = {.mode = mode, .since_usec = replay_now(w->replay)};
    TALK(w, "cordon %s %d\n", node_names[m], (int)mode);
    (void)snprintf(c.node, sizeof(c.node), "%s", node_names[m]);
    replay_put(w->replay, EVENT_CORDON, node_names[m], 0, NULL, mode == CORDON_NONE ? NULL : &c,
               false);
}

/* ---- the walk ---- */

static void act(Walk *w)
{
    int m = (int)draw(w, NODES), j = (int)draw(w, JOBS);
    switch (draw(w, 60)) {
    case 0:
        if (w->machines[m].registered)
            lose_lease(w, m);
        break;
    case 1:
        come_back(w, m, true); /* while it is registered: a restart faster than its lease */
        break;
    case 2:
    case 3:
        if (!w->machines[m].registered)
            come_back(w, m, draw(w, 2));
        break;
    case 4:
    case 5:
        hurt_rank(w, m, j);
        break;
    case 6:
        want(w, j, DESIRED_RUNNING, (int)draw(w, 5));
        break;
    case 7:
        want(w, j, draw(w, 3) ? DESIRED_RUNNING : DESIRED_STOPPED, 0);
        break;
    case 8:
        cordon(w, m, (CordonMode)draw(w, 4));
        break;
    case 9:
        TALK(w, "take over\n");
        replay_take_over(w->replay, w->term += 3);
        break;
    case 10:
        replay_set_outcome(w->replay, (Outcome)draw(w, 3), draw(w, 2));
        break;
    case 11:
        replay_advance(w->replay, replay_now(w->replay) + draw(w, 12) * USEC_PER_SEC);
        break;
    default:
        serve(w, m, j);
        break;
    }
    note_worlds(w);
    replay_advance(w->replay, replay_now(w->replay) + draw(w, 300) * USEC_PER_MSEC);
    note_worlds(w);
}

static bool runs(Walk *w, int j)
{
    const PhaseRecord *p = record_of(w, EVENT_PHASE, job_names[j]);
    return p && p->phase == PHASE_RUNNING;
}

static bool has_failed(Walk *w, int j)
{
    const PhaseRecord *p = record_of(w, EVENT_PHASE, job_names[j]);
    return p && p->phase == PHASE_FAILED;
}

/* I11: faults end, slots are enough; the job runs again within 3 TTL and the start deadline. */
static void heal_and_check(Walk *w, const ClusterConfig *config)
{
    int n_restarts[JOBS] = {0};
    TALK(w, "healing\n");
    replay_set_outcome(w->replay, OUTCOME_DONE, true);
    for (int m = 0; m < NODES; m++) {
        cordon(w, m, CORDON_NONE);
        if (!w->machines[m].registered)
            come_back(w, m, false);
    }
    for (int j = 0; j < JOBS; j++)
        want(w, j, DESIRED_RUNNING, 3);
    uint64_t until = replay_now(w->replay) + 3 * config->ttl_usec + config->start_deadline_usec +
                     config->leave_deadline_usec;
    while (replay_now(w->replay) < until && !(runs(w, 0) && runs(w, 1))) {
        for (int m = 0; m < NODES; m++)
            for (int j = 0; j < JOBS; j++)
                serve(w, m, j);
        for (int j = 0; j < JOBS;
             j++) /* the last fault may have been one too many: started again */
            if (has_failed(w, j) && n_restarts[j]++ == 0)
                want(w, j, DESIRED_RUNNING, 3);
        replay_advance(w->replay, replay_now(w->replay) + 50 * USEC_PER_MSEC);
        note_worlds(w);
    }
}

static void walk(uint64_t seed, bool talk, int *n_worlds, int *n_incidents)
{
    ClusterConfig config = cluster_config_default;
    config.ttl_usec = 2 * USEC_PER_SEC;
    config.start_deadline_usec = 10 * USEC_PER_SEC;
    config.leave_deadline_usec = 10 * USEC_PER_SEC;
    config.incidents_kept = 20;
    Walk w = {.seed = seed * 2654435761u + 1, .talk = talk, .term = 5};
    assert_int_equal(replay_new(&config, check_decision, &w, &w.replay), 0);
    replay_lead(w.replay, w.term);
    for (int m = 0; m < NODES; m++) {
        w.machines[m].incarnation = 1;
        put_node(&w, m);
    }
    for (int j = 0; j < JOBS; j++) {
        JobFacts facts = {.n_grains = 8,
                          .steps = 1000000,
                          .max_failures = MAX_FAILURES,
                          .grow_interval_usec = 20 * USEC_PER_SEC,
                          .submitted_usec = (uint64_t)j + 1};
        replay_put(w.replay, EVENT_SPEC, job_names[j], 0, NULL, &facts, false);
        want(&w, j, DESIRED_RUNNING, 0);
    }
    for (int i = 0; i < ACTIONS; i++)
        act(&w);
    heal_and_check(&w, &config);
    for (int j = 0; j < JOBS; j++) {
        const PhaseRecord *p = record_of(&w, EVENT_PHASE, job_names[j]);
        /* A job whose every checkpoint was said not to verify stays failed, with that reason. */
        if (p->phase == PHASE_FAILED && strstr(p->reason, "checkpoint-corrupt"))
            continue;
        if (!runs(&w, j))
            fail_msg("seed %llu: job %s is %s after healing: %s", (unsigned long long)seed,
                     job_names[j], job_phase_name(p->phase), p->reason);
    }
    *n_worlds += w.n_worlds;
    *n_incidents += w.n_incidents;
    replay_free(w.replay);
}

static void walks_keep_the_invariants(_unused_ void **state)
{
    int n_worlds = 0, n_incidents = 0;
    for (uint64_t seed = 1; seed <= WALKS; seed++)
        walk(seed, false, &n_worlds, &n_incidents);
    print_message("%d walks, %d worlds, %d incidents\n", WALKS, n_worlds, n_incidents);
    assert_true(n_worlds > 5 * WALKS && n_incidents > 2 * WALKS); /* the walks do go somewhere */
}

static uint64_t chosen_seed;

static void one_walk(_unused_ void **state)
{
    int n_worlds = 0, n_incidents = 0;
    walk(chosen_seed, true, &n_worlds, &n_incidents);
}

int main(int argc, char *argv[])
{
    const struct CMUnitTest all[] = {cmocka_unit_test(walks_keep_the_invariants)};
    const struct CMUnitTest one[] = {cmocka_unit_test(one_walk)};
    if (argc < 2)
        return cmocka_run_group_tests(all, NULL, NULL);
    chosen_seed = strtoull(argv[1], NULL, 10);
    return cmocka_run_group_tests(one, NULL, NULL);
}
