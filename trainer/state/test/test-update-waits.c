/* SPDX-License-Identifier: Apache-2.0 */
/* test-update-waits.c - tests what the host and the lanes of a device wait for in a step, and what they do not wait
 * for. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/test/testing.h"
#include "trainer/state/device-patience.h"
#include "trainer/state/test/testing-update.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- beside a save's copies ---- */

enum { COPIED = 4 };

/* Copies everything that an update writes, on a lane that delays each copy. */
static void copy_late(Rank *rank, float *copies[COPIED])
{
    const TrainState *state = rank->state;
    Device *device = rank->device;
    const float *from[COPIED] = {state->weights, state->m, state->v, state->ema};
    const size_t n_bytes = (size_t)rank->list.n_elements * sizeof(float);
    device_wait(device, LANE_OUT, device_fence(device, LANE_COMPUTE));
    for (size_t i = 0; i < COPIED; i++)
        device_fetch(device, LANE_OUT, copies[i], from[i], n_bytes);
    train_state_copying(state, device_fence(device, LANE_OUT));
}

static int write_beside_copies(_unused_ World *world, Comm *comm, void *arg)
{
    Error err = ERROR_INIT;
    Rank rank = {0};
    UpdateResult result;
    uint32_t word;
    rank_open(&rank, arg, comm);
    const size_t n_bytes = (size_t)rank.list.n_elements * sizeof(float);
    float *copies[COPIED], *before[COPIED];
    for (size_t i = 0; i < COPIED; i++) {
        before[i] = calloc(1, n_bytes);
        int r = device_host_allocate(rank.device, n_bytes, (void **)&copies[i], &err);
        world_check(r == 0 && before[i], "memory");
    }
    (void)setenv("SDTRAIN_FAULT", "device.copy=slow@*", 1); /* cannot fail for a valid name */
    world_check(fault_open(&err) == 0, "%s", err.text);

    for (int pass = 0; pass < 2; pass++) { /* pass 0: the EMA begins; pass 1: a step */
        const float *from[COPIED] = {rank.state->weights, rank.state->m, rank.state->v,
                                     rank.state->ema};
        for (size_t i = 0; i < COPIED; i++)
            device_download(rank.device, before[i], from[i], n_bytes);
        copy_late(&rank, copies);
        update_begin(rank.update);
        if (pass == 0)
            world_check(rank.state->ema_active, "the EMA has not begun");
        while (pass == 1) {
            rank_compute_grains(&rank, false);
            if (rank_decide(&rank, &result) == UPDATE_ACCEPT)
                break;
        }
        if (pass == 1)
            world_check(update_apply(rank.update, 0, &word, &result, &err) == 0, "%s", err.text);
        world_check(device_synchronise(rank.device, &err) == 0, "%s", err.text);
        world_check(device_kind(rank.device) != DEVICE_CPU || /* the host waits only on a CPU */
                        train_state_waited_usec(rank.state) > 0,
                    "nothing was waited for");
        for (size_t i = 0; i < COPIED; i++)
            world_check(memcmp(before[i], copies[i], n_bytes) == 0,
                        "pass %d: copy %zu has numbers of the step after it", pass, i);
    }
    for (size_t i = 0; i < COPIED; i++) {
        free(before[i]);
        device_host_release(rank.device, copies[i]);
    }
    rank_close(&rank);
    return 0;
}

static void an_update_waits_for_the_copies_of_a_save(void **state)
{
    (void)state;
    Case c = {4, 0, REDUCTION_EXACT, 0, 1.0};
    World world = {.size = 1, .run = write_beside_copies, .arg = &c};
    assert_int_equal(world_run(&world, WORLD_SEC), 0);
}

/* ---- how often the host waits for the device (ld --wrap) ---- */

static int n_waits;

int __real_device_await(Device *device, Fence fence, uint64_t timeout_usec, Error *err);
int __wrap_device_await(Device *device, Fence fence, uint64_t timeout_usec, Error *err);
int __real_device_synchronise(Device *device, Error *err);
int __wrap_device_synchronise(Device *device, Error *err);
void __real_device_download(Device *device, void *to, const void *from, size_t n_bytes);
void __wrap_device_download(Device *device, void *to, const void *from, size_t n_bytes);
void __real_device_upload(Device *device, void *to, const void *from, size_t n_bytes);
void __wrap_device_upload(Device *device, void *to, const void *from, size_t n_bytes);

int __wrap_device_await(Device *device, Fence fence, uint64_t timeout_usec, Error *err)
{
    n_waits++;
    return __real_device_await(device, fence, timeout_usec, err);
}

int __wrap_device_synchronise(Device *device, Error *err)
{
    n_waits++;
    return __real_device_synchronise(device, err);
}

