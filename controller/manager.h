/* SPDX-License-Identifier: Apache-2.0 */
/* manager.h - sdcontroller as one object: a Leader (leader/leader.h) and the rest of the program around it.
 *
 * It owns the client of etcd, the journal's file, the port of /metrics, the status line for systemd, and the messages
 * to sinks of notifications. The Leader determines whether to decide, and what.
 *
 * Ownership: manager_new() gives the caller a Controller, which borrows the loop and the settings.
 * Units:     none.
 * Errors:    manager_new(), manager_reload(): -errno with the text. The loop ends with 0 after manager_leave(), with
 *            -ERESTART when etcd has another history, and with 1 when a timer cannot be set.
 */
#pragma once

#include "controller/config/config.h"

#include <systemd/sd-event.h>

typedef struct Controller Controller;

int manager_new(sd_event *event, const ControllerConfig *config, Controller **ret, Error *err);
Controller *manager_free(Controller *manager);
DEFINE_CLEANUP(Controller, manager_free)

/* Applies the settings that may change without a restart, ends a standstill, and reads the alerts file again; on an
 * error the old sinks stay in force. */
int manager_reload(Controller *manager, Error *err);

/* Gives leadership up at once and ends the loop, after two seconds at the latest. */
void manager_leave(Controller *manager);
