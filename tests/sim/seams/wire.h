/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h - the network between clients of libetcd and a model of etcd: etcd/wire.h in virtual time.
 *
 *      process on a machine             path (machine, member)                 member of a model of etcd
 *     libetcd ── WireCall ──┐   ── requests, delayed, held, reset ──►   ┌── open, send, cancel
 *              its loop ◄───┘   ◄── answers, delayed, held, reset ───   └── network_answer(), network_end()
 *
 * Messages are passed unpacked. A connection (of a client to a member) behaves as with TCP and gRPC: in order,
 * lossless, silent while a path is cut. After some seconds without an answer to its pings gRPC gives the connection up:
 * then the RPCs of that connection end as UNAVAILABLE, and messages in flight are lost. If a connection cannot be made,
 * the RPCs that wait for it end as unsent.
 *
 * Messages that have arrived wait until the client's loop runs, at the priority that libetcd's gRPC wire has.
 *
 * A killed process sends nothing more, but messages that it sent before may still arrive.
 *
 * Ownership: network_open() makes the only network of a simulation; the model of etcd is borrowed until
 *            network_close(), which comes after every client was freed.
 * Units:     *_usec is the loops' time; machines and members are counted from 0.
 * Errors:    none; misuse is asserted.
 * Threads:   one. Draws come from one seed, so that the same seed and calls give the same history.
 */
#pragma once

#include "etcd/wire.h"

/* A model of etcd. Its functions get `server` as an argument; the model answers only within
 * advance(). */
typedef struct NetworkServer {
    void *server;
    /* Begins a call on a member for which is_up() returns true, and returns the server's handle of
     * the call. token NULL: the call has no token. */
    void *(*open)(void *server, size_t member, const char *path, bool hasleader, const char *token,
                  WireCall *call);
    /* Sends a request, and borrows it. */
    void (*send)(void *server, void *server_call, const ProtobufCMessage *request);
    /* The client has ended: network_answer() and network_end() must not be called for this call any more. */
    void (*cancel)(void *server, void *server_call);
    bool (*is_up)(void *server, size_t member); /* false: the member accepts no connection */
    void (*advance)(void *server, uint64_t now_usec);
    uint64_t (*next_usec)(void *server); /* when advance() must be called next; UINT64_MAX: never */
} NetworkServer;

typedef struct NetworkOptions {
    const char *const *addresses; /* addresses of the members, as clients use them: "host:port" */
    size_t n_members, n_machines;
    uint64_t seed;
    uint64_t delay_min_usec, delay_max_usec; /* delay of one message; 0, 0: 0.2 to 2 ms */
    NetworkServer server;
} NetworkOptions;

void network_open(const NetworkOptions *options);
void network_close(void);

/* Draws a number below n from the network's seed. */
uint64_t network_draw(uint64_t n);

/* ---- for the model of etcd, within advance() ---- */

/* Sends an answer. Takes ownership of message, which message_free() must accept. message NULL:
 * sends bytes that are not a message. */
void network_answer(WireCall *call, ProtobufCMessage *message);
/* Ends a call, after all its answers; the server then forgets the call. */
void network_end(WireCall *call, WireCode code, const char *text);
/* Returns when a process on the given machine last received a message; 0: never. */
uint64_t network_heard_usec(size_t machine);
/* Returns the machine of the call's client. */
size_t network_machine(const WireCall *call);
/* Call it after each change of the server that the network did not make: the server may now have
 * something to do earlier than next_usec() reported. */
void network_server_changed(void);

/* ---- faults ---- */

typedef enum NetworkWay { NETWORK_TO_MEMBER, NETWORK_TO_CLIENT, NETWORK_WAYS } NetworkWay;

/* Cuts a path in one direction, or restores the path. Messages wait while the path is cut. */
void network_cut(size_t machine, size_t member, NetworkWay way, bool cut);
/* Delays each message by extra_usec, in both directions. */
void network_clog(size_t machine, size_t member, uint64_t extra_usec);
/* Stops the member's process, as if all its paths were cut in both directions. */
void network_freeze(size_t member, bool frozen);
/* Resets the connections of this path; the messages in flight on these connections are lost. */
void network_reset(size_t machine, size_t member);
