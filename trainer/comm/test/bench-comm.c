/* SPDX-License-Identifier: Apache-2.0 */
/* bench-comm.c - measures the time of collectives on this machine: bench-comm [RANKS [MIB]].
 *
 * Prints one JSON line for each figure: the median time of rank 0. */

#include "base/clock.h"
#include "trainer/comm/test/testing-world.h"

#include <string.h>

enum { ROUNDS = 21, SMALL_ROUNDS = 501 };

typedef struct Options {
    size_t n_bytes;
} Options;

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void print(const World *world, const char *figure, uint64_t *usec, size_t n)
{
    if (world->rank != 0)
        return;
    qsort(usec, n, sizeof(*usec), compare);
    (void)printf("{\"figure\":\"%s\",\"ranks\":%d,\"value\":%llu,\"unit\":\"us\",\"runs\":%zu,"
                 "\"min\":%llu,\"max\":%llu}\n",
                 figure, world->size, (unsigned long long)usec[n / 2], n,
                 (unsigned long long)usec[0], (unsigned long long)usec[n - 1]);
    (void)fflush(stdout);
}

static void open_two(World *world, Comm *comm)
{
    Error err = ERROR_INIT;
    uint64_t opening[ROUNDS], closing[ROUNDS];
    for (size_t i = 0; i < ROUNDS; i++) {
        char prefix[2][32];
        (void)snprintf(prefix[0], sizeof(prefix[0]), "g%zu/train", i);
        (void)snprintf(prefix[1], sizeof(prefix[1]), "g%zu/report", i);
        Comm *two[2];
        int r = world_barrier(comm, &err);
        opening[i] = clock_boottime_usec();
        for (int k = 0; k < 2 && r == 0; k++)
            r = world_open(world, prefix[k], &two[k], &err);
        opening[i] = clock_boottime_usec() - opening[i];
        if (r == 0)
            r = world_barrier(comm, &err);
        world_check(r == 0, "%s", err.text);
        closing[i] = clock_boottime_usec();
        for (int k = 0; k < 2; k++)
            two[k] = comm_free(two[k]);
        closing[i] = clock_boottime_usec() - closing[i];
    }
    print(world, "comm_open_two", opening, ROUNDS);
    print(world, "comm_free_two", closing, ROUNDS);
}

static void reduce(World *world, Comm *comm, const char *figure, CommType type, size_t n_bytes,
                   size_t rounds)
{
    Error err = ERROR_INIT;
    void *data = calloc(n_bytes, 1);
    uint64_t *usec = calloc(rounds, sizeof(*usec));
    for (size_t i = 0; i < rounds; i++) {
        usec[i] = clock_boottime_usec();
        int r = comm_all_reduce(comm, type, COMM_SUM, data, n_bytes / 4, &err);
        world_check(r == 0, "%s", err.text);
        usec[i] = clock_boottime_usec() - usec[i];
    }
    print(world, figure, usec, rounds);
    free(usec);
    free(data);
}

static int run(World *world, Comm *comm, void *arg)
{
    const Options *options = arg;
    open_two(world, comm);
    reduce(world, comm, "all_reduce_4_bytes", COMM_I32, 4, SMALL_ROUNDS);
    reduce(world, comm, "all_reduce_3_kib", COMM_U32, 3 << 10, SMALL_ROUNDS);
    reduce(world, comm, "all_reduce_256_kib", COMM_F32, 256 << 10, SMALL_ROUNDS);
    reduce(world, comm, "all_reduce_i32", COMM_I32, options->n_bytes, ROUNDS);
    reduce(world, comm, "all_reduce_f32", COMM_F32, options->n_bytes, ROUNDS);
    return 0;
}

int main(int argc, char **argv)
{
    Options options = {.n_bytes = (size_t)(argc > 2 ? atoi(argv[2]) : 4) << 20};
    World world = {.size = argc > 1 ? atoi(argv[1]) : 2, .run = run, .arg = &options};
    if (world.size < 1 || world.size > WORLD_MAX || options.n_bytes == 0) {
        (void)fprintf(stderr, "usage: bench-comm [RANKS (1..%d) [MIB]]\n", WORLD_MAX);
        return 2;
    }
    return world_run(&world, 300) == 0 ? 0 : 1;
}
