/* SPDX-License-Identifier: Apache-2.0 */
/* rendezvous-client.c - see rendezvous-client.h. */

#include "trainer/comm/rendezvous-client.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "trainer/comm/address.h"
#include "trainer/comm/rendezvous-wire.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>

enum { AGAIN_MSEC = 100, ANEW_MSEC = 20 };

/* Waits for an event on fd. Reads the clock before the poll: data that arrived by the deadline
 * count, however late this thread polls. */
static int wait_for(int fd, short events, uint64_t deadline_usec)
{
    for (;;) {
        const uint64_t now = clock_boottime_usec();
        const bool late = now >= deadline_usec;
        uint64_t msec = late ? 0 : MIN((deadline_usec - now) / USEC_PER_MSEC + 1, UINT64_C(60000));
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, (int)msec);
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -errno;
        if (late)
            return -ETIMEDOUT;
    }
}

static int dial(const struct addrinfo *address, uint64_t deadline_usec, int *ret)
{
    _cleanup_fd_ int fd = -EBADF;
    int r = address_dial(address, &fd);
    if (r >= 0)
        r = wait_for(fd, POLLOUT, deadline_usec);
    if (r < 0)
        return r;
    int e = 0;
    socklen_t n = sizeof(e);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n) < 0)
        return -errno;
    if (e != 0)
        return -e;
    *ret = TAKE_FD(fd);
    return 0;
}

/* Connects to the first address that accepts. A host or link that has just recovered is reported as
 * unreachable for some seconds, until the kernel's earlier address resolution times out. So after
 * the error "unreachable" the call connects again until the deadline. */
static int dial_any(const struct addrinfo *list, uint64_t deadline_usec, int *ret)
{
    for (int before = 0;;) {
        int r = -EADDRNOTAVAIL;
        for (const struct addrinfo *a = list; a && r < 0 && r != -ETIMEDOUT; a = a->ai_next)
            r = dial(a, deadline_usec, ret);
        /* the earlier error, "unreachable", explains more than a timeout */
        if (before < 0 && r == -ETIMEDOUT)
            return before;
        bool may_come = r == -EHOSTUNREACH || r == -ENETUNREACH;
        before = r;
        if (!may_come || clock_boottime_usec() + AGAIN_MSEC * USEC_PER_MSEC >= deadline_usec)
            return r;
        (void)poll(NULL, 0, AGAIN_MSEC); /* poll() may end early: an earlier try does no harm */
    }
}

/* Sends (POLLOUT) or receives (POLLIN) all of data. */
static int transfer(int fd, short direction, void *data, size_t n_bytes, uint64_t deadline_usec)
{
    char *p = data;
    while (n_bytes > 0) {
        ssize_t n =
            direction == POLLOUT ? send(fd, p, n_bytes, MSG_NOSIGNAL) : recv(fd, p, n_bytes, 0);
        if (n == 0)
            return -ECONNRESET;
        if (n > 0) {
            p += n;
            n_bytes -= (size_t)n;
            continue;
        }
        int r = errno == EINTR ? 0 : -errno;
        if (r == -EAGAIN)
            r = wait_for(fd, direction, deadline_usec);
        if (r < 0)
            return r;
    }
    return 0;
}

typedef struct Question {
    const CommKey *key;
    const char *name;
    uint32_t operation;
    bool look;                      /* GET: answer at once, even if the key is not set */
    char *value;                    /* SET: the value to send; GET: the buffer for the value */
    size_t value_bytes, *ret_bytes; /* size of value; *ret_bytes: bytes received */
    char *body;                     /* the bytes to send after the request's header */
    size_t body_bytes;
} Question;

static int question_make(Question *q)
{
    const size_t key_bytes = strlen(q->name);
    const size_t value_bytes = q->operation == RENDEZVOUS_SET ? q->value_bytes : 0;
    q->body_bytes = key_bytes + value_bytes;
    q->body = malloc(q->body_bytes);
    if (!q->body)
        return -ENOMEM;
    memcpy(q->body, q->name, key_bytes);
    if (value_bytes > 0)
        memcpy(q->body + key_bytes, q->value, value_bytes);
    return 0;
}

static int request_make(const Question *q, const RendezvousGreeting *greeting,
                        uint64_t deadline_usec, RendezvousRequest *ret,
                        RendezvousProvenRequest *ret_asked)
{
    uint64_t now = clock_boottime_usec();
    uint64_t msec = now < deadline_usec ? (deadline_usec - now) / USEC_PER_MSEC : 0;
    msec = q->look ? 0 : MIN(msec, (uint64_t)RENDEZVOUS_WAIT_MSEC_MAX);
    bool set = q->operation == RENDEZVOUS_SET;
    *ret = (RendezvousRequest){
        .magic = htole32(RENDEZVOUS_MAGIC),
        .operation = htole32(q->operation),
        .key_bytes = htole32((uint32_t)strlen(q->name)),
        .argument = htole32(set ? (uint32_t)q->value_bytes : (uint32_t)msec),
    };
    int r = proof_nonce(ret->nonce);
    if (r < 0)
        return r;
    proof_digest(q->body, q->body_bytes, ret->digest);
    *ret_asked = rendezvous_proven_request(greeting, ret);
    proof_make(q->key, "ask", ret_asked, sizeof(*ret_asked), ret->proof);
    return 0;
}

