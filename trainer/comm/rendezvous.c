/* rendezvous.c - the key-value server on rank 0 through which the ranks of a world find each other.
 *
 * A thread of its own serves one request a connection. Everything is bounded: connections, the time
 * one may take to state its request or to take its answer, keys, values, their sum. What is
 * malformed or late is dropped and never disturbs the others. */

#include "base/clock.h"
#include "base/hash.h"
#include "trainer/comm/comm.h"
#include "trainer/comm/rendezvous_wire.h"

#include <endian.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

enum {
    REQUEST_BYTES_MAX = sizeof(RendezvousRequest) + RENDEZVOUS_KEY_MAX + RENDEZVOUS_VALUE_MAX,
    STORE_BYTES_MAX = 64 << 20,
};
#define TRANSFER_USEC (5 * USEC_PER_SEC) /* to state a request; to take an answer */
#define ACCEPT_PAUSE_USEC (100 * USEC_PER_MSEC)

typedef struct Entry {
    Hash key;
    void *value;
    size_t n_bytes;
} Entry;

typedef enum ClientState { CLIENT_READING, CLIENT_WAITING, CLIENT_WRITING } ClientState;

typedef struct Client {
    int fd;
    ClientState state;
    uint64_t deadline_usec;
    Hash key; /* that it waits for */
    char *buffer;
    size_t done, wanted; /* bytes of the request read, or of the answer written */
} Client;

struct Rendezvous {
    char address[NI_MAXHOST + NI_MAXSERV + 4];
    int listener, stop;
    uint64_t accept_after_usec; /* a pause when descriptors are short */
    pthread_t thread;
    bool started;
    /* From here on the thread's alone. */
    Entry *entries;
    size_t n_entries, max_entries, n_bytes;
    Client *clients;
    struct pollfd *polled;
    size_t n_clients, max_clients;
};

static Entry *entry_find(Rendezvous *rendezvous, Hash key)
{
    for (size_t i = 0; i < rendezvous->n_entries; i++) {
        if (hash_equal(rendezvous->entries[i].key, key))
            return &rendezvous->entries[i];
    }
    return NULL;
}

/* 0 or a positive errno for the answer. */
static int entry_set(Rendezvous *rendezvous, Hash key, const void *value, size_t n_bytes)
{
    Entry *entry = entry_find(rendezvous, key);
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
        (Entry){.key = key, .value = copy, .n_bytes = n_bytes};
    rendezvous->n_bytes += n_bytes;
    return 0;
}

static void client_close(Client *client)
{
    client->fd = fd_close(client->fd);
    free(client->buffer);
    client->buffer = NULL;
}

/* Writes what the socket takes; closes when all is out. */
static void client_write(Client *client)
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

static void client_answer(Client *client, int status, const Entry *entry)
{
    size_t value_bytes = entry ? entry->n_bytes : 0;
    assert(sizeof(RendezvousAnswer) + value_bytes <= REQUEST_BYTES_MAX);
    RendezvousAnswer answer = {htole32((uint32_t)status), htole32((uint32_t)value_bytes)};
    memcpy(client->buffer, &answer, sizeof(answer));
    if (entry)
        memcpy(client->buffer + sizeof(answer), entry->value, value_bytes);
    client->state = CLIENT_WRITING;
    client->deadline_usec = clock_boottime_usec() + TRANSFER_USEC;
    client->done = 0;
    client->wanted = sizeof(answer) + value_bytes;
    client_write(client);
}

static void answer_waiting(Rendezvous *rendezvous, const Entry *entry)
{
    for (size_t i = 0; i < rendezvous->n_clients; i++) {
        Client *client = &rendezvous->clients[i];
        if (client->fd >= 0 && client->state == CLIENT_WAITING &&
            hash_equal(client->key, entry->key))
            client_answer(client, 0, entry);
    }
}

