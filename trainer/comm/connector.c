/* SPDX-License-Identifier: Apache-2.0 */
/* connector.c - see connector.h.
 *
 * One loop handles all connections, outgoing and incoming. The messages are so short that a new socket
 * always has room for them. If the called rank drops a call before the proof, because strangers take all
 * places of that rank, the call is repeated. If a call is refused, it is not repeated: no process
 * listens at that address any more.
 *
 * A message that arrived before a deadline counts, even if this process was delayed beyond the deadline:
 * each turn reads the clock, then polls, and only then reports that a rank is late. */

#include "trainer/comm/connector.h"

#include "base/clock.h"
#include "trainer/comm/proof.h"

#include <endian.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#define CONNECTOR_MAGIC UINT32_C(0x3174656d) /* "met1" */

enum {
    STRANGERS_MAX = 256,
    ACCEPTS_A_TURN = 64,
    AGAIN_MSEC = 100,
    ANEW_MSEC = 20,
    PREFIX_MAX = 64,
    /* connections wait in the backlog until this rank knows the addresses of the lower ranks */
    BACKLOG = 4096
};
#define STRANGER_USEC (2 * USEC_PER_SEC)

typedef struct Greeting {
    uint32_t magic, zero;
    uint8_t nonce[NONCE_BYTES];
} Greeting;

typedef struct Call {
    uint32_t magic;
    uint32_t from, to, zero;
    uint8_t nonce[NONCE_BYTES];
    uint8_t proof[PROOF_BYTES];
} Call;

typedef struct Reply {
    uint8_t proof[PROOF_BYTES];
} Reply;

/* The text that a proof covers. The proofs of call and reply cover the same text, but each proof
 * has its own purpose. */
typedef struct ProofText {
    char prefix[PREFIX_MAX];
    Greeting greeting;
    uint32_t from, to;
    uint8_t nonce[NONCE_BYTES];
} ProofText;

static_assert(sizeof(Greeting) == 24 && sizeof(Call) == 64 && sizeof(Reply) == 32 &&
                  sizeof(ProofText) == PREFIX_MAX + 24 + 8 + NONCE_BYTES,
              "the wire has no padding");

typedef enum TalkState {
    TALK_WAITS,      /* the caller waits until deadline_usec, then calls again */
    TALK_CONNECTING, /* the caller connects */
    TALK_GREETING,   /* the caller reads the greeting */
    TALK_CALL,       /* the called rank reads the call; the caller counts as a stranger */
    TALK_REPLY,      /* the caller reads the reply */
} TalkState;

typedef struct Talk {
    int fd;
    bool gone; /* the talk is to be removed from Connector.talks */
    TalkState state;
    int peer; /* the called rank, if this is an outgoing connection */
    uint64_t deadline_usec;
    union {
        Greeting greeting;
        Call call;
        Reply reply;
        char bytes[sizeof(Call)];
    } in;
    size_t done, wanted;
    ProofText said;
} Talk;

struct Connector {
    const CommOptions *options;
    char address[ADDRESS_MAX];
    int listener;
    uint64_t accept_after_usec;
    struct addrinfo **at; /* [size] addresses of the lower ranks */
    int *met;             /* [size] connections; -EBADF: not connected yet */
    Talk *talks;          /* outgoing calls first, then strangers in order of arrival */
    struct pollfd *polled;
    size_t n_talks, max_talks;
    int n_met;
};

static int size_of(const Connector *m) { return m->options->size; }

