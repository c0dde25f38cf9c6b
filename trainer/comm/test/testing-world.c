/* SPDX-License-Identifier: Apache-2.0 */
/* testing-world.c - see testing-world.h. */

#include "trainer/comm/test/testing-world.h"

#include "base/clock.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifdef __SANITIZE_THREAD__
/* Gloo is not instrumented, so ThreadSanitizer does not see its reference counts, which order the
 * freeing of a buffer after its last use. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:libgloo.so\nrace:gloo_buffer_free\nrace:gloo_mesh_free\n";
}
#endif

#define DEFAULT_USEC (60 * USEC_PER_SEC)

void world_fail(const char *file, int line, const char *condition, const char *format, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, format);
    (void)vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    (void)fprintf(stderr, "%s:%d: %s: %s\n", file, line, condition, text);
    _exit(1);
}

void *world_share(size_t n_bytes)
{
    void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert(p != MAP_FAILED);
    return p;
}

int world_open(World *world, const char *prefix, Comm **ret, Error *err)
{
    if (world->size == 1)
        return comm_open_self(ret, err);
    const CommOptions options = {
        .rank = world->rank,
        .size = world->size,
        .rendezvous = world->rendezvous,
        .prefix = prefix,
        .bind_address = "127.0.0.1",
        .key = world->key,
        .connect_usec = world->connect_usec ? world->connect_usec : DEFAULT_USEC,
        .timeout_usec = world->timeout_usec ? world->timeout_usec : DEFAULT_USEC,
    };
    return comm_open_gloo(&options, ret, err);
}

/* Runs a rank. Rank 0 serves the store and sends the store's address to each other rank, in one
 * record. */
static int child(World *world)
{
    Error err = ERROR_INIT;
    _cleanup_(rendezvous_freep) Rendezvous *rendezvous = NULL;
    (void)signal(SIGPIPE, SIG_IGN); /* cannot fail */
    if (world->rank == 0) {
        int r = rendezvous_new("127.0.0.1", world->size, &world->key, &rendezvous, &err);
        world_check(r == 0, "%s", err.text);
        (void)snprintf(world->rendezvous, sizeof(world->rendezvous), "%s",
                       rendezvous_address(rendezvous));
        for (int i = 1; i < world->size; i++)
            world_check(write(world->pipe[1], world->rendezvous, sizeof(world->rendezvous)) ==
                            sizeof(world->rendezvous),
                        "pipe");
    } else {
        world_check(read(world->pipe[0], world->rendezvous, sizeof(world->rendezvous)) ==
                        sizeof(world->rendezvous),
                    "pipe");
    }
    _cleanup_(comm_freep) Comm *comm = NULL;
    if (!world->without_comm) {
        int r = world_open(world, "g1/test", &comm, &err);
        world_check(r == 0, "%s", err.text);
    }
    return world->run(world, comm, world->arg);
}

void world_start(World *world)
{
    assert(world->size >= 1 && world->size <= WORLD_MAX);
    int r = pipe(world->pipe);
    assert(r == 0);
    (void)fflush(NULL); /* else each child would write the parent's buffered output again */
    for (int rank = 0; rank < world->size; rank++) {
        world->pids[rank] = fork();
        assert(world->pids[rank] >= 0);
        if (world->pids[rank] == 0) {
            world->rank = rank;
            exit(child(world));
        }
    }
}

int world_wait(World *world, int timeout_sec, int *ret_status)
{
    uint64_t deadline = clock_boottime_usec() + (uint64_t)timeout_sec * USEC_PER_SEC;
    int failed = 0;
    for (int rank = 0; rank < world->size; rank++) {
        pid_t pid = world->pids[rank];
        int fd = (int)syscall(SYS_pidfd_open, pid, 0);
        assert(fd >= 0);
        uint64_t now = clock_boottime_usec();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, now < deadline ? (int)((deadline - now) / USEC_PER_MSEC) : 0) <= 0) {
            (void)fprintf(stderr, "rank %d hangs\n", rank);
            (void)kill(pid, SIGKILL); /* this child is not reaped yet, so it exists */
        }
        (void)close(fd);
        int status = -1;
        pid_t reaped = waitpid(pid, &status, 0);
        assert(reaped == pid);
        failed += status != 0;
        if (ret_status)
            ret_status[rank] = status;
    }
    (void)close(world->pipe[0]);
    (void)close(world->pipe[1]);
    return failed;
}

int world_run(World *world, int timeout_sec)
{
    world_start(world);
    return world_wait(world, timeout_sec, NULL);
}

int world_barrier(Comm *comm, Error *err)
{
    char flags[WORLD_MAX] = {0};
    assert(comm_size(comm) <= WORLD_MAX);
    int r = comm_all_gather_dealt(comm, flags, (size_t)comm_size(comm), 1, err);
    return r < 0 ? error_prefix(err, r, "barrier") : 0;
}
