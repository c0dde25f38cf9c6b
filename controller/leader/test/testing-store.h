/* SPDX-License-Identifier: Apache-2.0 */
/* testing-store.h - a loop, a clock and an etcd for the leader's shell that are lists in memory: timers fire when
 * the test lets time pass, and answers and events of the watch arrive when the test sends them.
 *
 * A program that links testing-store.c has these functions in the place of those of sd-event.h, clock.h and etcd.h.
 * One shell runs at a time, in cluster "lab".
 *
 * Ownership: store_end() frees everything, and fails the test if the shell has left a timer or a request behind.
 * Units:     microseconds.
 * Errors:    none: anything that goes wrong ends the test.
 * Threads:   main thread only.
 */
#pragma once

#include "base/test/testing.h"
#include "cluster/keys.h"
#include "cluster/records.h"
#include "etcd/etcd.h"

enum { STORE_KEYS_MAX = 32 };

/* This candidate's key in the election. */
#define LEADER_KEY "/sdtrain/lab/leader/4d"

typedef struct StoredKey {
    char key[KEY_MAX], *value; /* value NULL: the place is free */
    int64_t created, modified; /* create and mod revision */
} StoredKey;

/* Counts since store_begin(), what the shell has passed to the store, and the store's revision, for tests to read. */
extern struct StoreSeen {
    int64_t revision;
    int n_txns, n_reads, n_asks, n_revoked;
    char asked_key[KEY_MAX]; /* key of the newest request about rights */
    char *introduced;        /* the value that the election was last given to write */
    const char *own_key;     /* the candidate's key; LEADER_KEY unless the test sets another */
    bool has_candidate;
    bool connected; /* the watch is up */
    int fails;      /* the error of requests that cannot begin; 0: all begin */
    int n_failed;   /* number of requests that could not begin */
    EtcdLeaseHandler on_lease;
    EtcdElectionHandler on_elected;
    EtcdHistoryHandler on_history;
    void *userdata; /* of these three handlers */
} seen;

void store_begin(void);
void store_end(void);

/* Lets time pass, so that timers fire at their times. */
void pass(uint64_t usec);
/* Lets time pass while the loop is stalled. */
void stall(uint64_t usec);
/* Ends a stall: due timers and waiting events of the watch run by their priority. */
void resume(void);

/* ---- keys that other clients write; the watch shows them later ---- */

StoredKey *find(const char *key); /* NULL: there is no such key */
void put_text(const char *key, const char *value);
void delete_key(const char *key);

#define PUT(prefix, record, kind, name)                                                            \
    do {                                                                                           \
        char _key[KEY_MAX];                                                                        \
        char *_text = prefix##_encode(record, NULL);                                               \
        put_text(key_of("lab", kind, name, _key), _text);                                          \
        free(_text);                                                                               \
    } while (0)

/* These put a node of one slot, a job of one or two ranks, a cordon. */
void put_node(const char *name);
void put_job(const char *name);
void cordon(const char *node);

/* ---- requests under way ---- */

typedef enum AnswerKind {
    GIVEN,
    LOST_AFTER,  /* etcd has done it, but the answer is lost */
    LOST_BEFORE, /* the request never reached etcd */
    DENIED,
} AnswerKind;

/* Returns the read or the transaction that is under way; the test ends if there is none. */
EtcdCall *under_way(bool reads);
/* As under_way(), but of several calls returns the one that was requested last. */
EtcdCall *last_under_way(bool reads);
/* Lets etcd answer the read now; answer() passes that answer on later. */
void take_snapshot(EtcdCall *read);
void answer(EtcdCall *call, AnswerKind kind);
/* Answers the requests about rights that are under way. */
void answer_rights(AnswerKind kind);
/* Returns the number of reads, transactions and requests about rights that are under way. */
size_t n_under_way(void);
/* Answers all requests, also those that follow at once. */
void answer_all(void);

/* ---- the watch ---- */

/* Shows the next revision; returns false if there is none. */
bool show_one(void);
void show_all(void);
/* Lists the present keys: at first, and after a broken stream. Keys that vanished before they were shown are not
 * reported. */
void list_all(void);
/* As list_all(), but by a member that lags: changes after this revision are shown later. */
void list_until(int64_t revision);
/* Shows and answers everything until there is nothing left to do at this moment. */
void settle(void);
