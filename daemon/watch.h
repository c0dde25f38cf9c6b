/* watch.h - the key ranges that a node follows, and what each change means to it.
 *
 * Ownership: part of the Manager.
 * Units:     none.
 * Errors:    a record that cannot be read is logged by its key and skipped.
 * Threads:   loop thread only.
 */
#pragma once

#include "etcd/etcd.h"

typedef struct Manager Manager;

enum { WATCHED_KINDS = 5 };

typedef struct Watches {
    EtcdWatch *watch[WATCHED_KINDS];
    EtcdWatch *own; /* this node's own record */
} Watches;

int watches_open(Manager *m, Error *err);
void watches_clear(Watches *watches);