int connector_open(const CommOptions *options, Connector **ret, Error *err)
{
    const size_t size = (size_t)options->size;
    _cleanup_(connector_freep) Connector *m = calloc(1, sizeof(*m));
    if (!m)
        return error_set(err, -ENOMEM, "out of memory");
    m->options = options;
    m->listener = -EBADF;
    m->max_talks = size + STRANGERS_MAX;
    m->at = calloc(size, sizeof(*m->at));
    m->met = malloc(size * sizeof(*m->met));
    m->talks = calloc(m->max_talks, sizeof(*m->talks));
    m->polled = calloc(m->max_talks + 1, sizeof(*m->polled));
    for (size_t i = 0; m->met && i < size; i++)
        m->met[i] = -EBADF;
    if (!m->at || !m->met || !m->talks || !m->polled)
        return error_set(err, -ENOMEM, "out of memory");
    int r = address_listen(options->bind_address, BACKLOG, &m->listener, m->address, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(m);
    return 0;
}

Connector *connector_free(Connector *m)
{
    if (!m)
        return NULL;
    for (size_t i = 0; i < m->n_talks; i++)
        (void)fd_close(m->talks[i].fd);
    for (int i = 0; i < size_of(m); i++) {
        if (m->met)
            (void)fd_close(m->met[i]);
        if (m->at && m->at[i])
            freeaddrinfo(m->at[i]);
    }
    (void)fd_close(m->listener);
    free(m->at);
    free(m->met);
    free(m->talks);
    free(m->polled);
    free(m);
    return NULL;
}

const char *connector_address(const Connector *m) { return m->address; }

int connector_take(Connector *m, int peer)
{
    assert(m->met[peer] >= 0);
    return TAKE_FD(m->met[peer]);
}

/* ---- one connection ---- */

/* Stores the connection with a peer. A rank may connect twice, if its first connection broke before
 * it got the reply: then the new connection replaces the first connection. */
static void note_met(Connector *m, Talk *talk, int peer)
{
    if (m->met[peer] >= 0)
        (void)fd_close(m->met[peer]);
    else
        m->n_met++;
    m->met[peer] = TAKE_FD(talk->fd);
    talk->gone = true;
}

static void drop(Talk *talk)
{
    talk->fd = fd_close(talk->fd);
    talk->gone = true;
}

static void call_again(Talk *talk, uint64_t after_msec)
{
    talk->fd = fd_close(talk->fd);
    talk->state = TALK_WAITS;
    talk->deadline_usec = clock_boottime_usec() + after_msec * USEC_PER_MSEC;
}

static void expect(Talk *talk, TalkState state, size_t n_bytes)
{
    talk->state = state;
    talk->done = 0;
    talk->wanted = n_bytes;
}

static ProofText proof_text(const Connector *m, const Greeting *greeting, int from, int to,
                            const uint8_t *nonce)
{
    ProofText said = {.greeting = *greeting,
                      .from = htole32((uint32_t)from),
                      .to = htole32((uint32_t)to)};
    /* a long prefix is cut */
    (void)snprintf(said.prefix, sizeof(said.prefix), "%s", m->options->prefix);
    memcpy(said.nonce, nonce, NONCE_BYTES);
    return said;
}

static void begin_call(const Connector *m, Talk *talk)
{
    int r = address_dial(m->at[talk->peer], &talk->fd);
    talk->state = TALK_CONNECTING;
    talk->deadline_usec = USEC_INFINITY;
    if (r < 0)
        call_again(talk, AGAIN_MSEC);
}

/* Returns 0, or -errno if no process listens at the peer's address or the socket cannot be queried. */
static int end_connecting(Talk *talk)
{
    int e = 0;
    socklen_t n = sizeof(e);
    if (getsockopt(talk->fd, SOL_SOCKET, SO_ERROR, &e, &n) < 0)
        return -errno;
    if (e == ECONNREFUSED)
        return -e;
    if (e != 0)
        call_again(talk, AGAIN_MSEC);
    else
        expect(talk, TALK_GREETING, sizeof(Greeting));
    return 0;
}

static void answer_greeting(const Connector *m, Talk *talk)
{
    const Greeting greeting = talk->in.greeting;
    Call call = {.magic = htole32(CONNECTOR_MAGIC),
                 .from = htole32((uint32_t)m->options->rank),
                 .to = htole32((uint32_t)talk->peer)};
    if (greeting.magic != htole32(CONNECTOR_MAGIC) || proof_nonce(call.nonce) < 0) {
        call_again(talk, ANEW_MSEC);
        return;
    }
    talk->said = proof_text(m, &greeting, m->options->rank, talk->peer, call.nonce);
    proof_make(&m->options->key, "call", &talk->said, sizeof(talk->said), call.proof);
    if (send(talk->fd, &call, sizeof(call), MSG_NOSIGNAL) != sizeof(call))
        call_again(talk, ANEW_MSEC);
    else
        expect(talk, TALK_REPLY, sizeof(Reply));
}

static void take_call(Connector *m, Talk *talk)
{
    const Call *call = &talk->in.call;
    const uint32_t from = le32toh(call->from);
    if (call->magic != htole32(CONNECTOR_MAGIC) ||
        le32toh(call->to) != (uint32_t)m->options->rank || from <= (uint32_t)m->options->rank ||
        from >= (uint32_t)size_of(m)) {
        drop(talk);
        return;
    }
    const ProofText said =
        proof_text(m, &talk->said.greeting, (int)from, m->options->rank, call->nonce);
    Reply reply;
    proof_make(&m->options->key, "reply", &said, sizeof(said), reply.proof);
    if (!proof_good(&m->options->key, "call", &said, sizeof(said), call->proof) ||
        send(talk->fd, &reply, sizeof(reply), MSG_NOSIGNAL) != sizeof(reply))
        drop(talk);
    else
        note_met(m, talk, (int)from);
}

static void take_reply(Connector *m, Talk *talk)
{
    if (proof_good(&m->options->key, "reply", &talk->said, sizeof(talk->said),
                   talk->in.reply.proof))
        note_met(m, talk, talk->peer);
    /* another process answered; the called rank may still start at this address */
    else
        call_again(talk, AGAIN_MSEC);
}

static void read_more(Connector *m, Talk *talk)
{
    ssize_t n = recv(talk->fd, talk->in.bytes + talk->done, talk->wanted - talk->done, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        if (talk->state == TALK_CALL)
            drop(talk);
        else
            call_again(talk, ANEW_MSEC);
        return;
    }
    talk->done += (size_t)n;
    if (talk->done < talk->wanted)
        return;
    if (talk->state == TALK_GREETING)
        answer_greeting(m, talk);
    else if (talk->state == TALK_CALL)
        take_call(m, talk);
    else
        take_reply(m, talk);
}

/* ---- all connections ---- */

static Talk *add_talk(Connector *m)
{
    assert(m->n_talks < m->max_talks);
    Talk *talk = &m->talks[m->n_talks++];
    *talk = (Talk){.fd = -EBADF};
    return talk;
}

int connector_call(Connector *m, int peer, const char *address, Error *err)
{
    assert(peer < m->options->rank && !m->at[peer]);
    int r = address_resolve(address, true, &m->at[peer], err);
    if (r < 0)
        return error_prefix(err, -EPROTO, "rank %d says where it listens", peer);
    Talk *talk = add_talk(m);
    talk->peer = peer;
    begin_call(m, talk);
    return 0;
}

static void remove_talk(Connector *m, size_t i)
{
    m->n_talks--;
    memmove(&m->talks[i], &m->talks[i + 1], (m->n_talks - i) * sizeof(Talk));
}

static void make_room(Connector *m)
{
    size_t n = 0, oldest = 0;
    for (size_t i = m->n_talks; i-- > 0;) {
        if (m->talks[i].state == TALK_CALL) {
            oldest = i;
            n++;
        }
    }
    if (n < STRANGERS_MAX)
        return;
    drop(&m->talks[oldest]);
    remove_talk(m, oldest);
}

/* Accepts one connection and sends the greeting. Returns false if there is no connection to
 * accept. */
static bool accept_one(Connector *m)
{
    _cleanup_fd_ int fd = accept4(m->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno != ECONNABORTED && errno != EAGAIN && errno != EINTR)
            m->accept_after_usec = clock_boottime_usec() + AGAIN_MSEC * USEC_PER_MSEC;
        return false;
    }
    Greeting greeting = {.magic = htole32(CONNECTOR_MAGIC)};
    if (proof_nonce(greeting.nonce) < 0 ||
        send(fd, &greeting, sizeof(greeting), MSG_NOSIGNAL) != sizeof(greeting))
        return true;
    make_room(m);
    Talk *talk = add_talk(m);
    talk->fd = TAKE_FD(fd);
    talk->said.greeting = greeting;
    talk->deadline_usec = clock_boottime_usec() + STRANGER_USEC;
    expect(talk, TALK_CALL, sizeof(Call));
    return true;
}

