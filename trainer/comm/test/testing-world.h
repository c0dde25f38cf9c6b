/* SPDX-License-Identifier: Apache-2.0 */
/* testing-world.h - for tests and benchmarks: forks the ranks of a world, each with a comm.
 *
 * Ownership: world_start() forks; world_wait() reaps every child, and kills a hanging one with SIGKILL.
 * Units:     seconds; *_usec microseconds.
 * Errors:    a rank fails if the condition of a world_check() is false, or if run() does not return 0.
 * Threads:   the parent must have one thread; a rank may start its own.
 */
#pragma once

#include "trainer/comm/comm.h"

#include <sys/types.h>

enum { WORLD_MAX = 8, WORLD_SEC = 100 }; /* a world that takes longer counts as hanging */

typedef struct World World;
struct World {
    int size;
    uint64_t connect_usec, timeout_usec; /* 0: 60 s each */
    int (*run)(World *world, Comm *comm, void *arg);
    void *arg;
    CommKey key;       /* zero: generation 0, no secret */
    bool without_comm; /* run() opens its own comms, by the store at `rendezvous` */

    /* These fields are set in a child: */
    int rank;
    char rendezvous[128];
    /* The parent's fields: */
    pid_t pids[WORLD_MAX];
    int pipe[2];
};

void world_start(World *world);
/* Waits for all ranks. Returns the number of ranks that did not end with 0. ret_status: wait
 * statuses, or NULL. */
int world_wait(World *world, int timeout_sec, int *ret_status);
/* Calls world_start() and world_wait(). */
int world_run(World *world, int timeout_sec);

/* Opens another comm in a child. */
int world_open(World *world, const char *prefix, Comm **ret, Error *err);

/* Waits until every rank has called this function. */
int world_barrier(Comm *comm, Error *err);

/* Returns zeroed memory that all ranks and the parent share until the process ends. */
void *world_share(size_t n_bytes);

_printf_(4, 5) void world_fail(const char *file, int line, const char *condition,
                               const char *format, ...) _noreturn_;
#define world_check(condition, ...)                                                                \
    do {                                                                                           \
        if (!(condition))                                                                          \
            world_fail(__FILE__, __LINE__, #condition, __VA_ARGS__);                               \
    } while (0)
