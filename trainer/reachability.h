/* SPDX-License-Identifier: Apache-2.0 */
/* reachability.h - whether other nodes can be reached from here, at ports such as ranks have.
 *
 * The kernel chooses the ports of ranks, so nobody listens at a known one. But a machine answers at a port where nobody
 * listens, too: it refuses. A firewall that drops says nothing. So a refusal shows that the way is open, and its time
 * is that of the way.
 *
 * Ownership: fills the caller's Reach.
 * Units:     *_usec is microseconds.
 * Errors:    in Reach.r.
 * Threads:   the main thread; blocks for a second, and for five more where names cannot be looked up.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { REACH_MAX = 16 };

typedef struct Reach {
    const char *address; /* a name, or an address of IPv4 or IPv6 */
    int r; /* 0: it answers; -ETIMEDOUT, -EHOSTUNREACH; -EADDRNOTAVAIL: the name is not known */
    uint64_t took_usec;
} Reach;

/* n is at most REACH_MAX. */
void reachability_check(Reach *peers, size_t n);
