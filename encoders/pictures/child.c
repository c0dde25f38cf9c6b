/* SPDX-License-Identifier: Apache-2.0 */
/* child.c - see child.h. */
#include "encoders/pictures/child.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/packet.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { SMALL_FILE_BYTES = 1 << 20, LOWEST_FD = 3 };
static const uint64_t READY_USEC = 60 * USEC_PER_SEC;

/* The environment variables that a child inherits: the place of its libraries, and settings of tests. Credentials are
 * not inherited. */
static const char *const environment_names[] = {"SDTRAIN_FAULT=", "LD_LIBRARY_PATH=",
                                                "ASAN_OPTIONS=", "UBSAN_OPTIONS=", "TSAN_OPTIONS="};

static void choose_environment(char *ret[ELEMENTSOF(environment_names) + 1])
{
    size_t n = 0;
    for (size_t i = 0; i < ELEMENTSOF(environment_names); i++)
        for (char **at = environ; at && *at; at++)
            if (strncmp(*at, environment_names[i], strlen(environment_names[i])) == 0) {
                ret[n++] = *at;
                break;
            }
    ret[n] = NULL;
}

/* Moves a descriptor above the numbers that descriptors have in the child. */
static int fd_above(int fd)
{
    if (fd < 0 || fd >= LOWEST_FD)
        return fd;
    int higher = fcntl(fd, F_DUPFD_CLOEXEC, LOWEST_FD);
    (void)fd_close(fd);
    return higher;
}

static int memory_new(size_t n_bytes, int *ret_fd, uint8_t **ret, Error *err)
{
    _cleanup_fd_ int fd = fd_above(memfd_create("pictures", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0 || ftruncate(fd, (off_t)n_bytes) < 0)
        return error_errno(err, -errno, "cannot make memory for a decoder process");
    /* A child that could shorten the memory could end the parent by SIGBUS. */
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return error_errno(err, -errno, "cannot seal the memory of a decoder process");
    void *memory = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return error_errno(err, -errno, "cannot map the memory of a decoder process");
    *ret = memory;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int spawn(const char *program, int socket, int memory_fd, pid_t *ret)
{
    char *argv[] = {(char *)"decode-pictures", (char *)CHILD_WORD, NULL};
    char *environment[ELEMENTSOF(environment_names) + 1];
    choose_environment(environment);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    int r = posix_spawn_file_actions_init(&actions);
    if (r != 0)
        return -r;
    r = posix_spawnattr_init(&attributes);
    if (r != 0) {
        (void)posix_spawn_file_actions_destroy(&actions);
        return -r;
    }
    /* The child gets a session of its own: Ctrl-C goes only to the parent, which decides how its children end. */
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
                                                    POSIX_SPAWN_SETSIGDEF);
    (void)posix_spawnattr_setsigmask(&attributes, &none);
    (void)posix_spawnattr_setsigdefault(&attributes, &all);
    r = posix_spawn_file_actions_adddup2(&actions, socket, CHILD_SOCKET_FD);
    if (r == 0)
        r = posix_spawn_file_actions_adddup2(&actions, memory_fd, CHILD_MEMORY_FD);
    if (r == 0)
        r = posix_spawn_file_actions_addclosefrom_np(&actions, CHILD_MEMORY_FD + 1);
    if (r == 0)
        r = posix_spawn(ret, program, &actions, &attributes, argv, environment);
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&actions);
    return -r;
}

static int wait_until_ready(Child *child)
{
    ChildReady ready = {0};
    uint64_t deadline = clock_boottime_usec() + READY_USEC;
    for (;;) {
        ssize_t n = child_receive(child, &ready, sizeof(ready));
        if (n != -EAGAIN) {
            child->filter = MIN(ready.filter, 0);
            return n == sizeof(ready) && ready.word == CHILD_READY ? 0 : -EPROTO;
        }
        uint64_t now = clock_boottime_usec();
        if (now >= deadline)
            return -ETIMEDOUT;
        struct pollfd wait = {.fd = child->socket, .events = POLLIN};
        if (poll(&wait, 1, (int)((deadline - now) / USEC_PER_MSEC) + 1) < 0 && errno != EINTR)
            return -errno;
    }
}

