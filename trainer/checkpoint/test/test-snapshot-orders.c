/* SPDX-License-Identifier: Apache-2.0 */
/* test-snapshot-orders.c - a save has the numbers of its step, and a restore replaces all earlier numbers, in each
 * order of a device's lanes. Data that are read before they were waited for would have the numbers of another step. */
#include "base/file.h"
#include "base/log.h"
#include "base/test/testing.h"
#include "kernels/test/shadow/testing-orders.h"
#include "manifest/manifest.h"
#include "trainer/checkpoint/test/testing-state.h"

#include <string.h>

enum { GENERATION = 1, SAVES = 2 };

static char folder[] = "/tmp/test-snapshot-orders-XXXXXX";
static Hash digests[SAVES + 2];

/* Changes each number to the number of another step, on the compute lane. Only that lane waits for the copies of a
 * save. */
static void write_state(TrainState *state, const TrainState *next)
{
    const size_t n_bytes = (size_t)state->layout.n_elements * sizeof(float);
    const size_t shard = (size_t)(shard_slots(&state->layout, train_state_shards(state)) *
                                  state->layout.chunk_elements) *
                         sizeof(float);
    train_state_before_write(state);
    device_copy(state->device, state->weights, next->weights, n_bytes);
    device_copy(state->device, state->m, next->m, shard);
    device_copy(state->device, state->v, next->v, shard);
    device_copy(state->device, state->ema, next->ema, shard);
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

static CheckpointResult end(CheckpointWriter *writer, int64_t step)
{
    CheckpointResult result;
    int r = checkpoint_wait(writer, 60 * USEC_PER_SEC, &result);
    world_check(r == 0, "the save hangs");
    world_check(result.phase == CHECKPOINT_WRITTEN, "step %lld: %s", (long long)step,
                result.error.text);
    world_check(hash_equal(result.digest, digests[step]), "step %lld has another digest",
                (long long)step);
    checkpoint_settle(writer, false);
    return result;
}

/* Restores into a state of another step, which the compute lane may still be writing. */
static void restore(Store *store, const CheckpointResult *saved, TrainState *state, int64_t step)
{
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *other = NULL;
    _cleanup_(manifest_freep) Manifest *m = NULL;
    int r = manifest_read_uri(saved->uri, &saved->hash, &other, &m, &err);
    world_check(r == 0, "%s", err.text);
    r = checkpoint_restore(store, NULL, m, state, &err);
    world_check(r == 0, "%s", err.text);
    testing_state_check(state, step, true);
}

static int save_and_restore(World *world, Comm *comm, _unused_ void *arg)
{
    Error err = ERROR_INIT;
    char path[128];
    Fixture fixture;
    fixture_open(FIXTURE_SMALL, &fixture);
    _cleanup_(store_freep) Store *store = NULL;
    (void)snprintf(path, sizeof(path), "%s/store", folder);
    world_check(store_open(path, &store, &err) == 0, "%s", err.text);
    /* all states are made before the saves, since each upload waits for the device */
    TrainState *states[SAVES + 2];
    for (int64_t step = 1; step <= SAVES + 1; step++)
        states[step] = testing_state(&fixture, step, world->rank, world->size, 0, true);
    TrainState *state = testing_state(&fixture, 1, world->rank, world->size, 0, true);
    CheckpointWriter *writer = testing_writer(&fixture, store, comm, GENERATION, 20000);
    CheckpointResult result = {0};
    for (int64_t step = 1; step <= SAVES; step++) {
        begin(writer, state);
        write_state(state, states[step + 1]);
        result = end(writer, step);
    }
    restore(store, &result, state, SAVES);
    writer = checkpoint_writer_free(writer);
    state = train_state_free(state);
    for (int64_t step = 1; step <= SAVES + 1; step++)
        states[step] = train_state_free(states[step]);
    fixture_close(&fixture);
    return 0;
}

static void each_order_of_lanes_saves_its_step(_unused_ void **state)
{
    for (unsigned order = 0; order < TESTING_ORDERS; order++) {
        World world = {.size = 1, .run = save_and_restore};
        char path[128];
        testing_orders_use(order);
        if (world_run(&world, WORLD_SEC) != 0)
            fail_msg("order %u", order);
        (void)snprintf(path, sizeof(path), "%s/store", folder);
        assert_int_equal(folder_remove(path, NULL), 0);
    }
    testing_orders_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_order_of_lanes_saves_its_step)};
    log_set_level(LOG_LEVEL_ERROR);
    assert(mkdtemp(folder));
    Fixture fixture;
    fixture_open(FIXTURE_SMALL, &fixture);
    for (int64_t step = 1; step <= SAVES + 1; step++)
        digests[step] = testing_digest(&fixture, step, true);
    fixture_close(&fixture);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)folder_remove(folder, NULL); /* a folder that remains is not a failure of the test */
    return failed;
}
