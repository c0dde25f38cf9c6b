/* SPDX-License-Identifier: Apache-2.0 */
/* connector.h - connects each two ranks of a world, and both prove that they are of it.
 *
 * Every rank listens at one port; of two ranks the higher one calls. The called rank greets with a
 * nonce. The caller names both ranks, adds a nonce of its own and a proof (proof.h), and gets a proof
 * in return. An incoming connection that has proven nothing within 2 s is dropped; such connections
 * have places of their own, and the oldest makes way for the next.
 *
 * Ownership: connector_open() gives the caller a Meeting; connector_free() accepts NULL, stops listening
 *            and closes what was not handed over. Borrows the options until then.
 * Units:     deadlines in CLOCK_BOOTTIME microseconds.
 * Errors:    -ETIMEDOUT: a rank did not call, or could not be reached; -ECONNREFUSED: no process
 *            listens at a rank's address. *ret_peer is that rank.
 * Threads:   one.
 */
#pragma once

#include "trainer/comm/address.h"
#include "trainer/comm/comm.h"

typedef struct Connector Connector;

int connector_open(const CommOptions *options, Connector **ret, Error *err);
Connector *connector_free(Connector *meeting);
DEFINE_CLEANUP(Connector, connector_free)
const char *connector_address(const Connector *meeting); /* where this rank listens */
/* Calls a lower rank. address: where that rank says it listens; refused unless it is "number:port". */
int connector_call(Connector *meeting, int peer, const char *address, Error *err);
/* Waits until there is a connection with every rank. All lower ranks must have been called. */
int connector_hold(Connector *meeting, uint64_t deadline_usec, int *ret_peer, Error *err);
/* Hands over the connection with a rank, once for each. */
int connector_take(Connector *meeting, int peer);
