/* SPDX-License-Identifier: Apache-2.0 */
/* test-checkpoint-alloc.c - each allocation fails in turn while a checkpoint is saved and committed, and while it is
 * restored. Whichever allocation fails, earlier commits stay whole, a checkpoint that is reported as written is whole,
 * a manifest never names an object that does not exist, and the next life of the process saves as if nothing had
 * happened.
 */
#include "base/log.h"
#include "base/test/testing-alloc.h"
#include "base/test/testing.h"
#include "manifest/manifest-internal.h"
#include "trainer/checkpoint/test/testing-state.h"

#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ALLOCATIONS_MAX = 5000, GENERATION = 3 };

static Fixture fixture;
static char folder[64];

static int remove_path(const char *path, _unused_ const struct stat *st, _unused_ int type,
                       _unused_ struct FTW *ftw)
{
    return remove(path);
}

static CheckpointResult save(CheckpointWriter *writer, int64_t step)
{
    _cleanup_(train_state_freep) TrainState *state = testing_state(&fixture, step, 0, 1, 1, true);
    return testing_save(writer, state, GENERATION, step);
}

/* Returns the step of the checkpoint at uri if the checkpoint is whole, otherwise -1. */
static int64_t whole_step(const char *uri)
{
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(manifest_freep) Manifest *m = NULL;
    _cleanup_(train_state_freep) TrainState *state = testing_state(&fixture, 0, 0, 1, 1, true);
    if (manifest_read_uri(uri, NULL, &store, &m, &err) < 0 ||
        checkpoint_restore(store, NULL, m, state, &err) < 0 ||
        !hash_equal(manifest_digest(m), testing_digest(&fixture, manifest_step(m), true)))
        return -1;
    testing_state_check(state, manifest_step(m), true);
    return manifest_step(m);
}

/* Returns whether every checkpoint with a manifest in the store is whole. */
static bool all_whole(Store *store)
{
    Error err = ERROR_INIT;
    StoreList list;
    if (checkpoint_list(store, &list, &err) < 0)
        return false;
    bool good = true;
    for (size_t i = 0; i < list.n_objects; i++) {
        char uri[CHECKPOINT_URI_MAX];
        (void)snprintf(uri, sizeof(uri), "file://%s/%s/manifest.json", folder, list.objects[i].key);
        good = good && whole_step(uri) > 0;
    }
    store_list_clear(&list);
    return good;
}

typedef struct Saves {
    Store *store;
    Comm *comm;
    CheckpointWriter *writer;
} Saves;

static void open_saves(Saves *s)
{
    Error err = ERROR_INIT;
    world_check(store_open(folder, &s->store, &err) == 0, "%s", err.text);
    world_check(comm_open_self(&s->comm, &err) == 0, "%s", err.text);
    s->writer = testing_writer(&fixture, s->store, s->comm, GENERATION, 20000);
}

static void close_saves(Saves *s)
{
    s->writer = checkpoint_writer_free(s->writer);
    s->comm = comm_free(s->comm);
    s->store = store_free(s->store);
}

static AllocLife life_of_save(unsigned n, _unused_ void *arg)
{
    Saves s;
    open_saves(&s);
    /* checks the folder that the previous process left, even if that process ended by abort() */
    bool good = all_whole(s.store);
    close_saves(&s);
    (void)nftw(folder, remove_path, 16, FTW_DEPTH | FTW_PHYS); /* if this fails, mkdir() fails */
    if (!good || mkdir(folder, 0700) < 0)
        return ALLOC_WRONG;
    open_saves(&s);
    CheckpointResult first = save(s.writer, 1);
    checkpoint_settle(s.writer, true);
    _cleanup_(train_state_freep) TrainState *state = testing_state(&fixture, 2, 0, 1, 1, true);
    _cleanup_free_ char *metrics = testing_metrics(GENERATION, 2, 2);

    Error err = ERROR_INIT;
    CheckpointResult second = {.phase = CHECKPOINT_FAILED};
    alloc_fail_at_anywhere(n);
    if (checkpoint_begin(s.writer, state, metrics, 2, 2, &err) == 0) {
        (void)checkpoint_wait(s.writer, 20 * USEC_PER_SEC, &second);
        if (second.phase == CHECKPOINT_WRITTEN)
            checkpoint_settle(s.writer, true);
    }
    bool written = second.phase == CHECKPOINT_WRITTEN;
    (void)alloc_struck();

    good = whole_step(first.uri) == 1 && all_whole(s.store) &&
           (!written || whole_step(second.uri) == 2);
    close_saves(&s); /* when this call returns, retention has ended */
    good = good && whole_step(first.uri) == 1 && (!written || whole_step(second.uri) == 2);
    return !good ? ALLOC_WRONG : written ? ALLOC_WHOLE : ALLOC_FAILED;
}

static AllocLife life_of_restore(unsigned n, void *arg)
{
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(manifest_freep) Manifest *m = NULL;
    _cleanup_(train_state_freep) TrainState *state = testing_state(&fixture, 0, 0, 1, 1, true);
    alloc_fail_at(n);
    int r = manifest_read_uri(arg, NULL, &store, &m, &err);
    if (r == 0)
        r = checkpoint_restore(store, NULL, m, state, &err);
    (void)alloc_struck();
    /* A lack of memory must not look like a bad checkpoint, since a bad checkpoint is invalidated. */
    if (r < 0) {
        if (r == -ENOMEM && err.text[0])
            return ALLOC_FAILED;
        printf("allocation %u: %d, %s\n", n, r, err.text);
        return ALLOC_WRONG;
    }
    testing_state_check(state, manifest_step(m), true);
    return ALLOC_WHOLE;
}

static void a_save_without_memory_harms_nothing(_unused_ void **state)
{
    assert_true(alloc_sweep(life_of_save, NULL, ALLOCATIONS_MAX) > 10);
}

static void a_restore_without_memory_blames_no_checkpoint(_unused_ void **state)
{
    /* removes the folder of the lives that saved */
    (void)nftw(folder, remove_path, 16, FTW_DEPTH | FTW_PHYS);
    assert_int_equal(mkdir(folder, 0700), 0);
    Saves s;
    open_saves(&s);
    CheckpointResult result = save(s.writer, 1);
    assert_int_equal(result.phase, CHECKPOINT_WRITTEN);
    checkpoint_settle(s.writer, true);
    close_saves(&s);
    assert_true(alloc_sweep(life_of_restore, result.uri, ALLOCATIONS_MAX) > 5);
}

int main(void)
{
    log_set_level(LOG_LEVEL_ERROR);
    /* the folder is in memory if possible: there are hundreds of lives, and a power failure is not tested */
    (void)snprintf(folder, sizeof(folder), "%s/sdtrain-alloc.%d",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (int)getpid());
    assert(mkdir(folder, 0700) == 0);
    fixture_open(FIXTURE_SMALL, &fixture);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_save_without_memory_harms_nothing),
        cmocka_unit_test(a_restore_without_memory_blames_no_checkpoint),
    };
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_close(&fixture);
    /* a folder that remains is not a failure of the test */
    (void)nftw(folder, remove_path, 16, FTW_DEPTH | FTW_PHYS);
    return r;
}