static int advance(Connector *m, Talk *talk, short events, uint64_t now)
{
    if (talk->state == TALK_WAITS) {
        if (now >= talk->deadline_usec)
            begin_call(m, talk);
        return 0;
    }
    int r = 0;
    if (events && talk->state == TALK_CONNECTING)
        r = end_connecting(talk);
    else if (events)
        read_more(m, talk);
    if (r == 0 && !talk->gone && talk->state == TALK_CALL && now >= talk->deadline_usec)
        drop(talk);
    return r;
}

static int wait_for_words(Connector *m, uint64_t now, uint64_t deadline_usec)
{
    uint64_t next = deadline_usec;
    bool pause = now < m->accept_after_usec;
    if (pause)
        next = MIN(next, m->accept_after_usec);
    m->polled[0] = (struct pollfd){.fd = pause ? -1 : m->listener, .events = POLLIN};
    for (size_t i = 0; i < m->n_talks; i++) {
        const Talk *talk = &m->talks[i];
        m->polled[1 + i] =
            (struct pollfd){.fd = talk->fd,
                            .events = talk->state == TALK_CONNECTING ? POLLOUT : POLLIN};
        next = MIN(next, talk->deadline_usec);
    }
    const uint64_t msec = next <= now ? 0 : MIN((next - now) / USEC_PER_MSEC + 1, UINT64_C(60000));
    if (poll(m->polled, 1 + m->n_talks, (int)msec) >= 0)
        return 0;
    for (size_t i = 0; i <= m->n_talks; i++)
        m->polled[i].revents = 0;
    return errno == EINTR ? 0 : -errno;
}