static void client_serve(Rendezvous *rendezvous, Client *client, const RendezvousRequest *request)
{
    const char *key_text = client->buffer + sizeof(*request);
    Hash key = hash_bytes(key_text, request->key_bytes);
    if (request->operation == RENDEZVOUS_SET) {
        int status = entry_set(rendezvous, key, key_text + request->key_bytes, request->argument);
        client_answer(client, status, NULL);
        if (status == 0)
            answer_waiting(rendezvous, entry_find(rendezvous, key));
        return;
    }
    const Entry *entry = entry_find(rendezvous, key);
    if (entry) {
        client_answer(client, 0, entry);
        return;
    }
    client->state = CLIENT_WAITING;
    client->key = key;
    client->deadline_usec = clock_boottime_usec() + request->argument * USEC_PER_MSEC;
}

static bool request_good(const RendezvousRequest *request)
{
    if (request->magic != RENDEZVOUS_MAGIC || request->key_bytes == 0 ||
        request->key_bytes > RENDEZVOUS_KEY_MAX)
        return false;
    if (request->operation == RENDEZVOUS_SET)
        return request->argument <= RENDEZVOUS_VALUE_MAX;
    return request->operation == RENDEZVOUS_GET && request->argument <= RENDEZVOUS_WAIT_MSEC_MAX;
}

static void client_read(Rendezvous *rendezvous, Client *client)
{
    ssize_t n = recv(client->fd, client->buffer + client->done, client->wanted - client->done, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        client_close(client);
        return;
    }
    client->done += (size_t)n;
    if (client->done < sizeof(RendezvousRequest))
        return;

    RendezvousRequest request;
    memcpy(&request, client->buffer, sizeof(request));
    request = (RendezvousRequest){le32toh(request.magic), le32toh(request.operation),
                                  le32toh(request.key_bytes), le32toh(request.argument)};
    if (!request_good(&request)) {
        client_answer(client, EINVAL, NULL);
        return;
    }
    client->wanted = sizeof(request) + request.key_bytes +
                     (request.operation == RENDEZVOUS_SET ? request.argument : 0);
    if (client->done == client->wanted)
        client_serve(rendezvous, client, &request);
}

static void client_accept(Rendezvous *rendezvous)
{
    assert(rendezvous->n_clients < rendezvous->max_clients);
    _cleanup_fd_ int fd = accept4(rendezvous->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) { /* who called has gone already, or descriptors are short */
        if (errno != ECONNABORTED && errno != EAGAIN && errno != EINTR)
            rendezvous->accept_after_usec = clock_boottime_usec() + ACCEPT_PAUSE_USEC;
        return;
    }
    char *buffer = malloc(REQUEST_BYTES_MAX);
    if (!buffer)
        return;
    rendezvous->clients[rendezvous->n_clients++] = (Client){
        .fd = TAKE_FD(fd),
        .state = CLIENT_READING,
        .deadline_usec = clock_boottime_usec() + TRANSFER_USEC,
        .buffer = buffer,
        .wanted = sizeof(RendezvousRequest),
    };
}

static void client_advance(Rendezvous *rendezvous, Client *client, short events, uint64_t now)
{
    if (events && client->state == CLIENT_READING)
        client_read(rendezvous, client);
    else if (events && client->state == CLIENT_WRITING)
        client_write(client);
    else if (events) /* one that waits has no more to say: it went away */
        client_close(client);
    if (client->fd < 0 || now < client->deadline_usec)
        return;
    if (client->state == CLIENT_WAITING)
        client_answer(client, ETIMEDOUT, NULL);
    else
        client_close(client);
}

/* Fills the poll list: stop, listener unless there is no room, clients. Returns the poll timeout.
 */
