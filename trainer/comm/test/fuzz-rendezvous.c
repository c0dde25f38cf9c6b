/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-rendezvous.c - sends any bytes to the code that connects ranks. The first byte chooses the
 * receiver: the rendezvous store, from a stranger or from a rank that proves its header; the
 * store's client, as a greeting and an answer; or a rank that other ranks call. The receiver
 * refuses or answers the bytes, and the store serves the next request. */
#include "base/clock.h"
#include "trainer/comm/connector.h"
#include "trainer/comm/rendezvous-client.h"
#include "trainer/comm/rendezvous-wire.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);
const char *__lsan_default_suppressions(void);

/* A thread that uses libcrypto has 904 bytes of error state. Only a pthread key points to them, and
 * they are freed when the thread ends. After as many threads as there are thread numbers (32,768),
 * the store's thread has the number of a thread that has ended. LeakSanitizer then takes the
 * store's thread for the ended thread, does not scan its memory, and reports the 904 bytes as
 * lost. */
const char *__lsan_default_suppressions(void) { return "leak:CRYPTO_zalloc\n"; }

typedef struct Input {
    const uint8_t *data;
    size_t n_bytes;
} Input;

static const uint8_t secret[COMM_SECRET_BYTES] = {5};
static const CommKey key = {.generation = 3, .secret = secret};

/* Calls from many source addresses, because the ports of connections that have just ended are not
 * free yet. */
static int dial(const char *address)
{
    static uint32_t n;
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(0x7f010000 + n++ % 0xffff)};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct linger hard = {.l_onoff = 1};
    assert(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard)) == 0);
    int r = bind(fd, (struct sockaddr *)&from, sizeof(from));
    if (r == 0)
        r = connect(fd, (struct sockaddr *)&to, sizeof(to));
    assert(r == 0 || errno == EINTR);
    return fd;
}

static void say(int fd, Input in)
{
    (void)!send(fd, in.data, in.n_bytes, MSG_NOSIGNAL); /* the receiver may have closed */
}

static void try_store(const char *address, Input in, bool prove)
{
    char sink[4096];
    int fd = dial(address);
    RendezvousGreeting greeting;
    RendezvousRequest request;
    for (size_t done = 0; done < sizeof(greeting);) { /* the fuzzer's timer may interrupt recv() */
        ssize_t n = recv(fd, (char *)&greeting + done, sizeof(greeting) - done, 0);
        assert(n > 0 || (n < 0 && errno == EINTR));
        done += n > 0 ? (size_t)n : 0;
    }
    if (prove && in.n_bytes >= 16) {
        memset(&request, 0, sizeof(request));
        memcpy(&request, in.data, 16);
        request.magic = htole32(RENDEZVOUS_MAGIC);
        in = (Input){in.data + 16, in.n_bytes - 16};
        proof_digest(in.data,
                     MIN(rendezvous_request_good(&request) ? rendezvous_body_bytes(&request) : 0,
                         in.n_bytes),
                     request.digest);
        RendezvousProvenRequest asked = rendezvous_proven_request(&greeting, &request);
        proof_make(&key, "ask", &asked, sizeof(asked), request.proof);
        say(fd, (Input){(const uint8_t *)&request, sizeof(request)});
    }
    say(fd, in);
    (void)shutdown(fd, SHUT_WR); /* the store has closed the connection, or sees the end of input */
    for (int turns = 0; turns < 100; turns++) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 100) <= 0 || recv(fd, sink, sizeof(sink), 0) <= 0)
            break;
    }
    (void)close(fd);
}

typedef struct Server {
    int listener;
    Input in;
} Server;

static void *serve(void *arg)
{
    const Server *server = arg;
    int fd = accept(server->listener, NULL, NULL);
    struct linger hard = {.l_onoff = 1};
    if (fd < 0)
        return NULL;
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard)); /* leaves no port in use */
    say(fd, server->in);
    (void)shutdown(fd, SHUT_WR); /* the client may have closed already */
    char sink[256];
    (void)!recv(fd, sink, sizeof(sink), 0); /* reads any request */
    (void)close(fd);
    return NULL;
}

static void try_client(Input in, bool set)
{
    Server server = {.in = in};
    char address[ADDRESS_MAX], value[64];
    Error err = ERROR_INIT;
    pthread_t thread;
    size_t n = 0;
    int r = address_listen("127.0.0.1", 4, &server.listener, address, &err);
    assert(r == 0 && fcntl(server.listener, F_SETFL, 0) == 0);
    r = pthread_create(&thread, NULL, serve, &server);
    assert(r == 0);
    const uint64_t deadline_usec = clock_boottime_usec() + 5 * USEC_PER_MSEC;
    if (set)
        r = rendezvous_set(address, &key, "k", "v", 1, deadline_usec, &err);
    else
        r = rendezvous_get(address, &key, "k", value, sizeof(value), &n, deadline_usec, &err);
    assert(r < 0);                              /* the fuzzer does not know the secret */
    (void)shutdown(server.listener, SHUT_RDWR); /* ends the thread if no client connected */
    r = pthread_join(thread, NULL);
    assert(r == 0);
    (void)close(server.listener);
}

static void try_meeting(Input in)
{
    const CommOptions options = {
        .rank = 0, .size = 3, .prefix = "g3/fuzz", .bind_address = "127.0.0.1", .key = key};
    _cleanup_(connector_freep) Connector *meeting = NULL;
    Error err = ERROR_INIT;
    int peer = -1, r = connector_open(&options, &meeting, &err);
    assert(r == 0);
    int fd = dial(connector_address(meeting));
    say(fd, in);
    r = connector_hold(meeting, clock_boottime_usec() + USEC_PER_MSEC, &peer, &err);
    assert(r == -ETIMEDOUT && peer == 1);
    (void)close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static Rendezvous *store;
    static int n;
    Error err = ERROR_INIT;
    if (n++ % 10000 == 0) { /* the store's number of keys is bounded */
        store = rendezvous_free(store);
        int r = rendezvous_new("127.0.0.1", 2, &key, &store, &err);
        assert(r == 0);
    }
    if (n_bytes < 1)
        return 0;
    const Input in = {data + 1, n_bytes - 1};
    switch (data[0] % 6) {
    case 0:
        try_store(rendezvous_address(store), in, false);
        break;
    case 1:
        try_client(in, false);
        break;
    case 2:
        try_client(in, true);
        break;
    case 3:
        try_meeting(in);
        break;
    default:
        try_store(rendezvous_address(store), in, true);
    }
    return 0;
}
