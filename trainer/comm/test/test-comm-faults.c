/* SPDX-License-Identifier: Apache-2.0 */
/* test-comm-faults.c - peers that die, stop or never start, and aborts: which errors the other
 * ranks get, and when. */

#include "base/clock.h"
#include "base/test/testing.h"
#include "trainer/comm/test/testing-clock.h"
#include "trainer/comm/test/testing-world.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>

enum { BIG = 1 << 20 };

/* A deadline that is far away: a call that should end at once must end long before it, even on a
 * machine that is delayed now and then. */
#define DEADLINE_USEC (40 * USEC_PER_SEC)
#define AT_ONCE_USEC (20 * USEC_PER_SEC)

typedef struct Shared {
    atomic_uint_fast64_t struck_usec; /* when the fault struck */
    atomic_int failed;                /* ranks that have seen the fault */
    int code[WORLD_MAX];
    uint64_t after_usec[WORLD_MAX]; /* time from the fault to its detection */
    uint64_t took_usec[WORLD_MAX];  /* duration of the call that failed */
    size_t n;                       /* elements of the all-reduce */
    int victim, signal, round;
    ClockGate gate; /* opens when everything is ready for the deadline to pass */
} Shared;

static uint64_t now(void) { return clock_boottime_usec(); }

/* Reduces until a call fails, stores its code and times, and checks that the next call fails at once. */
static void reduce_until_failure(World *world, Comm *comm, Shared *shared)
{
    _cleanup_free_ int32_t *data = calloc(shared->n, sizeof(*data));
    Error err = ERROR_INIT;
    int r = 0;
    uint64_t begun = 0;
    for (int round = 0; r == 0; round++) {
        world_check(round < 100000, "the fault never showed");
        if (world->rank == shared->victim && round == shared->round) {
            atomic_store(&shared->struck_usec, now());
            clock_gate_pass(&shared->gate);
            (void)kill(getpid(), shared->signal); /* a signal to this process: cannot fail */
        }
        begun = now();
        r = comm_all_reduce(comm, COMM_I32, COMM_SUM, data, shared->n, &err);
    }
    uint64_t at = now();
    shared->took_usec[world->rank] = at - begun;
    shared->code[world->rank] = r;
    shared->after_usec[world->rank] = at - atomic_load(&shared->struck_usec);
    Error again = ERROR_INIT;
    int second = world_barrier(comm, &again);
    world_check(second == r, "second call: %d %s", second, again.text);
    world_check(now() - at < AT_ONCE_USEC, "the second call took %d us", (int)(now() - at));
    world_check(strstr(err.text, "rank ") && err.code == r, "text: %s", err.text);
}

static int run_fault(World *world, Comm *comm, void *arg)
{
    reduce_until_failure(world, comm, arg);
    return 0;
}

static void a_killed_peer_ends_the_others_at_once(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 40000, BIG};
    for (size_t i = 0; i < ELEMENTSOF(counts); i++) {
        for (int size = 2; size <= 5; size += size == 3 ? 2 : 1) {
            Shared *shared = world_share(sizeof(*shared));
            shared->n = counts[i];
            shared->victim = size - 1;
            shared->signal = SIGKILL;
            shared->round = 5;
            World world = {.size = size,
                           .timeout_usec = DEADLINE_USEC,
                           .run = run_fault,
                           .arg = shared};
            int status[WORLD_MAX];
            world_start(&world);
            assert_int_equal(world_wait(&world, WORLD_SEC, status), 1);
            assert_true(WIFSIGNALED(status[size - 1]));
            for (int rank = 0; rank < size - 1; rank++) {
                assert_int_equal(shared->code[rank], -ECONNRESET);
                assert_true(shared->after_usec[rank] < AT_ONCE_USEC);
            }
        }
    }
}

/* A peer is killed at any time, even in the middle of a message that has been posted completely.
 */
static int run_killed_any_time(World *world, Comm *comm, void *arg)
{
    Shared *shared = arg;
    Error err = ERROR_INIT;
    /* both ranks have opened the comm */
    world_check(world_barrier(comm, &err) == 0, "%s", err.text);
    if (world->rank == shared->victim) {
        timer_t timer;
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
        struct itimerspec when = {.it_value.tv_nsec = 1000000 + 700000L * shared->round};
        world_check(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0, "timer");
        atomic_store(&shared->struck_usec, now() + (uint64_t)when.it_value.tv_nsec / 1000);
        world_check(timer_settime(timer, 0, &when, NULL) == 0, "timer");
        shared->round = -1;
    }
    _cleanup_free_ char *data = calloc(BIG, 4);
    int r = 0;
    for (int round = 0; r == 0; round++) /* rank 0 only sends, and the victim only receives */
        r = comm_broadcast(comm, 0, data, 4 * BIG, &err);
    shared->code[world->rank] = r;
    shared->after_usec[world->rank] = now() - atomic_load(&shared->struck_usec);
    return 0;
}

