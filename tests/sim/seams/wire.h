/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h - the network between clients of libetcd and a model of etcd: etcd/wire.h in virtual time.
 *
 *      process on a machine             path (machine, member)                 member of a model of etcd
 *     libetcd ── WireCall ──┐   ── requests, delayed, held, reset ──►   ┌── open, send, cancel
 *              its loop ◄───┘   ◄── answers, delayed, held, reset ───   └── network_answer(), network_end()
 *
 * Messages go unpacked. A connection (a client's to a member) is as TCP and gRPC have it: in order, lossless, silent
 * while a path is cut, and given up after some seconds of that by gRPC's pings: then its RPCs end as UNAVAILABLE, and
 * what was under way is lost. A connection that does not come up ends its RPCs as unsent.
 *
 * Anything that has arrived waits until the client's loop runs, at the priority that libetcd's wire by gRPC has.
 *
 * A killed process sends nothing more, but what it sent before may still arrive.
 *
 * Ownership: network_open() makes the only network of a simulation; the model of etcd is borrowed until
 *            network_close(), which comes after every client was freed.
 * Units:     *_usec is the loops' time; machines and members are counted from 0.
 * Errors:    none; misuse is asserted.
 * Threads:   one. Draws come from one seed, so that the same seed and calls give the same history.
 */
#pragma once

#include "etcd/wire.h"

/* A model of etcd. Its functions get `server`; they give their answers only within advance(). */
typedef struct NetworkServer {
    void *server;
    /* Begins a call on a member that is up; the result stands for it. token: NULL for none. */
    void *(*open)(void *server, size_t member, const char *path, bool hasleader, const char *token,
                  WireCall *call);
    void (*send)(void *server, void *server_call, const ProtobufCMessage *request); /* borrows it */
    /* The client is gone: network_answer() and network_end() must not be called for it any more. */
    void (*cancel)(void *server, void *server_call);
    bool (*is_up)(void *server, size_t member); /* false: it takes no connection */
    void (*advance)(void *server, uint64_t now_usec);
    uint64_t (*next_usec)(void *server); /* when to call advance() next; UINT64_MAX: never */
} NetworkServer;

typedef struct NetworkOptions {
    const char *const *addresses; /* of the members, as clients name them: "host:port" */
    size_t n_members, n_machines;
    uint64_t seed;
    uint64_t delay_min_usec, delay_max_usec; /* of one message; 0, 0: 0.2 to 2 ms */
    NetworkServer server;
} NetworkOptions;

void network_open(const NetworkOptions *options);
void network_close(void);

/* Draws a number below n, a part of the history that the seed determines. */
uint64_t network_draw(uint64_t n);

/* ---- from the model of etcd, within advance() ---- */

/* Owns message, of a kind that message_free() takes. NULL: bytes that are not a message. */
void network_answer(WireCall *call, ProtobufCMessage *message);
/* Comes last; the server forgets the call. */
void network_end(WireCall *call, WireCode code, const char *text);
/* When a process on that machine last took in a message; 0: never. */
uint64_t network_heard_usec(size_t machine);
/* Returns the machine that the call comes from. */
size_t network_machine(const WireCall *call);
/* Somebody else has changed the server: it may have something to do earlier than it said. */
void network_server_changed(void);

/* ---- faults ---- */

typedef enum NetworkWay { NETWORK_TO_MEMBER, NETWORK_TO_CLIENT, NETWORK_WAYS } NetworkWay;

/* Nothing passes; what is sent waits until the path is whole again. */
void network_cut(size_t machine, size_t member, NetworkWay way, bool cut);
/* Each message takes that much longer, both ways. */
void network_clog(size_t machine, size_t member, uint64_t extra_usec);
/* The member's process stands still: as if all its paths were cut both ways. */
void network_freeze(size_t member, bool frozen);
/* Resets the connections of this path; what is under way on them is lost. */
void network_reset(size_t machine, size_t member);
