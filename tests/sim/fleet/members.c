/* SPDX-License-Identifier: Apache-2.0 */
/* members.c - see members.h. */
#include "tests/sim/fleet/members.h"

#include "tests/sim/seams/loop.h"
#include "tests/sim/seams/wire.h"

#include <stdio.h>
#include <string.h>

static Server *server;
static char endpoints[32 * SERVER_MEMBERS_MAX], addresses[SERVER_MEMBERS_MAX][32];
static const char *names[SERVER_MEMBERS_MAX]; /* the network borrows these names */

static void on_message(ServerCall *call, ProtobufCMessage *message, void *userdata)
{
    (void)call;
    network_answer(userdata, message);
}

static void on_end(ServerCall *call, ServerCode code, const char *text, void *userdata)
{
    (void)call;
    network_end(userdata, (WireCode)code, text);
}

static void *open_call(void *its, size_t member, const char *path, bool hasleader,
                       const char *token, WireCall *call)
{
    static const ServerEvents events = {.message = on_message, .ended = on_end};
    const ServerMetadata metadata = {.hasleader = hasleader,
                                     .token = token,
                                     .client = network_machine(call)};
    return server_open(its, member, path, &metadata, &events, call);
}

static void send_call(_unused_ void *its, void *call, const ProtobufCMessage *request)
{
    server_send(call, request);
}

static void cancel_call(_unused_ void *its, void *call) { (void)server_cancel(call); }
static bool is_up(void *its, size_t member) { return server_is_up(its, member); }
static void advance(void *its, uint64_t now_usec) { server_advance(its, now_usec); }
static uint64_t next_usec(void *its) { return server_next_usec(its); }

/* The server has its own random numbers. It cannot draw from the network, because the server is
 * created before the network. */
static uint64_t server_draws;
static uint64_t draw_for_server(_unused_ void *userdata)
{
    server_draws = server_draws * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return server_draws >> 16;
}

Server *members_open(const MembersOptions *options)
{
    assert(options->n_members >= 1 && options->n_members <= SERVER_MEMBERS_MAX);
    *endpoints = '\0';
    for (size_t i = 0; i < options->n_members; i++) {
        size_t n = strlen(endpoints);
        (void)snprintf(addresses[i], sizeof(addresses[i]), "m%zu:2379", i);
        (void)snprintf(endpoints + n, sizeof(endpoints) - n, "%s%s", i ? "," : "", addresses[i]);
        names[i] = addresses[i];
    }
    server_draws = options->seed;
    const ServerOptions its = {.n_members = options->n_members,
                               .cluster_id = 7,
                               .now_usec = loops_now_usec(),
                               .draw = draw_for_server,
                               .on_commit = options->on_commit};
    int r = server_new(&its, &server);
    assert(r == 0);
    network_open(&(NetworkOptions){.addresses = names,
                                   .n_members = options->n_members,
                                   .n_machines = options->n_machines,
                                   .seed = options->seed,
                                   .server = {.server = server,
                                              .open = open_call,
                                              .send = send_call,
                                              .cancel = cancel_call,
                                              .is_up = is_up,
                                              .advance = advance,
                                              .next_usec = next_usec}});
    return server;
}

void members_close(void)
{
    network_close();
    server = server_free(server);
}

const char *members_endpoints(void) { return endpoints; }
