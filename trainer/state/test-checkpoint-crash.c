/* test-checkpoint-crash.c - SIGKILL at every step of a commit, at every visit.
 *
 * A life is one generation of a job: it restores what the record names, then saves, commits to the
 * record and retires twice. The record (a file) stands in for the one in etcd. Life 1 runs
 * undisturbed, life 2 dies at the n-th visit of a fault point, life 3 runs undisturbed again. After
 * the death the recorded checkpoint must be whole; after life 3 nothing of the dead one may be left
 * and the metrics must have one line for each step.
 */
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/testing.h"
#include "trainer/state/manifest.h"
#include "trainer/state/testing-state.h"

#include <ftw.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

enum { SAVES = 2, VISITS_MAX = 1000 };

static Fixture fixture;
static char folder[64];

typedef struct LifeCase {
    int64_t generation;
    const char *point; /* NULL: no fault */
    int visit, rank;   /* where it strikes */
} LifeCase;

static int read_record(char uri[CHECKPOINT_URI_MAX])
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/record", folder);
    _cleanup_free_ char *text = NULL;
    int r = file_read(path, CHECKPOINT_URI_MAX - 1, &text, NULL, NULL);
    if (r == 0)
        (void)snprintf(uri, CHECKPOINT_URI_MAX, "%s", text);
    return r;
}

static void write_record(const char *uri)
{
    Error err = ERROR_INIT;
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/record", folder);
    world_check(file_write(path, uri, strlen(uri), 0, &err) == 0, "%s", err.text);
}

/* Refills the state as training would: each step's numbers are a function of the step. */
static TrainState *next_state(TrainState *state, int64_t step)
{
    int rank = state->rank, size = state->world_size;
    state = train_state_free(state);
    return testing_state(&fixture, step, rank, size, 1, true);
}

static TrainState *resume(Store *store, CheckpointWriter *writer, int rank, int size)
{
    TrainState *state = testing_state(&fixture, 0, rank, size, 1, true);
    char uri[CHECKPOINT_URI_MAX];
    if (read_record(uri) < 0)
        return state;

    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *other = NULL;
    _cleanup_(manifest_freep) Manifest *m = NULL;
    world_check(manifest_read_uri(uri, NULL, &other, &m, &err) == 0, "%s", err.text);
    world_check(checkpoint_restore(store, NULL, m, state, &err) == 0, "%s", err.text);
    testing_state_check(state, manifest_step(m), true);
    if (rank == 0)
        world_check(checkpoint_adopt_history(writer, m, &err) == 0, "%s", err.text);
    return state;
}

/* Ends with 3 when a save fails: the comm's peer is dead. */
static int life(World *world, Comm *comm, void *arg)
{
    const LifeCase *c = arg;
    Error err = ERROR_INIT;
    log_set_level(LOG_LEVEL_ERROR);
    world_check(comm_barrier(comm, &err) == 0, "%s", err.text); /* the peer may die from here on */
    if (c->point && world->rank == c->rank) {
        char setting[96];
        (void)snprintf(setting, sizeof(setting), "%s=kill@%d", c->point, c->visit);
        (void)setenv("SDTRAIN_FAULT", setting, 1); /* a valid name */
        world_check(fault_open(&err) == 0, "%s", err.text);
    }

    char uri[80];
    (void)snprintf(uri, sizeof(uri), "%s/store", folder);
    _cleanup_(store_freep) Store *store = NULL;
    world_check(store_open(uri, &store, &err) == 0, "%s", err.text);
    _cleanup_(checkpoint_writer_freep) CheckpointWriter *writer =
        testing_writer(&fixture, store, comm, c->generation, 20000);
    _cleanup_(train_state_freep) TrainState *state =
        resume(store, writer, world->rank, world->size);

    for (int i = 0; i < SAVES; i++) {
        const int64_t step = state->scalars.step + 1;
        state = next_state(state, step);
        CheckpointResult result = testing_save(writer, state, c->generation, step);
        if (result.phase != CHECKPOINT_WRITTEN)
            return 3;
        if (world->rank == 0) {
            write_record(result.uri);
            checkpoint_settle(writer, true);
        }
    }
    return 0;
}

