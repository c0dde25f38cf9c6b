/* SPDX-License-Identifier: Apache-2.0 */
/* status.h - the line that `systemctl status sdcontroller` shows.
 *
 * Example: "leading cluster prod, term 12: 3 of 4 nodes up, 2 jobs, 1 running". The line is sent when it has changed;
 * outside systemd nothing receives the line.
 *
 * Ownership: a value. Units: none. Errors: none.
 */
#pragma once

#include "controller/core/cluster.h"

enum { STATUS_BYTES = 256 };

typedef struct ControllerStatus {
    char said[STATUS_BYTES];
} ControllerStatus;

/* term: 0 while this controller does not decide. is_still: it is elected but stands still (succession.h). has_lease:
 * etcd has granted its lease, and the lease has not ended. */
void status_write(ControllerStatus *status, const Cluster *cluster, const char *name, int64_t term,
                  bool is_still, bool has_lease);