static void a_peer_may_die_in_the_middle_of_a_message(void **state)
{
    (void)state;
    for (int round = 0; round < 12; round++) {
        Shared *shared = world_share(sizeof(*shared));
        shared->victim = 1;
        shared->round = round;
        World world = {.size = 2,
                       .timeout_usec = DEADLINE_USEC,
                       .run = run_killed_any_time,
                       .arg = shared};
        assert_int_equal(world_run(&world, WORLD_SEC), 1);
        assert_int_equal(shared->code[0], -ECONNRESET);
        assert_true((int64_t)shared->after_usec[0] < (int64_t)AT_ONCE_USEC);
    }
}

/* The surviving ranks keep their comms until all have failed, so that each reaches its own
 * deadline. Time passes only after the last rank has stopped. */
static int run_stopped(World *world, Comm *comm, void *arg)
{
    Shared *shared = arg;
    clock_hold(&shared->gate);
    reduce_until_failure(world, comm, shared);
    (void)atomic_fetch_add(&shared->failed, 1);
    while (atomic_load(&shared->failed) < world->size - 1)
        usleep(1000); /* world_wait() limits the wait */
    return 0;
}

static void a_stopped_peer_is_a_timeout_at_the_deadline(void **state)
{
    (void)state;
    for (int size = 2; size <= 3; size++) {
        Shared *shared = world_share(sizeof(*shared));
        shared->n = 40000;
        shared->victim = size - 1;
        shared->signal = SIGSTOP;
        shared->gate.awaited = 1;
        shared->round = 5;
        World world = {.size = size,
                       .timeout_usec = 2 * USEC_PER_SEC,
                       .run = run_stopped,
                       .arg = shared};
        world_start(&world);
        /* The last rank stops itself. The other ranks fail at their deadlines; then the last rank
         * is killed. */
        for (uint64_t t = now(); atomic_load(&shared->failed) < size - 1;) {
            assert_true(now() - t < WORLD_SEC * USEC_PER_SEC);
            usleep(1000);
        }
        (void)kill(world.pids[size - 1], SIGKILL); /* this child is not reaped yet, so it exists */
        assert_int_equal(world_wait(&world, WORLD_SEC, NULL), 1);
        for (int rank = 0; rank < size - 1; rank++) {
            assert_int_equal(shared->code[rank], -ETIMEDOUT);
            /* measured from the rank's own call, which may begin before the others' calls */
            assert_in_range(shared->took_usec[rank], 1980000, AT_ONCE_USEC);
        }
    }
}

/* set on rank 1 until rank 1 passes the gate; otherwise NULL */
static Shared *meeting;

static void note_that_we_met(const struct pollfd *fds, nfds_t n)
{
    if (!meeting || !polls_a_listener_only(fds, n))
        return;
    clock_gate_pass(&meeting->gate);
    meeting = NULL;
}

/* Rank 2 never opens the comm. Time passes only after the other two ranks have connected. */
static int run_missing(World *world, Comm *comm, void *arg)
{
    Shared *shared = arg;
    (void)comm;
    clock_hold(&shared->gate);
    if (world->rank == 1) {
        meeting = shared;
        clock_hooks.before_poll = note_that_we_met;
    }
    if (world->rank < 2) {
        Error err = ERROR_INIT;
        uint64_t t = now();
        Comm *mine;
        shared->code[world->rank] = world_open(world, "g1/late", &mine, &err);
        shared->after_usec[world->rank] = now() - t;
        world_check(strstr(err.text, "g1/late/2"), "text: %s", err.text);
        (void)atomic_fetch_add(&shared->failed, 1);
    }
    /* rank 0 serves the store until both ranks have failed */
    while (atomic_load(&shared->failed) < 2)
        usleep(1000); /* world_wait() limits the wait */
    return 0;
}

static void a_missing_peer_bounds_opening(void **state)
{
    (void)state;
    Shared *shared = world_share(sizeof(*shared));
    shared->gate.awaited = 1;
    World world = {.size = 3,
                   .connect_usec = 2 * USEC_PER_SEC,
                   .run = run_missing,
                   .arg = shared,
                   .without_comm = true};
    assert_int_equal(world_run(&world, WORLD_SEC), 0);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(shared->code[rank], -ETIMEDOUT);
        assert_in_range(shared->after_usec[rank], 1980000, AT_ONCE_USEC);
    }
}

/* Rank 1 publishes its address and ends before rank 2 connects to it. Rank 0's clock stands still
 * until rank 1 has ended. */
