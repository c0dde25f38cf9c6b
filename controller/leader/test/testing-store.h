/* SPDX-License-Identifier: Apache-2.0 */
/* testing-store.h - a loop, a clock and an etcd for the leader's shell that are lists in memory: timers fire when the
 * test lets time pass, answers and the watch's events come when the test says so.
 *
 * A program that links testing-store.c has these functions in the place of those of sd-event.h, clock.h and etcd.h. One
 * shell runs at a time, in cluster "lab".
 *
 * Ownership: store_end() frees everything, and fails the test if the shell has left a timer or a request behind.
 * Units:     microseconds.
 * Errors:    none: what goes wrong ends the test.
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
    int64_t created, modified; /* revisions */
} StoredKey;

/* Counts since store_begin(), and what the shell has handed over; tests read them, and the revision of the store. */
extern struct StoreSeen {
    int64_t revision;
    int n_txns, n_reads, n_asks, n_revoked;
    char asked_key[KEY_MAX]; /* of the newest question about rights */
    char *introduced;        /* what the election was told to write */
    const char *own_key;     /* of the candidate; LEADER_KEY unless the test says another */
    bool has_candidate;
    bool connected; /* the watch is up */
    int fails;      /* what a request that cannot begin returns; 0: all begin */
    int n_failed;   /* requests that could not */
    EtcdLeaseHandler on_lease;
    EtcdElectionHandler on_elected;
    EtcdHistoryHandler on_history;
    void *userdata; /* of these three */
} seen;

void store_begin(void);
void store_end(void);

/* Lets time pass, and timers fire at their time. */
void pass(uint64_t usec);
/* Lets time pass while the loop stands still. */
void stall(uint64_t usec);
/* It goes on: of what is due by now, and what the watch has to show, all runs by its priority. */
void resume(void);

/* ---- keys, written by others; the watch shows them later ---- */

StoredKey *find(const char *key); /* NULL: there is none */
void put_text(const char *key, const char *value);
void delete_key(const char *key);

#define PUT(prefix, record, kind, name)                                                            \
    do {                                                                                           \
        char _key[KEY_MAX];                                                                        \
        char *_text = prefix##_encode(record, NULL);                                               \
        put_text(key_of("lab", kind, name, _key), _text);                                          \
        free(_text);                                                                               \
    } while (0)

/* A node of one slot; a job of one or two ranks; a cordon. */
void put_node(const char *name);
void put_job(const char *name);
void cordon(const char *node);

/* ---- requests under way ---- */

typedef enum AnswerKind {
    GIVEN,
    LOST_AFTER,  /* it is done, and the answer is lost */
    LOST_BEFORE, /* it never came to etcd */
    DENIED,
} AnswerKind;

/* The read or the transaction that is under way; the test ends if there is none. */
EtcdCall *under_way(bool reads);
/* Works as under_way(), but returns the one of several that was requested last. */
EtcdCall *last_under_way(bool reads);
/* etcd answers the read now; answer() hands that out later. */
void take_snapshot(EtcdCall *read);
void answer(EtcdCall *call, AnswerKind kind);
/* Answers the questions about rights that are under way. */
void answer_rights(AnswerKind kind);
/* Reads, transactions and questions. */
size_t n_under_way(void);
/* Gives all answers, and those to the requests that follow at once. */
void answer_all(void);

/* ---- the watch ---- */

/* Shows the next revision; false: there is none. */
bool show_one(void);
void show_all(void);
/* Lists what there is: at first, and after a broken stream. Keys that went before they were shown are not told of. */
void list_all(void);
/* The same by a member that lags: what came after this revision is shown later. */
void list_until(int64_t revision);
/* Shows and answers everything until there is nothing to do at this moment. */
void settle(void);
