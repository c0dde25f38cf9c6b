/* SPDX-License-Identifier: Apache-2.0 */
/* test-limits.c - a rendezvous store whose tables are full: accepted connections stay, and further
 * requests and connections are refused. Also tests slow connections, and a process that has too
 * few descriptors. */

#include "base/clock.h"
#include "base/test/testing.h"
#include "trainer/comm/address.h"
#include "trainer/comm/comm.h"
#include "trainer/comm/rendezvous-client.h"
#include "trainer/comm/rendezvous-wire.h"
#include "trainer/comm/test/testing-clock.h"
#include "trainer/comm/test/testing-dial.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

/* ---- the store ---- */

static Rendezvous *open_store(int world_size)
{
    Error err = ERROR_INIT;
    Rendezvous *store = NULL;
    if (rendezvous_new("127.0.0.1", world_size, &key, &store, &err) < 0)
        fail_msg("%s", err.text);
    return store;
}

static int set(const Rendezvous *store, const char *name, const void *value, size_t n, Error *err)
{
    return rendezvous_set(rendezvous_address(store), &key, name, value, n, in(MINUTE), err);
}

static void assert_has(const Rendezvous *store, const char *name, const void *value, size_t n)
{
    static char got[RENDEZVOUS_VALUE_MAX];
    Error err = ERROR_INIT;
    size_t n_got;
    if (rendezvous_look(rendezvous_address(store), &key, name, got, sizeof(got), &n_got, in(MINUTE),
                        &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(n_got, n);
    assert_memory_equal(got, value, n);
}

static void a_full_store_keeps_what_it_has(void **state)
{
    (void)state;
    enum { KEYS = 4 * 1 + 1024 };
    _cleanup_(rendezvous_freep) Rendezvous *store = open_store(1);
    Error err = ERROR_INIT;
    char name[32];
    for (int i = 0; i < KEYS; i++) {
        (void)snprintf(name, sizeof(name), "key/%d", i);
        assert_int_equal(set(store, name, name, strlen(name), &err), 0);
    }
    /* tries twice, because the first refusal must not make room for the key */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(set(store, "one more", "x", 1, &err), -ENOSPC);
        assert_non_null(strstr(err.text, "setting one more: No space left on device"));
        assert_int_equal(set(store, "one more", "", 0, &err), -ENOSPC);
    }
    /* a key may be set again to the same value */
    assert_int_equal(set(store, "key/0", "key/0", 5, &err), 0);
    assert_int_equal(set(store, "key/1", "key/2", 5, &err), -EEXIST);
    assert_int_equal(set(store, "key/2", "key/", 4, &err), -EEXIST);
    for (int i = 0; i < KEYS; i += KEYS / 9) {
        (void)snprintf(name, sizeof(name), "key/%d", i);
        assert_has(store, name, name, strlen(name));
    }
    (void)snprintf(name, sizeof(name), "key/%d", KEYS - 1);
    assert_has(store, name, name, strlen(name));
}

static void the_bytes_of_a_store_are_bounded(void **state)
{
    (void)state;
    enum { FULL = (64 << 20) / RENDEZVOUS_VALUE_MAX };
    static char value[RENDEZVOUS_VALUE_MAX];
    _cleanup_(rendezvous_freep) Rendezvous *store = open_store(1);
    Error err = ERROR_INIT;
    char name[32];
    for (int i = 0; i < FULL; i++) {
        (void)snprintf(name, sizeof(name), "key/%d", i);
        memcpy(value, name, sizeof(name));
        assert_int_equal(set(store, name, value, sizeof(value), &err), 0);
    }
    assert_int_equal(set(store, "one byte", "x", 1, &err), -ENOSPC);
    assert_int_equal(set(store, "nothing", "", 0, &err), 0);
    assert_has(store, name, value, sizeof(value));
    assert_has(store, "nothing", "", 0);
}

/* Requests a key with a long wait, and sends only the first n_said bytes of its name. */
static void ask_for(int fd, const char *name, size_t n_said)
{
    RendezvousGreeting greeting;
    assert_int_equal(recv(fd, &greeting, sizeof(greeting), MSG_WAITALL), sizeof(greeting));
    RendezvousRequest request = {.magic = htole32(RENDEZVOUS_MAGIC),
                                 .operation = htole32(RENDEZVOUS_GET),
                                 .key_bytes = htole32((uint32_t)strlen(name)),
                                 .argument = htole32(RENDEZVOUS_WAIT_MSEC_MAX)};
    proof_digest(name, strlen(name), request.digest);
    const RendezvousProvenRequest asked = rendezvous_proven_request(&greeting, &request);
    proof_make(&key, "ask", &asked, sizeof(asked), request.proof);
    assert_int_equal(send(fd, &request, sizeof(request), MSG_NOSIGNAL), sizeof(request));
    assert_int_equal(send(fd, name, n_said, MSG_NOSIGNAL), n_said);
}

static int come_and_wait(const Rendezvous *store)
{
    int fd = dial(rendezvous_address(store));
    ask_for(fd, "k", 1);
    return fd;
}

/* Each rank may have four connections, and the world 64 more. */
static void no_rank_that_waits_makes_way(void **state)
{
    (void)state;
    for (int world = 1; world <= 3; world += 2) {
        enum { MOST = 4 * 3 + 64 };
        const int n = 4 * world + 64;
        int waiting[MOST];
        Error err = ERROR_INIT;
        char value[8];
        size_t n_value;
        _cleanup_(rendezvous_freep) Rendezvous *store = open_store(world);
        for (int i = 0; i < n; i++)
            waiting[i] = come_and_wait(store);
        int more = come_and_wait(store); /* the store accepts this connection last */
        assert_true(has_ended(more));    /* closed without an answer */
        (void)close(more);
        assert_int_equal(rendezvous_get(rendezvous_address(store), &key, "k", value, sizeof(value),
                                        &n_value, in(100000), &err),
                         -ECONNRESET);
        assert_non_null(strstr(err.text, "waiting for k"));
        assert_non_null(strstr(err.text, rendezvous_address(store)));
        /* the closed connection's place is free at the store's next turn */
        (void)close(waiting[0]);
        assert_int_equal(set(store, "k", "v", 1, &err), 0);
        for (int i = 1; i < n; i++) {
            RendezvousAnswer answer;
            assert_int_equal(recv(waiting[i], &answer, sizeof(answer), MSG_WAITALL),
                             sizeof(answer));
            assert_true(answer.status == 0 && le32toh(answer.value_bytes) == 1);
            (void)close(waiting[i]);
        }
    }
}

/* ---- slow connections ---- */

static pthread_t tests_thread;
static atomic_bool store_is_late;
static atomic_int n_polls; /* the number of polls by threads other than the test's */

static void be_late_if_told(void)
{
    if (!pthread_equal(pthread_self(), tests_thread) && atomic_load(&store_is_late))
        clock_be_late();
}

static void count_polls(const struct pollfd *fds, nfds_t n)
{
    (void)fds;
    if (n > 0 && !pthread_equal(pthread_self(), tests_thread))
        (void)atomic_fetch_add(&n_polls, 1);
}

/* Opens a store with clock hooks, which are set while the process has only one thread. */
static Rendezvous *open_hooked_store(void)
{
    tests_thread = pthread_self();
    atomic_store(&store_is_late, false);
    atomic_store(&n_polls, 0);
    clock_hooks = (ClockHooks){.before_reading = be_late_if_told, .before_poll = count_polls};
    return open_store(2);
}

static Rendezvous *free_hooked_store(Rendezvous *store)
{
    store = rendezvous_free(store);
    clock_hooks = (ClockHooks){0};
    return store;
}

/* Makes an hour pass for the store. */
static void let_an_hour_pass(const Rendezvous *store)
{
    atomic_store(&store_is_late, true);
    (void)close(dial(rendezvous_address(store))); /* ends the store's poll */
}

/* Bounds the kernel's send buffer of each connection that the store accepts from now on. Without
 * the bound, a whole answer fits into the buffer at times, and the store finishes with a client
 * that has read nothing. */
static void bound_what_is_sent_ahead(void)
{
    int n_listening = 0;
    for (int fd = 3; fd < 256; fd++) {
        int listens = 0;
        const int room = 4608;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &(socklen_t){sizeof(listens)}) ==
                0 &&
            listens) {
            assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), 0);
            n_listening++;
        }
    }
    assert_int_equal(n_listening, 1);
}

