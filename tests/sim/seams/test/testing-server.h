/* SPDX-License-Identifier: Apache-2.0 */
/* testing-server.h - a minimal etcd for tests of the simulated network: a few keys, in one store behind all members.
 *
 * Errors: asserts. Threads: one.
 * Ownership: testing_server_open() makes the only server; testing_server_close() frees it.
 * Units:     microseconds; members are counted from 0.
 */
#pragma once

#include "tests/sim/seams/wire.h"

enum { TESTING_MEMBERS = 3 };

NetworkServer testing_server_open(void);
void testing_server_close(void);

/* Stops or starts a member. A stopped member accepts no connection and forgets its requests. */
void testing_server_stop(size_t member, bool stop);
/* Returns the value of a key; NULL: there is no such key. */
const char *testing_server_value(const char *key);
size_t testing_server_writes(void);  /* number of transactions that changed something */
size_t testing_server_streams(void); /* number of open watches and keep-alives */
size_t testing_server_last(void);    /* the member that got the last request */
/* Holds requests of the given method ("Txn") back, unserved; NULL: holds no requests. */
void testing_server_hold(const char *method);
/* Makes every answer consist of bytes that are not a message. */
void testing_server_garble(bool garble);
/* Deletes a key; watches are notified only if tell is true. */
void testing_server_delete(const char *key, bool tell);
/* Ends every watch, as if its revision were compacted. */
void testing_server_cancel_watches(void);
