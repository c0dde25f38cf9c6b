/* SPDX-License-Identifier: Apache-2.0 */
/* members.h - the model of an etcd cluster (server/server.h), connected to the simulated network (seams/wire.h).
 *
 * Errors: none. Threads: one.
 * Ownership: members_open() makes the only network and server of a simulation, which members_close() frees after every
 *            client.
 * Units:     members and machines are counted from 0.
 */
#pragma once

#include "tests/sim/server/server.h"

typedef struct MembersOptions {
    size_t n_members, n_machines; /* n_machines: machines of clients */
    uint64_t seed;
    /* on_commit of ServerOptions; may be NULL. */
    void (*on_commit)(int64_t revision, const ServerChange *changes, size_t n, void *userdata);
} MembersOptions;

/* Returns the server, which is borrowed. A caller that changes the server without a client calls
 * network_server_changed(). */
Server *members_open(const MembersOptions *options);
void members_close(void);
/* Returns the endpoints, in the form of EtcdOptions.endpoints. */
const char *members_endpoints(void);
