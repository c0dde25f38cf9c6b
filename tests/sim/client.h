/* SPDX-License-Identifier: Apache-2.0 */
/* client.h - a model of libetcd and of the network between one process and etcd.
 *
 * It has calls whose answer may be lost, a lease that is renewed and taken anew, and watches that list, stream, are cut
 * and list again. It promises its user what etcd/etcd.h promises; delays and losses are drawn.
 *
 * Ownership: a ModelClient is part of its process; client_close() cancels everything. Handlers borrow their arguments.
 * Units:     microseconds of virtual time.
 * Errors:    r of a handler: 0, -ETIMEDOUT or -EIO (neither done nor not done), -ESTALE (no lease).
 * Threads:   one.
 */
#pragma once

#include "tests/sim/etcd.h"

typedef struct Link {      /* of a client with etcd */
    bool cut_up, cut_down; /* messages to etcd, messages from etcd do not arrive */
    uint64_t clog_usec;    /* the longest delay of a message */
} Link;

typedef struct Item { /* of a list */
    int key;
    int64_t create_revision, mod_revision;
    ModelValue *value;
} Item;

typedef struct CallResult {
    int r;
    bool succeeded;
    int64_t revision;
    int lease;
    Item *items;
    size_t n_items;
} CallResult;

typedef void (*ModelCallHandler)(Universe *u, void *who, uint64_t token, const CallResult *result);

typedef struct WatchEvent {
    int key;
    int64_t revision, create_revision;
    ModelValue *value; /* NULL: deleted */
} WatchEvent;

/* All events of one revision; the first list comes with initial. */
typedef void (*WatchHandler)(Universe *u, void *who, const WatchEvent *events, size_t n,
                             bool initial);

typedef enum LeaseState { LEASE_GRANTED, LEASE_RENEWED, LEASE_LOST } LeaseState;
typedef void (*LeaseHandler)(Universe *u, void *who, LeaseState state);

typedef struct ModelKnown {
    int64_t create_revision, mod_revision;
    uint64_t listed; /* by the list of that number */
} ModelKnown;

typedef struct ModelClient ModelClient;

struct Watch {
    ModelClient *client;
    int kind; /* KEY_KINDS: all */
    WatchHandler handler;
    void *who;
    bool open, streaming, waking, initial_done;
    uint64_t token; /* of the stream */
    uint64_t n_lists;
    int64_t list_revision; /* of the newest */
    unsigned blocked;
    size_t position; /* in the history of its kind */
    ModelKnown *known;
    size_t n_known;
};

enum { CLIENT_WATCHES_MAX = 6 };

struct ModelClient {
    Universe *universe;
    Actor *actor;
    Link link;
    /* the lease */
    uint64_t ttl_usec;
    LeaseHandler on_lease;
    void *lease_who;
    int lease; /* -1: none is held */
    uint64_t lease_token, sent_usec;
    Watch watches[CLIENT_WATCHES_MAX];
    size_t n_watches;
};

void client_init(ModelClient *client, Universe *u, Actor *actor);
void client_close(ModelClient *client);
void client_clear(ModelClient *client); /* closes it and frees what is left */

/* Takes what is in the transaction. */
void client_txn(ModelClient *client, Txn *txn, ModelCallHandler handler, void *who, uint64_t token);
/* Everything of a kind (KEY_KINDS: of all), or the keys that are named. */
void client_list(ModelClient *client, int kind, ModelCallHandler handler, void *who,
                 uint64_t token);
void client_read(ModelClient *client, const int *keys, size_t n_keys, ModelCallHandler handler,
                 void *who, uint64_t token);

void client_lease(ModelClient *client, uint64_t ttl_usec, LeaseHandler handler, void *who);
bool client_watch_knows(Watch *watch, int key);
void client_watch(ModelClient *client, int kind, WatchHandler handler, void *who);

/* The store has something for it. */
void watch_wake(Watch *watch);
/* The server cancels the stream. */
void watch_cut(Watch *watch);
/* There is a quorum again: what was proposed without one and not forgotten is done. */
void client_serve_late(Universe *u);
/* Frees calls that nobody will answer any more. */
void client_calls_free(Universe *u);
