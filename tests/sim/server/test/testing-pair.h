/* SPDX-License-Identifier: Apache-2.0 */
/* testing-pair.h - the model and a real etcd, which get the same requests and must give the same answers.
 *
 * Values that cannot be equal are not compared: the ids of cluster and members, lease ids that the server chose, terms,
 * sizes, and the division of a watch's events into answers.
 *
 * Units: none. Threads: main thread only.
 * Ownership: pair_new() gives the caller a Pair, which has a model and a client of the real etcd; pair_free() accepts
 *            NULL.
 * Errors:    a difference ends the test and prints both answers with the request.
 */
#pragma once

#include "base/test/testing.h"

#include "base/cleanup.h"
#include "tests/sim/server/server.h"
#include "tests/sim/server/test/testing-client.h"

enum { PAIR_LEASES_MAX = 64, PAIR_WATCHES_MAX = 24 };

typedef struct PairStream PairStream;

typedef struct Pair {
    Server *server;
    TestingClient *client;
    const char *scenario;  /* the scenario's name in reports of differences */
    const char *tokens[2]; /* the user's token on the model and on etcd; NULL: no token */
    uint64_t now_usec;
    /* the ids of lease number 1, 2, ... on each side */
    int64_t leases[2][PAIR_LEASES_MAX];
    int n_leases;
    PairStream *watches[PAIR_WATCHES_MAX];
    int n_watches;
    uint64_t n_compared;
} Pair;

Pair *pair_new(const char *endpoint);
Pair *pair_free(Pair *pair);
DEFINE_CLEANUP(Pair, pair_free)

/* Sends a request to both sides. In the request, a lease is named by its number. Returns the
 * model's answer, which the caller frees, or NULL. */
ProtobufCMessage *pair_ask(Pair *pair, const char *path, ProtobufCMessage *request,
                           const ProtobufCMessageDescriptor *response);
/* Grants a lease on both sides. The lease gets the next number. */
void pair_grant(Pair *pair, int64_t ttl_sec, int64_t id);
/* Compacts both sides: both must give the same result, and have the same revision after it. */
void pair_compact(Pair *pair, int64_t revision);
/* Sets or clears the alarm NOSPACE. */
void pair_set_nospace(Pair *pair, bool full);
/* Begins a watch on a new stream. */
void pair_watch(Pair *pair, const Pb__WatchCreateRequest *create);
/* Checks that both sides have reported the same on all watches so far. */
void pair_check_watches(Pair *pair);
void pair_close_watches(Pair *pair);
void pair_keep_alive(Pair *pair, int64_t lease);
