/* SPDX-License-Identifier: Apache-2.0 */
/* test-checkpoint-room.c - a store that is full of this job's own old checkpoints: which checkpoints are removed and
 * kept when a folder is claimed and when a save fails for lack of space, and the texts of the errors. Also tests that a
 * writer leaves no memory allocated. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/test/testing-leaks.h"
#include "base/test/testing.h"
#include "manifest/manifest-internal.h"
#include "store/test/testing-far.h"
#include "trainer/checkpoint/test/testing-state.h"
#include "trainer/checkpoint/writer.h"

#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

static Fixture fixture;

/* ---- a store without space ---- */

static int full; /* the error with which each put of an object fails; 0: none fails */
static uint64_t n_free = UINT64_C(1) << 40;

int __real_fault(const char *point);
int __wrap_fault(const char *point);
int __real_statvfs(const char *path, struct statvfs *ret);
int __wrap_statvfs(const char *path, struct statvfs *ret);

int __wrap_fault(const char *point)
{
    return full && strcmp(point, "checkpoint.object") == 0 ? full : __real_fault(point);
}

int __wrap_statvfs(const char *path, struct statvfs *ret)
{
    int r = __real_statvfs(path, ret);
    if (r == 0) {
        ret->f_frsize = 1;
        ret->f_bavail = n_free;
    }
    return r;
}

/* ---- one rank of one generation ---- */

typedef struct Life {
    Store *store;
    Comm *comm;
    CheckpointWriter *writer;
    TrainState *state;
    int64_t generation, last; /* last: step of the last commit */
} Life;

static Life life_begin(const char *uri, int64_t generation)
{
    Error err = ERROR_INIT;
    Life l = {.generation = generation};
    assert_int_equal(store_open(uri, &l.store, &err), 0);
    assert_int_equal(comm_open_self(&l.comm, &err), 0);
    /* the writer has keep_last 2 */
    l.writer = testing_writer(&fixture, l.store, l.comm, generation, 0);
    l.state = testing_state(&fixture, 0, 0, 1, 0, false);
    return l;
}

static void life_end(Life *l)
{
    l->writer = checkpoint_writer_free(l->writer); /* waits for the end of retention */
    l->state = train_state_free(l->state);
    l->comm = comm_free(l->comm);
    l->store = store_free(l->store);
}

static CheckpointResult life_try(Life *l, int64_t step)
{
    l->state->scalars.step = step;
    return testing_save(l->writer, l->state, l->generation, l->last + 1);
}

static CheckpointResult life_save(Life *l, int64_t step)
{
    CheckpointResult result = life_try(l, step);
    assert_int_equal(result.phase, CHECKPOINT_WRITTEN);
    return result;
}

static CheckpointResult life_commit(Life *l, int64_t step)
{
    CheckpointResult result = life_save(l, step);
    checkpoint_settle(l->writer, true);
    l->last = step;
    return result;
}

static void life_resume(Life *l, const CheckpointResult *from)
{
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(manifest_freep) Manifest *m = NULL;
    assert_int_equal(manifest_read_uri(from->uri, &from->hash, &store, &m, &err), 0);
    assert_int_equal(checkpoint_restore(l->store, NULL, m, l->state, &err), 0);
    assert_int_equal(checkpoint_adopt_history(l->writer, m, &err), 0);
    l->last = from->step;
}

static void await_retention(const Life *l)
{
    while (checkpoint_busy(l->writer)) /* bounded by the timeout of the test */
        (void)usleep(1000);
}

static void life_claim(Life *l)
{
    Error err = ERROR_INIT;
    assert_int_equal(checkpoint_claim(l->writer, NULL, &err), 0);
    await_retention(l);
}

