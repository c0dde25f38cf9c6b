/* SPDX-License-Identifier: Apache-2.0 */
/* drain.h - how sdtraind ends after a signal.
 *
 * At SIGTERM or SIGINT sdtraind marks the node's record as draining. The leader then tells rank 0 to save and leave,
 * the ranks of this node exit, their reports are written, and the record says `left`. The ranks are killed after
 * drain_sec, or at once at a second signal.
 *
 * Units:     seconds.
 * Errors:    an etcd that does not answer delays the end by at most DRAIN_LAST_WORDS_SEC.
 */
#pragma once

typedef struct Manager Manager;

enum { DRAIN_LAST_WORDS_SEC = 2 };

/* Begins the drain, or kills the ranks at a second signal. name: the signal's name. */
void drain_signal(Manager *m, const char *name);
/* Does the next step of the drain if it can be done now. Cheap: called after every write and every exit of a rank. */
void drain_advance(Manager *m);
