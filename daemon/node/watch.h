/* SPDX-License-Identifier: Apache-2.0 */
/* watch.h - watches the keys of etcd that concern a node, and passes each change on to its module.
 *
 * Errors:    a record that cannot be read is logged by its key and skipped.
 */
#pragma once

#include "daemon/node/fence.h"
#include "daemon/node/node.h"
#include "daemon/node/requests.h"
#include "daemon/world/workload.h"

enum { WATCHED_KINDS = 5 };

typedef struct Watches {
    /* Set by manager.c: the parts of the daemon that the changes concern. */
    const DaemonConfig *config;
    Etcd *etcd;
    EtcdLease *lease;
    Workload *workload;
    OwnNode *node;
    Fence *fence;
    const Requests *requests;

    EtcdWatch *watch[WATCHED_KINDS];
    EtcdWatch *own; /* watch of this node's own record */
} Watches;

/* Opens all watches. The fields that manager.c sets must be set before. */
int watches_open(Watches *w, Error *err);
void watches_clear(Watches *w);
