/* SPDX-License-Identifier: Apache-2.0 */
/* test-snapshot.c - the copies of a save run in parallel with training: however late they are, a checkpoint has the
 * numbers of its step, and copies that fail or never arrive fail the save.
 *
 * Fault points that sleep before each copy delay the lane. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/test/testing.h"
#include "manifest/manifest-internal.h"
#include "trainer/checkpoint/test/testing-state.h"
#include "trainer/checkpoint/writer.h"

#include <string.h>

enum { GENERATION = 1, STEPS = 3 };

/* Makes each copy slow, on a CPU's lane and on the shadow device's. */
#define SLOW "device.copy=slow@*,shadow.break.out=slow@*"

static char folder[] = "/tmp/test-snapshot-XXXXXX";
static Fixture fixture;

typedef struct Case {
    int zero_stage;
    bool chunk_by_chunk;
    bool ema;
    const char *fault; /* SDTRAIN_FAULT of the last rank */
    Hash digests[STEPS];
    char text[sizeof(((Error *)0)->text)]; /* error of the failed save */
} Case;

static void set_fault(const char *fault)
{
    Error err = ERROR_INIT;
    (void)setenv("SDTRAIN_FAULT", fault, 1); /* cannot fail for a valid name */
    world_check(fault_open(&err) == 0, "%s", err.text);
}

/* Does what an update does, as far as a save can notice: waits, and then changes all numbers. */
static void write_state(TrainState *state, int64_t step)
{
    Error err = ERROR_INIT;
    _cleanup_(train_state_freep) TrainState *next =
        testing_state(&fixture, step, state->rank, state->world_size, state->zero_stage, true);
    const size_t shard = (size_t)(shard_slots(&state->layout, train_state_shards(state)) *
                                  state->layout.chunk_elements) *
                         sizeof(float);
    train_state_before_write(state);
    device_copy(state->device, state->weights, next->weights,
                (size_t)state->layout.n_elements * sizeof(float));
    device_copy(state->device, state->m, next->m, shard);
    device_copy(state->device, state->v, next->v, shard);
    device_copy(state->device, state->ema, next->ema, shard);
    int r = device_await(state->device, device_fence(state->device, LANE_COMPUTE),
                         /* the copies must have ended, since `next` is freed below */
                         60 * USEC_PER_SEC, &err);
    world_check(r == 0, "%s", err.text);
    memcpy(state->scalars.maxima, next->scalars.maxima,
           state->parameters->n_items * MAXIMA_WINDOW * sizeof(uint32_t));
    TrainScalars scalars = next->scalars;
    scalars.maxima = state->scalars.maxima;
    state->scalars = scalars;
}

static void begin(CheckpointWriter *writer, const TrainState *state)
{
    Error err = ERROR_INIT;
    const int64_t step = state->scalars.step;
    _cleanup_free_ char *metrics = testing_metrics(GENERATION, 1, step);
    int r = checkpoint_begin(writer, state, state->rank == 0 ? metrics : NULL, 1, step, &err);
    world_check(r == 0, "%s", err.text);
}

static CheckpointResult end(CheckpointWriter *writer)
{
    CheckpointResult result;
    int r = checkpoint_wait(writer, 60 * USEC_PER_SEC, &result);
    world_check(r == 0, "the save hangs");
    if (writer->rank == 0 && result.phase == CHECKPOINT_WRITTEN)
        checkpoint_settle(writer, false); /* the next save lists all metrics again */
    return result;
}

static Store *open_store(void)
{
    Error err = ERROR_INIT;
    char path[128];
    Store *store = NULL;
    (void)snprintf(path, sizeof(path), "%s/store", folder);
    world_check(store_open(path, &store, &err) == 0, "%s", err.text);
    return store;
}

static void check_written(const CheckpointResult *result, Hash wanted, int64_t step)
{
    char got[HASH_TEXT_BYTES], want[HASH_TEXT_BYTES];
    world_check(result->phase == CHECKPOINT_WRITTEN, "step %lld: %s", (long long)step,
                result->error.text);
    world_check(hash_equal(result->digest, wanted), "step %lld has digest %s, not %s",
                (long long)step, hash_format(result->digest, got), hash_format(wanted, want));
}