static int poll_prepare(Rendezvous *rendezvous)
{
    struct pollfd *p = rendezvous->polled;
    uint64_t now = clock_boottime_usec(), next = USEC_INFINITY;
    bool room = rendezvous->n_clients < rendezvous->max_clients;
    if (now < rendezvous->accept_after_usec) {
        room = false;
        next = rendezvous->accept_after_usec;
    }
    p[0] = (struct pollfd){.fd = rendezvous->stop, .events = POLLIN};
    p[1] = (struct pollfd){.fd = room ? rendezvous->listener : -1, .events = POLLIN};
    for (size_t i = 0; i < rendezvous->n_clients; i++) {
        const Client *client = &rendezvous->clients[i];
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

static void *serve(void *arg)
{
    Rendezvous *rendezvous = arg;
    for (;;) {
        int timeout = poll_prepare(rendezvous);
        size_t n = rendezvous->n_clients;
        if (poll(rendezvous->polled, 2 + n, timeout) < 0 && errno != EINTR)
            return NULL; /* ENOMEM: the ranks' own deadlines end their waiting */
        if (rendezvous->polled[0].revents)
            return NULL;
        uint64_t now = clock_boottime_usec();
        for (size_t i = 0; i < n; i++) {
            if (rendezvous->clients[i].fd >= 0) /* not closed by an answer just now */
                client_advance(rendezvous, &rendezvous->clients[i],
                               rendezvous->polled[2 + i].revents, now);
        }
        if (rendezvous->polled[1].revents)
            client_accept(rendezvous);

        size_t kept = 0;
        for (size_t i = 0; i < rendezvous->n_clients; i++) {
            if (rendezvous->clients[i].fd >= 0)
                rendezvous->clients[kept++] = rendezvous->clients[i];
        }
        rendezvous->n_clients = kept;
    }
}

static int listen_at(Rendezvous *rendezvous, const char *host, Error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    int e = getaddrinfo(host, "0", &hints, &list);
    if (e != 0)
        return error_set(err, -EINVAL, "rendezvous store at \"%s\": %s", host, gai_strerror(e));
    struct sockaddr_storage bound;
    socklen_t n = sizeof(bound);
    int r = 0;
    rendezvous->listener = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (rendezvous->listener < 0 ||
        bind(rendezvous->listener, list->ai_addr, list->ai_addrlen) < 0 ||
        listen(rendezvous->listener, (int)rendezvous->max_clients) < 0 ||
        getsockname(rendezvous->listener, (struct sockaddr *)&bound, &n) < 0)
        r = error_errno(err, -errno, "rendezvous store: listening at %s", host);
    freeaddrinfo(list);
    if (r < 0)
        return r;

    char name[NI_MAXHOST], port[NI_MAXSERV];
    e = getnameinfo((struct sockaddr *)&bound, n, name, sizeof(name), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV);
    if (e != 0)
        return error_set(err, -EIO, "rendezvous store at %s: %s", host, gai_strerror(e));
    (void)snprintf(rendezvous->address, sizeof(rendezvous->address),
                   strchr(name, ':') ? "[%s]:%s" : "%s:%s", name, port);
    return 0;
}

int rendezvous_new(const char *bind_address, int world_size, Rendezvous **ret, Error *err)
{
    assert(world_size > 0);
    size_t world = (size_t)world_size;
    _cleanup_(rendezvous_freep) Rendezvous *rendezvous = calloc(1, sizeof(*rendezvous));
    if (!rendezvous)
        return error_set(err, -ENOMEM, "rendezvous store: out of memory");
    rendezvous->listener = rendezvous->stop = -EBADF;
    rendezvous->max_entries = 4 * world * world + 1024;
    rendezvous->max_clients = 4 * world + 64;
    rendezvous->entries = calloc(rendezvous->max_entries, sizeof(Entry));
    rendezvous->clients = calloc(rendezvous->max_clients, sizeof(Client));
    rendezvous->polled = calloc(rendezvous->max_clients + 2, sizeof(struct pollfd));
    if (!rendezvous->entries || !rendezvous->clients || !rendezvous->polled)
        return error_set(err, -ENOMEM, "rendezvous store: out of memory");
    int r = listen_at(rendezvous, bind_address, err);
    if (r < 0)
        return r;
    rendezvous->stop = eventfd(0, EFD_CLOEXEC);
    if (rendezvous->stop < 0)
        return error_errno(err, -errno, "rendezvous store: eventfd");

    sigset_t all, before;
    (void)sigfillset(&all); /* signals are the main thread's; neither call can fail so */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    r = -pthread_create(&rendezvous->thread, NULL, serve, rendezvous);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL); /* as above */
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
        (void)!write(rendezvous->stop, &one, sizeof(one)); /* a counter of 0 takes 1 */
        (void)pthread_join(rendezvous->thread, NULL);      /* it exists and is joined once */
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
    free(rendezvous);
    return NULL;
}

const char *rendezvous_address(const Rendezvous *rendezvous) { return rendezvous->address; }
