/* SPDX-License-Identifier: Apache-2.0 */
/* rendezvous.c - the key-value server on rank 0 through which the ranks of a world find each other.
 *
 * Its own thread serves one request per connection. Everything is bounded: the number of connections, the time that a
 * connection may need to send its request or to read its answer, the number of keys, the size of each value, and the
 * size of all values together. A request that is malformed, late or not proven is dropped and never disturbs other
 * requests: unproven connections (strangers) have their own limited number of places and little memory each, and a new
 * stranger replaces the oldest.
 *
 * A request that arrived by a deadline counts, even if this thread was delayed beyond the deadline: each turn reads
 * the clock, then polls, then reads all that has arrived, and only then reports that a rank is late. */

#include "base/clock.h"
#include "base/number/hash.h"
#include "trainer/comm/address.h"
#include "trainer/comm/comm.h"
#include "trainer/comm/rendezvous-wire.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

enum {
    BUFFER_BYTES = RENDEZVOUS_BODY_MAX, /* room for a request's body or for an answer */
    STORE_BYTES_MAX = 64 << 20,
    STRANGERS_MAX = 256,
    ACCEPTS_A_TURN = 64,
};
#define STRANGER_USEC (2 * USEC_PER_SEC) /* time for a stranger to prove that it is a rank */
#define TRANSFER_USEC (5 * USEC_PER_SEC) /* time to send a request, and time to read an answer */
#define ACCEPT_PAUSE_USEC (100 * USEC_PER_MSEC)

static_assert(RENDEZVOUS_BODY_MAX >= RENDEZVOUS_VALUE_MAX + (int)sizeof(RendezvousAnswer),
              "an answer fits where a request was");

typedef struct RendezvousEntry {
    Hash key;
    void *value;
    size_t n_bytes;
} RendezvousEntry;

/* A connection is a stranger's until its header is proven; then it is a rank's. */
typedef enum ClientState {
    CLIENT_STRANGER,
    CLIENT_READING,
    CLIENT_WAITING,
    CLIENT_WRITING
} ClientState;

typedef struct RendezvousPeer {
    int fd;
    ClientState state;
    uint64_t deadline_usec;
    RendezvousGreeting greeting;
    RendezvousRequest request;
    RendezvousProvenRequest asked;
    Hash key;            /* CLIENT_WAITING: the key whose value the client waits for */
    char *buffer;        /* only for a client that is a rank: its key and value, later the answer */
    size_t done, wanted; /* bytes read or written so far; bytes to read or write */
} RendezvousPeer;

struct Rendezvous {
    char address[ADDRESS_MAX];
    int listener, stop;
    CommKey key;
    uint8_t secret[COMM_SECRET_BYTES];
    /* after descriptors ran out: accept no connection before this time */
    uint64_t accept_after_usec;
    pthread_t thread;
    bool started;
    /* Only the server thread uses the fields from here on. */
    RendezvousEntry *entries;
    size_t n_entries, max_entries, n_bytes;
    RendezvousPeer *clients; /* in order of arrival */
    struct pollfd *polled;
    uint64_t n_connections;
    size_t n_clients, max_ranks;
};

static RendezvousEntry *entry_find(Rendezvous *rendezvous, Hash key)
{
    for (size_t i = 0; i < rendezvous->n_entries; i++) {
        if (hash_equal(rendezvous->entries[i].key, key))
            return &rendezvous->entries[i];
    }
    return NULL;
}

/* Sets a key. Returns 0 or a positive errno, for the answer. */
static int entry_set(Rendezvous *rendezvous, Hash key, const void *value, size_t n_bytes)
{
    RendezvousEntry *entry = entry_find(rendezvous, key);
    if (entry)
        return entry->n_bytes == n_bytes && memcmp(entry->value, value, n_bytes) == 0 ? 0 : EEXIST;
    if (rendezvous->n_entries == rendezvous->max_entries ||
        rendezvous->n_bytes + n_bytes > STORE_BYTES_MAX)
        return ENOSPC;
    void *copy = malloc(MAX(n_bytes, (size_t)1));
    if (!copy)
        return ENOMEM;
    memcpy(copy, value, n_bytes);
    rendezvous->entries[rendezvous->n_entries++] =
        (RendezvousEntry){.key = key, .value = copy, .n_bytes = n_bytes};
    rendezvous->n_bytes += n_bytes;
    return 0;
}

static void client_close(RendezvousPeer *client)
{
    client->fd = fd_close(client->fd);
    free(client->buffer);
    client->buffer = NULL;
}

