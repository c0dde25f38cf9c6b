/* SPDX-License-Identifier: Apache-2.0 */
/* observe.h - applies events to the core's state and decides nothing.
 *
 * Folder:    defaults of the headers here: Ownership: borrows the Cluster for the call. Units: as state.h. Errors:
 *            none. Threads: one at a time.
 * Ownership: events are borrowed for the call; the core copies what it keeps.
 * Errors:    none. A record that finds no place is counted (cluster_dropped).
 */
#pragma once

#include "controller/core/state/state.h"

/* Applies one event that carries a record, or reports that a key is gone. */
void observe(Cluster *c, Scratch *s, const Event *ev);
/* Drops the reports whose processes are known to be dead. Called once a batch of events is complete. */
void observe_settle(Cluster *c, Scratch *s);
