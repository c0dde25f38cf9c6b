/* SPDX-License-Identifier: Apache-2.0 */
/* testing-memory.h - an etcd, a loop and a clock in memory, for tests of programs that use libetcd: answers and events
 * arrive when the test sends them, and timers fire when the test lets time pass.
 *
 *     memory_begin();                                  // and a client that is started with &etcd and memory_loop
 *     (void)put("/sdtrain/lab/nodes/n1", "{}", 0);
 *     settle();                                        // the client's watch shows the key
 *     answer(under_way(&etcd, "/sdtrain/lab/worlds/a"), LOST_AFTER);
 *     pass(USEC_PER_SEC);
 *
 * A program that links etcd-memory before other libraries has these functions in place of those of etcd.h (but for
 * elections, which a test plays itself) and clock.h; the functions of sd-event.h are those of the simulator's loop.h.
 * Several clients may run in one program: each has an Etcd of its own, and all share the store, the loop and the clock.
 *
 * Units: microseconds. Threads: main thread only.
 * Ownership: memory_end() frees everything, and fails the test if a timer, request, watch or lease is left behind.
 *            The keys that find() returns are valid until memory_end().
 * Errors:    none: a failure ends the test.
 */
#pragma once

#include "base/test/testing.h"
#include "etcd/etcd.h"

void memory_begin(void);
void memory_end(void);

/* ---- time ---- */

extern sd_event *memory_loop;
/* How far the realtime clock is ahead of the boottime clock, for all clients. */
extern uint64_t ahead_usec;
/* Lets time pass. Timers fire at their time, in the order that loop.h describes. */
void pass(uint64_t usec);
/* Lets time pass while the loop stands still. */
void stall(uint64_t usec);

/* ---- the store ---- */

/* One revision of a key. */
typedef struct StoredKey {
    char *key, *value;                         /* value NULL: the key was deleted */
    int64_t created, modified, version, lease; /* created and modified are revisions */
} StoredKey;

enum { FIRST_LEASE = 77 }; /* the lease of a client that never requests one */

extern int64_t newest_revision;
/* Returns the key as it is now; NULL: no such key. */
const StoredKey *find(const char *key);
/* put() and delete_key() return the revision of the change. Without such a key delete_key() returns 0. */
int64_t put(const char *key, const char *value, int64_t lease);
int64_t delete_key(const char *key);
/* Changes a key as if in the transaction of that revision; value NULL deletes it. */
void change_at(int64_t revision, const char *key, const char *value, int64_t lease);

/* ---- a client's connection to etcd ---- */

typedef enum CallKind { CALL_READ, CALL_TXN, CALL_RIGHTS, CALL_REVOKE, CALL_KINDS } CallKind;

struct Etcd {
    bool is_cut;             /* no answer and no event gets through */
    bool is_blind;           /* no event gets through: the watches show nothing */
    int fails;               /* the error of requests that cannot begin; 0: all begin */
    int n_failed;            /* number of requests that could not begin */
    int n_begun[CALL_KINDS]; /* number of requests that have begun, by kind */
    /* The only prefix that the client may read or watch, after it has requested its rights; NULL: the client may watch
     * any prefix, and read none. */
    const char *range;
    char last_right[256]; /* the key of the last request about rights */
    int n_lease_checks;   /* number of the client's calls of etcd_lease_check() */
    EtcdLease *lease;     /* NULL: the client has not requested one */
    EtcdHistory history;
    EtcdHistoryHandler on_history;
    void *userdata; /* passed to on_history */
};

/* ---- requests ---- */

typedef enum AnswerKind {
    GIVEN,
    LOST_AFTER,  /* the request is executed, and the answer is lost */
    LOST_BEFORE, /* the request never reaches etcd */
    LATE,        /* the answer is lost, and etcd executes the transaction at come_late() */
    DENIED,
} AnswerKind;

/* Returns the client's request under way that reads `key`, or whose first write is to `key`; ends the test if there is
 * none. The key of a request to revoke a lease is "lease". */
EtcdCall *under_way(const Etcd *etcd, const char *key);
bool is_under_way(const Etcd *etcd, const char *key);
size_t n_under_way(const Etcd *etcd);
/* These return, of the requests of one kind under way, the one that was made first, or last; they end the test if there
 * is none. */
EtcdCall *oldest_call(const Etcd *etcd, CallKind kind);
EtcdCall *newest_call(const Etcd *etcd, CallKind kind);
/* Lets etcd execute the read now; answer() passes the result on later. */
void take_snapshot(EtcdCall *read);
void answer(EtcdCall *call, AnswerKind kind);
/* Answers all requests of this kind. */
void answer_kind(const Etcd *etcd, CallKind kind, AnswerKind with);
/* Executes the request that was answered LATE; ends the test if there is none. */
void come_late(void);
/* Answers all requests, and the requests that these answers cause, except those of clients that are cut off. */
void answer_all(void);
/* settle() delivers changes and answers requests until nothing is left to do at this moment. If the clients wait before
 * they act on changes, the test sets gather_usec to this time, and settle() lets it pass after each round. */
extern uint64_t gather_usec;
void settle(void);

/* ---- watches ---- */

/* Delivers the oldest revision that a watch of the client has not delivered yet; the first delivery of a watch is a
 * list. prefix: only the watch of this prefix delivers; NULL: any watch. Returns false if there was nothing new. */
bool show_one(const Etcd *etcd, const char *prefix);
void show(const Etcd *etcd);
/* Makes the client's watches list their keys again, as after a broken stream. The handlers are not told of keys that
 * were put and deleted between the two lists, and get the deletion and the new put of a key in one call. */
void list_again(const Etcd *etcd);
/* Works like list_again(), but the list comes from a member that lags and has no changes after this revision yet. */
void list_until(const Etcd *etcd, int64_t revision);

/* ---- leases ---- */

/* Grants the client a lease, with a new id: the first one is FIRST_LEASE + 1. */
void grant(const Etcd *etcd);
void renew(const Etcd *etcd);
/* Makes etcd grant a lease of this length instead of the length that the client has requested. */
void lasts(const Etcd *etcd, int64_t ttl_sec);
/* Returns the id of another client's lease, which lives until end_lease(). */
int64_t foreign_lease(void);
/* Ends the lease in etcd, and deletes its keys. Returns false if there was no such lease. */
bool end_lease(int64_t id);
/* Ends the client's lease in etcd, without notifying the client. */
void expire(const Etcd *etcd);
/* Notifies the client that its lease is lost. */
void notify_lost(const Etcd *etcd);
int64_t lease_of(const Etcd *etcd); /* returns 0 if the client holds no lease */

/* ---- between the files of etcd-memory ---- */

/* Returns copies of the entry of `key`, or with `prefix` of all keys that begin with it; the caller frees the array. */
EtcdKeyValue *copy_keys(const char *key, bool prefix, size_t *ret_n);
bool lease_lives(int64_t id);
/* Delivers events to the first client whose watches have something to deliver; returns false if there is none. */
bool show_everybody(void);
size_t n_calls_of_all(void);
