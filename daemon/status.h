/* SPDX-License-Identifier: Apache-2.0 */
/* status.h - sends systemd the line that `systemctl status sdtraind` shows, and notifies it when the service is
 * ready or stops.
 *
 * Example: "n1 of cluster prod: job first, generation 3, 2 of 4 ranks, step 1240; healthy; lease renewed 1 s ago". A
 *          change of state is sent at once, figures every STATUS_SEC. Outside systemd nothing is sent.
 *
 * Errors: none. Threads: loop thread only.
 * Ownership: a value. Reads the Manager.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds.
 */
#pragma once

#include "base/error.h"

typedef struct Manager Manager;

enum { STATUS_SEC = 5, STATUS_BYTES = 768 };

typedef struct DaemonStatus {
    uint64_t started_usec;    /* when this sdtraind began */
    char state[STATUS_BYTES]; /* the line without its figures, as last sent */
    uint64_t said_usec;       /* when the line was last sent */
} DaemonStatus;

/* Sends the line if its state has changed, or every STATUS_SEC. Cheap: called at every tick. */
void status_update(DaemonStatus *s, const Manager *m, uint64_t now_usec);

/* Notifies systemd that the node is registered. */
void status_ready(const Manager *m);
void status_reloading(const Manager *m);
void status_reloaded(const Manager *m);
/* Requests as much time from systemd as the drain may take. */
void status_stopping(const Manager *m);
