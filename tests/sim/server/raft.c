/* SPDX-License-Identifier: Apache-2.0 */
/* raft.c - members: which members are in contact with each other, which member leads, and what each member believes.
 *
 * A quorum in contact that follows a leader can commit revisions. When the leader loses contact, the other members
 * wait for an election timeout and then elect a leader of a higher term, who gives every lease its TTL again. A
 * leader that is cut off believes for an election timeout that it still leads; a leader whose disk hangs believes so
 * for ever. */
#include "tests/sim/server/server-internal.h"

enum {
    HEARTBEATS_PER_ELECTION = 10,
    /* after this many election timeouts without a leader, streams that require a leader end */
    STREAM_ELECTIONS = 3,
};

static const Refusal no_leader = {SERVER_UNAVAILABLE, "etcdserver: no leader"};

static bool could_be_in_contact(const Member *m)
{
    return m->up && !m->frozen && !m->isolated && !m->disk_stopped;
}

static bool runs(const Member *m) { return m->up && !m->frozen; }

Pb__ResponseHeader *raft_header(const Server *server, size_t member, int64_t revision)
{
    Pb__ResponseHeader *header = memory_new(Pb__ResponseHeader);

    pb__response_header__init(header);
    header->cluster_id = server->cluster_id;
    header->member_id = server->members[member].id;
    header->revision = revision > 0 ? revision : server->members[member].applied;
    header->raft_term = server->members[member].term;
    return header;
}

bool raft_reaches_leader(const Server *server, size_t member)
{
    return server->members[member].in_contact && server->leader != SIZE_MAX;
}

/* ---- what members apply ---- */

static void apply(Server *server, size_t index, int64_t to)
{
    Member *m = &server->members[index];
    int64_t from = m->applied + 1;

    if (to < from)
        return;
    m->applied = to;
    watcher_notify(server, index, from, to);
}

/* Returns when the member applies its next revision; UINT64_MAX: the member has applied all
 * revisions, or has no contact. */
static uint64_t apply_usec(const Server *server, const Member *m)
{
    if (!m->in_contact || m->applied >= server->mvcc.revision)
        return UINT64_MAX;
    const Revision *revision = mvcc_changes(&server->mvcc, m->applied + 1);
    return revision ? revision->committed_usec + m->lag_usec : 0;
}

static void apply_due(Server *server, size_t index)
{
    Member *m = &server->members[index];
    int64_t to = m->applied;

    if (!m->in_contact)
        return;
    while (to < server->mvcc.revision) {
        const Revision *revision = mvcc_changes(&server->mvcc, to + 1);
        if (revision && revision->committed_usec + m->lag_usec > server->now_usec)
            break;
        to++;
    }
    if (to > m->applied) {
        apply(server, index, to);
        calls_retry(server, index, false);
    }
}

void raft_committed(Server *server)
{
    for (size_t i = 0; i < server->n_members; i++)
        if (server->members[i].in_contact && server->members[i].lag_usec == 0)
            apply(server, i, server->mvcc.revision);
}

void raft_catch_up(Server *server)
{
    for (size_t i = 0; i < server->n_members; i++)
        if (server->members[i].in_contact && server->members[i].applied < server->mvcc.revision) {
            apply(server, i, server->mvcc.revision);
            calls_retry(server, i, false);
        }
}

/* ---- leaders ---- */

static void forget_beliefs(Member *m)
{
    free(m->beliefs);
    m->beliefs = NULL;
    m->n_beliefs = 0;
}

static void learn(Server *server, size_t index)
{
    Member *m = &server->members[index];
    bool is_new = m->leader != server->leader || m->term != server->term;

    m->term = server->term;
    m->leader = server->leader;
    m->streams_usec = UINT64_MAX;
    forget_beliefs(m);
    if (is_new)
        calls_retry(server, index, true); /* refuses the reads that have waited for a leader */
    apply_due(server, index);
    calls_retry(server, index, false);
}

static size_t n_in_contact(const Server *server)
{
    size_t n = 0;
    for (size_t i = 0; i < server->n_members; i++)
        n += server->members[i].in_contact;
    return n;
}

static bool has_quorum(const Server *server)
{
    return n_in_contact(server) > server->n_members / 2;
}