int child_restart(Child *child, Error *err)
{
    assert(child->pid == 0);
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_errno(err, -errno, "cannot make a socket for a decoder process");
    _cleanup_fd_ int theirs = fd_above(pair[1]);
    child->socket = pair[0];
    int r = theirs < 0 ? -errno : spawn(child->program, theirs, child->memory_fd, &child->pid);
    theirs = fd_close(theirs);
    if (r < 0) {
        child->pid = 0;
        return error_errno(err, -ECHILD, "cannot start %s as a decoder process: %s", child->program,
                           strerror(-r));
    }
    ChildSetup setup;
    memset(&setup, 0, sizeof(setup));
    setup.recipe = child->recipe;
    setup.parent = (int32_t)getpid();
    ssize_t n = send(child->socket, &setup, sizeof(setup), MSG_NOSIGNAL);
    r = n == sizeof(setup) ? wait_until_ready(child) : -EPIPE;
    if (r == 0)
        return 0;
    char how[64];
    child_kill(child, how, sizeof(how));
    return error_set(err, -ECHILD,
                     "a decoder process (%s) did not become ready: %s; it ended by %s",
                     child->program, strerror(-r), how);
}

int child_open(const char *program, const PictureRecipe *recipe, Child *ret, Error *err)
{
    Child child = {.program = program, .recipe = *recipe, .socket = -EBADF, .memory_fd = -EBADF};
    int r = memory_new(child_memory_bytes(recipe), &child.memory_fd, &child.memory, err);
    if (r == 0)
        r = child_restart(&child, err);
    if (r < 0) {
        child_close(&child);
        return r;
    }
    *ret = child;
    return 0;
}

void child_kill(Child *child, char *ret_how, size_t n_bytes)
{
    int status = 0;
    child->socket = fd_close(child->socket);
    (void)snprintf(ret_how, n_bytes, "nothing");
    if (child->pid <= 0)
        return;
    (void)kill(child->pid, SIGKILL); /* the child is not reaped, so no other process has its id */
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
        ;
    child->pid = 0;
    if (WIFSIGNALED(status))
        (void)snprintf(ret_how, n_bytes, "signal %d", WTERMSIG(status));
    else
        (void)snprintf(ret_how, n_bytes, "exit status %d", WEXITSTATUS(status));
}

void child_close(Child *child)
{
    char how[64];
    child_kill(child, how, sizeof(how));
    if (child->memory)
        (void)munmap(child->memory, child_memory_bytes(&child->recipe)); /* cannot fail */
    child->memory = NULL;
    child->memory_fd = fd_close(child->memory_fd);
}

int child_request(Child *child, uint32_t place, const void *data, size_t n_bytes)
{
    assert(n_bytes <= PICTURE_FILE_BYTES_MAX);
    memcpy(child->memory + child_file_at(place), data, n_bytes);
    ChildRequest request = {.place = place, .n_bytes = (uint32_t)n_bytes};
    for (;;) {
        if (send(child->socket, &request, sizeof(request), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
            return 0;
        if (errno != EINTR)
            return errno == ECONNRESET ? -EPIPE : -errno;
    }
}

void child_forget(Child *child, uint32_t place, size_t n_bytes)
{
    if (n_bytes > SMALL_FILE_BYTES)
        (void)fallocate(child->memory_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        (off_t)child_file_at(place),
                        PICTURE_FILE_BYTES_MAX); /* a failure only wastes memory */
}

ssize_t child_receive(Child *child, void *packet, size_t n_bytes)
{
    const ssize_t n = packet_receive(child->socket, packet, n_bytes);
    return n > 0 || n == -EAGAIN ? n : 0;
}