static int run_half_open(World *world, Comm *comm, void *arg)
{
    Shared *shared = arg;
    (void)comm;
    if (world->rank == 1) {
        world->connect_usec = 500000; /* opening fails, because rank 2 opens its comm later */
        Error err = ERROR_INIT;
        Comm *mine;
        int r = world_open(world, "g1/half", &mine, &err);
        world_check(r == -ETIMEDOUT, "%d", r);
        atomic_store(&shared->failed, 1);
        clock_gate_pass(&shared->gate);
        return 0;
    }
    if (world->rank == 0)
        clock_hold(&shared->gate);
    while (world->rank == 2 && atomic_load(&shared->failed) == 0)
        usleep(1000); /* world_wait() limits the wait */
    Error err = ERROR_INIT;
    uint64_t t = now();
    _cleanup_(comm_freep) Comm *mine = NULL;
    int r = world_open(world, "g1/half", &mine, &err);
    if (r == 0) /* rank 0 may have connected to rank 1 before rank 1 ended */
        r = world_barrier(mine, &err);
    shared->code[world->rank] = r;
    shared->after_usec[world->rank] = now() - t;
    while (world->rank == 0 && shared->code[2] == 0)
        usleep(1000); /* rank 0 must keep the store; world_wait() limits the wait */
    return 0;
}

static void a_peer_that_dies_while_opening_bounds_opening(void **state)
{
    (void)state;
    Shared *shared = world_share(sizeof(*shared));
    shared->gate.awaited = 1;
    World world = {.size = 3,
                   .connect_usec = 2 * USEC_PER_SEC,
                   .run = run_half_open,
                   .arg = shared,
                   .without_comm = true};
    assert_int_equal(world_run(&world, WORLD_SEC), 0);
    for (int rank = 0; rank < 3; rank += 2) {
        assert_true(shared->code[rank] < 0);
        assert_true(shared->after_usec[rank] < AT_ONCE_USEC);
    }
}

typedef struct Aborter {
    Comm *comm;
    Shared *shared;
} Aborter;

static void *abort_soon(void *arg)
{
    Aborter *aborter = arg;
    usleep(50000); /* lets the call begin to wait; the call must end in any case */
    atomic_store(&aborter->shared->struck_usec, now());
    comm_abort(aborter->comm);
    return NULL;
}

/* Rank 1 does not join the barrier until rank 0's barrier is aborted. */
static int run_abort(World *world, Comm *comm, void *arg)
{
    Shared *shared = arg;
    if (world->rank == 1) {
        while (atomic_load(&shared->failed) == 0)
            usleep(1000); /* world_wait() limits the wait */
        return 0;
    }
    Aborter aborter = {comm, shared};
    pthread_t thread;
    world_check(pthread_create(&thread, NULL, abort_soon, &aborter) == 0, "thread");
    Error err = ERROR_INIT;
    int r = world_barrier(comm, &err);
    uint64_t after = now() - atomic_load(&shared->struck_usec);
    world_check(r == -ECANCELED, "%d %s", r, err.text);
    world_check(after < AT_ONCE_USEC, "%d us after the abort", (int)after);
    world_check(pthread_join(thread, NULL) == 0, "join");
    r = world_barrier(comm, &err);
    world_check(r == -ECANCELED && now() - atomic_load(&shared->struck_usec) < AT_ONCE_USEC,
                "second call: %d %s", r, err.text);
    atomic_store(&shared->failed, 1);
    return 0;
}

static void an_abort_ends_a_call(void **state)
{
    (void)state;
    World world = {.size = 2,
                   .timeout_usec = DEADLINE_USEC,
                   .run = run_abort,
                   .arg = world_share(sizeof(Shared))};
    assert_int_equal(world_run(&world, WORLD_SEC), 0);
}

/* Two processes open the comm as rank 1: the second is refused with an error that names rank 1.
 * Then time passes, and the first process times out, because no rank 2 comes. */
static int run_twins(World *world, Comm *comm, void *arg)
{
    Shared *shared = arg;
    (void)comm;
    if (world->rank == 0) {
        while (atomic_load(&shared->failed) < 2)
            usleep(1000); /* rank 0 serves the store; world_wait() limits the wait */
        return 0;
    }
    world->rank = 1;
    clock_hold(&shared->gate);
    Error err = ERROR_INIT;
    Comm *mine;
    int r = world_open(world, "g1/twins", &mine, &err);
    if (r == -EEXIST && strstr(err.text, "g1/twins/1"))
        shared->code[0]++;
    if (r == -EEXIST)
        clock_gate_pass(&shared->gate);
    (void)atomic_fetch_add(&shared->failed, 1);
    return 0;
}

static void a_rank_that_exists_twice_is_refused(void **state)
{
    (void)state;
    Shared *shared = world_share(sizeof(*shared));
    shared->gate.awaited = 1;
    World world = {.size = 3,
                   .connect_usec = 2 * USEC_PER_SEC,
                   .run = run_twins,
                   .arg = shared,
                   .without_comm = true};
    assert_int_equal(world_run(&world, WORLD_SEC), 0);
    assert_int_equal(shared->code[0], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_peer_ends_the_others_at_once),
        cmocka_unit_test(a_peer_may_die_in_the_middle_of_a_message),
        cmocka_unit_test(a_stopped_peer_is_a_timeout_at_the_deadline),
        cmocka_unit_test(a_missing_peer_bounds_opening),
        cmocka_unit_test(a_peer_that_dies_while_opening_bounds_opening),
        cmocka_unit_test(an_abort_ends_a_call),
        cmocka_unit_test(a_rank_that_exists_twice_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
