/* SPDX-License-Identifier: Apache-2.0 */
/* fence.h - limits how long ranks train without an answer from etcd.
 *
 * A node to which etcd does not answer trains on: without a quorum of etcd no controller can decide anything, and
 * the commit guard protects the result. After fence_sec without an answer the node stops its ranks.
 *
 * Ownership: a value, part of the Manager.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    none.
 */
#pragma once

#include "base/macro.h"

typedef struct Manager Manager;

typedef struct Fence {
    uint64_t contact_usec; /* when etcd last answered */
    bool fenced;           /* etcd has been silent for fence_sec, and the ranks were stopped */
} Fence;

/* Notes that etcd has answered a request. */
void fence_note_contact(Fence *fence);
/* Stops the ranks when fence_sec has passed. Called on every tick. stood_still_usec: as for fence_is_due(). */
void fence_check(Manager *m, uint64_t now_usec, uint64_t stood_still_usec);
