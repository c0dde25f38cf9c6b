/* SPDX-License-Identifier: Apache-2.0 */
/* server.c - see server.h: creates a cluster, advances its time, and does an operator's actions. */
#include "tests/sim/server/server-internal.h"

enum { ELECTION_MSEC = 1000, REQUEST_BYTES_MAX = 1536 << 10 };

int server_new(const ServerOptions *options, Server **ret)
{
    if (options->n_members == 0 || options->n_members > SERVER_MEMBERS_MAX)
        return -EINVAL;
    Server *server = memory_new(Server);
    server->options = *options;
    if (server->options.election_usec == 0)
        server->options.election_usec = ELECTION_MSEC * USEC_PER_MSEC;
    if (server->options.request_bytes_max == 0)
        server->options.request_bytes_max = REQUEST_BYTES_MAX;
    server->now_usec = options->now_usec;
    server->cluster_id = options->cluster_id;
    server->n_members = options->n_members;
    server->writer = SIZE_MAX;
    TAILQ_INIT(&server->outputs);
    TAILQ_INIT(&server->waiting);
    for (size_t i = 0; i < server->n_members; i++) {
        TAILQ_INIT(&server->members[i].calls);
        TAILQ_INIT(&server->members[i].unsynced);
    }
    mvcc_init(&server->mvcc);
    server->users.revision = 1;
    raft_init(server);
    *ret = server;
    return 0;
}

static void clear(Server *server)
{
    lessor_clear(&server->lessor);
    mvcc_clear(&server->mvcc);
    users_clear(&server->users);
}

Server *server_free(Server *server)
{
    if (!server)
        return NULL;
    calls_clear(server);
    for (size_t i = 0; i < server->n_members; i++) {
        Member *m = &server->members[i];
        assert(TAILQ_EMPTY(&m->calls) && m->watchers.n == 0);
        users_forget_tokens(server, i);
        free(m->beliefs);
        free(m->touched);
    }
    clear(server);
    free(server);
    return NULL;
}

uint64_t server_draw(Server *server)
{
    return server->options.draw ? server->options.draw(server->options.userdata) : 0;
}

size_t server_writer(const Server *server) { return server->writer; }

void server_advance(Server *server, uint64_t now_usec)
{
    assert(now_usec >= server->now_usec);
    /* Does the due steps one after the other, each at its own time. */
    for (uint64_t next; (next = raft_next_usec(server)) <= now_usec;) {
        server->now_usec = MAX(server->now_usec, next);
        calls_time_out(server);
        raft_advance(server);
    }
    server->now_usec = now_usec;
    calls_time_out(server);
    calls_deliver(server);
}

uint64_t server_next_usec(const Server *server)
{
    return MAX(server->now_usec, MIN(raft_next_usec(server), calls_next_usec(server)));
}

/* ---- state ---- */

bool server_is_up(const Server *server, size_t member) { return server->members[member].up; }
size_t server_members(const Server *server) { return server->n_members; }
uint64_t server_member_id(const Server *server, size_t member)
{
    return server->members[member].id;
}
uint64_t server_cluster_id(const Server *server) { return server->cluster_id; }
uint64_t server_term(const Server *server) { return server->term; }
size_t server_leader(const Server *server) { return server->leader; }
int64_t server_revision(const Server *server) { return server->mvcc.revision; }

/* ---- an operator's actions ---- */

ServerCode server_compact(Server *server, int64_t revision, const char **ret_text)
{
    raft_catch_up(server);
    Refusal refusal = mvcc_compact(&server->mvcc, revision);

    if (ret_text)
        *ret_text = refusal.text;
    return refusal.code;
}

void server_set_nospace(Server *server, bool full) { server->nospace = full; }

struct ServerSnapshot {
    Server *server; /* of this Server, only store, leases and users are used */
};

static Server *copy_of(const Server *from)
{
    Server *to = memory_new(Server);

    to->now_usec = from->now_usec;
    to->options.election_usec = from->options.election_usec;
    mvcc_copy(&from->mvcc, &to->mvcc);
    lessor_copy(from, to);
    users_copy(&from->users, &to->users);
    return to;
}

ServerSnapshot *server_snapshot(const Server *server)
{
    ServerSnapshot *snapshot = memory_new(ServerSnapshot);
    snapshot->server = copy_of(server);
    return snapshot;
}

ServerSnapshot *server_snapshot_free(ServerSnapshot *snapshot)
{
    if (!snapshot)
        return NULL;
    clear(snapshot->server);
    free(snapshot->server);
    free(snapshot);
    return NULL;
}

void server_restore(Server *server, const ServerSnapshot *snapshot, uint64_t cluster_id)
{
    for (size_t i = 0; i < server->n_members; i++)
        server_stop(server, i);
    calls_forget_proposals(server); /* the proposals belong to another history */
    clear(server);
    mvcc_copy(&snapshot->server->mvcc, &server->mvcc);
    lessor_copy(snapshot->server, server);
    users_copy(&snapshot->server->users, &server->users);
    server->cluster_id = cluster_id;
    raft_init(server);
}