/* Opens a connection that receives little at a time. A recv() on it waits at most a minute. */
static int dial_slowly(const Rendezvous *store)
{
    Error err = ERROR_INIT;
    struct addrinfo *to = NULL;
    const int segment = 536, room = 2304;
    const struct timeval minute = {.tv_sec = 60};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof(segment)), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof(minute)), 0);
    assert_int_equal(address_resolve(rendezvous_address(store), true, &to, &err), 0);
    assert_int_equal(connect(fd, to->ai_addr, to->ai_addrlen), 0);
    freeaddrinfo(to);
    return fd;
}

/* Reads everything until the connection ends, up to max bytes. Returns the number of bytes. */
static size_t take_all(int fd, char *to, size_t max)
{
    size_t n = 0;
    ssize_t more;
    while (n < max && (more = recv(fd, to + n, max - n, 0)) > 0)
        n += (size_t)more;
    return n;
}

static void an_answer_is_written_as_it_is_taken(void **state)
{
    (void)state;
    static char value[RENDEZVOUS_VALUE_MAX], got[sizeof(value) + 100];
    const size_t n_answer = sizeof(RendezvousAnswer) + sizeof(value);
    Error err = ERROR_INIT;
    for (size_t i = 0; i < sizeof(value); i++)
        value[i] = (char)(i * 7 + (i >> 8));
    for (int takes = 1; takes >= 0; takes--) {
        Rendezvous *store = open_hooked_store();
        bound_what_is_sent_ahead();
        int fd = dial_slowly(store), other = dial_slowly(store);
        ask_for(fd, "k", 1);
        ask_for(other, "k", 1);
        assert_int_equal(set(store, "k", value, sizeof(value), &err), 0);
        assert_has(store, "k", value, sizeof(value)); /* other clients are served meanwhile */
        if (takes) {
            assert_int_equal(take_all(fd, got, sizeof(got)), n_answer);
            assert_memory_equal(got + sizeof(RendezvousAnswer), value, sizeof(value));
            assert_int_equal(take_all(other, got, sizeof(got)), n_answer);
        } else { /* a client that reads nothing for five seconds is dropped */
            let_an_hour_pass(store);
            assert_int_equal(set(store, "another", "x", 1, &err), 0);
            assert_in_range(take_all(fd, got, sizeof(got)), 0, n_answer - 1);
        }
        (void)close(fd);
        (void)close(other);
        store = free_hooked_store(store);
    }
}