static size_t choose(Server *server)
{
    size_t draw = (size_t)(server_draw(server) % n_in_contact(server));

    if (server->preferred != SIZE_MAX && server->members[server->preferred].in_contact)
        return server->preferred;
    for (size_t i = 0;; i++)
        if (server->members[i].in_contact && draw-- == 0)
            return i;
}

static void elect(Server *server)
{
    assert(has_quorum(server));
    for (size_t i = 0; i < server->n_members; i++)
        if (server->members[i].in_contact)
            server->term = MAX(server->term, server->members[i].term);
    server->term++;
    server->leader = server->former = choose(server);
    server->preferred = SIZE_MAX;
    server->election_usec = UINT64_MAX;
    lessor_promote(server);
    calls_decide(server);
    for (size_t i = 0; i < server->n_members; i++)
        if (server->members[i].in_contact)
            learn(server, i);
}

static void lose_leader(Server *server)
{
    server->leader = SIZE_MAX;
    for (size_t i = 0; i < server->n_members; i++)
        if (server->members[i].in_contact)
            server->members[i].lost_usec = server->now_usec;
}

static void arrange_election(Server *server)
{
    uint64_t election = server->options.election_usec;

    if (!has_quorum(server))
        server->election_usec = UINT64_MAX;
    else if (server->election_usec == UINT64_MAX)
        server->election_usec = server->now_usec + election + server_draw(server) % election;
}

static void review_member(Server *server, size_t index)
{
    Member *m = &server->members[index];
    bool now = could_be_in_contact(m) && m->contact_usec <= server->now_usec;

    if (now == m->in_contact)
        return;
    m->in_contact = now;
    m->lost_usec = server->now_usec;
    if (!now && server->leader == index)
        m->n_beliefs = lessor_beliefs(server, &m->beliefs);
}

void raft_review(Server *server)
{
    bool was[SERVER_MEMBERS_MAX];
    uint64_t highest = 0;

    for (size_t i = 0; i < server->n_members; i++) {
        was[i] = server->members[i].in_contact;
        review_member(server, i);
        if (server->members[i].in_contact)
            highest = MAX(highest, server->members[i].term);
    }
    bool stands = has_quorum(server) && highest <= server->term;
    if (server->leader != SIZE_MAX && (!stands || !server->members[server->leader].in_contact))
        lose_leader(server);
    /* A leader that was out of contact for less than an election timeout continues. */
    if (server->leader == SIZE_MAX && stands && server->former != SIZE_MAX &&
        server->members[server->former].in_contact &&
        server->members[server->former].leader == server->former) {
        server->leader = server->former;
        server->election_usec = UINT64_MAX;
        for (size_t i = 0; i < server->n_members; i++)
            was[i] = false;
    }
    if (server->leader == SIZE_MAX)
        arrange_election(server);
    for (size_t i = 0; i < server->n_members && server->leader != SIZE_MAX; i++)
        if (server->members[i].in_contact && !was[i])
            learn(server, i);
}

/* ---- time ---- */

/* Returns when a member that has lost its leader stops following it. */
static uint64_t give_up_usec(const Server *server, const Member *m)
{
    if (!runs(m) || m->disk_stopped || m->leader == SIZE_MAX ||
        (m->in_contact && server->leader != SIZE_MAX))
        return UINT64_MAX;
    return m->lost_usec + server->options.election_usec;
}

static void give_up(Server *server, size_t index)
{
    Member *m = &server->members[index];

    m->leader = SIZE_MAX;
    m->term++; /* the member stands for election, in a new term */
    m->streams_usec = server->now_usec + STREAM_ELECTIONS * server->options.election_usec;
    forget_beliefs(m);
    calls_retry(server, index, false);
}

static void end_streams(Server *server, size_t index)
{
    ServerCall *call, *next;

    server->members[index].streams_usec = UINT64_MAX;
    for (call = TAILQ_FIRST(&server->members[index].calls); call; call = next) {
        next = TAILQ_NEXT(call, list);
        if (call->hasleader &&
            (call->method == METHOD_WATCH || call->method == METHOD_LEASE_KEEP_ALIVE))
            call_end(call, no_leader);
    }
}