static void run_undisturbed(int size, int64_t generation)
{
    World world = {.size = size, .run = life, .arg = &(LifeCase){.generation = generation}};
    assert_int_equal(world_run(&world, 60), 0);
}

static void check_whole(Store *store, const Manifest *m)
{
    Error err = ERROR_INIT;
    assert_true(hash_equal(manifest_digest(m), testing_digest(&fixture, manifest_step(m), true)));
    for (int rank = 0; rank < 3; rank++) {
        _cleanup_(train_state_freep) TrainState *state =
            testing_state(&fixture, 0, rank, 3, 2, true);
        if (checkpoint_restore(store, NULL, m, state, &err) < 0)
            fail_msg("%s", err.text);
        testing_state_check(state, manifest_step(m), true);
    }
}

/* The recorded checkpoint is there, and each that has a manifest is whole. Returns the recorded
 * step. */
static int64_t check_record(void)
{
    Error err = ERROR_INIT;
    char uri[CHECKPOINT_URI_MAX];
    assert_int_equal(read_record(uri), 0);
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(manifest_freep) Manifest *recorded = NULL;
    if (manifest_read_uri(uri, NULL, &store, &recorded, &err) < 0)
        fail_msg("%s", err.text);

    StoreList list;
    assert_int_equal(checkpoint_list(store, &list, &err), 0);
    assert_true(list.n_objects >= 2);
    for (size_t i = 0; i < list.n_objects; i++) {
        _cleanup_(manifest_freep) Manifest *m = NULL;
        if (manifest_read(store, list.objects[i].key, NULL, &m, &err) < 0)
            fail_msg("%s", err.text);
        check_whole(store, m);
    }
    store_list_clear(&list);
    return manifest_step(recorded);
}

static size_t n_temporaries, n_empty;

/* rmdir() takes only what is empty. */
static int visit_path(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    n_temporaries += strncmp(path + ftw->base, ".put-", 5) == 0;
    (void)st;
    n_empty += type == FTW_D && ftw->level > 0 && rmdir(path) == 0;
    return 0;
}

/* Two checkpoints, whole, and nothing else but their history's metrics. */
static void check_tidy(int64_t last_step)
{
    Error err = ERROR_INIT;
    char path[80];
    (void)snprintf(path, sizeof(path), "%s/store", folder);
    n_temporaries = n_empty = 0;
    assert_int_equal(nftw(path, visit_path, 16, FTW_PHYS), 0);
    assert_int_equal(n_temporaries, 0);
    assert_int_equal(n_empty, 0);

    _cleanup_(store_freep) Store *store = NULL;
    StoreList checkpoints, objects;
    assert_int_equal(store_open(path, &store, &err), 0);
    assert_int_equal(checkpoint_list(store, &checkpoints, &err), 0);
    assert_int_equal(checkpoints.n_objects, 2);

    size_t n_expected = 0;
    for (size_t i = 0; i < checkpoints.n_objects; i++) {
        _cleanup_(manifest_freep) Manifest *m = NULL;
        assert_int_equal(manifest_read(store, checkpoints.objects[i].key, NULL, &m, &err), 0);
        n_expected += m->n_objects + 1 + (i == 0 ? m->n_segments : 0);
        _cleanup_(train_state_freep) TrainState *state = testing_state(&fixture, 0, 0, 1, 0, true);
        assert_int_equal(checkpoint_restore(store, NULL, m, state, &err), 0);
        if (i > 0)
            continue;
        assert_int_equal(manifest_step(m), last_step);
        assert_int_equal(checkpoint_publish_metrics(store, m, "metrics.jsonl", &err), 0);
    }
    assert_int_equal(store_list(store, "", 10000, &objects, &err), 0);
    assert_int_equal(objects.n_objects, n_expected + 1);
    store_list_clear(&checkpoints);
    store_list_clear(&objects);

    /* "step 1 of generation 1": exactly one line for each step, in order. */
    _cleanup_free_ char *text = NULL;
    assert_int_equal(store_get(store, "metrics.jsonl", 100000, &text, NULL, &err), 0);
    long long expected = 1;
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        long long step, generation;
        assert_int_equal(sscanf(line, "step %lld of generation %lld", &step, &generation), 2);
        assert_int_equal(step, expected++);
    }
    assert_int_equal(expected, last_step + 1);
}

