/* SPDX-License-Identifier: Apache-2.0 */
/* testing-answers.h - an etcd of three members whose answers the test gives, connected to the simulated network.
 *
 *     AskedCall *read = await_asked("Range");
 *     reply(read, &(Pb__RangeResponse){...}.base);
 *
 * Ownership: answers_set_up() makes the network and a loop, answers_tear_down() frees them, the test's client and the
 *            objects that the test has made of the client. Until then an AskedCall is the fixture's.
 * Units:     *_usec is virtual time.
 * Errors:    none: an error ends the test.
 * Threads:   one.
 */
#pragma once

#include "base/test/testing.h"
#include "etcd.pb-c.h"
#include "etcd/etcd.h"
#include "etcd/wire.h"

typedef struct AskedCall {
    WireCall *wire; /* NULL: the call has ended */
    char method[32], token[32];
    size_t member;
    bool unary;
    int n_asked, n_answered;
    ProtobufCMessage *request; /* the newest request */
} AskedCall;

/* The fixture's setup and teardown for cmocka. A test that leaves memory allocated fails at its end. */
int answers_set_up(void **state);
int answers_tear_down(void **state);

/* The test's objects; NULL: there is none. */
extern sd_event *event;
extern Etcd *etcd;
extern EtcdLease *lease;
extern EtcdWatch *watch;
extern EtcdElection *election;
/* Opens the client. user may be NULL. */
void open_client(const char *endpoints, const char *user);
/* Frees the client and the objects made of it. */
void close_client(void);

/* The endpoints of the first member, of two members and of all members, in the form of
 * EtcdOptions.endpoints. */
extern const char answers_endpoint[], answers_endpoints[], answers_all_endpoints[];

/* The member that accepts no new connection; SIZE_MAX: all accept. */
extern size_t answers_down;

/* Lets time pass until a call of that method ("Range") has an unanswered request. Returns the
 * oldest such call. */
AskedCall *await_asked(const char *method);
/* Returns whether a call of that method has an unanswered request now. */
bool is_asked(const char *method);
/* Sends the message, and ends the call if it is unary. Borrows the message. Lets time pass until
 * the client has read the message. */
void reply(AskedCall *call, const ProtobufCMessage *message);
/* Ends the call with the status `code`. */
void refuse(AskedCall *call, WireCode code, const char *text);
/* Answers a unary call with the message, but ends the call with the status `code`, which makes the
 * answer invalid. */
void reply_and_refuse(AskedCall *call, const ProtobufCMessage *message, WireCode code,
                      const char *text);
/* Sends bytes that are not a message. */
void babble(AskedCall *call);
void pass_usec(uint64_t usec);

/* open_calls() returns how many calls of the method are open, all_calls() how many there were in total. method NULL:
 * calls of any method. */
size_t open_calls(const char *method);
size_t all_calls(const char *method);

/* ---- answers: of cluster 7; revision 5 and term 2 unless given ---- */

Pb__ResponseHeader header_of(int64_t revision, uint64_t term);
void reply_range(AskedCall *call, int64_t revision, uint64_t term);
/* These functions wait for the request. */
void reply_grant_of(int64_t id, int64_t ttl);
void reply_keep_alive(int64_t id, int64_t ttl, uint64_t term);
/* answers that the transaction is done, with an empty result for each operation */
void reply_txn(void);
void reply_created(void);
void reply_token(const char *token);
/* Sends a page of the keys that are not NULL, all created at revision 2 and changed at revision
 * 3. */
void reply_page(int64_t revision, bool more, const char *a, const char *b);

/* ---- the awaited request: a read or a transaction ---- */

Pb__RangeRequest *range_request(void);
Pb__TxnRequest *txn_request(void);
void assert_bytes(ProtobufCBinaryData bytes, const char *wanted, size_t n);
#define ASSERT_BYTES(bytes, wanted) assert_bytes(bytes, wanted, sizeof(wanted) - 1)
