/* SPDX-License-Identifier: Apache-2.0 */
/* connector.h - connects each two ranks of a world; both ranks prove that they belong to the world.
 *
 * Every rank listens at one port; of two ranks the higher rank calls. The called rank greets with a
 * nonce. The caller names both ranks, adds its own nonce and a proof (proof.h), and receives a proof in
 * return. An incoming connection that has proven nothing within 2 s is dropped. There is a limit of such
 * connections: beyond the limit, a new connection replaces the oldest.
 *
 * Ownership: connector_open() gives the caller a Connector, which borrows the options; connector_free()
 *            accepts NULL, stops listening and closes the connections that were not handed over.
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
const char *connector_address(const Connector *meeting); /* the address where this rank listens */
/* Begins a call to a lower rank. address is the address that the rank published; an address that is
 * not "number:port" is refused. */
int connector_call(Connector *meeting, int peer, const char *address, Error *err);
/* Waits until there is a connection with every rank. connector_call() must have been called for all
 * lower ranks. */
int connector_hold(Connector *meeting, uint64_t deadline_usec, int *ret_peer, Error *err);
/* Hands over the connection with a rank. Call it once for each rank. */
int connector_take(Connector *meeting, int peer);
