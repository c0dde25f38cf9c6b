/* SPDX-License-Identifier: Apache-2.0 */
/* testing-answers.h - an etcd of three members that says what the test tells it, at the end of the simulated network.
 *
 *     AskedCall *read = await_asked("Range");
 *     reply(read, &(Pb__RangeResponse){...}.base);
 *
 * Ownership: answers_set_up() makes the network and a loop, answers_tear_down() frees them, the test's client and what
 *            the test has made of it. An AskedCall is the fixture's, until then.
 * Units:     *_usec is virtual time.
 * Errors:    none: what goes wrong ends the test.
 * Threads:   one.
 */
#pragma once

#include "base/test/testing.h"
#include "etcd.pb-c.h"
#include "etcd/etcd.h"
#include "etcd/wire.h"

typedef struct AskedCall {
    WireCall *wire; /* NULL: it has ended */
    char method[32], token[32];
    size_t member;
    bool unary;
    int n_asked, n_answered;
    ProtobufCMessage *request; /* the newest */
} AskedCall;

/* For cmocka. A test that leaves memory behind fails at its end. */
int answers_set_up(void **state);
int answers_tear_down(void **state);

/* The test's objects; NULL: there is none. */
extern sd_event *event;
extern Etcd *etcd;
extern EtcdLease *lease;
extern EtcdWatch *watch;
extern EtcdElection *election;
/* The client. user: NULL for none. */
void open_client(const char *endpoints, const char *user);
/* Frees it, and what was made of it. */
void close_client(void);

/* As EtcdOptions.endpoints: of the first member, of two, and of all. */
extern const char answers_endpoint[], answers_endpoints[], answers_all_endpoints[];

/* The member takes no new connection; SIZE_MAX: all do. */
extern size_t answers_down;

/* Lets time pass until a call of that method ("Range") has a question without an answer; the oldest such call. */
AskedCall *await_asked(const char *method);
/* A call of that method has a question without an answer now. */
bool is_asked(const char *method);
/* Says so, and ends a call that has one answer. Borrows the message. Time passes until it is read. */
void reply(AskedCall *call, const ProtobufCMessage *message);
/* Ends the call so. */
void refuse(AskedCall *call, WireCode code, const char *text);
/* Both, of a call that has one answer: the answer, and an end that takes it back. */
void reply_and_refuse(AskedCall *call, const ProtobufCMessage *message, WireCode code,
                      const char *text);
/* Says bytes that are not a message. */
void babble(AskedCall *call);
void pass_usec(uint64_t usec);

/* How many calls of that method have not ended (NULL: of any), and how many there ever were. */
size_t open_calls(const char *method);
size_t all_calls(const char *method);

/* ---- answers: of cluster 7; revision 5 and term 2 where none is given ---- */

Pb__ResponseHeader header_of(int64_t revision, uint64_t term);
void reply_range(AskedCall *call, int64_t revision, uint64_t term);
/* These await the question. */
void reply_grant_of(int64_t id, int64_t ttl);
void reply_keep_alive(int64_t id, int64_t ttl, uint64_t term);
void reply_txn(void); /* done: with a result for each operation, of which none says anything */
void reply_created(void);
void reply_token(const char *token);
/* A page of the keys that are not NULL, all created at 2 and changed at 3. */
void reply_page(int64_t revision, bool more, const char *a, const char *b);

/* ---- questions: of the read or the transaction that is awaited ---- */

Pb__RangeRequest *range_request(void);
Pb__TxnRequest *txn_request(void);
void assert_bytes(ProtobufCBinaryData bytes, const char *wanted, size_t n);
#define ASSERT_BYTES(bytes, wanted) assert_bytes(bytes, wanted, sizeof(wanted) - 1)
