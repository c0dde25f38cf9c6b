/* SPDX-License-Identifier: Apache-2.0 */
/* drain.h - how sdtraind ends when it is told to.
 *
 * At SIGTERM or SIGINT the node's record says drain. The leader tells rank 0 to save and leave, the ranks here exit,
 * their reports are written, then the record says `left`. After drain_sec the ranks are killed; at a second signal,
 * at once.
 *
 * Ownership: part of the Manager.
 * Units:     seconds.
 * Errors:    an etcd that does not answer costs DRAIN_LAST_WORDS_SEC at most.
 * Threads:   loop thread only.
 */
#pragma once

typedef struct Manager Manager;

enum { DRAIN_LAST_WORDS_SEC = 2 };

/* name: of the signal. */
void drain_signal(Manager *m, const char *name);
/* Does the next part that can be done now. Cheap: called after every write and every death. */
void drain_advance(Manager *m);