/* expected: the steps that have a manifest, newest first. */
static void assert_kept(const char *uri, const char *expected)
{
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *store = NULL;
    StoreList list;
    char kept[256] = "";
    assert_int_equal(store_open(uri, &store, &err), 0);
    assert_int_equal(checkpoint_list(store, &list, &err), 0);
    for (size_t i = 0; i < list.n_objects; i++) {
        CheckpointName name;
        assert_int_equal(checkpoint_name_parse(list.objects[i].key, &name), 0);
        const size_t used = strlen(kept);
        (void)snprintf(kept + used, sizeof(kept) - used, "%s%lld", i ? " " : "",
                       (long long)name.step);
    }
    store_list_clear(&list);
    assert_string_equal(kept, expected);
}

/* ---- at a claim ---- */

/* A checkpoint was committed, but its writer died before it received the answer, and so removed no old checkpoint. The
 * next claim removes the oldest checkpoint. */
static void test_claim(void **state)
{
    Life l = life_begin(*state, 1);
    (void)life_commit(&l, 5);
    (void)life_commit(&l, 10);
    const CheckpointResult last = life_save(&l, 15);
    life_end(&l);
    assert_kept(*state, "15 10 5");

    l = life_begin(*state, 2);
    life_resume(&l, &last);
    life_claim(&l);
    assert_kept(*state, "15 10");
    life_end(&l);
}

/* A commit was never answered: its checkpoint is later than the checkpoint that the next generation continues from. */
static void test_claim_beside_a_commit_without_an_answer(void **state)
{
    Life l = life_begin(*state, 1);
    l.writer->options.keep_last = 3;
    (void)life_commit(&l, 5);
    (void)life_commit(&l, 6);
    const CheckpointResult last = life_commit(&l, 10);
    (void)life_save(&l, 15);
    life_end(&l);

    l = life_begin(*state, 2);
    life_resume(&l, &last);
    life_claim(&l);
    assert_kept(*state, "15 10 6"); /* step 15 is kept beside the newest two other checkpoints */
    full = -ENOSPC;
    assert_int_equal(life_try(&l, 12).phase, CHECKPOINT_FAILED);
    assert_kept(*state, "15 10 6");
    life_end(&l);
}

/* A job that continues from no checkpoint of the folder removes nothing. A generation removes nothing if a newer
 * generation has written. */
static void test_claim_of_others(void **state)
{
    Life l = life_begin(*state, 1);
    l.writer->options.keep_last = 4;
    (void)life_commit(&l, 5);
    (void)life_commit(&l, 6);
    const CheckpointResult last = life_commit(&l, 7);
    life_end(&l);

    l = life_begin(*state, 3);
    life_resume(&l, &last);
    l.writer->options.keep_last = 4;
    (void)life_commit(&l, 8);
    life_end(&l);

    l = life_begin(*state, 2);
    life_resume(&l, &last);
    life_claim(&l);
    assert_kept(*state, "8 7 6 5");
    life_end(&l);

    l = life_begin(*state, 4);
    life_claim(&l);
    assert_kept(*state, "8 7 6 5");
    life_end(&l);
}

/* The store did not answer when the generation began: the first save claims the folder, and frees space before it
 * writes. */
static void test_claim_in_a_save(void **state)
{
    Life l = life_begin(*state, 1);
    (void)life_commit(&l, 5);
    (void)life_commit(&l, 10);
    const CheckpointResult last = life_save(&l, 15);
    life_end(&l);

    l = life_begin(*state, 2);
    life_resume(&l, &last);
    full = -EIO; /* this error does not mean a lack of space */
    assert_int_equal(life_try(&l, 16).phase, CHECKPOINT_FAILED);
    assert_kept(*state, "15 10");
    life_end(&l);
}

/* ---- at a save that fails ---- */