/* Returns the lowest rank without a connection; at least one rank must be unconnected. */
static int lowest_unmet(const Connector *m)
{
    assert(m->n_met < size_of(m) - 1);
    int peer = 0;
    while (peer == m->options->rank || m->met[peer] >= 0)
        peer++;
    return peer;
}

static int turn(Connector *m, uint64_t now, int *ret_peer)
{
    for (size_t i = 0; i < m->n_talks; i++) {
        int r = advance(m, &m->talks[i], m->polled[1 + i].revents, now);
        if (r < 0) {
            *ret_peer = m->talks[i].peer;
            return r;
        }
    }
    for (size_t i = m->n_talks; i-- > 0;)
        if (m->talks[i].gone)
            remove_talk(m, i);
    if (m->polled[0].revents)
        for (int k = 0; k < ACCEPTS_A_TURN && accept_one(m); k++)
            ;
    return 0;
}

int connector_hold(Connector *m, uint64_t deadline_usec, int *ret_peer, Error *err)
{
    const CommOptions *options = m->options;
    while (m->n_met < options->size - 1) {
        const uint64_t now = clock_boottime_usec();
        *ret_peer = lowest_unmet(m);
        int r = wait_for_words(m, now, deadline_usec);
        if (r == 0)
            r = turn(m, now, ret_peer);
        if (r < 0)
            return error_errno(err, r, "connecting to rank %d (%s/%d)", *ret_peer, options->prefix,
                               *ret_peer);
        if (now >= deadline_usec && m->n_met < options->size - 1) {
            *ret_peer = lowest_unmet(m);
            return error_set(err, -ETIMEDOUT, "rank %d (%s/%d) did not come in time", *ret_peer,
                             options->prefix, *ret_peer);
        }
    }
    return 0;
}