static size_t count_clients(const Rendezvous *rendezvous, bool strangers)
{
    size_t n = 0;
    for (size_t i = 0; i < rendezvous->n_clients; i++) {
        const RendezvousPeer *client = &rendezvous->clients[i];
        n += client->fd >= 0 && (client->state == CLIENT_STRANGER) == strangers;
    }
    return n;
}

/* Writes as much as the socket accepts; closes the connection when everything is written. */
static void client_write(RendezvousPeer *client)
{
    while (client->done < client->wanted) {
        ssize_t n = send(client->fd, client->buffer + client->done, client->wanted - client->done,
                         MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0)
            break;
        client->done += (size_t)n;
    }
    client_close(client);
}

static void client_answer(const Rendezvous *rendezvous, RendezvousPeer *client, int status,
                          const RendezvousEntry *entry)
{
    size_t value_bytes = entry ? entry->n_bytes : 0;
    assert(sizeof(RendezvousAnswer) + value_bytes <= BUFFER_BYTES);
    const char *value = entry ? entry->value : "";
    RendezvousAnswer answer = {.status = htole32((uint32_t)status),
                               .value_bytes = htole32((uint32_t)value_bytes)};
    const RendezvousProvenAnswer told = rendezvous_proven_answer(&client->asked, &answer, value);
    proof_make(&rendezvous->key, "tell", &told, sizeof(told), answer.proof);
    memcpy(client->buffer, &answer, sizeof(answer));
    memcpy(client->buffer + sizeof(answer), value, value_bytes);
    client->state = CLIENT_WRITING;
    client->deadline_usec = clock_boottime_usec() + TRANSFER_USEC;
    client->done = 0;
    client->wanted = sizeof(answer) + value_bytes;
    client_write(client);
}

static void answer_waiting(Rendezvous *rendezvous, const RendezvousEntry *entry)
{
    for (size_t i = 0; i < rendezvous->n_clients; i++) {
        RendezvousPeer *client = &rendezvous->clients[i];
        if (client->fd >= 0 && client->state == CLIENT_WAITING &&
            hash_equal(client->key, entry->key))
            client_answer(rendezvous, client, 0, entry);
    }
}

static void client_serve(Rendezvous *rendezvous, RendezvousPeer *client)
{
    const RendezvousRequest *request = &client->request;
    const size_t key_bytes = le32toh(request->key_bytes);
    const uint32_t argument = le32toh(request->argument);
    Hash key = hash_bytes(client->buffer, key_bytes);
    uint8_t digest[PROOF_DIGEST_BYTES];
    proof_digest(client->buffer, client->done, digest);
    if (memcmp(digest, request->digest, sizeof(digest)) != 0) {
        client_close(client);
        return;
    }
    if (le32toh(request->operation) == RENDEZVOUS_SET) {
        int status = entry_set(rendezvous, key, client->buffer + key_bytes, argument);
        client_answer(rendezvous, client, status, NULL);
        if (status == 0)
            answer_waiting(rendezvous, entry_find(rendezvous, key));
        return;
    }
    const RendezvousEntry *entry = entry_find(rendezvous, key);
    if (entry) {
        client_answer(rendezvous, client, 0, entry);
        return;
    }
    client->state = CLIENT_WAITING;
    client->key = key;
    client->deadline_usec = clock_boottime_usec() + argument * USEC_PER_MSEC;
}

/* Receives more bytes. Returns true when all wanted bytes have arrived; returns false when some
 * have not arrived yet, or the connection is closed. */
static bool client_receive(RendezvousPeer *client, void *to)
{
    ssize_t n = recv(client->fd, (char *)to + client->done, client->wanted - client->done, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) {
        client_close(client);
        return false;
    }
    client->done += (size_t)n;
    return client->done == client->wanted;
}

/* Checks a stranger's complete header: the connection becomes a rank's, or is closed without an
 * answer. */
static void client_admit(Rendezvous *rendezvous, RendezvousPeer *client)
{
    client->asked = rendezvous_proven_request(&client->greeting, &client->request);
    if (!rendezvous_request_good(&client->request) ||
        !proof_good(&rendezvous->key, "ask", &client->asked, sizeof(client->asked),
                    client->request.proof) ||
        count_clients(rendezvous, false) >= rendezvous->max_ranks) {
        client_close(client);
        return;
    }
    client->buffer = malloc(BUFFER_BYTES);
    if (!client->buffer) {
        client_close(client);
        return;
    }
    client->state = CLIENT_READING;
    client->deadline_usec = clock_boottime_usec() + TRANSFER_USEC;
    client->done = 0;
    client->wanted = rendezvous_body_bytes(&client->request);
}