static void test_failed_save(void **state)
{
    static const struct {
        int answer;
        const char *kept;
    } cases[] = {{-EIO, "8 7 6 5"}, {-ENOMEM, "8 7 6 5"}, {-EACCES, "8 7 6 5"}, {-EDQUOT, "8 7 6"}};
    Life l = life_begin(*state, 1);
    l.writer->options.keep_last = 4;
    for (int64_t step = 5; step <= 8; step++)
        (void)life_commit(&l, step);
    await_retention(&l);
    l.writer->options.keep_last = 3; /* changed by an operator who wants to free space */
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        full = cases[i].answer;
        const CheckpointResult result = life_try(&l, 9);
        assert_int_equal(result.phase, CHECKPOINT_FAILED);
        assert_int_equal(result.error.code, cases[i].answer);
        assert_kept(*state, cases[i].kept);
    }
    l.writer->options.keep_last = 2;
    full = -ENOSPC;
    assert_int_equal(life_try(&l, 9).phase, CHECKPOINT_FAILED);
    assert_kept(*state, "8 7");
    for (int i = 0; i < 3; i++) { /* however often the save fails, nothing more is removed */
        assert_int_equal(life_try(&l, 10 + i).phase, CHECKPOINT_FAILED);
        assert_kept(*state, "8 7");
    }
    full = 0;
    (void)life_save(&l, 13);
    assert_kept(*state, "13 8 7");
    life_end(&l);
}

/* A save without room takes the room of a checkpoint that an evaluation reads. */
static void test_held(void **state)
{
    Life l = life_begin(*state, 1); /* the writer has keep_last 2 */
    checkpoint_hold(l.writer, (const int64_t[]){5}, 1);
    for (int64_t step = 5; step <= 8; step++)
        (void)life_commit(&l, step);
    await_retention(&l);
    assert_kept(*state, "8 7 5");
    full = -EIO;
    assert_int_equal(life_try(&l, 9).phase, CHECKPOINT_FAILED);
    assert_kept(*state, "8 7 5");
    full = -ENOSPC;
    assert_int_equal(life_try(&l, 9).phase, CHECKPOINT_FAILED);
    assert_kept(*state, "8 7");
    full = 0;
    life_end(&l);
}

/* ---- error texts ---- */

static void check_text(Life *l, const char *const *expected)
{
    full = -ENOSPC;
    const CheckpointResult result = life_try(l, l->last + 1);
    assert_int_equal(result.phase, CHECKPOINT_FAILED);
    for (; *expected; expected++)
        if (!strstr(result.error.text, *expected))
            fail_msg("'%s' is not in: %s", *expected, result.error.text);
}

static void test_texts(void **state)
{
    char far_uri[128], missing[64], size[64];
    (void)snprintf(far_uri, sizeof(far_uri), "far://%s/far", (char *)*state);
    Life l = life_begin(*state, 1), s = life_begin(far_uri, 1);
    const CheckpointResult first = life_commit(&l, 5);
    (void)life_commit(&s, 5);
    await_retention(&l);
    assert_int_equal(room_measure(l.writer).next_bytes, first.n_bytes);
    (void)snprintf(size, sizeof(size), "a checkpoint has %.1f MB", (double)first.n_bytes / 1e6);
    n_free = first.n_bytes - 100000;
    (void)snprintf(missing, sizeof(missing), "0.1 MB are missing in file://%s", (char *)*state);
    check_text(&l, (const char *const[]){missing, size, "lower checkpoint.keep_last (2)",
                                         "No space left on device", NULL});
    n_free = first.n_bytes;
    check_text(&l, (const char *const[]){"MB free now", size, "quota or inodes",
                                         "No space left on device", NULL});
    (void)snprintf(missing, sizeof(missing), "has no room for %.1f MB",
                   (double)first.n_bytes / 1e6);
    check_text(&s,
               (const char *const[]){"far://", missing, "lower checkpoint.keep_last (2)", NULL});
    life_end(&l);
    life_end(&s);
}

/* Before the first commit, only the data count in the size of the next save. */
static void test_needed_by_the_first(void **state)
{
    Life l = life_begin(*state, 1);
    const uint64_t about = room_measure(l.writer).next_bytes;
    const CheckpointResult first = life_save(&l, 1);
    assert_in_range(first.n_bytes, about, about + 8192); /* `about` does not count the headers */
    life_end(&l);
}

