/* SPDX-License-Identifier: Apache-2.0 */
/* strangers.h - keeps the record of another writer under a node's name aside until it counts.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as state.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/state/state.h"

/* A readable record of the node has come. True: it is kept aside, and the one before counts on. */
bool stranger_doubts(Cluster *c, CoreNode *node, const Event *ev);
/* The key is gone, and so is what was kept aside. */
void stranger_forget(Cluster *c, CoreNode *node);
/* Returns the record that was kept aside when it counts from now on: its time is over, or the lease before it; else
 * NULL. */
const DoubtedRecord *stranger_believed(const Cluster *c, Scratch *s, CoreNode *node);
