/* SPDX-License-Identifier: Apache-2.0 */
/* fleet-internal.h - what fleet.c, leaders.c and people.c share.
 *
 * Ownership: people_open() makes what people_close() frees. The caller owns the loop and the client of a process.
 * Units:     machines as fleet_machine() counts them.
 * Errors:    none.
 * Threads:   one.
 */
#pragma once

#include "controller/leader/leader.h"
#include "etcd/etcd.h"
#include "tests/sim/fleet/fleet.h"

#include <systemd/sd-event.h>

#define CLUSTER "lab"

/* A loop of a process on that machine, with a client of etcd. The caller has entered no loop. */
sd_event *fleet_open_process(size_t machine, int64_t real_offset_usec, Etcd **ret);

/* NULL: it does not run. Its loop is entered for calls that change it. */
Leader *fleet_leader_of(int controller, sd_event **ret_loop);

/* ---- people.c: sdctl and etcdctl, on a machine of their own ---- */
void people_open(void);
void people_close(void);