void raft_advance(Server *server)
{
    raft_review(server); /* a member's contact_usec may have passed */
    for (size_t i = 0; i < server->n_members; i++) {
        Member *m = &server->members[i];
        if (give_up_usec(server, m) <= server->now_usec)
            give_up(server, i);
        if (runs(m) && m->streams_usec <= server->now_usec)
            end_streams(server, i);
    }
    if (server->election_usec <= server->now_usec)
        elect(server);
    if (server->leader != SIZE_MAX)
        lessor_expire(server);
    for (size_t i = 0; i < server->n_members; i++) {
        apply_due(server, i);
        if (runs(&server->members[i]))
            watcher_sync(server, i);
    }
}

uint64_t raft_next_usec(const Server *server)
{
    uint64_t ret = server->election_usec;

    if (server->leader != SIZE_MAX)
        ret = MIN(ret, lessor_next_usec(server));
    for (size_t i = 0; i < server->n_members; i++) {
        const Member *m = &server->members[i];
        if (could_be_in_contact(m) && !m->in_contact)
            ret = MIN(ret, m->contact_usec);
        ret = MIN(ret, give_up_usec(server, m));
        ret = MIN(ret, apply_usec(server, m));
        if (runs(m)) {
            ret = MIN(ret, m->streams_usec);
            ret = MIN(ret, watcher_next_usec(server, i));
        }
    }
    return ret;
}

void raft_init(Server *server)
{
    server->term = 1; /* etcd's first election raises the term to 2 */
    server->leader = server->former = server->preferred = SIZE_MAX;
    server->election_usec = UINT64_MAX;
    for (size_t i = 0; i < server->n_members; i++) {
        Member *m = &server->members[i];
        m->up = m->in_contact = true;
        m->frozen = m->isolated = m->disk_stopped = false;
        m->contact_usec = 0;
        m->term = server->term;
        m->leader = SIZE_MAX;
        m->streams_usec = UINT64_MAX;
        m->applied = server->mvcc.revision;
        m->id = philox4x32(server->cluster_id, 0, i).word[0] | UINT64_C(1) << 32;
    }
    elect(server);
}

/* ---- faults ---- */

/* Lets a member return: it is in contact with the other members within a heartbeat. */
static void reconnect(Server *server, Member *m)
{
    m->contact_usec = server->now_usec + server_draw(server) % (server->options.election_usec /
                                                                HEARTBEATS_PER_ELECTION);
    m->lost_usec = server->now_usec;
    raft_review(server);
}

void server_stop(Server *server, size_t index)
{
    Member *m = &server->members[index];

    if (!m->up)
        return;
    m->up = m->frozen = m->disk_stopped = false;
    m->leader = SIZE_MAX;
    calls_end_of_member(server, index, (Refusal){SERVER_UNAVAILABLE, "Socket closed"});
    users_forget_tokens(server, index);
    raft_review(server);
    forget_beliefs(m);
}

void server_start(Server *server, size_t index)
{
    Member *m = &server->members[index];

    if (m->up)
        return;
    m->up = true;
    m->streams_usec = UINT64_MAX;
    reconnect(server, m);
}

void server_freeze(Server *server, size_t index)
{
    server->members[index].frozen = server->members[index].up;
    raft_review(server);
}

void server_thaw(Server *server, size_t index)
{
    Member *m = &server->members[index];

    if (!m->frozen)
        return;
    m->frozen = false;
    calls_thawed(server, index); /* serves the old requests before the member gets new ones */
    reconnect(server, m);
}

void server_isolate(Server *server, size_t index)
{
    server->members[index].isolated = true;
    raft_review(server);
}

void server_join(Server *server, size_t index)
{
    if (!server->members[index].isolated)
        return;
    server->members[index].isolated = false;
    reconnect(server, &server->members[index]);
}

void server_stop_disk(Server *server, size_t index)
{
    server->members[index].disk_stopped = server->members[index].up;
    raft_review(server);
}

void server_start_disk(Server *server, size_t index)
{
    if (!server->members[index].disk_stopped)
        return;
    server->members[index].disk_stopped = false;
    reconnect(server, &server->members[index]);
}

void server_lag(Server *server, size_t index, uint64_t lag_usec)
{
    server->members[index].lag_usec = lag_usec;
    apply_due(server, index);
}

void server_elect(Server *server, size_t index)
{
    server->preferred = index;
    if (has_quorum(server) && server->members[index].in_contact)
        elect(server);
}
