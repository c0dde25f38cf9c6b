/* SPDX-License-Identifier: Apache-2.0 */
/* test-update-orders.c - an update waits for all data that it reads and overwrites, whichever lanes are late: on a
 * device that stands in for a GPU, each order of the lanes gives the CPU's bits, with copies of a save at the same
 * time. */
#include "base/test/testing.h"
#include "kernels/test/shadow/testing-orders.h"
#include "trainer/state/device-comm.h"
#include "trainer/state/device-staging.h"
#include "trainer/state/gradient-sum.h"
#include "trainer/state/test/testing-update.h"

#include <string.h>

enum { UPDATES = 3, CHUNKS_MAX = 16, COPIED = 4 };

typedef struct StepRecord {
    Hash chunks[CHUNKS_MAX], weights;
    double loss, norm;
} StepRecord;

typedef struct Scenario {
    Case c;
    bool keeps; /* this run sets the expected records */
    bool bulk;
    StepRecord records[UPDATES + 1]; /* records before each step, and after the last step */
} Scenario;

typedef struct Copies {
    float *taken[COPIED], *wanted[COPIED];
    Fence fence;
} Copies;

static size_t state_bytes(const Rank *rank)
{
    return (size_t)rank->state->layout.n_elements * sizeof(float);
}

static size_t shard_bytes(const Rank *rank)
{
    const TrainState *state = rank->state;
    return (size_t)(shard_slots(&state->layout, train_state_shards(state)) *
                    state->layout.chunk_elements) *
           sizeof(float);
}

static void copies_open(const Rank *rank, Copies *copies)
{
    Error err = ERROR_INIT;
    for (size_t i = 0; i < COPIED; i++) {
        int r =
            device_host_allocate(rank->device, state_bytes(rank), (void **)&copies->taken[i], &err);
        copies->wanted[i] = calloc(1, state_bytes(rank));
        world_check(r == 0 && copies->wanted[i], "memory");
    }
}

/* Copies the state as a save does, on the save's lane. */
static void copies_take(const Rank *rank, Copies *copies)
{
    const TrainState *state = rank->state;
    const float *from[COPIED] = {state->weights, state->m, state->v, state->ema};
    for (size_t i = 0; i < COPIED; i++) {
        const size_t n = i == 0 ? state_bytes(rank) : MIN(state_bytes(rank), shard_bytes(rank));
        device_download(rank->device, copies->wanted[i], from[i], n);
    }
    device_wait(rank->device, LANE_OUT, device_fence(rank->device, LANE_COMPUTE));
    for (size_t i = 0; i < COPIED; i++) {
        const size_t n = i == 0 ? state_bytes(rank) : MIN(state_bytes(rank), shard_bytes(rank));
        device_fetch(rank->device, LANE_OUT, copies->taken[i], from[i], n);
    }
    copies->fence = device_fence(rank->device, LANE_OUT);
    train_state_copying(state, copies->fence);
}

static void copies_check(const Rank *rank, const Copies *copies)
{
    Error err = ERROR_INIT;
    int r = device_await(rank->device, copies->fence, 60 * USEC_PER_SEC, &err);
    world_check(r == 0, "%s", err.text);
    for (size_t i = 0; i < COPIED; i++) {
        const size_t n = i == 0 ? state_bytes(rank) : MIN(state_bytes(rank), shard_bytes(rank));
        world_check(memcmp(copies->taken[i], copies->wanted[i], n) == 0,
                    "copy %zu has numbers of the step after it", i);
    }
}

static void copies_close(const Rank *rank, Copies *copies)
{
    for (size_t i = 0; i < COPIED; i++) {
        device_host_release(rank->device, copies->taken[i]);
        free(copies->wanted[i]);
    }
}

static void note(Rank *rank, Scenario *scenario, const UpdateResult *result, int step)
{
    Error err = ERROR_INIT;
    TrainState *state = rank->state;
    StepRecord *kept = &scenario->records[step], record = *kept;
    world_check(state->layout.n_chunks <= CHUNKS_MAX, "chunks");
    record.loss = result->loss;
    record.norm = result->gradient_norm;
    for (int64_t c = 0; c < state->layout.n_chunks; c++)
        if (train_state_keeps(state, c)) {
            int r = train_state_chunk_hash(state, c, &record.chunks[c], &err);
            world_check(r == 0, "%s", err.text);
        }
    device_download(rank->device, rank->weights, state->weights, state_bytes(rank));
    record.weights = hash_bytes(rank->weights, state_bytes(rank));
    if (scenario->keeps)
        *kept = record;
    world_check(record.loss == kept->loss && record.norm == kept->norm, "step %d: loss or norm",
                step);
    world_check(hash_equal(record.weights, kept->weights), "step %d: weights", step);
    for (int64_t c = 0; c < state->layout.n_chunks; c++)
        world_check(hash_equal(record.chunks[c], kept->chunks[c]), "step %d: chunk %d", step,
                    (int)c);
}