static void client_read(Rendezvous *rendezvous, RendezvousPeer *client)
{
    if (client->state == CLIENT_STRANGER && client_receive(client, &client->request))
        client_admit(rendezvous, client);
    if (client->fd >= 0 && client->state == CLIENT_READING &&
        client_receive(client, client->buffer))
        client_serve(rendezvous, client);
}

/* Closes the oldest stranger if there are too many strangers. The newest strangers still have most
 * of their 2 s left. */
static void make_room(Rendezvous *rendezvous)
{
    if (count_clients(rendezvous, true) < STRANGERS_MAX)
        return;
    size_t i = 0;
    while (rendezvous->clients[i].fd < 0 || rendezvous->clients[i].state != CLIENT_STRANGER)
        i++;
    client_close(&rendezvous->clients[i]);
    rendezvous->n_clients--;
    memmove(&rendezvous->clients[i], &rendezvous->clients[i + 1],
            (rendezvous->n_clients - i) * sizeof(RendezvousPeer));
}

/* Accepts a new connection. Returns false when there is no connection to accept. */
static bool client_accept(Rendezvous *rendezvous)
{
    _cleanup_fd_ int fd = accept4(rendezvous->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) { /* the caller has closed its connection, or the process is out of descriptors */
        if (errno != ECONNABORTED && errno != EAGAIN && errno != EINTR)
            rendezvous->accept_after_usec = clock_boottime_usec() + ACCEPT_PAUSE_USEC;
        return false;
    }
    make_room(rendezvous);
    assert(rendezvous->n_clients < rendezvous->max_ranks + STRANGERS_MAX);
    RendezvousPeer client = {
        .state = CLIENT_STRANGER,
        .deadline_usec = clock_boottime_usec() + STRANGER_USEC,
        .greeting = {.magic = htole32(RENDEZVOUS_MAGIC),
                     .counter = htole64(++rendezvous->n_connections)},
        .wanted = sizeof(RendezvousRequest),
    };
    /* The send buffer of a new socket has room for the greeting. */
    if (proof_nonce(client.greeting.nonce) < 0 ||
        send(fd, &client.greeting, sizeof(client.greeting), MSG_NOSIGNAL) !=
            sizeof(client.greeting))
        return true;
    client.fd = TAKE_FD(fd);
    rendezvous->clients[rendezvous->n_clients++] = client;
    return true;
}

static void client_advance(Rendezvous *rendezvous, RendezvousPeer *client, short events)
{
    if (events && (client->state == CLIENT_STRANGER || client->state == CLIENT_READING))
        client_read(rendezvous, client);
    else if (events && client->state == CLIENT_WRITING)
        client_write(client);
    else if (events) /* a waiting client sends nothing more, so it closed the connection */
        client_close(client);
}

static void client_expire(Rendezvous *rendezvous, RendezvousPeer *client, uint64_t now)
{
    if (now < client->deadline_usec)
        return;
    if (client->state == CLIENT_WAITING)
        client_answer(rendezvous, client, ETIMEDOUT, NULL);
    else
        client_close(client);
}

/* Fills the poll list: stop, listener, clients. Returns the poll timeout. */
static int poll_prepare(Rendezvous *rendezvous, uint64_t now)
{
    struct pollfd *p = rendezvous->polled;
    uint64_t next = USEC_INFINITY;
    bool pause = now < rendezvous->accept_after_usec;
    if (pause)
        next = rendezvous->accept_after_usec;
    p[0] = (struct pollfd){.fd = rendezvous->stop, .events = POLLIN};
    p[1] = (struct pollfd){.fd = pause ? -1 : rendezvous->listener, .events = POLLIN};
    for (size_t i = 0; i < rendezvous->n_clients; i++) {
        const RendezvousPeer *client = &rendezvous->clients[i];
        p[2 + i] = (struct pollfd){
            .fd = client->fd,
            .events = client->state == CLIENT_WRITING ? POLLOUT : POLLIN,
        };
        next = MIN(next, client->deadline_usec);
    }
    if (next == USEC_INFINITY)
        return -1;
    return next <= now ? 0 : (int)MIN((next - now) / USEC_PER_MSEC + 1, UINT64_C(60000));
}

static void drop_closed(Rendezvous *rendezvous)
{
    size_t kept = 0;
    for (size_t i = 0; i < rendezvous->n_clients; i++) {
        if (rendezvous->clients[i].fd >= 0)
            rendezvous->clients[kept++] = rendezvous->clients[i];
    }
    rendezvous->n_clients = kept;
}

