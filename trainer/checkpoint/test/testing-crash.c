/* SPDX-License-Identifier: Apache-2.0 */
/* testing-crash.c - see testing-crash.h. */
#include "trainer/checkpoint/test/testing-crash.h"

#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/test/testing.h"
#include "manifest/manifest-internal.h"
#include "trainer/checkpoint/test/testing-state.h"
#include "trainer/checkpoint/writer.h"

#include <ftw.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>

enum { SAVES = 2, VISITS_MAX = 1000, LIFE_SEC = 120 };

static Fixture fixture;
static char folder[64]; /* has the record and, if the store is files, the store */
static char base[256];  /* each case has its own store below this URI */
static char uri[320];   /* URI of this case's store */
static int n_cases;
static bool of_files;
static bool blocking;
static uint64_t weight_file_bytes;

typedef struct LifeCase {
    int64_t generation;
    const char *point;     /* NULL: no fault */
    int visit, rank;       /* the visit and the rank at which the fault strikes */
    bool refused;          /* the life's world has been replaced: none of its saves is committed */
    atomic_bool *restored; /* set when the state is restored; NULL: not set */
} LifeCase;

static int read_record(char ret[CHECKPOINT_URI_MAX])
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/record", folder);
    _cleanup_free_ char *text = NULL;
    int r = file_read(path, CHECKPOINT_URI_MAX - 1, &text, NULL, NULL);
    if (r == 0)
        (void)snprintf(ret, CHECKPOINT_URI_MAX, "%s", text);
    return r;
}

static void write_record(const char *manifest)
{
    Error err = ERROR_INIT;
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/record", folder);
    world_check(file_write(path, manifest, strlen(manifest), 0, &err) == 0, "%s", err.text);
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
    char recorded[CHECKPOINT_URI_MAX];
    if (read_record(recorded) < 0)
        return state;

    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *other = NULL;
    _cleanup_(manifest_freep) Manifest *m = NULL;
    world_check(manifest_read_uri(recorded, NULL, &other, &m, &err) == 0, "%s", err.text);
    world_check(checkpoint_restore(store, NULL, m, state, &err) == 0, "%s", err.text);
    testing_state_check(state, manifest_step(m), true);
    if (rank == 0)
        world_check(checkpoint_adopt_history(writer, m, &err) == 0, "%s", err.text);
    return state;
}

/* Exits with 3 if a save fails: the comm's peer is dead, or a newer world has removed the save's objects. */
static int life(World *world, Comm *comm, void *arg)
{
    const LifeCase *c = arg;
    Error err = ERROR_INIT;
    log_set_level(LOG_LEVEL_ERROR);
    world_check(world_barrier(comm, &err) == 0, "%s", err.text); /* the peer may die from here on */
    if (c->point && world->rank == c->rank) {
        char setting[96];
        (void)snprintf(setting, sizeof(setting), "%s=kill@%d", c->point, c->visit);
        (void)setenv("SDTRAIN_FAULT", setting, 1); /* cannot fail for a valid name */
        world_check(fault_open(&err) == 0, "%s", err.text);
    }

    _cleanup_(store_freep) Store *store = NULL;
    world_check(store_open(uri, &store, &err) == 0, "%s", err.text);
    _cleanup_(checkpoint_writer_freep) CheckpointWriter *writer =
        testing_writer(&fixture, store, comm, c->generation, weight_file_bytes);
    writer->options.blocking = blocking;
    _cleanup_(train_state_freep) TrainState *state =
        resume(store, writer, world->rank, world->size);
    if (c->restored)
        atomic_store(c->restored, true);

    for (int i = 0; i < SAVES; i++) {
        const int64_t step = state->scalars.step + 1;
        state = next_state(state, step);
        CheckpointResult result = testing_save(writer, state, c->generation, step);
        if (result.phase != CHECKPOINT_WRITTEN) {
            (void)fprintf(stderr, "(may be so) step %lld: %s\n", (long long)step,
                          result.error.text);
            return 3;
        }
        if (world->rank != 0)
            continue;
        if (c->refused) {
            checkpoint_settle(writer, false);
            return 0; /* a trainer whose commit is refused ends here, too */
        }
        write_record(result.uri);
        checkpoint_settle(writer, true);
    }
    return 0;
}

static void run_undisturbed(int size, int64_t generation)
{
    World world = {.size = size, .run = life, .arg = &(LifeCase){.generation = generation}};
    assert_int_equal(world_run(&world, LIFE_SEC), 0);
}

