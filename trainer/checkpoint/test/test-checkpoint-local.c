/* SPDX-License-Identifier: Apache-2.0 */
/* test-checkpoint-local.c - tests copies on a node's own disk: they are read instead of the store, always verified,
 * replaced when bad, bounded in size, and left out when the disk is full. */
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/test/testing.h"
#include "manifest/manifest-internal.h"
#include "store/test/testing-far.h"
#include "trainer/checkpoint/local.h"
#include "trainer/checkpoint/test/testing-state.h"
#include "trainer/checkpoint/writer.h"

#include <ftw.h>
#include <string.h>
#include <sys/stat.h>

enum { MANY_BYTES = 1 << 30, SAVES_MAX = 5 };

static char folder[] = "/tmp/test-local-XXXXXX";
static Fixture fixture;

/* ---- saves on W ranks of one node, each in its own process ---- */

typedef struct SaveCase {
    int n_saves;
    uint64_t local_bytes;
    const char *fault; /* SDTRAIN_FAULT of all ranks; NULL: none */
    CheckpointResult results[SAVES_MAX];
} SaveCase;

static Store *open_store(void)
{
    Error err = ERROR_INIT;
    Store *store = NULL;
    char uri[64];
    (void)snprintf(uri, sizeof(uri), "far://%s/store", folder);
    int r = store_open(uri, &store, &err);
    world_check(r == 0, "%s", err.text);
    return store;
}

static CheckpointLocal *open_local(const Store *store, uint64_t n_bytes)
{
    Error err = ERROR_INIT;
    CheckpointLocal *local = NULL;
    char dir[64];
    (void)snprintf(dir, sizeof(dir), "%s/local", folder);
    int r = checkpoint_local_new(dir, n_bytes, store_uri(store), &local, &err);
    world_check(r == 0, "%s", err.text);
    return local;
}

static int save_rank(World *world, Comm *comm, void *arg)
{
    SaveCase *c = arg;
    Error err = ERROR_INIT;
    log_set_level(LOG_LEVEL_ERROR);
    (void)setenv("SDTRAIN_FAULT", c->fault ?: "", 1); /* cannot fail for a valid name */
    world_check(fault_open(&err) == 0, "%s", err.text);
    _cleanup_(store_freep) Store *store = open_store();
    _cleanup_(checkpoint_local_freep) CheckpointLocal *local = open_local(store, c->local_bytes);
    _cleanup_(checkpoint_writer_freep) CheckpointWriter *writer =
        testing_writer(&fixture, store, comm, 1, 50000);
    writer->options.local = local;
    for (int i = 0; i < c->n_saves; i++) {
        _cleanup_(train_state_freep) TrainState *state =
            testing_state(&fixture, i + 1, world->rank, world->size, 1, true);
        CheckpointResult result = testing_save(writer, state, 1, i + 1);
        if (world->rank != 0)
            continue;
        c->results[i] = result;
        if (result.phase == CHECKPOINT_WRITTEN)
            checkpoint_settle(writer, true);
    }
    return 0;
}

static SaveCase *run_saves(int size, SaveCase setting)
{
    SaveCase *c = world_share(sizeof(*c));
    *c = setting;
    World world = {.size = size, .run = save_rank, .arg = c};
    far_begin();
    assert_int_equal(world_run(&world, WORLD_SEC), 0);
    return c;
}

static void clear(void)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "%s/store", folder);
    assert_int_equal(folder_remove(path, NULL), 0);
    (void)snprintf(path, sizeof(path), "%s/local", folder);
    assert_int_equal(folder_remove(path, NULL), 0);
}

/* ---- contents of the local disk ---- */

static size_t n_files, n_bytes_found;
static char checkpoints[512]; /* steps in any order: "3 2 4 " */

static int visit(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    CheckpointName name;
    if (type == FTW_F && strcmp(path + ftw->base, "lock") != 0) {
        n_files++;
        n_bytes_found += (size_t)st->st_size;
    }
    if (type == FTW_D && checkpoint_name_parse(path + ftw->base, &name) == 0)
        (void)snprintf(checkpoints + strlen(checkpoints), 16, "%lld ", (long long)name.step);
    return 0;
}

