/* SPDX-License-Identifier: Apache-2.0 */
/* fleet-internal.h - declarations for fleet.c, leaders.c and people.c.
 *
 * Errors: none. Threads: one.
 * Ownership: people_open() makes what people_close() frees. The caller owns the loop and the client of a process.
 * Units:     machines as fleet_machine() counts them.
 */
#pragma once

#include "controller/leader/leader.h"
#include "etcd/etcd.h"
#include "tests/sim/fleet/fleet.h"

#include <systemd/sd-event.h>

#define CLUSTER "lab"

/* Opens the loop of a process on the given machine, with a client of etcd. The caller must not be
 * inside a loop. */
sd_event *fleet_open_process(size_t machine, int64_t real_offset_usec, Etcd **ret);

/* Returns the controller's Leader, or NULL if the controller does not run. The caller enters
 * *ret_loop for calls that change the leader. */
Leader *fleet_leader_of(int controller, sd_event **ret_loop);

/* ---- people.c: sdctl and etcdctl, on a machine of their own ---- */
void people_open(void);
void people_close(void);