/* Saves several times, each time followed at once by an update. */
static int save_late(World *world, Comm *comm, void *arg)
{
    const Case *c = arg;
    if (c->chunk_by_chunk)
        /* this setting stays until the process ends, which runs no other case */
        snapshot_ema_at_once_bytes = 0;
    _cleanup_(store_freep) Store *store = open_store();
    _cleanup_(train_state_freep) TrainState *state =
        testing_state(&fixture, 1, world->rank, world->size, c->zero_stage, c->ema);
    _cleanup_(checkpoint_writer_freep) CheckpointWriter *writer =
        testing_writer(&fixture, store, comm, GENERATION, 20000);
    if (world->rank == world->size - 1)
        set_fault(c->fault);
    for (int64_t step = 1; step <= STEPS; step++) {
        begin(writer, state);
        write_state(state, step + 1);
        CheckpointResult result = end(writer);
        check_written(&result, c->digests[step - 1], step);
    }
    return 0;
}

static void run_late(int size, Case c)
{
    for (int64_t step = 1; step <= STEPS; step++)
        c.digests[step - 1] = testing_digest(&fixture, step, c.ema);
    World world = {.size = size, .run = save_late, .arg = &c};
    assert_int_equal(world_run(&world, WORLD_SEC), 0);
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/store", folder);
    assert_int_equal(folder_remove(path, NULL), 0);
}

static void late_copies_are_of_their_step(_unused_ void **state)
{
    run_late(1, (Case){.ema = true, .fault = SLOW});
    run_late(1, (Case){.fault = SLOW});
    run_late(2, (Case){.ema = true, .zero_stage = 1, .fault = SLOW});
    run_late(2, (Case){.ema = true, .zero_stage = 2, .chunk_by_chunk = true, .fault = SLOW});
    run_late(3, (Case){.ema = true, .fault = SLOW});
}

/* In each case only one copy is late, each copy in turn: the wait must include every copy. */
static void one_late_copy_is_of_its_step(_unused_ void **state)
{
    char fault[64];
    for (int visit = 1; visit <= 24; visit++) {
        (void)snprintf(fault, sizeof(fault), "device.copy=slow@%d,shadow.break.out=slow@%d", visit,
                       visit);
        run_late(1, (Case){.ema = true, .fault = fault});
    }
}

/* Restores a state while its copies are in progress. */
static int restore_late(World *world, Comm *comm, void *arg)
{
    const Case *c = arg;
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *store = open_store();
    _cleanup_(store_freep) Store *other = NULL;
    _cleanup_(manifest_freep) Manifest *m = NULL;
    _cleanup_(train_state_freep) TrainState *state =
        testing_state(&fixture, 1, world->rank, world->size, 0, true);
    _cleanup_(checkpoint_writer_freep) CheckpointWriter *writer =
        testing_writer(&fixture, store, comm, GENERATION, 20000);
    begin(writer, state);
    write_state(state, 2);
    CheckpointResult first = end(writer);
    check_written(&first, c->digests[0], 1);
    int r = manifest_read_uri(first.uri, &first.hash, &other, &m, &err);
    world_check(r == 0, "%s", err.text);

    set_fault(c->fault);
    begin(writer, state);
    r = checkpoint_restore(store, NULL, m, state, &err);
    world_check(r == 0, "%s", err.text);
    CheckpointResult second = end(writer);
    check_written(&second, c->digests[1], 2);
    testing_state_check(state, 1, true);
    return 0;
}

static void a_restore_waits_for_late_copies(_unused_ void **state)
{
    Case c = {.fault = SLOW};
    for (int64_t step = 1; step <= 2; step++)
        c.digests[step - 1] = testing_digest(&fixture, step, true);
    World world = {.size = 1, .run = restore_late, .arg = &c};
    assert_int_equal(world_run(&world, WORLD_SEC), 0);
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/store", folder);
    assert_int_equal(folder_remove(path, NULL), 0);
}

/* ---- copies that fail ---- */

