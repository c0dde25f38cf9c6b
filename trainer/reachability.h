/* SPDX-License-Identifier: Apache-2.0 */
/* reachability.h - checks whether this node can reach other nodes, at ports like those of ranks.
 *
 * The kernel chooses the ports of ranks, so no known port has a listener. But a machine also answers at a port without
 * a listener: it refuses the connection. A firewall that drops packets does not answer. So a refusal shows that the
 * path is open, and its time is the path's round trip.
 *
 * Ownership: fills the caller's Reach.
 * Units:     *_usec is microseconds.
 * Errors:    in Reach.r.
 * Threads:   the main thread; blocks for a second, and for up to five seconds more if names cannot be looked up: new
 *            lookups begin for two seconds, and the last lookup waits a second for each of three name servers.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { REACH_MAX = 16 };

typedef struct Reach {
    const char *address; /* a name, or an address of IPv4 or IPv6 */
    /* 0: the peer answers; -ETIMEDOUT, -EHOSTUNREACH: the peer does not answer; -EADDRNOTAVAIL: the name is not
     * known */
    int r;
    uint64_t took_usec;
} Reach;

/* n is at most REACH_MAX. */
void reachability_check(Reach *peers, size_t n);