void __wrap_device_download(Device *device, void *to, const void *from, size_t n_bytes)
{
    n_waits++;
    __real_device_download(device, to, from, n_bytes);
}

void __wrap_device_upload(Device *device, void *to, const void *from, size_t n_bytes)
{
    n_waits++;
    __real_device_upload(device, to, from, n_bytes);
}

/* One rank that accepts a step waits only for the maxima of each pass, and for the squares. */
static void a_step_waits_for_its_device_twice(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    for (int zero_stage = 0; zero_stage <= 1; zero_stage++) {
        Small small;
        UpdateResult result;
        const Case c = {4, zero_stage, REDUCTION_EXACT, EMA_START, 1.0};
        small_open(&small, &c);
        for (int step = 0; step < EMA_START + 3; step++) {
            int passes = 0, waits;
            n_waits = 0;
            update_begin(small.rank.update);
            waits = n_waits;
            for (UpdateVerdict verdict = UPDATE_REDO; verdict != UPDATE_ACCEPT; passes++) {
                for (int64_t i = 0; i < small.rank.list.n_elements; i++)
                    small.rank.gradients[i] = 1;
                for (int64_t grain = 0; grain < 4; grain++) {
                    n_waits = -1; /* the wait for the upload of the gradients is not counted */
                    assert_int_equal(rank_add_grain(&small.rank, grain, true, 1, &err), 0);
                    waits += n_waits;
                }
                n_waits = 0;
                verdict = rank_decide(&small.rank, &result);
                waits += n_waits;
            }
            n_waits = 0;
            small_apply(&small, &result);
            assert_int_equal(passes, step == 0 ? 2 : 1);
            assert_int_equal(waits + n_waits, 1 + passes);
        }
        small_close(&small);
    }
}

/* ---- a device that hangs ---- */

typedef struct Hang {
    Case c;
    const char *fault; /* fault of the last rank */
    int r;             /* error that the last rank's step ends with */
} Hang;

static int step(Rank *rank, Error *err)
{
    UpdateVerdict verdict = UPDATE_REDO;
    UpdateResult result;
    uint32_t word;
    int r = 0;
    update_begin(rank->update);
    while (r == 0 && verdict != UPDATE_ACCEPT) {
        rank_compute_grains(rank, false);
        r = update_collect(rank->update, err);
        if (r == 0)
            r = update_decide(rank->update, &verdict, &result, err);
    }
    return r == 0 ? update_apply(rank->update, 0, &word, &result, err) : r;
}

/* Frees an update and a state that a hanging device uses. The shadow device aborts if memory that a lane uses is
 * released. */
static int free_what_hangs(World *world, Comm *comm, void *arg)
{
    const Hang *hang = arg;
    Error err = ERROR_INIT;
    Rank rank = {0};
    rank_open(&rank, &hang->c, comm);
    const bool hangs = world->rank == world->size - 1;
    if (hangs) {
        device_patience_most_usec = 2 * USEC_PER_SEC;
        (void)setenv("SDTRAIN_FAULT", hang->fault, 1); /* cannot fail for a valid name */
        world_check(fault_open(&err) == 0, "%s", err.text);
    }
    int r = step(&rank, &err);
    world_check(!hangs || r == hang->r, "%d: %s", r, err.text);
    world_check(!hangs || !device_is_idle(rank.device), "nothing hangs");
    rank.update = update_free(rank.update);
    rank.state = train_state_free(rank.state);
    _exit(0); /* a trainer ends in this way, too */
}

static void what_a_device_that_hangs_uses_is_kept(void **state)
{
    (void)state;
    if (!getenv("SDTRAIN_TEST_DEVICE"))
        skip(); /* a CPU does not hang */
    Hang cases[] = {
        {{4, 0, REDUCTION_EXACT, 0, 1.0}, "shadow.hang.state_update=eio", 0},
        {{4, 0, REDUCTION_EXACT, 0, 1.0}, "shadow.hang.state_squares=eio", -ETIMEDOUT},
        {{4, 0, REDUCTION_EXACT, 0, 1.0}, "shadow.hang.comm=eio", -ETIMEDOUT},
        {{4, 1, REDUCTION_EXACT, 0, 1.0}, "shadow.hang.comm=eio@4", -ETIMEDOUT},
        {{4, 2, REDUCTION_EXACT, 0, 1.0}, "shadow.hang.state_update=eio", -ETIMEDOUT},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        World world = {.size = i == 0 ? 1 : 2, .run = free_what_hangs, .arg = &cases[i]};
        if (world_run(&world, WORLD_SEC) > 0)
            fail_msg("%s", cases[i].fault);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_update_waits_for_the_copies_of_a_save),
        cmocka_unit_test(a_step_waits_for_its_device_twice),
        cmocka_unit_test(what_a_device_that_hangs_uses_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