static int save_failing(World *world, Comm *comm, void *arg)
{
    Case *c = arg;
    _cleanup_(store_freep) Store *store = open_store();
    _cleanup_(train_state_freep) TrainState *state =
        testing_state(&fixture, 1, world->rank, world->size, c->zero_stage, true);
    _cleanup_(checkpoint_writer_freep) CheckpointWriter *writer =
        testing_writer(&fixture, store, comm, GENERATION, 20000);
    if (world->rank == world->size - 1)
        set_fault(c->fault);
    begin(writer, state);
    write_state(state, 2);
    CheckpointResult result = end(writer);
    world_check(result.phase == CHECKPOINT_FAILED, "it was written");
    if (world->rank == 0)
        (void)snprintf(c->text, sizeof(c->text), "%s", result.error.text);
    begin(writer, state);
    write_state(state, 3);
    result = end(writer);
    check_written(&result, c->digests[1], 2);
    return 0;
}

static const char *text_of_failing(int size, const char *fault)
{
    Case *c = world_share(sizeof(*c));
    *c = (Case){.fault = fault, .zero_stage = size > 1};
    c->digests[1] = testing_digest(&fixture, 2, true);
    World world = {.size = size, .run = save_failing, .arg = c};
    assert_int_equal(world_run(&world, WORLD_SEC), 0);
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/store", folder);
    assert_int_equal(folder_remove(path, NULL), 0);
    return c->text;
}

static void failing_copies_fail_the_save_alone(_unused_ void **state)
{
    for (int size = 1; size <= 3; size++) {
        assert_non_null(strstr(text_of_failing(size, "checkpoint.copied=eio"),
                               "copying the state: a copy out of device memory"));
        for (int visit = 1; visit <= 4; visit++) {
            char fault[64];
            (void)snprintf(fault, sizeof(fault), "checkpoint.memory=enomem@%d", visit);
            const char *text = text_of_failing(size, fault);
            assert_non_null(strstr(text, "the copy of the state that a save makes"));
            assert_non_null(strstr(text, "no host memory for"));
        }
    }
}

/* A CPU's stalled lane never ends, so on a CPU nothing is freed. The shadow device aborts if memory that it uses is
 * released. */
static int save_stalled(_unused_ World *world, Comm *comm, _unused_ void *arg)
{
    Store *store = open_store();
    TrainState *state = testing_state(&fixture, 1, 0, 1, 0, true);
    CheckpointWriter *writer = testing_writer(&fixture, store, comm, GENERATION, 20000);
    snapshot_timeout_usec = USEC_PER_SEC / 10;
    set_fault(getenv("SDTRAIN_TEST_DEVICE") ? "shadow.hang.out=eio@2" : "device.copy=stall@2");
    const uint64_t begun = clock_boottime_usec();
    begin(writer, state);
    CheckpointResult result = end(writer);
    world_check(result.phase == CHECKPOINT_FAILED && result.error.code == -ETIMEDOUT, "%d %s",
                (int)result.phase, result.error.text);
    world_check(clock_boottime_usec() - begun < 20 * USEC_PER_SEC, "it took too long");
    world_check(strstr(result.error.text, "copying the state"), "%s", result.error.text);
    if (getenv("SDTRAIN_TEST_DEVICE")) {
        (void)checkpoint_writer_free(writer);
        (void)train_state_free(state);
    }
    _exit(0);
}

static void copies_that_never_arrive_fail_the_save(_unused_ void **state)
{
    World world = {.size = 1, .run = save_stalled};
    assert_int_equal(world_run(&world, WORLD_SEC), 0);
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/store", folder);
    assert_int_equal(folder_remove(path, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_copies_are_of_their_step),
        cmocka_unit_test(one_late_copy_is_of_its_step),
        cmocka_unit_test(a_restore_waits_for_late_copies),
        cmocka_unit_test(failing_copies_fail_the_save_alone),
        cmocka_unit_test(copies_that_never_arrive_fail_the_save),
    };
    log_set_level(LOG_LEVEL_ERROR);
    assert(mkdtemp(folder));
    fixture_open(FIXTURE_SMALL, &fixture);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_close(&fixture);
    (void)folder_remove(folder, NULL); /* a folder that remains is not a failure of the test */
    return failed;
}
