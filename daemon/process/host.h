/* SPDX-License-Identifier: Apache-2.0 */
/* host.h - the host of a slot's program: a process that systemd starts for one connection of sdtraind, in a unit and as
 * a user of its own, and that starts the program there (host-messages.h).
 *
 * The host ends when no process of the program lives, and kills them when the connection ends. If the host is killed,
 * the kernel ends the program, and systemd whatever else lives in the unit. If the host hangs, the unit's watchdog ends
 * it. No process of the program's user can trace the host.
 *
 * Ownership: none. Units: none.
 * Errors:    in the exit code: 0: the program has ended, and nothing of it lives; 1 otherwise.
 * Threads:   one; blocks until the end.
 */
#pragma once

/* Serves the connection, and closes it. argv: the program, if the request has none; its environment comes with the
 * request, and `state`, if it is not NULL, replaces what the request has for that variable ("NAME=VALUE"). */
int host_run(int connection, char *const *argv, const char *state);