/* checkpoint_room() does not wait for the file system, measures again after a while, and delays no save. */
static void test_looks(void **state)
{
    CheckpointRoom room;
    Life l = life_begin(*state, 1);
    n_free = 5000;
    checkpoint_room(l.writer, &room);
    assert_int_equal(room.next_bytes, 0);
    do { /* bounded by the timeout of the test */
        (void)usleep(1000);
        assert_false(checkpoint_busy(l.writer));
        checkpoint_room(l.writer, &room);
    } while (room.next_bytes == 0);
    assert_int_equal(room.free_bytes, 5000);
    n_free = 4000;
    checkpoint_room(l.writer, &room);
    assert_int_equal(room.free_bytes, 5000); /* the measurement is some seconds old */
    const CheckpointResult first = life_commit(&l, 5);
    await_retention(&l);
    /* the save has made the measurement invalid at once */
    assert_int_equal(l.writer->measured_usec, 0);
    do { /* bounded by the timeout of the test */
        (void)usleep(1000);
        checkpoint_room(l.writer, &room);
    } while (room.free_bytes != 4000);
    assert_int_equal(room.next_bytes, first.n_bytes);
    life_end(&l);
}

/* The store reports its free space even before its folder exists. */
static void test_free_bytes(void **state)
{
    Error err = ERROR_INIT;
    uint64_t found = 0;
    char deep[128];
    (void)snprintf(deep, sizeof(deep), "%s/not/there/yet", (char *)*state);
    const char *const places[] = {*state, deep, "/not-there"};
    n_free = 123456789;
    for (size_t i = 0; i < ELEMENTSOF(places); i++) {
        _cleanup_(store_freep) Store *store = NULL;
        assert_int_equal(store_open(places[i], &store, &err), 0);
        assert_int_equal(store_free_bytes(store, &found, &err), 0);
        assert_int_equal(found, n_free);
    }
    _cleanup_(store_freep) Store *far_store = NULL;
    assert_int_equal(store_open("far:///far", &far_store, &err), 0);
    assert_int_equal(store_free_bytes(far_store, &found, &err), -EOPNOTSUPP);
}

static void live_once(void *uri)
{
    Life l = life_begin(uri, 1);
    life_claim(&l);
    (void)life_commit(&l, 5);
    life_end(&l);
}

/* A writer gives back the memory of its claim, its history and what retention has read. */
static void test_nothing_stays_in_memory(void **state) { leaks_none(live_once, *state); }

static int setup(void **state)
{
    char folder[] = "/tmp/test-room-XXXXXX";
    full = 0;
    n_free = UINT64_C(1) << 40;
    *state = mkdtemp(folder) ? strdup(folder) : NULL;
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    int r = folder_remove(*state, NULL);
    free(*state);
    return r;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_claim, setup, teardown),
        cmocka_unit_test_setup_teardown(test_claim_beside_a_commit_without_an_answer, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_claim_of_others, setup, teardown),
        cmocka_unit_test_setup_teardown(test_claim_in_a_save, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failed_save, setup, teardown),
        cmocka_unit_test_setup_teardown(test_held, setup, teardown),
        cmocka_unit_test_setup_teardown(test_texts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_needed_by_the_first, setup, teardown),
        cmocka_unit_test_setup_teardown(test_looks, setup, teardown),
        cmocka_unit_test_setup_teardown(test_free_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_stays_in_memory, setup, teardown),
    };
    (void)mallopt(M_ARENA_MAX, 1); /* leaks_none() sees the memory of all threads then */
    log_set_level(LOG_LEVEL_ERROR);
    far_begin();
    fixture_open(FIXTURE_SMALL, &fixture);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_close(&fixture);
    return failed;
}