/* Receives the answer and checks its proof. Returns its status, 0 or a positive errno, or -errno. */
static int take_answer(int fd, const Question *q, const RendezvousProvenRequest *asked,
                       uint64_t deadline_usec)
{
    RendezvousAnswer answer;
    int r = transfer(fd, POLLIN, &answer, sizeof(answer), deadline_usec);
    if (r < 0)
        return r;
    uint32_t status = le32toh(answer.status), n = le32toh(answer.value_bytes);
    if (status > 4095 || n > (q->operation == RENDEZVOUS_GET ? q->value_bytes : 0))
        return -EPROTO;
    r = transfer(fd, POLLIN, q->value, n, deadline_usec);
    if (r < 0)
        return r;
    const RendezvousProvenAnswer told = rendezvous_proven_answer(asked, &answer, q->value);
    if (!proof_good(q->key, "tell", &told, sizeof(told), answer.proof))
        return -EPROTO;
    if (status == 0 && q->ret_bytes)
        *q->ret_bytes = n;
    return q->look && status == ETIMEDOUT ? ENOENT : (int)status;
}

/* Sends one request and returns the status of the answer, or -errno. */
static int send_question(int fd, const Question *q, uint64_t deadline_usec)
{
    RendezvousGreeting greeting;
    RendezvousRequest request;
    RendezvousProvenRequest asked;
    int r = transfer(fd, POLLIN, &greeting, sizeof(greeting), deadline_usec);
    if (r < 0)
        return r;
    if (le32toh(greeting.magic) != RENDEZVOUS_MAGIC)
        return -EPROTO;
    r = request_make(q, &greeting, deadline_usec, &request, &asked);
    if (r >= 0)
        r = transfer(fd, POLLOUT, &request, sizeof(request), deadline_usec);
    if (r >= 0)
        r = transfer(fd, POLLOUT, (void *)q->body, q->body_bytes, deadline_usec);
    return r < 0 ? r : take_answer(fd, q, &asked, deadline_usec);
}

/* Sends the request, and connects again if the store drops the connection, as it may when strangers
 * take all places of the store. If the store has ended, a new connection is refused, which ends the
 * loop. -ECONNRESET (the store dropped a connection) takes precedence over -ETIMEDOUT; an answer of
 * the store takes precedence over both errors. */
static int request_until(const struct addrinfo *list, const Question *q, uint64_t deadline_usec)
{
    for (bool before = false;;) {
        _cleanup_fd_ int fd = -EBADF;
        int r = dial_any(list, deadline_usec, &fd);
        if (r >= 0)
            r = send_question(fd, q, deadline_usec);
        const bool dropped = r == -ECONNRESET || r == -EPIPE;
        before = before || dropped;
        if (!dropped && !(before && r == -ETIMEDOUT))
            return r;
        if (!dropped || clock_boottime_usec() + ANEW_MSEC * USEC_PER_MSEC >= deadline_usec)
            return -ECONNRESET;
        (void)poll(NULL, 0, ANEW_MSEC); /* poll() may end early: an earlier try does no harm */
    }
}

static int dial_and_request(const char *address, Question *q, uint64_t deadline_usec, Error *err)
{
    const char *verb = q->operation == RENDEZVOUS_SET ? "setting" : "waiting for";
    const size_t key_bytes = strlen(q->name);
    if (key_bytes == 0 || key_bytes > RENDEZVOUS_KEY_MAX)
        return error_set(err, -EINVAL, "rendezvous store %s: key of %zu bytes", address, key_bytes);
    if (q->operation == RENDEZVOUS_SET && q->value_bytes > RENDEZVOUS_VALUE_MAX)
        return error_set(err, -EINVAL, "rendezvous store %s: %s %s: value of %zu bytes", address,
                         verb, q->name, q->value_bytes);

    struct addrinfo *list = NULL;
    int r = address_resolve(address, false, &list, err);
    if (r < 0)
        return error_prefix(err, r, "rendezvous store");
    r = question_make(q);
    if (r >= 0)
        r = request_until(list, q, deadline_usec);
    freeaddrinfo(list);
    free(q->body);
    if (r > 0)
        r = -r;
    if (r < 0)
        return error_errno(err, r, "rendezvous store %s: %s %s", address, verb, q->name);
    return 0;
}

int rendezvous_set(const char *address, const CommKey *key, const char *name, const void *value,
                   size_t n_bytes, uint64_t deadline_usec, Error *err)
{
    Question q = {.key = key,
                  .name = name,
                  .operation = RENDEZVOUS_SET,
                  .value = (char *)(uintptr_t)value, /* a SET request only reads the value */
                  .value_bytes = n_bytes};
    return dial_and_request(address, &q, deadline_usec, err);
}

static int get(const char *address, const CommKey *key, const char *name, bool look, void *ret,
               size_t max_bytes, size_t *ret_bytes, uint64_t deadline_usec, Error *err)
{
    Question q = {.key = key,
                  .name = name,
                  .operation = RENDEZVOUS_GET,
                  .look = look,
                  .value = ret,
                  .value_bytes = max_bytes,
                  .ret_bytes = ret_bytes};
    return dial_and_request(address, &q, deadline_usec, err);
}

int rendezvous_look(const char *address, const CommKey *key, const char *name, void *ret,
                    size_t max_bytes, size_t *ret_bytes, uint64_t deadline_usec, Error *err)
{
    return get(address, key, name, true, ret, max_bytes, ret_bytes, deadline_usec, err);
}

int rendezvous_get(const char *address, const CommKey *key, const char *name, void *ret,
                   size_t max_bytes, size_t *ret_bytes, uint64_t deadline_usec, Error *err)
{
    return get(address, key, name, false, ret, max_bytes, ret_bytes, deadline_usec, err);
}