/* Two clients that do not finish are dropped: one has proven that it is a rank and sent half of its
 * key, the other has sent half of its request. */
static void who_says_half_is_left(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    RendezvousGreeting greeting;
    Rendezvous *store = open_hooked_store();
    int rank = dial(rendezvous_address(store)), stranger = dial(rendezvous_address(store));
    ask_for(rank, "key", 1);
    assert_int_equal(recv(stranger, &greeting, sizeof(greeting), MSG_WAITALL), sizeof(greeting));
    assert_int_equal(send(stranger, &greeting, 8, MSG_NOSIGNAL), 8);
    assert_int_equal(set(store, "both are here", "x", 1, &err), 0);
    assert_true(recv(rank, &greeting, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
    assert_true(recv(stranger, &greeting, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
    let_an_hour_pass(store);
    assert_true(has_ended(rank));
    assert_true(has_ended(stranger));
    (void)close(rank);
    (void)close(stranger);
    store = free_hooked_store(store);
}

/* A process without a descriptor for a new client serves its present clients, and tries to accept
 * again soon. */
static void descriptors_may_be_short(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    struct rlimit files, few;
    RendezvousGreeting greeting;
    Rendezvous *store = open_hooked_store();
    int waits = dial(rendezvous_address(store));
    ask_for(waits, "k", 1);
    assert_int_equal(set(store, "it waits", "x", 1, &err), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    int late = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* the lowest free number */
    few = (struct rlimit){.rlim_cur = (rlim_t)late + 1, .rlim_max = files.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    to.sin_port = htons((uint16_t)atoi(strrchr(rendezvous_address(store), ':') + 1));
    atomic_store(&n_polls, 0);
    assert_int_equal(connect(late, (struct sockaddr *)&to, sizeof(to)), 0);
    usleep(50000); /* so that the store most likely has polled; the test passes in any case */
    const int n = atomic_load(&n_polls);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    assert_in_range(n, 0, 10); /* the store does not poll in a busy loop */
    assert_int_equal(recv(late, &greeting, sizeof(greeting), MSG_WAITALL), sizeof(greeting));
    assert_int_equal(set(store, "k", "v", 1, &err), 0);
    assert_true(recv(waits, &greeting, 1, 0) == 1);
    (void)close(waits);
    (void)close(late);
    store = free_hooked_store(store);
}

/* A connection that was reset is removed: the store does not poll it in a busy loop. */
static void who_is_reset_is_forgotten(void **state)
{
    (void)state;
    const struct linger at_once = {.l_onoff = 1};
    Error err = ERROR_INIT;
    RendezvousGreeting greeting;
    Rendezvous *store = open_hooked_store();
    int waits = come_and_wait(store), reads = dial(rendezvous_address(store));
    assert_int_equal(recv(reads, &greeting, sizeof(greeting), MSG_WAITALL), sizeof(greeting));
    assert_int_equal(send(reads, &greeting, 8, MSG_NOSIGNAL), 8);
    assert_int_equal(set(store, "both are here", "x", 1, &err), 0);
    for (int i = 0; i < 2; i++) {
        int fd = i ? reads : waits;
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
        (void)close(fd);
    }
    assert_int_equal(set(store, "both have gone", "x", 1, &err), 0);
    atomic_store(&n_polls, 0);
    usleep(20000); /* long enough for many polls; the test passes in any case */
    assert_in_range(atomic_load(&n_polls), 0, 10);
    store = free_hooked_store(store);
}

/* Returns whether another thread of this process blocks the signal. */
static bool other_thread_blocks(int signal)
{
    bool blocks = false;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (const struct dirent *entry; (entry = readdir(tasks));) {
        char path[300], line[256];
        unsigned long long mask = 0;
        (void)snprintf(path, sizeof(path), "/proc/self/task/%s/status",
                       entry->d_name); /* the text fits */
        FILE *status = atoi(entry->d_name) == gettid() ? NULL : fopen(path, "re");
        while (status && fgets(line, sizeof(line), status))
            if (strncmp(line, "SigBlk:", 7) == 0)
                mask = strtoull(line + 7, NULL, 16);
        if (status)
            (void)fclose(status);
        blocks |= (mask >> (signal - 1) & 1) != 0;
    }
    (void)closedir(tasks);
    return blocks;
}

static void signals_are_the_main_threads(void **state)
{
    (void)state;
    sigset_t before, after;
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &before), 0);
    _cleanup_(rendezvous_freep) _unused_ Rendezvous *store = open_store(1);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
    for (int signal = 1; signal < 32; signal++)
        assert_int_equal(sigismember(&before, signal), sigismember(&after, signal));
    assert_true(other_thread_blocks(SIGTERM));
    assert_true(other_thread_blocks(SIGCHLD));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_store_keeps_what_it_has),
        cmocka_unit_test(the_bytes_of_a_store_are_bounded),
        cmocka_unit_test(no_rank_that_waits_makes_way),
        cmocka_unit_test(an_answer_is_written_as_it_is_taken),
        cmocka_unit_test(who_says_half_is_left),
        cmocka_unit_test(descriptors_may_be_short),
        cmocka_unit_test(who_is_reset_is_forgotten),
        cmocka_unit_test(signals_are_the_main_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