static int update_thrice(World *world, Comm *comm, void *arg)
{
    Error err = ERROR_INIT;
    Scenario *scenario = arg;
    Rank rank = {0};
    Copies copies;
    UpdateResult result = {0};
    uint32_t word;
    if (scenario->bulk)
        world_check(world_open(world, "bulk", &rank.bulk, &err) == 0, "%s", err.text);
    /* small, so that collectives take several parts; this process runs only this scenario */
    device_comm_staging_bytes = 20000;
    gradient_sum_bucket_bytes = 40000; /* so that ZeRO 2 takes several buckets */
    rank_open(&rank, &scenario->c, comm);
    copies_open(&rank, &copies);
    note(&rank, scenario, &result, 0);
    for (int step = 1; step <= UPDATES; step++) {
        copies_take(&rank, &copies);
        update_begin(rank.update);
        UpdateVerdict verdict = UPDATE_REDO;
        while (verdict == UPDATE_REDO) {
            rank_compute_grains(&rank, false);
            verdict = rank_decide(&rank, &result);
        }
        world_check(verdict == UPDATE_ACCEPT, "step %d", step);
        int r = update_apply(rank.update, 0, &word, &result, &err);
        world_check(r == 0, "%s", err.text);
        copies_check(&rank, &copies);
        note(&rank, scenario, &result, step);
    }
    copies_close(&rank, &copies);
    rank_close(&rank);
    return 0;
}

static void run(Scenario *scenario, int size, unsigned order)
{
    World world = {.size = size, .run = update_thrice, .arg = scenario};
    if (world_run(&world, WORLD_SEC) != 0)
        fail_msg("%d ranks, ZeRO %d, order %u", size, scenario->c.zero_stage, order);
}

static void each_order_of_lanes_gives_the_cpus_bits(_unused_ void **state)
{
    Scenario *scenario = world_share(sizeof(*scenario));
    *scenario = (Scenario){.c = {4, 0, REDUCTION_EXACT, 0, 1.0}, .keeps = true};
    testing_orders_end();
    run(scenario, 1, 0);
    scenario->keeps = false;
    for (unsigned order = 0; order < TESTING_ORDERS; order++) {
        testing_orders_use(order);
        scenario->c.zero_stage = 0;
        run(scenario, 1, order);
        scenario->c.zero_stage = 1 + (int)(order % 2);
        scenario->bulk = order % 4 >= 2;
        run(scenario, 2, order);
        scenario->bulk = false;
    }
    testing_orders_end();
}

/* Copies more than two pieces, which use the same memory in turn. */
static void staged_copies_wait_for_their_memory(_unused_ void **state)
{
    enum { BYTES = 5 << 20 };
    const DeviceOptions options = {.kind = DEVICE_CPU, .threads = 1, .type = DATA_F32};
    char *from = malloc(BYTES), *to = malloc(BYTES);
    assert_true(from && to);
    for (unsigned order = 0; order < TESTING_ORDERS; order++) {
        Error err = ERROR_INIT;
        Device *device;
        DeviceStaging *staging;
        void *memory;
        testing_orders_use(order);
        assert_int_equal(device_open(&options, &device, &err), 0);
        assert_int_equal(device_allocate(device, BYTES, &memory, &err), 0);
        assert_int_equal(device_staging_new(device, &staging, &err), 0);
        for (size_t i = 0; i < BYTES; i++)
            from[i] = (char)(i * 2654435761u >> 24 ^ order);
        memset(to, 0, BYTES);
        assert_int_equal(device_staging_upload(staging, memory, from, BYTES, "x", &err), 0);
        assert_int_equal(device_staging_download(staging, to, memory, BYTES, "x", &err), 0);
        assert_memory_equal(from, to, BYTES);
        staging = device_staging_free(staging);
        device_release(device, memory);
        device = device_free(device);
    }
    testing_orders_end();
    free(from);
    free(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_order_of_lanes_gives_the_cpus_bits),
        cmocka_unit_test(staged_copies_wait_for_their_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