static void begin_case(void)
{
    Error err = ERROR_INIT;
    (void)snprintf(uri, sizeof(uri), "%s/case%d", base, n_cases++);
    assert_int_equal(folder_make(folder, &err), 0);
}

/* Removes the case's objects from the store, too. */
static void end_case(void)
{
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *store = NULL;
    StoreList list;
    assert_int_equal(store_open(uri, &store, &err), 0);
    assert_int_equal(store_list(store, "", 10000, &list, &err), 0);
    for (size_t i = 0; i < list.n_objects; i++)
        assert_int_equal(store_delete(store, list.objects[i].key, &err), 0);
    store_list_clear(&list);
    assert_int_equal(folder_remove(folder, NULL), 0);
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

/* Checks that the recorded checkpoint exists, and that each checkpoint with a manifest is whole. Checkpoints of the
 * refused generation (0: none) are not checked: a newer generation may have removed their objects before their manifest
 * was put. Returns the recorded step. */
static int64_t check_record(int64_t refused)
{
    Error err = ERROR_INIT;
    char manifest[CHECKPOINT_URI_MAX];
    assert_int_equal(read_record(manifest), 0);
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(manifest_freep) Manifest *recorded = NULL;
    if (manifest_read_uri(manifest, NULL, &store, &recorded, &err) < 0)
        fail_msg("%s", err.text);

    StoreList list;
    assert_int_equal(checkpoint_list(store, &list, &err), 0);
    assert_true(list.n_objects >= 2);
    for (size_t i = 0; i < list.n_objects; i++) {
        _cleanup_(manifest_freep) Manifest *m = NULL;
        if (manifest_read(store, list.objects[i].key, NULL, &m, &err) < 0)
            fail_msg("%s", err.text);
        if (manifest_facts(m)->generation != refused)
            check_whole(store, m);
    }
    store_list_clear(&list);
    return manifest_step(recorded);
}

static size_t n_temporaries, n_empty;

/* Counts temporary files and empty folders: rmdir() removes only an empty folder. */
static int visit_path(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    n_temporaries += strncmp(path + ftw->base, ".put-", 5) == 0;
    (void)st;
    n_empty += type == FTW_D && ftw->level > 0 && rmdir(path) == 0;
    return 0;
}

static void check_files(void)
{
    n_temporaries = n_empty = 0;
    assert_int_equal(nftw(uri, visit_path, 16, FTW_PHYS), 0);
    assert_int_equal(n_temporaries, 0);
    assert_int_equal(n_empty, 0);
}

/* Checks that there are two checkpoints, both whole, and no other objects than their history's metrics. */
static void check_tidy(int64_t last_step)
{
    Error err = ERROR_INIT;
    size_t n_unfinished = 0;
    if (of_files)
        check_files();
    _cleanup_(store_freep) Store *store = NULL;
    StoreList checkpoints, objects;
    assert_int_equal(store_open(uri, &store, &err), 0);
    assert_int_equal(store_sweep(store, 0, NULL, NULL, &n_unfinished, &err), 0);
    assert_int_equal(n_unfinished, 0);
    assert_int_equal(checkpoint_list(store, &checkpoints, &err), 0);
    assert_int_equal(checkpoints.n_objects, 2);

    size_t n_expected = 0;
    for (size_t i = 0; i < checkpoints.n_objects; i++) {
        _cleanup_(manifest_freep) Manifest *m = NULL;
        assert_int_equal(manifest_read(store, checkpoints.objects[i].key, NULL, &m, &err), 0);
        /* each segment is an object: there are too few segments for a merge */
        n_expected += m->n_objects + 1 + (i == 0 ? m->n_segments : 0);
        _cleanup_(train_state_freep) TrainState *state = testing_state(&fixture, 0, 0, 1, 0, true);
        assert_int_equal(checkpoint_restore(store, NULL, m, state, &err), 0);
        if (i > 0)
            continue;
        assert_int_equal(manifest_step(m), last_step);
        MetricsGap gap;
        assert_int_equal(checkpoint_publish_metrics(store, m, "metrics.jsonl", &gap, &err), 0);
        assert_int_equal(gap.n_steps, 0);
    }
    assert_int_equal(store_list(store, "", 10000, &objects, &err), 0);
    assert_int_equal(objects.n_objects, n_expected + 2); /* plus metrics.jsonl and owner/1 */
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

/* ---- cases ---- */

static bool count_unfinished(void *context, const char *key)
{
    (void)key;
    ++*(size_t *)context;
    return false;
}

/* Counts temporary files and multipart uploads that a killed process left in the store. */
static size_t look_for_unfinished(void)
{
    Error err = ERROR_INIT;
    size_t n = 0;
    _cleanup_(store_freep) Store *store = NULL;
    assert_int_equal(store_open(uri, &store, &err), 0);
    assert_int_equal(store_sweep(store, 0, count_unfinished, &n, NULL, &err), 0);
    return n;
}

bool crash_case(const char *point, int visit, int rank, int size, size_t *ret_unfinished)
{
    begin_case();
    run_undisturbed(size, 1);
    const int64_t before = check_record(0);
    assert_int_equal(before, SAVES);

    LifeCase c = {.generation = 2, .point = point, .visit = visit, .rank = rank};
    World world = {.size = size, .run = life, .arg = &c};
    int status[WORLD_MAX];
    world_start(&world);
    (void)world_wait(&world, LIFE_SEC, status); /* each status is checked below */
    const bool killed = WIFSIGNALED(status[rank]) && WTERMSIG(status[rank]) == SIGKILL;
    for (int i = 0; i < size; i++)
        if (i != rank) /* the other rank is notified that the save failed, or has ended before */
            assert_true(WIFEXITED(status[i]) &&
                        (WEXITSTATUS(status[i]) == 3 || WEXITSTATUS(status[i]) == 0));
    if (!killed)
        assert_int_equal(status[rank], 0);

    if (ret_unfinished)
        *ret_unfinished = look_for_unfinished();
    const int64_t after = check_record(0);
    assert_true(after >= before && after <= before + SAVES);
    run_undisturbed(size, 3);
    assert_int_equal(check_record(0), after + SAVES);
    check_tidy(after + SAVES);
    end_case();
    return killed;
}

void crash_everywhere(const char *point, int stride, int rank, int size)
{
    int visit = 1;
    while (crash_case(point, visit, rank, size, NULL)) {
        visit += stride;
        assert_true(visit < VISITS_MAX);
    }
    if (visit == 1)
        fail_msg("%s is never visited", point);
    print_message("%s: killed up to visit %d\n", point, visit - stride);
}

void crash_two_generations(void)
{
    begin_case();
    run_undisturbed(1, 1);
    atomic_bool *restored = world_share(sizeof(*restored));
    LifeCase old = {.generation = 2, .refused = true, .restored = restored};
    LifeCase new = {.generation = 3};
    World worlds[] = {{.size = 1, .run = life, .arg = &old}, {.size = 1, .run = life, .arg = &new}};
    world_start(&worlds[0]);
    for (int i = 0; !atomic_load(restored) && i < LIFE_SEC * 1000; i++)
        /* the old generation must have restored its checkpoint, which the new generation may retire */
        (void)usleep(1000);
    world_start(&worlds[1]);
    int status;
    /* the old generation may fail, since the new generation may sweep while the old one writes */
    (void)world_wait(&worlds[0], LIFE_SEC, &status);
    assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3));
    assert_int_equal(world_wait(&worlds[1], LIFE_SEC, NULL), 0);
    assert_int_equal(check_record(old.generation), 2 * SAVES);
    /* the old generation may have written after the new generation had swept */
    run_undisturbed(1, 4);
    assert_int_equal(check_record(0), 3 * SAVES);
    check_tidy(3 * SAVES);
    end_case();
}

void crash_open(const char *where, FixtureSize size)
{
    /* The folder is in memory if possible: a process that ends by SIGKILL loses no written data, synced or not. */
    (void)snprintf(folder, sizeof(folder), "%s/test-crash-%d",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (int)getpid());
    of_files = !where;
    if (of_files)
        (void)snprintf(base, sizeof(base), "%s/store", folder);
    else
        (void)snprintf(base, sizeof(base), "%s", where);
    weight_file_bytes = size == FIXTURE_LARGE ? 0 : 20000;
    fixture_open(size, &fixture);
}

void crash_blocking(bool yes) { blocking = yes; }

void crash_close(void)
{
    fixture_close(&fixture);
    (void)folder_remove(folder, NULL); /* a folder that remains is not a failure of the test */
}