static void clear(void) { assert_int_equal(folder_remove(folder, NULL), 0); }

/* Kills rank `rank` of `size`; false when life 2 outlives that many visits. */
static bool run_case(const char *point, int visit, int rank, int size)
{
    Error err = ERROR_INIT;
    assert_int_equal(folder_make(folder, &err), 0);
    run_undisturbed(size, 1);
    const int64_t before = check_record();
    assert_int_equal(before, SAVES);

    LifeCase c = {.generation = 2, .point = point, .visit = visit, .rank = rank};
    World world = {.size = size, .run = life, .arg = &c};
    int status[WORLD_MAX];
    world_start(&world);
    (void)world_wait(&world, 60, status); /* the statuses are looked at one by one */
    const bool killed = WIFSIGNALED(status[rank]) && WTERMSIG(status[rank]) == SIGKILL;
    for (int i = 0; i < size; i++)
        if (i != rank) /* it learns that the save failed, or had nothing left to learn */
            assert_true(WIFEXITED(status[i]) &&
                        (WEXITSTATUS(status[i]) == 3 || WEXITSTATUS(status[i]) == 0));
    if (!killed)
        assert_int_equal(status[rank], 0);

    const int64_t after = check_record();
    assert_true(after >= before && after <= before + SAVES);
    run_undisturbed(size, 3);
    assert_int_equal(check_record(), after + SAVES);
    check_tidy(after + SAVES);
    clear();
    return killed;
}

/* Visits 1, 1 + stride, ... until the life survives. */
static void kill_everywhere(const char *point, int stride, int rank, int size)
{
    int visit = 1;
    while (run_case(point, visit, rank, size)) {
        visit += stride;
        assert_true(visit < VISITS_MAX);
    }
    if (visit == 1)
        fail_msg("%s is never visited", point);
    print_message("%s: killed up to visit %d\n", point, visit - stride);
}

static const char *const points[] = {
    "checkpoint.copied",
    "checkpoint.object",
    "checkpoint.gathered",
    "checkpoint.manifest.before",
    "checkpoint.manifest.after",
    "checkpoint.settle",
    "checkpoint.retire.manifest",
    "checkpoint.retire.object",
    "store.put.before",
    "store.put.half",
    "store.put.after",
};

static void test_kill_alone(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < ELEMENTSOF(points); i++)
        kill_everywhere(points[i], 1, 0, 1);
}

/* With a peer that must not hang; every seventh visit, since a world takes longer to start. */
static void test_kill_one_of_two(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < ELEMENTSOF(points); i++)
        kill_everywhere(points[i], 7, 0, 2);
    static const char *const elsewhere[] = {"checkpoint.copied", "checkpoint.object",
                                            "checkpoint.gathered", "store.put.half"};
    for (size_t i = 0; i < ELEMENTSOF(elsewhere); i++)
        kill_everywhere(elsewhere[i], 7, 1, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill_alone),
        cmocka_unit_test(test_kill_one_of_two),
    };
    /* Memory where there is some: a SIGKILL loses nothing that was written, synced or not. */
    (void)snprintf(folder, sizeof(folder), "%s/test-crash-%d",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (int)getpid());
    fixture_open(FIXTURE_SMALL, &fixture);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_close(&fixture);
    (void)folder_remove(folder, NULL); /* a failed case leaves it */
    return failed;
}
