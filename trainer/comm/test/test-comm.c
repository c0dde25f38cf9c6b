/* SPDX-License-Identifier: Apache-2.0 */
/* test-comm.c - every collective, with 1, 2, 3 and 5 ranks and with buffer sizes that are not
 * multiples of these numbers; each rank compares the results with sums that it computes by
 * itself. */

#include "base/clock.h"
#include "base/number/hash.h"
#include "base/number/philox.h"
#include "base/test/testing.h"
#include "trainer/comm/bulk.h"
#include "trainer/comm/test/testing-world.h"

#include <math.h>
#include <string.h>

static const int world_sizes[] = {1, 2, 3, 5};
static const size_t counts[] = {1, 2, 3, 7, 64, 1000, 4099, 70001, 1048583};

/* Returns element i of rank r, by SplitMix64's finaliser, which is cheaper here than Philox. */
static uint32_t word_of(int rank, size_t i)
{
    uint64_t x = (uint64_t)rank << 40 | i;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(x ^ x >> 31);
}

static float float_of(int rank, size_t i)
{
    return (philox_uniform(word_of(rank, i)) - 0.5f) * (float)(1 + i % 5);
}

static uint32_t sum_u32(int size, size_t i)
{
    uint32_t sum = 0;
    for (int r = 0; r < size; r++)
        sum += word_of(r, i);
    return sum;
}

static uint64_t sum_u64(int size, size_t i)
{
    uint64_t sum = 0;
    for (int r = 0; r < size; r++)
        sum += (uint64_t)word_of(r, i) << 31;
    return sum;
}

static double sum_float(int size, size_t i)
{
    double sum = 0;
    for (int r = 0; r < size; r++)
        sum += (double)float_of(r, i);
    return sum;
}

#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        Error check_err = ERROR_INIT;                                                              \
        Error *err = &check_err;                                                                   \
        int check_r = (call);                                                                      \
        world_check(check_r == 0, "%d: %s", check_r, check_err.text);                              \
    } while (0)

static void reduce_integers(World *world, Comm *comm, size_t n)
{
    _cleanup_free_ uint32_t *a = malloc(n * sizeof(*a));
    _cleanup_free_ uint64_t *b = malloc(n * sizeof(*b));
    _cleanup_free_ uint32_t *c = malloc(n * sizeof(*c));
    for (size_t i = 0; i < n; i++) {
        a[i] = c[i] = word_of(world->rank, i);
        b[i] = (uint64_t)a[i] << 31;
    }
    CHECK_OK(comm_all_reduce(comm, COMM_I32, COMM_SUM, a, n, err));
    CHECK_OK(comm_all_reduce(comm, COMM_I64, COMM_SUM, b, n, err));
    CHECK_OK(comm_all_reduce(comm, COMM_U32, COMM_MAX, c, n, err));
    for (size_t i = 0; i < n; i++) {
        uint32_t max = 0;
        for (int r = 0; r < world->size; r++)
            max = MAX(max, word_of(r, i));
        world_check(a[i] == sum_u32(world->size, i), "i32 n %zu i %zu", n, i);
        world_check(b[i] == sum_u64(world->size, i), "i64 n %zu i %zu", n, i);
        world_check(c[i] == max, "max n %zu i %zu", n, i);
    }
}

/* A sum of floats is right except for rounding, and has the same bits in two runs and on all
 * ranks. */
static void reduce_floats(World *world, Comm *comm, size_t n)
{
    _cleanup_free_ float *a = malloc(n * sizeof(*a));
    Hash *hashes = calloc((size_t)world->size, sizeof(*hashes));
    Hash first = {0, 0};
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < n; i++)
            a[i] = float_of(world->rank, i);
        CHECK_OK(comm_all_reduce(comm, COMM_F32, COMM_SUM, a, n, err));
        for (size_t i = 0; i < n; i++)
            world_check(fabs((double)a[i] - sum_float(world->size, i)) < 1e-5, "n %zu i %zu: %g", n,
                        i, (double)a[i]);
        Hash hash = hash_bytes(a, n * sizeof(*a));
        CHECK_OK(comm_all_gather(comm, &hash, hashes, sizeof(hash), err));
        for (int r = 0; r < world->size; r++)
            world_check(hash_equal(hashes[r], hash), "rank %d differs at n %zu", r, n);
        world_check(round == 0 || hash_equal(hash, first), "another sum in the second run");
        first = hash;
    }
    free(hashes);
}

