/* SPDX-License-Identifier: Apache-2.0 */
/* fence-rule.h - decides whether etcd has been silent for so long that ranks must stop.
 *
 * Ownership: values. Threads: any; pure.
 * Units:     microseconds of one clock.
 */
#pragma once

#include "base/macro.h"

/* contact_usec: when etcd last answered. fence_usec: how long etcd may be silent. stood_still_usec: how long this
 * process itself did not run just now; etcd's answers of that time may still wait in the loop. */
bool fence_is_due(uint64_t now_usec, uint64_t contact_usec, uint64_t fence_usec,
                  uint64_t stood_still_usec);
