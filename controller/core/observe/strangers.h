/* SPDX-License-Identifier: Apache-2.0 */
/* strangers.h - keeps the record of another writer under a node's name aside until it counts. */
#pragma once

#include "controller/core/state/state.h"

/* Judges a readable record of the node. Returns true if it is kept aside, so that the record before it stays valid. */
bool stranger_doubts(Cluster *c, CoreNode *node, const Event *ev);
/* Discards the record that was kept aside, if there is one. */
void stranger_forget(Cluster *c, CoreNode *node);
/* Returns the record that was kept aside if it counts from now on, because its time or the previous record's lease
 * is over; otherwise NULL. */
const DoubtedRecord *stranger_believed(const Cluster *c, Scratch *s, CoreNode *node);