static void scatter_and_gather(World *world, Comm *comm, size_t n)
{
    size_t size = (size_t)world->size, rank = (size_t)world->rank;
    _cleanup_free_ uint32_t *a = malloc(n * size * sizeof(*a));
    _cleanup_free_ uint32_t *out = malloc(n * sizeof(*out));
    for (int in_place = 0; in_place < 2; in_place++) {
        for (size_t i = 0; i < n * size; i++)
            a[i] = word_of(world->rank, i);
        uint32_t *to = in_place ? a + rank * n : out;
        CHECK_OK(comm_reduce_scatter_dealt(comm, COMM_I32, a, n * size, MAX(n, (size_t)1),
                                           in_place ? NULL : out, err));
        for (size_t i = 0; i < n; i++)
            world_check(to[i] == sum_u32(world->size, rank * n + i), "n %zu i %zu", n, i);
        CHECK_OK(comm_all_gather(comm, to, a, n * sizeof(*a), err));
        for (size_t i = 0; i < n * size; i++)
            world_check(a[i] == sum_u32(world->size, i), "n %zu i %zu", n, i);
    }
}

/* Sums and gathers pieces that are dealt out in turn. The last piece may be short; some ranks may
 * have none. */
static void deal(World *world, Comm *comm, size_t n, size_t piece)
{
    size_t size = (size_t)world->size, rank = (size_t)world->rank;
    size_t own_pieces = n / piece / size + 1;
    _cleanup_free_ float *a = malloc(n * sizeof(*a));
    _cleanup_free_ float *b = malloc(n * sizeof(*b));
    _cleanup_free_ float *out = malloc(own_pieces * piece * sizeof(*out));
    for (size_t i = 0; i < n; i++)
        a[i] = b[i] = float_of(world->rank, i);
    CHECK_OK(comm_reduce_scatter_dealt(comm, COMM_F32, a, n, piece, out, err));
    CHECK_OK(comm_reduce_scatter_dealt(comm, COMM_F32, b, n, piece, NULL, err));
    for (size_t i = 0; i < n; i++) {
        if (i / piece % size != rank)
            continue;
        float copied = out[i / piece / size * piece + i % piece];
        world_check(fabs((double)copied - sum_float(world->size, i)) < 1e-5, "n %zu i %zu", n, i);
        world_check(memcmp(&copied, &b[i], sizeof(copied)) == 0, "in place, n %zu i %zu", n, i);
    }
    CHECK_OK(comm_all_gather_dealt(comm, b, n * sizeof(*b), piece * sizeof(*b), err));
    for (size_t i = 0; i < n; i++)
        world_check(fabs((double)b[i] - sum_float(world->size, i)) < 1e-5, "n %zu i %zu", n, i);
}

static void broadcast(World *world, Comm *comm, size_t n)
{
    _cleanup_free_ uint32_t *a = malloc(n * sizeof(*a));
    for (int root = 0; root < world->size; root++) {
        for (size_t i = 0; i < n; i++)
            a[i] = word_of(world->rank, i);
        CHECK_OK(comm_broadcast(comm, root, a, n * sizeof(*a), err));
        for (size_t i = 0; i < n; i++)
            world_check(a[i] == word_of(root, i), "root %d n %zu i %zu", root, n, i);
    }
}

static int run_all(World *world, Comm *comm, void *arg)
{
    (void)arg;
    world_check(comm_rank(comm) == world->rank && comm_size(comm) == world->size, "who am I");
    for (size_t i = 0; i < ELEMENTSOF(counts); i++) {
        reduce_integers(world, comm, counts[i]);
        reduce_floats(world, comm, counts[i]);
        scatter_and_gather(world, comm, counts[i]);
        broadcast(world, comm, counts[i]);
    }
    static const size_t deals[][2] = {{1, 1},      {5, 1},        {7, 3},          {100, 7},
                                      {1000, 999}, {40960, 4096}, {40961, 4096},   {300000, 4096},
                                      {300, 4096}, {262147, 1},   {900001, 131072}};
    for (size_t i = 0; i < ELEMENTSOF(deals) - 2; i++)
        deal(world, comm, deals[i][0], deals[i][1]);
    deal(world, comm, 3001, 1);
    deal(world, comm, 900001, 131072);
    CHECK_OK(comm_all_reduce(comm, COMM_F32, COMM_SUM, NULL, 0, err));
    CHECK_OK(world_barrier(comm, err));
    return 0;
}

