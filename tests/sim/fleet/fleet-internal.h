/* SPDX-License-Identifier: Apache-2.0 */
/* fleet-internal.h - what fleet.c and people.c share.
 *
 * Ownership: people_open() borrows both until the fleet is closed.
 * Units:     none.
 * Errors:    none.
 * Threads:   one.
 */
#pragma once

#include "etcd/etcd.h"
#include "tests/sim/fleet/fleet.h"

#define CLUSTER "lab"

/* The loop and the client of whoever types commands. */
void people_open(sd_event *loop, Etcd *etcd);