static void *serve_rendezvous(void *arg)
{
    Rendezvous *rendezvous = arg;
    for (;;) {
        const uint64_t now = clock_boottime_usec();
        int timeout = poll_prepare(rendezvous, now);
        size_t n = rendezvous->n_clients;
        /* out of memory: the store ends, and the ranks stop waiting at their own deadlines */
        if (poll(rendezvous->polled, 2 + n, timeout) < 0 && errno != EINTR)
            return NULL;
        if (rendezvous->polled[0].revents)
            return NULL;
        for (size_t i = 0; i < n; i++) {
            /* an answer in this turn may have closed this client */
            if (rendezvous->clients[i].fd >= 0)
                client_advance(rendezvous, &rendezvous->clients[i],
                               rendezvous->polled[2 + i].revents);
        }
        for (size_t i = 0; i < n; i++) {
            if (rendezvous->clients[i].fd >= 0)
                client_expire(rendezvous, &rendezvous->clients[i], now);
        }
        drop_closed(rendezvous);
        if (rendezvous->polled[1].revents)
            for (int k = 0; k < ACCEPTS_A_TURN && client_accept(rendezvous); k++)
                ;
    }
}

int rendezvous_new(const char *bind_address, int world_size, const CommKey *key, Rendezvous **ret,
                   Error *err)
{
    assert(world_size > 0);
    size_t world = (size_t)world_size;
    _cleanup_(rendezvous_freep) Rendezvous *rendezvous = calloc(1, sizeof(*rendezvous));
    if (!rendezvous)
        return error_set(err, -ENOMEM, "rendezvous store: out of memory");
    rendezvous->listener = rendezvous->stop = -EBADF;
    rendezvous->max_entries = 4 * world * world + 1024;
    rendezvous->max_ranks = 4 * world + 64;
    const size_t max_clients = rendezvous->max_ranks + STRANGERS_MAX;
    rendezvous->key.generation = key->generation;
    if (key->secret) {
        memcpy(rendezvous->secret, key->secret, COMM_SECRET_BYTES);
        rendezvous->key.secret = rendezvous->secret;
    }
    rendezvous->entries = calloc(rendezvous->max_entries, sizeof(RendezvousEntry));
    rendezvous->clients = calloc(max_clients, sizeof(RendezvousPeer));
    rendezvous->polled = calloc(max_clients + 2, sizeof(struct pollfd));
    if (!rendezvous->entries || !rendezvous->clients || !rendezvous->polled)
        return error_set(err, -ENOMEM, "rendezvous store: out of memory");
    int r = address_listen(bind_address, (int)max_clients, &rendezvous->listener,
                           rendezvous->address, err);
    if (r < 0)
        return error_prefix(err, r, "rendezvous store");
    rendezvous->stop = eventfd(0, EFD_CLOEXEC);
    if (rendezvous->stop < 0)
        return error_errno(err, -errno, "rendezvous store: eventfd");

    sigset_t all, before;
    /* signals are for the main thread, not for the new thread; neither call can fail */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    r = -pthread_create(&rendezvous->thread, NULL, serve_rendezvous, rendezvous);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL); /* cannot fail */
    if (r < 0)
        return error_errno(err, r, "rendezvous store: starting its thread");
    rendezvous->started = true;
    *ret = TAKE_PTR(rendezvous);
    return 0;
}

Rendezvous *rendezvous_free(Rendezvous *rendezvous)
{
    if (!rendezvous)
        return NULL;
    if (rendezvous->started) {
        uint64_t one = 1;
        (void)!write(rendezvous->stop, &one, sizeof(one)); /* the counter is 0, so adding 1 works */
        /* cannot fail: only this line joins the thread */
        (void)pthread_join(rendezvous->thread, NULL);
    }
    for (size_t i = 0; i < rendezvous->n_clients; i++)
        client_close(&rendezvous->clients[i]);
    for (size_t i = 0; i < rendezvous->n_entries; i++)
        free(rendezvous->entries[i].value);
    (void)fd_close(rendezvous->listener);
    (void)fd_close(rendezvous->stop);
    free(rendezvous->entries);
    free(rendezvous->clients);
    free(rendezvous->polled);
    explicit_bzero(rendezvous->secret, sizeof(rendezvous->secret));
    free(rendezvous);
    return NULL;
}

const char *rendezvous_address(const Rendezvous *rendezvous) { return rendezvous->address; }