static void collectives_are_right(void **state)
{
    (void)state;
    for (size_t i = 0; i < ELEMENTSOF(world_sizes); i++) {
        World world = {.size = world_sizes[i], .run = run_all};
        assert_int_equal(world_run(&world, WORLD_SEC), 0);
    }
}

/* No rank passes a barrier before the last rank has reached it: each rank counts itself before the
 * barrier. */
static int run_barriers(World *world, Comm *comm, void *arg)
{
    int *counters = arg;
    for (int i = 0; i < 50; i++) {
        (void)__atomic_add_fetch(&counters[i], 1, __ATOMIC_SEQ_CST);
        CHECK_OK(world_barrier(comm, err));
        world_check(__atomic_load_n(&counters[i], __ATOMIC_SEQ_CST) == world->size, "barrier %d",
                    i);
    }
    return 0;
}

static void barriers_hold(void **state)
{
    (void)state;
    World world = {.size = 5, .run = run_barriers, .arg = world_share(50 * sizeof(int))};
    assert_int_equal(world_run(&world, WORLD_SEC), 0);
}

/* Two comms use one store side by side: messages of one comm never reach the other. */
static int run_two_comms(World *world, Comm *comm, void *arg)
{
    (void)arg;
    _cleanup_(comm_freep) Comm *report = NULL;
    CHECK_OK(world_open(world, "g1/report", &report, err));
    for (int i = 0; i < 20; i++) {
        int32_t a = world->rank, b = 100 * world->rank;
        CHECK_OK(comm_all_reduce(comm, COMM_I32, COMM_SUM, &a, 1, err));
        CHECK_OK(comm_all_reduce(report, COMM_I32, COMM_SUM, &b, 1, err));
        world_check(a == 3 && b == 300, "%d %d", a, b);
    }
    return 0;
}

static void two_comms_stay_apart(void **state)
{
    (void)state;
    World world = {.size = 3, .run = run_two_comms};
    assert_int_equal(world_run(&world, WORLD_SEC), 0);
}

/* A world opens the bulk comm only if all its ranks know of it; otherwise no rank has it. A rank of
 * version 0.2.0 publishes nothing and opens nothing. */
typedef struct BulkCase {
    int size;
    unsigned knowing; /* one bit for each rank */
} BulkCase;

static int run_bulk(World *world, Comm *unused, void *arg)
{
    const BulkCase *c = arg;
    (void)unused;
    _cleanup_(comm_freep) Comm *train = NULL, *bulk = NULL;
    const bool knows = (c->knowing >> world->rank & 1) != 0;
    const bool all = c->knowing == (1U << c->size) - 1;
    const CommOptions options = {.rank = world->rank,
                                 .size = world->size,
                                 .rendezvous = world->rendezvous,
                                 .prefix = "g1/bulk",
                                 .bind_address = "127.0.0.1",
                                 .key = world->key,
                                 .connect_usec = 60 * USEC_PER_SEC,
                                 .timeout_usec = 60 * USEC_PER_SEC};
    if (knows)
        CHECK_OK(bulk_offer(&options, err));
    CHECK_OK(world_open(world, "g1/train", &train, err));
    if (knows)
        CHECK_OK(bulk_open(&options, &bulk, err));
    world_check((bulk != NULL) == all, "rank %d of %d, %x", world->rank, c->size, c->knowing);
    int32_t one = 1;
    CHECK_OK(comm_all_reduce(bulk ? bulk : train, COMM_I32, COMM_SUM, &one, 1, err));
    world_check(one == c->size, "%d", one);
    /* rank 0 serves the store until all ranks have read from it */
    CHECK_OK(world_barrier(train, err));
    return 0;
}

static void a_bulk_comm_is_all_ranks_or_nobodys(void **state)
{
    (void)state;
    static const BulkCase cases[] = {{2, 3}, {3, 7}, {3, 6}, {3, 5}, {3, 3}, {2, 2}, {2, 1}};
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        BulkCase c = cases[i];
        World world = {.size = c.size, .run = run_bulk, .arg = &c, .without_comm = true};
        assert_int_equal(world_run(&world, WORLD_SEC), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_are_right),
        cmocka_unit_test(barriers_hold),
        cmocka_unit_test(two_comms_stay_apart),
        cmocka_unit_test(a_bulk_comm_is_all_ranks_or_nobodys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