static void look_at_local(void)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "%s/local", folder);
    n_files = n_bytes_found = 0;
    checkpoints[0] = '\0';
    (void)nftw(path, visit, 16, FTW_PHYS); /* if there is no folder, nothing is found */
}

/* ---- restore ---- */

typedef struct Node {
    Store *store;
    CheckpointLocal *local;
    Manifest *manifest;
    char name[CHECKPOINT_FOLDER_MAX];
} Node;

static void node_open(Node *n, const CheckpointResult *of)
{
    Error err = ERROR_INIT;
    *n = (Node){0};
    n->store = open_store();
    n->local = open_local(n->store, MANY_BYTES);
    assert_int_equal(of->phase, CHECKPOINT_WRITTEN);
    const char *name = of->uri + strlen(store_uri(n->store)) + 1;
    (void)snprintf(n->name, sizeof(n->name), "%.*s", (int)strcspn(name, "/"), name);
    assert_int_equal(manifest_read(n->store, n->name, &of->hash, &n->manifest, &err), 0);
}

static void node_close(Node *n)
{
    n->manifest = manifest_free(n->manifest);
    n->local = checkpoint_local_free(n->local);
    n->store = store_free(n->store);
}

/* Restores all ranks of a world of that size, one after another. Returns how many reads the store received. */
static size_t restore(Node *n, int size)
{
    Error err = ERROR_INIT;
    far_begin();
    for (int rank = 0; rank < size; rank++) {
        _cleanup_(train_state_freep) TrainState *state =
            testing_state(&fixture, 77, rank, size, 2, false);
        if (checkpoint_restore(n->store, n->local, n->manifest, state, &err) < 0)
            fail_msg("%s", err.text);
        testing_state_check(state, manifest_step(n->manifest), true);
    }
    return (size_t)atomic_load(&far->reads);
}

static void path_of(const Node *n, const ObjectRecord *o, char path[256])
{
    char pattern[160];
    const uint64_t which = hash64_bytes(store_uri(n->store), strlen(store_uri(n->store)), 0);
    (void)snprintf(pattern, sizeof(pattern), "%s/local/%016llx", folder, (unsigned long long)which);
    assert_true(snprintf(path, 256, "%s/%s/%s", pattern, n->name, o->key) < 256);
}

static void test_instead_of_the_store(void **unused)
{
    (void)unused;
    SaveCase *c = run_saves(2, (SaveCase){.n_saves = 1, .local_bytes = MANY_BYTES});
    Node n;
    node_open(&n, &c->results[0]);
    look_at_local();
    assert_int_equal(n_files, n.manifest->n_objects);
    for (int size = 1; size <= 3; size++)
        assert_int_equal(restore(&n, size), 0);

    /* Copies of another store are not used. */
    Error err = ERROR_INIT;
    char dir[64];
    (void)snprintf(dir, sizeof(dir), "%s/local", folder);
    n.local = checkpoint_local_free(n.local);
    assert_int_equal(checkpoint_local_new(dir, MANY_BYTES, "s3://elsewhere", &n.local, &err), 0);
    assert_true(restore(&n, 1) > n.manifest->n_objects);
    node_close(&n);
    clear();
}

typedef enum Damage { FLIP, TRUNCATE, GROW, REMOVE, DAMAGES } Damage;

static void damage(const char *path, Damage how, size_t at)
{
    size_t n_bytes;
    _cleanup_free_ char *bytes = NULL;
    assert_int_equal(file_read(path, 1 << 30, &bytes, &n_bytes, NULL), 0);
    if (how == REMOVE) {
        assert_int_equal(unlink(path), 0);
        return;
    }
    bytes[at] ^= how == FLIP ? 0x10 : 0;
    assert_int_equal(file_write(path, bytes, n_bytes - (how == TRUNCATE) + (how == GROW), 0, NULL),
                     0);
}

/* Whatever the damage to a copy, the restored state is right, and the bad copy is replaced. A bad copy of an EMA file,
 * which is read only in ranges, is dropped. */
