/* SPDX-License-Identifier: Apache-2.0 */
/* testing-server.h - a few keys behind etcd's API, enough to try the network with: one store behind all members.
 *
 * Ownership: testing_server_open() makes the only one; testing_server_close() frees it.
 * Units:     microseconds; members are counted from 0.
 * Errors:    asserts.
 * Threads:   one.
 */
#pragma once

#include "tests/sim/seams/wire.h"

enum { TESTING_MEMBERS = 3 };

NetworkServer testing_server_open(void);
void testing_server_close(void);

/* A member that is down takes no connection; what it had heard is forgotten. */
void testing_server_stop(size_t member, bool stop);
/* The value of a key; NULL: there is none. */
const char *testing_server_value(const char *key);
size_t testing_server_writes(void);  /* transactions that changed something */
size_t testing_server_streams(void); /* watches and keep-alives that are open */
size_t testing_server_last(void);    /* the member that was asked last */
/* Requests of this method ("Txn") are not looked at; NULL: all are. */
void testing_server_hold(const char *method);
/* Answers are bytes that are not a message. */
void testing_server_garble(bool garble);
/* Deletes a key; the watches are told if tell. */
void testing_server_delete(const char *key, bool tell);
/* Ends every watch, as for a revision that is compacted. */
void testing_server_cancel_watches(void);
