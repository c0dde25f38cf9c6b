/* SPDX-License-Identifier: Apache-2.0 */
/* fence.h - how long ranks may train without a word from etcd.
 *
 * A node that merely hears nothing trains on: nobody decides while etcd has no quorum, and the
 * commit guard protects the result. After fence_sec it stops what it runs.
 *
 * Ownership: a value, part of the Manager.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    none.
 * Threads:   loop thread only.
 */
#pragma once

#include "base/macro.h"

typedef struct Manager Manager;

typedef struct Fence {
    uint64_t contact_usec; /* when etcd last answered */
    bool fenced;           /* etcd has been silent for fence_sec, and the ranks were stopped */
} Fence;

/* etcd answered something. */
void fence_note_contact(Fence *fence);
/* Called on every tick. stood_still_usec: as for fence_is_due(). */
void fence_check(Manager *m, uint64_t now_usec, uint64_t stood_still_usec);
