/* SPDX-License-Identifier: Apache-2.0 */
/* testing-pair.h - the model and a real etcd, which are asked the same and must say the same.
 *
 * The parts that cannot be the same are left out: ids of cluster, members and of leases that the server chose, terms,
 * sizes, and how the events of a watch are spread over answers.
 *
 * Ownership: pair_new() gives the caller a Pair of a model and a client of that etcd; pair_free() accepts NULL.
 * Units:     none.
 * Errors:    a difference ends the test and prints both answers with what was asked.
 * Threads:   main thread only.
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
    const char *scenario;  /* what a difference is reported with */
    const char *tokens[2]; /* of model and etcd; NULL: none */
    uint64_t now_usec;
    /* The ids that requests and answers use for lease 1, 2, ... */
    int64_t leases[2][PAIR_LEASES_MAX];
    int n_leases;
    PairStream *watches[PAIR_WATCHES_MAX];
    int n_watches;
    uint64_t n_compared;
} Pair;

Pair *pair_new(const char *endpoint);
Pair *pair_free(Pair *pair);
DEFINE_CLEANUP(Pair, pair_free)

/* Asks both; a lease in a request is its number. Returns the model's answer or NULL, to be freed. */
ProtobufCMessage *pair_ask(Pair *pair, const char *path, ProtobufCMessage *request,
                           const ProtobufCMessageDescriptor *response);
/* The next lease number is what the answer names. */
void pair_grant(Pair *pair, int64_t ttl_sec, int64_t id);
/* Both have the same revision after it, with the same words. */
void pair_compact(Pair *pair, int64_t revision);
/* The alarm NOSPACE. */
void pair_set_nospace(Pair *pair, bool full);
/* A stream of its own. */
void pair_watch(Pair *pair, const Pb__WatchCreateRequest *create);
/* Checks that both have reported the same on all watches so far. */
void pair_check_watches(Pair *pair);
void pair_close_watches(Pair *pair);
void pair_keep_alive(Pair *pair, int64_t lease);