static void test_damage(void **unused)
{
    (void)unused;
    SaveCase *c = run_saves(1, (SaveCase){.n_saves = 1, .local_bytes = MANY_BYTES});
    Node n;
    node_open(&n, &c->results[0]);
    for (size_t i = 0; i < n.manifest->n_objects; i++)
        for (Damage how = 0; how < DAMAGES; how++) {
            const ObjectRecord *o = &n.manifest->objects[i];
            const bool is_ema = o->kind == OBJECT_EMA_WEIGHTS;
            char path[256];
            path_of(&n, o, path);
            if (is_ema && access(path, F_OK) < 0)
                continue; /* the copy was dropped in an earlier case */
            damage(path, how, (size_t)(o->n_bytes * (i % 10) / 10));
            const size_t reads = restore(&n, 2);
            if (reads == 0)
                fail_msg("%s, damage %d: the store was not asked", o->key, (int)how);
            if (is_ema)
                continue;
            _cleanup_free_ char *bytes = NULL;
            size_t n_bytes = 0;
            assert_int_equal(file_read(path, 1 << 30, &bytes, &n_bytes, NULL),
                             how == REMOVE ? -ENOENT : 0);
            assert_true(how == REMOVE || hash_equal(hash_bytes(bytes, n_bytes), o->hash));
            if (how == REMOVE)
                break; /* a missing copy is not replaced */
        }
    node_close(&n);
    clear();
}

/* The local copy is wrong, and the store gives wrong bytes, too: first once, then always. */
static void test_both_wrong(void **unused)
{
    (void)unused;
    SaveCase *c = run_saves(1, (SaveCase){.n_saves = 1, .local_bytes = MANY_BYTES});
    Node n;
    node_open(&n, &c->results[0]);
    char path[256];
    const ObjectRecord *last = &n.manifest->objects[n.manifest->n_objects - 1];
    path_of(&n, last, path);
    damage(path, FLIP, 7);
    Error err = ERROR_INIT;
    _cleanup_(train_state_freep) TrainState *state = testing_state(&fixture, 77, 0, 1, 1, false);
    far_fault(last->key, 1, 0, 0);
    assert_int_equal(checkpoint_restore(n.store, n.local, n.manifest, state, &err), 0);
    testing_state_check(state, 1, true);
    damage(path, FLIP, 7);
    far_fault(last->key, 1000, 0, 0);
    assert_int_equal(checkpoint_restore(n.store, n.local, n.manifest, state, &err), -EBADMSG);
    assert_true(access(path, F_OK) < 0); /* neither the bad copy nor a replacement remains */
    node_close(&n);
    clear();
}

/* ---- copies that are kept ---- */

static void test_newest_stay(void **unused)
{
    (void)unused;
    for (int size = 1; size <= 2; size++) {
        (void)run_saves(size, (SaveCase){.n_saves = 5, .local_bytes = MANY_BYTES});
        look_at_local();
        /* The fifth checkpoint, and the two that were committed when the fifth was written. */
        assert_int_equal(strlen(checkpoints), strlen("5 4 3 "));
        assert_non_null(strstr(checkpoints, "5 "));
        assert_non_null(strstr(checkpoints, "4 "));
        assert_non_null(strstr(checkpoints, "3 "));
        clear();
    }
}

/* A new generation keeps the copies of the checkpoint that it continues from and of the checkpoint before, whether or
 * not it can save. */
static void test_tidy(void **unused)
{
    (void)unused;
    SaveCase *c = run_saves(2, (SaveCase){.n_saves = 5, .local_bytes = MANY_BYTES});
    Node n;
    node_open(&n, &c->results[4]);
    checkpoint_local_tidy(n.local, n.manifest);
    look_at_local();
    assert_int_equal(strlen(checkpoints), strlen("5 4 "));
    assert_non_null(strstr(checkpoints, "5 "));
    assert_non_null(strstr(checkpoints, "4 "));
    assert_int_equal(restore(&n, 2), 0);
    checkpoint_local_clear(n.local);
    checkpoint_local_tidy(n.local, n.manifest); /* there are no copies */
    look_at_local();
    assert_int_equal(n_files, 0);
    node_close(&n);
    Error err = ERROR_INIT;
    char path[64];
    (void)snprintf(path, sizeof(path), "%s/local", folder);
    assert_int_equal(folder_make(path, &err), 0);
    clear();
}

/* Copies that do not fit are not made; the checkpoint is written all the same. */
static void test_bound(void **unused)
{
    (void)unused;
    for (int size = 1; size <= 2; size++) {
        /* The copies of each checkpoint have 660 KB, and at most 3 MB with the space that is set aside for headers. */
        const uint64_t bound = 4 << 20;
        SaveCase *c = run_saves(size, (SaveCase){.n_saves = 5, .local_bytes = bound});
        for (int i = 0; i < 5; i++)
            assert_int_equal(c->results[i].phase, CHECKPOINT_WRITTEN);
        look_at_local();
        assert_true(n_bytes_found <= bound && n_files > 0);
        clear();
        c = run_saves(size, (SaveCase){.n_saves = 2, .local_bytes = 1 << 20});
        assert_int_equal(c->results[1].phase, CHECKPOINT_WRITTEN);
        look_at_local();
        assert_true(n_bytes_found <= 1 << 20);
        clear();
    }
}

static void test_full_disk(void **unused)
{
    (void)unused;
    static const char *const faults[] = {"checkpoint.local=enospc", "checkpoint.local=enospc@7"};
    for (size_t i = 0; i < ELEMENTSOF(faults); i++) {
        SaveCase *c =
            run_saves(2, (SaveCase){.n_saves = 1, .local_bytes = MANY_BYTES, .fault = faults[i]});
        assert_int_equal(c->results[0].phase, CHECKPOINT_WRITTEN);
        Node n;
        node_open(&n, &c->results[0]);
        assert_true(restore(&n, 2) > 0);
        node_close(&n);
        clear();
    }
}

/* A checkpoint that was not written leaves no copies. */
static void test_failed_save(void **unused)
{
    (void)unused;
    SaveCase *c = run_saves(2, (SaveCase){.n_saves = 1,
                                          .local_bytes = MANY_BYTES,
                                          .fault = "checkpoint.manifest.before=eio"});
    assert_int_equal(c->results[0].phase, CHECKPOINT_FAILED);
    look_at_local();
    assert_string_equal(checkpoints, "");
    assert_int_equal(n_files, 0);
    clear();
}

/* Runs in its own process, since the device stays broken. */
static int restore_on_bad_device(_unused_ World *world, _unused_ Comm *comm, void *arg)
{
    const CheckpointResult *saved = arg;
    Error err = ERROR_INIT;
    Node n;
    node_open(&n, saved);
    TrainState *state = testing_state(&fixture, 77, 0, 1, 2, false);
    (void)setenv("SDTRAIN_FAULT", "shadow.break.in=eio@3", 1); /* cannot fail for a valid name */
    world_check(fault_open(&err) == 0, "%s", err.text);
    int r = checkpoint_restore(n.store, n.local, n.manifest, state, &err);
    world_check(r == -EIO, "%d: %s", r, err.text);
    _exit(0);
}

/* After an error of the device, the copies are kept: nothing is known about the bytes that were read. */
static void test_bad_device(void **unused)
{
    (void)unused;
    if (!getenv("SDTRAIN_TEST_DEVICE"))
        skip(); /* only the shadow device has this fault point */
    const SaveCase *c = run_saves(2, (SaveCase){.n_saves = 1, .local_bytes = MANY_BYTES});
    World world = {.size = 1, .run = restore_on_bad_device, .arg = (void *)&c->results[0]};
    look_at_local();
    const size_t before = n_files;
    assert_true(before > 0);
    far_begin();
    assert_int_equal(world_run(&world, WORLD_SEC), 0);
    assert_int_equal(atomic_load(&far->reads), 0);
    look_at_local();
    assert_int_equal(n_files, before);
    clear();
}

static int setup(void **unused)
{
    (void)unused;
    log_set_level(LOG_LEVEL_ERROR);
    fixture_open(FIXTURE_MEDIUM, &fixture);
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **unused)
{
    (void)unused;
    fixture_close(&fixture);
    return folder_remove(folder, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_instead_of_the_store),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_both_wrong),
        cmocka_unit_test(test_newest_stay),
        cmocka_unit_test(test_tidy),
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_failed_save),
        cmocka_unit_test(test_bad_device),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
